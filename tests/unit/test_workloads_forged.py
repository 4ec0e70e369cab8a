"""Pods, Jobs and JobSets that claim to be a job's: what their creators may write is no proof."""

from __future__ import annotations

import time
import timeit
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from tests.workload_objects import (
    TORCH,
    FoundParts,
    all_pods,
    batch_job,
    condition,
    described,
    jobset,
    pod,
    reference,
    trainjob,
)
from visibility_api.jobs.job import TrainingJob
from visibility_api.kinds.jobset import JobSetKind
from visibility_api.kinds.replicated_jobs import MAX_INITIALIZERS, JobSet
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.kind import WatchedObjects
from visibility_api.workloads.objects import AnyObject, BatchJob, Meta, OwnerReference, PartMeta, Pod
from visibility_api.workloads.rank0 import CLOCK_TOLERANCE, COMPLETION_INDEX, is_generated, pod_prefix

JOB = "bert-node-0"
UID = f"uid of {JOB}"
FORGED = "forged"
LATER = "2026-01-23T10:02:00Z"  # than the real pod's


def chosen(job: TrainingJob) -> str | None:
    return job.rank0.pod_uid if job.rank0 is not None else None


def forged_pod(**changes: Any) -> Pod:
    return pod(uid=FORGED, **({"created": LATER} | changes))


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(forged_pod(owner=reference("Job", JOB, "0" * 36)), id="a uid of zeros"),
        pytest.param(forged_pod(owner=reference("Job", JOB, "")), id="no uid"),
        pytest.param(forged_pod(owner=reference("Job", "bert-node-1", "other")), id="another Job"),
        pytest.param(forged_pod(owner=reference("ReplicaSet", JOB, "other")), id="another kind"),
        pytest.param(forged_pod(owner=reference("Job", JOB, "js1")), id="the JobSet's uid"),
        pytest.param(forged_pod(owner=reference("Job", JOB, "t1")), id="the TrainJob's uid"),
        pytest.param(
            forged_pod(owner=reference("Job", JOB, UID, blocks=False)), id="a reference that blocks nothing"
        ),
        pytest.param(
            forged_pod(owner=reference("Job", JOB, UID) | {"controller": False}), id="an owner only"
        ),
        pytest.param(forged_pod(name="rank-zero"), id="a name of its own"),
        pytest.param(forged_pod(name="bert-node-0-1-abcde"), id="the name of another index"),
        pytest.param(forged_pod(name="bert-node-0-0-a-b"), id="a name that no suffix makes"),
    ],
)
def test_a_pod_whose_chain_of_uids_does_not_end_at_the_job_is_not_rank_0_even_alone(forged: Pod) -> None:
    assert chosen(described(trainjob(), TORCH, [forged])) is None
    beside = described(trainjob(), TORCH, [forged, pod()])
    assert (chosen(beside), beside.hints.faults) == ("p1", ())


@pytest.mark.parametrize(
    "links",
    [
        pytest.param((TORCH, batch_job(jobset_uid="another")), id="the Job is of another JobSet"),
        pytest.param((TORCH, batch_job(uid="made again")), id="the Job was made again"),
        pytest.param(
            (TORCH, batch_job(owner=reference("JobSet", "bert", "js1", blocks=False))),
            id="the Job's reference blocks nothing",
        ),
        pytest.param(
            (jobset(("node", "trainer"), owner="another"), batch_job()), id="the JobSet is another's"
        ),
    ],
)
def test_every_link_is_checked_against_the_live_object(links: tuple[JobSet, BatchJob]) -> None:
    js, job = links
    assert chosen(described(trainjob(), js, [pod()], [job])) is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_second_pod_of_index_0_is_not_read_and_is_named(order: int) -> None:
    job = described(trainjob(), TORCH, [pod(), forged_pod()][::order])
    assert chosen(job) == "p1"
    (fault,) = job.hints.faults
    assert fault == (
        "Pod bert-node-0-0-forged claims to be rank 0 as well and is not read. "
        "The Job controller makes no such pod: find out who created it (docs/security.md)."
    )


