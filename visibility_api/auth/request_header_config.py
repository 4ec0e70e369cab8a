"""The ConfigMap in which kube-apiserver publishes its client CAs, followed by a watch.

Beside it the operator's own trusted proxy, if there is one, so that all CAs in force are one value.

Each of its parts (client CA, front proxy's CA, front proxy's header names) is updated by itself. A part that
is missing or cannot be read keeps its last good value: a bad edit must not lock all users out. See
`k8s.io/apiserver/pkg/server/options/authentication_dynamic_request_header.go`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import structlog

from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError
from visibility_api.kube.watch import Watch

from .certificates import CaPool
from .client_certificate import ClientCertificates
from .errors import TrustForbidden, TrustUnusable
from .front_proxy import FrontProxy, ProxyHeaders
from .trusted_proxy import TrustedProxy

log = structlog.get_logger("visibility.auth")

NAME = "extension-apiserver-authentication"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
READ_TIMEOUT_S = 10.0

_CLIENT_CA, _PROXY_CA = "client-ca-file", "requestheader-client-ca-file"
_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")  # of a header name, RFC 9110 5.6.2


class _Meta(msgspec.Struct):
    name: str = ""


class ConfigMap(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The CAs in force at one moment. None: that method of authentication is off."""

    front_proxy: FrontProxy | None = None
    client_certificates: ClientCertificates | None = None
    trusted_proxy: TrustedProxy | None = None

    @property
    def ca_pem(self) -> str:
        """All CAs, for the TLS handshake; each request is verified against one pool alone."""
        trusted = (self.client_certificates, self.front_proxy, self.trusted_proxy)
        return "".join(each.pool.pem for each in trusted if each)


_ProxyNames = tuple[ProxyHeaders, tuple[str, ...]]  # of its headers, and the allowed ones of its certificate


class RequestHeaderConfig:
    """Follows the ConfigMap; `trust` is always the current value, replaced as a whole."""

    def __init__(self, *, on_change: Callable[[Trust], None] = lambda _trust: None) -> None:
        """`on_change` is called with each new trust, once it is in force; it may raise TrustUnusable."""
        self.trust = Trust()
        self._on_change = on_change
        self._read: dict[str, str] = {}
        self._client_pool: CaPool | None = None
        self._proxy_pool: CaPool | None = None
        self._proxy_names: _ProxyNames | None = None
        self._trusted_proxy: TrustedProxy | None = None

    async def load(self, reader: KubeClient, *, tolerate_failure: bool) -> None:
        """Read it once, before anything is served.

        Raises TrustForbidden without the right to read it, unless that is tolerated: then no certificate is
        accepted. An absent ConfigMap or cluster is only logged: the watch finds it later.
        """
        try:
            body = await reader.get(f"{CONFIG_MAPS}/{NAME}", timeout_s=READ_TIMEOUT_S)
            self.apply(msgspec.json.decode(body, type=ConfigMap))
        except ApiError as error:
            if error.status in (401, 403) and not tolerate_failure:
                raise TrustForbidden(
                    f"no right to read ConfigMap kube-system/{NAME} ({error}): bind the Role "
                    "extension-apiserver-authentication-reader in kube-system to this service account, or "
                    "set --authentication-tolerate-lookup-failure=true to run without the front proxy"
                ) from error
            log.warning("client CAs not loaded", error=str(error))
        except ClusterError as error:
            log.warning("client CAs not loaded", error=str(error))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.error("client CAs not loaded", error="the ConfigMap cannot be read")

    def watch(self, client: KubeClient) -> Watch[ConfigMap]:
        """A watch of that one object; the Role allows no more."""
        return Watch(
            client,
            CONFIG_MAPS,
            kind=ConfigMap,
            field_selector=f"metadata.name={NAME}",
            on_list=self._take_list,
            on_event=self._take_event,
        )

    async def _take_list(self, config_maps: AsyncIterable[ConfigMap]) -> None:
        async for config_map in config_maps:
            self.apply(config_map)

    def _take_event(self, change: Literal["ADDED", "MODIFIED", "DELETED"], config_map: ConfigMap) -> None:
        if change == "DELETED":
            log.warning("client CAs kept", error=f"ConfigMap kube-system/{NAME} was deleted")
        else:
            self.apply(config_map)

    def apply(self, config_map: ConfigMap) -> None:
        """Use each part that can be read, and log the others."""
        data = config_map.data or {}
        if config_map.metadata.name != NAME or data == self._read:
            return
        self._read = data
        self._client_pool = self._read_pool(data, _CLIENT_CA, self._client_pool)
        self._proxy_pool = self._read_pool(data, _PROXY_CA, self._proxy_pool)
        self._proxy_names = _read_names(data, self._proxy_names)
        self._renew_trust()

    def trust_proxy(self, proxy: TrustedProxy) -> None:
        """Trust this proxy beside what the ConfigMap says, instead of the former one."""
        self._trusted_proxy = proxy
        self._renew_trust()

    def _renew_trust(self) -> None:
        pool, names = self._proxy_pool, self._proxy_names
        self.trust = Trust(
            client_certificates=ClientCertificates(self._client_pool) if self._client_pool else None,
            front_proxy=FrontProxy(pool, *names) if pool and names else None,
            trusted_proxy=self._trusted_proxy,
        )
        log.info(
            "client CAs loaded",
            client_certificates=self.trust.client_certificates is not None,
            front_proxy=self.trust.front_proxy is not None,
            trusted_proxy=self.trust.trusted_proxy is not None,
        )
        try:
            self._on_change(self.trust)
        except TrustUnusable as error:
            log.error("client CAs not used for new connections", error=str(error))

    def _read_pool(self, data: Mapping[str, str], key: str, held: CaPool | None) -> CaPool | None:
        """The pool in `data`, the held one when that is missing or bad; None = that login is off."""
        if not data.get(key):
            if held is not None:
                log.warning("client CA kept", key=key, error="missing in the ConfigMap")
            return held
        try:
            found = CaPool(data[key], name=key.removesuffix("-ca-file"))
        except TrustUnusable as error:
            log.error("client CA not updated", key=key, error=str(error))
            return held
        # The same object for the same CAs: otherwise each open connection's certificate is verified again.
        return held if held is not None and held.pem == found.pem else found


def _read_names(data: Mapping[str, str], held: _ProxyNames | None) -> _ProxyNames | None:
    if held is not None and not data.get("requestheader-username-headers"):
        # An empty ConfigMap: without the list of allowed names, every name would be allowed.
        log.warning("front proxy's header names kept", error="missing in the ConfigMap")
        return held
    try:
        headers = ProxyHeaders(
            user=_header_list(data, "requestheader-username-headers"),
            group=_header_list(data, "requestheader-group-headers"),
            uid=_header_list(data, "requestheader-uid-headers"),
            extra_prefixes=_header_list(data, "requestheader-extra-headers-prefix"),
        )
        return headers, _string_list(data, "requestheader-allowed-names")
    except TrustUnusable as error:
        log.error("front proxy's header names not updated", error=str(error))
        return held


def _string_list(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key)
    if not text:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise TrustUnusable(f"{key} is not a JSON array of strings") from error


def _header_list(data: Mapping[str, str], key: str) -> tuple[bytes, ...]:
    names = tuple(name.strip().lower() for name in _string_list(data, key))
    for name in names:
        if not name or not _TOKEN.issuperset(name):  # an empty prefix would match every header
            raise TrustUnusable(f"{key} contains a string that is not a header name")
    return tuple(name.encode() for name in names)
