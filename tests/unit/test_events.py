"""Which Events are written on TrainJobs, by whom, and that nothing is written twice."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobs import NOW, document
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.events import announcer as subject
from visibility_api.events.announcer import Announcer
from visibility_api.events.occurrences import occurrences
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Phase
from visibility_api.jobs.summary import Condition, JobProgress
from visibility_api.kube.errors import ApiError, Unreachable

FOLDER = "/apis/events.k8s.io/v1/namespaces/team-a/events"


def condition(
    type_: str,
    status: str = "True",
    *,
    reason: str = "Reason",
    message: str = "A sentence.",
    ago_s: float = 0,
) -> Condition:
    since = NOW - timedelta(seconds=ago_s)
    return Condition(type=type_, status=status, reason=reason, message=message, since=since)


def shown(
    *conditions: Condition, phase: Phase = Phase.RUNNING, name: str = "bert", **more: Any
) -> JobProgress:
    return document(name, phase=phase, conditions=conditions, **more)


STALLED, ADVANCES = (
    condition("Stalled", reason="NoAdvance"),
    condition("Stalled", "False", reason="Advancing"),
)


DIAGNOSIS = Diagnosis(at=NOW, reason="InDataLoader", message="Rank 1 waits.", hint="Check its data.")


def test_a_diagnosis_is_told_once() -> None:
    before, now = shown(STALLED), shown(STALLED, diagnosis=DIAGNOSIS)
    (told,) = occurrences(before, now)
    assert (told.reason, told.type, told.since) == ("TrainingDiagnosed", "Warning", NOW)
    assert told.note == "Rank 1 waits. Check its data."
    assert occurrences(now, shown(ADVANCES, diagnosis=DIAGNOSIS))[0].reason == "TrainingRecovered"
    assert [each.is_witnessed for each in occurrences(None, now)] == [False, False]


def test_a_diagnosis_of_a_run_that_advances_is_no_warning() -> None:
    requested = shown(ADVANCES, diagnosis=replace(DIAGNOSIS, is_requested=True))
    assert [each.type for each in occurrences(shown(ADVANCES), requested)] == ["Normal"]
    assert occurrences(shown(ADVANCES), shown(ADVANCES, diagnosis=DIAGNOSIS)) == []


class FakeCluster:
    """kube-apiserver's Events: names are unique."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.faults: list[Exception] = []  # of the next requests

    async def post(self, path: str, body: bytes) -> bytes:
        self._begin(f"POST {path}")
        event = json.loads(body)
        name = event["metadata"]["name"]
        if name in self.events:
            raise ApiError(409, "AlreadyExists")
        if not path.endswith("?dryRun=All"):
            self.events[name] = event
        return body

    def _begin(self, request: str) -> None:
        self.requests.append(request)
        if self.faults:
            raise self.faults.pop(0)


class Process:
    """A replica's announcer, its own time, and what it counted."""

    def __init__(self, cluster: FakeCluster, *, leads: bool = True, **options: Any) -> None:
        """`options`: of the announcer."""
        self.leads = leads
        self.counted: list[str] = []
        self.time = 0.0
        self.now: datetime = NOW
        self.announcer = Announcer(
            cluster,
            instance="visibility-api-1_abcd",
            may_write=lambda: self.leads,
            count=self.counted.append,
            now=lambda: self.now,
            clock=lambda: self.time,
            sleep=self.sleep,
            **options,
        )

    async def sleep(self, seconds: float) -> None:
        self.time += max(seconds, 0.001)
        await asyncio.sleep(0)

    async def settle(self) -> None:
        """Run until nothing waits, or forty times it has waited for its turn to lead."""
        running = asyncio.create_task(self.announcer.run())
        for _ in range(5000 if self.leads else 40):
            await asyncio.sleep(0)
            if not self.announcer.waiting:
                break
        else:
            assert not self.leads, "it does not settle"
        await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def process(cluster: FakeCluster) -> Process:
    return Process(cluster)


