"""How requests reach the API server: TLS, proxies, headers, for httpx."""

from __future__ import annotations

import contextlib
import os
import ssl
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import SplitResult, urlsplit

from .credentials import CredentialSource, authority
from .errors import ConfigError
from .kubeconfig import Context
from .proxies import proxy_of_environment

TIMEOUT_S, CONNECT_S = 30.0, 10.0
USER_AGENT = "trainjob-progress"


class Connection:
    """What the two clients, with and without async, have in common: how a request looks for this context."""

    def __init__(
        self,
        context: Context,
        *,
        headers: Optional[Mapping[str, str]] = None,
        timeout_s: Optional[float] = None,
    ) -> None:
        self.context = context
        self.credentials = CredentialSource(context)
        self._headers = [*_impersonation(context.user), *(headers or {}).items()]
        self.tls: Optional[ssl.SSLContext] = None  # after `prepare`
        self._certificate: Optional[Tuple[bytes, bytes]] = None
        self.timeout_s, self.connect_s = (
            (TIMEOUT_S, CONNECT_S) if timeout_s is None else (timeout_s, timeout_s)
        )

    def prepare(self) -> bool:
        """Make credentials and TLS ready; may block. True when connections have to be made anew."""
        certificate = self.credentials.current().certificate
        is_new = self.tls is None or certificate != self._certificate
        if is_new:
            self.tls, self._certificate = _tls_of(self.context.cluster, certificate), certificate
        return is_new

    @property
    def is_due(self) -> bool:
        """Whether `prepare` has anything to do."""
        return self.tls is None or self.credentials.is_due

    def arguments(self) -> Dict[str, Any]:
        """For `httpx.Client` or `httpx.AsyncClient`, after `prepare`. Raises ConfigError."""
        import httpx  # 40 ms, which a command in a terminal may not need

        try:
            server = httpx.URL(self.server.geturl())
        except httpx.InvalidURL as error:
            raise _no_address(self.context.cluster["server"]) from error
        return {
            "base_url": server,
            "verify": self.tls,
            "proxy": self.proxy,
            "trust_env": False,
            "timeout": httpx.Timeout(self.timeout_s, connect=self.connect_s),
            "headers": {"User-Agent": USER_AGENT},
        }

    @property
    def server(self) -> SplitResult:
        """Raises ConfigError."""
        return _address_of(self.context.cluster["server"])

    @property
    def proxy(self) -> Optional[str]:
        """Its URL. Raises ConfigError."""
        named: Optional[str] = self.context.cluster.get("proxy-url")
        return named or proxy_of_environment(self.server)

    def headers(self, accept: str) -> "list[Tuple[str, str]]":
        """Of one request."""
        found = [("Accept", accept), *self._headers]
        authorization = self.credentials.current().authorization
        if authorization is not None:
            found.append(("Authorization", authorization))
        return found

    @property
    def extensions(self) -> Dict[str, Any]:
        """`tls-server-name`: the name that is sent, and that the certificate must have."""
        name = self.context.cluster.get("tls-server-name")
        return {"sni_hostname": name} if name else {}


def _address_of(server: Any) -> SplitResult:
    try:
        found: SplitResult = urlsplit(server)
        is_port = found.port != 0  # of what is no port it raises
        if is_port and found.scheme in ("http", "https") and found.hostname:
            return found
    except (TypeError, ValueError, AttributeError):
        pass
    raise _no_address(server)


def _no_address(server: Any) -> ConfigError:
    return ConfigError(f"The server {server} of the kubeconfig is no address such as https://example:6443.")


def _impersonation(user: Mapping[str, Any]) -> "list[Tuple[str, str]]":
    headers = []
    if user.get("as"):
        headers.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", str(each)) for each in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{key}", str(each)) for each in values]
    return headers


def _tls_of(cluster: Mapping[str, Any], certificate: Optional[Tuple[bytes, bytes]]) -> ssl.SSLContext:
    try:
        ca = authority(dict(cluster))
        made = ssl.create_default_context(cadata=ca.decode() if ca is not None else None)
        made.verify_flags &= (
            ~ssl.VERIFY_X509_STRICT
        )  # Go is not so strict, so clusters have such certificates
        if cluster.get("insecure-skip-tls-verify"):
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            _load_pair(made, certificate)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"A certificate or key of the kubeconfig is of no use: {error}.") from error
    return made


def _load_pair(context: ssl.SSLContext, pair: Tuple[bytes, bytes]) -> None:
    """Python reads it from a file only: one that its owner alone may read, for as long as that takes."""
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix="trainjob-client-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pair[0] + b"\n" + pair[1] + b"\n")
        context.load_cert_chain(name, password="")  # one with a password is refused, not asked for
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
