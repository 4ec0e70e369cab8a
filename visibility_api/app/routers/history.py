"""`RESOURCE/NAME/history`: what a job has reported over time."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import PlainValidator, StringConstraints, WithJsonSchema
from starlette.responses import Response

from visibility_api.app.dependencies import Caller, Histories, Served
from visibility_api.app.documents import choose, negotiated, sends_also, whole
from visibility_api.auth.identity import client_of
from visibility_api.errors.status import BadRequest, ObjectNotFound
from visibility_api.history.attempt import MAX_SERIES
from visibility_api.history.view import HistoryView, Selection, select
from visibility_api.kubeapi.compression import accepts_gzip, gzip
from visibility_api.kubeapi.delivery import GZIP_ABOVE_BYTES
from visibility_api.kubeapi.history import encode_csv, encode_json, encode_ndjson, read_moment
from visibility_api.models.served import GROUP_VERSION, Resource
from visibility_api.models.subresources import TrainJobProgressHistory
from visibility_api.store import Entry

router = APIRouter(tags=["history"])

PATH = f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{{resource}}/{{name}}/history"
NDJSON, CSV = "application/x-ndjson", "text/csv"
LEAST_POINTS, MOST_POINTS = 2, 10_000


_Moment = Annotated[datetime | float, PlainValidator(read_moment), WithJsonSchema({"type": "string"})]
_Name = Annotated[str, StringConstraints(min_length=1)]
_Metrics = Annotated[
    list[_Name] | None,
    Query(
        max_length=MAX_SERIES,
        description="Only this metric; may be given several times. Steps and epochs are always there.",
    ),
]
_Since = Annotated[
    _Moment | None,
    Query(description="Only what was reported since: an RFC 3339 time, or a duration such as 1h."),
]
_Until = Annotated[
    _Moment | None,
    Query(description="Only what was reported until: an RFC 3339 time, or a duration such as 5m."),
]
_MaxPoints = Annotated[
    int | None,
    Query(
        alias="maxPoints",
        ge=LEAST_POINTS,
        le=MOST_POINTS,
        description="At most this many points of each series, chosen so that every spike is among them.",
    ),
]
_Attempt = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only this attempt; 0 is the first.")]


@router.api_route(
    PATH,
    methods=["GET", "HEAD"],
    response_model=TrainJobProgressHistory,
    response_model_exclude_none=True,
    responses=sends_also(NDJSON, CSV),
)
async def history(
    request: Request,
    caller: Caller,
    histories: Histories,
    namespace: str,
    resource: Served,
    name: str,
    metric: _Metrics = None,
    since: _Since = None,
    until: _Until = None,
    max_points: _MaxPoints = None,
    attempt: _Attempt = None,
) -> Response:
    """The history of one job, as JSON, YAML, NDJSON or CSV.

    Raises BadRequest, ObjectNotFound, NotAcceptable.
    """
    now = histories.now()
    since_s, until_s = _instant(since, now), _instant(until, now)
    if since_s is not None and until_s is not None and since_s > until_s:
        raise BadRequest("since must not be later than until")
    selection = Selection(
        metrics=None if metric is None else frozenset(metric),
        since_s=since_s,
        until_s=until_s,
        max_points=max_points,
        attempt=attempt,
    )
    media_type = choose(request, NDJSON, CSV)
    async with histories.queues.slot(client_of(caller)):
        await asyncio.sleep(0)  # others first
        found = histories.find(resource.plural, namespace, name)
        if found is None:
            raise ObjectNotFound(resource.plural, name)
        entry, kept = found
        view = select(kept, selection, now_s=now.timestamp())
        response = _encode(request, media_type, resource, entry, view)
    return await _compress(request, response)


def _encode(
    request: Request, media_type: str, resource: Resource, entry: Entry, view: HistoryView
) -> Response:
    """Raises NotAcceptable."""
    headers = {"Vary": "Accept", "X-Content-Type-Options": "nosniff"}
    if media_type == NDJSON:
        return whole(encode_ndjson(view), NDJSON, headers=headers)
    if media_type == CSV:
        return whole(encode_csv(view), "text/csv; charset=utf-8; header=present", headers=headers)
    return negotiated(request, encode_json(resource, entry, view), headers)


def _instant(moment: datetime | float | None, now: datetime) -> float | None:
    """Seconds since 1970."""
    if isinstance(moment, datetime):
        return moment.timestamp()
    return None if moment is None else now.timestamp() - moment


async def _compress(request: Request, response: Response) -> Response:
    """Large ones of the resource path are compressed in the same way."""
    body = bytes(response.body)
    if len(body) <= GZIP_ABOVE_BYTES or not accepts_gzip(request.scope["headers"]):
        return response
    headers = {**response.headers, "Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
    del headers["content-length"]
    body = b"".join([piece async for piece in gzip(body)])
    return Response(body, headers=headers)
