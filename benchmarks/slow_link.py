"""`python -m benchmarks.slow_link`: a link to a port of this machine that carries so many bytes a second.

A file says how many, in each direction for all connections together; 0: no limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from pathlib import Path

import uvloop

GBIT = 125_000_000  # bytes a second
_PIECE_BYTES = 128 * 1024


class Pace:
    """Bytes of one direction, one after the other."""

    def __init__(self) -> None:
        self.per_s = 0.0
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        """Returns when so many bytes have passed."""
        if self.per_s:
            now = asyncio.get_running_loop().time()
            self._free_at = max(now, self._free_at) + size / self.per_s
            if self._free_at - now > 0.001:  # a finer sleep would be longer than asked
                await asyncio.sleep(self._free_at - now)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, pace: Pace) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # uvloop's error for a closed transport
        while data := await source.read(_PIECE_BYTES):
            await pace.take(len(data))
            sink.write(data)
            await sink.drain()
    sink.transport.abort()


async def serve(port: int, to: int, rate: Path) -> None:
    there, back = Pace(), Pace()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other = await asyncio.open_connection("127.0.0.1", to, limit=_PIECE_BYTES)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_carry(reader, other, there), _carry(other_reader, writer, back))

    async with await asyncio.start_server(connected, "127.0.0.1", port, limit=_PIECE_BYTES):
        while True:
            there.per_s = back.per_s = float(rate.read_text())
            await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_link", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", type=int, required=True, help="port of the server")
    parser.add_argument("--rate", type=Path, required=True, help="file with bytes a second")
    given = parser.parse_args()
    if os.sched_getscheduler(0) == os.SCHED_RR:  # with `chrt -r 5` it comes after who measures
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(3))
    uvloop.run(serve(given.port, given.to, given.rate))


if __name__ == "__main__":
    main()
