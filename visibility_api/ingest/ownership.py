"""Whose pod it is: pod → Job → JobSet → TrainJob, by the uid of each controller, as kube-apiserver says.

Labels and names are not believed: whoever may create a pod in a namespace may give it any. Owners never
change in the life of a pod, so each is asked for once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from cachetools import TTLCache

from visibility_api.cluster.errors import ApiError
from visibility_api.cluster.objects import Meta

MAX_ENTRIES = 32_768
KEPT_S = 3600.0
REFUSED_FOR_S = 10.0  # an owner may not be visible yet
TIMEOUT_S = 4.0
MAX_OBJECT_BYTES = 4 * 1024 * 1024

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_JOB_RESTART = "jobset.sigs.k8s.io/restart-attempt"


class Reader(Protocol):
    """What of a Kubernetes client is needed here."""

    async def get(self, path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        """The body of a 2xx answer. Raises ApiError, Unreachable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One pod of one TrainJob."""

    job_uid: str  # the TrainJob's
    pod_name: str
    pod_uid: str
    restart_attempt: int  # the JobSet's, when it made the pod

    @property
    def place(self) -> str:
        """The same for every life of one replica: the pod's name without its random part."""
        return self.pod_name.rpartition("-")[0]


class _Object(msgspec.Struct):
    metadata: Meta


class Owners:
    """Finds out by `client`, which needs `get` on pods, jobs and jobsets."""

    def __init__(self, client: Reader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._members: TTLCache[str, Membership] = TTLCache(MAX_ENTRIES, KEPT_S, timer=clock)  # by pod uid
        self._jobs: TTLCache[str, str] = TTLCache(MAX_ENTRIES, KEPT_S, timer=clock)  # TrainJob uid by Job uid
        self._strangers: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, REFUSED_FOR_S, timer=clock)

    async def find(self, namespace: str, pod_name: str, pod_uid: str) -> Membership | None:
        """The TrainJob that the pod belongs to; None when it belongs to none, or is gone.

        Raises ClusterError when that cannot be found out now.
        """
        held = self._members.get(pod_uid)
        if held is not None or pod_uid in self._strangers:
            return held
        found = await self._ask(namespace, pod_name, pod_uid)
        if found is None:
            self._strangers[pod_uid] = True
        else:
            self._members[pod_uid] = found
        return found

    async def _ask(self, namespace: str, pod_name: str, pod_uid: str) -> Membership | None:
        pod = await self._get(f"/api/v1/namespaces/{namespace}/pods", pod_name, pod_uid)
        job = pod.controller if pod is not None else None
        if pod is None or job is None or job.kind != "Job":
            return None
        job_uid = self._jobs.get(job.uid)
        if job_uid is None:
            job_uid = await self._climb(namespace, job.name, job.uid)
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

    async def _climb(self, namespace: str, name: str, uid: str) -> str | None:
        """From a Job to the uid of its TrainJob."""
        job = await self._get(f"/apis/batch/v1/namespaces/{namespace}/jobs", name, uid)
        owner = job.controller if job is not None else None
        if owner is None or owner.kind != "JobSet":
            return None
        jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
        jobset = await self._get(jobsets, owner.name, owner.uid)
        owner = jobset.controller if jobset is not None else None
        return owner.uid if owner is not None and owner.kind == "TrainJob" else None

    async def _get(self, collection: str, name: str, uid: str) -> Meta | None:
        """The metadata of that very object; None when it is gone, or another one has its name."""
        if not _NAME.fullmatch(name):
            return None  # whoever made the pod wrote its owners: `..` would ask for something else
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
