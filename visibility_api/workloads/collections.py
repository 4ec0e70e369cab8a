"""The watches that keep an inventory of jobs up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.kube.decoding import ListPage
from visibility_api.kube.errors import ApiError
from visibility_api.kube.separate import SeparateNamespaces
from visibility_api.kube.watch import METADATA_LIST, Watch

from .inventory import Inventory
from .kind import WatchedObjects
from .objects import mark_unread
from .presence import Presence

T = TypeVar("T", bound=msgspec.Struct)

READ_S = 5.0  # of one object


class JobWatch(Watch[T]):
    """Runs while its objects are served; else there are none."""

    objects: WatchedObjects
    presence: Presence

    @property
    def is_awaited(self) -> bool:
        """Whether it is not known yet what there is. One that is refused costs only the kinds that may be
        absent."""
        if self.presence.is_assumed(self.objects):
            return not self.health.synced
        return not self.health.attempted

    async def run(self) -> None:
        if self.presence.is_assumed(self.objects):
            await super().run()
            return
        while True:
            if not await self.presence.find(self.objects):
                await self._on_list(in_slices(()))
                self.health.synced = self.health.attempted = True
                await self.presence.until_served(self.objects)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(super().run(), name=f"watch {self.path}")
                await self.presence.until_absent(self.objects)
                watching.cancel()
            self.reset()


class _Named(msgspec.Struct):
    class Meta(msgspec.Struct):
        uid: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)


_NAMED = msgspec.json.Decoder(ListPage[_Named])


async def is_there(client: KubeClient, own: Sequence[WatchedObjects], ref: JobRef) -> bool:
    """Whether kube-apiserver has this very job now, in one of these collections. It needs `list` alone.

    Raises ClusterError, and what msgspec raises."""
    query = (("fieldSelector", f"metadata.name={ref.name}"),)
    for objects in own:
        try:
            body = await client.get(
                objects.in_namespace(ref.namespace), query=query, timeout_s=READ_S, accept=METADATA_LIST
            )
        except ApiError as error:
            if error.status != 404:
                raise
            continue  # this version is not served
        if any(each.metadata.uid == ref.uid for each in _NAMED.decode(body).items or ()):
            return True
    return False


def job_watches(
    client: KubeClient,
    inventory: Inventory,
    presence: Presence,
    namespaces: Sequence[str],
    *,
    count_unread: Callable[[str, str], None],
) -> list[JobWatch[Any]]:
    """A watch for each collection, of the whole cluster or one per namespace.

    Of what is made for a job only what may hold rank 0 is watched. `count_unread` is called with its name
    and the reason for each object that is too large or cannot be decoded.
    """

    def make(objects: WatchedObjects, scope: str | None) -> JobWatch[Any]:
        separate: SeparateNamespaces[Any] | None = None
        if scope is None:
            separate = SeparateNamespaces(partial(make, objects))
        watch: JobWatch[Any] = JobWatch(
            client,
            objects.path(scope),
            kind=objects.type,
            on_list=partial(inventory.list, objects, scope=scope, but=separate or ()),
            on_event=partial(inventory.change, objects),
            scope=scope,
            separate=separate,
            mark=mark_unread,
            count_unread=partial(count_unread, objects.shown_as),
            label_selector=objects.selector,
        )
        watch.objects, watch.presence = objects, presence
        return watch

    return [make(objects, scope) for scope in namespaces or (None,) for objects in inventory.collections]