def test_many_more_pods_of_index_0_are_counted_not_listed() -> None:
    job = described(trainjob(), TORCH, [pod(), *(pod(uid=f"f{n}", created=LATER) for n in range(5))])
    (fault,) = job.hints.faults
    assert fault.startswith("Pod bert-node-0-0-f0 and 4 more claims")


def test_the_real_pod_keeps_its_place_when_it_has_succeeded() -> None:
    job = described(trainjob(), TORCH, [pod(phase="Succeeded"), forged_pod()])
    assert chosen(job) == "p1"


@pytest.mark.parametrize("type_", ["Failed", "Complete"])
@pytest.mark.parametrize(("after", "expected"), [(timedelta(), FORGED), (CLOCK_TOLERANCE * 2, "p1")])
def test_a_pod_made_after_the_jobs_end_is_not_the_jobs(type_: str, after: timedelta, expected: str) -> None:
    end = "2026-01-23T10:00:00+00:00"
    ended = trainjob(status={"conditions": [condition(type_)]})
    created = (datetime.fromisoformat(end) + after).isoformat()
    real = pod(created="2026-01-23T09:00:00Z", phase="Failed")
    assert chosen(described(ended, TORCH, [real, forged_pod(created=created)])) == expected


def test_labels_and_annotations_of_a_pod_have_no_say() -> None:
    labels = {"jobset.sigs.k8s.io/restart-attempt": "9", "jobset.sigs.k8s.io/jobset-name": "other"}
    fields = msgspec.to_builtins(pod())
    fields["metadata"]["labels"] = labels
    labelled = msgspec.convert(fields, Pod)
    assert labelled.metadata.label("jobset.sigs.k8s.io/restart-attempt") == "9"
    job = described(trainjob(), TORCH, [labelled])
    assert job.rank0 is not None
    assert (job.rank0.pod_uid, job.rank0.restart_attempt) == ("p1", 0)


@given(
    st.lists(
        st.builds(
            forged_pod,
            created=st.sampled_from([LATER, "2026-01-23T10:59:00Z"]),
            deleting=st.booleans(),
            phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
            owner=st.builds(
                reference,
                st.sampled_from(["Job", "JobSet", "Pod"]),
                st.sampled_from([JOB, "bert", ""]),
                st.sampled_from([UID, "js1", "t1", ""]),
                blocks=st.booleans(),
            ),
        ),
        max_size=5,
    )
)
def test_whatever_younger_pods_say_the_standing_one_is_read(forged: list[Pod]) -> None:
    assert chosen(described(trainjob(), TORCH, [*forged, pod()])) == "p1"


@pytest.mark.parametrize(
    ("job", "prefix"),
    [
        ("bert-node-0", "bert-node-0-0-"),
        ("j" * 63, "j" * 55 + "-0-"),  # as kube-apiserver, which leaves room for five characters
    ],
)
def test_a_generated_name_is_recognised_also_where_it_was_cut(job: str, prefix: str) -> None:
    assert pod_prefix(job, 0) == prefix
    assert is_generated(prefix + "x7kq2", prefix)
    assert not is_generated(prefix + "x7-q2", prefix)


DATA = "bert-dataset-initializer-0"
WITH_DATA = jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer"))


def initializer(**changes: Any) -> Pod:
    given = {"container": "dataset-initializer", "uid": FORGED, "created": LATER} | changes
    return pod("dataset-initializer", **given)


