"""Discovery, legacy and aggregated, of /api and /apis, and OpenAPI v3 (D3-D12, O1-O9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localcluster.machinery.metadata import Object
from localcluster.machinery.resources import Resource

AGGREGATED_CONTENT_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0-localcluster",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
_SUBRESOURCES: dict[
    str, tuple[str, str, str, tuple[str, ...]]
] = {  # kind, group, version, verbs; "" = the parent's
    "status": ("", "", "", ("get", "patch", "update")),
    "binding": ("Binding", "", "v1", ("create",)),
    "exec": ("PodExecOptions", "", "v1", ("create", "get")),
    "log": ("", "", "", ("get",)),
    "token": ("TokenRequest", "authentication.k8s.io", "v1", ("create",)),
}


def legacy_resources(rows: Iterable[Resource], group_version: str) -> Object:
    """GET /api/v1 and /apis/G/V."""
    resources: list[Object] = []
    for row in rows:
        entry: Object = {"name": row.plural, "singularName": row.kind.lower(), "namespaced": row.namespaced}
        entry |= {"kind": row.kind, "verbs": list(row.verbs)}
        if row.short_names:
            entry["shortNames"] = list(row.short_names)
        if row.categories:
            entry["categories"] = list(row.categories)
        resources.append(entry)
        for name in row.subresources:
            kind, group, version, verbs = _SUBRESOURCES[name]
            entry = {"name": f"{row.plural}/{name}", "singularName": "", "namespaced": row.namespaced}
            entry |= {"kind": kind or row.kind, "verbs": list(verbs)}
            if kind and group:
                entry |= {"group": group, "version": version}
            resources.append(entry)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def aggregated_groups(rows: Iterable[Resource]) -> list[Object]:
    """The items of an APIGroupDiscoveryList, one per group, versions in table order."""
    groups: dict[str, dict[str, list[Object]]] = {}
    for row in rows:
        groups.setdefault(row.group, {}).setdefault(row.version, []).append(_aggregated_resource(row))
    return [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [
                {"version": version, "resources": resources, "freshness": "Current"}
                for version, resources in versions.items()
            ],
        }
        for group, versions in groups.items()
    ]


def _aggregated_resource(row: Resource) -> Object:
    own_kind = {"group": row.group, "version": row.version, "kind": row.kind}
    subresources = []
    for name in row.subresources:
        kind, group, version, verbs = _SUBRESOURCES[name]
        response_kind = {"group": group, "version": version, "kind": kind} if kind else own_kind
        subresources.append({"subresource": name, "responseKind": response_kind, "verbs": list(verbs)})
    described: Object = {
        "resource": row.plural,
        "responseKind": own_kind,
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.kind.lower(),
        "verbs": list(row.verbs),
    }
    optional = {
        "shortNames": list(row.short_names),
        "categories": list(row.categories),
        "subresources": subresources,
    }
    return described | {key: value for key, value in optional.items() if value}


def aggregated_document(groups: list[Object]) -> Object:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups,
    }


def legacy_group(item: Object) -> Object:
    """GET /apis/G, made from the group's aggregated item."""
    name = item["metadata"]["name"]
    versions = [
        {"groupVersion": f"{name}/{version['version']}", "version": version["version"]}
        for version in item["versions"]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def from_legacy(document: Object, group: str, version: str) -> Object:
    """An aggregated item for a server that only has the legacy form (the fallback of D13)."""
    tops: dict[str, Object] = {}
    for entry in document["resources"]:
        kind = {
            "group": entry.get("group") or group,
            "version": entry.get("version") or version,
            "kind": entry["kind"],
        }
        parent, _, subresource = entry["name"].partition("/")
        if subresource:
            described: Object = {"subresource": subresource, "responseKind": kind, "verbs": entry["verbs"]}
            if parent in tops:
                tops[parent].setdefault("subresources", []).append(described)
            continue
        scope = "Namespaced" if entry["namespaced"] else "Cluster"
        tops[parent] = {"resource": parent, "responseKind": kind, "scope": scope, "verbs": entry["verbs"]}
        tops[parent] |= {"singularResource": entry.get("singularName", "")}
        tops[parent] |= {key: entry[key] for key in ("shortNames", "categories") if key in entry}
    versions = [{"version": version, "resources": list(tops.values()), "freshness": "Current"}]
    return {"metadata": {"name": group, "creationTimestamp": None}, "versions": versions}


def openapi_v3(rows: Iterable[Resource], title: str) -> Object:
    """Just enough for kubectl: which kinds there are, and that writes take `fieldValidation`.

    The stand-in keeps no schemas, so every kind is an open object.
    """
    schemas: Object = {}
    paths: Object = {}
    for row in rows:
        kind = {"group": row.group, "version": row.version, "kind": row.kind}
        name = f"localcluster.{row.group or 'core'}.{row.version}.{row.kind}"
        schemas[name] = {
            "type": "object",
            "description": f"{row.kind} as the local cluster stores it: without a schema.",
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": [kind],
        }
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        answer = {"responses": {"200": {"description": "OK", "content": content}}}
        write = answer | {
            "x-kubernetes-group-version-kind": kind,
            "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
        }
        read = answer | {"x-kubernetes-group-version-kind": kind}
        namespace = "{namespace}" if row.namespaced else ""
        paths[row.path(namespace)] = {"post": write | {"x-kubernetes-action": "post"}}
        if row.is_stored:
            paths[row.path(namespace)]["get"] = read | {"x-kubernetes-action": "list"}
            paths[row.path(namespace, "{name}")] = {
                "get": read | {"x-kubernetes-action": "get"},
                "put": write | {"x-kubernetes-action": "put"},
                "patch": write | {"x-kubernetes-action": "patch"},
            }
    info: dict[str, Any] = {"title": title, "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
