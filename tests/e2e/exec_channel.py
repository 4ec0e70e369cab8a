"""The two ways a kubelet carries `exec` on the wire, behind one interface.

kube-apiserver dials with SPDY/3.1 when it translates a v5 WebSocket itself, and passes the client's WebSocket
through when the client offers only v4 or the node declares ExtendWebSocketsToKubelet (1.36, X3).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import WSMsgType, web

from tests.e2e.spdy import SpdySession

_SPDY_PROTOCOL_HEADER = "X-Stream-Protocol-Version"
_QUERY_NAMES = {"input": "stdin", "output": "stdout", "error": "stderr"}  # the kubelet's own parameter names
_WEBSOCKET_CHANNELS = {"stdout": b"\x01", "stderr": b"\x02", "error": b"\x03"}
_GOODBYE_TIMEOUT_S = 30


class ExecChannel(Protocol):
    """An upgraded connection with the streams stdout, stderr and error."""

    gone: asyncio.Event  # the client has left

    async def send(self, stream: str, data: bytes) -> None: ...

    async def close(self) -> None:
        """End in order, after everything has been sent."""
        ...

    def abort(self) -> None:
        """Cut the connection in the middle, as a dying node does."""
        ...


async def open_channel(request: web.Request) -> tuple[ExecChannel, web.StreamResponse]:
    """Upgrade the request by what it asks for. Raises web.HTTPException when it asks for neither."""
    upgrade = request.headers.get("Upgrade", "").lower()
    if upgrade == "websocket":
        return await _open_websocket(request)
    if upgrade == "spdy/3.1":
        return await _open_spdy(request)
    raise web.HTTPBadRequest(text="unable to upgrade: missing upgrade headers in request")


class _WebSocketChannel:
    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self.gone = asyncio.Event()
        self._reader = asyncio.create_task(self._watch_client(), name="exec websocket reader")

    async def send(self, stream: str, data: bytes) -> None:
        await self._socket.send_bytes(_WEBSOCKET_CHANNELS[stream] + data)

    async def close(self) -> None:
        await self._socket.close()
        self._reader.cancel()

    def abort(self) -> None:
        self._reader.cancel()
        _abort(self._request)

    async def _watch_client(self) -> None:
        async for message in self._socket:  # stdin, resize and v5's close signal: read and ignored
            if message.type is not WSMsgType.BINARY:
                break
        self.gone.set()


async def _open_websocket(request: web.Request) -> tuple[ExecChannel, web.StreamResponse]:
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"), timeout=1)
    offered = socket.can_prepare(request).protocol
    if offered is None:
        raise web.HTTPBadRequest(text="unable to upgrade: no common WebSocket protocol")
    await socket.prepare(request)
    channel = _WebSocketChannel(request, socket)
    await channel.send("stdout", b"")  # says "connected" and nothing else (X4)
    return channel, socket


class _UpgradeResponse(web.StreamResponse):
    _length_check = False  # as aiohttp's own WebSocketResponse: bytes after a 101 are not a body


class _SpdyChannel:
    def __init__(self, request: web.Request, session: SpdySession) -> None:
        self._request = request
        self._session = session
        self.gone = session.gone

    async def send(self, stream: str, data: bytes) -> None:
        if self.gone.is_set():
            raise ConnectionResetError("the client has left")
        await self._session.send(stream, data)

    async def close(self) -> None:
        if self.gone.is_set():
            return
        await self._session.finish()
        try:  # the client closes when it has read everything
            async with asyncio.timeout(_GOODBYE_TIMEOUT_S):
                await self.gone.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        _abort(self._request)


async def _open_spdy(request: web.Request) -> tuple[ExecChannel, web.StreamResponse]:
    lines = request.headers.getall(_SPDY_PROTOCOL_HEADER, [])
    offered = {name.strip() for line in lines for name in line.split(",")}
    if "v4.channel.k8s.io" not in offered:
        raise web.HTTPForbidden(text="unable to upgrade: unable to negotiate protocol")
    response = _UpgradeResponse(
        status=101,
        headers={
            "Connection": "Upgrade",
            "Upgrade": "SPDY/3.1",
            _SPDY_PROTOCOL_HEADER: "v4.channel.k8s.io",
        },
    )
    response.force_close()
    asked = {stream for name, stream in _QUERY_NAMES.items() if name in request.query}
    writer = await response.prepare(request)
    transport = request.transport
    if writer is None or transport is None:
        raise ConnectionResetError("the client has left")
    session = SpdySession(transport.write, writer.drain, expected_streams=frozenset(asked | {"error"}))
    request.protocol.set_parser(session)  # type: ignore[arg-type]  # any payload parser will do
    async with asyncio.timeout(_GOODBYE_TIMEOUT_S):
        await session.opened.wait()
    return _SpdyChannel(request, session), response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
