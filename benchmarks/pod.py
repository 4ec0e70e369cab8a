"""A pod that serves its progress over HTTP, or floods whoever asks with interim responses that never end."""

from __future__ import annotations

import argparse
import asyncio

import uvloop

DOCUMENT = b'{"step":3,"totalSteps":9,"timestamp":"2026-01-23T10:30:45Z","metrics":{"loss":0.25}}'
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(DOCUMENT), DOCUMENT)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" * 4000
FLOOD = b"/flood"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        while request.split()[1] == FLOOD:
            writer.write(INTERIM)
            await writer.drain()
        writer.write(RESPONSE)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass  # the other side has left, or only tried whether somebody listens
    finally:
        writer.close()


async def serve(port: int) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
