"""`create_app`: the FastAPI object that uvicorn serves and that a test calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send

from visibility_api import __version__
from visibility_api.auth.access_review import AccessReviewer
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.job_metrics.exposition import JobMetrics
from visibility_api.kinds import ALL_RESOURCES
from visibility_api.kubeapi.message import Handler
from visibility_api.models.served import Resource
from visibility_api.pushing.body import MAX_BODY_BYTES
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.requests import LogRequests

from .chain import RequestChain
from .dependencies import Diagnoses, HistorySource, LogTails
from .discovery import Discovery
from .exception_handlers import add_exception_handlers
from .health import Check, Health
from .limits import Limits, new_shares
from .openapi import OpenApi
from .page import Page
from .request_metrics import RequestMetrics
from .resource_routes import ResourceRoutes, RouteKey
from .routers import (
    dashboard,
    diagnose,
    discovery,
    health,
    history,
    log_tail,
    metrics,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The application's collaborators, built by `assembly.py` or by a test."""

    authenticator: RequestAuthenticator
    authorizer: AccessReviewer
    handlers: Mapping[RouteKey, Handler]  # of the resource path: one for each verb of each resource
    resources: Sequence[Resource] = ALL_RESOURCES
    # Those that discovery shows now: a kind's CRD may come and go. None: all of them.
    served: Callable[[], tuple[Resource, ...]] | None = None
    registry: CollectorRegistry
    metrics: RequestMetrics
    checks: Sequence[Check] = ()
    pushes: Pushes | None = None  # None: pushing is switched off, its paths are not served
    log_streams: LogRequests | None = (
        None  # None: there are no other replicas, the path for them is not served
    )
    page: Page | None = None  # None: no dashboard was built into this package
    histories: HistorySource = field(default_factory=HistorySource)
    log_tails: LogTails | None = None  # None: not served
    diagnoses: Diagnoses | None = None  # None: not served
    job_metrics: JobMetrics | None = None  # None: not served
    is_synced: Callable[[str], bool] = lambda _namespace: True  # of a namespace, "" = of all
    is_absent: Callable[[str], bool] = lambda _resource: False  # its kind's CRD does not exist
    why_empty: Callable[[str], str | None] = lambda _resource: None  # of one that is served all the same
    is_draining: Callable[[], bool] = lambda: False  # open watches are ending, new ones are refused
    limits: Limits = field(default_factory=Limits)
    shares: TimeShares = field(default_factory=lambda: new_shares(Limits()))  # of users


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
        if parts.log_tails is not None:
            self.include_router(log_tail.router)
        if parts.diagnoses is not None:
            self.include_router(diagnose.router)
        if parts.job_metrics is not None:
            self.include_router(metrics.jobs_router)
        for subject in (health, discovery, metrics, history):
            self.include_router(subject.router)
        self._chain = self.middleware_stack = self.build_middleware_stack()
        self.serve(parts.resources, parts.handlers)

    def serve(self, resources: Sequence[Resource], handlers: Mapping[RouteKey, Handler]) -> None:
        """Serve these from now on. Raises ValueError when they disagree."""
        self._chain.routes = ResourceRoutes(resources=resources, handlers=handlers)
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
        parts = self._parts
        return RequestChain(
            super().build_middleware_stack(),
            authenticator=parts.authenticator,
            authorizer=parts.authorizer,
            pushes=parts.pushes,
            log_streams=parts.log_streams,
            metrics=parts.metrics,
            is_synced=parts.is_synced,
            is_absent=parts.is_absent,
            why_empty=parts.why_empty,
            is_draining=parts.is_draining,
            limits=parts.limits,
            shares=parts.shares,
        )


def create_app(parts: Parts) -> Application:
    """The application, ready to serve. Raises ValueError when `resources` and `handlers` disagree."""
    return Application(parts)
