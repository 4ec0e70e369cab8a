"""GETs in a closed loop over kept-alive TLS connections; what counts is the CPU time of the server.

By wrk where it is installed, for it costs less than the server that it asks; else, and wherever a client
certificate is shown, by a loop of our own.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import re
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .kubernetes import TOKEN
from .processes import Server, cpu_s

Headers = Sequence[tuple[str, str]]
# Requests with the token TOKEN, or of the front proxy's user, are sent in the name of so many: each user
# has a share of the server.
USERS = 64
_OF_USER = re.compile(rf"(?<=Bearer {TOKEN})(?=\r)|(?<=X-Remote-User: alice)(?=\r)")
# Cipher suites in the order of Go's clients (kubectl, the aggregator) and of browsers.
_OPENSSL_CONF = """
openssl_conf = default
[default]
ssl_conf = ssl
[ssl]
system_default = clients
[clients]
Ciphersuites = TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256
"""
# A thousand quantiles, and what went wrong.
_SCRIPT = """
local number = 0
request = function()
  local headers = {}
  number = (number + 1) % USERS
  for name, value in pairs(wrk.headers) do
    headers[name] = value:gsub("Bearer TOKEN$", "Bearer TOKEN-" .. number)
  end
  return wrk.format(nil, nil, headers)
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write("\\n@", summary.requests, " ", e.connect + e.read + e.write + e.status + e.timeout)
  for share = 0.05, 99.95, 0.1 do io.write(" ", latency:percentile(share)) end
  io.write("\\n")
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What a number of requests took."""

    requests: int
    wall_s: float
    server_cpu_s: float
    latencies_s: Sequence[float]  # of all requests, or as many quantiles of theirs

    @property
    def per_s(self) -> float:
        return self.requests / self.wall_s

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who asks, and how many of them at once."""

    ca_file: Path
    headers: Headers = ()
    connections: int = 16
    certificate: tuple[Path, Path] | None = None  # and its key
    most_per_s: float = math.inf  # asks no more often, on each connection

    async def get_many(self, server: Server, path: str, *, seconds: float) -> Load:
        """GETs of `path` for so long. Raises RuntimeError when one is not answered 200."""
        is_plain = self.certificate is None and self.most_per_s == math.inf
        wrk = shutil.which("wrk") if is_plain else None
        cpu, began = cpu_s(server.pid), time.perf_counter()
        requests, latencies = (
            await self._by_wrk(wrk, server, path, seconds)
            if wrk is not None
            else await self._by_ourselves(server, path, seconds)
        )
        return Load(
            requests=requests,
            wall_s=time.perf_counter() - began,
            server_cpu_s=cpu_s(server.pid) - cpu,
            latencies_s=latencies,
        )

    async def _by_wrk(
        self, wrk: str, server: Server, path: str, seconds: float
    ) -> tuple[int, Sequence[float]]:
        with tempfile.TemporaryDirectory() as directory:
            script, conf = Path(directory, "done.lua"), Path(directory, "openssl.cnf")
            script.write_text(_SCRIPT.replace("TOKEN", TOKEN).replace("USERS", str(USERS)))
            conf.write_text(_OPENSSL_CONF)
            headers = [word for name, value in self.headers for word in ("-H", f"{name}: {value}")]
            child = await asyncio.create_subprocess_exec(
                wrk, "-t1", f"-c{self.connections}", f"-d{seconds:.0f}s", "--timeout", "30s",
                "-s", script, *headers, f"https://127.0.0.1:{server.port}{path}",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "OPENSSL_CONF": str(conf)},
            )  # fmt: skip
            output, _ = await child.communicate()
        found = output.decode().partition("\n@")[2].split()
        if len(found) < 3 or found[1] != "0" or b"Non-2xx" in output:
            raise RuntimeError(f"GET {path}: {output.decode()[-600:]}")
        return int(found[0]), [float(micros) / 1e6 for micros in found[2:]]

    async def _by_ourselves(self, server: Server, path: str, seconds: float) -> tuple[int, Sequence[float]]:
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        message = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n"
        messages = itertools.cycle(_OF_USER.sub(f"-{user}", message).encode() for user in range(USERS))
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        ends = time.perf_counter() + seconds
        latencies: list[float] = []

        async def ask() -> None:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname="localhost", limit=64 * 1024 * 1024
            )
            began = time.perf_counter()
            while began < ends:
                writer.write(next(messages))
                answer = await reader.readuntil(b"\r\n\r\n")
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"GET {path}: {answer.splitlines()[0].decode()}")
                await _read_body(reader, answer.lower())
                latencies.append(time.perf_counter() - began)
                await asyncio.sleep(max(0.0, began + 1 / self.most_per_s - time.perf_counter()))
                began = time.perf_counter()
            writer.close()

        async with asyncio.TaskGroup() as clients:
            for _ in range(self.connections):
                clients.create_task(ask())
        return len(latencies), latencies


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    """Of an answer with this head, in lower case."""
    if b"\r\ntransfer-encoding: chunked\r\n" not in head:
        await reader.readexactly(int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]))
        return
    size = 1
    while size:
        size = int(await reader.readline(), 16)
        await reader.readexactly(size + len(b"\r\n"))


async def compare(
    client: Client,
    *servers: tuple[Server, str],
    seconds: float = 2.0,
    rounds: int = 3,
    cost: Callable[[Load], float] = lambda load: load.cpu_ms,
) -> list[Load]:
    """The same load on each (server, path) in turns; the cheapest round of each, for noise only ever adds."""
    found: list[list[Load]] = [[] for _ in servers]
    for _ in range(rounds):
        for place, (server, path) in enumerate(servers):
            found[place].append(await client.get_many(server, path, seconds=seconds))
    return [min(loads, key=cost) for loads in found]
