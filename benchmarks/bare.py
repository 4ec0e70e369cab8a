"""The ceiling: an ASGI application that sends fixed bytes, on the same uvicorn with the same TLS."""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

SLICE_BYTES = 112 * 1024  # what is cheapest here: see visibility_api/serving/exchange.py


def application(bodies: dict[str, bytes]) -> Any:
    prepared = {path: (body, b"%d" % len(body)) for path, body in bodies.items()}

    async def app(scope: Any, _receive: Any, send: Any) -> None:
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
    given = parser.parse_args()
    bodies = {path: Path(file).read_bytes() for path, _, file in (b.partition("=") for b in given.body)}
    uvicorn.run(
        application(bodies),
        host="127.0.0.1",
        port=given.port,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_level="warning",
        date_header=False,
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
