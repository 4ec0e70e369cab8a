"""Finds the job that owns a pod, by the uid of each controller on the way up that its kind describes.

Each link is checked against the live object, and each object must have the name that its controller gives
it. Names are unique, so what can be forged is at most a second pod of an index. Labels are not trusted. The
owners of a pod's controller do not change, so they are read once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
from cachetools import TTLCache

from visibility_api.kube.client import KubeClient
from visibility_api.kube.decoding import decode
from visibility_api.kube.errors import ApiError
from visibility_api.workloads.kind import INDEXED, JobKind, LiveMeta, LiveObject, LiveSpec, WatchedObjects
from visibility_api.workloads.objects import Meta, OwnerReference
from visibility_api.workloads.rank0 import restart_attempt

MAX_ENTRIES = 32_768
CACHE_TTL_S = 3600.0
TIMEOUT_S = 4.0
# After a pod's deletionTimestamp, which is when its grace period ends. A finalizer or a node that has gone
# may keep the pod for ever; kube-apiserver accepts its tokens for so long (invalidIfDeletedBefore in
# https://github.com/kubernetes/kubernetes/blob/master/pkg/serviceaccount/claims.go).
TERMINATING = timedelta(seconds=60)
MAX_OBJECT_BYTES = 4 * 1024 * 1024

_LIVE = msgspec.json.Decoder(LiveObject)
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")


class Membership(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One pod of one job."""

    job_uid: str
    job_name: str
    pod_name: str
    pod_uid: str
    restart_attempt: int  # the JobSet's, when it created the pod's Job
    is_name_random: bool = True  # its name ends in what its Job has added

    def is_same_replica(self, pod_name: str) -> bool:
        """Whether a pod of this name is, or was, the same replica of the job."""
        if not self.is_name_random:
            return self.pod_name == pod_name
        return self.pod_name.rpartition("-")[0] == pod_name.rpartition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parent:
    """The controller of a pod, which belongs to a job. Of either only what is needed: a tenant may give it a
    megabyte of labels."""

    objects: WatchedObjects
    object: LiveObject  # without its labels and owners
    restart_attempt: int
    job_uid: str
    job_name: str

    def makes(self, pod: Meta) -> bool:
        return self.objects.makes(self.object, pod)


_Seen = dict[tuple[str, str], LiveObject | None]  # the owners of one pod, by API and uid


class Owners:
    """Reads the owners through `client`, which needs `get` on pods and what makes them (`is_read`)."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._now = now
        self._parents: TTLCache[tuple[str, str], _Parent] = TTLCache(
            MAX_ENTRIES, CACHE_TTL_S, timer=clock
        )  # by resource and uid

    async def find(
        self,
        kinds: Sequence[JobKind],
        namespace: str,
        pod_name: str,
        pod_uid: str,
        *,
        is_served: Callable[[JobKind, Membership], bool] = lambda _kind, _membership: True,
    ) -> tuple[JobKind, Membership] | None:
        """The first job of these kinds that owns the pod and is served; None also when the pod is gone.

        Raises ClusterError when the owners cannot be read.
        """
        pod = await self._read_pod(namespace, pod_name, pod_uid)
        if pod is None:
            return None
        seen: _Seen = {}
        for kind in kinds:
            meta, parent = pod.metadata, None
            if kind.own[0].kind == "Pod":
                found = Membership(
                    job_uid=meta.uid,
                    job_name=meta.name,
                    pod_name=meta.name,
                    pod_uid=meta.uid,
                    restart_attempt=0,
                    is_name_random=False,
                )
            else:
                parent = await self._find_parent(kind, namespace, pod, seen)
                if parent is None:
                    continue
                found = Membership(
                    job_uid=parent.job_uid,
                    job_name=parent.job_name,
                    pod_name=meta.name,
                    pod_uid=meta.uid,
                    restart_attempt=parent.restart_attempt,
                    is_name_random=parent.objects.kind == "Job",
                )
            if is_served(kind, found):
                if parent is not None and meta.controller is not None:
                    self._parents[kind.served.plural, meta.controller.uid] = parent
                return kind, found
        return None

    async def _find_parent(
        self, kind: JobKind, namespace: str, pod: LiveObject, seen: _Seen
    ) -> _Parent | None:
        """The pod's controller, as it was read before unless it may make more pods now."""
        owner = pod.metadata.controller
        if owner is None:
            return None
        kept = self._parents.get((kind.served.plural, owner.uid))
        if kept is not None and kept.makes(pod.metadata):
            return kept
        return await self._read_parent(kind, namespace, pod, owner, seen)

    async def is_there(self, namespace: str, pod_name: str, pod_uid: str) -> bool:
        """Whether the pod exists now and may run. Raises ClusterError when it cannot be read."""
        return await self._read_pod(namespace, pod_name, pod_uid) is not None

    async def _read_pod(self, namespace: str, pod_name: str, pod_uid: str) -> LiveObject | None:
        """None when it is gone, has ended, or kube-apiserver accepts its tokens no longer."""
        pod = await self._get(f"/api/v1/namespaces/{namespace}/pods", pod_name, pod_uid)
        if pod is None or pod.status.phase in ("Succeeded", "Failed"):
            return None
        ends_at = pod.metadata.deletion_timestamp
        return None if ends_at is not None and self._now() > ends_at + TERMINATING else pod

    async def _read_parent(
        self, kind: JobKind, namespace: str, pod: LiveObject, owner: OwnerReference, seen: _Seen
    ) -> _Parent | None:
        """The pod's controller, if a job of this kind controls it, or is it."""
        for chain in kind.chains:
            above = chain[-2::-1]
            if owner.kind == above[0].kind:
                return await self._climb(above, namespace, pod, owner, seen)
        return None

    async def _climb(
        self,
        chain: Sequence[WatchedObjects],
        namespace: str,
        pod: LiveObject,
        owner: OwnerReference,
        seen: _Seen,
    ) -> _Parent | None:
        """Each object of the chain must exist, and make the one below it. The first is the pod's own."""
        parent: tuple[WatchedObjects, LiveObject] | None = None
        made, reference = pod, cast("OwnerReference | None", owner)
        for objects in chain:
            if reference is None or reference.kind != objects.kind:
                return None
            found = await self._read(objects, namespace, reference, seen)
            if found is None or not objects.makes(found, made.metadata):
                return None
            parent = parent or (objects, found)
            made, reference = found, found.metadata.controller
        if parent is None:
            return None
        objects, controller = parent
        meta, spec = controller.metadata, controller.spec
        mode = spec.completion_mode if spec.completion_mode == INDEXED else None
        kept = LiveSpec(completions=spec.completions, completion_mode=mode, replicas=spec.replicas)
        return _Parent(
            objects=objects,
            object=LiveObject(metadata=LiveMeta(name=meta.name, uid=meta.uid), spec=kept),
            restart_attempt=restart_attempt(meta),
            job_uid=made.metadata.uid,
            job_name=made.metadata.name,
        )

    async def _read(
        self, objects: WatchedObjects, namespace: str, reference: OwnerReference, seen: _Seen
    ) -> LiveObject | None:
        if not objects.is_read:
            return LiveObject(metadata=LiveMeta(name=reference.name, uid=reference.uid))
        key = objects.api, reference.uid
        if key not in seen:
            seen[key] = await self._get(objects.in_namespace(namespace), reference.name, reference.uid)
        return seen[key]

    async def _get(self, collection: str, name: str, uid: str) -> LiveObject | None:
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
        found = await decode(_LIVE, body)
        return found if found.metadata.uid == uid else None
