"""A closed loop of GETs over kept-alive TLS connections; what counts is the CPU time of the server."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .processes import Server, cpu_s


@dataclass(frozen=True, slots=True)
class Load:
    """What a number of requests took."""

    requests: int
    wall_s: float
    server_cpu_s: float
    latencies_s: Sequence[float]
    body_bytes: int

    @property
    def per_cpu_s(self) -> float:
        return self.requests / max(self.server_cpu_s, 1e-9)

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the server a request."""
        return 1000 * self.server_cpu_s / self.requests

    def quantile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def get_many(
    server: Server,
    path: str,
    *,
    ca_file: str,
    headers: Sequence[tuple[str, str]] = (),
    requests: int,
    connections: int = 16,
) -> Load:
    """`requests` GETs of `path` over `connections` connections. Raises when one is not answered 200."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    message = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode()
    context = ssl.create_default_context(cafile=ca_file)
    left = requests
    latencies: list[float] = []
    size = 0

    async def client() -> None:
        nonlocal left, size
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost", limit=64 * 1024 * 1024
        )
        while left > 0:
            left -= 1
            began = time.perf_counter()
            writer.write(message)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"GET {path}: {answer.splitlines()[0].decode()}")
            length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            size = length
            latencies.append(time.perf_counter() - began)
        writer.close()

    cpu, began = cpu_s(server.pid), time.perf_counter()
    async with asyncio.TaskGroup() as clients:
        for _ in range(connections):
            clients.create_task(client())
    return Load(
        requests=len(latencies),
        wall_s=time.perf_counter() - began,
        server_cpu_s=cpu_s(server.pid) - cpu,
        latencies_s=latencies,
        body_bytes=size,
    )
