"""An error as the answer a client gets: Status or text, in the form it accepts (R1, R2, R10)."""

from __future__ import annotations

from collections.abc import Sequence

from .message import Headers, Response
from .negotiation import negotiate_error
from .rendering import render
from .status import Forbidden, RequestError, encode_status

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


def refuse(error: RequestError, *, headers: Headers, query: Sequence[tuple[str, str]]) -> Response:
    """The answer for `error`; `headers` and `query` are the request's."""
    extra: list[tuple[bytes, bytes]] = []
    if error.retry_after_s > 0:
        extra.append((b"retry-after", b"%d" % error.retry_after_s))  # R2: clients retry only with it
    if error.is_plain_text:
        return Response(
            status=error.code,
            content_type="text/plain; charset=utf-8",
            body=error.message.encode() + b"\n",
            headers=(*extra, _NO_SNIFFING),
        )
    if isinstance(error, Forbidden):
        extra.append(_NO_SNIFFING)  # Z15
    form = negotiate_error(
        _header(headers, b"accept"),
        pretty=next((v for k, v in query if k == "pretty"), None),
        user_agent=_header(headers, b"user-agent"),
    )
    body = render(encode_status(error), form)
    return Response(status=error.code, content_type=form.media_type, body=body, headers=extra)


def _header(headers: Headers, name: bytes) -> str | None:
    return next((v.decode("latin-1") for k, v in headers if k == name), None)
