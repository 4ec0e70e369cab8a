"""Child processes with a log file, stopped by pid and never left behind."""

from __future__ import annotations

import atexit
import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import httpx

T = TypeVar("T")


class DeadlineExceeded(AssertionError):
    """A condition did not come true in time; says what was waited for and what was seen last."""


def wait_until(predicate: Callable[[], T], *, what: str, timeout_s: float = 20, poll_s: float = 0.05) -> T:
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
    """A loopback TCP port nobody listens on now; two callers could in theory be given the same one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Daemon:
    """One long-running child. `start` may be called again after `stop`: same arguments, same log file."""

    def __init__(
        self, name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
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
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env
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

    def stop(self, grace_s: float = 10) -> int:
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
