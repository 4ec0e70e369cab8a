"""Discovery of groups, versions and resources. `/api` is not served: clients expect a 404 there."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from visibility_api.app.dependencies import DiscoveryDocuments
from visibility_api.models.meta_v1 import APIGroup, APIGroupList, APIResourceList
from visibility_api.models.served import GROUP, GROUP_VERSION

router = APIRouter(tags=["discovery"])


@router.api_route("/apis", methods=["GET", "HEAD"], response_model=APIGroupList)
async def groups(request: Request, documents: DiscoveryDocuments) -> Response:
    """APIGroupList, or the aggregated discovery document for a client that accepts it."""
    return documents.groups(request)


@router.api_route(f"/apis/{GROUP}", methods=["GET", "HEAD"], response_model=APIGroup)
async def group(request: Request, documents: DiscoveryDocuments) -> Response:
    """APIGroup."""
    return documents.group(request)


@router.api_route(f"/apis/{GROUP_VERSION}", methods=["GET", "HEAD"], response_model=APIResourceList)
async def resources(request: Request, documents: DiscoveryDocuments) -> Response:
    """APIResourceList of our group version."""
    return documents.resources(request)
