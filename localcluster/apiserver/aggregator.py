"""The aggregation layer: APIServices that are served elsewhere (A6-A9, D1, D9, D13-D16, O1, P4, P6, P14)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from localcluster.apiserver import discovery
from localcluster.apiserver.identity import User
from localcluster.apiserver.rbac import MASTERS
from localcluster.apiserver.registry import Registry
from localcluster.apiserver.responses import Call
from localcluster.apiserver.store import Change
from localcluster.machinery.metadata import Object, condition_is, key_of, with_condition
from localcluster.machinery.resources import BY_PLURAL, Resource
from localcluster.machinery.status import ApiError

CHECK_INTERVAL_S = 5.0  # the real one: 30 s, and on every change of Service or EndpointSlice
FAILING_INTERVAL_S = 1.0
CHECK_TIMEOUT = aiohttp.ClientTimeout(total=20)  # the real one: 5 s; here a machine may stand still
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5)
CHUNK_BYTES = 64 * 1024

APISERVICES, SERVICES = BY_PLURAL["apiservices"], BY_PLURAL["services"]
ENDPOINT_SLICES = BY_PLURAL["endpointslices"]
# The identities of kube-aggregator's own requests (D1, O1).
AVAILABILITY = User(name="system:kube-aggregator", groups=(MASTERS,))
DISCOVERY_FALLBACK = User(name="system:kube-aggregator")
OPENAPI = User(name="system:aggregator")

_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
}
_CREDENTIALS = ("authorization", "x-remote-", "impersonate-")
log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class _Backend:
    """One APIService with a service behind it, and what is known of it."""

    api_service: Object
    context: ssl.SSLContext
    discovered: Object | None = None
    etag: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    watcher: asyncio.Task[None] | None = None

    @property
    def server_name(self) -> str:
        """The DNS name that the certificate must have, whatever the address (P4)."""
        service = self.api_service["spec"]["service"]
        return f"{service['name']}.{service['namespace']}.svc"

    @property
    def group(self) -> str:
        return str(self.api_service["spec"]["group"])

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.api_service['spec']['version']}"


class _NotAvailable(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Aggregator:
    """Proxies the groups of APIServices to their servers, and sets their Available conditions."""

    def __init__(self, registry: Registry, front_proxy_pair: tuple[Path, Path]) -> None:
        self._registry = registry
        self._store = registry.store
        self._front_proxy_pair = front_proxy_pair
        self._backends: dict[str, _Backend] = {}  # by APIService name, VERSION.GROUP
        self._session: aiohttp.ClientSession | None = None
        self._store.listeners.append(self._observe)

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=90)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        for entry in self._store.entries(APISERVICES):
            self._adopt(entry.object)

    async def stop(self) -> None:
        tasks = [backend.watcher for backend in self._backends.values() if backend.watcher]
        self._backends.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session:
            await self._session.close()
            self._session = None

    def serves(self, group: str, version: str) -> bool:
        return f"{version}.{group}" in self._backends

    def merged_groups(self, own: list[Object]) -> list[Object]:
        """Aggregated discovery with the groups of all backends; Stale where one does not answer (D13)."""
        merged = list(own)
        for backend in self._backends.values():
            item = backend.discovered
            if item is None:
                version = {
                    "version": backend.api_service["spec"]["version"],
                    "resources": [],
                    "freshness": "Stale",
                }
                item = {"metadata": {"name": backend.group}, "versions": [version]}
            elif not self._is_available(backend):
                item = item | {"versions": [each | {"freshness": "Stale"} for each in item["versions"]]}
            merged.append(item)
        return merged

    async def openapi_paths(self) -> Object:
        """The entries of every backend's /openapi/v3, read anew each time."""
        paths: Object = {}
        for backend in list(self._backends.values()):
            with contextlib.suppress(_NotAvailable, aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
                answer = await self._fetch(backend, "/openapi/v3", OPENAPI)
                for key, value in answer[1].get("paths", {}).items():
                    if key.startswith(f"apis/{backend.group}"):  # a server describes its own group only (O1)
                        paths[key] = value
        return paths

    async def proxy(self, call: Call, group: str = "", version: str = "") -> web.StreamResponse:
        """Pass the request on as its user, and the answer back as it comes, unbuffered."""
        parts = call.info.path.strip("/").split("/")
        group, version = group or call.info.group or parts[1], version or call.info.version or parts[2]
        backend = self._backends[f"{version}.{group}"]
        if not self._is_available(backend):
            return web.Response(status=503, text="service unavailable\n")
        request = call.request
        body = await request.read() if request.can_read_body else None
        headers = _forwarded_headers(request, call.user)
        try:
            url = self._url(backend, request.rel_url.raw_path_qs)
            async with self._open().request(
                request.method,
                url,
                headers=headers,
                data=body,
                ssl=backend.context,
                server_hostname=backend.server_name,
                allow_redirects=False,
                skip_auto_headers=(
                    "Accept",
                    "Accept-Encoding",
                    "User-Agent",
                ),  # only what the client asked for
                timeout=NO_TIMEOUT,
            ) as answer:
                return await _relay(request, answer)
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ServerDisconnectedError,
            _NotAvailable,
            TimeoutError,
        ) as error:
            if request.transport is None:
                raise
            text = f"error trying to reach service: {error}"
            return web.Response(status=503, text=text)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise ApiError(503, "ServiceUnavailable", "apiserver is shutting down")
        return self._session

    def _is_available(self, backend: _Backend) -> bool:
        return condition_is(backend.api_service, "Available")

    def _observe(self, resource: Resource, change: Change) -> None:
        if resource is APISERVICES and self._session:
            name = change.entry.object["metadata"]["name"]
            if change.type == "DELETED":
                backend = self._backends.pop(name, None)
                if backend and backend.watcher:
                    backend.watcher.cancel()
            else:
                self._adopt(change.entry.object)
        elif resource in (SERVICES, ENDPOINT_SLICES):
            for backend in self._backends.values():
                backend.changed.set()

    def _adopt(self, api_service: Object) -> None:
        spec, name = api_service["spec"], api_service["metadata"]["name"]
        if not spec.get("service"):
            return
        backend = self._backends.get(name)
        if backend and backend.api_service["spec"] == spec:
            backend.api_service = api_service
            return
        context = self._context(spec)
        if backend is None:
            backend = self._backends[name] = _Backend(api_service=api_service, context=context)
            backend.watcher = asyncio.create_task(
                self._keep_checking(backend), name=f"availability of {name}"
            )
        backend.api_service, backend.context = api_service, context
        backend.changed.set()

    def _context(self, spec: Object) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if bundle := spec.get("caBundle"):
            context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        elif spec.get("insecureSkipTLSVerify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*self._front_proxy_pair)
        return context

    async def _keep_checking(self, backend: _Backend) -> None:
        while True:
            backend.changed.clear()
            try:
                await self._check(backend)
                condition = ("True", "Passed", "all checks passed")
            except _NotAvailable as error:
                condition = ("False", error.reason, str(error))
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, KeyError, TypeError) as error:
                text = f"failing or missing response from {backend.root}: {type(error).__name__}: {error}"
                condition = ("False", "FailedDiscoveryCheck", text)
            self._record(backend, *condition)
            interval_s = CHECK_INTERVAL_S if condition[0] == "True" else FAILING_INTERVAL_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await backend.changed.wait()

    async def _check(self, backend: _Backend) -> None:
        """D1, then aggregated discovery with the legacy document as fallback (D13)."""
        status, document, _ = await self._fetch(backend, backend.root, AVAILABILITY)
        if not 200 <= status < 300:
            text = (
                f"failing or missing response from {self._url(backend, backend.root)}: bad status: {status}"
            )
            raise _NotAvailable("FailedDiscoveryCheck", text)
        status, document, etag = await self._fetch(
            backend, "/apis", AVAILABILITY, discovery.AGGREGATED_CONTENT_TYPE, backend.etag
        )
        if status == 304:
            return
        if status == 200 and document.get("kind") == "APIGroupDiscoveryList":
            groups = {item["metadata"]["name"]: item for item in document["items"]}
            backend.discovered, backend.etag = groups.get(backend.group), etag
            return
        status, document, _ = await self._fetch(backend, backend.root, DISCOVERY_FALLBACK)
        if status == 200:
            version = backend.api_service["spec"]["version"]
            backend.discovered = discovery.from_legacy(document, backend.group, version)

    async def _fetch(
        self, backend: _Backend, path: str, user: User, accept: str = "application/json", etag: str = ""
    ) -> tuple[int, Object, str]:
        headers = _identity_headers(user)
        headers["Accept"], headers["Accept-Encoding"] = accept, "identity"
        if etag:
            headers["If-None-Match"] = etag
        async with self._open().get(
            self._url(backend, path),
            headers=headers,
            ssl=backend.context,
            server_hostname=backend.server_name,
            allow_redirects=False,
            timeout=CHECK_TIMEOUT,
        ) as answer:
            body = await answer.read()
            document = msgspec.json.decode(body) if answer.status == 200 else {}
            return answer.status, document, answer.headers.get("ETag", "")

    def _url(self, backend: _Backend, path_and_query: str) -> URL:
        """Where the service is: an ExternalName with the APIService's port, or a ready endpoint (D2, P6)."""
        wanted = backend.api_service["spec"]["service"]
        namespace, name, port = wanted["namespace"], wanted["name"], wanted["port"]
        entry = self._store.get(SERVICES, namespace, name)
        if entry is None:
            raise _NotAvailable("ServiceNotFound", f'service/{name} in "{namespace}" is not present')
        spec = entry.object["spec"]
        if spec.get("type") == "ExternalName":
            return URL(f"https://{spec['externalName']}:{port}{path_and_query}", encoded=True)
        port_name = next(
            (each.get("name", "") for each in spec.get("ports") or [] if each["port"] == port), None
        )
        if port_name is None:
            text = f'service/{name} in "{namespace}" is not listening on port {port}'
            raise _NotAvailable("ServicePortError", text)
        for found in self._store.entries(ENDPOINT_SLICES, namespace):
            labels = found.object["metadata"].get("labels") or {}
            ports = [each for each in found.object.get("ports") or [] if each.get("name", "") == port_name]
            if labels.get("kubernetes.io/service-name") != name or not ports:
                continue
            for endpoint in found.object.get("endpoints") or []:
                if (endpoint.get("conditions") or {}).get("ready", True):
                    return URL(
                        f"https://{endpoint['addresses'][0]}:{ports[0]['port']}{path_and_query}", encoded=True
                    )
        text = f'endpoints for service/{name} in "{namespace}" have no addresses with port name "{port_name}"'
        raise _NotAvailable("MissingEndpoints", text)

    def _record(self, backend: _Backend, status: str, reason: str, message: str) -> None:
        current = self._store.get(APISERVICES, *key_of(backend.api_service))
        if current is None:
            return
        old = (current.object.get("status") or {}).get("conditions")
        conditions = with_condition(old, "Available", status, reason, message)
        if conditions != old:
            log.info(
                "apiservice availability changed", apiservice=key_of(backend.api_service)[1], reason=reason
            )
            self._store.put(APISERVICES, current.object | {"status": {"conditions": conditions}})


