"""`/healthz`, `/livez`, `/readyz` and the path of each check, for kubelets and people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from visibility_api.app.dependencies import HealthChecks
from visibility_api.app.documents import text
from visibility_api.app.health import ENDPOINTS
from visibility_api.errors.status import PageNotFound

router = APIRouter(tags=["health"])

Verbose = Annotated[str | None, Query(description="Present: one line for each check.")]
Exclude = Annotated[list[str], Query(description="Names of checks to leave out.")]


def _overall(endpoint: str) -> Callable[..., Awaitable[Response]]:
    async def overall(checks: HealthChecks, exclude: Exclude = [], verbose: Verbose = None) -> Response:  # noqa: B006
        """`ok`, or 500 with one line for each check. Reasons are withheld: the path is public."""
        report = checks.report(endpoint, exclude)
        if not report.is_passed:
            return text(f"{report.lines}{endpoint} check failed\n", status=500)
        return text("ok" if verbose is None else f"{report.lines}{endpoint} check passed\n")

    return overall


def _single(endpoint: str) -> Callable[..., Awaitable[Response]]:
    async def single(check: str, checks: HealthChecks) -> Response:
        """`ok`, or 500 with the reason: the path is under authorisation."""
        if not checks.has(endpoint, check):
            raise PageNotFound
        failure = checks.run(check)
        if failure is not None:
            return text(f"internal server error: {failure}\n", status=500)
        return text(checks.passed(check))

    return single


for _endpoint in ENDPOINTS:
    for _path, _make in ((f"/{_endpoint}", _overall), (f"/{_endpoint}/{{check}}", _single)):
        router.add_api_route(_path, _make(_endpoint), methods=["GET", "HEAD"], name=_path)
