"""The OpenAPI 3.1 document of the push protocol: Kubeflow Trainer's, on its path and on ours."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from visibility_api.kinds import KINDS
from visibility_api.models.meta_v1 import Status
from visibility_api.models.served import GROUP, VERSION
from visibility_api.pushing.paths import OWN_JOB
from visibility_api.reports.trainer_status import TrainerMetric, TrainerStatus, TrainerStatusUpdate

from .schemas import REFERENCE, refer, struct_schemas

_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
_REFUSALS = {
    "403": "No token, or one that is not bound to a pod of this {}.",
    "404": "No such {}.",
    "413": "The body is too long, by its Content-Length.",
    "422": "The body cannot be read; the message names the field.",
    "429": "Too many pushes; try again after Retry-After.",
    "503": "The jobs of this namespace are not known yet; try again after Retry-After.",
}


def push_document() -> dict[str, Any]:
    """Made from the types that read a push."""
    schemas = struct_schemas(TrainerStatusUpdate, TrainerStatus, TrainerMetric)
    schemas["TrainerStatus"]["required"] = ["lastUpdatedTime"]
    schemas["TrainerMetric"]["required"] = ["name", "value"]
    _, generated = models_json_schema([(Status, "serialization")], ref_template=REFERENCE + "{model}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Push", "version": VERSION},
        "paths": {
            OWN_JOB: {"post": _operation("update_own_status", "job")},
        }
        | {
            f"/apis/{group}/{VERSION}/namespaces/{{namespace}}/{kind.served.plural}/{{name}}/status": {
                "post": _operation(
                    f"update_status_{group.split('.')[0]}"
                    + ("" if kind.has_trainer_status else f"_{kind.served.plural}"),
                    kind.name,
                    _parameter("namespace", f"The {kind.name}'s namespace."),
                    _parameter("name", f"The {kind.name}'s name."),
                )
            }
            for kind in KINDS
            # Kubeflow Trainer's own path, and ours
            for group in (*(("trainer.kubeflow.org",) if kind.has_trainer_status else ()), GROUP)
        },
        "components": {
            "schemas": dict(sorted({**generated["$defs"], **schemas}.items())),
            "securitySchemes": {
                "BearerToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The training pod's own service account token, for the path's audience.",
                }
            },
        },
    }


def _operation(operation: str, kind: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "tags": ["push"],
        "summary": "Report a job's progress",
        "description": "The response repeats the fields that were understood.",
        "operationId": operation,
        "parameters": list(parameters),
        "requestBody": {"content": _content("TrainerStatusUpdate"), "required": True},
        "responses": {
            "200": {"description": "OK", "content": _content("TrainerStatusUpdate")},
            **{
                code: {"description": text.format(kind), "content": _content("Status")}
                for code, text in _REFUSALS.items()
            },
        },
        "security": [{"BearerToken": []}],
    }


def _parameter(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _NAME, "description": description}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": refer(schema)}}
