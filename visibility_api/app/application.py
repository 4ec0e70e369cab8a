"""`create_app`: the FastAPI object that uvicorn serves and that a test calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from visibility_api import __version__
from visibility_api.kubeapi.message import Handler
from visibility_api.models.served import Resource
from visibility_api.pushing.body import MAX_BODY_BYTES

from .chain import RequestChain
from .dependencies import Parts
from .discovery import Discovery
from .exception_handlers import add_exception_handlers
from .health import Health
from .openapi import OpenApi
from .resource_routes import ResourceRoutes, RouteKey
from .routers import SUBRESOURCES, dashboard, discovery, health, metrics


class Application(FastAPI):
    """FastAPI with `RequestChain` around its middleware and router."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(
            title="Training job visibility",
            version=__version__,
            openapi_url=None,  # /openapi/v2 and /openapi/v3 are published as Kubernetes does
            docs_url=None,
            redoc_url=None,
            max_body_size=MAX_BODY_BYTES,  # the longest body that any operation behind FastAPI reads
            redirect_slashes=False,  # the aggregator makes it a 502; the chain accepts both spellings
        )
        self._parts = parts
        self.state.registry = parts.registry
        self.state.health = Health(parts.checks)
        served = parts.served or (lambda: self._resources)
        self.state.discovery, self.state.openapi = Discovery(served), OpenApi(served)
        self.state.log_tails = parts.log_tails
        self.state.diagnoses = parts.diagnoses
        self.state.job_metrics = parts.job_metrics
        self.state.page = parts.page
        self.state.histories = parts.histories
        add_exception_handlers(self)
        if parts.page is not None:
            self.include_router(dashboard.router)
        if parts.job_metrics is not None:
            self.include_router(metrics.jobs_router)
        for router in (health.router, discovery.router, metrics.router, *SUBRESOURCES.values()):
            self.include_router(router)
        self._chain = self.middleware_stack = self.build_middleware_stack()
        self.serve(parts.resources, parts.handlers)

    def serve(self, resources: Sequence[Resource], handlers: Mapping[RouteKey, Handler]) -> None:
        """Serve these from now on. Raises ValueError when they disagree."""
        self._chain.serve(ResourceRoutes(resources=resources, handlers=handlers))
        self._resources = tuple(resources)
        self.state.resources = {each.plural: each for each in resources}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the chain directly. FastAPI's `__call__` checks each time whether OpenTelemetry is on, which
        costs as much as the rest of a GET."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self._chain(scope, receive, send)

    def build_middleware_stack(self) -> RequestChain:
        return RequestChain(super().build_middleware_stack(), self._parts)


def create_app(parts: Parts) -> Application:
    """The application, ready to serve. Raises ValueError when `resources` and `handlers` disagree."""
    return Application(parts)
