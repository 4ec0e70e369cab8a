"""The kubelet: registers a node, and starts, reports and ends the pods that are bound to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

import aiohttp
import structlog

from localcluster.kubelet.containers import Container, ExecProcess
from localcluster.kubelet.pod_worker import PodWorker
from localcluster.kubelet.volumes import prepare_volumes
from localcluster.machinery.client import ApiClient, Reflector
from localcluster.machinery.metadata import Object, is_terminating, key_of, timestamp, uid_of
from localcluster.machinery.node_agent import ExecError, LogQuery
from localcluster.machinery.status import ApiError, bad_request

ADDRESS = "127.0.0.1"  # the node's, and by default its pods'
RETRY_S = 0.5
END_WAIT_S = 30.0
FINISHED = ("Succeeded", "Failed")
EVERYTHING = LogQuery()
_T = TypeVar("_T")
log = structlog.get_logger()


class Kubelet:
    """`async with` it: registers the node, runs its pods, and kills them all at the end."""

    def __init__(
        self,
        client: ApiClient,
        directory: Path,
        *,
        node_name: str = "local-node",
        port: int = 0,
        pod_ip: str = ADDRESS,
    ) -> None:
        """`port` is where something serves exec and logs for a real kube-apiserver; 0 = nowhere.

        Every pod has the address `pod_ip`, which is an address of this machine.
        """
        self.node_name = node_name
        self._client = client
        self._directory = directory.resolve()
        self._port = port
        self._addresses = {"hostIP": ADDRESS, "podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
        self._workers: dict[str, PodWorker] = {}  # by pod uid
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reports: dict[str, asyncio.Event] = {}
        self._pods = Reflector(client, "pods", self._observe, fieldSelector=f"spec.nodeName={node_name}")
        self._main: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.register()
        self._main = asyncio.create_task(self._pods.run(), name=f"kubelet {self.node_name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._main, *self._tasks.values()) if task]
        for task in tasks:
            task.cancel()
        for worker in self._workers.values():
            worker.kill()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def exec(self, namespace: str, pod: str, container: str, argv: Sequence[str]) -> ExecProcess:
        """Start a command in a running container; ExecError when that cannot be done."""
        try:
            return await self._container(namespace, pod, container).exec(argv)
        except ApiError as error:
            raise ExecError("InternalError", f'container not found ("{container}")') from error

    async def logs(self, namespace: str, pod: str, container: str, query: LogQuery = EVERYTHING) -> bytes:
        """The log as it is now, at most container_log.MAX_LOG_BYTES; ApiError 400 when there is none."""
        return b"".join([chunk async for chunk in self.stream_logs(namespace, pod, container, query)])

    async def stream_logs(
        self, namespace: str, pod: str, container: str, query: LogQuery
    ) -> AsyncIterator[bytes]:
        """A part of a log, in pieces. Raises ApiError 400 when there is none."""
        found = self._container(namespace, pod, container)
        chosen = found.previous_log if query.previous else found.log
        if chosen is None and query.previous:
            raise bad_request(f'previous terminated container "{container}" in pod "{pod}" not found')
        if chosen is None:
            raise bad_request(
                f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            )
        async for chunk in chosen.read(query):
            yield chunk

    def kill(
        self, namespace: str, pod: str, number: int, *, container: str = "", reason: str | None = None
    ) -> None:
        """Signal the pod's processes from outside, as the kernel's OOM killer does (`reason="OOMKilled"`)."""
        self._worker(namespace, pod).kill(number, container=container, reason=reason)

    def root(self, namespace: str, pod: str, container: str) -> Path:
        """The directory that stands for the container's filesystem."""
        return self._container(namespace, pod, container).root

    def _worker(self, namespace: str, pod: str) -> PodWorker:
        found = self._pods.objects.get((namespace, pod))
        worker = self._workers.get(uid_of(found)) if found else None
        if worker is None:
            raise bad_request(f'pod "{pod}" is waiting to start: ContainerCreating')
        return worker

    def _container(self, namespace: str, pod: str, name: str) -> Container:
        found = self._worker(namespace, pod).container(name)
        if found is None:
            raise bad_request(f"container {name} is not valid for pod {pod}")
        return found

    async def register(self) -> None:
        """Create the Node with condition Ready. Once is enough: nothing here times nodes out."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node_name}}
        labels = {"kubernetes.io/hostname": self.node_name, "kubernetes.io/os": "linux"}
        await self._client.create_missing(
            "nodes", node | {"metadata": {"name": self.node_name, "labels": labels}}
        )
        now = timestamp()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        status: Object = {
            "addresses": [
                {"type": "InternalIP", "address": ADDRESS},
                {"type": "Hostname", "address": "localhost"},
            ],
            "conditions": [ready | {"lastHeartbeatTime": now, "lastTransitionTime": now}],
            "capacity": {"cpu": "64", "memory": "64Gi", "pods": "1000"},
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "1000"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        await self._client.patch("nodes", self.node_name, {"status": status}, subresource="status")

    def _observe(self, kind: str, pod: Object) -> None:
        uid = uid_of(pod)
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker:
                worker.kill()
            if task := self._tasks.get(uid):
                task.cancel()
        elif worker:
            worker.pod = worker.pod | {"metadata": pod["metadata"]}
            if is_terminating(pod):
                self._start(f"{uid}/stop", self._end(worker))
        elif is_terminating(pod):
            self._start(f"{uid}/stop", self._remove(pod))
        elif pod["status"].get("phase") not in FINISHED and uid not in self._tasks:
            self._start(uid, self._run_pod(pod))

    def _start(self, name: str, work: object) -> None:
        if name in self._tasks:
            work.close()  # type: ignore[attr-defined]
            return
        task = self._tasks[name] = asyncio.create_task(work, name=f"pod {name}")  # type: ignore[arg-type]
        task.add_done_callback(lambda done: self._forget(name, done))

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        if not task.cancelled() and (error := task.exception()):
            where = traceback.format_tb(error.__traceback__, limit=-1)
            log.error("pod task failed", task=name, error=repr(error), where=where)

    async def _run_pod(self, pod: Object) -> None:
        """Run a pod from start to deletion; its directory is removed with it."""
        namespace, name = key_of(pod)
        pod = pod | {"status": pod["status"] | self._addresses}
        directory = self._directory / f"{namespace}_{name}_{uid_of(pod)}"
        dirty = asyncio.Event()
        try:
            volumes = await self._retried(lambda: prepare_volumes(self._client, pod, directory))
            variables = await self._retried(lambda: self._referenced_variables(pod))
            worker = PodWorker(pod, directory, variables, volumes, dirty.set)
            self._workers[worker.uid] = worker
            current = self._pods.objects.get(key_of(pod))
            if current is not None and is_terminating(current):  # deleted while its volumes were made
                self._start(f"{worker.uid}/stop", self._end(worker))
            async with asyncio.TaskGroup() as group:
                reporter = group.create_task(self._keep_reporting(worker, dirty), name=f"status of {name}")
                await worker.run()
                await self._report(worker)
                reporter.cancel()
            await asyncio.Event().wait()  # the log stays readable until the pod is deleted
        finally:
            if running := self._workers.pop(uid_of(pod), None):
                running.kill()
            shutil.rmtree(directory, ignore_errors=True)

    async def _keep_reporting(self, worker: PodWorker, dirty: asyncio.Event) -> None:
        while True:
            await dirty.wait()
            dirty.clear()
            await self._report(worker)

    async def _report(self, worker: PodWorker) -> None:
        """Write the pod's status, retrying until it succeeds or the pod is deleted."""
        async with worker.reporting:  # of two at a time the older one could arrive last
            await self._write_status(worker)

    async def _write_status(self, worker: PodWorker) -> None:
        namespace, name = key_of(worker.pod)
        while True:
            current = self._pods.objects.get((namespace, name))
            if current is None or uid_of(current) != worker.uid:
                return
            status = worker.status(current.get("status", {}))
            try:
                patch = {"metadata": {"uid": worker.uid}, "status": status}
                await self._client.patch("pods", name, patch, namespace, subresource="status")
                return
            except ApiError as error:
                if error.reason in ("NotFound", "Conflict"):
                    return
                log.warning("pod status refused", pod=name, code=error.code, reason=error.reason)
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_S)

    async def _end(self, worker: PodWorker) -> None:
        """Graceful deletion: processes first, their final status, then the pod object."""
        await worker.stop(float(worker.pod["metadata"].get("deletionGracePeriodSeconds") or 0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_WAIT_S):
                await worker.ended.wait()
        await self._report(worker)
        await self._remove(worker.pod)

    async def _remove(self, pod: Object) -> None:
        namespace, name = key_of(pod)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid_of(pod)}}
        while True:
            try:
                await self._client.delete("pods", name, namespace, **options)
                return
            except ApiError as error:
                if error.reason in ("NotFound", "Conflict"):
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_S)

    async def _referenced_variables(self, pod: Object) -> dict[str, dict[str, str]]:
        """Environment values that come from Secrets and ConfigMaps, by container."""
        found: dict[str, dict[str, str]] = {}
        namespace = key_of(pod)[0]
        for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
            for entry in container.get("env") or []:
                source = entry.get("valueFrom") or {}
                for field, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
                    if field in source:
                        stored = await self._client.get(plural, source[field]["name"], namespace)
                        value = stored["data"][source[field]["key"]]
                        plain = base64.b64decode(value).decode() if plural == "secrets" else value
                        found.setdefault(container["name"], {})[entry["name"]] = plain
        return found

    async def _retried(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Retry until the objects a pod refers to exist, as a kubelet does."""
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, KeyError):
                return await work()
            await asyncio.sleep(RETRY_S)
