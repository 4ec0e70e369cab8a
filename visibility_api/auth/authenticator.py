"""Authenticates a request: front proxy, client certificate, bearer token, in the API server's order.

Where the operator trusts a proxy of a platform's, that comes after the front proxy. The first method that
succeeds wins. A method that rejects credentials does not stop the next one, but when none succeeds the
request is refused. Only a request without any credentials is anonymous. See
`k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import structlog
from cachetools import TTLCache

from .certificates import PEER, Peer
from .errors import AccessDenied, CredentialRejected, Unauthenticated
from .identity import ANONYMOUS, Attributes, Headers, Identity
from .request_header_config import Trust
from .token_review import TokenReviewer, header_token

log = structlog.get_logger("visibility.auth")

MAX_LOGGED, LOG_AGAIN_S = 64, 60.0  # how often the same fault of a client is logged
WARNING = "warning"  # key in scope["state"] of the value of a Warning header
OWN_CERTIFICATE = "own_certificate"  # key in scope["state"]: the connection's certificate is the caller's own
FORWARDED = "forwarded"  # key in scope["state"]: a verified front proxy has sent the request
# In the API server's words; kubectl prints it.
_EXTRA_SPACE = (
    b'299 - "the provided Authorization header contains extra space before the bearer token, and is ignored"'
)
_IMPERSONATION_REFUSED = "Impersonate-* headers are not accepted here: send the request to kube-apiserver"


class RequestAuthenticator:
    """The application's `Authenticator`. `trust` returns the current CAs."""

    def __init__(self, trust: Callable[[], Trust], tokens: TokenReviewer) -> None:
        self._trust = trust
        self._tokens = tokens
        self._logged: TTLCache[str, bool] = TTLCache(MAX_LOGGED, LOG_AGAIN_S)  # by reason

    async def authenticate(self, scope: MutableMapping[str, Any]) -> Identity:
        """The caller's identity.

        Raises Unauthenticated; AccessDenied for a request that impersonates; TooManyRequests when its token
        may not be reviewed now.
        """
        headers: Headers = scope["headers"]
        faults: list[str] = []
        identity: Identity | None = None
        peer: Peer | None = scope["state"].get(PEER)
        if peer is not None and peer.chain:
            identity = self._by_certificate(scope, peer, headers, faults)
        if identity is None:
            identity = await self._by_token(scope, headers, faults)
            if identity is None:
                if faults:
                    self._log_faults(faults)
                    raise Unauthenticated("; ".join(faults))
                identity = ANONYMOUS  # such as a kubelet's probe
        for name, _ in headers:
            if name[:12] == b"impersonate-":
                attempted = Attributes(verb="impersonate", path=scope["path"])
                raise AccessDenied(identity, attempted, _IMPERSONATION_REFUSED)
        return identity

    def _by_certificate(
        self, scope: MutableMapping[str, Any], peer: Peer, headers: Headers, faults: list[str]
    ) -> Identity | None:
        trust = self._trust()
        if trust.front_proxy is not None:
            try:
                if (identity := trust.front_proxy.identify(peer, headers)) is not None:
                    scope["state"][FORWARDED] = True
                    return identity
            except CredentialRejected as error:
                faults.append(str(error))
        if trust.trusted_proxy is not None:
            try:
                return trust.trusted_proxy.identify(peer, headers)
            except CredentialRejected as error:
                faults.append(str(error))
            except Unauthenticated as error:
                self._log_faults([str(error)])
                raise
        if trust.client_certificates is not None:
            try:
                identity = trust.client_certificates.identify(peer)
                scope["state"][OWN_CERTIFICATE] = True
                return identity
            except CredentialRejected as error:
                faults.append(str(error))
        return None

    async def _by_token(
        self, scope: MutableMapping[str, Any], headers: Headers, faults: list[str]
    ) -> Identity | None:
        try:
            token = header_token(headers)
            if token is None:
                scope["state"][WARNING] = _EXTRA_SPACE
            elif token:
                return await self._tokens.identify(token, address=_address(scope))
        except CredentialRejected as error:
            faults.append(str(error))
        return None

    def _log_faults(self, faults: Sequence[str]) -> None:
        """Log the reasons, each once in LOG_AGAIN_S: clients that try again must not fill the log."""
        reasons = "; ".join(faults)
        if reasons not in self._logged:
            self._logged[reasons] = True
            log.warning("request not authenticated", reasons=faults)


def _address(scope: MutableMapping[str, Any]) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
