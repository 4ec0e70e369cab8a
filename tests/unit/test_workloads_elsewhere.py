"""Jobs that another cluster runs, as its documents are read here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import JOB, NOW
from tests.workload_objects import FoundParts
from visibility_api.diagnosis.result import MAX_GROUPS, MAX_SUSPECTS, Diagnosis, Group, Suspect
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Phase
from visibility_api.kinds.trainjob import TrainJob, TrainJobKind
from visibility_api.kube.client import KubeClient
from visibility_api.kubeapi.v1alpha1 import status_of
from visibility_api.reports.document import Progress
from visibility_api.reports.fields import MAX_METRICS
from visibility_api.workloads import elsewhere
from visibility_api.workloads.description import MAX_MESSAGE_CHARACTERS, describe_job
from visibility_api.workloads.elsewhere import ShownJob, Upstreams, read

from .bench import Bench

TIME = "2026-11-26T12:00:00Z"
FAILURE = Failure(
    at=NOW,
    replica="node-3",
    pod_name="bert-node-0-3-x",
    node_name="gpu-7",
    container_name="node",
    exit_code=137,
    signal=9,
    reason="OOMKilled",
    message="node-3: container node of pod bert-node-0-3-x on node gpu-7 was killed (exit code 137).",
    is_retryable=False,
    cause_class="HostOutOfMemory",
    cause="The container used more memory than its limit.",
    hint="Raise the limit.",
    rank=3,
)
DIAGNOSIS = Diagnosis(
    at=NOW,
    reason="InDataLoader",
    message="Rank 2 (gpu-7) is in the data loader for 4 s; 2 ranks wait for it in all_reduce.",
    hint="Look at its storage.",
    groups=(Group(count=2, ranks="0-1", where="is in all_reduce"),),
    suspects=(Suspect(pod_name="bert-node-0-2-x", reason="InDataLoader", rank=2, node_name="gpu-7", step=6),),
    read=3,
    others=1,
    unread=2,
    is_requested=True,
)
BERT = JobRef(resource="trainjobs", namespace="team", name="bert", uid="u")


def shown(status: dict[str, Any], *, created: str = TIME) -> ShownJob:
    document = {
        "metadata": {"name": "trainjobs.bert", "namespace": "team", "creationTimestamp": created},
        "jobRef": {"kind": "TrainJob", "resource": "trainjobs", "name": "bert", "uid": "u"},
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=ShownJob)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, None),
        ({"phase": "Running", "lastUpdatedTime": "yesterday"}, None),
        (
            {"phase": "Running", "lastUpdatedTime": TIME, "steps": {"current": 5, "total": 10}},
            ("running", 5, 10, None, ()),
        ),
        (
            {
                "phase": "Succeeded",
                "lastUpdatedTime": TIME,
                "progressPercentage": 10**30,
                "metrics": [{"name": "loss", "value": "0.5"}],
                "message": "a\u202eb",
            },
            ("completed", None, None, 100, (("loss", "0.5"),)),
        ),
        (
            {"phase": "Failed", "lastUpdatedTime": TIME, "steps": {"current": -3, "total": 2**70}},
            ("failed", None, None, None, ()),
        ),
        (
            {"phase": "odd", "lastUpdatedTime": TIME, "epochs": {"current": 1.5}},
            ("running", None, None, None, ()),
        ),
    ],
)
def test_a_document_of_another_cluster_is_read_within_the_limits_of_a_report(
    status: dict[str, Any], expected: tuple[Any, ...] | None
) -> None:
    report = read(shown(status)).report
    found = report and (
        report.state,
        report.step,
        report.total_steps,
        report.progress_percentage,
        report.metrics,
    )
    assert found == expected
    assert report is None or report.message in (None, "a\ufffdb")


def test_a_document_of_another_cluster_has_no_more_metrics_than_a_report() -> None:
    metrics = [{"name": f"m{number}", "value": "1"} for number in range(3 * MAX_METRICS)]
    report = read(shown({"phase": "Running", "lastUpdatedTime": TIME, "metrics": metrics})).report
    assert report is not None
    assert len(report.metrics) == MAX_METRICS


@pytest.mark.parametrize("failure", [FAILURE, replace(FAILURE, cause_class="", cause="", hint="")])
def test_the_cause_and_the_diagnosis_that_the_worker_shows_are_shown_in_the_same_words(
    failure: Failure,
) -> None:
    """Both servers as they are: what one encodes the other reads, joins with its own job, and shows."""
    report = Progress(timestamp=NOW, step=14, total_steps=60, metrics=(("loss", "1.5"),))
    worker = Bench(now=NOW)
    worker.job(replace(JOB, failure=failure, diagnosis=DIAGNOSIS))
    worker.observe(report)
    said = msgspec.json.decode(msgspec.json.encode(status_of(worker.last)))
    seen = replace(read(shown(said)), cluster="west")

    own = {"metadata": {"name": "bert", "namespace": "team", "uid": "u"}}
    own["spec"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
    there = msgspec.convert(own, TrainJob)
    here = msgspec.convert({**own, "spec": {}}, TrainJob)
    manager = Bench(now=NOW)
    manager.job(describe_job(TrainJobKind(), there, FoundParts([]), {}, seen), status=seen.report)
    status = msgspec.json.decode(msgspec.json.encode(status_of(manager.last)))
    assert status["failure"] == said["failure"]
    assert "It had reported step 14 of 60" in status["failure"]["message"]
    assert status["diagnosis"] == said["diagnosis"]
    # Another cluster says nothing of a job that runs here.
    described = describe_job(TrainJobKind(), here, FoundParts([]), {}, seen)
    assert (described.failure, described.diagnosis, described.cluster) == (None, None, "")


def test_why_a_job_does_not_report_is_said_by_the_cluster_that_runs_it() -> None:
    why = {"type": "Reporting", "status": "False", "reason": "NoProgressFile", "message": "Instrument it."}
    seen = read(shown({"phase": "Running", "conditions": [{"type": "Fresh", "status": "False"}, why]}))
    bench = Bench()
    bench.job(replace(JOB, rank0=None, runs_elsewhere=True, cluster="west", unreported=seen.unreported))
    found = bench.shown("Reporting")
    assert (found.reason, found.message) == ("NoProgressFile", "In cluster west: Instrument it.")
    reports = read(shown({"phase": "Running", "conditions": [{**why, "status": "True"}]}))
    assert reports.unreported is None


def test_a_report_that_is_old_as_its_cluster_is_not_read_says_so() -> None:
    bench = Bench()
    why = "Last seen in cluster west, whose certificate is not accepted (certificate has expired)."
    job = replace(JOB, rank0=None, runs_elsewhere=True, cluster="west", message="Seen in cluster west.")
    report = Progress(timestamp=bench.now, step=14)
    bench.job(job, status=report)
    bench.now += timedelta(minutes=30)
    bench.job(replace(job, message=why), status=report)
    found = bench.shown("Fresh")
    assert (found.status, found.reason) == ("False", "NoNewReport")
    assert found.message.endswith(f"before this was evaluated. {why}")


@pytest.mark.parametrize("number", [-1, 2**40, 10**300, 1e308, 0.5])
def test_a_hostile_cause_or_diagnosis_is_cut_to_the_limits_of_our_own(number: float) -> None:
    text = "x\u202e" * 150
    failure = dict.fromkeys(("replica", "podName", "reason", "message", "class", "cause", "hint"), text)
    numbers = dict.fromkeys(("exitCode", "signal", "rank"), number)
    group = {"count": number, "ranks": text, "where": text}
    suspect = {"podName": text, "reason": text, "rank": number, "step": number}
    counts = dict.fromkeys(("ranksRead", "podsUnread", "otherRanks"), number)
    found = read(
        shown(
            {
                "failure": {"time": TIME, **failure, **numbers},
                "diagnosis": {
                    "time": TIME,
                    "reason": text,
                    "message": text,
                    "hint": text,
                    **counts,
                    "groups": [group, {**group, "count": 1}] * 6,
                    "suspects": [suspect] * 10,
                },
                "conditions": [{"type": "Reporting", "status": "False", "reason": text, "message": text}],
            }
        )
    )
    assert found.failure is not None
    assert found.diagnosis is not None
    assert (found.failure.exit_code, found.failure.signal, found.failure.rank) == (None, None, None)
    assert (len(found.diagnosis.groups), len(found.diagnosis.suspects)) == (MAX_GROUPS // 2, MAX_SUSPECTS)
    kept = msgspec.json.encode(found)
    assert len(kept) < 64 * 1024
    assert "\u202e".encode() not in kept
    listed = {"metrics": [{}] * 20_000, "conditions": [{}] * 20_000, "diagnosis": {"x": "y" * 50_000}}
    assert read(shown({"lastUpdatedTime": TIME, **listed})).report == Progress(
        timestamp=datetime(2026, 11, 26, 12, tzinfo=UTC), state="running"
    )
    undated = read(shown({"failure": failure, "diagnosis": {"time": "0001-01-01T00:00:00Z"}}))
    assert (undated.failure, undated.diagnosis) == (None, None)


async def _of(*jobs: ShownJob) -> AsyncIterator[ShownJob]:
    for job in jobs:
        yield job


def test_the_newest_job_of_that_name_counts_and_a_cluster_that_is_down_is_named() -> None:
    changed = list[tuple[str, tuple[str, str]]]()
    client = KubeClient.__new__(KubeClient)  # nothing is sent
    upstreams = Upstreams({"west": client, "east": client}, lambda *id_: changed.append(id_))
    bert = "trainjobs", ("team", "bert")

    def message() -> str:
        found = upstreams.find(BERT)
        return "" if found is None else found.decision.message

    async def run() -> None:
        await upstreams._list("west", _of(shown({"phase": "Running", "phaseMessage": "It runs."})))
        assert message() == "It runs. Seen in cluster west."
        later = shown({"phase": "Pending"}, created="2026-11-26T13:00:00Z")
        await upstreams._list("east", _of(later))
        assert message() == "Seen in cluster east."
        upstreams._down = {"east": "which does not answer"}
        assert message() == "Last seen in cluster east, which does not answer."
        upstreams._change("east", "DELETED", later)
        assert message() == "It runs. Seen in cluster west."
        await upstreams._list("west", _of())
        assert upstreams.find(BERT) is None

    asyncio.run(run())
    assert changed == [bert] * 4
    assert read(shown({"phase": "Running"})).decision.phase == Phase.RUNNING


@pytest.mark.parametrize(
    ("message", "cluster", "listed", "expected"),
    [
        ("It runs. Seen in cluster west.", "west", [], "It runs. Seen in cluster west."),
        ("Last seen in cluster west, which does not answer.", "west", [], "Seen in cluster west."),
        ("It runs. Last seen in cluster west, whose x (y z).", "west", [], "It runs. Seen in cluster west."),
        ("Seen in cluster west.", "west", ["east"], "Seen in cluster west."),
        ("Seen in cluster west.", "west", ["west"], None),
        ("Seen in cluster north.", "north", [], None),  # it is followed no longer
        ("kueue has not reported a running pod.", "", [], None),
    ],
)
async def test_what_an_earlier_owner_has_shown_stays_until_its_cluster_is_listed(
    message: str, cluster: str, listed: list[str], expected: str | None
) -> None:
    changed = list[tuple[str, tuple[str, str]]]()
    client = KubeClient.__new__(KubeClient)
    known = replace(JOB, ref=BERT, phase=Phase.RUNNING, message=message, cluster=cluster)
    upstreams = Upstreams(
        {"west": client, "east": client}, lambda *id_: changed.append(id_), {BERT: known}.get
    )
    upstreams.find(BERT)
    for name in listed:
        await upstreams._list(name, _of())
    assert changed == ([("trainjobs", ("team", "bert"))] if listed == ["west"] else [])
    found = upstreams.find(BERT)
    assert (found and (found.decision.phase, found.decision.message)) == (
        expected and (Phase.RUNNING, expected)
    )
    assert upstreams.find(replace(BERT, uid="of its successor")) is None


async def test_many_jobs_of_a_cluster_that_has_lost_them_hold_up_nothing_else() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    upstreams = Upstreams({"west": KubeClient.__new__(KubeClient)}, lambda *_id: time.sleep(0.001))
    upstreams._shown["west"] = {("trainjobs", ("team", f"j{n}")): read(shown({})) for n in range(200)}
    task = asyncio.create_task(others())
    await upstreams._list("west", _of())
    task.cancel()
    assert turns > 5


def test_a_hostile_cluster_neither_hides_where_a_job_runs_nor_gives_times_that_cannot_be_used() -> None:
    said = {"phase": "Failed", "phaseMessage": "x" * 5000, "endTime": "9999-12-31T23:59:59-14:00"}
    upstreams = Upstreams({"west": KubeClient.__new__(KubeClient)}, lambda *_id: None)
    upstreams._change("west", "ADDED", shown(said, created="0001-01-01T00:00:00"))
    found = upstreams.find(BERT)
    assert found is not None
    assert found.decision.message[:MAX_MESSAGE_CHARACTERS].endswith("x Seen in cluster west.")
    assert found.decision.since is None
    kept = read(shown({"phaseReason": "y" * 10**6, "phaseMessage": "x" * 10**6})).decision
    assert len(kept.reason) + len(kept.message) < 2 * MAX_MESSAGE_CHARACTERS
    utc = read(shown({"phase": "Failed", "endTime": "2026-11-26T12:00:00"})).decision.since
    assert utc is not None
    assert utc.tzinfo is not None
    upstreams._watches["west"].health.last_error = "HTTP 403: no\n[-]ping failed"
    assert upstreams.faults == ["west: HTTP 403: no [-]ping failed"]


def test_jobs_of_a_hostile_cluster_take_a_bounded_number_of_bytes_and_have_names_that_a_job_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = [{"name": f"m{number}", "value": "1" * 64} for number in range(MAX_METRICS)]
    monkeypatch.setattr(elsewhere, "MAX_BYTES", 50_000)
    upstreams = Upstreams({"west": KubeClient.__new__(KubeClient)}, lambda *_id: None)
    for number in (1, 2, 3, 1, 2, 3, 4):
        made = shown({"lastUpdatedTime": TIME, "metrics": metrics})
        named = msgspec.structs.replace(made.job_ref, name=f"j{number}")
        upstreams._change("west", "MODIFIED", msgspec.structs.replace(made, job_ref=named))
    assert [name for _, (_, name) in upstreams._shown["west"]] == ["j1", "j2"]
    assert upstreams.faults == ["west: only 2 of its jobs are read"]
    for each in list(upstreams._shown["west"]):
        gone = msgspec.structs.replace(made, job_ref=msgspec.structs.replace(made.job_ref, name=each[1][1]))
        upstreams._change("west", "DELETED", gone)
    assert upstreams._bytes["west"] == 0
    long = msgspec.structs.replace(made, job_ref=msgspec.structs.replace(made.job_ref, name="j" * 300))
    upstreams._change("west", "ADDED", long)
    assert not upstreams._shown["west"]


def test_of_a_cluster_a_bounded_number_of_jobs_is_kept_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elsewhere, "MAX_JOBS", 1)
    upstreams = Upstreams({"west": KubeClient.__new__(KubeClient)}, lambda *_id: None)
    first = shown({"phase": "Running"})
    other = msgspec.structs.replace(first, job_ref=msgspec.structs.replace(first.job_ref, name="gpt"))
    for job in (first, other, shown({"phase": "Failed"})):
        upstreams._change("west", "MODIFIED", job)
    assert {id_: each.decision.phase for id_, each in upstreams._shown["west"].items()} == {
        first.id: Phase.FAILED
    }
    assert upstreams.faults == ["west: only 1 of its jobs are read"]
