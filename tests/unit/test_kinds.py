"""Each kind of job by its objects as its controllers write them: phases, rank 0, replicas, owners."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.kinds import SAMPLES, TRAINING as TRAINING_LABEL, Object, Part, Sample, template
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.kinds import ALL_RESOURCES, BY_RESOURCE, KINDS
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.pushing.ownership import Membership, Owners
from visibility_api.workloads.inventory import Inventory
from visibility_api.workloads.kind import JobKind
from visibility_api.workloads.pod_lists import PodLists

TRAINJOB = Part(api="/apis/trainer.kubeflow.org/v1alpha1", plural="trainjobs", kind="TrainJob", name="bert")
_ID = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
# The others are pods themselves.
_MADE_OF_PODS = pytest.mark.parametrize(
    "sample", [each for each in SAMPLES if each.kind != "Pod"], ids=lambda sample: sample.id
)


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether a label selector of ours takes an object with these labels."""
    for term in re.split(r",(?![^(]*\))", selector):
        if not term:
            continue
        if found := re.fullmatch(r"(\S+) in \((.*)\)", term):
            if labels.get(found[1]) not in found[2].split(","):
                return False
        elif term.startswith("!"):
            if term[1:] in labels:
                return False
        elif "=" in term:
            key, _, value = term.partition("=")
            if labels.get(key) != value:
                return False
        elif term not in labels:
            return False
    return True


class Cluster:
    """What a cluster has, and what an inventory makes of it."""

    def __init__(self, kinds: Sequence[JobKind] = KINDS) -> None:
        self.jobs: dict[str, TrainingJob] = {}
        self.gone: list[JobRef] = []
        self.inventory = Inventory(
            kinds,
            on_job=lambda job, _status: self.jobs.update({str(job.ref): job}),
            on_gone=self.gone.append,
        )
        self.objects: dict[str, Object] = {}  # by path

    async def list_nothing(self) -> None:
        for objects in self.inventory.collections:
            await self.inventory.list(objects, in_slices(()))

    def put(self, api: str, plural: str, object_: Object, change: Any = "MODIFIED") -> None:
        """Every watch sees it whose selector takes it."""
        meta = object_["metadata"]
        self.objects[f"{api}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"] = object_
        for objects in self.inventory.collections:
            if (objects.api, objects.plural) == (api, plural) and matches(
                objects.selector, meta.get("labels") or {}
            ):
                self.inventory.change(objects, change, msgspec.convert(object_, objects.type))

    def start(
        self, sample: Sample, status: Object | None = None, *, state: Object | None = None, **spec: Any
    ) -> None:
        job = made(
            sample.kind,
            sample.name,
            status=status,
            spec=sample.spec | spec,
            labels={"team": "nlp"} | sample.labels,
        )
        running = state or {"running": {"startedAt": "2026-01-23T10:01:00Z"}}
        if sample.kind == "Pod":
            found = pod(sample, None, running)
            status = found["status"] | (status or {})
            self.put(
                sample.api,
                sample.plural,
                job | {"spec": job["spec"] | {"nodeName": "gpu-1"}, "status": status},
            )
            return
        self.put(sample.api, sample.plural, job)
        owner = Part(api=sample.api, plural=sample.plural, kind=sample.kind, name=sample.name)
        for part in sample.parts:
            self.put(
                part.api, part.plural, made(part.kind, part.name, owner, spec=part.spec, labels=part.labels)
            )
            owner = part
        self.put("/api/v1", "pods", pod(sample, owner, running))

    async def get(self, path: str, *, query: Sequence[tuple[str, str]] = (), **_limits: object) -> bytes:
        if (selector := dict(query).get("labelSelector")) is not None:
            found = [each for key, each in self.objects.items() if key.rpartition("/")[0] == path]
            items = [each for each in found if matches(selector, each["metadata"]["labels"])]
            return msgspec.json.encode({"metadata": {}, "items": items})
        if path not in self.objects:
            raise ApiError(404, "NotFound")
        return msgspec.json.encode(self.objects[path])

    def job(self, sample: Sample) -> TrainingJob:
        return self.jobs[f"{sample.resource}/team-a/{sample.name}"]


