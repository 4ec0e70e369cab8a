"""Jobs joined from the watches of four collections: passed on once complete, and when they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import permutations
from typing import Any, Self

import msgspec
import pytest

from tests.jobs import T0
from tests.workload_objects import (
    TORCH,
    batch_job,
    condition,
    described,
    jobset,
    pod,
    reference,
    trainjob,
)
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.kinds.replicated_jobs import JOBS, JOBSETS, PODS, JobSet
from visibility_api.kinds.trainjob import TRAINJOBS, TrainJob, TrainJobKind
from visibility_api.kube.errors import Unreachable
from visibility_api.workloads import inventory as inventory_module
from visibility_api.workloads.annotations import MONITORING, OPT_IN, PREFIX
from visibility_api.workloads.declarations import LOG_VARIABLE, PATH_VARIABLES, PORT_VARIABLE
from visibility_api.workloads.inventory import Inventory
from visibility_api.workloads.object_cache import MAX_LARGE_BYTES, PodCache, key_of
from visibility_api.workloads.objects import (
    BatchJob,
    Container,
    EnvVar,
    Meta,
    OwnerReference,
    PartMeta,
    Pod,
    mark_unread,
)

COLLECTIONS = {"trainjobs": TRAINJOBS, "jobsets": JOBSETS, "jobs": JOBS, "pods": PODS}


class Heard:
    def __init__(self) -> None:
        self.jobs: list[TrainingJob] = []
        self.gone: list[JobRef] = []
        self.inventory = Inventory(
            (TrainJobKind(),), on_job=lambda job, _status: self.jobs.append(job), on_gone=self.gone.append
        )

    @classmethod
    async def of(
        cls,
        trainjobs: Sequence[TrainJob] = (),
        jobsets: Sequence[JobSet] = (),
        pods: Sequence[Pod] = (),
        jobs: Sequence[BatchJob] | None = None,
    ) -> Self:
        """An inventory in which all four collections have been listed; `jobs`: by default one."""
        heard = cls()
        await heard.inventory.list(TRAINJOBS, in_slices(trainjobs))
        await heard.inventory.list(JOBSETS, in_slices(jobsets))
        await heard.inventory.list(JOBS, in_slices([batch_job()] if jobs is None else jobs))
        await heard.inventory.list(PODS, in_slices(pods))
        return heard


async def test_a_job_is_passed_on_once_and_then_only_when_it_changes() -> None:
    heard = await Heard.of([trainjob()])
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob()]))
    heard.inventory.change(TRAINJOBS, "MODIFIED", trainjob())
    assert len(heard.jobs) == 1
    heard.inventory.change(JOBSETS, "ADDED", TORCH)
    heard.inventory.change(PODS, "ADDED", pod())
    assert [j.phase for j in heard.jobs] == [Phase.PENDING, Phase.PENDING, Phase.RUNNING]


@pytest.mark.parametrize("order", list(permutations(("trainjobs", "jobsets", "jobs", "pods"))), ids=" ".join)
async def test_a_job_is_passed_on_once_all_collections_are_listed_and_not_before(
    order: tuple[str, ...],
) -> None:
    listed: dict[str, list[Any]] = {
        "trainjobs": [trainjob()],
        "jobsets": [TORCH],
        "jobs": [batch_job()],
        "pods": [pod()],
    }
    heard = Heard()
    for plural in order:
        assert heard.jobs == []
        await heard.inventory.list(COLLECTIONS[plural], in_slices(listed[plural]))
    assert [j.phase for j in heard.jobs] == [Phase.RUNNING]


@pytest.mark.parametrize(
    ("kind", "object_", "named"),
    [
        ("trainjob", trainjob(), "TrainJob bert"),
        ("jobset", TORCH, "JobSet bert"),
        ("job", batch_job(), "Job bert-node-0"),
        ("pod", pod(), "pod bert-node-0-0-p1"),
    ],
)
async def test_a_job_names_its_object_that_is_too_large_to_be_read_until_it_can_be(
    kind: str, object_: Any, named: str
) -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    bare = type(object_)(metadata=object_.metadata)
    change = partial(heard.inventory.change, COLLECTIONS[f"{kind}s"])
    change("MODIFIED", mark_unread(bare, "ObjectTooLarge"))
    assert heard.jobs[-1].unread == (named, "ObjectTooLarge")
    change("MODIFIED", object_)
    assert heard.jobs[-1].unread is None
    assert heard.gone == []


MANY_LABELS = {f"label-{number}": "x" * 63 for number in range(300)}
SHORT_LABELS = trainjob(labels={f"a{number}": "" for number in range(300)})
LONG_LABELS = trainjob(labels=MANY_LABELS)
LONG_ANNOTATION = trainjob(annotations={PREFIX + "path": "/" * 200_000})
MANY_GROUPS = jobset(*[(f"group-{number}", None) for number in range(2_000)])
LONG_MESSAGES = pod(last={"terminated": {"exitCode": 1, "message": "m" * 70_000}})


@pytest.mark.parametrize(
    ("kind", "object_", "named"),
    [
        ("trainjob", LONG_LABELS, "TrainJob bert"),
        ("trainjob", SHORT_LABELS, "TrainJob bert"),
        ("trainjob", LONG_ANNOTATION, "TrainJob bert"),
        ("jobset", MANY_GROUPS, "JobSet bert"),
        ("pod", LONG_MESSAGES, "pod bert-node-0-0-p1"),
    ],
    ids=["labels", "short labels", "annotation", "groups", "messages"],
)
async def test_an_object_that_takes_too_much_memory_is_known_by_name_alone_and_its_job_says_so(
    kind: str, object_: Any, named: str
) -> None:
    """Whoever may create an object may make it 1.5 MB long, and labels are in every document and list."""
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    heard.inventory.change(COLLECTIONS[f"{kind}s"], "MODIFIED", object_)
    assert heard.jobs[-1].unread == (named, "ObjectTooLarge")
    assert len(msgspec.msgpack.encode(heard.jobs[-1])) < 4096


async def test_pods_of_another_namespace_that_name_a_job_take_no_place_of_its_own() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    for number in range(40):
        forged = pod(name=f"bert-node-0-0-{number:05}", uid=f"forged-{number}")
        before = T0 - timedelta(days=1)  # of pods that claim one place the oldest stays
        meta = msgspec.structs.replace(forged.metadata, namespace="team-b", creation_timestamp=before)
        heard.inventory.change(PODS, "ADDED", msgspec.structs.replace(forged, metadata=meta))
    heard.inventory.change(TRAINJOBS, "MODIFIED", trainjob(labels={"team": "vision"}))
    assert heard.jobs[-1].rank0 is not None


async def test_what_changes_before_all_collections_are_listed_is_taken_into_account() -> None:
    heard = Heard()
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob(), named("other")]))
    await heard.inventory.list(JOBS, in_slices([batch_job()]))
    await heard.inventory.list(PODS, in_slices([pod()]))
    heard.inventory.change(PODS, "MODIFIED", pod(restarts=1))
    heard.inventory.change(TRAINJOBS, "DELETED", named("other"))
    await heard.inventory.list(JOBSETS, in_slices([TORCH]))
    assert [j.rank0 and j.rank0.restart_count for j in heard.jobs] == [1]
    assert heard.gone == []


async def test_a_namespace_of_which_a_collection_is_not_known_holds_up_no_other() -> None:
    heard = Heard()
    for scope in ("team-a", "team-b"):
        await heard.inventory.list(TRAINJOBS, in_slices([named(scope, namespace=scope)]), scope=scope)
        await heard.inventory.list(JOBSETS, in_slices([]), scope=scope)
        await heard.inventory.list(JOBS, in_slices([]), scope=scope)
    await heard.inventory.list(PODS, in_slices([]), scope="team-b")
    assert [j.ref.namespace for j in heard.jobs] == ["team-b"]


async def test_a_list_of_the_cluster_takes_nothing_from_a_namespace_that_is_watched_separately() -> None:
    heard = await Heard.of()
    for scope in ("team-b", "team-c"):
        await heard.inventory.list(TRAINJOBS, in_slices([named("other", namespace=scope)]), scope=scope)
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob()]), but={"team-b"})
    assert [ref.namespace for ref in heard.gone] == ["team-c"]


async def test_a_long_list_lets_others_in_and_takes_over_what_they_change_meanwhile() -> None:
    heard = await Heard.of()
    names = [f"job-{number}" for number in range(20)]
    objects = in_slices([named(name) for name in names], slice_s=0.0)  # a pause after each
    async with asyncio.TaskGroup() as group:
        group.create_task(heard.inventory.list(TRAINJOBS, objects))
        await asyncio.sleep(0)  # its task begins
        await asyncio.sleep(0)
        assert 0 < len(heard.jobs) < len(names)
        # the JobSet of one that comes later, and one of a job that is there already
        for name in (names[0], names[-1]):
            heard.inventory.change(JOBSETS, "ADDED", jobset_of(name))
    shown = {j.ref.name: j.reason for j in heard.jobs}
    assert shown == {n: "NoPod" if n in (names[0], names[-1]) else "NoJobSet" for n in names}


async def test_an_object_that_cannot_be_held_is_known_by_name_alone_and_hides_no_other() -> None:
    status = {"trainerStatus": {"progressPercentage": 10**30}}
    heard = await Heard.of([trainjob(), named("other")])
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob(status=status), named("third")]))
    assert [j.ref.name for j in heard.jobs] == ["bert", "other", "bert", "third"]
    assert heard.jobs[2].unread == ("TrainJob bert", "ObjectUnreadable")
    assert {g.name for g in heard.gone} == {"other"}


def named(name: str, namespace: str = "team-a") -> TrainJob:
    return TrainJob(metadata=Meta(name=name, namespace=namespace, uid=f"uid of {name}"))


def jobset_of(name: str) -> JobSet:
    owner = msgspec.convert(reference("TrainJob", name, f"uid of {name}"), OwnerReference)
    metadata = PartMeta(name=name, namespace="team-a", uid=f"jobset of {name}", owner_references=(owner,))
    return JobSet(metadata=metadata, spec=TORCH.spec)


async def test_a_deleted_job_is_gone_and_a_pod_of_it_changes_nothing() -> None:
    heard = await Heard.of([trainjob()])
    heard.inventory.change(TRAINJOBS, "DELETED", trainjob())
    heard.inventory.change(PODS, "ADDED", pod())
    assert [g.uid for g in heard.gone] == ["t1"]
    assert len(heard.jobs) == 1


async def test_a_job_that_a_relist_no_longer_shows_is_gone() -> None:
    heard = await Heard.of([trainjob()])
    await heard.inventory.list(TRAINJOBS, in_slices([]))
    assert [g.uid for g in heard.gone] == ["t1"]


async def test_a_job_deleted_and_created_again_between_two_lists_is_another_job() -> None:
    heard = await Heard.of([trainjob(uid="t1")])
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob(uid="t2")]))
    assert [g.uid for g in heard.gone] == ["t1"]
    assert [j.ref.uid for j in heard.jobs] == ["t1", "t2"]


async def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    for objects in heard.inventory.collections:
        await heard.inventory.list(objects, in_slices([]), scope="team-b")
    assert heard.gone == []
    assert len(heard.jobs) == 1
    await heard.inventory.list(TRAINJOBS, in_slices([]), scope="team-a")
    assert [g.uid for g in heard.gone] == ["t1"]


async def test_a_list_that_breaks_off_takes_nothing_away() -> None:
    async def broken() -> AsyncIterator[TrainJob]:
        yield named("new")
        raise Unreachable("the connection is gone")

    heard = await Heard.of([trainjob(), named("other")])
    with pytest.raises(Unreachable):
        await heard.inventory.list(TRAINJOBS, broken())
    assert heard.gone == []
    assert [j.ref.name for j in heard.jobs] == ["bert", "other", "new"]


async def test_a_first_list_that_fails_shows_nothing_until_it_is_complete() -> None:
    async def broken() -> AsyncIterator[Pod]:
        yield pod()
        raise Unreachable("the connection is gone")

    heard = Heard()
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob()]))
    await heard.inventory.list(JOBSETS, in_slices([TORCH]))
    await heard.inventory.list(JOBS, in_slices([batch_job()]))
    with pytest.raises(Unreachable):
        await heard.inventory.list(PODS, broken())
    assert heard.jobs == []
    await heard.inventory.list(PODS, in_slices([pod()]))
    assert [j.phase for j in heard.jobs] == [Phase.RUNNING]


async def test_a_pod_that_its_job_gives_up_leaves_the_job() -> None:
    heard = await Heard.of([trainjob()], [TORCH])
    heard.inventory.change(PODS, "ADDED", pod())
    for owner in ((), pod(owner=reference("Job", "bert-node-0", "another")).metadata.owner_references):
        metadata = msgspec.structs.replace(pod().metadata, owner_references=owner)
        heard.inventory.change(PODS, "MODIFIED", msgspec.structs.replace(pod(), metadata=metadata))
        heard.inventory.change(PODS, "MODIFIED", pod())
    assert [j.rank0 is not None for j in heard.jobs] == [False, True, False, True, False, True]


async def test_a_pod_that_comes_before_its_job_is_found_once_the_job_is_there() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()], jobs=[])
    heard.inventory.change(JOBS, "ADDED", batch_job())
    heard.inventory.change(JOBS, "MODIFIED", batch_job())
    assert [j.rank0 is not None for j in heard.jobs] == [False, True]


async def test_a_job_made_again_under_the_same_name_does_not_take_over_the_pods_of_the_first() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    heard.inventory.change(JOBS, "DELETED", batch_job())
    heard.inventory.change(JOBS, "ADDED", batch_job(uid="the next", attempt=1))
    assert [j.rank0 is not None for j in heard.jobs] == [True, False]
    heard.inventory.change(PODS, "ADDED", pod(uid="p2", owner=reference("Job", "bert-node-0", "the next")))
    assert heard.jobs[-1].rank0 is not None
    assert heard.jobs[-1].rank0.attempt == "p2/0/1"


async def test_of_very_many_pods_that_claim_one_index_only_the_likeliest_are_compared() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    for number in range(200):
        heard.inventory.change(PODS, "ADDED", pod(uid=f"forged{number}", created="2026-01-23T10:02:00Z"))
    heard.inventory.change(PODS, "DELETED", pod(uid="forged0"))
    assert {j.rank0.pod_uid for j in heard.jobs if j.rank0 is not None} == {"p1"}
    heard.inventory.change(PODS, "DELETED", pod())
    last = heard.jobs[-1].rank0
    assert last is not None
    assert last.pod_uid.startswith("forged")


async def test_pods_that_claim_one_index_are_bounded_in_bytes_together() -> None:
    """32 of 64 KiB each would be 30 ms of the event loop at every change. The oldest stays however large."""
    cache = PodCache(Pod, is_own=False, owner_kinds=("Job",))
    first = msgspec.structs.replace(pod(), status=msgspec.structs.replace(pod().status, message="m" * 40_000))
    cache.put(key_of(first), first)
    for number in range(8):
        forged = pod(uid=f"forged{number}", created="2026-01-23T10:02:00Z")
        status = msgspec.structs.replace(forged.status, message="m" * 10_000)
        cache.put(key_of(forged), msgspec.structs.replace(forged, status=status))
    kept = cache.of(PartMeta(name="bert-node-0", namespace="team-a", uid=pod().metadata.controller.uid))
    assert kept[0].metadata.uid == "p1"
    assert len(kept) == 3
    grown = msgspec.structs.replace(first, status=msgspec.structs.replace(first.status, message="m" * 60_000))
    cache.put(key_of(grown), grown)
    kept = cache.of(PartMeta(name="bert-node-0", namespace="team-a", uid=pod().metadata.controller.uid))
    assert [each.metadata.uid for each in kept] == ["p1"]


def large_pod(number: int, namespace: str = "team-a") -> Pod:
    """Of a controller of its own, with 40 KB of what is kept."""
    made = pod(uid=f"p{number}")
    (owner,) = made.metadata.owner_references or ()
    owners = (msgspec.structs.replace(owner, uid=f"job-{number}"),)
    metadata = msgspec.structs.replace(
        made.metadata, name=f"pod-{number}", namespace=namespace, owner_references=owners
    )
    status = msgspec.structs.replace(made.status, message="m" * 40_000)
    return msgspec.structs.replace(made, metadata=metadata, status=status)


def test_large_objects_of_a_namespace_are_bounded_in_bytes_together() -> None:
    """A pod takes 1 KiB. 10,000 of 64 KiB, as a quota may allow, would take what the server may have."""
    cache = PodCache(Pod, is_own=False, owner_kinds=("Job",))

    def is_whole(key: tuple[str, str]) -> bool:
        kept = cache.get(key)
        return kept is not None and bool(kept.status.message)

    pods = [large_pod(number) for number in range(600)]
    for each in pods:
        cache.put(key_of(each), each)
    whole = [each for each in pods if is_whole(key_of(each))]
    assert 300 < len(whole) < MAX_LARGE_BYTES / 40_000
    other = large_pod(0, "team-b")
    cache.put(key_of(other), other)
    assert is_whole(key_of(other))
    moved = msgspec.structs.replace(whole[0].spec, node_name="node-1")
    cache.put(key_of(whole[0]), msgspec.structs.replace(whole[0], spec=moved))
    assert is_whole(key_of(whole[0]))
    cache.drop(key_of(whole[1]))
    cache.put(key_of(pods[-1]), pods[-1])
    assert is_whole(key_of(pods[-1]))
    for key in cache.keys(None):
        cache.drop(key)
    assert not cache._large  # nothing of namespaces that are gone


async def test_a_deleted_pod_is_known_by_its_name_alone() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    nothing_else = PartMeta(name=pod().metadata.name, namespace="team-a")
    heard.inventory.change(PODS, "DELETED", Pod(metadata=nothing_else))
    assert [j.rank0 is not None for j in heard.jobs] == [True, False]


async def test_a_relist_asks_only_for_the_jobs_that_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    evaluated: list[str] = []
    monkeypatch.setattr(inventory_module, "describe_job", lambda _kind, job, *_: evaluated.append(job))
    await heard.inventory.list(TRAINJOBS, in_slices([trainjob()]))
    await heard.inventory.list(JOBSETS, in_slices([jobset(("node", "trainer"))]))
    await heard.inventory.list(JOBS, in_slices([batch_job()]))
    await heard.inventory.list(PODS, in_slices([pod()]))
    assert evaluated == []
    await heard.inventory.list(PODS, in_slices([pod(restarts=1)]))
    assert len(evaluated) == 1


async def test_a_job_that_causes_an_error_hides_no_other_and_is_logged_without_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    taken: list[str] = []

    def take(job: TrainingJob, _status: object) -> None:
        if job.ref.name == "bert":
            raise ValueError("s3cr3t")
        taken.append(job.ref.name)

    inventory = Inventory((TrainJobKind(),), on_job=take, on_gone=lambda _: None)
    other = TrainJob(metadata=Meta(name="other", namespace="team-a", uid="t2"))
    await inventory.list(PODS, in_slices([]))
    await inventory.list(JOBSETS, in_slices([]))
    await inventory.list(JOBS, in_slices([]))
    await inventory.list(TRAINJOBS, in_slices([trainjob(), other]))
    inventory.change(TRAINJOBS, "MODIFIED", trainjob(suspend=True))
    assert taken == ["other"]
    said = capsys.readouterr()
    assert "ValueError" in said.out + said.err
    assert "s3cr3t" not in said.out + said.err


@pytest.mark.parametrize(
    "name", [*PATH_VARIABLES, PORT_VARIABLE, LOG_VARIABLE, PREFIX + "path", OPT_IN, MONITORING + "port"]
)
def test_what_is_read_of_an_object_is_kept_of_it(name: str) -> None:
    container = Container(
        name="node",
        env=(EnvVar(name=name, value=msgspec.Raw(b'"1"')), EnvVar(name="HOME", value=msgspec.Raw(b'"/"'))),
    )
    metadata = Meta(name="bert", annotations={name: "1", "last-applied": "{}"})
    kept = {e.name for e in container.env or ()} | (metadata.annotations or {}).keys()
    assert kept == {name}


def test_what_fills_an_object_to_its_limit_is_cut() -> None:
    failed = {**condition("Failed", reason="r" * 30_000), "message": "m" * 30_000}
    groups = [(f"group-{number}", None) for number in range(20_000)]
    job = described(trainjob(status={"conditions": [failed]}), jobset(*groups), ())
    assert len(job.replicas) == 64
    assert (len(job.reason), len(job.message)) == (256, 1024)


WITH_DATA = jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer"))
DATA_JOB = batch_job("dataset-initializer")


async def test_what_initializers_print_is_passed_on_as_a_change_and_forgotten_with_their_end() -> None:
    def initializer(**changes: Any) -> Pod:
        return pod("dataset-initializer", container="dataset-initializer", uid="d1", **changes)

    heard = await Heard.of([trainjob()], [WITH_DATA], [initializer()], [DATA_JOB, batch_job()])
    (job,) = heard.jobs
    heard.inventory.initializers_said(job.ref, {"d1/0": "Fetching 12 files 41 % (5/12)"})
    assert heard.jobs[-1].message == "dataset-initializer: Fetching 12 files 41 % (5/12)."
    heard.inventory.initializers_said(job.ref, {"d1/0": "Fetching 12 files 41 % (5/12)"})
    assert len(heard.jobs) == 2  # nothing new
    heard.inventory.initializers_said(
        JobRef(resource="trainjobs", namespace="team-a", name="bert", uid="older"), {"d1/0": "another's"}
    )
    assert len(heard.jobs) == 2
    heard.inventory.change(PODS, "MODIFIED", pod())
    assert (heard.jobs[-1].phase, heard.jobs[-1].message) == (Phase.RUNNING, "")
    # The training has begun; what is said too late is not kept for another time.
    heard.inventory.initializers_said(job.ref, {"d1/0": "Fetching 12 files 100 % (12/12)"})
    heard.inventory.change(PODS, "DELETED", pod())
    assert heard.jobs[-1].message == "dataset-initializer is running."
