"""What clients read first: groups, versions and resources, OpenAPI, and the version of this server.

All are served from the start: kube-apiserver caches a 404 of OpenAPI until it restarts. `/api` is not served:
clients expect a 404 there.
"""

from __future__ import annotations

import platform
import sys

from fastapi import APIRouter, Request
from starlette.responses import Response

from visibility_api import __version__
from visibility_api.app.dependencies import DiscoveryDocuments, OpenApiDocuments
from visibility_api.models.served import GROUP, GROUP_VERSION

router = APIRouter(tags=["discovery"])


@router.api_route("/apis", methods=["GET", "HEAD"])
async def groups(request: Request, documents: DiscoveryDocuments) -> Response:
    """APIGroupList, or the aggregated discovery document for a client that accepts it."""
    return documents.groups(request)


@router.api_route(f"/apis/{GROUP}", methods=["GET", "HEAD"])
async def group(request: Request, documents: DiscoveryDocuments) -> Response:
    """APIGroup."""
    return documents.group(request)


@router.api_route(f"/apis/{GROUP_VERSION}", methods=["GET", "HEAD"])
async def resources(request: Request, documents: DiscoveryDocuments) -> Response:
    """APIResourceList of our group version."""
    return documents.resources(request)


@router.api_route("/openapi/v2", methods=["GET", "HEAD"])
async def swagger(request: Request, documents: OpenApiDocuments) -> Response:
    """The Swagger 2.0 document."""
    return documents.v2(request)


@router.api_route("/openapi/v3", methods=["GET", "HEAD"])
async def openapi_index(request: Request, documents: OpenApiDocuments) -> Response:
    """Where the OpenAPI 3.0 document of each group version is."""
    return documents.index(request)


@router.api_route(f"/openapi/v3/apis/{GROUP_VERSION}", methods=["GET", "HEAD"])
async def openapi(
    request: Request,
    documents: OpenApiDocuments,
    hash: str | None = None,  # noqa: A002 - the parameter's name
) -> Response:
    """The OpenAPI 3.0 document of our group version."""
    return documents.v3(request, hash)


_MAJOR, _MINOR, *_ = [*__version__.split("."), "", ""]
_VERSION = {
    "major": _MAJOR,
    "minor": _MINOR,
    "gitVersion": f"v{__version__}",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "",
    "goVersion": f"{sys.implementation.name}{platform.python_version()}",  # there is no other field for it
    "compiler": sys.implementation.name,
    "platform": f"{sys.platform}/{platform.machine()}",
}


@router.api_route("/version", methods=["GET", "HEAD"])
async def version() -> dict[str, str]:
    """The version of this server, in the form of every Kubernetes component."""
    return _VERSION
