"""What is remembered of a job by one process lets another one judge it alike."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import JOB, KILLED, RANK0, REF
from visibility_api.jobs.estimate import Pace
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.jobs.memory import Memory
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.jobs.watched import Course
from visibility_api.reports.document import Point, Progress, Refused

from .test_jobs_tracker import Bench

FORMS = [msgspec.json, msgspec.msgpack]


def memory_of(bench: Bench) -> Memory:
    memory = bench.tracker.remembered(REF)
    assert memory is not None
    return memory


def heir(bench: Bench, *, knows: bool = True) -> Bench:
    """Another process, which starts now; it `knows` what the first one remembers."""
    known = {REF: msgspec.json.decode(msgspec.json.encode(memory_of(bench)), type=Memory)} if knows else {}
    other = Bench()
    other.now = bench.now
    other.tracker = Tracker(
        publish=other.published.append,
        retract=other.retracted.append,
        now=lambda: other.now,
        interval_s=15.0,
        recall=known.get,
    )
    return other


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


@pytest.mark.parametrize("form", FORMS)
def test_it_can_be_stored(form: ModuleType) -> None:
    bench = trained(replace(JOB, rank0=replace(RANK0, last_termination=KILLED)))
    bench.observe(Progress(step=181, metrics=(("lr", "0.1"),)), source="logs")
    memory = memory_of(bench)
    assert form.decode(form.encode(memory), type=Memory) == memory


def test_earlier_values_that_come_with_a_report_are_neither_held_nor_news() -> None:
    bench = trained()
    report = Progress(timestamp=bench.now, step=190, total_steps=1000)
    earlier = Point(timestamp=bench.now - timedelta(seconds=1), step=189, metrics=(("loss", "0.5"),))
    bench.observe(msgspec.structs.replace(report, points=(earlier,)))
    memory, published = memory_of(bench), len(bench.published)
    assert memory.report is not None
    assert (memory.report.step, memory.report.points) == (190, ())
    bench.observe(report)
    bench.observe(msgspec.structs.replace(report, points=(earlier, earlier)))
    assert memory_of(bench) == memory
    assert len(bench.published) == published
    assert not any(report.points for report in memory.reports.values() if report)
    message = f'{{"timestamp":"{bench.now.isoformat()}","step":1000,"recent":{{"secondsBefore":[1]}}}}'
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, termination_message=message)))
    ended = memory_of(bench)
    assert ended.report is not None
    assert (ended.report.step, ended.report.points) == (1000, ())
    assert not any(report.points for report in ended.reports.values() if report)


def test_a_memory_of_nothing_is_small() -> None:
    assert len(msgspec.msgpack.encode(Memory())) < 100


def test_a_later_version_s_fields_are_ignored() -> None:
    memory = Memory(attempt="a/0/0", pace=Pace(position=3.0), report=Progress(step=3))
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(memory))
    for each in (stored, *(part for part in stored if isinstance(part, list) and part)):
        each.append({"sky": "blue"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=Memory) == memory


def test_an_earlier_version_s_states_lack_the_last_fields() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(["a/0/0", "exec"]), type=Memory) == Memory(
        attempt="a/0/0", source="exec"
    )


def test_it_does_not_change_while_a_job_reports_nothing_new() -> None:
    bench = trained()
    report = Progress(timestamp=bench.now, step=190)
    bench.observe(report)
    before = memory_of(bench)
    bench.advance(15)
    bench.observe(report)
    assert memory_of(bench) == before


def test_a_restarted_process_shows_what_the_first_one_would() -> None:
    bench = trained()
    bench.advance(600)
    other = heir(bench)
    for each in (bench, other):
        each.job(replace(JOB, labels={"seen": "again"}))
    assert shown(other.last) == shown(bench.last)


def test_a_restarted_process_knows_which_source_answered() -> None:
    bench = trained()
    bench.observe(Progress(timestamp=bench.now, step=190), source="logs")
    other = heir(bench)
    assert other.tracker.source_of(REF) == ""
    other.job(JOB)
    assert other.tracker.source_of(REF) == "logs"
    other.job(replace(JOB, rank0=replace(RANK0, restart_count=1)))
    assert other.tracker.source_of(REF) == ""


def test_an_ended_job_whose_pod_is_gone_keeps_its_document() -> None:
    bench = trained()
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, last_termination=KILLED)))
    ended = replace(JOB, phase=Phase.FAILED, reason="FailedJobs", rank0=None)
    bench.job(ended)
    other = heir(bench)
    other.job(ended)
    assert shown(other.last) == shown(bench.last)
    assert other.last.job.rank0 is not None
    assert other.last.job.rank0.last_termination == KILLED


def test_reports_go_on_where_they_were() -> None:
    bench = trained()
    other = heir(bench)
    other.job(JOB)
    other.report(190)
    bench.report(190)
    assert other.last.steps_per_s is not None
    assert shown(other.last) == shown(bench.last)


def test_what_a_replica_has_read_before_its_peer_answers_is_kept() -> None:
    bench = trained()
    other = heir(bench, knows=False)
    other.job(JOB)
    other.report(190)
    assert other.last.steps_per_s is None
    other.tracker.recalled(REF, memory_of(bench))
    assert other.last.step == 190
    bench.report(190)
    assert shown(other.last) == shown(bench.last)


def test_what_a_peer_has_of_a_later_report_is_taken() -> None:
    bench = trained()
    other = heir(bench, knows=False)
    other.job(JOB)
    other.report(190)
    bench.advance(5)
    bench.report(200)
    other.advance(5)
    other.tracker.recalled(REF, memory_of(bench))
    assert shown(other.last) == shown(bench.last)


def test_what_a_peer_remembers_of_an_earlier_attempt_is_left_alone() -> None:
    bench = trained()
    again = replace(RANK0, restart_count=1)
    other = heir(bench, knows=False)
    other.job(replace(JOB, rank0=again))
    other.report(1, attempt=again.attempt)
    before = other.last
    other.tracker.recalled(REF, memory_of(bench))
    assert other.last == before


def test_what_a_peer_remembers_of_the_present_attempt_takes_the_place_of_one_that_is_over() -> None:
    """Its only report came while the watch of this replica was behind."""
    again = replace(RANK0, restart_count=1)
    bench, other = trained(), trained()
    bench.job(replace(JOB, rank0=again))
    bench.report(7, attempt=again.attempt)
    other.tracker.recalled(REF, memory_of(bench))
    assert (other.last.step, other.last.attempts) == (180, 2)
    other.job(replace(JOB, rank0=again))
    other.tracker.recalled(REF, memory_of(bench))
    assert shown(other.last) == shown(bench.last)


def test_of_two_pods_that_may_hold_rank_0_the_later_report_of_a_peer_is_taken() -> None:
    """As under MPI, where the launcher reports or the first node."""
    node = replace(RANK0, pod_uid="p2")
    bench, other = Bench(), Bench()
    for each in (bench, other):
        each.job(replace(JOB, alternates=(node,)))
    other.report(10)
    bench.now += timedelta(seconds=30)
    other.now = bench.now
    bench.report(900, attempt=node.attempt)
    other.tracker.recalled(REF, memory_of(bench))
    assert other.last.step == 900


def test_a_job_that_is_not_there_is_neither_remembered_nor_recalled() -> None:
    bench = trained()
    gone = JobRef(resource="trainjobs", namespace="team-a", name="bert", uid="u2")
    assert bench.tracker.remembered(gone) is None
    bench.tracker.recalled(gone, memory_of(bench))
    assert {each.job.ref for each in bench.published} == {REF}


def test_a_node_whose_clock_is_behind_is_still_known_after_a_restart() -> None:
    bench = Bench()
    bench.job(JOB)
    for step in range(3):
        bench.observe(Progress(timestamp=bench.now - timedelta(hours=1), step=step))
        bench.advance(15)
    other = heir(bench)
    for each in (bench, other):
        each.job(replace(JOB, labels={"seen": "again"}))
    assert other.condition("Fresh") == ("True", "RecentReport")
    assert shown(other.last) == shown(bench.last)


def test_why_the_last_probe_brought_nothing_is_said_before_the_next_one() -> None:
    bench = trained()
    bench.observe(Refused(reason="NoProgressFile", message="No progress file."))
    other = heir(bench)
    other.job(JOB)
    assert other.last.observation is not None
    assert (other.last.observation.reason, other.last.observation.source) == ("NoProgressFile", "exec")
    other.report(200)
    assert other.last.observation.reason == ""


def test_a_log_that_was_rotated_away_shows_a_restarted_process_nothing_new_either() -> None:
    bench = Bench()
    bench.job(JOB)
    report = Progress(timestamp=bench.now, step=5)
    bench.observe(report, source="logs")
    bench.advance(600)
    bench.observe(report, source="logs")  # its reader remembers
    other = heir(bench)
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
