"""`python -m benchmarks.kubelet`: the kubelet of all nodes, for `benchmarks.attack`.

Pods of one namespace report at once, with the moment as their step. Of the others a file says how: `quick` as
these, `slow` after 1.7 s, or by what `HOSTILE` has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import uvloop
from aiohttp import web

from localcluster.machinery.node_agent import LogQuery
from tests.e2e.exec_channel import open_channel
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.pki import KeyPair, server_context

from .fleet import Output

SLOW_S = 1.7  # the default timeout of a probe is 5 s
LONG_BYTES = 4 * 1024 * 1024
LOG_BYTES = 64 * 1024  # of a log as much as is read
INITIALIZER = "dataset-initializer"
_EPOCH = 1_790_000_000.0  # steps are milliseconds since then


def step_now() -> int:
    return int((time.time() - _EPOCH) * 1000)


def moment(step: int) -> float:
    """When the report with this step was written, as seconds since 1970."""
    return _EPOCH + step / 1000


def document() -> bytes:
    return json.dumps(
        {
            "step": step_now(),
            "totalSteps": 10**12,
            "timestamp": datetime.now(UTC).isoformat(),
            "metrics": {"loss": 0.25},
        }
    ).encode()


def _lines_of(text: str, size: int, line_size: int) -> Callable[[str, int], bytes]:
    """A log of such lines; each begins with the time if that was requested. No more is made than is read."""
    line = text * (line_size // len(text))

    def log(at: str, most: int) -> bytes:
        one = f"{at}{line}\n".encode()
        return one * min(size // len(one), most // len(one) + 1)

    return log


def _record(at: str, _most: int) -> bytes:
    """A line as the reporter's logging writes it."""
    numbers = ",".join(["1e308"] * 10_000)
    head = '{"timestamp": "2026-01-23T10:30:45Z", "level": "INFO", "logger": "x", "message": "x"'
    return f'{at}{head}, "values": [{numbers}]}}\n'.encode()


class Manner(NamedTuple):
    """What files and logs hold."""

    file: Callable[[], bytes] = document
    # By the time before each line, and the bytes that are read at most.
    log: Callable[[str, int], bytes] = lambda at, _most: at.encode() + document() + b"\n"


HOSTILE: Mapping[str, Manner] = {
    "long": Manner(
        lambda: b'{"timestamp": ' + b"[" * LONG_BYTES,
        _lines_of('{"step": ' + "[" * 60_000, LONG_BYTES, 60_009),
    ),
    "names": Manner(log=_lines_of("a=1.5 ", LOG_BYTES, 8000)),
    "numbers": Manner(log=_record),
    "bytes": Manner(lambda: document().ljust(60_000)),  # each in a message of its own
}


class Agent:
    """What runs in all pods."""

    def __init__(self, quick_namespace: str, manner: Path) -> None:
        self._quick, self._file = quick_namespace, manner

    async def manner(self, namespace: str) -> str:
        manner = "quick" if namespace == self._quick else self._file.read_text()
        if manner == "slow":
            await asyncio.sleep(SLOW_S)
        return manner

    async def exec(
        self,
        namespace: str,
        pod: str,  # noqa: ARG002 - a NodeAgent takes it
        container: str,  # noqa: ARG002 - a NodeAgent takes it
        argv: Sequence[str],  # noqa: ARG002 - a NodeAgent takes it
    ) -> Output:
        return Output(HOSTILE.get(await self.manner(namespace), Manner()).file())

    async def stream_logs(
        self,
        namespace: str,
        pod: str,  # noqa: ARG002 - a NodeAgent takes it
        container: str,
        query: LogQuery,
    ) -> AsyncIterator[bytes]:
        manner = await self.manner(namespace)
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} " if query.timestamps else ""
        if container == INITIALIZER and manner == "quick":
            yield f"{at}Downloading:  1%|▏         | {step_now()}/{10**12} [01:23<01:41]\n".encode()
        else:
            most = query.limit_bytes or LONG_BYTES
            yield HOSTILE.get(manner, Manner()).log(at, most)[:most]


class _Server(KubeletServer):
    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._manner = agent.manner

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        """Of `bytes` each byte is a message, all at once, as the image's own `cat` may write them."""
        if await self._manner(request.match_info["namespace"]) != "bytes":
            return await super()._exec(request)
        channel, response = await open_channel(request)
        if request.transport is not None:
            frames = (b"\x82\x02\x01%c" % byte for byte in HOSTILE["bytes"].file())
            request.transport.write(b"".join(frames))
        await channel.send("error", b'{"metadata":{},"status":"Success"}')
        await channel.close()
        return response


async def serve(port: int, pair: KeyPair, clients: Path, agent: Agent) -> None:
    server = _Server(agent)
    await server.start(server_context(pair, clients=clients), port)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubelet", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--clients", type=Path, required=True, help="CA of kube-apiserver's certificate")
    parser.add_argument("--quick", required=True, metavar="NAMESPACE")
    parser.add_argument("--manner", type=Path, required=True, help="file that says how the others report")
    given = parser.parse_args()
    agent = Agent(given.quick, given.manner)
    uvloop.run(serve(given.port, KeyPair(given.cert, given.key), given.clients, agent))


if __name__ == "__main__":
    main()
