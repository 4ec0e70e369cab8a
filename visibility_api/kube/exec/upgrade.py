"""The HTTP request that opens a WebSocket, and its response (RFC 6455, section 4)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence

import httptools

from visibility_api.kube.errors import ApiError, Unreachable

MAX_HEAD_BYTES = 64 * 1024
_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


def encode_request(begin: str, headers: Mapping[str, str]) -> bytes:
    """`begin`: the request line and the headers that are always the same. Raises Unreachable."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    text = f"{begin}{fields}\r\n"
    # A token comes from a file or a plugin. A line break in it would start another header.
    if fields.count("\r") != len(headers) or fields.count("\n") != len(headers) or not text.isascii():
        raise Unreachable("a header of the request contains a line break or is not ASCII")
    return text.encode()


class UpgradeResponse:
    """Reads and checks the response (RFC 6455, section 4.1)."""

    def __init__(self, key: bytes, protocols: Sequence[str]) -> None:
        self._key = key
        self._protocols = protocols
        self._headers: dict[bytes, bytes] = {}
        self._is_complete = False
        self._size = 0
        self._parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._is_complete = True

    def feed(self, data: bytes) -> bytes | None:
        """What follows the response; None while it is incomplete. Raises ApiError, Unreachable."""
        self._size += len(data)
        rest = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            if not self._is_complete:
                raise Unreachable("the response to the WebSocket upgrade is not HTTP") from error
        if not self._is_complete:
            if self._size > MAX_HEAD_BYTES:
                raise Unreachable(f"the response to the WebSocket upgrade exceeds {MAX_HEAD_BYTES} bytes")
            return None
        status = self._parser.get_status_code()
        if status != 101:
            raise ApiError(status, "", "the WebSocket upgrade was refused")
        if rest is None or not self._matches():
            raise Unreachable("the response to the WebSocket upgrade does not match the request")
        del self._parser  # it references this object: a cycle
        return rest

    def _matches(self) -> bool:
        digest = hashlib.sha1(self._key + _ACCEPT_SUFFIX, usedforsecurity=False).digest()
        return (
            self._headers.get(b"upgrade", b"").lower() == b"websocket"
            and self._headers.get(b"sec-websocket-accept") == base64.b64encode(digest)
            and self._headers.get(b"sec-websocket-protocol", b"").decode("latin-1") in self._protocols
            and b"sec-websocket-extensions" not in self._headers
        )
