"""The form in which a job's state is stored and passed on, and which of two states counts."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from structlog.testing import capture_logs

from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.clock import NodeClock
from visibility_api.jobs.estimate import Pace
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import Memory, encode
from visibility_api.jobs.saved import (
    FORMAT,
    HISTORY_FORMAT,
    SavedJob,
    restore,
    restore_history,
    save,
    save_history,
    supersedes,
)
from visibility_api.persistence.recollections import Recollections
from visibility_api.reports.document import Progress

from .test_jobs_tracker import JOB, REF, T0, Bench


def report(minutes: int, step: int = 1) -> Progress:
    return Progress(timestamp=T0 + timedelta(minutes=minutes), step=step)


def memory(minutes: int, step: int = 1) -> Memory:
    return Memory(attempt="p1/0/0", report=report(minutes, step))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_memory_or_nothing(state: bytes) -> None:
    assert isinstance(restore(save(REF, state)), Memory | None)
    assert isinstance(restore(SavedJob(ref=REF, format=FORMAT, state=state)), Memory | None)


def test_of_another_format_nothing_is_read() -> None:
    saved = save(REF, encode(memory(1)))
    assert restore(saved) == memory(1)
    assert restore(SavedJob(ref=REF, format=FORMAT + 1, state=saved.state)) is None
    assert restore(SavedJob(ref=REF, format=FORMAT - 2, state=saved.state)) is None


def test_what_the_version_before_has_saved_is_read() -> None:
    plain = encode(memory(1))
    assert restore(SavedJob(ref=REF, format=FORMAT - 1, state=plain)) == memory(1)


@given(st.data())
def test_of_what_a_disk_has_damaged_nothing_is_read(data: st.DataObject) -> None:
    """It may still decode: to a pace of 1e300 steps, or an attempt of no pod."""
    history = JobHistory()
    history.add("p1/0/0", report(1), continues=False, reported_at=T0, ahead_s=0.0)
    for saved, read in (
        (save(REF, encode(memory(1))), restore),
        (save_history(REF, history), restore_history),
    ):
        damaged = bytearray(saved.state)
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] ^= data.draw(st.integers(1, 255))
        assert read(msgspec.structs.replace(saved, state=bytes(damaged))) is None
        assert read(msgspec.structs.replace(saved, state=saved.state[:place])) is None


def test_the_later_report_counts_by_its_own_time() -> None:
    assert supersedes(memory(2), memory(1))
    assert not supersedes(memory(1), memory(1))
    assert supersedes(memory(1), None)
    assert supersedes(memory(1), Memory())
    assert not supersedes(None, memory(1))
    undated = Memory(report=Progress(step=1), reported_at=T0 + timedelta(minutes=3))  # when it was first seen
    assert supersedes(undated, memory(2))


def test_of_one_report_without_a_time_the_earlier_sight_counts() -> None:
    early, late = (
        Memory(
            attempt="p1/0/0",
            reporter="exec",
            report=Progress(
                step=1, timestamp=T0 + timedelta(minutes=minutes)
            ),  # given when it was first seen
            reports={"exec": Progress(step=1)},
            reported_at=T0 + timedelta(minutes=minutes),
        )
        for minutes in (1, 2)
    )
    assert supersedes(early, late)
    assert not supersedes(late, early)
    other = msgspec.structs.replace(late, reports={"exec": Progress(step=2)})
    assert supersedes(other, early), "of two reports the later one counts"


def test_of_one_report_the_pace_by_more_reports_counts() -> None:
    pace, paces = Pace(), []
    for minute in range(4):
        pace = pace.advance(Progress(step=10 * minute, timestamp=T0 + timedelta(minutes=minute)))
        paces.append(pace)
    late = Pace().advance(Progress(step=30, timestamp=T0 + timedelta(minutes=3)))
    whole, part = (msgspec.structs.replace(memory(3, step=30), pace=each) for each in (paces[-1], late))
    assert supersedes(whole, part)
    assert not supersedes(part, whole)
    assert supersedes(part, memory(3, step=30))
    assert not supersedes(whole, whole)


# --- until its job is seen


def test_of_two_states_the_later_is_recalled_once_and_counted_where_it_was_found() -> None:
    counted: list[str] = []
    known = Recollections(count=counted.append)
    known.add(save(REF, encode(memory(2, step=20))), "disk")
    known.add(save(REF, encode(memory(1, step=10))), "peer")
    assert known.take(REF) == memory(2, step=20)
    assert known.take(REF) is None
    known.add(save(REF, encode(memory(2))), "disk")
    known.add(save(REF, encode(memory(3, step=30))), "peer")
    assert known.take(REF) == memory(3, step=30)
    assert counted == ["disk", "peer"]


def test_what_cannot_be_read_is_nothing_and_displaces_nothing() -> None:
    known = Recollections()
    broken = SavedJob(ref=REF, format=FORMAT, state=b"\xc1")
    known.add(broken, "disk")
    assert known.take(REF) is None
    known.add(save(REF, encode(memory(1))), "disk")
    known.add(broken, "peer")
    assert known.take(REF) == memory(1)


def test_what_cannot_be_read_is_counted_in_one_line_once_every_job_was_seen() -> None:
    known = Recollections()
    known.add(SavedJob(ref=REF, format=FORMAT, state=b"\xc1"), "disk")
    known.add_history(SavedJob(ref=REF, format=HISTORY_FORMAT, state=b"\xc1"))
    assert known.take(REF) is None
    assert list(known.take_histories(REF)) == []
    with capture_logs() as lines:
        known.close()
        Recollections().close()
    assert [line["states"] for line in lines] == [2]


def test_a_job_of_the_same_name_recalls_nothing_of_its_predecessor() -> None:
    known = Recollections()
    known.add(save(REF, encode(memory(1))), "disk")
    successor = JobRef(resource=REF.resource, namespace=REF.namespace, name=REF.name, uid="another")
    assert known.take(successor) is None


def test_once_every_job_was_seen_what_is_left_is_named_and_nothing_more_is_kept() -> None:
    known = Recollections()
    known.add(save(REF, encode(memory(1))), "disk")
    assert known.close() == [REF]
    known.add(save(REF, encode(memory(2))), "peer")
    assert (known.take(REF), len(known)) == (None, 0)


def test_they_are_bounded_in_number_and_bytes() -> None:
    known = Recollections(max_jobs=3, max_bytes=1000)
    refs = [JobRef(resource="trainjobs", namespace="a", name=f"{n}", uid=f"{n}") for n in range(10)]
    known.add(SavedJob(ref=refs[0], format=FORMAT, state=b"x" * 1001), "disk")
    assert len(known) == 0
    for ref in refs:
        known.add(save(ref, encode(memory(1))), "disk")
    assert len(known) == 3


# --- what a job that has ended may have left behind


def test_nothing_is_to_be_read_of_a_job_whose_end_is_known(bench: Bench) -> None:
    bench.job(JOB)
    assert bench.tracker.lacks_final_report(REF)
    bench.observe(Progress(timestamp=T0, step=1), source="logs")
    assert bench.tracker.lacks_final_report(REF)
    bench.observe(Progress(timestamp=T0 + timedelta(seconds=1), step=2, state="completed"), source="logs")
    assert not bench.tracker.lacks_final_report(REF)


def test_what_came_by_file_is_not_completed_from_the_log(bench: Bench) -> None:
    bench.job(JOB)
    bench.report(1)
    assert not bench.tracker.lacks_final_report(REF)


def test_a_job_that_is_not_known_has_left_nothing(bench: Bench) -> None:
    assert not bench.tracker.lacks_final_report(REF)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- of two clocks the reports' own times say nothing


def told(attempt: str, told_s: float, reported_s: float, clock: NodeClock) -> Memory:
    return Memory(
        attempt=attempt,
        reporter="push",
        report=Progress(step=1, timestamp=T0 + timedelta(seconds=told_s)),
        reported_at=T0 + timedelta(seconds=reported_s),
        clock=clock,
    )


AHEAD = NodeClock(at_least_s=7195.0, at_most_s=7205.0)
RIGHT = NodeClock(at_least_s=-2.0, at_most_s=5.0)


def test_the_next_attempt_is_later_though_the_clock_of_the_one_before_was_ahead() -> None:
    before, after = told("p1/0/0", 7200, 0, AHEAD), told("p2/0/0", 1440, 1440, RIGHT)
    assert supersedes(after, before)
    assert not supersedes(before, after)


def test_a_report_after_its_clock_was_set_back_is_later() -> None:
    before, after = told("p1/0/0", 7200, 0, AHEAD), told("p1/0/0", 1440, 1440, RIGHT)
    assert supersedes(after, before)
    assert not supersedes(before, after)