def reasons(cluster: FakeCluster) -> list[str]:
    return [event["reason"] for event in cluster.events.values()]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (shown(ADVANCES), shown(STALLED), ("Warning", "TrainingStalled")),
        (shown(STALLED), shown(ADVANCES), ("Normal", "TrainingRecovered")),
        (
            shown(condition("Diverged", "False")),
            shown(condition("Diverged")),
            ("Warning", "TrainingDiverged"),
        ),
        (
            shown(condition("Straggling", "False")),
            shown(condition("Straggling")),
            ("Warning", "TrainingStraggling"),
        ),
        (shown(), shown(condition("Plateaued")), ("Normal", "TrainingPlateaued")),
        (shown(), shown(condition("NoProgress")), ("Warning", "TrainingNoProgress")),
        (shown(condition("AtRisk", "False")), shown(condition("AtRisk")), ("Warning", "TrainingAtRisk")),
        (shown(), shown(condition("LowGoodput")), ("Warning", "TrainingLowGoodput")),
        (shown(), shown(condition("ShouldStop")), ("Normal", "TrainingShouldStop")),
        (shown(), shown(condition("Complete"), phase=Phase.SUCCEEDED), ("Normal", "TrainingFinished")),
        (shown(), shown(condition("Failed"), phase=Phase.FAILED), ("Warning", "TrainingFailed")),
        (
            shown(condition("Reporting", "Unknown", reason="NotYetProbed")),
            shown(condition("Reporting", "False", reason="ExecForbidden")),
            ("Warning", "ProbeRefused"),
        ),
    ],
)
def test_what_happens_to_a_run_is_an_event(
    before: JobProgress, now: JobProgress, expected: tuple[str, str]
) -> None:
    (found,) = occurrences(before, now)
    assert (found.type, found.reason) == expected
    assert occurrences(now, now) == []


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, shown(ADVANCES)),  # it has not recovered from anything
        (shown(condition("Stalled", "Unknown", reason="NotJudged")), shown(ADVANCES)),
        (shown(STALLED), shown(condition("Stalled", "False", reason="NotTraining"), phase=Phase.SUCCEEDED)),
        (shown(), shown(condition("Suspended"))),
        (shown(condition("Straggling")), shown(condition("Straggling", "False"))),
        (shown(), shown(condition("Reporting", "False", reason="ProbeTimeout"))),
        (shown(STALLED), shown(condition("Stalled", reason="NoAdvance", message="No advance for 9m."))),
    ],
)
def test_what_is_no_news_is_no_event(before: JobProgress | None, now: JobProgress) -> None:
    assert occurrences(before, now) == []


async def test_an_event_is_on_the_trainjob_and_says_what_happened(
    cluster: FakeCluster, process: Process
) -> None:
    process.announcer.changed(shown(ADVANCES))
    process.announcer.changed(shown(STALLED))
    await process.settle()
    ((name, event),) = cluster.events.items()
    assert name.startswith("bert.")
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "TrainingStalled", "A sentence.")
    assert event["regarding"] == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "namespace": "team-a",
        "name": "bert",
        "uid": "uid-of-team-a-bert",
    }
    assert event["eventTime"] == "2026-01-02T03:04:05.000000Z"
    assert process.counted == ["Created"]


async def test_evaluating_a_job_again_writes_nothing(cluster: FakeCluster, process: Process) -> None:
    process.announcer.changed(shown(ADVANCES))
    for age in range(100):
        process.announcer.changed(shown(condition("Stalled", message=f"No advance for {age}m.")))
    await process.settle()
    assert cluster.requests == [f"POST {FOLDER}"]


async def test_a_second_stall_is_an_event_of_its_own(cluster: FakeCluster, process: Process) -> None:
    for ago_s in (900, 600, 300):
        process.announcer.changed(shown(ADVANCES))
        process.announcer.changed(shown(condition("Stalled", ago_s=ago_s)))
        await process.settle()
    assert reasons(cluster).count("TrainingStalled") == 3


