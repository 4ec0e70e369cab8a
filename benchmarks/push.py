"""`python -m benchmarks.push`: pushes of many jobs over kept-alive TLS, and what one costs the server.

Every push is another report of its job, so it goes all the way: token, limits, parsing, tracker, store; and
`kept` to a data directory as well. `owner` is a server that another follows, `follower` that other;
`forwarding` is what a push to the follower costs it."""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop

from . import kubernetes
from .processes import Server, cpu_s, free_port, process
from .scene import certificates, fetch, kubeconfig_for, serving

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status"
READY = "/readyz"
JOBS = 2500  # at 5 pushes a second each, as many as a core takes
PUSHES = 8  # of each job a round: within its burst
ROUNDS = 4
CONNECTIONS = 64
STEPS_PER_S, PAUSE_S = 20.0, 5.0
BEGAN = datetime.now(UTC)
BARE = "/bare"
METRICS = {
    "loss": "0.2347",
    "grad_norm": "1.2",
    "learning_rate": "0.0003",
    "epoch": "1.35",
    "accuracy": "0.91",
}
TOKEN_CHARACTERS = 1000  # of a service account's, about


def token(number: int, rank: int = 0) -> str:
    return f"{kubernetes.POD_TOKEN}{number:05d}{rank:05d}-".ljust(TOKEN_CHARACTERS, "x")


def step_at(at: datetime) -> int:
    """Of each run."""
    return int(STEPS_PER_S * (at - BEGAN).total_seconds())


def message(number: int, at: datetime, path: str = PATH) -> bytes:
    """What Hugging Face's callback sends, with urllib's headers."""
    pairs = {**METRICS, "current_step": str(step_at(at)), "total_steps": "10000000"}
    status = {
        "lastUpdatedTime": at.isoformat(),
        "progressPercentage": 3,
        "estimatedRemainingSeconds": 795,
        "metrics": [{"name": name, "value": value} for name, value in pairs.items()],
    }
    body = msgspec.json.encode({"trainerStatus": status})
    path = path.format(kubernetes.namespace(number), kubernetes.job_name(number))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Python-urllib/3.11\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {token(number)}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def connect(context: ssl.SSLContext, port: int, client: int = 0, timeout_s: float = 30.0) -> ssl.SSLSocket:
    """Each client has an address of its own, as pods have: unknown tokens are limited by address."""
    source = f"127.1.{client >> 8}.{client & 255}", 0
    raw = socket.create_connection(("127.0.0.1", port), timeout=timeout_s, source_address=source)
    return context.wrap_socket(raw, server_hostname="localhost")


def push_all(
    server: Server, *, ca: Path, jobs: int, pushes: int, path: str = PATH, first_job: int = 0
) -> float:
    """Microseconds of the server's CPU for one of `pushes` of each job. Raises when one is not answered 200.

    Sends on all connections before it reads from any: a client that slept for each answer would have the
    server wake it each time, which clients on other machines do not.
    """
    context = ssl.create_default_context(cafile=ca)
    sockets = [connect(context, server.port, client) for client in range(CONNECTIONS)]
    numbers = [number for _ in range(pushes) for number in range(first_job, first_job + jobs)]
    cpu = cpu_s(server.pid)
    for first in range(0, len(numbers), CONNECTIONS):
        batch = [
            (connection, message(number, datetime.now(UTC), path))
            for connection, number in zip(sockets, numbers[first : first + CONNECTIONS], strict=False)
        ]
        for connection, sent in batch:
            connection.sendall(sent)
        for connection, _ in batch:
            expect_200(connection)
    spent_s = cpu_s(server.pid) - cpu
    for connection in sockets:
        connection.close()
    return 1e6 * spent_s / len(numbers)


def expect_200(connection: ssl.SSLSocket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        if not (piece := connection.recv(65536)):
            raise RuntimeError("the connection was closed before a push was answered")
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"a push was answered {head.splitlines()[0].decode()}")
    left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= len(connection.recv(65536))