def made(kind: str, name: str, owner: Part | None = None, **fields: Any) -> Object:
    labels = fields.pop("labels", {})
    references = []
    if owner is not None:
        references = [
            {
                "apiVersion": owner.api.removeprefix("/apis/"),
                "kind": owner.kind,
                "name": owner.name,
                "uid": f"uid of {owner.kind} {owner.name}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid of {kind} {name}",
            "labels": dict(labels),
            "creationTimestamp": "2026-01-23T10:00:00Z",
            "ownerReferences": references,
        },
        **{key: value for key, value in fields.items() if value is not None},
    }


def pod(sample: Sample, owner: Part | None, state: Object) -> Object:
    labels = dict(sample.pod_labels)
    if owner is not None and owner.kind == "Job":
        labels["batch.kubernetes.io/job-name"] = owner.name
    names = [sample.container, "sidecar"]
    if sample.api == "/apis/kubeflow.org/v1":  # whose kinds name the container that trains
        names.reverse()
    return made(
        "Pod",
        sample.pod,
        owner,
        labels=labels,
        spec={"nodeName": "gpu-1", "containers": [{"name": name} for name in names]},
        status={
            "phase": "Running",
            "containerStatuses": [{"name": sample.container, "restartCount": 0, "state": state}],
        },
    )


@pytest.fixture
async def cluster() -> Cluster:
    found = Cluster()
    await found.list_nothing()
    return found


@_ID
def test_a_new_job_is_there_before_anything_is_made_for_it(cluster: Cluster, sample: Sample) -> None:
    cluster.put(
        sample.api, sample.plural, made(sample.kind, sample.name, spec=sample.spec, labels=sample.labels)
    )
    job = cluster.job(sample)
    assert job.phase is Phase.PENDING
    assert (job.rank0 is None) == (sample.kind != "Pod")
    assert job.created_at is not None


@_ID
def test_a_running_job_shows_its_rank_0_its_replicas_and_its_accelerators(
    cluster: Cluster, sample: Sample
) -> None:
    cluster.start(sample, sample.states["Running"])
    job = cluster.job(sample)
    assert (job.phase, job.reason) == (Phase.RUNNING, "Rank0Running")
    assert job.labels == {"team": "nlp"} | sample.labels
    assert job.rank0 is not None
    assert (job.rank0.pod_name, job.rank0.container_name) == (sample.pod, sample.container)
    assert sample.group in [group.name for group in job.replicas]
    assert job.columns == ((sample.column[1],) if sample.column is not None else ())
    pods = sum(group.desired or 0 for group in job.replicas)
    assert dict(job.accelerators) == {"nvidia.com/gpu": 2 * pods}


@_ID
def test_the_state_of_a_job_is_its_controllers(cluster: Cluster, sample: Sample) -> None:
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-23T10:30:00Z", "reason": "Error"}}
    for phase, status in sample.states.items():
        cluster.start(sample, status, state=ended if phase == "Failed" else None)
        job = cluster.job(sample)
        assert job.phase == phase
        if phase == "Failed":
            assert job.failure is not None
            assert job.failure.replica in (f"{sample.group}-0", "")
    if sample.suspension:
        cluster.start(sample, sample.states["Running"], **sample.suspension)
        assert cluster.job(sample).phase is Phase.SUSPENDED


@_ID
def test_a_deleted_job_is_gone(cluster: Cluster, sample: Sample) -> None:
    cluster.start(sample, sample.states["Running"])
    job = made(sample.kind, sample.name, spec=sample.spec, labels=sample.labels)
    cluster.put(sample.api, sample.plural, job, "DELETED")
    assert [str(ref) for ref in cluster.gone] == [f"{sample.resource}/team-a/bert"]


@_ID
async def test_a_pod_pushes_for_the_job_that_owns_it_and_for_no_other(
    cluster: Cluster, sample: Sample
) -> None:
    cluster.start(sample, sample.states["Running"])
    ref = cluster.job(sample).ref

    def is_served(kind: JobKind, pod: Membership) -> bool:
        job = cluster.jobs.get(f"{kind.served.plural}/team-a/{pod.job_name}")
        return job is not None and job.ref.uid == pod.job_uid

    async def owner(*kinds: JobKind) -> tuple[JobKind, str] | None:
        found = await Owners(cluster).find(
            kinds, "team-a", sample.pod, f"uid of Pod {sample.pod}", is_served=is_served
        )
        return None if found is None else (found[0], found[1].job_uid)

    kind = BY_RESOURCE[sample.resource]
    assert await owner(kind) == await owner(*KINDS) == (kind, ref.uid)  # its kind need not be known
    assert await owner(*(each for each in KINDS if each is not kind)) is None


