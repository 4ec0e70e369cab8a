"""`/metrics`: of the server, in the format that is accepted. `/metrics/jobs`: of each job, as text."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response, StreamingResponse

from visibility_api.app.dependencies import MetricsOfJobs, Registry
from visibility_api.app.documents import whole
from visibility_api.errors.text import harmless_lines
from visibility_api.job_metrics.exposition import CONTENT_TYPE

router = APIRouter(tags=["metrics"])
jobs_router = APIRouter(tags=["metrics"])  # where --job-metrics is given

# The known content types: the library would repeat any version from the Accept header.
_CONTENT_TYPES = frozenset(
    choose_encoder(accept)[1]
    for accept in (
        "",
        "application/openmetrics-text",
        *(
            f"{media_type};version=1.0.0;escaping={escaping}"
            for media_type in ("application/openmetrics-text", "text/plain")
            for escaping in ("allow-utf-8", "dots", "underscores", "values")
        ),
    )
)


_MAX_ACCEPT_CHARACTERS = 4096  # the library would take all of 1 MiB apart
_ODD = re.compile(rb"[^\n\x20-\x7e]")  # no metric of ours has such a label; a library's might


@router.api_route("/metrics", methods=["GET", "HEAD"])
async def metrics(request: Request, registry: Registry) -> Response:
    """All metrics of this process."""
    encode, content_type = choose_encoder(request.headers.get("accept", "")[:_MAX_ACCEPT_CHARACTERS])
    if content_type not in _CONTENT_TYPES:
        encode, content_type = choose_encoder("")
    body: bytes = encode(registry)
    if _ODD.search(body):
        body = harmless_lines(body.decode()).encode()
    return whole(body, content_type)


@jobs_router.api_route("/metrics/jobs", methods=["GET", "HEAD"])
async def metrics_of_jobs(request: Request, jobs: MetricsOfJobs) -> Response:
    """Metrics of each job, on the replica that owns the jobs. On others the body is empty."""
    headers = {"Content-Type": CONTENT_TYPE}
    if request.method == "HEAD":
        return Response(headers=headers)
    return StreamingResponse(jobs.pieces(), headers=headers)
