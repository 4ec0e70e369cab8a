"""The CAs of kube-apiserver's front proxy, read by the real client and used in real handshakes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.certificates import Authority
from tests.service.fake_apiserver import fake_apiserver
from tests.service.tls_server import NAMES, running_server, until
from visibility_api.auth.request_header_config import CONFIG_MAPS, NAME


class FakeControlPlane:
    """Serves the ConfigMap (None: there is none) and its watch."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()  # None ends the watch

    def config_map(self, version: str = "1") -> dict[str, Any]:
        return {"metadata": {"name": NAME, "resourceVersion": version}, "data": self.data}

    def change(self, type_: str, data: dict[str, str] | None) -> None:
        self.data = data
        self._events.put_nowait({"type": type_, "object": self.config_map("2")})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.query)))
        if request.path == f"{CONFIG_MAPS}/{NAME}":
            if self.data is None:
                return web.json_response({"reason": "NotFound"}, status=404)
            return web.json_response(self.config_map())
        if request.query.get("watch") != "true":
            items = [] if self.data is None else [self.config_map()]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        stream = web.StreamResponse()
        await stream.prepare(request)
        while (event := await self._events.get()) is not None:
            await stream.write(json.dumps(event).encode() + b"\n")
        return stream

    def end(self) -> None:
        self._events.put_nowait(None)


async def test_the_config_map_is_followed_into_the_handshake_and_into_decisions(tmp_path: Path) -> None:
    """A3, A11, A12: absent at start, then there, then rotated, then gone."""
    old, new = Authority("front-proxy"), Authority("front-proxy")
    plane = FakeControlPlane()
    async with (
        fake_apiserver(plane.handle) as client,
        running_server(tmp_path) as server,
        asyncio.TaskGroup() as group,
    ):
        config = server.config
        await config.load(client, tolerate_failure=False)
        following = group.create_task(config.watch(client).run())

        async def ask_as_proxy_of(authority: Authority) -> dict[str, Any]:
            context = server.context(authority.issue("front-proxy-client"))
            async with server.connect(context) as connection:
                return await connection.ask("X-Remote-User: jane")

        assert (await ask_as_proxy_of(old))["user"] == "system:anonymous"
        plane.change("ADDED", {**NAMES, "requestheader-client-ca-file": old.pem})
        await until(lambda: config.trust.front_proxy is not None)
        assert (await ask_as_proxy_of(old))["user"] == "jane"
        before = config.trust
        plane.change("MODIFIED", {**NAMES, "requestheader-client-ca-file": new.pem})
        await until(lambda: config.trust is not before)
        assert (await ask_as_proxy_of(new))["user"] == "jane"
        plane.change("DELETED", None)
        assert (await ask_as_proxy_of(new))["user"] == "jane"
        following.cancel()
        plane.end()
    assert plane.requests[0] == (f"{CONFIG_MAPS}/{NAME}", {})
    assert all(query["fieldSelector"] == f"metadata.name={NAME}" for _, query in plane.requests[1:])
