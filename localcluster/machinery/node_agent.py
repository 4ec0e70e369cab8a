"""Exec and logs, the interface of API server and kubelet besides the Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class ExecError(Exception):
    """The command could not be run at all, in the words of a kubelet or CRI. `reason` is a Status reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Process(Protocol):
    """A command running in a container."""

    @property
    def stdout(self) -> asyncio.StreamReader: ...
    @property
    def stderr(self) -> asyncio.StreamReader: ...
    async def wait(self) -> int: ...
    def kill(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which part of a log; None = no bound. `limit_bytes` counts from the start of the selection (X12)."""

    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    timestamps: bool = False
    follow: bool = False  # until the container ends
    previous: bool = False  # of the container's run before


class NodeAgent(Protocol):
    """Runs commands in containers and hands out their logs; localcluster.kubelet.Kubelet does."""

    async def exec(self, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Process: ...

    def stream_logs(
        self, namespace: str, pod: str, container: str, query: LogQuery
    ) -> AsyncIterator[bytes]: ...
