"""The uids of namespaces: one that is made anew under the same name is another tenant's, perhaps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec
from cachetools import TTLCache

from visibility_api.kube.errors import ApiError, ClusterError

MAX_KNOWN, KNOWN_S = 10_000, 30.0


class Client(Protocol):
    """The part of a Kubernetes client that is used here."""

    async def get(self, path: str) -> bytes: ...


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Metadata


class Namespaces:
    """Needs the right to get namespaces."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._known: TTLCache[str, str | None] = TTLCache(MAX_KNOWN, KNOWN_S, timer=clock)

    async def uid(self, name: str) -> str | None:
        """None for a namespace that does not exist. Raises ClusterError."""
        if name in self._known:
            return self._known[name]
        try:
            body = await self._client.get(f"/api/v1/namespaces/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            uid = None
        else:
            try:
                uid = msgspec.json.decode(body, type=_Namespace).metadata.uid or None
            except msgspec.MsgspecError as error:
                raise ClusterError(f"the namespace {name} cannot be read") from error
        self._known[name] = uid
        return uid
