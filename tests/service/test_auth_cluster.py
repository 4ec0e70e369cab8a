"""Authentication and authorisation through the real client, against a kube-apiserver on a real socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.certificates import Authority
from tests.service.fake_apiserver import fake_apiserver
from tests.service.tls_server import NAMES, running_server, until
from visibility_api.auth.access_review import PATH as ACCESS, AccessReviewer
from visibility_api.auth.errors import AccessDenied, CredentialRejected, ReviewFailed, TrustForbidden
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.auth.request_header_config import CONFIG_MAPS, NAME, RequestHeaderConfig
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH as TOKENS, TokenReviewer

METRICS = Attributes(verb="get", path="/metrics")
JANE = Identity(user="jane")


class FakeControlPlane:
    """Serves the ConfigMap (None: there is none) and its watch, and reviews by `verdicts`, path by path."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.data = data
        self.status = 200
        self.verdicts: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.posted: list[dict[str, Any]] = []
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()  # None ends the watch

    def config_map(self, version: str = "1") -> dict[str, Any]:
        return {"metadata": {"name": NAME, "resourceVersion": version}, "data": self.data}

    def change(self, type_: str, data: dict[str, str] | None) -> None:
        self.data = data
        self._events.put_nowait({"type": type_, "object": self.config_map("2")})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.query)))
        if self.status != 200:
            return web.json_response({"reason": "Forbidden", "message": "no"}, status=self.status)
        if request.method == "POST":
            self.posted.append(await request.json())
            return web.json_response({"status": self.verdicts[request.path]}, status=201)
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


async def test_forbidden_config_map_is_fatal_at_start_unless_tolerated() -> None:
    """A12."""
    plane = FakeControlPlane()
    plane.status = 403
    async with fake_apiserver(plane.handle) as client:
        with pytest.raises(TrustForbidden, match="403"):
            await RequestHeaderConfig().load(client, tolerate_failure=False)
        await RequestHeaderConfig().load(client, tolerate_failure=True)


async def test_reviews_go_out_and_come_back() -> None:
    """Z9, A16."""
    plane = FakeControlPlane()
    async with fake_apiserver(plane.handle) as client:
        access = AccessReviewer(ReviewClient(client, ACCESS))
        tokens = TokenReviewer(ReviewClient(client, TOKENS))
        plane.verdicts = {
            ACCESS: {"allowed": True},
            TOKENS: {"authenticated": True, "user": {"username": "jane", "groups": ["dev"]}},
        }
        await access.authorize(JANE, METRICS)
        assert (await tokens.identify("t0ken")).user == "jane"
        plane.verdicts = {ACCESS: {"allowed": False, "reason": "because"}, TOKENS: {"authenticated": False}}
        with pytest.raises(AccessDenied, match="because"):
            await access.authorize(Identity(user="joe"), METRICS)
        with pytest.raises(CredentialRejected):
            await tokens.identify("other")
    assert [posted["kind"] for posted in plane.posted] == [
        "SubjectAccessReview", "TokenReview", "SubjectAccessReview", "TokenReview",
    ]  # fmt: skip


async def test_without_the_right_to_ask_nobody_gets_in() -> None:
    """Z13, A18: fails closed, at once, since asking again would not help."""
    plane = FakeControlPlane()
    plane.status = 403
    async with fake_apiserver(plane.handle) as client:
        with pytest.raises(ReviewFailed):
            await AccessReviewer(ReviewClient(client, ACCESS)).authorize(JANE, METRICS)
        with pytest.raises(CredentialRejected):
            await TokenReviewer(ReviewClient(client, TOKENS)).identify("t0ken")
    assert len(plane.requests) == 2
