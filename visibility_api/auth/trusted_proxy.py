"""Users whom a platform's proxy has authenticated: an ingress with OIDC, or Kubeflow's (`kubeflow-userid`).

Off unless it is configured. As with the front proxy, a header counts only after the sender's certificate was
verified for this request. The operator chooses the CA and the common names. Unlike the front proxy it cannot
name users and groups of the cluster itself: names that begin with `system:` are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import structlog

from .certificates import CaPool, Peer
from .errors import TrustUnusable, Unauthenticated
from .front_proxy import MAX_CACHED, MAX_CACHED_BYTES, VerifiedProxy
from .identity import Headers, Identity, authenticated

log = structlog.get_logger("visibility.auth")

RESERVED_PREFIX = "system:"  # of Kubernetes' own users and groups
FILE_INTERVAL_S = 30.0  # between two checks of the CA's file, as of the serving certificate's


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    """Who the proxy is, and how it names users."""

    allowed_names: tuple[str, ...]  # exact common names; at least one
    user_header: str
    group_header: str = ""  # "" = users have no groups but system:authenticated
    user_prefix: str = ""
    group_prefix: str = ""


class TrustedProxy:
    """Identifies users by the headers of a peer whose certificate has the right CA and an allowed name."""

    def __init__(self, pool: CaPool, rules: ProxyRules) -> None:
        self.pool = pool
        self._proxy = VerifiedProxy(pool, rules.allowed_names, called="trusted proxy")
        self._user_header = rules.user_header.lower().encode()
        self._group_header = rules.group_header.lower().encode()
        self._prefixes = rules.user_prefix, rules.group_prefix
        self._cached_identity = lru_cache(MAX_CACHED)(self._read_identity)

    def identify(self, peer: Peer, headers: Headers) -> Identity:
        """The user that the headers name.

        Raises CredentialRejected when the certificate is not the proxy's, so that another method may accept
        it; Unauthenticated when it is, and the headers do not name exactly one user that is allowed. Then no
        other method is tried: a user who has not logged in must not be identified as the proxy.
        """
        self._proxy.verify(peer)
        users = [value for name, value in headers if name == self._user_header]
        if len(users) != 1 or not users[0].strip():
            # Two: the client's own may be among them.
            raise Unauthenticated("the trusted proxy's request does not have exactly one user header")
        groups = tuple([v for name, v in headers if name == self._group_header]) if self._group_header else ()
        if len(users[0]) + sum(map(len, groups)) <= MAX_CACHED_BYTES:
            return self._cached_identity(users[0], groups)
        return self._read_identity(users[0], groups)

    def _read_identity(self, user: bytes, groups: tuple[bytes, ...]) -> Identity:
        user_prefix, group_prefix = self._prefixes
        found = Identity(
            user=user_prefix + _text(user.strip()),
            # One header with commas is what OIDC proxies send, several lines what HTTP means by that.
            groups=tuple(
                group_prefix + _text(group.strip())
                for line in groups
                for group in line.split(b",")
                if group.strip()
            ),
        )
        if any(name.startswith(RESERVED_PREFIX) for name in (found.user, *found.groups)):
            raise Unauthenticated(
                f"the trusted proxy names a user or group that begins with {RESERVED_PREFIX}, which is "
                "Kubernetes' own; give --trusted-proxy-user-prefix and --trusted-proxy-group-prefix"
            )
        return authenticated(found)


class TrustedProxyFile:
    """The proxy's CA, read again when its file changes."""

    def __init__(
        self, ca_file: Path, rules: ProxyRules, *, on_change: Callable[[TrustedProxy], None]
    ) -> None:
        """`on_change` is called with each new one; it may raise TrustUnusable."""
        self._ca_file = ca_file
        self._rules = rules
        self._on_change = on_change
        self._seen = ""

    def load(self) -> bool:
        """Use what the file holds; whether it has changed. Raises TrustUnusable, and the former stays."""
        try:
            pem = self._ca_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise TrustUnusable(f"cannot read the trusted proxy's CA: {error}") from error
        if pem == self._seen:
            return False
        self._on_change(TrustedProxy(CaPool(pem, name="trusted-proxy"), self._rules))
        self._seen = pem
        return True

    async def follow(self, *, interval_s: float = FILE_INTERVAL_S) -> None:
        """Load it whenever it changes, until cancelled."""
        fault = ""
        while True:
            await asyncio.sleep(interval_s)
            try:
                if self.load():
                    log.info("trusted proxy's CA reloaded", file=str(self._ca_file))
                fault = ""
            except TrustUnusable as error:
                if str(error) != fault:
                    fault = str(error)
                    log.error("trusted proxy's CA not reloaded", error=fault)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unauthenticated("a header of the trusted proxy is not UTF-8") from None
