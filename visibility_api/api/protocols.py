"""The ASGI protocols beside HTTP: a lifespan with nothing to do, and WebSockets refused."""

from __future__ import annotations

from .message import Receive, Scope, Send

_REFUSAL = b"WebSockets are not served here; ask for the same path with watch=true over HTTP.\n"


async def answer_other_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    """Ends a lifespan in order and refuses a WebSocket with 400 (W23). Others end without an answer."""
    if scope["type"] == "lifespan":
        # Background work is owned by the composition root, not by the lifespan (style.md, Async ownership).
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1003})  # before accepting: the server says 403
            return
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(_REFUSAL)),
        ]
        await send({"type": "websocket.http.response.start", "status": 400, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": _REFUSAL})