def _identity_headers(user: User) -> CIMultiDict[str]:
    """One header line per group (A7); extra keys percent-encoded (A9)."""
    headers: CIMultiDict[str] = CIMultiDict({"X-Remote-User": user.name})
    if user.uid:
        headers["X-Remote-Uid"] = user.uid
    for group in user.groups:
        headers.add("X-Remote-Group", group)
    for key, values in user.extra.items():
        for value in values:
            headers.add(f"X-Remote-Extra-{quote(key, safe='')}", value)
    return headers


def _forwarded_headers(request: web.Request, user: User) -> CIMultiDict[str]:
    headers = _identity_headers(user)
    for name, value in request.headers.items():
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(_CREDENTIALS):
            headers.add(name, value)
    headers["X-Forwarded-For"] = request.remote or ""
    headers["X-Forwarded-Host"] = request.host
    headers["X-Forwarded-Proto"] = "https"
    headers["X-Forwarded-Uri"] = request.rel_url.raw_path
    return headers


async def _relay(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    if 300 <= answer.status < 400 and "Location" in answer.headers:
        return web.Response(
            status=502, text="the backend attempted to redirect this request, which is not permitted\n"
        )
    response = web.StreamResponse(status=answer.status)
    for name, value in answer.headers.items():
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith("access-control-"):
            response.headers.add(name, value)
    if "Content-Length" in answer.headers:
        response.content_length = int(answer.headers["Content-Length"])
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientPayloadError:  # the backend closed half-way: close this connection too
        if request.transport:
            request.transport.abort()
        return response
    await response.write_eof()
    return response
