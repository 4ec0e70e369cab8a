"""One request's way in: connection, identity, authorization, and the handler it goes to."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import traceback
import uuid
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from localcluster.apiserver import bootstrap, discovery
from localcluster.apiserver.aggregator import Aggregator
from localcluster.apiserver.identity import Authenticator, User, impersonated
from localcluster.apiserver.negotiation import negotiate
from localcluster.apiserver.objects_api import ObjectsApi
from localcluster.apiserver.pod_api import PodApi
from localcluster.apiserver.rbac import Attributes, Authorizer
from localcluster.apiserver.registry import Registry
from localcluster.apiserver.request_info import parse_request
from localcluster.apiserver.responses import Call, attributes, json_response, status_response
from localcluster.apiserver.store import Store
from localcluster.machinery.metadata import Object
from localcluster.machinery.node_agent import NodeAgent
from localcluster.machinery.pki import Authority, write_pair
from localcluster.machinery.resources import Resource
from localcluster.machinery.status import ApiError, no_such_route

MAX_BODY_BYTES = 3 * 1024 * 1024  # P11
_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_IMPERSONATED = (("users", "", "name"), ("uids", "authentication.k8s.io", "uid"))

log = structlog.get_logger()


class ApiServer:
    """Serves one store over TLS on loopback. `start`, `stop` and `restart` keep the port."""

    def __init__(self, directory: Path, *, port: int = 0, bind_address: str = "127.0.0.1") -> None:
        """`directory` receives ca.crt, the serving pair and the front-proxy pair; it must exist."""
        self.directory = directory
        self.port = port
        self.client_authority = Authority("localcluster-ca")
        self.front_proxy_authority = Authority("localcluster-front-proxy-ca")
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_bytes(self.client_authority.certificate_pem)
        self._bind_address = bind_address
        self._runner: web.AppRunner | None = None
        self._node_agents: dict[str, NodeAgent] = {}
        self._tls = self._serving_context()
        self._front_proxy_pair = write_pair(
            directory, "front-proxy-client", self.front_proxy_authority.issue_client("front-proxy-client", [])
        )
        self._use(Store())
        bootstrap.fill(self.registry, self.proxy_settings())

    def _use(self, store: Store) -> None:
        """Build everything that hangs on the store."""
        self.store = store
        self.registry = Registry(store)
        self.authenticator = Authenticator(store)
        self.authorizer = Authorizer(store)
        self._objects = ObjectsApi(self.registry, self.authenticator, self.authorizer)
        self._pods = PodApi(self.registry, self.authorizer, self._node_agents)
        self._aggregator = Aggregator(self.registry, self._front_proxy_pair)

    @property
    def url(self) -> str:
        return f"https://{self._bind_address}:{self.port}"

    def add_node_agent(self, node_name: str, agent: NodeAgent) -> None:
        """Let `agent` serve exec and logs of that node's pods."""
        self._node_agents[node_name] = agent

    def proxy_settings(self) -> dict[str, str]:
        """The data of ConfigMap kube-system/extension-apiserver-authentication (A11)."""
        return {
            "client-ca-file": self.client_authority.certificate_pem.decode(),
            "requestheader-client-ca-file": self.front_proxy_authority.certificate_pem.decode(),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-allowed-names": '["front-proxy-client"]',
        }

    async def start(self) -> None:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.on_response_prepare.append(_add_common_headers)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # A handler ends with its client: an idle watch or exec does not outlive its connection (W22).
        self._runner = web.AppRunner(
            application, handler_cancellation=True, access_log=None, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._bind_address, self.port, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        await self._aggregator.start()

    async def stop(self) -> None:
        """Close the port and every connection, as when the process dies; the state stays in memory."""
        if self._runner:
            for site in list(self._runner.sites):
                await site.stop()  # first, or clients whose watches end connect again
        await self._aggregator.stop()
        self.store.end_subscriptions()
        if self._runner:
            open_transports = self._open_transports()
            await self._runner.cleanup()
            for transport in open_transports:
                # TLS would wait for the client's close_notify, after the loop may have ended. Python 3.11.2
                # fails for those that are closed already.
                with contextlib.suppress(AttributeError):
                    transport.abort()
            await asyncio.sleep(0)
            self._runner = None

    def _open_transports(self) -> list[asyncio.WriteTransport]:
        server = self._runner.server if self._runner else None
        transports = [handler.transport for handler in server.connections] if server else []
        return [transport for transport in transports if isinstance(transport, asyncio.WriteTransport)]

    async def restart(self, *, keep_state: bool = True) -> None:
        """Stop and start on the same port; without the state it is a new cluster, bootstrapped afresh."""
        await self.stop()
        if keep_state:
            self.store.compact()  # a new watch cache knows no history
        else:
            tokens = self.authenticator
            self._use(Store())
            self.authenticator.adopt_tokens(tokens)
            bootstrap.fill(self.registry, self.proxy_settings())
        await self.start()

    def cut_watches(self) -> None:
        """End every open watch without an event."""
        self.store.end_subscriptions()

    def compact(self) -> None:
        """Forget the history: open watches end with 410 Expired, and so do resumptions from before."""
        self.store.compact()

    def _serving_context(self) -> ssl.SSLContext:
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        pair = write_pair(
            self.directory, "apiserver", self.client_authority.issue_server(names, [self._bind_address])
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        # Unlike Go this verifies in the handshake: a foreign certificate fails the connection itself.
        context.load_verify_locations(cadata=self.client_authority.certificate_pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            response = await self._answer(request)
        except ApiError as error:
            response = status_response(error)
        except web.HTTPException:
            raise
        except ConnectionError:
            response = web.Response()  # the client has disconnected: nobody reads this
        except Exception as error:
            # Not log.exception: its traceback shows local variables, and those hold tokens.
            where = traceback.format_tb(error.__traceback__, limit=-2)
            log.error("request failed", path=request.path, error=type(error).__name__, where=where)
            response = status_response(ApiError(500, "InternalError", "Internal error occurred: see the log"))
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query = {key: request.query.getall(key)[0] for key in request.query}
        info = parse_request(request.method, request.rel_url.raw_path, query)
        user = self._impersonate(request, self._identify(request))
        if info.path not in _HEALTH_PATHS:
            self.authorizer.check(attributes(user, info))
        call = Call(request=request, info=info, user=user, query=query)
        if not info.is_resource:
            return await self._answer_path(call)
        if self._aggregator.serves(info.group, info.version):
            return await self._aggregator.proxy(call)
        resource = self.registry.resources.get((info.group, info.version, info.resource))
        if not any((row.group, row.version) == (info.group, info.version) for row in self._stored_rows()):
            return web.Response(status=404, text="404 page not found\n")
        if resource is None or (info.subresource and info.subresource not in resource.subresources):
            raise no_such_route()
        if info.subresource in ("exec", "log"):
            return await self._pods.answer(call)
        return await self._objects.answer(call, resource)

    def _identify(self, request: web.Request) -> User:
        transport = request.transport
        connection = transport.get_extra_info("ssl_object") if transport else None
        return self.authenticator.identify(connection, request.headers)

    def _impersonate(self, request: web.Request, user: User) -> User:
        wanted = impersonated(request.headers, request.headers.getall("Impersonate-Group", []))
        if wanted is None:
            return user
        needed = [(kind, group, getattr(wanted, field)) for kind, group, field in _IMPERSONATED]
        needed += [("groups", "", name) for name in request.headers.getall("Impersonate-Group", [])]
        for kind, group, name in needed:
            if name:
                self.authorizer.check(
                    Attributes(user=user, verb="impersonate", resource=kind, group=group, name=name)
                )
        return wanted

    async def _answer_path(self, call: Call) -> web.StreamResponse:
        path = call.info.path.rstrip("/") or "/"
        if path in _HEALTH_PATHS:
            return web.Response(text="ok")
        if path == "/version":
            return json_response(discovery.VERSION)
        if path in ("/api", "/apis"):
            return self._discovery_root(path, call.request)
        if path.startswith("/openapi/v3"):
            return await self._openapi(path.removeprefix("/openapi/v3").strip("/"), call)
        parts = path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) == 3 and self._aggregator.serves(parts[1], parts[2]):
            return await self._aggregator.proxy(call)
        if parts[0] in ("api", "apis") and len(parts) > 1:
            return json_response(self._legacy_discovery(parts))
        return web.Response(status=404, text="404 page not found\n")

    def _stored_rows(self) -> list[Resource]:
        return list(self.registry.resources.values())

    def _discovery_root(self, path: str, request: web.Request) -> web.StreamResponse:
        rows = [row for row in self._stored_rows() if bool(row.group) == (path == "/apis")]
        groups = discovery.aggregated_groups(rows)
        if path == "/apis":
            groups = self._aggregator.merged_groups(groups)
        if negotiate(request.headers.get("Accept", ""), ("APIGroupDiscoveryList",)).kind:
            body = msgspec.json.encode(discovery.aggregated_document(groups))
            etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
            headers = {"ETag": etag, "Vary": "Accept", "Cache-Control": "public"}
            if request.headers.get("If-None-Match") == etag:
                return web.Response(status=304, headers=headers)
            headers["Content-Type"] = discovery.AGGREGATED_CONTENT_TYPE
            return web.Response(body=body, headers=headers)
        if path == "/api":
            return json_response({"kind": "APIVersions", "versions": ["v1"]})
        legacy = [discovery.legacy_group(item) for item in groups]
        return json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": legacy})

    def _legacy_discovery(self, parts: list[str]) -> Object:
        if parts[0] == "apis" and len(parts) == 2:
            rows = [row for row in self._stored_rows() if row.group]
            groups = self._aggregator.merged_groups(discovery.aggregated_groups(rows))
            found = next((item for item in groups if item["metadata"]["name"] == parts[1]), None)
            if found:
                return {"kind": "APIGroup", "apiVersion": "v1"} | discovery.legacy_group(found)
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[-1])
        rows = [row for row in self._stored_rows() if (row.group, row.version) == (group, version)]
        if not rows or len(parts) > 3:
            raise no_such_route()
        return discovery.legacy_resources(rows, rows[0].api_version)

    async def _openapi(self, below: str, call: Call) -> web.StreamResponse:
        roots = {row.root.strip("/"): f"/openapi/v3{row.root}" for row in self._stored_rows()}
        if not below:
            paths = {root: {"serverRelativeURL": url} for root, url in roots.items()}
            return json_response({"paths": paths | await self._aggregator.openapi_paths()})
        if below in roots:
            rows = [row for row in self._stored_rows() if row.root.strip("/") == below]
            return json_response(discovery.openapi_v3(rows, "localcluster"))
        parts = below.split("/")
        if len(parts) == 3 and self._aggregator.serves(parts[1], parts[2]):
            return await self._aggregator.proxy(call, parts[1], parts[2])
        raise no_such_route()


async def _add_common_headers(request: web.Request, response: web.StreamResponse) -> None:
    """R15. Headers that an aggregated server has set stay."""
    response.headers.setdefault("Audit-Id", request.headers.get("Audit-Id") or str(uuid.uuid4()))
    response.headers.setdefault("Cache-Control", "no-cache, private")
