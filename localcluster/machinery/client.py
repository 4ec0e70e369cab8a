"""A small async Kubernetes client for raw dictionaries, and the list-then-watch loop on top of it.

Used by the controllers, the kubelet and tests; works against any API server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import structlog

from localcluster.machinery.metadata import Object, ObjectKey, key_of, uid_of
from localcluster.machinery.resources import BY_PLURAL
from localcluster.machinery.status import ApiError

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30)
WATCH_TIMEOUT_S = 300
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 3.0
MAX_EVENT_BYTES = 8 * 1024 * 1024
MERGE = "application/merge-patch+json"

log = structlog.get_logger()


class ApiClient:
    """`async with` it. Failures are ApiError with the server's code, reason and message."""

    def __init__(self, server: str, context: ssl.SSLContext, token: str | None = None) -> None:
        self.server = server
        self._context = context
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, read_bufsize=MAX_EVENT_BYTES
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the client inside `async with`")
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        """Any request with a JSON answer."""
        async with self.session.request(
            method,
            self.server + path,
            params=query,
            data=None if body is None else msgspec.json.encode(body),
            headers={"Accept": accept} | ({"Content-Type": content_type} if body is not None else {}),
            timeout=REQUEST_TIMEOUT,
        ) as response:
            content = await response.read()
            if response.status >= 400:
                raise _error(response.status, content)
            answer: Object = msgspec.json.decode(content)
            return answer

    async def get(self, plural: str, name: str, namespace: str = "") -> Object:
        return await self.request("GET", BY_PLURAL[plural].path(namespace, name))

    async def list(self, plural: str, namespace: str = "", **query: str) -> list[Object]:
        resource = BY_PLURAL[plural]
        answer = await self.request("GET", resource.path(namespace), query=query)
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [named | item for item in answer["items"]]

    async def create(self, plural: str, body: Object) -> Object:
        """In the namespace that the body's metadata names."""
        return await self.request("POST", BY_PLURAL[plural].path(body["metadata"].get("namespace", "")), body)

    async def patch(
        self, plural: str, name: str, patch: Object, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        """A JSON merge patch."""
        path = BY_PLURAL[plural].path(namespace, name, subresource)
        return await self.request("PATCH", path, patch, content_type=MERGE)

    async def delete(self, plural: str, name: str, namespace: str = "", **options: Any) -> Object:  # noqa: ANN401
        """`options` are fields of DeleteOptions, such as gracePeriodSeconds=0."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | options
        return await self.request("DELETE", BY_PLURAL[plural].path(namespace, name), body)

    async def create_missing(self, plural: str, body: Object) -> None:
        """Create unless it is there already."""
        try:
            await self.create(plural, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def watch(
        self, plural: str, namespace: str = "", **query: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """(type, object) until the stream ends; an ERROR event is raised as ApiError."""
        query = {"watch": "true", "timeoutSeconds": str(WATCH_TIMEOUT_S)} | query
        timeout = aiohttp.ClientTimeout(total=WATCH_TIMEOUT_S + 30)
        path = BY_PLURAL[plural].path(namespace)
        async with self.session.get(self.server + path, params=query, timeout=timeout) as response:
            if response.status >= 400:
                raise _error(response.status, await response.read())
            async for line in response.content:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise _error(event["object"].get("code", 500), line, event["object"])
                yield event["type"], event["object"]


def _error(code: int, content: bytes, status: Object | None = None) -> ApiError:
    try:
        status = status or msgspec.json.decode(content)
        return ApiError(code, status.get("reason", ""), status.get("message", ""), status.get("details"))
    except (msgspec.DecodeError, AttributeError):
        return ApiError(code, "", content[:1024].decode(errors="replace"))


class Reflector:
    """A copy of one collection, kept by list and watch; calls `on_change(type, object)`."""

    def __init__(
        self,
        client: ApiClient,
        plural: str,
        on_change: Callable[[str, Object], None] | None = None,
        **query: str,
    ) -> None:
        self.objects: dict[ObjectKey, Object] = {}
        self.synced = asyncio.Event()
        self._client = client
        self._plural = plural
        self._query = query
        self._on_change = on_change

    async def run(self) -> None:
        """Never ends by itself; outlives API server restarts."""
        retry_s = FIRST_RETRY_S
        while True:
            try:
                version = await self._relist()
                retry_s = FIRST_RETRY_S
                while True:
                    version = await self._follow(version)
            # DecodeError: the end of a stream came in the middle of an event.
            except (aiohttp.ClientError, TimeoutError, ApiError, OSError, msgspec.DecodeError) as error:
                log.debug("relisting", resource=self._plural, cause=type(error).__name__)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LAST_RETRY_S)

    async def _relist(self) -> str:
        resource = BY_PLURAL[self._plural]
        answer = await self._client.request("GET", resource.path(), query=self._query)
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        listed = {key_of(item): named | item for item in answer["items"]}
        for key in self.objects.keys() - listed.keys():
            self._take("DELETED", self.objects[key])
        for key, item in listed.items():
            if self.objects.get(key) != item:
                self._take("MODIFIED" if key in self.objects else "ADDED", item)
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> str:
        started = asyncio.get_running_loop().time()
        query = self._query | {"resourceVersion": version, "allowWatchBookmarks": "true"}
        async for kind, thing in self._client.watch(self._plural, **query):
            version = thing["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                self._take(kind, thing)
        if asyncio.get_running_loop().time() - started < 1:
            await asyncio.sleep(FIRST_RETRY_S)  # a server that is going away: do not spin
        return version

    def remember(self, thing: Object) -> None:
        """Take the result of a write, so that the next reconciliation does not read the state before it."""
        known = self.objects.get(key_of(thing))
        if known is None or _revision(known) < _revision(thing):
            self.objects[key_of(thing)] = thing
            # Notified at once: when the watch breaks before its event comes, a relist has no news of it.
            if self._on_change:
                self._on_change("ADDED" if known is None else "MODIFIED", thing)

    def _take(self, kind: str, thing: Object) -> None:
        known = self.objects.get(key_of(thing))
        if known is not None and _revision(known) > _revision(thing):
            # A write of ours was remembered before the watch delivered an older one;
            # the deletion of an older object of the same name is delivered all the same.
            if kind != "DELETED" or uid_of(known) == uid_of(thing):
                return
        elif kind == "DELETED":
            self.objects.pop(key_of(thing), None)
        else:
            self.objects[key_of(thing)] = thing
        if self._on_change:
            self._on_change(kind, thing)


def _revision(thing: Object) -> int:
    return int(thing["metadata"]["resourceVersion"])