@_MADE_OF_PODS
async def test_a_pod_with_a_name_that_no_controller_gives_is_not_the_jobs(
    cluster: Cluster, sample: Sample
) -> None:
    """Who may create pods may write any label and any owner."""
    odd = replace(sample, pod="mine")
    cluster.start(odd, sample.states["Running"])
    assert cluster.job(sample).rank0 is None
    kind = BY_RESOURCE[sample.resource]
    assert await Owners(cluster).find((kind,), "team-a", "mine", "uid of Pod mine") is None


@_MADE_OF_PODS
def test_every_pod_of_a_job_is_found_when_it_has_failed(cluster: Cluster, sample: Sample) -> None:
    cluster.start(sample, sample.states["Running"])
    pods = cluster.inventory.all_pods(cluster.job(sample).ref)
    assert pods is not None
    object_ = next(each for each in cluster.objects.values() if each["kind"] == "Pod")
    labels = object_["metadata"]["labels"]
    assert matches(pods.selector, labels)
    objects = next(each for each in cluster.inventory.collections if each.kind == "Pod")
    found = pods.replica(msgspec.convert(object_, objects.type), labels)
    assert found is not None
    assert found.name == f"{sample.group}-0"


def by_resource(resource: str) -> Sample:
    return next(each for each in SAMPLES if each.resource == resource)


async def replicas(cluster: Cluster, sample: Sample) -> list[str]:
    lists = PodLists(cast(KubeClient, cluster), cluster.inventory.all_pods)
    found = [(replica.name, pod) async for pod, replica in lists.read(cluster.job(sample).ref)]
    return sorted(f"{name} {pod.metadata.name}" for name, pod in found)


async def test_only_pods_within_a_statefulsets_replicas_push_for_it(cluster: Cluster) -> None:
    """Of four from ordinal 2 on; every other name that ends with a number is somebody's own pod."""
    sample = by_resource("statefulsets")
    spec: Object = {"replicas": 4, "ordinals": {"start": 2}}
    pushing: list[str] = []
    for ordinal in ("0", "1", "2", "5", "6", "02", "x"):
        cluster.start(replace(sample, pod=f"bert-{ordinal}"), sample.states["Running"], **spec)
        found = await Owners(cluster).find(
            (BY_RESOURCE["statefulsets"],), "team-a", f"bert-{ordinal}", f"uid of Pod bert-{ordinal}"
        )
        pushing += [ordinal] if found is not None else []
    assert pushing == ["2", "5"]


async def test_pods_of_every_job_of_a_jobset_are_found(cluster: Cluster) -> None:
    """Of a group with several Jobs only the first one is watched."""
    sample = by_resource("jobsets")
    group = sample.spec["replicatedJobs"][0]
    cluster.start(sample, sample.states["Running"], replicatedJobs=[group | {"replicas": 2}])
    jobset = Part(api=sample.api, plural="jobsets", kind="JobSet", name="bert")
    of_another = Part(api=sample.api, plural="jobsets", kind="JobSet", name="another")
    for name, owner in (("bert-node-1", jobset), ("bert-node-2", jobset), ("bert-node-0x", of_another)):
        job = replace(sample.parts[0], name=name)
        cluster.put(job.api, job.plural, made("Job", name, owner, labels=job.labels))
        index = {"batch.kubernetes.io/job-completion-index": "1"}
        its = replace(sample, pod=f"{name}-1-abcde", pod_labels=dict(sample.pod_labels) | index)
        cluster.put("/api/v1", "pods", pod(its, job, {}))
    assert await replicas(cluster, sample) == [
        "node-0-0 bert-node-0-0-abcde",
        "node-1-1 bert-node-1-1-abcde",
    ]


