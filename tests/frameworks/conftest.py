"""What a reader of the progress file sees while a framework trains."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress import open_runs, report
from trainjob_progress.loops import abandon_all


class Progress:
    """The documents in one progress file: the one that is there, and those that were there before it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def last(self) -> dict[str, Any]:
        """The document that is there. Where no run is open, the last one: it may still be on its way."""
        deadline_s = time.monotonic() + 5
        while True:
            is_open = any(not run.is_over for run in open_runs.runs)
            is_written = not any(thread.name.startswith("progress ") for thread in threading.enumerate())
            document: dict[str, Any] = json.loads(self.path.read_bytes())
            if is_open or is_written or document["state"] != "running" or time.monotonic() > deadline_s:
                return document
            time.sleep(0.002)

    @property
    def numbers(self) -> tuple[Any, ...]:
        """(state, step, total steps, percentage) of the document that is there."""
        last = self.last
        return last["state"], last.get("step"), last.get("totalSteps"), last.get("progressPercentage")

    @property
    def is_stopped(self) -> bool:
        """Whether the document says that the run was ended before its planned end, and no more."""
        last = self.last
        share = 100 * last["step"] // last["totalSteps"]
        return (last["state"], last["ending"], last["progressPercentage"]) == ("completed", "stopped", share)

    def begin_anew(self) -> None:
        """Forget what was there, as a container that starts again does."""
        report(sinks=[])  # takes over from the reporter of the run that broke off
        for thread in threading.enumerate():
            if thread.name.startswith("progress "):  # a document may still be on its way
                thread.join(60)
        with self._looking:
            self.path.unlink()
            self.seen.clear()

    def wait(self, *_: object) -> None:
        """Until a document was seen. Takes whatever a callback is given, so that it can be one."""
        deadline_s = time.monotonic() + 60
        while not self.seen:
            assert time.monotonic() < deadline_s, "no document has come"
            time.sleep(0.002)

    def check_order(self) -> None:
        """Steps never went back, and every document was whole."""
        steps = [document["step"] for document in self.seen]
        assert steps == sorted(steps)

    def stop(self) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        last = (0, 0)
        while not self._over.wait(0.002):
            with self._looking, contextlib.suppress(FileNotFoundError):
                with self.path.open("rb") as file:
                    body, stat = file.read(), os.fstat(file.fileno())
                if (stat.st_ino, stat.st_mtime_ns) != last:
                    last = stat.st_ino, stat.st_mtime_ns
                    self.seen.append(json.loads(body))


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Progress]:
    monkeypatch.chdir(tmp_path)  # frameworks leave files about
    monkeypatch.setenv("TRAINJOB_PROGRESS_FILE", str(tmp_path / "progress.json"))
    watched = Progress(tmp_path / "progress.json")
    yield watched
    watched.stop()
    abandon_all()  # what a test has left behind, and how it ended, is none of the next one's


class Preempted(Exception):
    """Ends a training in its middle."""