async def measure(jobs: int = JOBS, rounds: int = ROUNDS, settle_s: float = 0.0) -> None:
    """Prints a first push of each job, then the best of the rounds after it, in turns: of a server by itself,
    one with a data directory, two of which one follows the other, and a bare application."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, bare_port = free_port(), free_port()
        (directory / "echo.json").write_bytes(message(0, datetime.now(UTC)).partition(b"\r\n\r\n")[2])
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        kept = ("--data-dir", str(directory / "data"))
        ports = free_port(), free_port()
        peers = tuple(f"--peers=127.0.0.1:{port}" for port in ports)
        async with (
            process(
                "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
                port=kube_port, log=directory / "kubernetes.log",
            ),
            serving(directory, tls, kubeconfig, free_port(), "--sources=push") as ours,
            serving(directory, tls, kubeconfig, free_port(), "--sources=push", *kept) as keeping,
            serving(directory, tls, kubeconfig, ports[0], "--sources=push", *peers) as one,
            serving(directory, tls, kubeconfig, ports[1], "--sources=push", *peers) as other,
            process(
                "benchmarks.bare", "--port", str(bare_port), *tls,
                "--body", f"{BARE}={directory / 'echo.json'}",
                port=bare_port, log=directory / "bare.log",
            ) as ceiling,
        ):  # fmt: skip
            for server in (ours, keeping, one, other):
                await _until(server, ca, lambda body: body == b"ok")
            is_first = b"visibility_log_owner 1.0" in await fetch(one, ca, "/metrics")
            owner, follower = (one, other) if is_first else (other, one)
            await asyncio.sleep(2)  # the lists of the watches
            _tell("first push", push_all(ours, ca=ca, jobs=jobs, pushes=1))
            for server in (keeping, owner):
                push_all(server, ca=ca, jobs=jobs, pushes=1)
            ends = time.monotonic() + settle_s
            while (due := time.monotonic() + PAUSE_S) < ends:
                for server in (ours, keeping, owner):
                    push_all(server, ca=ca, jobs=jobs, pushes=1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.sleep(2)  # buckets fill up
            best: dict[str, float] = {}
            for _ in range(rounds):
                cost_us = {}
                for name, server, path in (
                    ("push", ours, PATH), ("kept", keeping, PATH), ("bare", ceiling, BARE)
                ):  # fmt: skip
                    cost_us[name] = push_all(server, ca=ca, jobs=jobs, pushes=PUSHES, path=path)
                cpu = cpu_s(follower.pid)
                cost_us["owner"] = push_all(owner, ca=ca, jobs=jobs, pushes=PUSHES)
                cost_us["follower"] = 1e6 * (cpu_s(follower.pid) - cpu) / (jobs * PUSHES)
                await asyncio.sleep(1)  # buckets fill up
                cost_us["forwarding"] = push_all(follower, ca=ca, jobs=jobs, pushes=PUSHES)
                await asyncio.sleep(1)
                best = {name: min(us, best.get(name, us)) for name, us in cost_us.items()}
            for name, cost_us in best.items():
                _tell(name, cost_us)
            print(f"{'push':<12} {best['bare'] / best['push']:.2f} of the ceiling", flush=True)
            print(f"{'kept':<12} {best['kept'] / best['push']:.2f} x a push that is not kept", flush=True)
            print(
                f"{'owner':<12} {best['owner'] / best['push']:.2f} x a push that nobody follows", flush=True
            )


def _tell(title: str, cost_us: float) -> None:
    print(f"{title:<12} {cost_us:.0f} us CPU ({1e6 / cost_us:.0f} a CPU-second)", flush=True)


async def _until(server: Server, ca: Path, is_so: Callable[[bytes], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if is_so(await fetch(server, ca, READY)):
                    return
            except RuntimeError:
                pass
            await asyncio.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.push", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--settle", type=float, default=0.0, help="seconds for which the runs go on before")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(given.jobs, given.rounds, given.settle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
