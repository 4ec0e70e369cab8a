"""FastAPI dependencies: the caller, and the collaborators that `create_app` was called with.

An operation declares one by its annotated type, as in `async def history(caller: Caller) -> …`. A new
collaborator is a field of `Parts`, put into `app.state` by `Application`, with a function here: an
asynchronous one, since FastAPI calls others on a thread.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from visibility_api.auth.identity import Identity
from visibility_api.errors.status import UnknownRoute

from .description.discovery import Discovery
from .description.openapi import OpenApi
from .health import Health
from .histories import HistorySource
from .log_tails import LogTails
from .page import Page


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
