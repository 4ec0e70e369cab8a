"""FastAPI dependencies: the caller, and the collaborators that `create_app` was called with.

An operation declares one by its annotated type, as in `async def history(caller: Caller) -> …`. A new
collaborator is a field of `Parts`, put into `app.state` by `Application`, with a line here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from visibility_api.auth.access_review import AccessReviewer
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.auth.identity import Identity
from visibility_api.errors.status import UnknownRoute
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.history.job_history import JobHistory
from visibility_api.job_metrics.exposition import JobMetrics
from visibility_api.jobs.job import JobRef
from visibility_api.kinds import ALL_RESOURCES
from visibility_api.kubeapi.message import Handler
from visibility_api.models.served import Resource
from visibility_api.probing.log_end import LogEnds
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.requests import LogRequests
from visibility_api.store import Entry

from .discovery import Discovery
from .health import Check, Health
from .limits import Limits, new_shares
from .openapi import OpenApi
from .page import Page
from .request_metrics import RequestMetrics
from .resource_routes import RouteKey

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
    log_tails: LogTails | None = None  # None: of a test that reads none
    diagnoses: Diagnoses | None = None  # likewise
    job_metrics: JobMetrics | None = None  # None: not served
    is_synced: Callable[[str], bool] = lambda _namespace: True  # of a namespace, "" = of all
    is_absent: Callable[[str], bool] = lambda _resource: False  # its kind's CRD does not exist
    why_empty: Callable[[str], str | None] = lambda _resource: None  # of one that is served all the same
    is_draining: Callable[[], bool] = lambda: False  # open watches are ending, new ones are refused
    limits: Limits = field(default_factory=Limits)
    shares: TimeShares = field(default_factory=lambda: new_shares(Limits()))  # of users


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
