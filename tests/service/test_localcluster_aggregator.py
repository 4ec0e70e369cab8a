"""The local cluster's aggregation layer in front of a small extension server that speaks real TLS."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from localcluster import LocalCluster
from localcluster.machinery.client import ApiClient
from localcluster.machinery.metadata import condition_is
from localcluster.machinery.pki import Authority, client_context, write_pair
from localcluster.machinery.status import ApiError
from tests.service.waiting import DEADLINE_S

GROUP, VERSION = "things.example.org", "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
KUBECTL = Path(sys.executable).with_name("kubectl")
WIDGET = {
    "kind": "Widget",
    "apiVersion": f"{GROUP}/{VERSION}",
    "metadata": {"name": "one", "namespace": "default"},
}
RESOURCES = [
    {
        "name": "widgets",
        "singularName": "widget",
        "namespaced": True,
        "kind": "Widget",
        "verbs": ["get", "list"],
    }
]
KIND = {"group": GROUP, "version": VERSION, "kind": "Widget"}
OPENAPI = {
    "openapi": "3.0.0",
    "info": {"title": "things", "version": "1"},
    "paths": {
        f"{ROOT}/namespaces/{{namespace}}/widgets/{{name}}": {
            "get": {"x-kubernetes-group-version-kind": KIND, "responses": {"200": {"description": "OK"}}}
        }
    },
    "components": {
        "schemas": {
            "org.example.Widget": {
                "type": "object",
                "description": "A widget is a thing.",
                "properties": {"size": {"type": "integer", "description": "How large it is."}},
                "x-kubernetes-group-version-kind": [KIND],
            }
        }
    },
}


@dataclass
class Extension:
    """What the extension server saw, and how it should behave."""

    port: int = 0
    speaks_aggregated_discovery: bool = True
    requests: list[tuple[str, web.Request]] = field(default_factory=list)
    peers: list[dict[str, object] | None] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def seen(self, path: str) -> web.Request:
        return next(request for seen, request in reversed(self.requests) if seen == path)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, request))
        assert request.transport
        self.peers.append(request.transport.get_extra_info("peercert"))
        if request.path == ROOT:
            return web.json_response(
                {"kind": "APIResourceList", "groupVersion": "v1", "resources": RESOURCES}
            )
        if request.path == "/openapi/v3":
            paths = {
                ROOT[1:]: {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=1"},
                "version": {"serverRelativeURL": "/"},
            }
            return web.json_response({"paths": paths})
        if request.path == f"/openapi/v3{ROOT}":
            return web.json_response(OPENAPI)
        if request.path == "/apis" and self.speaks_aggregated_discovery:
            resource = {
                "resource": "widgets",
                "responseKind": KIND,
                "scope": "Namespaced",
                "singularResource": "widget",
            }
            version = {
                "version": VERSION,
                "freshness": "Current",
                "resources": [resource | {"verbs": ["get", "list"]}],
            }
            item = {"metadata": {"name": GROUP}, "versions": [version]}
            body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [item]}
            return web.json_response(body)
        if request.path.endswith("/moved"):
            raise web.HTTPFound("/elsewhere")
        if "watch" in request.query:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(b'{"type":"ADDED"}\n')
            await self.more.wait()
            await response.write(b'{"type":"MODIFIED"}\n')
            return response
        if request.path.endswith("/widgets/one"):
            return web.json_response(WIDGET)
        return web.json_response({"kind": "Status"}, status=404)


@pytest.fixture
async def extension(cluster: LocalCluster, tmp_path: Path) -> AsyncIterator[Extension]:
    """The server, registered as an APIService through an ExternalName service."""
    served = Extension()
    authority = Authority("extension-ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        *write_pair(tmp_path, "extension", authority.issue_server(["things.default.svc"], []))
    )
    settings = await cluster.admin.get("configmaps", "extension-apiserver-authentication", "kube-system")
    context.load_verify_locations(cadata=settings["data"]["requestheader-client-ca-file"])
    context.verify_mode = ssl.CERT_OPTIONAL
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    served.port = runner.addresses[0][1]
    service = {"type": "ExternalName", "externalName": "127.0.0.1"}
    await cluster.admin.create(
        "services", {"metadata": {"name": "things", "namespace": "default"}, "spec": service}
    )
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": "things", "namespace": "default", "port": served.port},
        "caBundle": base64.b64encode(authority.certificate_pem).decode(),
    }
    await cluster.admin.create("apiservices", {"metadata": {"name": f"{VERSION}.{GROUP}"}, "spec": spec})
    await availability(cluster, "True")
    yield served
    await runner.cleanup()


async def availability(cluster: LocalCluster, status: str) -> dict[str, object]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await cluster.admin.get("apiservices", f"{VERSION}.{GROUP}")
            if condition_is(found, "Available", status):
                return dict(found["status"]["conditions"][0])
            await asyncio.sleep(0.02)


async def kubectl(cluster: LocalCluster, tmp_path: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(KUBECTL),
        f"--cache-dir={tmp_path / 'cache'}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig("admin"))},
    )
    out, _ = await process.communicate()
    return out.decode()


async def test_requests_arrive_as_their_user_under_the_proxys_certificate(
    cluster: LocalCluster, extension: Extension
) -> None:
    path = f"{ROOT}/namespaces/default/widgets/one"
    forged = {"X-Remote-User": "eve", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scope": "all"}
    async with cluster.admin.session.get(cluster.url + path, headers=forged) as response:
        assert await response.json() == WIDGET
    seen = extension.seen(path)
    assert seen.headers.getall("X-Remote-User") == ["kubernetes-admin"]
    assert seen.headers.getall("X-Remote-Group") == ["system:masters", "system:authenticated"]
    assert "X-Remote-Extra-Scope" not in seen.headers
    assert "X-Remote-Extra-Authentication.kubernetes.io%2Fcredential-Id" in seen.headers
    subject = (extension.peers[-1] or {})["subject"]
    assert subject == ((("commonName", "front-proxy-client"),),)


async def test_a_bearer_token_is_not_passed_on(cluster: LocalCluster, extension: Extension) -> None:
    await cluster.admin.create("namespaces", {"metadata": {"name": "own"}})
    cluster.add_token_user("tina", ["system:masters"])
    token = cluster.apiserver.authenticator.add_token(cluster_user("tina"))
    path = f"{ROOT}/namespaces/default/widgets/one"
    async with ApiClient(cluster.url, client_context(cluster.ca_file.read_text()), token) as tina:
        assert (await tina.request("GET", path))["metadata"]["name"] == "one"
    assert "Authorization" not in extension.seen(path).headers


def cluster_user(name: str):  # noqa: ANN201 - one line of set-up
    from localcluster.apiserver.identity import User

    return User(name=name, groups=("system:masters",))


async def test_rbac_refuses_before_anything_is_proxied(cluster: LocalCluster, extension: Extension) -> None:
    path = f"{ROOT}/namespaces/default/widgets"
    async with ApiClient(cluster.url, client_context(cluster.ca_file.read_text())) as anonymous:
        with pytest.raises(
            ApiError, match=f'User "system:anonymous" cannot list resource "widgets" in API group "{GROUP}"'
        ):
            await anonymous.request("GET", path)
    assert all(seen != path for seen, _ in extension.requests)


async def test_a_watch_streams_event_by_event(cluster: LocalCluster, extension: Extension) -> None:
    url = f"{cluster.url}{ROOT}/namespaces/default/widgets?watch=true"
    async with asyncio.timeout(DEADLINE_S), cluster.admin.session.get(url) as response:
        assert await response.content.readline() == b'{"type":"ADDED"}\n'
        extension.more.set()
        assert await response.content.readline() == b'{"type":"MODIFIED"}\n'


async def test_discovery_and_explain_show_the_aggregated_group(
    cluster: LocalCluster, extension: Extension, tmp_path: Path
) -> None:
    assert "things.example.org/v1" in await kubectl(cluster, tmp_path, "api-resources", "--api-group", GROUP)
    explained = await kubectl(cluster, tmp_path, "explain", f"widgets.{GROUP}")
    assert "A widget is a thing." in explained
    assert "How large it is." in explained
    root = await cluster.admin.request("GET", "/openapi/v3")
    assert ROOT[1:] in root["paths"]
    assert "version" not in root["paths"]  # a server speaks for its own group alone (O1)


async def test_an_unreachable_server_is_unavailable_and_answers_503(
    cluster: LocalCluster, extension: Extension
) -> None:
    service = {"spec": {"externalName": "127.0.0.2"}}  # nothing listens there
    await cluster.admin.patch("services", "things", service, "default")
    condition = await availability(cluster, "False")
    assert condition["reason"] == "FailedDiscoveryCheck"
    async with cluster.admin.session.get(f"{cluster.url}{ROOT}/namespaces/default/widgets/one") as response:
        assert (response.status, await response.text()) == (503, "service unavailable\n")
    await cluster.admin.delete("services", "things", "default")
    async with asyncio.timeout(DEADLINE_S):
        while (await availability(cluster, "False"))["reason"] != "ServiceNotFound":  # noqa: ASYNC110 - it happens behind an API
            await asyncio.sleep(0.02)


async def test_a_certificate_for_another_name_is_not_trusted(
    cluster: LocalCluster, extension: Extension
) -> None:
    await cluster.admin.create(
        "services",
        {
            "metadata": {"name": "other", "namespace": "default"},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        },
    )
    await cluster.admin.patch("apiservices", f"{VERSION}.{GROUP}", {"spec": {"service": {"name": "other"}}})
    assert (await availability(cluster, "False"))["reason"] == "FailedDiscoveryCheck"
