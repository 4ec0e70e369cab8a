"""Finds the TrainJob that owns a pod: pod → Job → JobSet → TrainJob, by the uid of each controller.

Each link is checked against the live object, and each object must have the name that its controller gives
it. Names are unique, so what can be forged is at most a second pod of an index. Labels are not trusted. The
owners of a Job do not change, so they are read once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

import msgspec
from cachetools import TTLCache

from visibility_api.kube.errors import ApiError
from visibility_api.workloads.objects import Meta, OwnerReference
from visibility_api.workloads.rank0 import COMPLETION_INDEX, is_generated, pod_prefix, restart_attempt

MAX_ENTRIES = 32_768
CACHE_TTL_S = 3600.0
TIMEOUT_S = 4.0
# After a pod's deletionTimestamp, which is when its grace period ends. A finalizer or a node that has gone
# may keep the pod for ever; kube-apiserver accepts its tokens for so long (invalidIfDeletedBefore in
# https://github.com/kubernetes/kubernetes/blob/master/pkg/serviceaccount/claims.go).
TERMINATING = timedelta(seconds=60)
MAX_OBJECT_BYTES = 4 * 1024 * 1024

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Reader(Protocol):
    """The part of a Kubernetes client that is used here."""

    async def get(self, path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        """The body of a 2xx response. Raises ApiError, Unreachable."""
        ...


class Membership(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One pod of one TrainJob."""

    job_uid: str  # the TrainJob's
    pod_name: str
    pod_uid: str
    restart_attempt: int  # the JobSet's, when it created the pod's Job

    @property
    def replica_name(self) -> str:
        """The same for all pods of one replica, one after the other."""
        return replica_name(self.pod_name)


def replica_name(pod_name: str) -> str:
    """A pod's name without the random suffix that its Job gave it."""
    return pod_name.rpartition("-")[0]


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: Meta
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _JobSpec(msgspec.Struct, rename="camel"):
    completions: int | None = None
    completion_mode: str | None = None


class _Job(msgspec.Struct):
    metadata: Meta
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _ReplicatedJob(msgspec.Struct):
    name: str = ""
    replicas: int = 1


class _JobSetSpec(msgspec.Struct, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] | None = None


class _JobSet(msgspec.Struct):
    metadata: Meta
    spec: _JobSetSpec = msgspec.field(default_factory=_JobSetSpec)


T = TypeVar("T", _Pod, _Job, _JobSet)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parent:
    """A Job that belongs to a TrainJob."""

    name: str
    trainjob_uid: str
    restart_attempt: int
    completions: int | None  # None: not Indexed, so its pods have no index

    def makes(self, pod: Meta) -> bool:
        """Whether the Job controller makes pods of this name and index."""
        if self.completions is None:
            return True
        index = pod.label(COMPLETION_INDEX)
        return (
            _INDEX.fullmatch(index) is not None
            and int(index) < self.completions
            and is_generated(pod.name, pod_prefix(self.name, int(index)))
        )


class Owners:
    """Reads the owners through `client`, which needs `get` on pods, jobs and jobsets."""

    def __init__(
        self,
        client: Reader,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._now = now
        self._jobs: TTLCache[str, _Parent] = TTLCache(MAX_ENTRIES, CACHE_TTL_S, timer=clock)  # by Job uid

    async def find(self, namespace: str, pod_name: str, pod_uid: str) -> Membership | None:
        """The TrainJob that owns the pod; None when there is none, or the pod is gone.

        Raises ClusterError when the owners cannot be read.
        """
        pod = await self._read_pod(namespace, pod_name, pod_uid)
        owner = pod.metadata.controller if pod is not None else None
        if pod is None or owner is None or owner.kind != "Job":
            return None
        job = self._jobs.get(owner.uid)
        if job is None or not job.makes(pod.metadata):  # it may have got more pods since
            job = await self._read_job(namespace, owner)
            if job is None:
                return None
            self._jobs[owner.uid] = job
        if not job.makes(pod.metadata):
            return None
        return Membership(
            job_uid=job.trainjob_uid,
            pod_name=pod_name,
            pod_uid=pod_uid,
            restart_attempt=job.restart_attempt,
        )

    async def is_there(self, namespace: str, pod_name: str, pod_uid: str) -> bool:
        """Whether the pod exists now and may run. Raises ClusterError when it cannot be read."""
        return await self._read_pod(namespace, pod_name, pod_uid) is not None

    async def _read_pod(self, namespace: str, pod_name: str, pod_uid: str) -> _Pod | None:
        """None when it is gone, has ended, or kube-apiserver accepts its tokens no longer."""
        pod = await self._get(_Pod, f"/api/v1/namespaces/{namespace}/pods", pod_name, pod_uid)
        if pod is None or pod.status.phase in ("Succeeded", "Failed"):
            return None
        ends_at = pod.metadata.deletion_timestamp
        return None if ends_at is not None and self._now() > ends_at + TERMINATING else pod

    async def _read_job(self, namespace: str, reference: OwnerReference) -> _Parent | None:
        """The Job if it is the one of that name that a TrainJob's JobSet makes."""
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        job = await self._get(_Job, jobs, reference.name, reference.uid)
        owner = job.metadata.controller if job is not None else None
        if job is None or owner is None or owner.kind != "JobSet":
            return None
        jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
        jobset = await self._get(_JobSet, jobsets, owner.name, owner.uid)
        trainjob = jobset.metadata.controller if jobset is not None else None
        if jobset is None or trainjob is None or trainjob.kind != "TrainJob":
            return None
        if trainjob.name != jobset.metadata.name or not _makes(jobset, job.metadata.name):
            return None
        is_indexed = job.spec.completion_mode == "Indexed"
        return _Parent(
            name=job.metadata.name,
            trainjob_uid=trainjob.uid,
            restart_attempt=restart_attempt(job.metadata),
            completions=(job.spec.completions or 0) if is_indexed else None,
        )

    async def _get(self, kind: type[T], collection: str, name: str, uid: str) -> T | None:
        """The object with this uid; None when it is gone, or another one has its name."""
        if not _NAME.fullmatch(name):
            return None  # the pod's creator may have written any owner; `..` would read another path
        try:
            body = await self._client.get(
                f"{collection}/{name}", timeout_s=TIMEOUT_S, max_bytes=MAX_OBJECT_BYTES
            )
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        found = msgspec.json.decode(body, type=kind)
        return found if found.metadata.uid == uid else None


def _makes(jobset: _JobSet, job_name: str) -> bool:
    """Whether the JobSet controller makes a Job of this name."""
    for group in jobset.spec.replicated_jobs or ():
        prefix = f"{jobset.metadata.name}-{group.name}-"
        index = job_name.removeprefix(prefix)
        if index != job_name and _INDEX.fullmatch(index) and int(index) < group.replicas:
            return True
    return False
