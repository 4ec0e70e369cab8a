"""Faults that tests put between an API server and the pods, one namespace at a time."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from localcluster.machinery.node_agent import LogQuery, NodeAgent, Process


class Fault(enum.Enum):
    """What happens to an exec instead of what should."""

    HANGS = "accepted, then nothing: no output, no status, no end"
    DROPS = "half of the output, then the connection is cut"
    FLOODS = "lines without end, which begin as those of ranks do"


_OTHER_COMMAND = {Fault.HANGS: ["sleep", "infinity"], Fault.FLOODS: ["yes", "@rank 0"]}


class FaultyAgent:
    """A NodeAgent that does what the one behind it does, except where a test has broken it."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._faults: dict[str, Fault] = {}
        self.execs: Counter[str] = Counter()  # commands started, by namespace

    @contextlib.contextmanager
    def inject(self, namespace: str, fault: Fault) -> Iterator[None]:
        """While this lasts, every exec into pods of the namespace has the fault."""
        self._faults[namespace] = fault
        try:
            yield
        finally:
            del self._faults[namespace]

    async def exec(self, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Process:
        fault = self._faults.get(namespace)
        self.execs[namespace] += 1
        if fault is None:
            return await self._agent.exec(namespace, pod, container, argv)
        process = await self._agent.exec(namespace, pod, container, _OTHER_COMMAND.get(fault, argv))
        return _Dropped(process) if fault is Fault.DROPS else process

    def stream_logs(self, namespace: str, pod: str, container: str, query: LogQuery) -> AsyncIterator[bytes]:
        return self._agent.stream_logs(namespace, pod, container, query)


class _Dropped:
    """A process whose output breaks off."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stdout = _HalfReader(process.stdout)

    @property
    def stdout(self) -> asyncio.StreamReader:
        return self._stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        return self._process.stderr

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    async def close(self) -> None:
        await self._process.close()


class _HalfReader(asyncio.StreamReader):
    def __init__(self, whole: asyncio.StreamReader) -> None:
        super().__init__()
        self._whole = whole
        self._asked = False

    async def read(self, n: int = -1) -> bytes:
        if self._asked:
            raise ConnectionResetError("fault injected by a test")
        self._asked = True
        data = await self._whole.read(n)
        return data[: max(1, len(data) // 2)]
