"""The watches that keep an inventory of jobs up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from visibility_api.kube.client import KubeClient
from visibility_api.kube.separate import SeparateNamespaces
from visibility_api.kube.watch import Watch

from .inventory import Inventory
from .kind import WatchedObjects
from .objects import mark_unread


def job_watches(
    client: KubeClient,
    inventory: Inventory,
    namespaces: Sequence[str],
    *,
    count_unread: Callable[[str, str], None],
) -> list[Watch[Any]]:
    """A watch for each collection, of the whole cluster or one per namespace.

    Of what is made for a job only what may hold rank 0 is watched. `count_unread` is called with the plural
    and the reason for each object that is too large or cannot be decoded.
    """

    def make(objects: WatchedObjects, scope: str | None) -> Watch[Any]:
        separate: SeparateNamespaces[Watch[Any]] | None = None
        if scope is None:
            separate = SeparateNamespaces(partial(make, objects))
        return Watch(
            client,
            objects.path(scope),
            kind=objects.type,
            on_list=partial(inventory.list, objects, scope=scope, but=separate or ()),
            on_event=partial(inventory.change, objects),
            scope=scope,
            separate=separate,
            mark=mark_unread,
            count_unread=partial(count_unread, objects.plural),
            label_selector=objects.selector,
        )

    return [make(objects, scope) for scope in namespaces or (None,) for objects in inventory.collections]
