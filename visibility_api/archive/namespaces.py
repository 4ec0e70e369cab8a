"""The uids of namespaces: one that is made anew under the same name is another tenant's, perhaps."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import msgspec
from cachetools import TTLCache

from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError

MAX_KNOWN, KNOWN_S = 10_000, 5.0


class Identity(msgspec.Struct, rename="camel"):
    """Of one namespace."""

    uid: str = ""
    creation_timestamp: datetime | None = None


class _Namespace(msgspec.Struct):
    metadata: Identity


class Namespaces:
    """Needs the right to get namespaces."""

    def __init__(self, client: KubeClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._known: TTLCache[str, Identity] = TTLCache(MAX_KNOWN, KNOWN_S, timer=clock)

    async def find(self, name: str) -> Identity | None:
        """None for a namespace that does not exist, which may be made anew at once. Raises ClusterError."""
        if (known := self._known.get(name)) is not None:
            return known
        try:
            body = await self._client.get(f"/api/v1/namespaces/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        try:
            found = msgspec.json.decode(body, type=_Namespace).metadata
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the namespace {name} cannot be read") from error
        self._known[name] = found
        return found
