"""`trainjobs/NAME/history`: what a job has reported over time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from visibility_api.app.dependencies import Caller, Histories
from visibility_api.app.documents import whole
from visibility_api.errors.quoting import quote
from visibility_api.errors.status import BadRequest, NotAcceptable, ObjectNotFound
from visibility_api.history.attempt import MAX_SERIES
from visibility_api.history.view import HistoryView, Selection, select
from visibility_api.kubeapi.compression import accepts_gzip, gzip
from visibility_api.kubeapi.delivery import GZIP_ABOVE_BYTES
from visibility_api.kubeapi.history import encode_csv, encode_json, encode_ndjson
from visibility_api.kubeapi.negotiation import JSON, YAML, Target, negotiate, parse_accept
from visibility_api.kubeapi.rendering import render
from visibility_api.models.duration import parse_duration_s
from visibility_api.models.history import JobHistoryDocument, TrainJobProgressHistory
from visibility_api.models.served import GROUP_VERSION, TRAINJOBS
from visibility_api.reports.fields import parse_time
from visibility_api.store import Entry

router = APIRouter(tags=["history"])

PATH = f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{TRAINJOBS.plural}/{{name}}/history"
NDJSON, CSV = "application/x-ndjson", "text/csv"
LEAST_POINTS, MOST_POINTS = 2, 10_000
_MAX_CHARACTERS = 64  # of a parameter that is repeated in an error


@router.api_route(
    PATH, methods=["GET", "HEAD"], response_model=TrainJobProgressHistory, response_model_exclude_none=True
)
async def history(
    request: Request,
    caller: Caller,
    histories: Histories,
    namespace: str,
    name: str,
    metric: Annotated[list[str] | None, Query()] = None,
    since: str | None = None,
    until: str | None = None,
    max_points: Annotated[str | None, Query(alias="maxPoints")] = None,
    attempt: str | None = None,
) -> Response:
    """The history of one job, as JSON, YAML, NDJSON or CSV. Raises BadRequest, ObjectNotFound, NotAcceptable.

    Parameters are text here, so that each fault is a 400 that names it, as of the API server's own.
    """
    now = histories.now()
    selection = _selection(metric, since, until, max_points, attempt, now)
    media_type = _choose(request.headers.get("accept", ""))
    async with histories.queues.slot(caller.user):
        await asyncio.sleep(0)  # others first
        found = histories.find(namespace, name)
        if found is None:
            raise ObjectNotFound(TRAINJOBS.plural, name)
        entry, kept = found
        view = select(kept, selection, now_s=now.timestamp())
        body, content_type = _encode(request, media_type, entry, view)
    return await _respond(request, body, content_type)


def _encode(request: Request, media_type: str, entry: Entry, view: HistoryView) -> tuple[bytes, str]:
    """The body and its Content-Type. Raises NotAcceptable."""
    if media_type == NDJSON:
        return encode_ndjson(view), NDJSON
    if media_type == CSV:
        return encode_csv(view), "text/csv; charset=utf-8; header=present"
    form = negotiate(
        request.headers.get("accept"),
        target=Target.PLAIN,
        pretty=request.query_params.get("pretty"),
        user_agent=request.headers.get("user-agent"),
    )
    body = encode_json(_kind(TrainJobProgressHistory), entry, view)
    return render(body, form), form.media_type


def _kind(model: type[JobHistoryDocument]) -> str:
    return str(model.model_fields["kind"].default)


def _choose(accept: str) -> str:
    """The media type that the client prefers; JSON and YAML are negotiated further. Raises NotAcceptable."""
    served = (JSON, YAML, NDJSON, CSV)
    for clause in parse_accept(accept):
        for media_type in served:
            if clause.matches(media_type):
                return media_type
    raise NotAcceptable(served)


def _selection(
    metrics: Sequence[str] | None,
    since: str | None,
    until: str | None,
    max_points: str | None,
    attempt: str | None,
    now: datetime,
) -> Selection:
    """Raises BadRequest, which names the parameter."""
    if metrics is not None and (len(metrics) > MAX_SERIES or "" in metrics):
        raise BadRequest(f"metric must be the name of a metric, at most {MAX_SERIES} times")
    since_s, until_s = _moment("since", since, now), _moment("until", until, now)
    if since_s is not None and until_s is not None and since_s > until_s:
        raise BadRequest("since must not be later than until")
    return Selection(
        metrics=None if metrics is None else frozenset(metrics),
        since_s=since_s,
        until_s=until_s,
        max_points=_whole("maxPoints", max_points, LEAST_POINTS, MOST_POINTS),
        attempt=_whole("attempt", attempt, 0, 2**31 - 1),
    )


def _moment(name: str, text: str | None, now: datetime) -> float | None:
    """Seconds since 1970 of an RFC 3339 time, or of so long ago."""
    if text is None:
        return None
    moment = parse_time(text) if len(text) <= _MAX_CHARACTERS else None
    if moment is not None:
        return moment.timestamp()
    ago_s = parse_duration_s(text)
    if ago_s is None:
        raise BadRequest(
            f"{name} must be a time such as 2026-01-31T12:00:00Z or a duration such as 1h30m, which counts"
            f" back from now, not {quote(text[:_MAX_CHARACTERS])}"
        )
    return now.timestamp() - ago_s


def _whole(name: str, text: str | None, least: int, most: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most):
        raise BadRequest(
            f"{name} must be a whole number from {least} to {most}, not {quote(text[:_MAX_CHARACTERS])}"
        )
    return int(text)


async def _respond(request: Request, body: bytes, media_type: str) -> Response:
    """The response, compressed as large ones of the resource path are."""
    headers = {"Vary": "Accept", "X-Content-Type-Options": "nosniff"}
    if len(body) > GZIP_ABOVE_BYTES and accepts_gzip(request.scope["headers"]):
        body = b"".join([piece async for piece in gzip(body)])
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
    return whole(body, media_type, headers=headers)
