"""All controllers in one work queue: reads objects, compares them with what they should be, and writes."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

import aiohttp
import structlog

from localcluster.controllers import jobs, jobsets, trainjobs
from localcluster.controllers.runtimes import RUNTIMES
from localcluster.machinery.client import ApiClient, Reflector
from localcluster.machinery.metadata import (
    Object,
    ObjectKey,
    condition_is,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    uid_of,
)
from localcluster.machinery.selectors import match_labels
from localcluster.machinery.status import ApiError

RETRY_S = 0.2
WATCHED = (
    "trainjobs",
    "jobsets",
    "jobs",
    "pods",
    "nodes",
    "clustertrainingruntimes",
    "trainingruntimes",
    "clusterroles",
    "namespaces",
)
OWNER_PLURALS = {"TrainJob": "trainjobs", "JobSet": "jobsets", "Job": "jobs"}
CHILD_PLURALS = {"trainjobs": "jobsets", "jobsets": "jobs", "jobs": "pods"}
_Task = tuple[str, ObjectKey]
log = structlog.get_logger()


class Controllers:
    """`async with` it. One queue, one worker: a key is reconciled again when it or a child of it changes."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._queue: asyncio.Queue[_Task] = asyncio.Queue()
        self._queued: set[_Task] = set()
        self._reflectors = {plural: Reflector(client, plural, self._observer(plural)) for plural in WATCHED}
        self._owned: dict[tuple[str, str], set[ObjectKey]] = {}  # by plural of the child and uid of its owner
        self._tasks: list[asyncio.Task[None]] = []
        self._reconcilers: dict[str, Callable[[Object], Awaitable[None]]] = {
            "trainjobs": self._reconcile_train_job,
            "jobsets": self._reconcile_jobset,
            "jobs": self._reconcile_job,
            "pods": self._reconcile_pod,
            "clusterroles": self._reconcile_cluster_role,
            "namespaces": self._reconcile_namespace,
        }

    async def __aenter__(self) -> Self:
        await install_runtimes(self._client)
        for plural, reflector in self._reflectors.items():
            self._tasks.append(asyncio.create_task(reflector.run(), name=f"reflector {plural}"))
        self._tasks.append(asyncio.create_task(self._work(), name="controllers"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _observer(self, plural: str) -> Callable[[str, Object], None]:
        def observe(kind: str, thing: Object) -> None:
            self._enqueue(plural, key_of(thing))
            owner = controller_of(thing)
            if owner and owner["kind"] in OWNER_PLURALS:
                owned = self._owned.setdefault((plural, owner["uid"]), set())
                (owned.discard if kind == "DELETED" else owned.add)(key_of(thing))
                self._enqueue(OWNER_PLURALS[owner["kind"]], (key_of(thing)[0], owner["name"]))
            if kind == "DELETED" and plural in CHILD_PLURALS:
                for child in self._children(CHILD_PLURALS[plural], thing):
                    self._enqueue(CHILD_PLURALS[plural], key_of(child))
                self._owned.pop((CHILD_PLURALS[plural], uid_of(thing)), None)
            waiting = {
                "nodes": "pods",
                "clustertrainingruntimes": "trainjobs",
                "trainingruntimes": "trainjobs",
            }
            if plural in waiting and kind == "ADDED":
                for key in self._reflectors[waiting[plural]].objects:
                    self._enqueue(waiting[plural], key)
            if plural == "clusterroles":
                for role in self._reflectors[plural].objects.values():
                    if "aggregationRule" in role:
                        self._enqueue(plural, key_of(role))

        return observe

    def _enqueue(self, plural: str, key: ObjectKey) -> None:
        if plural in self._reconcilers and (plural, key) not in self._queued:
            self._queued.add((plural, key))
            self._queue.put_nowait((plural, key))

    async def _work(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        while True:
            plural, key = task = await self._queue.get()
            self._queued.discard(task)
            thing = self._reflectors[plural].objects.get(key)
            if thing is None:
                continue
            try:
                await self._reconcilers[plural](thing)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = getattr(error, "reason", type(error).__name__)
                log.debug("trying again", resource=plural, name=key[1], reason=str(reason))
                asyncio.get_running_loop().call_later(RETRY_S, self._enqueue, plural, key)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                where = traceback.format_tb(error.__traceback__, limit=-1)
                log.error(
                    "cannot reconcile object",
                    resource=plural,
                    name=key[1],
                    error=repr(error),
                    where=where,
                )

    def _children(self, plural: str, owner: Object) -> list[Object]:
        found, keys = self._reflectors[plural].objects, self._owned.get((plural, uid_of(owner)), set())
        return [found[key] for key in sorted(keys & found.keys()) if _is_owned(found[key], uid_of(owner))]

    async def _create(self, plural: str, bodies: Iterable[Object]) -> None:
        for body in bodies:
            self._reflectors[plural].remember(await self._client.create(plural, body))

    async def _patch(self, plural: str, thing: Object, patch: Object, subresource: str = "") -> None:
        namespace, name = key_of(thing)
        answer = await self._client.patch(plural, name, patch, namespace, subresource=subresource)
        self._reflectors[plural].remember(answer)

    async def _update_status(self, plural: str, thing: Object, status: Object) -> None:
        if status != (thing.get("status") or {}):
            await self._patch(
                plural, thing, {"status": _as_merge_patch(thing.get("status") or {}, status)}, "status"
            )

    async def _delete(self, plural: str, things: Iterable[Object]) -> None:
        for thing in things:
            if is_terminating(thing):
                continue
            namespace, name = key_of(thing)
            with _not_found_is_fine():
                preconditions = {"uid": uid_of(thing)}
                await self._client.delete(
                    plural, name, namespace, preconditions=preconditions, propagationPolicy="Background"
                )

    async def _is_orphan(self, plural: str, thing: Object) -> bool:
        """True when the controlling owner is gone; the object is deleted then.

        A real cluster's garbage collector does this too, kube-apiserver alone does not.
        """
        owner = controller_of(thing)
        if owner is None or owner["kind"] not in OWNER_PLURALS:
            return False
        if owner["apiVersion"].startswith("batch.volcano.sh/"):  # another kind of that name
            return False
        owner_plural, namespace = OWNER_PLURALS[owner["kind"]], key_of(thing)[0]
        known = self._reflectors[owner_plural].objects.get((namespace, owner["name"]))
        if known is not None and uid_of(known) == owner["uid"]:
            return False
        try:
            known = await self._client.get(owner_plural, owner["name"], namespace)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            known = None
        if known is not None and uid_of(known) == owner["uid"]:
            return False
        await self._delete(plural, [thing])
        return True

    async def _reconcile_train_job(self, train_job: Object) -> None:
        if is_terminating(train_job) or ("managedBy" in train_job["spec"] and not _is_ours(train_job)):
            return
        runtime = self._runtime(train_job)
        jobset = next(iter(self._children("jobsets", train_job)), None)
        finished = any(condition_is(train_job, kind) for kind in ("Complete", "Failed"))
        if jobset is None:
            if runtime is not None and not finished:
                await self._create("jobsets", [trainjobs.jobset_for(train_job, runtime)])
            return
        suspend = bool(train_job["spec"].get("suspend", False))
        if bool(jobset["spec"].get("suspend", False)) != suspend and not finished:
            await self._patch("jobsets", jobset, {"spec": {"suspend": suspend}})
        await self._update_status("trainjobs", train_job, trainjobs.train_job_status(train_job, jobset))

    def _runtime(self, train_job: Object) -> Object | None:
        reference = train_job["spec"]["runtimeRef"]
        if reference.get("kind", "ClusterTrainingRuntime") == "ClusterTrainingRuntime":
            return self._reflectors["clustertrainingruntimes"].objects.get(("", reference["name"]))
        return self._reflectors["trainingruntimes"].objects.get((key_of(train_job)[0], reference["name"]))

    async def _reconcile_jobset(self, jobset: Object) -> None:
        if is_terminating(jobset) or await self._is_orphan("jobsets", jobset):
            return
        attempt = str(jobsets.restarts_of(jobset))
        children = self._children("jobs", jobset)
        current = [job for job in children if labels_of(job)[jobsets.RESTART_ATTEMPT] == attempt]
        await self._delete("jobs", [job for job in children if job not in current])
        if jobsets.is_finished(jobset):
            await self._delete("jobs", [job for job in current if not jobsets.is_finished(job)])
            return
        present = {key_of(job) for job in current}
        wanted = jobsets.wanted_jobs(jobset, current)
        await self._create("jobs", [job for job in wanted if key_of(job) not in present])
        suspend = bool(jobset["spec"].get("suspend", False))
        for job in current:
            if bool(job["spec"].get("suspend", False)) != suspend and not jobsets.is_finished(job):
                await self._patch("jobs", job, {"spec": {"suspend": suspend}})
        await self._update_status("jobsets", jobset, jobsets.jobset_status(jobset, current))

    async def _reconcile_job(self, job: Object) -> None:
        if is_terminating(job) or await self._is_orphan("jobs", job) or jobsets.is_finished(job):
            return
        pods = self._children("pods", job)
        status = jobs.job_status(job, pods)
        ends = any(condition_is({"status": status}, kind) for kind in ("FailureTarget", "SuccessCriteriaMet"))
        if ends or job["spec"].get("suspend"):
            await self._delete("pods", [pod for pod in pods if jobs.is_active(pod)])
        else:
            await self._create("pods", jobs.pods_to_create(job, pods))
        await self._update_status("jobs", job, status)

    async def _reconcile_pod(self, pod: Object) -> None:
        if is_terminating(pod) or await self._is_orphan("pods", pod) or pod["spec"].get("nodeName"):
            return
        nodes = [node for node in self._reflectors["nodes"].objects.values() if condition_is(node, "Ready")]
        if nodes:
            namespace, name = key_of(pod)
            target = {"apiVersion": "v1", "kind": "Node", "name": nodes[0]["metadata"]["name"]}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            with _not_found_is_fine():
                await self._client.request(
                    "POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body
                )

    async def _reconcile_cluster_role(self, role: Object) -> None:
        """The rules of an aggregated role are those of all roles its selectors match."""
        if "aggregationRule" not in role:
            return
        selectors = [match_labels(each) for each in role["aggregationRule"].get("clusterRoleSelectors") or []]
        rules: list[Object] = []
        for other in sorted(self._reflectors["clusterroles"].objects.values(), key=key_of):
            if key_of(other) != key_of(role) and any(matches(other) for matches in selectors):
                rules += [rule for rule in other.get("rules") or [] if rule not in rules]
        if rules != (role.get("rules") or []):
            await self._patch("clusterroles", role, {"rules": rules})

    async def _reconcile_namespace(self, namespace: Object) -> None:
        if is_terminating(namespace):
            return
        meta = {"name": "default", "namespace": namespace["metadata"]["name"]}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        await self._client.create_missing("serviceaccounts", account)


async def install_runtimes(client: ApiClient) -> None:
    for runtime in RUNTIMES:
        await client.create_missing("clustertrainingruntimes", runtime)


def _is_owned(thing: Object, uid: str) -> bool:
    owner = controller_of(thing)
    return owner is not None and owner["uid"] == uid


def _is_ours(train_job: Object) -> bool:
    return bool(train_job["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller")


class _not_found_is_fine(contextlib.AbstractContextManager[None]):
    """Another client deleted or changed it first: nothing is left to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, ApiError) and error.reason in ("NotFound", "Conflict")


def _as_merge_patch(old: Object, new: Object) -> Object:
    """What differs in `new`, with nulls for what is removed. Other fields stay: they may have changed."""
    changed = {field: value for field, value in new.items() if field not in old or old[field] != value}
    return {**dict.fromkeys(old.keys() - new.keys()), **changed}
