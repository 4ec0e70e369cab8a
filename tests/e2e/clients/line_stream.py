"""A long-running command whose lines are read as they come."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.e2e.processes import PATIENCE_S


class LineStream:
    """`with` it: the command runs in the block, and is ended after it if it has not ended by itself."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._news = threading.Condition()
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self._process.stdout, self._lines), (self._process.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def lines(self) -> list[str]:
        """What was printed until now."""
        with self._news:
            return list(self._lines)

    @property
    def complaints(self) -> str:
        """What was written to stderr until now."""
        with self._news:
            return "".join(f"{line}\n" for line in self._errors)

    def wait_for(
        self, holds: Callable[[list[str]], bool], *, what: str, timeout_s: float = PATIENCE_S
    ) -> list[str]:
        """The lines as soon as `holds` is true of them; fails when the command ends before, or time is up."""
        deadline = time.monotonic() + timeout_s
        with self._news:
            while not holds(self._lines):
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not any(reader.is_alive() for reader in self._readers):
                    raise AssertionError(
                        f"ended, or {timeout_s:g} s over, before {what}; last lines {self._lines[-5:]}, "
                        f"last complaints {self._errors[-5:]}"
                    )
                self._news.wait(min(left_s, 1.0))
            return list(self._lines)

    def wait_end(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code; everything has been read then."""
        code = self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def _read(self, pipe: Iterable[str], kept: list[str]) -> None:
        for line in pipe:
            with self._news:
                kept.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()