@pytest.mark.parametrize("read_ago_s", [100, 70, 130])  # from another report
async def test_a_restart_or_another_replica_repeats_nothing(
    cluster: FakeCluster, process: Process, read_ago_s: float
) -> None:
    process.announcer.changed(shown(ADVANCES))
    process.announcer.changed(shown(condition("Stalled", ago_s=100)))
    await process.settle()
    another = Process(cluster)
    another.announcer.changed(shown(condition("Stalled", ago_s=read_ago_s)))
    await another.settle()
    assert (another.counted, len(cluster.events)) == (["Known"], 1)


async def test_what_was_long_ago_when_a_process_starts_is_not_announced(
    cluster: FakeCluster, process: Process
) -> None:
    """The Event of then may have expired; of a thousand jobs each restart would write again."""
    for name in map(str, range(1000)):
        process.announcer.changed(
            shown(condition("Complete", ago_s=3600), phase=Phase.SUCCEEDED, name=f"job-{name}")
        )
        process.announcer.changed(
            shown(condition("Stalled", "Unknown", reason="NotJudged"), name=f"s-{name}")
        )
        process.announcer.changed(shown(condition("Stalled", ago_s=7200), name=f"s-{name}"))
    await process.settle()
    assert cluster.requests == []


async def test_a_long_pause_that_was_witnessed_is_announced_however_long_ago_it_began(
    cluster: FakeCluster, process: Process
) -> None:
    process.announcer.changed(shown(ADVANCES))
    process.announcer.changed(shown(condition("Stalled", ago_s=7200)))
    await process.settle()
    assert reasons(cluster) == ["TrainingStalled"]


async def test_only_the_replica_with_the_lease_writes_and_one_that_takes_over_goes_on(
    cluster: FakeCluster,
) -> None:
    follower = Process(cluster, leads=False)
    follower.announcer.changed(shown(ADVANCES))
    follower.announcer.changed(shown(STALLED))
    await follower.settle()
    assert cluster.requests == []
    follower.leads = True
    await follower.settle()
    assert reasons(cluster) == ["TrainingStalled"]


async def test_what_waited_too_long_for_a_leader_is_no_news_any_more(cluster: FakeCluster) -> None:
    follower = Process(cluster, leads=False)
    follower.announcer.changed(shown(ADVANCES))
    follower.announcer.changed(shown(STALLED))
    follower.time += subject.WAITS_AT_MOST_S + 1
    follower.leads = True
    await follower.settle()
    assert (cluster.requests, follower.counted) == ([], ["Late"])


async def test_what_waits_is_bounded(cluster: FakeCluster) -> None:
    follower = Process(cluster, leads=False)
    for number in range(subject.MAX_WAITING + 10):
        follower.announcer.changed(shown(condition("Diverged"), name=f"job-{number}"))
    assert follower.counted == ["Dropped"] * 10


async def test_events_of_one_namespace_delay_those_of_another_by_one_at_most(
    cluster: FakeCluster, process: Process
) -> None:
    for number in range(300):
        process.announcer.changed(shown(condition("Diverged"), name=f"job-{number}"))
    process.announcer.changed(shown(condition("Diverged"), name="bert", namespace="team-b"))
    await process.settle()
    written = [event["metadata"]["namespace"] for event in cluster.events.values()]
    assert (len(written), written.index("team-b")) == (301, 1)
    assert process.announcer.waiting == 0


async def test_one_job_that_flaps_is_limited_and_all_jobs_together_are(
    cluster: FakeCluster, process: Process
) -> None:
    for number in range(40):
        process.announcer.changed(shown(ADVANCES))
        process.announcer.changed(shown(condition("Stalled", ago_s=8000 - 100 * number)))
        await process.settle()
    assert process.counted.count("Limited") >= 40 - subject.PER_JOB_BURST
    before = process.time
    for number in range(200):
        process.announcer.changed(shown(condition("Diverged"), name=f"job-{number}"))
    await process.settle()
    assert process.time - before >= (200 - subject.EVENT_BURST) / subject.EVENTS_PER_S - 10


