"""State from before this process reaches the tracker, and what the tracker knows reaches the next process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.jobs import KILLED, RANK0
from tests.service.tls_server import until
from visibility_api.continuity import Continuity
from visibility_api.history.view import Selection, select
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import Memory, encode
from visibility_api.jobs.saved import SavedJob, save
from visibility_api.jobs.tracker import Tracker
from visibility_api.persistence.state_file import Bounds, StateFile
from visibility_api.reports.document import Progress
from visibility_api.settings import read_settings
from visibility_api.telemetry import Metrics

from .test_jobs_tracker import JOB, REF, T0, Bench

OTHER = JobRef(resource=REF.resource, namespace=REF.namespace, name="other", uid="u-other")


class Server:
    """A tracker, with its state in a directory or in other replicas."""

    def __init__(self, *flags: str, **options: float) -> None:
        self.registry = CollectorRegistry()
        self.continuity = Continuity(read_settings(flags), Metrics(self.registry), **options)
        self.bench = Bench()
        self.bench.tracker = self.tracker = Tracker(
            publish=self._publish,
            retract=self.continuity.gone,
            now=lambda: self.bench.now,
            interval_s=15.0,
            recall=self.continuity.recall,
            recall_history=self.continuity.recall_history,
        )
        self.continuity.connect(
            self.tracker, certificate=lambda: b"", proof=lambda: "", met=lambda _address: None
        )

    def _publish(self, document: object) -> None:
        self.bench.published.append(document)  # type: ignore[arg-type]
        self.continuity.changed(self.bench.last.job.ref)

    def recalled(self, source: str) -> float:
        return self.registry.get_sample_value("visibility_recalled_jobs_total", {"source": source}) or 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Its loops, but for those that ask other replicas."""
        await self.continuity.load()
        loops = dict(self.continuity.loops(lambda: True))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loops[name]()) for name in ("data directory", "recollections")]
            await asyncio.sleep(0)  # they begin
            yield
            for task in tasks:
                task.cancel()


def kept(directory: Path) -> set[JobRef]:
    file = StateFile(directory, Bounds(max_bytes=2**24, max_age_s=3600.0))
    try:
        return {each.ref for each in file.load()}
    finally:
        file.close()


def memory(step: int, *, minutes: float) -> Memory:
    at = T0 + timedelta(minutes=minutes)
    report = Progress(timestamp=at, step=step, total_steps=1000)
    return Memory(attempt="p1/0/0", source="push", reporter="push", report=report, reported_at=at)


async def test_what_was_known_at_the_end_is_known_at_the_start(tmp_path: Path) -> None:
    flag = f"--data-dir={tmp_path}"
    first = Server(flag)
    async with first.running():
        first.bench.job(JOB)
        first.bench.report(100)
    second = Server(flag)
    async with second.running():
        second.bench.job(JOB)
        assert second.bench.last.step == 100
        second.bench.job(replace(JOB, ref=OTHER))
        assert second.bench.last.step is None
    assert second.recalled("disk") == 1


async def test_jobs_that_do_not_exist_any_more_are_forgotten_in_time(
    tmp_path: Path,
) -> None:
    flag = f"--data-dir={tmp_path}"
    first = Server(flag)
    async with first.running():
        for ref in (REF, OTHER):
            first.bench.job(replace(JOB, ref=ref))
    assert kept(tmp_path) == {REF, OTHER}
    second = Server(flag)
    async with second.running():
        second.bench.job(JOB)
    assert kept(tmp_path) == {REF, OTHER}, "kube-apiserver may not show it yet"
    third = Server(flag, settled_s=0.001, check_s=0.001)
    async with third.running():
        third.bench.job(JOB)
        await until(lambda: not len(third.continuity._recollections))
    assert kept(tmp_path) == {REF}


async def test_a_job_that_is_deleted_is_taken_out(tmp_path: Path) -> None:
    server = Server(f"--data-dir={tmp_path}")
    async with server.running():
        server.bench.job(JOB)
        server.bench.job(replace(JOB, ref=OTHER))
        server.tracker.job_gone(REF)
    assert kept(tmp_path) == {OTHER}


def test_what_a_peer_knows_waits_for_its_job_and_the_later_report_counts() -> None:
    server = Server("--peers=one")
    take = server.continuity._take
    take(save(REF, encode(memory(10, minutes=1))))
    take(save(REF, encode(memory(20, minutes=2))))
    take(save(REF, encode(memory(5, minutes=0))))
    server.bench.advance(180)
    server.bench.job(JOB)
    assert server.bench.last.step == 20
    published = len(server.bench.published)
    take(save(REF, encode(memory(15, minutes=1.5))))
    take(save(REF, encode(memory(20, minutes=2))))
    assert len(server.bench.published) == published
    take(save(REF, encode(memory(30, minutes=3))))
    assert server.bench.last.step == 30
    assert server.recalled("peer") == 2
    assert server.continuity.giver is not None


def test_long_after_the_start_what_each_replica_probes_itself_is_not_taken_from_a_peer() -> None:
    server = Server("--peers=one")
    server.bench.job(JOB)
    server.bench.report(10)
    later = memory(30, minutes=3)
    catch_up = server.continuity._catch_up
    catch_up(save(OTHER, encode(later)))
    catch_up(save(REF, encode(replace(later, source="exec"))))
    assert server.bench.last.step == 10
    catch_up(save(REF, encode(replace(later, source="push", reporter="push"))))
    assert server.bench.last.step == 30


