"""Which kinds of objects kube-apiserver serves now. A CRD may come and go while this process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError

from .kind import WatchedObjects

PERIOD_S = 30.0  # as a watch of something that is not served tries again
TIMEOUT_S = 10.0
MAX_BYTES = 1024 * 1024


class _Resource(msgspec.Struct):
    name: str = ""


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


class Presence:
    """Asks once for each group and version, whatever it serves, every `PERIOD_S`."""

    def __init__(
        self,
        client: KubeClient,
        asked: Iterable[WatchedObjects],
        needed: Mapping[WatchedObjects, Sequence[WatchedObjects]],
    ) -> None:
        """`needed`: for a collection those of which one at least must be served, or it is of no use."""
        self._client = client
        self._served: dict[str, Collection[str] | None] = {}  # plurals by API; None: not known
        self._missed: set[str] = set()  # APIs that were served, and for which the last answer was 404
        self._changed = asyncio.Event()
        self.ask_for(asked, needed)

    def ask_for(
        self, asked: Iterable[WatchedObjects], needed: Mapping[WatchedObjects, Sequence[WatchedObjects]]
    ) -> None:
        """From now on, for these."""
        self._apis = tuple(dict.fromkeys(each.api for each in asked))
        self._needed = needed

    def is_served(self, objects: WatchedObjects) -> bool:
        """Whether kube-apiserver serves it, as far as it has been asked. True if it did not say."""
        served = self._served.get(objects.api, ())
        return served is None or objects.plural in served

    def is_absent(self, objects: WatchedObjects) -> bool:
        """Whether kube-apiserver said that it does not serve it. False until it was asked."""
        return objects.api in self._served and not self.is_served(objects)

    def is_assumed(self, objects: WatchedObjects) -> bool:
        """Whether these are watched in any case."""
        return objects not in self._needed

    async def find(self, objects: WatchedObjects) -> bool:
        """Whether a watch of these is of use. Waits for the first answer."""
        needed = self._needed.get(objects)
        if needed is None:
            return True
        while any(each.api not in self._served for each in needed):
            await self.wait()
        return any(map(self.is_served, needed))

    async def until_served(self, objects: WatchedObjects) -> None:
        """Until a watch of these is of use."""
        while not await self.find(objects):
            await self.wait()

    async def until_absent(self, objects: WatchedObjects) -> None:
        """Until a watch of these is of no use."""
        while await self.find(objects):
            await self.wait()

    async def wait(self) -> None:
        """Until kube-apiserver was asked again."""
        await self._changed.wait()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(PERIOD_S)

    async def ask(self) -> None:
        """Ask now."""
        apis = self._apis
        found = await asyncio.gather(*map(self._ask, apis))
        if apis is self._apis:
            self._served = dict(zip(apis, found, strict=True))
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def _ask(self, api: str) -> Collection[str] | None:
        known = self._served.get(api)
        try:
            body = await self._client.get(api, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)
            found = frozenset(each.name for each in msgspec.json.decode(body, type=_ResourceList).resources)
            self._missed.discard(api)
            return found
        except ApiError as error:
            if error.status != 404:
                return known
            if known and api not in self._missed:  # all its jobs would end with it: ask again
                self._missed.add(api)
                return known
            return ()
        except (ClusterError, msgspec.MsgspecError):
            return known
