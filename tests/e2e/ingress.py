"""An ingress of a platform: nginx with the very configuration of docs/ingress.md, and a login.

Who is logged in is what the cookie `login` says; the stand-in for oauth2-proxy believes it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.e2e.api import Object
from tests.e2e.processes import Daemon, free_port, wait_until
from tests.e2e.visibility_server import VisibilityServer

GUIDE = Path(__file__).parents[2] / "docs" / "ingress.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

_CONFIGURATION = """
daemon off;
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{
        listen 127.0.0.1:{login_port};
        if ($cookie_login = "") {{ return 401; }}
        add_header X-Auth-Request-Email $cookie_login always;
        location / {{ return 202; }}
    }}
    server {{
        listen 127.0.0.1:{port};
        location = /oauth2/auth {{
            internal;
            proxy_pass http://127.0.0.1:{login_port};
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }}
        {location}
    }}
}}
"""


def blocks_of_guide(language: str) -> list[str]:
    """What the guide shows in that language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, language
    return found


def manifests_of_guide() -> list[Object]:
    """Its objects; a kustomization is none."""
    found = [thing for block in blocks_of_guide("yaml") for thing in yaml.safe_load_all(block)]
    return [thing for thing in found if thing["kind"] != "Kustomization"]


@contextlib.contextmanager
def ingress(server: VisibilityServer, home: Path, *, certificate: tuple[Path, Path]) -> Iterator[str]:
    """The address of the ingress, which shows this client certificate, until the end of the block."""
    assert NGINX is not None
    (location,) = blocks_of_guide("nginx")
    cert, key = certificate
    for shown, here in (
        ("https://visibility-api-dashboard.trainjob-visibility.svc", server.url),
        ("/etc/nginx/visibility/tls.crt", str(cert)),
        ("/etc/nginx/visibility/tls.key", str(key)),
        ("/etc/nginx/visibility/ca.crt", str(server.authority.bundle)),
    ):
        assert location.count(shown) == 1, shown
        location = location.replace(shown, here)
    port, login_port = free_port(), free_port()
    file = home / "nginx.conf"
    file.write_text(_CONFIGURATION.format(home=home, location=location, port=port, login_port=login_port))
    argv = [NGINX, "-e", str(home / "error.log"), "-p", str(home), "-c", str(file)]
    nginx = Daemon("nginx", argv, log=home / "nginx.log")
    nginx.start()
    try:
        wait_until(
            lambda: nginx.check_alive() is None and (home / "nginx.pid").exists(), what="nginx listens"
        )
        yield f"http://127.0.0.1:{port}"
    finally:
        nginx.stop()
