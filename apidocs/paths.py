"""The paths of the OpenAPI document: the operations on each resource.

All kinds have the same parameters and refusals, so these are written once and referred to.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi

from visibility_api.app.routers import SUBRESOURCES
from visibility_api.models.served import (
    GROUP,
    GROUP_VERSION,
    JOB_RECORDS,
    TRAINING_JOBS,
    VERSION,
    Resource,
    Subresource,
)
from visibility_api.models.wire import not_nullable

from .schemas import META, PREFIX, Schema, get_route, group_version_kind, refer

BASE = f"/apis/{GROUP_VERSION}"
PARAMETERS = "#/components/parameters/"
REFUSALS = "#/components/responses/"
_GROUP_TITLE = "".join(part.title() for part in GROUP.split("."))  # as in Kubernetes' own operation ids
_VERSION_TITLE = VERSION[0].upper() + VERSION[1:]
TAG = _GROUP_TITLE[0].lower() + _GROUP_TITLE[1:] + f"_{VERSION}"

_REFUSALS = {
    "400": "a parameter or selector that cannot be parsed",
    "401": "Unauthorized",
    "403": "the caller may not do this",
    "404": "there is no such object",
    "406": "none of the accepted media types is served",
    "409": "not in the state that the job is in",
    "410": "the continue token or resourceVersion has expired; list again",
    "422": "options that exclude each other",
    "503": "not ready yet, or shutting down; Retry-After says when to try again",
    "504": "not finished in time, or a resourceVersion newer than the server's",
}

_OF_POSTS = ("409",)


def query_parameter(name: str, type_: str, description: str, **schema: object) -> dict[str, Any]:
    """A query parameter in OpenAPI 3.0."""
    return {"name": name, "in": "query", "description": description, "schema": {"type": type_, **schema}}


_PRETTY = query_parameter(
    "pretty",
    "string",
    "If 'true', JSON is indented. Defaults to 'false', except for curl, wget and browsers.",
)
_TIMEOUT = query_parameter(
    "timeout",
    "string",
    "A shorter limit than 60 s for a request other than a watch: a duration such as 5s.",
)
_LISTING = (
    query_parameter(
        "allowWatchBookmarks",
        "boolean",
        "Allow BOOKMARK events, which carry only a resourceVersion to continue from. Ignored without watch.",
    ),
    query_parameter(
        "continue",
        "string",
        "The continue token of the previous page; all pages show the state of the first one. Not with watch.",
    ),
    query_parameter(
        "fieldSelector",
        "string",
        "Only objects with these fields: metadata.name, metadata.namespace, status.phase;"
        " = and != joined by commas.",
    ),
    query_parameter("labelSelector", "string", "Only objects with these labels, which are the job's own."),
    query_parameter(
        "limit",
        "integer",
        "At most this many objects per page; metadata.continue is the token of the next one.",
        minimum=0,
    ),
    query_parameter(
        "resourceVersion",
        "string",
        "List: a state at least as new. Watch: changes after it; unset or 0 starts with the current objects.",
    ),
    query_parameter(
        "resourceVersionMatch",
        "string",
        "How resourceVersion is applied: Exact or NotOlderThan.",
        enum=["Exact", "NotOlderThan"],
    ),
    query_parameter(
        "sendInitialEvents",
        "boolean",
        "Start a watch with the current objects, then a bookmark annotated k8s.io/initial-events-end."
        " Needs resourceVersionMatch=NotOlderThan.",
    ),
    query_parameter("timeoutSeconds", "integer", "End the watch after this time.", minimum=0),
    query_parameter(
        "watch", "boolean", "Stream changes as they happen, one JSON object per line, instead of listing."
    ),
)
_SUMS = (
    query_parameter(
        "sumBy",
        "string",
        "Answer with the sums over these jobs, a TrainingJobSums, in groups by namespace, queue, kind,"
        " nodePool, or 'label:' and the key of a label.",
    ),
    query_parameter(
        "window",
        "string",
        "With sumBy: of which time; by default the last day.",
        enum=["whole", "day", "hour"],
    ),
)
_ENDED = (
    query_parameter(
        "since", "string", "Only jobs that ended since: an RFC 3339 time, or a duration such as 720h."
    ),
    query_parameter(
        "until", "string", "Only jobs that ended until: an RFC 3339 time, or a duration such as 24h."
    ),
)
_OF_RECORDS = ("continue", "fieldSelector", "labelSelector", "limit")
_REPLICAS = (
    query_parameter(
        "replicas",
        "string",
        "'all': with a status for each replica, in status.replicaStatuses.",
        enum=["all"],
    ),
    query_parameter("limit", "integer", "With replicas: at most this many of them, up to 1,000.", minimum=1),
    query_parameter(
        "continue",
        "string",
        "With replicas: those after status.replicaStatusesContinue of the last response.",
    ),
)

_DRY_RUN = query_parameter(
    "dryRun", "string", "'All': answer as if the request had been carried out, and do nothing.", enum=["All"]
)


def _path_parameter(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


_NAMESPACE = _path_parameter("namespace", "Namespace of the job.")
_NAME = _path_parameter("name", "Name of the job; of trainingjobs its resource, a dot and its name.")


def _parameters(router: APIRouter) -> list[dict[str, Any]]:
    """Those of the router's GET, in Kubernetes' form: no titles, what may be absent is not null."""
    route = copy(get_route(router))
    route.methods = {"GET"}  # HEAD would have the same operation id
    (path,) = get_openapi(title="", version="", routes=[route])["paths"].values()
    return [
        {
            "name": given["name"],
            "in": "query",
            "description": given["schema"].pop("description", given["description"]),
            "schema": not_nullable(given["schema"], kept=("default",)),
        }
        for given in path["get"]["parameters"]
        if given["in"] == "query"
    ]


def parameters() -> dict[str, Any]:
    """All of them, by what refers to them."""
    of_operations = [each for router in SUBRESOURCES.values() for each in _parameters(router)]
    found = (
        *_LISTING,
        *_SUMS,
        _PRETTY,
        _TIMEOUT,
        _DRY_RUN,
        _NAMESPACE,
        _NAME,
        *_REPLICAS,
        *_ENDED,
        *of_operations,
    )
    return {_key(each): each for each in sorted(found, key=_key)}


def refusals() -> dict[str, Any]:
    """The responses without an object, by code."""
    return {
        "304": {"description": "If-None-Match names the current document"},
        **{
            code: {"description": text, "content": _content(META + "Status")}
            for code, text in _REFUSALS.items()
        },
        "429": {
            "description": "too many requests in flight; Retry-After says when to try again",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    }


def _refer(*parameters: dict[str, Any]) -> list[dict[str, str]]:
    return [{"$ref": PARAMETERS + _key(each)} for each in parameters]


def _key(parameter: dict[str, Any]) -> str:
    """Its name; those of lists differ from those of replicas, those of records from those of histories."""
    name: str = parameter["name"]
    if parameter in _ENDED:
        return f"records-{name}"
    return f"replicas-{name}" if parameter in _REPLICAS[1:] else name


def _refusal(code: str) -> dict[str, str]:
    return {"$ref": REFUSALS + code}


def paths(resources: Sequence[Resource]) -> dict[str, Any]:
    """Every path under the group version, with its GET."""
    made: dict[str, Any] = {
        f"{BASE}/": {
            "get": _operation(
                f"get{_GROUP_TITLE}{_VERSION_TITLE}APIResources",
                "get available resources",
                META + "APIResourceList",
            )
        }
    }
    for resource in resources:
        made |= _resource_paths(resource)
    return dict(sorted(made.items()))


def _resource_paths(resource: Resource) -> dict[str, Any]:
    scope = f"{BASE}/namespaces/{{namespace}}" if resource.namespaced else BASE
    path_parameters = [_NAMESPACE] if resource.namespaced else []
    one = f"{scope}/{resource.plural}/{{name}}"
    made = {
        f"{scope}/{resource.plural}": _list_item(resource, "Namespaced" if resource.namespaced else "", ""),
        one: {
            "get": _get(resource, None),
            "parameters": _refer(_NAME, *path_parameters, _PRETTY, _TIMEOUT),
        },
    }
    if "delete" in resource.unlisted_verbs:
        made[one]["delete"] = _delete(resource)
    if resource.namespaced:
        made[f"{scope}/{resource.plural}"]["parameters"][:0] = _refer(_NAMESPACE)
        made[f"{BASE}/{resource.plural}"] = _list_item(resource, "", "ForAllNamespaces")
    for subresource in resource.subresources:
        operation = _get(resource, subresource)
        parameters = _refer(_NAME, *path_parameters, _PRETTY, _TIMEOUT)
        responses = operation["responses"]
        if subresource.is_operation:
            router = SUBRESOURCES[subresource.name]
            del responses["304"]
            responses["200"]["content"] |= get_route(router).responses.get(200, {}).get("content", {})
            parameters += _refer(*_parameters(router))
        elif resource is JOB_RECORDS:
            del responses["304"]
        else:
            parameters += _refer(*_REPLICAS)
        made[f"{one}/{subresource.name}"] = {"get": operation, "parameters": parameters}
        if "create" in subresource.verbs:
            made[f"{one}/{subresource.name}"]["post"] = _create(resource, subresource)
    return made


def _list_item(resource: Resource, prefix: str, suffix: str) -> dict[str, Any]:
    operation = _operation(
        f"list{_GROUP_TITLE}{_VERSION_TITLE}{prefix}{resource.kind}{suffix}",
        f"list or watch objects of kind {resource.kind}",
        PREFIX + resource.list_kind,
    )
    operation["x-kubernetes-action"] = "list"
    operation["x-kubernetes-group-version-kind"] = group_version_kind(resource.kind)  # not the list's
    if resource is JOB_RECORDS:
        operation["description"] = "list objects of kind JobRecord"
        given = (*[each for each in _LISTING if each["name"] in _OF_RECORDS], *_ENDED)
    else:
        given = (*_LISTING, *(_SUMS if resource is TRAINING_JOBS else ()))
    return {"get": operation, "parameters": _refer(*given, _PRETTY, _TIMEOUT)}


def _get(resource: Resource, subresource: Subresource | None) -> dict[str, Any]:
    prefix = "Namespaced" if resource.namespaced else ""
    kind = subresource.kind if subresource else resource.kind
    what = f"{subresource.name} of the specified" if subresource else "the specified"
    operation = _operation(
        f"read{_GROUP_TITLE}{_VERSION_TITLE}{prefix}{resource.kind}"
        + (subresource.name.title().replace("-", "") if subresource else ""),
        f"read {what} {resource.kind}",
        PREFIX + kind,
    )
    operation["responses"]["304"] = _refusal("304")
    operation["x-kubernetes-action"] = "get"
    operation["x-kubernetes-group-version-kind"] = group_version_kind(kind)  # an object, not an array
    return operation


def _create(resource: Resource, subresource: Subresource) -> dict[str, Any]:
    """A POST without a body, which is carried out later."""
    prefix = "Namespaced" if resource.namespaced else ""
    title = subresource.name.title().replace("-", "")
    operation = _operation(
        f"create{_GROUP_TITLE}{_VERSION_TITLE}{prefix}{resource.kind}{title}",
        f"create {subresource.name} of the specified {resource.kind}",
        META + "Status",
    )
    responses = operation["responses"]
    responses["202"] = responses.pop("200") | {"description": "Accepted"}
    responses |= {code: _refusal(code) for code in _OF_POSTS}
    # Its own limit is a Status; the server's, which is for all requests, is text.
    text = {"text/plain": {"schema": {"type": "string"}}}
    responses["429"] = {
        "description": "too many requests, or of this job; Retry-After says when to try again",
        "content": _content(META + "Status") | text,
    }
    operation["parameters"] = _refer(_DRY_RUN)
    operation["x-kubernetes-action"] = "post"
    operation["x-kubernetes-group-version-kind"] = group_version_kind(subresource.kind)
    return operation


def _delete(resource: Resource) -> dict[str, Any]:
    operation = _operation(
        f"delete{_GROUP_TITLE}{_VERSION_TITLE}Namespaced{resource.kind}",
        f"delete the specified {resource.kind}",
        META + "Status",
    )
    operation["parameters"] = _refer(_DRY_RUN)
    operation["x-kubernetes-action"] = "delete"
    operation["x-kubernetes-group-version-kind"] = group_version_kind(resource.kind)
    return operation


def _operation(operation_id: str, description: str, schema: str) -> dict[str, Any]:
    return {
        "tags": [TAG],
        "description": description,
        "operationId": operation_id,
        "responses": {
            "200": {"description": "OK", "content": _content(schema)},
            **{code: _refusal(code) for code in (*_REFUSALS, "429") if code not in _OF_POSTS},
        },
    }


def _content(schema: str) -> dict[str, Schema]:
    return {media_type: {"schema": refer(schema)} for media_type in ("application/json", "application/yaml")}
