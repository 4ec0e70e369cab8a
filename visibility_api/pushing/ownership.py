"""Finds the TrainJob that owns a pod: pod → Job → JobSet → TrainJob, by the uid of each controller.

Labels and names are not trusted: a user who may create a pod in a namespace may give it any. A pod's owners
never change, so they are read once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from cachetools import TTLCache

from visibility_api.kube.errors import ApiError
from visibility_api.workloads.objects import Meta

MAX_ENTRIES = 32_768
CACHE_TTL_S = 3600.0
UNOWNED_TTL_S = 10.0  # short: an owner may not be visible yet
TIMEOUT_S = 4.0
MAX_OBJECT_BYTES = 4 * 1024 * 1024

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_JOB_RESTART = "jobset.sigs.k8s.io/restart-attempt"


class Reader(Protocol):
    """The part of a Kubernetes client that is used here."""

    async def get(self, path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        """The body of a 2xx response. Raises ApiError, Unreachable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One pod of one TrainJob."""

    job_uid: str  # the TrainJob's
    pod_name: str
    pod_uid: str
    restart_attempt: int  # the JobSet's, when it created the pod

    @property
    def replica_name(self) -> str:
        """The same for all pods of one replica, one after the other."""
        return replica_name(self.pod_name)


def replica_name(pod_name: str) -> str:
    """A pod's name without the random suffix that its Job gave it."""
    return pod_name.rpartition("-")[0]


class _Object(msgspec.Struct):
    metadata: Meta


class Owners:
    """Reads the owners through `client`, which needs `get` on pods, jobs and jobsets."""

    def __init__(self, client: Reader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._members: TTLCache[str, Membership] = TTLCache(
            MAX_ENTRIES, CACHE_TTL_S, timer=clock
        )  # by pod uid
        self._jobs: TTLCache[str, str] = TTLCache(
            MAX_ENTRIES, CACHE_TTL_S, timer=clock
        )  # TrainJob uid by Job uid
        self._unowned: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, UNOWNED_TTL_S, timer=clock)  # by pod uid

    async def find(self, namespace: str, pod_name: str, pod_uid: str) -> Membership | None:
        """The TrainJob that owns the pod; None when there is none, or the pod is gone.

        Raises ClusterError when the owners cannot be read.
        """
        held = self._members.get(pod_uid)
        if held is not None or pod_uid in self._unowned:
            return held
        found = await self._read_owners(namespace, pod_name, pod_uid)
        if found is None:
            self._unowned[pod_uid] = True
        else:
            self._members[pod_uid] = found
        return found

    async def _read_owners(self, namespace: str, pod_name: str, pod_uid: str) -> Membership | None:
        pod = await self._get(f"/api/v1/namespaces/{namespace}/pods", pod_name, pod_uid)
        job = pod.controller if pod is not None else None
        if pod is None or job is None or job.kind != "Job":
            return None
        job_uid = self._jobs.get(job.uid)
        if job_uid is None:
            job_uid = await self._trainjob_uid(namespace, job.name, job.uid)
            if job_uid is None:
                return None
            self._jobs[job.uid] = job_uid
        attempt = pod.label(_JOB_RESTART)
        return Membership(
            job_uid=job_uid,
            pod_name=pod_name,
            pod_uid=pod_uid,
            restart_attempt=int(attempt) if attempt.isdecimal() and len(attempt) < 10 else 0,
        )

    async def _trainjob_uid(self, namespace: str, name: str, uid: str) -> str | None:
        """The uid of the TrainJob that owns a Job."""
        job = await self._get(f"/apis/batch/v1/namespaces/{namespace}/jobs", name, uid)
        owner = job.controller if job is not None else None
        if owner is None or owner.kind != "JobSet":
            return None
        jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
        jobset = await self._get(jobsets, owner.name, owner.uid)
        owner = jobset.controller if jobset is not None else None
        return owner.uid if owner is not None and owner.kind == "TrainJob" else None

    async def _get(self, collection: str, name: str, uid: str) -> Meta | None:
        """The metadata of the object with this uid; None when it is gone, or another one has its name."""
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
        meta = msgspec.json.decode(body, type=_Object).metadata
        return meta if meta.uid == uid else None
