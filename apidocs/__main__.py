"""`python -m apidocs` writes the published documents: what is served, pushed, and written by training.

The first is made from `models/`, the others from the types that read them, in `reports/`.

They are committed in `openapi/`, from where the server reads them. It has no part in making them: pydantic
takes some 50 ms for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from visibility_api.kinds import ALL_RESOURCES
from visibility_api.models.served import GROUP, JOB_RECORDS, VERSION, Resource
from visibility_api.reports.points import RecentValues
from visibility_api.reports.ranks import RankColumns
from visibility_api.reports.training_document import ProgressDocument

from .client_models import client_models, client_words
from .paths import parameters, paths, refusals
from .push import push_document
from .schemas import component_schemas, struct_schemas
from .swagger import to_swagger

PUBLISHED = (*ALL_RESOURCES, JOB_RECORDS)
FOLDER = Path(__file__).parents[1] / "openapi"
CLIENT = Path(__file__).parents[1] / "reporter/trainjob_client"
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
        "components": {
            "parameters": parameters(),
            "responses": refusals(),
            "schemas": component_schemas(resources),
            "securitySchemes": _SECURITY,
        },
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


if __name__ == "__main__":
    for _name, _body in published(PUBLISHED).items():
        (FOLDER / _name).write_bytes(_body)
    (CLIENT / "models.py").write_bytes(client_models())
    (CLIENT / "words.py").write_bytes(client_words())
