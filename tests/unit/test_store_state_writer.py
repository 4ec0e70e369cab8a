"""The writer: what changed reaches the file in batches, and nothing waits for a directory that fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import structlog

from tests.jobs import T0
from tests.service.tls_server import until
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import SavedJob, restore_points
from visibility_api.jobs.observation import Addition
from visibility_api.reports.document import Progress
from visibility_api.store.state_file import FILE, Bounds, StateFile
from visibility_api.store.state_writer import Loaded, Rhythm, StateWriter

BOUNDS = Bounds(max_bytes=16 * 1024 * 1024, max_age_s=3600.0)
NOTHING = Loaded([], [], [])
QUICK = Rhythm(write_s=0.001, retry_s=0.001)


def ref(name: str) -> JobRef:
    return JobRef(resource="trainjobs", namespace="team-a", name=name, uid=f"uid-of-{name}")


@dataclass(slots=True, kw_only=True)
class Server:
    """A writer, and the states that it finds."""

    directory: Path
    rhythm: Rhythm = QUICK
    states: dict[str, bytes] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    writer: StateWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = StateWriter(self.directory, BOUNDS, rhythm=self.rhythm)

    def report(self, name: str, state: bytes) -> None:
        self.states[name] = state
        self.writer.changed(ref(name))

    def delete(self, name: str) -> None:
        del self.states[name]
        self.writer.gone(ref(name))

    def snapshot(self, job: JobRef) -> SavedJob | None:
        state = self.states.get(job.name)
        if state == b"fault":
            raise RuntimeError("s3cr3t")
        return None if state is None else SavedJob(ref=job, format=1, state=state)

    def history(self, job: JobRef) -> SavedJob | None:
        state = self.states.get(job.name)
        return None if state is None else SavedJob(ref=job, format=1, state=b"past of " + state)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                self.writer.run(
                    self.snapshot,
                    lambda: map(ref, self.states),
                    history=self.history,
                    count=lambda outcome, jobs: self.counted.update({outcome: jobs}),
                )
            )
            await asyncio.sleep(0)  # it begins
            yield self
            task.cancel()

    async def counts(self, is_so: Callable[[Counter[str]], bool]) -> None:
        await until(lambda: is_so(self.counted))


def kept(directory: Path, *, histories: bool = False) -> dict[str, bytes]:
    file = StateFile(directory, BOUNDS)
    try:
        loaded = file.load_histories() if histories else file.load()
        return {each.ref.name: each.state for each in loaded}
    finally:
        file.close()


async def test_what_changed_is_written_once(tmp_path: Path) -> None:
    server = Server(directory=tmp_path)
    assert await server.writer.load() == NOTHING
    async with server.running():
        server.report("a", b"1")
        server.report("b", b"1")
        await server.counts(lambda counted: counted["Written"] == 2)
        server.writer.changed(ref("a"))  # but is the same
        await server.counts(lambda counted: counted["Unchanged"] == 1)
        server.report("a", b"2")
        await server.counts(lambda counted: counted["Written"] == 3)
        assert server.writer.fault is None
        assert server.writer.size_bytes > 0
    assert kept(tmp_path) == {"a": b"2", "b": b"1"}


async def test_what_changed_last_is_written_at_the_end(tmp_path: Path) -> None:
    server = Server(directory=tmp_path, rhythm=Rhythm(write_s=3600.0))
    await server.writer.load()
    async with server.running():
        for number in range(100):
            server.report(f"job-{number}", b"1")
        server.delete("job-7")
    assert kept(tmp_path).keys() == {f"job-{number}" for number in range(100)} - {"job-7"}


async def test_the_next_process_loads_it_and_deleted_jobs_stay_deleted(tmp_path: Path) -> None:
    first = Server(directory=tmp_path)
    await first.writer.load()
    async with first.running():
        first.report("a", b"1")
        first.report("b", b"1")
        await first.counts(lambda counted: counted["Written"] == 2)
    second = Server(directory=tmp_path)
    loaded = await second.writer.load()
    assert {each.ref.name: each.state for each in loaded.states} == {"a": b"1", "b": b"1"}
    async with second.running():
        for name in ("a", "b"):  # as each is published
            second.report(name, b"1")
        await second.counts(lambda counted: counted["Unchanged"] == 2)
        second.delete("a")
    assert kept(tmp_path) == {"b": b"1"}


async def test_one_jobs_fault_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    server = Server(directory=tmp_path)
    await server.writer.load()
    with structlog.testing.capture_logs() as logged:
        async with server.running():
            server.report("bad", b"fault")
            server.report("good", b"1")
            await server.counts(lambda counted: counted["Written"] == 1)
    assert kept(tmp_path) == {"good": b"1"}
    assert [each["event"] for each in logged] == ["job's state not kept"]
    assert "s3cr3t" not in str(logged)


async def test_a_directory_in_use_is_taken_over_when_it_is_free_with_every_job(tmp_path: Path) -> None:
    other = StateFile(tmp_path, BOUNDS)
    server = Server(directory=tmp_path)
    with structlog.testing.capture_logs() as logged:
        assert await server.writer.load() == NOTHING
        assert server.writer.fault == "another process uses it"
        async with server.running():
            server.report("a", b"1")
            server.states["b"] = b"unchanged for long"
            await server.counts(lambda counted: counted["Failed"] >= 2)
            other.close()
            await server.counts(lambda counted: counted["Written"] == 2)
            await until(lambda: server.writer.fault is None)
    assert kept(tmp_path) == {"a": b"1", "b": b"unchanged for long"}
    assert [each["event"] for each in logged] == [
        "data directory cannot be used, state is kept in memory only",
        "data directory can be used again",
    ]


async def test_a_file_that_was_damaged_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    server = Server(directory=tmp_path)
    await server.writer.load()
    async with server.running():
        for number in range(200):
            server.report(f"job-{number}", b"x" * 900)
        await server.counts(lambda counted: counted["Written"] == 200)
    (tmp_path / FILE).write_bytes(b"something else" * 1000)
    again = Server(directory=tmp_path, states=dict(server.states))
    assert await again.writer.load() == NOTHING
    async with again.running():
        again.report("job-0", b"new")
        await again.counts(lambda counted: counted["Written"] == 1)
        assert again.writer.fault is None


async def test_a_write_that_does_not_end_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(StateFile, "write", lambda *_, **__: may_end.wait())
    server = Server(directory=tmp_path, rhythm=Rhythm(write_s=0.001, hanging_s=0.01))
    await server.writer.load()
    async with server.running():
        server.report("a", b"1")
        await until(lambda: server.writer.fault is not None)
        assert server.writer.fault == "a write does not end"
        may_end.set()
        await until(lambda: server.writer.fault is None)


async def test_a_directory_that_does_not_answer_delays_the_start_for_so_long_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    load = StateFile.load
    monkeypatch.setattr(StateFile, "load", lambda file: may_end.wait() and load(file))
    server = Server(directory=tmp_path, rhythm=Rhythm(write_s=0.001, load_s=0.01, retry_s=0.01))
    assert await server.writer.load() == NOTHING
    assert server.writer.fault == "reading it does not end"
    async with server.running():
        server.report("a", b"1")
        may_end.set()
        await until(lambda: server.writer.fault is None)
    assert kept(tmp_path) == {"a": b"1"}


# --- histories


async def test_a_history_is_written_seldom_and_at_the_end(tmp_path: Path) -> None:
    server = Server(directory=tmp_path)
    await server.writer.load()
    async with server.running():
        for state in (b"1", b"2", b"3"):
            server.report("a", state)
            await server.counts(lambda counted: counted["Written"] == 1)
            server.counted.clear()
        assert server.writer._histories.keys() == {ref("a")}
    assert kept(tmp_path, histories=True) == {"a": b"past of 3"}


async def test_histories_that_are_due_are_written_in_their_turn(tmp_path: Path) -> None:
    server = Server(directory=tmp_path, rhythm=replace(QUICK, history_s=0.0, histories=2))
    await server.writer.load()
    async with server.running():
        for name in "abcde":
            server.report(name, b"1")
        await until(lambda: not server.writer._histories)
        server.report("a", b"2")
        await until(lambda: not server.writer._histories)
        server.delete("b")
    assert kept(tmp_path, histories=True) == dict.fromkeys("cde", b"past of 1") | {"a": b"past of 2"}


async def test_others_have_a_turn_after_each_slice_of_histories(tmp_path: Path) -> None:
    """64 histories that are full take 20 ms to compress."""
    turn, taken = 0, set[int]()

    class Noting(Server):
        def history(self, job: JobRef) -> SavedJob | None:
            taken.add(turn)
            return Server.history(self, job)

    server = Noting(directory=tmp_path, rhythm=replace(QUICK, history_s=0.0, slice_s=0.0))
    await server.writer.load()
    async with server.running():
        for number in range(20):
            server.report(f"job-{number}", b"1")
        while server.writer._histories:
            turn += 1
            await asyncio.sleep(0)
    assert len(taken) >= 20


async def test_a_history_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.write_text("a file is in the way")
    server = Server(directory=directory, rhythm=replace(QUICK, history_s=0.0))
    await server.writer.load()
    async with server.running():
        server.report("a", b"1")
        await server.counts(lambda counted: counted["Failed"] > 0)
        directory.unlink()
        await server.counts(lambda counted: counted["Written"] > 0)
    assert kept(directory, histories=True) == {"a": b"past of 1"}


async def test_a_kill_loses_no_point_of_a_history_that_was_written(tmp_path: Path) -> None:
    """Whole histories are written seldom; what they gain is appended."""
    killed = Server(directory=tmp_path)
    point = Addition(
        attempt="p1/0/0",
        report=Progress(timestamp=T0, step=1),
        points=(),
        continues=False,
        reported_at=T0,
        ahead_s=0.0,
        is_clock_set=False,
    )
    await killed.writer.load()
    async with killed.running():
        killed.states["a"] = b"1"
        killed.writer.changed(ref("a"), [point, point])
        await killed.counts(lambda counted: counted["Written"] == 1)
        file = killed.writer._file
        assert file is not None
        found = file.load_points()
    assert [(uid, restore_points(points)) for uid, points in found] == [(ref("a").uid, [point, point])]
