"""Servers under measurement as processes of their own, and the CPU time they have used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of CPU time, user and system, that the process has used (10 ms steps)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def waited_s(pid: int) -> float:
    """Seconds that its main thread could have run and no core was free (sched-stats.rst)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def open_files(pid: int) -> int:
    """Files and sockets that the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def machine_cpu_s() -> float:
    """Seconds of CPU time that all processes of this machine have used, on all its cores."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    idle, waiting = int(fields[3]), int(fields[4])
    return (sum(map(int, fields[:8])) - idle - waiting) / _TICKS_PER_S


def resident_mib(pid: int) -> float:
    """Resident memory of the process."""
    return _status_mib(pid, "VmRSS:")


def peak_mib(pid: int) -> float:
    """The most resident memory that the process ever had."""
    return _status_mib(pid, "VmHWM:")


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Server:
    pid: int
    port: int


@contextlib.asynccontextmanager
async def process(module: str, *arguments: str, port: int, log: Path) -> AsyncIterator[Server]:
    """`python -m module …` until the block ends; enters once the port accepts connections.

    Its modules are compiled once, as they are where they are installed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, stdout=output, stderr=output, env=environment
        )
    try:
        async with asyncio.timeout(60):
            while not _accepts(port):
                if child.returncode is not None:
                    raise SystemExit(f"{module} ended by itself; its log:\n{log.read_text()}")
                await asyncio.sleep(0.05)
        yield Server(child.pid, port)
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