@pytest.mark.parametrize(
    ("forged", "jobs"),
    [
        pytest.param(initializer(owner=reference("Job", DATA, "0" * 36)), None, id="a uid of zeros"),
        pytest.param(initializer(owner=reference("Job", DATA, UID)), None, id="another Job of the job"),
        pytest.param(initializer(owner=reference("Job", DATA, "t1")), None, id="the TrainJob's uid"),
        pytest.param(initializer(name="somebodys"), None, id="a name of its own"),
        pytest.param(
            initializer(owner=reference("Job", DATA, f"uid of {DATA}", blocks=False)),
            None,
            id="blocks nothing",
        ),
        pytest.param(
            initializer(),
            [batch_job("dataset-initializer", jobset_uid="another")],
            id="a Job of another JobSet",
        ),
    ],
)
def test_the_log_of_a_pod_whose_chain_does_not_end_at_the_job_is_not_read(
    forged: Pod, jobs: list[BatchJob] | None
) -> None:
    said = {f"{FORGED}/0": "Fetching 12 files 41 % (5/12)"}
    seen = described(trainjob(), WITH_DATA, [forged], jobs, said=said)
    assert seen.initializers == ()
    assert "Fetching" not in seen.message
    if jobs is None:
        real = initializer(uid="d1", created="2026-01-23T10:01:00Z")
        beside = described(trainjob(), WITH_DATA, [forged, real], said=said)
        assert [each.pod_uid for each in beside.initializers] == ["d1"]
        assert "Fetching" not in beside.message


def test_a_jobset_that_names_thousands_of_targets_is_read_as_fast_as_any() -> None:
    """15,000 targets beside 1,500 replicated jobs fit an object of 211 KB, and were 222 ms of the event loop
    each time that anything of it changed."""
    groups = [(f"r{number}", None) for number in range(1_500)]
    others = {"operator": "Any", "targetReplicatedJobs": ["z"] * 15_000}

    def cpu_s(js: JobSet) -> float:
        return min(
            timeit.repeat(lambda: JobSetKind().view(js, FoundParts([])), timer=time.thread_time, number=1)
        )

    assert JobSetKind().view(jobset(*groups), FoundParts([])).leaders == ("r0",)
    assert cpu_s(jobset(*groups, successPolicy=others)) < 10 * cpu_s(jobset(*groups))


def test_no_pods_are_read_of_groups_whose_pods_say_nothing() -> None:
    """2,048 forged pods of 64 groups were 8 ms of the event loop at each change of one of them."""
    groups = [(f"r{number}", None) for number in range(64)]
    parts = Noting([jobset(*groups), *(batch_job(name) for name, _ in groups)])
    JobSetKind().view(jobset(*groups), parts)
    assert parts.asked == ["bert-r0-0"]
    preparing = [(f"r{number}", "dataset-initializer") for number in range(64)]
    parts = Noting([jobset(("node", "trainer"), *preparing), *(batch_job(n) for n, _ in groups)])
    TrainJobKind().view(trainjob(), parts)
    assert len(parts.asked) == MAX_INITIALIZERS


def test_a_pod_of_a_jobset_of_many_replicated_jobs_is_placed_as_fast_as_any() -> None:
    """Each of them was compared with each pod of a listing. With 2,400 that took 0.2 ms a pod."""

    def cpu_s(others: int) -> float:
        groups = [{"name": f"r{number}", "replicas": 2} for number in range(others)]
        js = jobset(replicatedJobs=[{"name": "first", "replicas": 2}, *groups, {"name": "node"}])
        found = all_pods(js)
        assert found.makers is not None
        found.makers.note(batch_job().metadata)
        place = partial(found.replica, pod(), {COMPLETION_INDEX: "0"})
        assert place() == Replica(name="node-0")
        return min(timeit.repeat(place, timer=time.thread_time, number=100))

    assert cpu_s(2_400) < 10 * cpu_s(1)


class Noting(FoundParts):
    def __init__(self, objects: Sequence[AnyObject]) -> None:
        super().__init__(objects)
        self.asked: list[str] = []

    def pods(self, objects: WatchedObjects, owner: Meta) -> Sequence[Pod]:
        self.asked.append(owner.name)
        return super().pods(objects, owner)


def test_of_an_objects_owners_the_one_that_counts_is_kept() -> None:
    """Nine thousand fit an object, and were read again at each change of its job."""
    others = [{"kind": "Foo", "name": f"n{number}", "uid": f"u{number}"} for number in range(9_000)]
    owner = reference("Job", JOB, UID)
    read = msgspec.convert({"name": "p", "ownerReferences": [*others, owner, *others]}, PartMeta)
    assert read.owner_references == (msgspec.convert(owner, OwnerReference),)
    assert msgspec.convert({"name": "p", "ownerReferences": others}, PartMeta).owner_references is None
