"""The page of the API server, in a browser of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import webbrowser

from trainjob_client.requests import PREFIX

from .api import Api, UsageError

_PASSED_ON = ("kubeconfig", "context", "cluster", "user", "server", "token", "as_uid", "tls_server_name")
_PASSED_ON_TOO = ("certificate_authority", "client_certificate", "client_key")


def serve(api: Api, port: int, no_browser: bool) -> int:
    """Until Ctrl-C, or until the proxy ends. Raises UsageError without kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UsageError("kubectl is not on the PATH; the page is served through `kubectl proxy`.")
    flags = [
        f"--{name.replace('_', '-')}={api.flags[name]}"
        for name in (*_PASSED_ON, *_PASSED_ON_TOO)
        if api.flags.get(name)
    ]
    flags += [f"--as={api.flags['as_user']}"] if api.flags.get("as_user") else []
    flags += [f"--as-group={each}" for each in api.flags.get("as_group") or ()]
    flags += ["--insecure-skip-tls-verify"] if api.flags.get("insecure_skip_tls_verify") else []
    api.read(PREFIX)  # raises what the user would otherwise read in the browser
    proxy = subprocess.Popen(  # noqa: S603
        [kubectl, *flags, "proxy", f"--port={port}"], stdout=subprocess.PIPE, text=True
    )
    assert proxy.stdout is not None  # noqa: S101
    try:
        found = re.search(r"Starting to serve on (\S+)", proxy.stdout.readline())
        if found is None:
            return proxy.wait() or 1
        address = f"http://{found[1]}{PREFIX}/dashboard"
        print(f"{address}\nCtrl-C ends it.", flush=True)
        if not no_browser and not webbrowser.open(address):
            print("No browser could be opened.", file=sys.stderr)
        return proxy.wait()
    finally:
        proxy.terminate()
        proxy.wait()
