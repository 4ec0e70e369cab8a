"""The ceiling: an ASGI application that sends fixed bytes, on the same uvicorn with the same TLS."""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

WATCH = "/watch"
SLICE_BYTES = 112 * 1024  # what is cheapest here


class Events:
    """The same event again and again, but for its revision, into one queue a watcher."""

    def __init__(self, event: bytes, per_s: float) -> None:
        self._before, self._after = re.split(rb'(?<="resourceVersion":")\d+', event, maxsplit=1)
        self._per_s = per_s
        self._queues: list[asyncio.Queue[bytes]] = []
        self._telling: asyncio.Task[None] | None = None

    async def watch(self, send: Any) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.append(queue)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            await send({"type": "http.response.body", "body": await queue.get(), "more_body": True})

    async def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        number, due = 0, loop.time()
        while True:
            number, due = number + 1, due + 1 / self._per_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            event = self._before + b"%d" % number + self._after
            for queue in self._queues:
                queue.put_nowait(event)


def application(bodies: dict[str, bytes], events: Events | None = None) -> Any:
    """Answers with `bodies` by path, and with `events` to whoever asks for WATCH."""
    prepared = {path: (body, b"%d" % len(body)) for path, body in bodies.items()}

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["path"] == WATCH and events is not None:
            await events.watch(send)
        if scope["path"] not in prepared:
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        body, length = prepared[scope["path"]]
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if len(body) <= SLICE_BYTES:
            await send({"type": "http.response.body", "body": body})
            return
        for start in range(0, len(body), SLICE_BYTES):
            piece = body[start : start + SLICE_BYTES]
            await send(
                {"type": "http.response.body", "body": piece, "more_body": start + SLICE_BYTES < len(body)}
            )

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--body", action="append", default=[], metavar="PATH=FILE")
    parser.add_argument("--event", type=Path, metavar="FILE", help="what is sent to watchers")
    parser.add_argument("--events-per-s", type=float, default=1.0)
    given = parser.parse_args()
    events = Events(given.event.read_bytes(), given.events_per_s) if given.event else None
    bodies = {path: Path(file).read_bytes() for path, _, file in (b.partition("=") for b in given.body)}
    uvicorn.run(
        application(bodies, events),
        host="127.0.0.1",
        port=given.port,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_level="warning",
        date_header=False,
        timeout_graceful_shutdown=1,  # watches have no end
        server_header=False,
        ssl_certfile=given.cert,
        ssl_keyfile=given.key,
        ssl_context_factory=_context,
    )


def _context(_config: uvicorn.Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    context = default()
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE  # as ours: the client's choice
    return context


if __name__ == "__main__":
    main()
