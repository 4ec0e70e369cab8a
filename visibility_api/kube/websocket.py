"""One WebSocket exchange with kube-apiserver, by aiohttp (decision 0029)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import aiohttp

from .errors import Unreachable
from .tls import ResumingContext

OnMessage = Callable[[bytes], bool]  # whether to go on


async def receive_all(
    socket: aiohttp.ClientWebSocketResponse,
    tls: ResumingContext,
    protocols: Sequence[str],
    on_message: OnMessage,
) -> None:
    """Pass each message to `on_message` until it returns False or the server closes; then close at once.

    A ping or pong is passed as b"". Raises Unreachable when the server has chosen none of `protocols`, or
    sends a message that is not binary.
    """
    connection = socket.get_extra_info("ssl_object")
    try:
        if socket.protocol not in protocols:
            raise Unreachable("the server accepted none of the offered protocols")
        async for message in socket:
            is_control = message.type in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG)
            if message.type is aiohttp.WSMsgType.PING:
                await socket.pong(message.data)
            elif not is_control and message.type is not aiohttp.WSMsgType.BINARY:
                raise Unreachable("a message was not binary")
            if not on_message(b"" if is_control else message.data):
                return
        tls.keep_session(connection)
    finally:
        # Not `socket.close`, which reads until the server's close frame: a server that floods never sends
        # one. Nor does `close` of the connection suffice, which waits until the server has read all pongs.
        # There is no public way to the transport.
        if (open_ := socket._response.connection) is not None and open_.transport is not None:
            open_.transport.abort()
        socket._response.close()
