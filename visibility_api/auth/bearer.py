"""Where a request may carry a bearer token: Authorization, or a WebSocket subprotocol (A1, A15)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from .errors import CredentialRejected

MAX_TOKEN_BYTES = 64 * 1024  # a token with hundreds of groups in it is a few KiB
EXTRA_SPACE_WARNING = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)
_SUBPROTOCOL = b"base64url.bearer.authorization.k8s.io."

Headers = Sequence[tuple[bytes, bytes]]


def header_token(headers: Headers) -> tuple[str, str]:
    """Token and warning of the first Authorization header; each "" when there is none.

    Raises CredentialRejected for a token that no server could have issued.
    """
    value = next((value for name, value in headers if name == b"authorization"), b"").strip()
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"bearer" or not rest:
        return "", ""
    token = rest.partition(b" ")[0]
    return (_text(token), "") if token else ("", EXTRA_SPACE_WARNING)


def subprotocol_token(headers: Headers) -> str:
    """The token a WebSocket client put among its subprotocols, browsers having no other way; "" if none.

    Raises CredentialRejected when it is there and cannot be read, or stands alone: there would be no other
    subprotocol to answer with.
    """
    if not any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers):
        return ""
    offered = [
        protocol.strip()
        for name, value in headers
        if name == b"sec-websocket-protocol"
        for protocol in value.split(b",")
    ]
    encoded = [p.removeprefix(_SUBPROTOCOL) for p in offered if p.startswith(_SUBPROTOCOL)]
    if not any(encoded):
        return ""
    if len(encoded) > 1:
        raise CredentialRejected("more than one subprotocol carries a token")
    if len(offered) == 1:
        raise CredentialRejected("no subprotocol beside the one that carries a token")
    try:
        token = base64.b64decode(encoded[0] + b"=" * (-len(encoded[0]) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise CredentialRejected("the subprotocol's token is not base64url") from None
    return _text(token)


def _text(token: bytes) -> str:
    if len(token) > MAX_TOKEN_BYTES:
        raise CredentialRejected(f"the token is longer than {MAX_TOKEN_BYTES} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise CredentialRejected("the token is not UTF-8") from None
