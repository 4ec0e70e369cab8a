"""Child processes with a log file, stopped by pid and never left behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import httpx

T = TypeVar("T")
# For what is certain to come: a machine that is slow, or stands still for a while, is no fault of ours.
PATIENCE_S = 90.0
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given_ports: set[int] = set()


class DeadlineExceeded(AssertionError):
    """A condition did not come true in time; says what was waited for and what was seen last."""


def wait_until(
    predicate: Callable[[], T], *, what: str, timeout_s: float = PATIENCE_S, poll_s: float = 0.05
) -> T:
    """Call `predicate` until it returns something true, and return that.

    A failing assertion or look-up and a broken connection count as "not yet"; the last one is the cause of
    the DeadlineExceeded when time is up.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        seen: object = None
        failure: Exception | None = None
        try:
            value = predicate()
            if value:
                return value
            seen = value
        except (AssertionError, LookupError, OSError, httpx.TransportError) as error:
            failure = error
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"not within {timeout_s} s: {what}; last seen: {failure or seen!r}"
            ) from failure
        time.sleep(poll_s)


def free_port() -> int:
    """A TCP port that nobody uses now, another one for each call of this run, whichever worker makes it.

    Not one of those that the kernel gives to connections and to whoever binds to port 0: such a one could be
    taken before it is bound, or while a server on it starts anew.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    least = int(_EPHEMERAL_PORTS.read_text().split()[0]) if _EPHEMERAL_PORTS.exists() else 32768
    while True:
        port = random.SystemRandom().randrange(max(1024, least - 16384), max(2048, least))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            if port % workers == worker and port not in _given_ports:
                _given_ports.add(port)
                return port


class Daemon:
    """One long-running child. `start` may be called again after `stop`: same arguments, same log file."""

    def __init__(
        self, name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self.argv = list(argv)
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env
            )

    def check_alive(self) -> None:
        """Raise RuntimeError with the end of the log when the process has ended."""
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise RuntimeError(f"{self.name} ended with {code}; its log ends:\n{self.log_tail()}")

    def log_tail(self, max_bytes: int = 4000) -> str:
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-max_bytes:].decode(errors="replace")

    def stop(self, grace_s: float = PATIENCE_S) -> int:
        """SIGTERM, then SIGKILL after `grace_s`; returns the exit code (negative: signal)."""
        process = self._process
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return process.returncode

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
