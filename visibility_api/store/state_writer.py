"""Writes what changed of the jobs to the state file: in batches, on a thread of its own.

While the directory cannot be used everything stays in memory, `fault` says why, and it is tried again.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import SavedJob, save_points
from visibility_api.jobs.observation import Addition

from .state_file import Bounds, StateFile, Unavailable

log = structlog.get_logger("visibility.state")

T = TypeVar("T")
MAX_POINTS_WAITING = 1000  # of one job, while the directory cannot be used; then its history is written whole
Snapshot = Callable[[JobRef], SavedJob | None]

# What became of the state of a job that changed, for a metric.
WRITTEN, UNCHANGED, FAILED = "Written", "Unchanged", "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Times of the writer, in seconds."""

    write_s: float = 0.5  # between two batches: with the time that one takes, a kill loses less than a second
    retry_s: float = 15.0  # while the directory cannot be used
    prune_s: float = 3600.0
    hanging_s: float = 30.0  # a write that takes longer is reported: the disk does not answer
    slice_s: float = 0.005  # of the event loop, while the states of one batch are collected
    close_s: float = 5.0  # for the last batch
    load_s: float = 15.0  # jobs are served without what is there if reading it takes longer
    # Between two writes of one job's whole history, which is as large as ten states: what it gains meanwhile
    # is appended. Each waits between a half and all of it, or all would be written at once.
    history_s: float = 1200.0
    histories: int = 64  # of one batch; a second has room for all jobs that one server is made for


class Loaded(NamedTuple):
    """What the data directory has at the start."""

    states: list[SavedJob]
    histories: list[SavedJob]
    points: list[tuple[str, bytes]]  # that they have gained since, by uid


class _Batch(NamedTuple):
    """What is written in one transaction."""

    states: list[SavedJob]
    gone: list[JobRef]
    histories: list[SavedJob]
    points: dict[JobRef, list[Addition]]


