"""Converts our OpenAPI v3 document to Swagger 2.0, for `/openapi/v2`."""

from __future__ import annotations

from typing import Any

from .paths import PARAMETERS
from .schemas import META, REFERENCE

_V2_REFERENCE = "#/definitions/"
_PREFIX = "visibility-"  # parameters are merged cluster-wide by name


def to_swagger(document: dict[str, Any]) -> dict[str, Any]:
    """The same document in v2: definitions, flat parameters, `produces`.

    Of refusals it has 401 alone, as Kubernetes' own: the aggregator keeps the definitions and parameters that
    are referred to, but no responses.
    """
    components = document["components"]
    return {
        "swagger": "2.0",
        "info": document["info"],
        "paths": {path: _path_item(item) for path, item in document["paths"].items()},
        "parameters": {_PREFIX + name: _parameter(each) for name, each in components["parameters"].items()},
        "definitions": {name: _schema(schema) for name, schema in components["schemas"].items()},
        "securityDefinitions": components["securitySchemes"],
        "security": [{name: []} for name in components["securitySchemes"]],
    }


def _path_item(item: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in item.items():
        made[key] = [_reference(each) for each in value] if key == "parameters" else _operation(value)
    return made


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    media_types: dict[str, None] = {}
    responses: dict[str, Any] = {}
    for code, response in operation["responses"].items():
        if "$ref" in response:
            continue
        responses[code] = {"description": response["description"]}
        content = response.get("content", {})
        for media_type, body in content.items():
            responses[code].setdefault("schema", _schema(body["schema"]))  # v2 has one for all media types
            media_types[media_type] = None
    responses["401"] = {"description": "Unauthorized", "schema": {"$ref": f"{_V2_REFERENCE}{META}Status"}}
    made = {**operation, "produces": list(media_types), "responses": responses}
    if "parameters" in operation:
        made["parameters"] = [_reference(each) for each in operation["parameters"]]
    return made


def _reference(parameter: dict[str, str]) -> dict[str, str]:
    return {"$ref": parameter["$ref"].replace(PARAMETERS, f"#/parameters/{_PREFIX}")}


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in parameter.items() if key != "schema"}
    flat |= _schema(parameter["schema"])
    if flat["type"] == "array":
        flat["collectionFormat"] = "multi"  # the parameter is repeated, as by default in v3
    return flat


def _schema(schema: Any) -> Any:  # noqa: ANN401 - any JSON value below a schema
    """Kubernetes' own v2 form of a v3 schema: no `allOf` around one reference, no `default`."""
    if isinstance(schema, list):
        return [_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":  # keys are field names here, not keywords
            made[key] = {name: _schema(inner) for name, inner in value.items()}
        elif key == "$ref":
            made[key] = value.replace(REFERENCE, _V2_REFERENCE)
        elif key == "allOf" and len(value) == 1:
            made |= _schema(value[0])
        elif key not in ("default", "nullable"):  # v2 has no null
            made[key] = _schema(value)
    return made
