"""FastAPI dependencies: the caller, and the collaborators that `create_app` was called with.

An operation declares one by its annotated type, as in `async def history(caller: Caller) -> …`. A new
collaborator is a field of `Parts`, put into `app.state` by `Application`, with a line here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from visibility_api.auth.access_review import AccessReviewer
from visibility_api.auth.identity import Identity
from visibility_api.errors.status import UnknownRoute
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.history.job_history import JobHistory
from visibility_api.job_metrics.exposition import JobMetrics
from visibility_api.jobs.job import JobRef
from visibility_api.models.served import Resource
from visibility_api.probing.log_end import LogEnds
from visibility_api.store import Entry

from .discovery import Discovery
from .health import Health
from .openapi import OpenApi
from .page import Page

MAX_WAITING, MAX_WAITING_PER_USER = 400, 100  # requests for histories
WAIT_S = 10.0


def _history_queues() -> ClientQueues:
    """By user. A history takes some milliseconds, as YAML twenty: one is made in a turn of the event loop."""
    return ClientQueues(
        crowded="too many requests for histories wait; try again after the time in Retry-After",
        max_running=1,
        max_running_per_client=1,
        max_waiting=MAX_WAITING,
        max_waiting_per_client=MAX_WAITING_PER_USER,
        wait_s=WAIT_S,
    )


def _log_queues() -> ClientQueues:
    """By user. Each log is read by a kubelet: a user with a thousand tabs delays only its own."""
    return ClientQueues(
        crowded="too many logs are being read; try again after the time in Retry-After",
        max_running=16,
        max_running_per_client=4,
        max_waiting=256,
        max_waiting_per_client=32,
        wait_s=WAIT_S,
    )


Found = tuple[Entry, JobHistory | None]  # the job's document; None: it has reported nothing yet


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySource:
    """The histories of the jobs. `find` takes resource, namespace and name; None: there is no such job."""

    find: Callable[[str, str, str], Found | None] = lambda _resource, _namespace, _name: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    queues: ClientQueues = field(default_factory=_history_queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTails:
    """`find` takes resource, namespace and name. `logs` is None where that source is not switched on."""

    find: Callable[[str, str, str], Entry | None]
    authorizer: AccessReviewer
    logs: LogEnds | None
    queues: ClientQueues = field(default_factory=_log_queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnoses:
    """`find` takes resource, namespace and name. `request` has the ranks of a job read, or returns how many
    seconds it has to wait. `is_on`: a source may exec."""

    find: Callable[[str, str, str], Entry | None]
    authorizer: AccessReviewer
    request: Callable[[JobRef], Awaitable[float]]
    is_on: bool


def _kept(name: str) -> Any:  # noqa: ANN401 - as FastAPI's own `Depends`
    """What `Application` keeps in `app.state` under this name."""

    async def find(request: Request) -> Any:  # noqa: ANN401 - the annotation says what it is
        return getattr(request.app.state, name)

    return Depends(find)


async def _caller(request: Request) -> Identity:
    identity: Identity = request.scope["identity"]  # authenticated and authorised by the chain
    return identity


async def _served(resource: str, request: Request) -> Resource:
    """The resource in the path. Raises UnknownRoute."""
    found: Resource | None = request.app.state.resources.get(resource)
    if found is None or not found.subresources:
        raise UnknownRoute
    return found


Served = Annotated[Resource, Depends(_served)]
Caller = Annotated[Identity, Depends(_caller)]
MetricsOfJobs = Annotated[JobMetrics, _kept("job_metrics")]
Registry = Annotated[CollectorRegistry, _kept("registry")]
HealthChecks = Annotated[Health, _kept("health")]
DiscoveryDocuments = Annotated[Discovery, _kept("discovery")]
OpenApiDocuments = Annotated[OpenApi, _kept("openapi")]
DashboardPage = Annotated[Page, _kept("page")]
Histories = Annotated[HistorySource, _kept("histories")]
DiagnoseParts = Annotated[Diagnoses, _kept("diagnoses")]
LogTailParts = Annotated[LogTails, _kept("log_tails")]
