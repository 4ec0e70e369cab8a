"""The API shell with stand-ins around it: who asks, who may, and what is answered is up to the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from tests.asgi import Answer, call
from visibility_api.api.app import Api, Limits
from visibility_api.api.description.discovery import Discovery
from visibility_api.api.description.openapi import OpenApi
from visibility_api.api.health import Health
from visibility_api.api.message import Handler, Request, Response, Scope, Stream
from visibility_api.api.metrics import RequestMetrics, metrics_endpoint
from visibility_api.api.resources import RESOURCES
from visibility_api.api.routing import RouteKey, Routes
from visibility_api.api.version import version_endpoint
from visibility_api.auth.authenticator import WARNING
from visibility_api.auth.identity import Attributes, Identity

JANE = Identity(user="jane", groups=("system:authenticated",))
BASE = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
ONE = f"{BASE}/namespaces/team-a/trainjobs/bert"


class Shell:
    """An `Api` and what it was asked. `identity` and `verdict` may be exceptions, which are then raised."""

    def __init__(
        self,
        *,
        handler: Callable[[Request], Awaitable[Response | Stream]] | None = None,
        endpoints: Mapping[str, Handler] | None = None,
        identity: Identity | Exception = JANE,
        verdict: Exception | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.identity = identity
        self.verdict = verdict
        self.is_synced = True
        self.is_draining = False
        self.asked: list[Attributes] = []  # of the authorizer
        self.requests: list[Request] = []  # that reached a handler
        self.warning = ""  # what authentication has to remark
        self.registry = CollectorRegistry()
        self._handler = handler or self._answer
        handlers: dict[RouteKey, Handler] = {
            ("trainjobs", "", verb): self._handle for verb in ("get", "list", "watch")
        }
        handlers["trainjobs", "progress", "get"] = self._handle
        if endpoints is None:
            endpoints = {
                **Discovery(RESOURCES).endpoints(),
                **OpenApi(RESOURCES).endpoints(),
                **Health(()).endpoints(),
                **version_endpoint(),
                **metrics_endpoint(self.registry),
            }
        self.api = Api(
            authenticator=self,
            authorizer=self,
            routes=Routes(resources=RESOURCES, handlers=handlers, endpoints=endpoints),
            metrics=RequestMetrics(self.registry),
            is_synced=lambda _namespace: self.is_synced,
            is_draining=lambda: self.is_draining,
            limits=limits or Limits(),
        )

    async def get(self, target: str, *headers: tuple[str, str], method: str = "GET", **more: Any) -> Answer:
        return await call(self.api, target, method=method, headers=headers, **more)

    def sample(self, name: str, **labels: str) -> float | None:
        """One sample of the metrics."""
        return self.registry.get_sample_value(name, labels)

    async def authenticate(self, scope: Scope) -> Identity:
        if isinstance(self.identity, Exception):
            raise self.identity
        if self.warning:
            scope["state"][WARNING] = self.warning
        return self.identity

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        self.asked.append(attributes)
        if self.verdict is not None:
            raise self.verdict

    async def _handle(self, request: Request) -> Response | Stream:
        self.requests.append(request)
        return await self._handler(request)

    async def _answer(self, request: Request) -> Response | Stream:
        return Response(body=b"{}\n")
