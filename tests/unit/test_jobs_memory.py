"""What is remembered of a job by one process lets another one judge it alike."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, REF, T0
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.estimate import Pace
from visibility_api.jobs.job import TrainingJob
from visibility_api.jobs.memory import (
    FORMAT,
    restore,
    restore_history,
    restore_points,
    save,
    save_history,
    save_points,
    take_state,
)
from visibility_api.jobs.record import Record, State
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.watched import Course
from visibility_api.reports.document import Point, Progress, Refused

from .bench import Bench


def shown(document: JobProgress) -> JobProgress:
    """All but who looked when."""
    return msgspec.structs.replace(document, observation=None)


def trained(job: TrainingJob = JOB) -> Bench:
    bench = Bench()
    bench.job(job)
    for step in (100, 150, 180):
        bench.report(step, metrics=(("loss", "0.5"),))
        bench.advance(10)
    return bench


def test_earlier_values_that_come_with_a_report_are_neither_held_nor_news() -> None:
    bench = trained()
    report = Progress(timestamp=bench.now, step=190, total_steps=1000)
    earlier = Point(timestamp=bench.now - timedelta(seconds=1), step=189, metrics=(("loss", "0.5"),))
    bench.observe(msgspec.structs.replace(report, points=(earlier,)))
    memory, published = bench.memory(), len(bench.published)
    assert memory.report is not None
    assert (memory.report.step, memory.report.points) == (190, ())
    bench.observe(report)
    bench.observe(msgspec.structs.replace(report, points=(earlier, earlier)))
    assert bench.memory() == memory
    assert len(bench.published) == published
    assert not any(report.points for report in memory.reports.values() if report)
    message = f'{{"timestamp":"{bench.now.isoformat()}","step":1000,"recent":{{"secondsBefore":[1]}}}}'
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, termination_message=message)))
    ended = bench.memory()
    assert ended.report is not None
    assert (ended.report.step, ended.report.points) == (1000, ())
    assert not any(report.points for report in ended.reports.values() if report)


def test_a_later_version_s_fields_are_ignored() -> None:
    memory = State(attempt="a/0/0", pace=Pace(position=3.0), report=Progress(step=3))
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(memory))
    for each in (stored, *(part for part in stored if isinstance(part, list) and part)):
        each.append({"sky": "blue"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=State) == memory


def test_it_does_not_change_while_a_job_reports_nothing_new() -> None:
    bench = trained()
    report = Progress(timestamp=bench.now, step=190)
    bench.observe(report)
    before = bench.memory()
    bench.advance(15)
    bench.observe(report)
    assert bench.memory() == before


def test_a_restarted_process_shows_what_the_first_one_would() -> None:
    bench = trained()
    bench.advance(600)
    other = bench.heir()
    for each in (bench, other):
        each.job(replace(JOB, labels={"seen": "again"}))
    assert shown(other.last) == shown(bench.last)


def test_a_restarted_process_knows_which_source_answered() -> None:
    bench = trained()
    bench.observe(Progress(timestamp=bench.now, step=190), source="logs")
    other = bench.heir()
    assert other.tracker.source_of(REF) == ""
    other.job(JOB)
    assert other.tracker.source_of(REF) == "logs"
    other.job(replace(JOB, rank0=replace(RANK0, restart_count=1)))
    assert other.tracker.source_of(REF) == ""


def test_why_the_last_probe_brought_nothing_is_said_before_the_next_one() -> None:
    bench = trained()
    bench.observe(Refused(reason="NoProgressFile", message="No progress file."))
    other = bench.heir()
    other.job(JOB)
    assert (other.observation.reason, other.observation.source) == ("NoProgressFile", "exec")
    other.report(200)
    assert other.observation.reason == ""


def test_a_log_that_was_rotated_away_shows_a_restarted_process_nothing_new_either() -> None:
    bench = Bench()
    bench.job(JOB)
    report = Progress(timestamp=bench.now, step=5)
    bench.observe(report, source="logs")
    bench.advance(600)
    bench.observe(report, source="logs")  # its reader remembers
    other = bench.heir()
    other.job(JOB)
    other.observe(Refused(reason="NoProgressInLog", message="…"), source="logs")
    assert [condition.reason for condition in other.last.conditions] == [
        condition.reason for condition in bench.last.conditions
    ]
    assert other.condition("Fresh") == ("False", "NoNewReport")


def test_a_state_with_less_than_no_values_is_not_read() -> None:
    """Whoever may write the data directory may make up what is remembered, but ends no evaluation."""
    assert msgspec.json.decode(b'["loss",0]', type=Course) == Course("loss")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'["loss",-1]', type=Course)


# --- as bytes


def stored(step: int = 1) -> bytes:
    bench = Bench()
    bench.job(JOB)
    bench.report(step)
    state = bench.tracker.state(REF)
    assert state is not None
    return state


def past() -> JobHistory:
    history = JobHistory()
    history.add("p1/0/0", Progress(timestamp=T0, step=1), continues=False, reported_at=T0, ahead_s=0.0)
    return history


@given(st.binary(max_size=300))
def test_any_bytes_are_a_state_or_nothing(state: bytes) -> None:
    record = Record(job=JOB, interval_s=15.0)
    before = [getattr(record, name) for name in State.__struct_fields__]
    if not take_state(record, state):
        assert [getattr(record, name) for name in State.__struct_fields__] == before
    assert restore(save(REF, state)) == state
    restore_points(state)


def test_of_another_format_nothing_is_read() -> None:
    saved = save(REF, stored())
    assert restore(saved) == stored()
    for form in (FORMAT + 1, FORMAT - 1):
        assert restore(replace(saved, format=form)) is None


@given(st.data())
def test_of_what_a_disk_has_damaged_nothing_is_read(data: st.DataObject) -> None:
    """It may still decode: to a pace of 1e300 steps, or an attempt of no pod."""
    for saved, read in ((save(REF, stored()), restore), (save_history(REF, past()), restore_history)):
        damaged = bytearray(saved.state)
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] ^= data.draw(st.integers(1, 255))
        assert read(replace(saved, state=bytes(damaged))) is None
        assert read(replace(saved, state=saved.state[:place])) is None


def test_what_a_history_has_gained_is_the_same_when_it_is_replayed() -> None:
    """On a follower, and from the data directory."""
    bench = trained()
    record = bench.tracker._records[REF]
    replayed = JobHistory()
    for each in restore_points(save_points(bench.points)):
        each.add_to(replayed)
    assert record.history is not None
    assert replayed.save() == record.history.save()
