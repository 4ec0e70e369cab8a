"""TrainJobs, JobSets, Jobs and pods as the controllers write them, for tests of what is read of them.

With every field that the published types require: tests/frameworks/test_workload_objects.py holds that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from visibility_api.jobs.job import TrainingJob
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob, TrainJobKind
from visibility_api.workloads.description import describe_job
from visibility_api.workloads.kind import AllPods, WatchedObjects
from visibility_api.workloads.objects import AnyObject, BatchJob, Meta, Pod
from visibility_api.workloads.phase import true_condition
from visibility_api.workloads.rank0 import controls, is_made_before

T = TypeVar("T")
VERSIONS = {
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Job": "batch/v1",
}
_UNUSED = {"image": "python:3", "imageID": "", "ready": False}  # of the status of a container


def container_status(name: str, **fields: Any) -> dict[str, Any]:
    return {**_UNUSED, "name": name, "restartCount": 0, **fields}


def made(fields: dict[str, Any], type_: type[T]) -> T:
    """As much of an object as is read. Every object that is made here passes by."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=type_)


ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def trainjob(*, uid: str = "t1", status: dict[str, Any] | None = None, **spec: Any) -> TrainJob:
    return made(
        {
            "metadata": {
                "name": "bert",
                "namespace": "team-a",
                "uid": uid,
                "labels": {"team": "nlp"} | spec.pop("labels", {}),
                "annotations": spec.pop("annotations", {}),
                "creationTimestamp": "2026-01-23T10:00:00Z",
            },
            "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
            "status": status,
        },
        TrainJob,
    )


def condition(type_: str, status: str = "True", reason: str = "") -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": reason or f"{type_}Reason",
        "message": "",
        "lastTransitionTime": "2026-01-23T10:00:00Z",
    }


def reference(kind: str, name: str, uid: str, *, blocks: bool = True) -> dict[str, Any]:
    """As a controller sets it."""
    return {
        "apiVersion": VERSIONS.get(kind, "v1"),
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": blocks,
    }


def jobset(
    *groups: tuple[str, str | None],
    owner: str = "t1",
    uid: str = "js1",
    conditions: Sequence[dict[str, Any]] = (),
    restarts: int = 0,
    **spec: Any,
) -> JobSet:
    return made(
        {
            "metadata": {
                "name": "bert",
                "namespace": "team-a",
                "uid": uid,
                "ownerReferences": [reference("TrainJob", "bert", owner)],
            },
            "spec": {
                "replicatedJobs": [
                    {
                        "name": name,
                        "replicas": 1,
                        "template": {
                            "metadata": {"labels": {ANCESTOR: ancestor} if ancestor else {}},
                            "spec": {"template": {}},
                        },
                    }
                    for name, ancestor in groups
                ],
                **spec,
            },
            "status": {"conditions": conditions, "restarts": restarts},
        },
        JobSet,
    )


def batch_job(
    group: str = "node",
    *,
    uid: str = "",
    jobset_uid: str = "js1",
    attempt: int = 0,
    owner: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> BatchJob:
    name = f"bert-{group}-0"
    return made(
        {
            "metadata": {
                "name": name,
                "namespace": "team-a",
                "uid": uid or f"uid of {name}",
                "labels": {"jobset.sigs.k8s.io/restart-attempt": str(attempt)},
                "ownerReferences": [owner or reference("JobSet", "bert", jobset_uid)],
            },
            "status": status or {},
        },
        BatchJob,
    )


def described(
    job: TrainJob,
    js: JobSet | None,
    pods: Iterable[Pod],
    jobs: Iterable[BatchJob] | None = None,
    *,
    said: Mapping[str, str] | None = None,
) -> TrainingJob:
    """`jobs`: by default the first Job of every group. `said`: by initializers, by their runs."""
    groups = [g.name for g in js.spec.replicated_jobs or ()] if js is not None else []
    by_name = {j.metadata.name: j for j in (map(batch_job, groups) if jobs is None else jobs)}
    conditions = TrainJobKind().conditions(job)
    end = true_condition(conditions, "Failed") or true_condition(conditions, "Complete")
    parts = FoundParts(
        [*([] if js is None else [js]), *by_name.values(), *pods],
        ended_at=end.last_transition_time if end is not None else None,
    )
    return describe_job(TrainJobKind(), job, parts, said or {})


class FoundParts:
    """`Parts` of these objects. `ended_at`: when the job ended."""

    def __init__(self, objects: Sequence[AnyObject], ended_at: datetime | None = None) -> None:
        self._objects = objects
        self._ended_at = ended_at

    def get(self, objects: WatchedObjects, name: str, owner: Meta) -> Any:
        for each in self._objects:
            if isinstance(each, objects.type) and each.metadata.name == name:
                return each if controls(owner, each.metadata) else None
        return None

    def pods(self, _objects: WatchedObjects, owner: Meta) -> Sequence[Pod]:
        return [
            each
            for each in self._objects
            if isinstance(each, Pod)
            and controls(owner, each.metadata)
            and is_made_before(each, self._ended_at)
        ]


def all_pods(js: JobSet) -> AllPods:
    """Of the TrainJob bert, with the first Job of every group."""
    groups = [batch_job(group.name) for group in js.spec.replicated_jobs or ()]
    found = TrainJobKind().all_pods(trainjob(), FoundParts([js, *groups]))
    assert found is not None
    return found


TORCH = jobset(("node", "trainer"))
MPI = jobset(
    ("node", None),
    ("launcher", "trainer"),
    successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]},
)


def pod(
    group: str = "node",
    *,
    name: str = "",
    uid: str = "p1",
    created: str = "2026-01-23T10:01:00Z",
    deleting: bool = False,
    phase: str = "Running",
    owner: dict[str, Any] | None = None,
    container: str = "node",
    containers: list[dict[str, Any]] | None = None,
    state: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    init: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    scheduled: bool = True,
    reason: str | None = None,
    conditions: Sequence[dict[str, Any]] = (),
    metadata: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> Pod:
    """`metadata`, `spec` and `status`: other fields of these."""
    job = f"bert-{group}-0"
    return made(
        {
            "metadata": {
                "name": name or f"bert-{group}-0-0-{uid}",
                "namespace": "team-a",
                "uid": uid,
                "annotations": annotations or {},
                "creationTimestamp": created,
                "deletionTimestamp": "2026-01-23T11:00:00Z" if deleting else None,
                "ownerReferences": [owner or reference("Job", job, f"uid of {job}")],
                **(metadata or {}),
            },
            "spec": {
                "nodeName": "gpu-1" if scheduled else None,
                "containers": containers or [{"name": container}],
                **(spec or {}),
            },
            "status": {
                "phase": phase,
                "reason": reason,
                "conditions": conditions,
                "podIP": "10.0.0.7",
                "initContainerStatuses": init and [{**_UNUSED, "restartCount": 0, **each} for each in init],
                "containerStatuses": [
                    {
                        **_UNUSED,
                        "name": container,
                        "restartCount": restarts,
                        "state": state if state is not None else {"running": {}},
                        "lastState": last or {},
                    }
                ],
                **(status or {}),
            },
        },
        Pod,
    )


def counts(name: str = "node", **numbers: int) -> dict[str, Any]:
    none = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    return {"jobsStatus": [{"name": name, **none, **numbers}]}
