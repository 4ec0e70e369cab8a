"""The schemas of the OpenAPI v3 document, generated from `models/`.

`kubectl explain` shows them and clients are generated from them. They have the form of Kubernetes' own:
a reference with a description is in `allOf`, because OpenAPI 3.0 ignores fields beside a bare `$ref`;
constants are plain strings, because it has no `const`; titles and `null` do not occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import Field, create_model
from pydantic.json_schema import models_json_schema

from visibility_api.app.routers import SUBRESOURCES
from visibility_api.models.job_records import JobRecord, JobRecordHistory, JobRecordList, JobRecordLogTail
from visibility_api.models.served import GROUP, JOB_RECORDS, TRAINING_JOBS, VERSION, Resource
from visibility_api.models.v1alpha1 import (
    TrainingJob,
    TrainingJobList,
    TrainingJobSums,
    TrainJobProgress,
    TrainJobProgressList,
)
from visibility_api.models.wire import WireModel

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."  # merged cluster-wide by name: must be exact copies
PREFIX = ".".join(reversed(GROUP.split("."))) + f".{VERSION}."  # unique, or the aggregator would rename it


def get_route(router: APIRouter) -> APIRoute:
    """The route of its GET. A router that also takes a POST has another one for that."""
    routes = [each for each in router.routes if isinstance(each, APIRoute)]
    (route,) = [each for each in routes if "GET" in (each.methods or ())]
    return route


# What is served of TrainJobs. The other kinds' documents have the same fields under other names.
_WORKLOAD = "TrainJob"
_MODELS: Sequence[type[WireModel]] = (
    *(TrainJobProgress, TrainJobProgressList),
    *(get_route(router).response_model for router in SUBRESOURCES.values()),
)

# The order of a schema's fields; all others follow as they come.
_ORDER = (
    *("allOf", "type", "format", "description", "enum", "items", "minimum", "maximum", "maxItems"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
)


def meta_schemas() -> dict[str, Schema]:
    """The definitions of meta/v1 we refer to, as Kubernetes 1.36 publishes them."""
    text = files(__package__).joinpath("meta_v1.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Schema])


def component_schemas(resources: Sequence[Resource]) -> dict[str, Schema]:
    """Every schema, by name: ours, one document and one list a resource, and those of meta/v1."""
    served = {kind for each in resources for kind in (each.kind, each.list_kind)}
    served |= {subresource.kind for each in resources for subresource in each.subresources}
    kinds = {name: model for each in resources for name, model in _models_of(each).items() if name in served}
    _, generated = models_json_schema(
        [(model, "validation") for model in kinds.values()], ref_template="{model}"
    )
    meta = meta_schemas()
    ours = {name: schema for name, schema in generated["$defs"].items() if META + name not in meta}
    full_names = {name: (PREFIX if name in ours else META) + name for name in generated["$defs"]}
    for name, schema in ours.items():
        made = _kubernetes_form(schema, full_names)
        if name in kinds:
            made["x-kubernetes-group-version-kind"] = [group_version_kind(name)]  # an array here
        meta[PREFIX + name] = made
    return dict(sorted(meta.items()))


def _models_of(resource: Resource) -> dict[str, type[WireModel]]:
    """The documents of one resource, by kind."""
    if resource is JOB_RECORDS:
        return {
            model.__name__: model for model in (JobRecord, JobRecordList, JobRecordHistory, JobRecordLogTail)
        }
    if resource is TRAINING_JOBS:
        return {model.__name__: model for model in (TrainingJob, TrainingJobList, TrainingJobSums)}
    workload = resource.kind.removesuffix("Progress")
    if workload == _WORKLOAD:
        return {model.__name__: model for model in _MODELS}
    made: dict[str, type[WireModel]] = {}
    for model in _MODELS:
        kind = model.__name__.replace(_WORKLOAD, workload)
        fields: dict[str, Any] = {"kind": (str | None, Field(default=kind, description=f"Always {kind}."))}
        if (items := model.model_fields.get("items")) is not None:
            item: Any = made[resource.kind]
            fields["items"] = tuple[item, ...], Field(description=items.description)
        about = (model.__doc__ or "").replace(_WORKLOAD, workload)
        made[kind] = create_model(kind, __base__=model, __doc__=about, **fields)
    return made


def struct_schemas(*types: type[msgspec.Struct]) -> dict[str, Any]:
    """By name, what writers should write: a field that may be absent is optional, not null."""
    _, components = msgspec.json.schema_components(types)
    for schema in components.values():
        del schema["title"]
        schema["description"] = " ".join(schema["description"].split())
        if not schema["required"]:
            del schema["required"]
        schema["properties"] = {name: _struct_field(field) for name, field in schema["properties"].items()}
    return components


def _struct_field(schema: dict[str, Any]) -> dict[str, Any]:
    """Without null, and without the types that are read, where it says what to write."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    made = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return made if "type" in made or "$ref" in made or len(choices) != 1 else {**choices[0], **made}


def refer(name: str) -> Schema:
    """A reference to a schema by its full name."""
    return {"$ref": REFERENCE + name}


def group_version_kind(kind: str) -> dict[str, str]:
    """For `x-kubernetes-group-version-kind`: exactly these keys, or `kubectl explain` does not find it."""
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _kubernetes_form(schema: Mapping[str, Any], full_names: Mapping[str, str]) -> Schema:
    made = {key: value for key, value in schema.items() if key != "const"}
    if "$ref" in made:
        reference = refer(full_names[made.pop("$ref")])
        if not made:
            return reference
        made["allOf"] = [reference]
    if "properties" in made:
        made["properties"] = {
            name: _kubernetes_form(field, full_names) for name, field in made["properties"].items()
        }
    if "items" in made:
        made["items"] = _kubernetes_form(made["items"], full_names)
    return {key: made[key] for key in (*_ORDER, *made) if key in made}
