"""Who asks: every method in the order of the API server, and what their verdicts amount to (A1, A2).

The first method that knows the user wins. A method that finds bad credentials does not stop the next, but
if none succeeds the request is refused. Only who brings nothing at all is anonymous.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import structlog

from .bearer import header_token, subprotocol_token
from .certificates import PEER, Peer
from .errors import AccessDenied, CredentialRejected, Unauthenticated
from .header_names import HeaderNames
from .identity import ANONYMOUS, Attributes, Identity
from .request_header_config import Trust
from .token_review import TokenReviewer

log = structlog.get_logger("visibility.auth")

WARNING = "warning"  # where in scope["state"] a text for the Warning header is left (A15)
_IMPERSONATION_REFUSED = (
    "Impersonate-* headers are not accepted here; kube-apiserver resolves them, so ask through it"
)

Headers = Sequence[tuple[bytes, bytes]]
# None = this method has nothing to say.
Opinion = Identity | None


class RequestAuthenticator:
    """The API's `Authenticator`.

    `trust` gives the certificates believed now; `tokens` None refuses every bearer.
    """

    def __init__(self, trust: Callable[[], Trust], tokens: TokenReviewer | None) -> None:
        self._trust = trust
        self._tokens = tokens
        self._impersonates = HeaderNames((b"impersonate-",))
        self._last_faults: Sequence[str] = ()

    async def authenticate(self, scope: MutableMapping[str, Any]) -> Identity:
        """Who is asking; raises Unauthenticated, or AccessDenied for impersonation (A21)."""
        headers: Headers = scope["headers"]
        faults: list[str] = []
        identity: Opinion = None
        peer: Peer | None = scope["state"].get(PEER)
        if peer is not None and peer.chain:
            identity = self._by_certificate(peer, headers, faults)
        if identity is None:
            identity = await self._by_token(scope, headers, faults)
            if identity is None:
                if faults:
                    self._tell(faults)
                    raise Unauthenticated("; ".join(faults))
                identity = ANONYMOUS  # A19
        impersonates = self._impersonates
        if [True for name, _ in headers if impersonates[name]]:
            asked = Attributes(verb="impersonate", path=scope["path"])
            raise AccessDenied(identity, asked, _IMPERSONATION_REFUSED)
        return identity

    def _by_certificate(self, peer: Peer, headers: Headers, faults: list[str]) -> Opinion:
        trust = self._trust()
        if trust.front_proxy is not None:
            try:
                if (identity := trust.front_proxy.identify(peer, headers)) is not None:
                    return identity
            except CredentialRejected as error:
                faults.append(str(error))
        if trust.client_certificates is not None:
            try:
                return trust.client_certificates.identify(peer)
            except CredentialRejected as error:
                faults.append(str(error))
        return None

    async def _by_token(
        self, scope: MutableMapping[str, Any], headers: Headers, faults: list[str]
    ) -> Opinion:
        try:
            token, warning = header_token(headers)
            if warning:
                scope["state"][WARNING] = warning
            if token:
                return await self._review(token)
        except CredentialRejected as error:
            faults.append(str(error))
        try:
            if token := subprotocol_token(headers):
                return await self._review(token)
        except CredentialRejected as error:
            faults.append(str(error))
        return None

    async def _review(self, token: str) -> Identity:
        if self._tokens is None:
            raise CredentialRejected("bearer tokens are not accepted")
        return await self._tokens.identify(token)

    def _tell(self, faults: Sequence[str]) -> None:
        """Log why, when it is not what it was the last time: a retrying client must not fill the log."""
        if faults != self._last_faults:
            self._last_faults = faults
            log.warning("request not authenticated", reasons=faults)
