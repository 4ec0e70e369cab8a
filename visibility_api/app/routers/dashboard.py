"""The dashboard: a page for browsers. It reads everything else from the API, with its viewer's rights.

To kube-apiserver and to RBAC it is a resource: `list` on `dashboard` is the page, in one namespace or at the
cluster's scope, and `get` its assets. Discovery and OpenAPI leave it out (decision 0019).
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from visibility_api.app.dependencies import DashboardPage
from visibility_api.models.served import GROUP_VERSION

router = APIRouter(tags=["dashboard"], include_in_schema=False)

_METHODS = ["GET", "HEAD"]


async def page(request: Request, dashboard: DashboardPage) -> Response:
    """The page. It finds its namespace in its own address."""
    return dashboard.index(request)


async def asset(name: str, request: Request, dashboard: DashboardPage) -> Response:
    """A script, a style or an image of the page."""
    return dashboard.asset(name, request)


for _scope in ("", "/namespaces/{namespace}"):
    _path = f"/apis/{GROUP_VERSION}{_scope}/dashboard"
    router.add_api_route(_path, page, methods=_METHODS)
    router.add_api_route(f"{_path}/{{name}}", asset, methods=_METHODS)
