"""Lists all pods of one job, which are not watched: memory and traffic grow with jobs, not with pods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.kube.decoding import UNDECODABLE, ListPage, decode
from visibility_api.kube.errors import ClusterError
from visibility_api.kube.object_reader import has_many_parts

from .failures import Replica
from .kind import AllPods
from .objects import AnyObject, Pod

MAX_PAGES = 16  # of a server that answers in pages
MAX_PAGE_BYTES = 32 * 1024 * 1024  # some 4,000 pods
TIMEOUT_S = 15.0  # of all pages
AT_A_TIME = 2  # jobs, one of a namespace; each is up to MAX_PAGE_BYTES of memory
MAX_WAITING = 100_000  # more than ever ask at a time: each of those who do has a bound of its own
MAX_LABELS_BYTES = 64 * 1024  # of a pod: a tenant may give it a megabyte, which takes 27 ms

# What `read` raises, and a limit of its time: they cannot be read now.
NOT_LISTED = (ClusterError, TimeoutError, *UNDECODABLE)

FindPods = Callable[[JobRef], AllPods | None]


class _Labels(msgspec.Struct, gc=False):
    labels: msgspec.Raw = msgspec.Raw(b"null")


class _Labelled(msgspec.Struct, gc=False):
    """The labels of a pod, of which `Pod` keeps but one."""

    metadata: _Labels


class PodLists:
    """`all_pods` says which pods are a job's."""

    def __init__(self, client: KubeClient, all_pods: FindPods) -> None:
        self._client = client
        self._all_pods = all_pods
        self._queues = ClientQueues(
            crowded="too many jobs wait to have their pods listed",
            max_running=AT_A_TIME,
            max_running_per_client=1,
            max_waiting=MAX_WAITING,
            max_waiting_per_client=MAX_WAITING,
        )
        self._page = msgspec.json.Decoder(ListPage[msgspec.Raw])
        self._pod = msgspec.json.Decoder(Pod)
        self._made = msgspec.json.Decoder(AnyObject)
        self._labelled = msgspec.json.Decoder(_Labelled)
        self._labels = msgspec.json.Decoder(dict[str, str] | None)

    async def read(self, ref: JobRef) -> AsyncGenerator[tuple[Pod, Replica]]:
        """Each pod that exists, and which replica it is.

        Namespaces take turns. Raises errors of NOT_LISTED.
        """
        pods = self._all_pods(ref)
        if pods is None:
            return
        async with self._queues.slot(ref.namespace):
            if (makers := pods.makers) is not None:
                path = makers.objects.in_namespace(ref.namespace)
                async with aclosing(self._list(path, makers.selector)) as made:
                    async for raw in made:
                        makers.note(self._made.decode(raw).metadata)
            async with aclosing(
                self._list(f"/api/v1/namespaces/{ref.namespace}/pods", pods.selector)
            ) as found:
                async for raw in found:
                    if has_many_parts(raw):
                        continue  # of rank 0's, the watch of pods says so
                    pod, labels = self._pod.decode(raw), self._labelled.decode(raw).metadata.labels
                    is_read = len(memoryview(labels)) <= MAX_LABELS_BYTES
                    replica = pods.replica(pod, (self._labels.decode(labels) if is_read else None) or {})
                    if replica is not None:
                        yield pod, replica

    async def _list(self, path: str, selector: str) -> AsyncGenerator[msgspec.Raw]:
        token = ""
        for _ in range(MAX_PAGES):
            body = await self._client.get(
                path,
                # From kube-apiserver's cache: etcd would read every object of the namespace.
                query=[
                    ("labelSelector", selector),
                    ("continue", token) if token else ("resourceVersion", "0"),
                ],
                timeout_s=TIMEOUT_S,
                max_bytes=MAX_PAGE_BYTES,
            )
            page = await decode(self._page, body)
            async for raw in in_slices(page.items or ()):
                yield raw
            token = page.metadata.cont
            if not token:
                break
