"""The published documents, made from `models/`: what is served, what may be pushed, what training writes.

`make openapi` writes them to `visibility_api/openapi/`, where they are committed. The server reads them
there: pydantic takes some 50 ms to make them, which was a part of every start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi.openapi.utils import get_openapi

from visibility_api.app.routers import push
from visibility_api.models import training_document
from visibility_api.models.served import VERSION, Resource

from .operations import paths
from .schemas import component_schemas
from .swagger import to_swagger

_SECURITY = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }
}


def v3_document(resources: Sequence[Resource]) -> dict[str, Any]:
    """The OpenAPI 3.0 document of our group version."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Training job visibility", "version": VERSION},
        "paths": paths(resources),
        "components": {"schemas": component_schemas(resources), "securitySchemes": _SECURITY},
    }


def push_document() -> dict[str, Any]:
    """The OpenAPI 3.1 document of the push protocol, as FastAPI describes its operations."""
    document = get_openapi(title="Push", version=VERSION, routes=push.router.routes)
    document["components"]["securitySchemes"] = {
        "BearerToken": {
            "type": "http",
            "scheme": "bearer",
            "description": "The training pod's own service account token, for the path's audience.",
        }
    }
    return document


def published(resources: Sequence[Resource]) -> dict[str, bytes]:
    """The files, by name."""
    v3 = v3_document(resources)
    documents = {
        "v2.json": to_swagger(v3),  # our own group version alone: the aggregator drops all else
        "v3.json": v3,
        "push.json": push_document(),
        training_document.NAME: training_document.published_schema(),
    }
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in documents.items()
    }