@pytest.mark.parametrize(
    "fault", [Unreachable("no"), ApiError(503), ApiError(429, retry_after_s=1), ApiError(409, "Conflict")]
)
async def test_it_tries_again_when_kube_apiserver_is_away_or_busy(
    cluster: FakeCluster, process: Process, fault: Exception
) -> None:
    cluster.faults = [fault] * 3
    process.announcer.changed(shown(condition("Diverged")))
    await process.settle()
    assert (reasons(cluster), process.counted) == (["TrainingDiverged"], ["Created"])


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (ApiError(403, "Forbidden"), "Forbidden"),
        (ApiError(404, "NotFound"), "Gone"),
        (ApiError(422, "Invalid"), "Refused"),
        (KeyError("a fault of ours"), "Refused"),
    ],
)
async def test_what_is_refused_is_not_tried_for_ever_and_stops_nothing_else(
    cluster: FakeCluster, process: Process, fault: Exception, outcome: str
) -> None:
    cluster.faults = [fault]
    process.announcer.changed(shown(condition("Diverged")))
    process.announcer.changed(shown(condition("Diverged"), name="another"))
    await process.settle()
    assert (process.counted, len(cluster.events)) == ([outcome, "Created"], 1)


def test_the_text_of_an_event_is_harmless_and_short() -> None:
    hostile = "\x1b]0;owned\x07\u202e" + "\N{SNOWMAN}" * 5000
    (found,) = occurrences(None, shown(condition("Failed", message=hostile), phase=Phase.FAILED))
    assert found.note.isprintable()
    assert len(found.note.encode()) < 1024
    (empty,) = occurrences(None, shown(condition("Failed", message=""), phase=Phase.FAILED))
    assert empty.note == "Failed."


@pytest.mark.parametrize("name", ["a", "a" * 253, f"{'a' * 199}.b", f"{'a' * 199}-b"])
def test_the_name_of_an_event_is_one_that_kubernetes_takes(name: str) -> None:
    (found,) = occurrences(None, shown(condition("Diverged"), name=name))
    assert len(found.event_name) <= 253
    assert all(label.strip("-") == label != "" for label in found.event_name.split("."))


def test_the_end_of_a_run_is_described_in_numbers() -> None:
    ended = shown(condition("Complete"), phase=Phase.SUCCEEDED, step=60, total_steps=60, ran_s=33)
    assert occurrences(None, ended)[0].note == "The run has finished after 33 s at step 60 of 60."


def test_the_event_of_a_failure_says_what_failed_first() -> None:
    message = "node-3: container node of pod bert-node-0-3-x ended with exit code 1."
    of_pod = Failure(at=NOW, replica="node-3", message=message)
    of_job = Failure(at=NOW, message="The job failed: it is over.", is_of_job=True)
    for says, failure, note in (
        ("jobset failed.", of_pod, f"jobset failed. {message}"),
        ("jobset failed", of_pod, f"jobset failed. {message}"),  # as JobSet ends it
        ("", of_pod, message),
        ("jobset failed", of_job, "jobset failed"),
        ("jobset failed.", None, "jobset failed."),
    ):
        failed = shown(condition("Failed", message=says), phase=Phase.FAILED, failure=failure)
        assert occurrences(None, failed)[0].note == note


async def test_what_is_tried_again_costs_its_job_one_event_of_its_allowance(cluster: FakeCluster) -> None:
    process = Process(cluster)
    cluster.faults += [Unreachable("no")] * (int(subject.PER_JOB_BURST) + 2)
    process.announcer.changed(shown(ADVANCES))
    process.announcer.changed(shown(STALLED))
    await process.settle()
    assert process.counted == ["Created"]
