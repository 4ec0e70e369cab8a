"""The published OpenAPI documents, served from the start: kube-apiserver caches a 404 until it restarts."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from visibility_api.app.dependencies import OpenApiDocuments
from visibility_api.models.served import GROUP_VERSION

router = APIRouter(tags=["openapi"])


@router.api_route("/openapi/v2", methods=["GET", "HEAD"])
async def swagger(request: Request, documents: OpenApiDocuments) -> Response:
    """The Swagger 2.0 document."""
    return documents.v2(request)


@router.api_route("/openapi/v3", methods=["GET", "HEAD"])
async def index(request: Request, documents: OpenApiDocuments) -> Response:
    """Where the OpenAPI 3.0 document of each group version is."""
    return documents.index(request)


@router.api_route(f"/openapi/v3/apis/{GROUP_VERSION}", methods=["GET", "HEAD"])
async def group_version(
    request: Request,
    documents: OpenApiDocuments,
    hash: str | None = None,  # noqa: A002 - the parameter's name
) -> Response:
    """The OpenAPI 3.0 document of our group version."""
    return documents.v3(request, hash)