async def test_workers_of_a_leaderworkerset_are_found_by_their_leaders(cluster: Cluster) -> None:
    sample = by_resource("leaderworkersets")
    cluster.start(sample, sample.states["Running"])
    set_ = sample.parts[0]
    for name, leader in (
        ("bert-0", "bert-0"),
        ("bert-1", "bert-1"),
        ("bert-2", "mine"),
        ("other-0", "other-0"),
    ):
        owner = Part(api="/api/v1", plural="pods", kind="Pod", name=leader)
        cluster.put(set_.api, set_.plural, made("StatefulSet", name, owner, labels=set_.labels))
        cluster.put("/api/v1", "pods", pod(replace(sample, pod=f"{name}-3"), replace(set_, name=name), {}))
    cluster.put("/api/v1", "pods", pod(replace(sample, pod="bert-1-4"), replace(set_, name="bert-0"), {}))
    assert await replicas(cluster, sample) == [
        "leader-0 bert-0",
        "worker-0-3 bert-0-3",
        "worker-1-3 bert-1-3",
    ]


def test_what_needs_no_operator_counts_with_our_label_alone(cluster: Cluster) -> None:
    for sample in (each for each in SAMPLES if each.labels):
        other = made(sample.kind, "report", spec=sample.spec, labels={"app": "cron"})
        cluster.put(sample.api, sample.plural, other)
    assert not cluster.jobs


@_MADE_OF_PODS
def test_a_pod_of_a_job_is_no_job_of_its_own_though_it_has_our_label(
    cluster: Cluster, sample: Sample
) -> None:
    cluster.start(replace(sample, pod_labels=sample.pod_labels | TRAINING_LABEL), sample.states["Running"])
    assert {ref.partition("/")[0] for ref in cluster.jobs} == {sample.resource}


def test_pods_of_a_deployment_are_no_jobs_but_those_of_a_workflow_are(cluster: Cluster) -> None:
    labels = TRAINING_LABEL | {"pod-template-hash": "5d4f8c7b9"}
    cluster.put("/api/v1", "pods", made("Pod", "web-1", labels=labels, spec={}))
    assert not cluster.jobs
    workflow = Part(api="/apis/argoproj.io/v1alpha1", plural="workflows", kind="Workflow", name="nightly")
    cluster.put("/api/v1", "pods", made("Pod", "step-1", workflow, labels=TRAINING_LABEL, spec={}))
    assert set(cluster.jobs) == {"pods/team-a/step-1"}


def test_a_statefulset_whose_ordinals_start_later_says_that_its_first_pod_is_not_read(
    cluster: Cluster,
) -> None:
    sample = next(each for each in SAMPLES if each.kind == "StatefulSet")
    cluster.start(sample, ordinals={"start": 3})
    assert "ordinals start at 3" in cluster.job(sample).hints.faults[0]
    cluster.start(sample, replicas=0)
    assert (cluster.job(sample).phase, cluster.job(sample).reason) == (Phase.SUSPENDED, "ScaledToZero")


@pytest.mark.parametrize(
    ("pods", "expected", "faults"),
    [(["bert-x1111", "bert-x2222"], "bert-x1111", 1), (["bert-x1111"], "bert-x1111", 1)],
)
def test_of_a_job_without_indexes_the_oldest_pod_is_read_and_says_so(
    cluster: Cluster, pods: list[str], expected: str, faults: int
) -> None:
    sample = replace(
        SAMPLES[1], spec={"parallelism": 2, "template": template("trainer")}, pod_labels=TRAINING_LABEL
    )
    for second, name in enumerate(pods):
        cluster.start(replace(sample, pod=name))
        found = next(each for path, each in cluster.objects.items() if path.endswith(f"pods/{name}"))
        found["metadata"]["creationTimestamp"] = f"2026-01-23T10:00:0{second}Z"
        cluster.put("/api/v1", "pods", found)
    job = cluster.job(sample)
    assert job.rank0 is not None
    assert job.rank0.pod_name == expected
    assert len(job.hints.faults) == faults
    assert "not Indexed" in job.hints.faults[0]


def test_what_another_kind_controls_is_no_job_of_its_own(cluster: Cluster) -> None:
    """A TrainJob's JobSet, a JobSet's Jobs and a RayJob's submitter, whatever labels they have."""
    jobset, job = SAMPLES[:2]
    cluster.put(TRAINJOB.api, TRAINJOB.plural, made("TrainJob", "bert", spec={}))
    cluster.put(jobset.api, "jobsets", made("JobSet", "bert", TRAINJOB, spec=jobset.spec))
    assert set(cluster.jobs) == {"trainjobs/team-a/bert"}
    for owner in (jobset, *(each for each in SAMPLES if each.kind in ("RayJob", "MPIJob"))):
        part = Part(api=owner.api, plural=owner.plural, kind=owner.kind, name="bert")
        cluster.put(job.api, "jobs", made("Job", "bert", part, spec=job.spec, labels=job.labels))
    assert set(cluster.jobs) == {"trainjobs/team-a/bert"}


