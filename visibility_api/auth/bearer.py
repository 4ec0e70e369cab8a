"""The bearer token of a request, in its Authorization header."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import CredentialRejected

MAX_TOKEN_BYTES = 16 * 1024  # a token with hundreds of groups in it is a few KiB
EXTRA_SPACE_WARNING = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)

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


def _text(token: bytes) -> str:
    if len(token) > MAX_TOKEN_BYTES:
        raise CredentialRejected(f"the token is longer than {MAX_TOKEN_BYTES} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise CredentialRejected("the token is not UTF-8") from None