def test_long_after_the_start_the_last_report_of_a_pod_that_has_ended_is_taken_from_a_peer() -> None:
    """This one's last probe came before it, and there is nothing left to read."""
    server = Server("--peers=one")
    server.bench.job(JOB)
    server.bench.report(10)
    last = save(REF, encode(replace(memory(30, minutes=3), source="exec", reporter="exec")))
    for rank0 in (replace(RANK0, is_running=False, last_termination=KILLED), None):
        server.bench.job(replace(JOB, rank0=rank0))
        assert server.bench.last.step == (10 if rank0 is not None else 30)
        server.continuity._catch_up(last)
        assert server.bench.last.step == 30


def test_long_after_the_start_what_a_replica_has_missed_of_a_running_job_is_taken_from_a_peer() -> None:
    """Its watch was interrupted while one pod ended and the next one began."""
    whole, late = Server("--peers=one"), Server("--peers=one")
    crashed = replace(RANK0, is_running=False, last_termination=KILLED)
    for server, rank0s in ((whole, (RANK0, crashed)), (late, (RANK0,))):
        for rank0 in rank0s:
            server.bench.job(replace(JOB, rank0=rank0))
        server.bench.job(replace(JOB, rank0=replace(RANK0, pod_uid="p2")))
    known = whole.tracker.remembered(REF)
    assert known is not None
    late.continuity._catch_up(save(REF, encode(known)))
    shown, found = (each.bench.last.job.rank0 for each in (whole, late))
    assert shown is not None
    assert shown.last_termination == KILLED
    assert found == shown


def test_a_peer_that_knows_the_same_report_for_longer_brings_its_pace() -> None:
    whole, late = Server("--peers=one"), Server("--peers=one")
    whole.bench.job(JOB)
    for step in (10, 20, 30, 40, 50):
        whole.bench.advance(15)
        whole.bench.report(step)
    late.bench.now = whole.bench.now
    late.bench.job(JOB)
    late.bench.report(50)
    assert late.bench.last.steps_per_s is None
    known = whole.tracker.remembered(REF)
    assert known is not None
    late.continuity._take(save(REF, encode(known)))
    assert late.bench.last.steps_per_s == whole.bench.last.steps_per_s is not None


async def test_alone_and_without_a_directory_there_is_nothing_to_wait_for() -> None:
    server = Server()
    await server.continuity.load()
    await server.continuity.taken()
    assert server.continuity.giver is None
    assert [name for name, _ in server.continuity.loops(lambda: True)] == ["recollections"]
    assert list(server.continuity.checks(lambda: True)) == []
    server.bench.job(JOB)
    server.tracker.job_gone(REF)


def test_it_is_not_ready_while_a_peer_knows_later_pushes() -> None:
    server, is_synced = Server("--peers=one"), False
    (check,) = server.continuity.checks(lambda: is_synced)
    assert (check.name, check.is_readiness_only) == ("peers", True)
    assert check.run() is None, "that not all jobs are known is another check's word"
    is_synced = True
    assert check.run() == "pushes to other replicas are still being taken"
    taker = server.continuity._taker
    assert taker is not None
    taker.caught_up.set()
    assert check.run() is None


def test_of_a_job_that_a_peer_has_read_the_prober_is_told() -> None:
    server = Server("--peers=one")
    server.bench.job(JOB)
    server.bench.report(10)
    told: list[JobRef] = []
    server.continuity._recalled = told.append
    server.continuity._take(save(REF, encode(memory(5, minutes=-1))))
    assert told == []
    server.continuity._take(save(REF, encode(memory(30, minutes=3))))
    assert told == [REF]


# --- histories


def steps(server: Server) -> list[list[int | None]]:
    """Those of each attempt."""
    view = select(server.tracker.history(REF), Selection(), now_s=server.bench.now.timestamp() + 1e6)
    return [list(each.steps or ()) for each in view.progress]


async def test_the_past_of_a_job_is_known_at_the_start_and_goes_on(tmp_path: Path) -> None:
    flag = f"--data-dir={tmp_path}"
    first = Server(flag)
    async with first.running():
        first.bench.job(JOB)
        for step in (10, 20, 30):
            first.bench.report(step)
            first.bench.advance(15)
    second = Server(flag)
    second.bench.now = first.bench.now
    async with second.running():
        second.bench.job(JOB)
        assert steps(second) == [[10, 20, 30]]
        second.bench.report(40)
        assert steps(second) == [[10, 20, 30, 40]]
        second.bench.job(replace(JOB, ref=OTHER))
        assert second.tracker.history(OTHER) is None


def test_the_past_waits_for_its_job_and_what_cannot_be_read_is_passed_over() -> None:
    old, new = Server("--peers=one"), Server("--peers=one")
    old.bench.job(JOB)
    old.bench.report(10)
    given = old.continuity._history(REF)
    assert given is not None
    new.continuity._take_history(SavedJob(ref=REF, format=99, state=given.state))
    new.continuity._take_history(SavedJob(ref=REF, format=given.format, state=b"damaged"))
    new.continuity._take_history(given)
    new.bench.job(JOB)
    assert steps(new) == [[10]]
    assert new.bench.last.step is None, "the past is not a report"


def test_how_a_pod_ended_that_was_deleted_before_it_was_seen_here_is_known_from_a_peer() -> None:
    """The peer has no newer report: the job has crashed after it."""
    whole, late = Server("--peers=one"), Server("--peers=one")
    for server in (whole, late):
        server.bench.job(JOB)
        server.bench.report(10)
    whole.bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, last_termination=KILLED)))
    for server in (whole, late):
        server.bench.job(replace(JOB, rank0=None))
    known = whole.tracker.remembered(REF)
    assert known is not None
    late.continuity._take(save(REF, encode(known)))
    published = len(late.bench.published)
    late.continuity._take(save(REF, encode(known)))
    rank0 = late.bench.last.job.rank0
    assert rank0 is not None
    assert rank0.last_termination == KILLED
    assert len(late.bench.published) == published
