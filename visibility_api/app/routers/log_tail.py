"""`RESOURCE/NAME/log-tail`: the last lines of the log of what failed first, or of rank 0."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from visibility_api.app.dependencies import Caller, LogTailParts, Served
from visibility_api.app.documents import choose, negotiated, sends_also, text
from visibility_api.auth.identity import client_of, log_of
from visibility_api.causes.reading import find_cause
from visibility_api.errors.status import (
    Forbidden,
    NotFound,
    ObjectNotFound,
    RequestError,
    Unavailable,
)
from visibility_api.errors.text import quote
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kubeapi.v1alpha1 import metadata_of
from visibility_api.models.served import GROUP_VERSION, Resource
from visibility_api.models.subresources import TrainJobLogTail
from visibility_api.models.wire import struct_of
from visibility_api.probing.log_end import MAX_LINES, LogEnd, Place, place_of
from visibility_api.store import Entry

router = APIRouter(tags=["log-tail"])

PATH = f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{{resource}}/{{name}}/log-tail"
TEXT = "text/plain"
DEFAULT_LINES = 50
_TailOfLog = struct_of(TrainJobLogTail)


@router.api_route(
    PATH,
    methods=["GET", "HEAD"],
    response_model=TrainJobLogTail,
    response_model_exclude_none=True,
    responses=sends_also(TEXT),
)
async def log_tail(
    request: Request,
    caller: Caller,
    parts: LogTailParts,
    namespace: str,
    resource: Served,
    name: str,
    lines: Annotated[int, Query(ge=1, le=MAX_LINES, description="At most this many lines.")] = DEFAULT_LINES,
    previous: Annotated[
        bool | None,
        Query(
            description="The log of the run before the present one."
            " Without it: of the run that failed, if one has."
        ),
    ] = None,
) -> Response:
    """The last lines, as JSON, YAML or text, for callers with the right to get pods/log of that pod as well.

    Raises AccessDenied, Forbidden, NotFound, NotAcceptable, TooManyRequests, Unavailable.
    """
    media_type = choose(request, TEXT)
    entry = parts.find(resource.plural, namespace, name)
    if entry is None:
        raise ObjectNotFound(resource.plural, name)
    document = entry.document
    job = document.job
    if job.runs_elsewhere:
        raise NotFound(
            f"The job runs in {job.place}, and its log is there. With a kubeconfig of that cluster:"
            f" kubectl get --raw {request.url.path}"
        )
    if parts.logs is None:
        raise Forbidden("This server reads no logs: switch on its source logs (docs/logs.md).")
    place = place_of(namespace, document.failure, job.rank0, has_ended=job.phase.is_final, previous=previous)
    if place is None:
        raise NotFound("The job has had no pod yet, so there is no log.")
    # The chain has checked the right to this subresource; here is the right to the log itself.
    await parts.authorizer.authorize(caller, log_of(place.namespace, place.pod_name))
    async with parts.queues.slot(client_of(caller)):
        try:
            found = await parts.logs.read(place, lines)
        except ApiError as error:
            raise _refusal(error, place) from error
        except Unreachable as error:
            raise Unavailable("The log could not be read from its node; try again.") from error
    if media_type == TEXT:
        return text("".join(f"{line}\n" for line in found.lines))
    # Of what has not failed, nothing in its log is the cause. Hostile lines take up to 50 ms.
    cause = await asyncio.to_thread(find_cause, found.lines) if document.failure is not None else None
    body = _body(resource, entry, found, cause.line if cause is not None else None)
    return negotiated(request, body, headers={"Vary": "Accept"})


def _body(resource: Resource, entry: Entry, found: LogEnd, cause_line: str | None) -> bytes:
    place = found.place
    tail = _TailOfLog(
        kind=cast(Any, resource.subresource("log-tail").kind),
        api_version="visibility.trainer.kubeflow.org/v1alpha1",
        metadata=metadata_of(entry),
        pod_name=place.pod_name,
        container_name=place.container_name or None,
        replica=place.replica or None,
        previous=place.is_previous,
        truncated=found.is_cut,
        cause_line=cause_line,
        lines=found.lines,
    )
    return msgspec.json.encode(tail)


def _refusal(error: ApiError, place: Place) -> RequestError:
    """The error for the caller. It repeats nothing of kube-apiserver's, which may quote other objects."""
    if error.status == 403:
        return Forbidden(
            f"This server has no right to read logs in namespace {quote(place.namespace)}: it needs get on"
            " pods/log there (docs/logs.md)."
        )
    if error.status == 404:
        return NotFound(
            f"Pod {quote(place.pod_name)} is gone, and its log with it."
            " The job's record may have its end, where there is an archive (docs/archive.md)."
        )
    if error.status == 400:
        run = "no earlier run of the container" if place.is_previous else "no log yet"
        return NotFound(f"Pod {quote(place.pod_name)} has {run}.")
    return Unavailable("The log could not be read from its node; try again.")
