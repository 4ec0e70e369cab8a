"""FastAPI dependencies: the caller, and the collaborators that `create_app` was called with.

An operation declares one by its annotated type, as in `async def history(caller: Caller) -> …`. A new
collaborator is a field of `Parts`, put into `app.state` by `Application`, with a function here: an
asynchronous one, since FastAPI calls others on a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from visibility_api.auth.identity import Identity
from visibility_api.errors.status import UnknownRoute
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.history.job_history import JobHistory
from visibility_api.kubeapi.message import Authorizer
from visibility_api.probing.log_end import LogEnds
from visibility_api.store import Entry

from .description.discovery import Discovery
from .description.openapi import OpenApi
from .health import Health
from .page import Page

MAX_WAITING, MAX_WAITING_PER_USER, WAIT_S = 400, 100, 10.0

Found = tuple[Entry, JobHistory | None]  # the job's document; None: it has reported nothing yet


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySource:
    """The histories of the TrainJobs. `find` takes a namespace and a name; None: there is no such job."""

    find: Callable[[str, str], Found | None] = lambda _namespace, _name: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    # By user. One takes some milliseconds, as YAML twenty: one is made in each turn of the event loop.
    queues: ClientQueues = field(
        default_factory=lambda: ClientQueues(
            crowded="too many requests for histories wait; try again after the time in Retry-After",
            max_running=1,
            max_running_per_client=1,
            max_waiting=MAX_WAITING,
            max_waiting_per_client=MAX_WAITING_PER_USER,
            wait_s=WAIT_S,
        )
    )


_CROWDED = "too many logs are being read; try again after the time in Retry-After"


def _queues() -> ClientQueues:
    """Each is read by a kubelet: a user with a thousand tabs waits for itself."""
    return ClientQueues(
        crowded=_CROWDED,
        max_running=16,
        max_running_per_client=4,
        max_waiting=256,
        max_waiting_per_client=32,
        wait_s=10.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTails:
    """`find` takes a namespace and a name. `logs` is None where the source `logs` is not switched on."""

    find: Callable[[str, str], Entry | None]
    authorizer: Authorizer
    logs: LogEnds | None
    queues: ClientQueues = field(default_factory=_queues)  # by user


async def _caller(request: Request) -> Identity:
    identity: Identity = request.scope["identity"]  # authenticated and authorised by the chain
    return identity


async def _registry(request: Request) -> CollectorRegistry:
    registry: CollectorRegistry = request.app.state.registry
    return registry


async def _health(request: Request) -> Health:
    health: Health = request.app.state.health
    return health


async def _discovery(request: Request) -> Discovery:
    discovery: Discovery = request.app.state.discovery
    return discovery


async def _openapi(request: Request) -> OpenApi:
    documents: OpenApi = request.app.state.openapi
    return documents


async def _page(request: Request) -> Page:
    page: Page = request.app.state.page
    return page


async def _histories(request: Request) -> HistorySource:
    histories: HistorySource = request.app.state.histories
    return histories


async def _log_tails(request: Request) -> LogTails:
    log_tails: LogTails | None = request.app.state.log_tails
    if log_tails is None:
        raise UnknownRoute
    return log_tails


Caller = Annotated[Identity, Depends(_caller)]
Registry = Annotated[CollectorRegistry, Depends(_registry)]
HealthChecks = Annotated[Health, Depends(_health)]
DiscoveryDocuments = Annotated[Discovery, Depends(_discovery)]
OpenApiDocuments = Annotated[OpenApi, Depends(_openapi)]
DashboardPage = Annotated[Page, Depends(_page)]
Histories = Annotated[HistorySource, Depends(_histories)]
LogTailParts = Annotated[LogTails, Depends(_log_tails)]