def test_a_job_inside_an_appwrapper_is_listed_once_under_its_own_kind(cluster: Cluster) -> None:
    """Its AppWrapper is its controller (`SetControllerReference` in internal/controller/appwrapper/
    resource_management.go of github.com/project-codeflare/appwrapper), and no job itself."""
    wrapper = Part(
        api="/apis/workload.codeflare.dev/v1beta2", plural="appwrappers", kind="AppWrapper", name="bert"
    )
    label = {"workload.codeflare.dev/appwrapper": "bert"}
    for sample in (each for each in SAMPLES if each.kind in ("PyTorchJob", "RayJob", "JobSet")):
        inner = made(sample.kind, "bert", wrapper, spec=sample.spec, labels=label)
        cluster.put(wrapper.api, wrapper.plural, made("AppWrapper", "bert"))
        cluster.put(sample.api, sample.plural, inner)
    assert set(cluster.jobs) == {f"{each}/team-a/bert" for each in ("pytorchjobs", "rayjobs", "jobsets")}


def test_a_jobset_that_a_trainjob_takes_over_is_gone_as_a_job(cluster: Cluster) -> None:
    sample = SAMPLES[0]
    cluster.put(sample.api, "jobsets", made("JobSet", "bert", spec=sample.spec))
    cluster.put(sample.api, "jobsets", made("JobSet", "bert", TRAINJOB, spec=sample.spec))
    assert [str(ref) for ref in cluster.gone] == ["jobsets/team-a/bert"]


def test_a_rayjobs_submitter_is_read_where_its_head_says_nothing(cluster: Cluster) -> None:
    (sample,) = (each for each in SAMPLES if each.kind == "RayJob")
    cluster.start(sample, sample.states["Running"])
    labels = {"ray.io/originated-from-crd": "RayJob"}
    owner = Part(api=sample.api, plural=sample.plural, kind="RayJob", name="bert")
    submitter = Part(api="/apis/batch/v1", plural="jobs", kind="Job", name="bert", labels=labels)
    cluster.put(submitter.api, "jobs", made("Job", "bert", owner, labels=labels))
    running = {"running": {}}
    cluster.put(
        "/api/v1", "pods", pod(replace(sample, pod="bert-q1w2e", pod_labels=labels), submitter, running)
    )
    job = cluster.job(sample)
    assert job.rank0 is not None
    assert [each.pod_name for each in (job.rank0, *job.alternates)] == [sample.pod, "bert-q1w2e"]


def test_a_right_that_is_missing_for_one_kind_costs_that_kind_alone() -> None:
    found = Cluster()
    sample = next(each for each in SAMPLES if each.kind == "TFJob")

    async def list_but_pytorchjobs() -> None:
        for objects in found.inventory.collections:
            if objects.plural != "pytorchjobs":
                await found.inventory.list(objects, in_slices(()))

    asyncio.run(list_but_pytorchjobs())
    found.start(sample, sample.states["Running"])
    found.start(next(each for each in SAMPLES if each.kind == "PyTorchJob"))
    assert set(found.jobs) == {"tfjobs/team-a/bert"}


def test_kinds_may_share_a_name(cluster: Cluster) -> None:
    for sample in (each for each in SAMPLES if each.kind in ("PyTorchJob", "TFJob")):
        cluster.start(sample, sample.states["Running"])
    assert {ref.partition("/")[0] for ref in cluster.jobs} == {"pytorchjobs", "tfjobs"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_or_a_table_of_kinds_is_one_file_of_150_lines_at_most(kind: JobKind) -> None:
    source = inspect.getsourcefile(type(kind))
    assert source is not None
    assert len(Path(source).read_text().splitlines()) <= 150
    assert {type(each) for each in KINDS if inspect.getsourcefile(type(each)) == source} == {type(kind)}


def test_no_two_kinds_have_a_resource_a_kind_or_a_short_name_in_common() -> None:
    names = [
        name for each in ALL_RESOURCES for name in (each.plural, each.kind, *each.short_names, each.singular)
    ]
    assert len(set(names)) == len(names)
