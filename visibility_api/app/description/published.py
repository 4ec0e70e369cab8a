"""The published documents: what is served, what may be pushed, what training writes.

The first is made from `models/`, the others from the types that read them, in `reports/`.

`make openapi` writes them to `openapi/`, where they are committed. The server reads them
there: pydantic takes some 50 ms to make them, which was a part of every start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from visibility_api.models.served import GROUP, VERSION, Resource
from visibility_api.reports.points import RecentValues
from visibility_api.reports.ranks import RankColumns
from visibility_api.reports.training_document import ProgressDocument

from .operations import paths
from .push import push_document
from .schemas import component_schemas, struct_schemas
from .swagger import to_swagger

DOCUMENT = "progress-document.schema.json"
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


def document_schema() -> dict[str, Any]:
    """The JSON Schema of the progress document, draft 2020-12."""
    schemas = struct_schemas(ProgressDocument, RecentValues, RankColumns)
    document = schemas.pop(ProgressDocument.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{GROUP}/schemas/{DOCUMENT}",
        "title": "Progress document",
        "description": document["description"],
        "type": "object",
        "required": ["timestamp"],
        "additionalProperties": True,
        "properties": document["properties"],
        "$defs": schemas,
    }


def published(resources: Sequence[Resource]) -> dict[str, bytes]:
    """The files, by name."""
    v3 = v3_document(resources)
    documents = {
        "v2.json": to_swagger(v3),  # our own group version alone: the aggregator drops all else
        "v3.json": v3,
        "push.json": push_document(),
        DOCUMENT: document_schema(),
    }
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in documents.items()
    }