class StateWriter:
    """The data directory of this server: `load`, then `run` for as long as the server lives.

    Until `run` is called nothing is written. `changed` and `gone` only note a job.
    """

    def __init__(self, directory: Path, bounds: Bounds, *, rhythm: Rhythm = Rhythm()) -> None:
        self._directory = directory
        self._bounds = bounds
        self._rhythm = rhythm
        self._file: StateFile | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")
        self._changed: dict[JobRef, None] = {}  # since the last batch
        self._gone: dict[JobRef, None] = {}
        self._histories: dict[JobRef, float] = {}  # that have changed, and when each is due (monotonic)
        self._points: dict[JobRef, list[Addition]] = {}  # that histories have gained since the last batch
        self._written: dict[JobRef, int] = {}  # hash of the state that the file has: none is written twice
        self._fault: str | None = None
        self._began: float | None = None  # of a call of the thread that is under way
        self._pruned_at = 0.0
        self.size_bytes = 0  # of the file, after the last batch

    @property
    def fault(self) -> str | None:
        """Why nothing is written now; None while all is well."""
        if self._began is not None and time.monotonic() - self._began > self._rhythm.hanging_s:
            return "a write does not end"
        return self._fault

    def changed(self, ref: JobRef, points: Sequence[Addition] = ()) -> None:
        """The state of this job may have changed, and its history has gained these points."""
        if points:
            self._points.setdefault(ref, []).extend(points)
        self._changed[ref] = None
        if ref not in self._histories:
            wait_s = self._rhythm.history_s * random.uniform(0.5, 1)
            self._histories[ref] = time.monotonic() + wait_s

    def gone(self, ref: JobRef) -> None:
        """This job does not exist any more."""
        self._changed.pop(ref, None)
        self._histories.pop(ref, None)
        self._points.pop(ref, None)
        self._gone[ref] = None

    async def load(self) -> Loaded:
        """What is there of before this process; nothing if the directory cannot be used."""
        try:
            async with asyncio.timeout(self._rhythm.load_s):
                loaded = await self._call(self._load)
        except Unavailable as error:
            self._fail(str(error))
            return Loaded([], [], [])
        except TimeoutError:
            self._fail("reading it does not end")
            return Loaded([], [], [])
        self._written = {each.ref: hash(each.state) for each in loaded.states}
        return loaded

    async def run(
        self,
        snapshot: Snapshot,
        jobs: Callable[[], Iterable[JobRef]],
        *,
        history: Snapshot = lambda _ref: None,
        count: Callable[[str, int], None] = lambda _outcome, _jobs: None,
    ) -> None:
        """Write what changes, for ever; what has changed by the end of this call is still written.

        `snapshot` returns the present state of a job and `history` its history, None if there is none; `jobs`
        all jobs, for a file that begins anew. `count` is called with an outcome and a number of jobs.
        """
        rhythm = self._rhythm
        try:
            while True:
                await asyncio.sleep(rhythm.write_s if self._fault is None else rhythm.retry_s)
                if self._file is None:
                    every = dict.fromkeys(jobs())  # it may have lost them, and so had others
                    self._changed.update(every)
                    self._histories.update(dict.fromkeys(every, time.monotonic()))
                    self._written.clear()
                batch = await self._collect(snapshot, history, count)
                try:
                    await self._call(partial(self._write, batch))
                except asyncio.CancelledError:  # its thread may not have begun: it is part of the last batch
                    self._put_back(batch)
                    raise
                except Unavailable as error:
                    self._put_back(batch)
                    count(FAILED, len(batch.states))
                    self._fail(str(error))
                else:
                    count(WRITTEN, len(batch.states))
                    self._recover()
        finally:
            self._finish(snapshot, history)

    async def _collect(
        self, snapshot: Snapshot, history: Snapshot, count: Callable[[str, int], None]
    ) -> _Batch:
        """The states that the file does not have yet, the jobs to take out of it, and histories."""
        saved: list[SavedJob] = []
        histories: list[SavedJob] = []
        began, unchanged = time.monotonic(), 0
        try:
            while self._changed:
                ref, _ = self._changed.popitem()
                if (state := self._news_of(ref, snapshot)) is None:
                    unchanged += 1
                else:
                    saved.append(state)
                if time.monotonic() - began > self._rhythm.slice_s:
                    await asyncio.sleep(0)
                    began = time.monotonic()
            for each in self._due_histories(history, began, self._rhythm.histories):
                histories.append(each)
                if time.monotonic() - began > self._rhythm.slice_s:
                    await asyncio.sleep(0)
                    began = time.monotonic()
        except asyncio.CancelledError:
            self._put_back(_Batch(saved, [], histories, {}))
            raise
        count(UNCHANGED, unchanged)
        gone, self._gone = self._gone, {}
        for ref in gone:
            self._written.pop(ref, None)
        saved, histories = ([each for each in some if each.ref not in gone] for some in (saved, histories))
        points, self._points = self._points, {}
        return _Batch(saved, list(gone), histories, points)

    def _due_histories(self, history: Snapshot, now: float, most: int) -> Iterator[SavedJob]:
        """One by one: each is compressed. What it has gained is in it, and not written beside it."""
        for ref in [ref for ref, at in self._histories.items() if at <= now][:most]:
            if self._histories.pop(ref, None) is not None and (kept := _taken(history, ref)) is not None:
                self._points.pop(ref, None)
                yield kept

    def _news_of(self, ref: JobRef, snapshot: Snapshot) -> SavedJob | None:
        state = _taken(snapshot, ref)
        if state is None:
            return None
        fingerprint = hash(state.state)
        if self._written.get(ref) == fingerprint:
            return None
        self._written[ref] = fingerprint
        return state

    def _put_back(self, batch: _Batch) -> None:
        for each in batch.histories:
            if each.ref not in self._gone:
                self._histories[each.ref] = time.monotonic()
        for each in batch.states:
            self._written.pop(each.ref, None)
            if each.ref not in self._gone:
                self._changed.setdefault(each.ref)
        for ref in batch.gone:
            self._gone.setdefault(ref)
        for ref, points in batch.points.items():
            if ref not in self._gone and ref not in self._histories:
                self._histories[ref] = time.monotonic()
            if ref not in self._gone:
                self._points[ref] = (points + self._points.get(ref, []))[-MAX_POINTS_WAITING:]

    def _finish(self, snapshot: Snapshot, history: Snapshot) -> None:
        """The last batch. Blocks: the loop has nothing else to do by now."""
        saved = [state for ref in self._changed if (state := self._news_of(ref, snapshot)) is not None]
        histories = [*self._due_histories(history, math.inf, len(self._histories))]
        batch = _Batch(saved, list(self._gone), histories, self._points)
        last: Future[None] = self._thread.submit(self._close, batch)
        try:
            last.result(self._rhythm.close_s)
        except (Unavailable, TimeoutError) as error:
            log.warning(
                "last changes not written to the data directory", reason=str(error) or "it took too long"
            )
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _fail(self, reason: str) -> None:
        if reason != self._fault:
            log.error(
                "data directory cannot be used, state is kept in memory only",
                directory=str(self._directory),
                reason=reason,
                retry_s=self._rhythm.retry_s,
            )
        self._fault = reason

    def _recover(self) -> None:
        if self._fault is not None:
            log.info("data directory can be used again", directory=str(self._directory))
        self._fault = None

    async def _call(self, function: Callable[[], T]) -> T:
        self._began = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        except Unavailable:
            raise
        except Exception as error:  # whatever is wrong with it, jobs are served without it
            log.error("data directory failed unexpectedly", **describe_fault(error))
            raise Unavailable("unexpected error, see the log") from error
        finally:
            self._began = None

    # --- on the thread

    def _open(self) -> StateFile:
        if self._file is None:
            self._file = StateFile(self._directory, self._bounds)
        return self._file

    def _load(self) -> Loaded:
        file = self._open()
        try:
            file.prune()
            self._pruned_at = time.monotonic()
            return Loaded(file.load(), file.load_histories(), file.load_points())
        except Unavailable:
            self._drop()
            raise

    def _write(self, batch: _Batch) -> None:
        file = self._open()
        try:
            if any(batch):
                file.write(batch.states, batch.gone, batch.histories, _encoded(batch.points))
            if time.monotonic() - self._pruned_at > self._rhythm.prune_s:
                self._pruned_at = time.monotonic()
                file.prune()
            self.size_bytes = file.size_bytes
        except Unavailable:
            self._drop()
            raise

    def _close(self, batch: _Batch) -> None:
        if self._file is None:
            return
        try:
            if any(batch):
                self._file.write(batch.states, batch.gone, points=_encoded(batch.points))
            if batch.histories:  # later: they take longer, and are less needed, should there be no time
                self._file.write([], [], batch.histories)
        finally:
            self._drop()

    def _drop(self) -> None:
        """Open it anew next time: a file that is damaged is then set aside."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _encoded(points: Mapping[JobRef, Sequence[Addition]]) -> list[tuple[str, bytes]]:
    return [(ref.uid, save_points(each)) for ref, each in points.items()]


def _taken(snapshot: Snapshot, ref: JobRef) -> SavedJob | None:
    try:
        return snapshot(ref)
    except Exception as error:  # of one job; the others are written (decision 0005)
        log.error("job's state not kept", job=str(ref), **describe_fault(error))
        return None
