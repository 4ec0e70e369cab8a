"""The application with stand-ins around it: who asks, who may, and what is answered is up to the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from tests.asgi import Answer, call
from visibility_api.app import Limits, Parts, create_app
from visibility_api.app.chain import RequestChain
from visibility_api.app.dependencies import Diagnoses, HistorySource, LogTails
from visibility_api.app.health import Check
from visibility_api.app.limits import new_shares
from visibility_api.app.page import Page
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.app.resource_routes import RouteKey
from visibility_api.auth.authenticator import FORWARDED, WARNING
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.job_metrics.exposition import JobMetrics
from visibility_api.kinds import RESOURCES
from visibility_api.kubeapi.message import Handler, ResourceRequest, ResourceResponse, ResourceStream, Scope
from visibility_api.models.served import Resource
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.requests import LogRequests

JANE = Identity(user="jane", groups=("system:authenticated",))
BASE = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
ONE = f"{BASE}/namespaces/team-a/trainjobs/bert"


class Shell:
    """An application and what it was asked. `identity` and `verdict` may be exceptions, to be raised."""

    def __init__(
        self,
        *,
        handler: Callable[[ResourceRequest], Awaitable[ResourceResponse | ResourceStream]] | None = None,
        resources: Sequence[Resource] = RESOURCES,
        checks: Sequence[Check] = (),
        pushes: Pushes | None = None,
        log_streams: LogRequests | None = None,
        page: Page | None = None,
        log_tails: LogTails | None = None,
        diagnoses: Diagnoses | None = None,
        job_metrics: JobMetrics | None = None,
        identity: Identity | Exception = JANE,
        verdict: Exception | None = None,
        limits: Limits | None = None,
        histories: HistorySource | None = None,
    ) -> None:
        self.identity = identity
        self.verdict = verdict
        self.is_synced = True
        self.is_draining = False
        self.absent: set[str] = set()  # resources whose kind's CRD does not exist
        self.why_empty: dict[str, str] = {}  # of resources that are served all the same
        self.is_forwarded = False  # by a verified front proxy
        self.asked: list[Attributes] = []  # of the authorizer
        self.requests: list[ResourceRequest] = []  # that reached a handler
        self.warning = b""  # what authentication has to remark
        self.registry = CollectorRegistry()
        self._handler = handler or self._answer
        handlers: dict[RouteKey, Handler] = {
            (resource.plural, subresource, verb): self._handle
            for resource in resources
            for subresource, verbs in (
                ("", (*resource.verbs, *resource.unlisted_verbs)),
                *((s.name, s.verbs) for s in resource.subresources if not s.is_operation),
            )
            for verb in verbs
        }
        self.app = create_app(
            Parts(
                authenticator=self,
                authorizer=self,
                resources=resources,
                handlers=handlers,
                registry=self.registry,
                metrics=RequestMetrics(self.registry),
                checks=checks,
                pushes=pushes,
                log_streams=log_streams,
                page=page,
                log_tails=log_tails,
                diagnoses=diagnoses,
                job_metrics=job_metrics,
                is_synced=lambda _namespace: self.is_synced,
                is_absent=lambda resource: resource in self.absent,
                why_empty=lambda resource: self.why_empty.get(resource),
                is_draining=lambda: self.is_draining,
                limits=limits or Limits(),
                shares=new_shares(limits or Limits()),
                histories=histories or HistorySource(),
            )
        )

    @property
    def chain(self) -> RequestChain:
        stack = self.app.middleware_stack
        assert isinstance(stack, RequestChain)
        return stack

    async def get(self, target: str, *headers: tuple[str, str], method: str = "GET", **more: Any) -> Answer:
        return await call(self.app, target, method=method, headers=headers, **more)

    def sample(self, name: str, **labels: str) -> float | None:
        """One sample of the metrics."""
        return self.registry.get_sample_value(name, labels)

    async def authenticate(self, scope: Scope) -> Identity:
        if isinstance(self.identity, Exception):
            raise self.identity
        if self.is_forwarded:
            scope["state"][FORWARDED] = True
        if self.warning:
            scope["state"][WARNING] = self.warning
        return self.identity

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        self.asked.append(attributes)
        if self.verdict is not None:
            raise self.verdict

    async def _handle(self, request: ResourceRequest) -> ResourceResponse | ResourceStream:
        self.requests.append(request)
        return await self._handler(request)

    async def _answer(self, request: ResourceRequest) -> ResourceResponse | ResourceStream:
        return ResourceResponse(body=b"{}\n")
