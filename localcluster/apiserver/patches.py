"""The patch types of Kubernetes applied to plain JSON. Never changes its input."""

from __future__ import annotations

import copy
from typing import Any

from localcluster.machinery.status import patch_does_not_apply

# Lists that a strategic merge joins by key; every other list is replaced (api/core/v1 patchMergeKey tags).
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "containerStatuses": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "port",
    "secrets": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def merge_patch(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """What kubectl sends for built-in kinds: a merge patch that joins the lists of _MERGE_KEYS.

    Directives are honoured as far as kubectl sends them; those about order are ignored.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys")):
            continue
        if value is None:
            merged.pop(key, None)
        elif key.startswith("$deleteFromPrimitiveList/"):
            field = key.split("/", 1)[1]
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif key in _MERGE_KEYS and isinstance(value, list):
            merged[key] = _join(merged.get(key) or [], value, _MERGE_KEYS[key])
        else:
            merged[key] = strategic_merge_patch(merged.get(key), value)
    return merged


def _join(current: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    if not all(isinstance(item, dict) and merge_key in item for item in [*current, *patch]):
        return patch
    items = {item[merge_key]: item for item in current}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item[merge_key], None)
        else:
            items[item[merge_key]] = strategic_merge_patch(items.get(item[merge_key]), item)
    return list(items.values())


def json_patch(target: Any, operations: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """RFC 6902."""
    document = copy.deepcopy(target)
    try:
        for operation in operations:
            document = _apply(document, operation)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise patch_does_not_apply() from error
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON of any shape
    kind, path = operation["op"], _pointer(operation["path"])
    if kind == "test":
        if _get(document, path) != operation["value"]:
            raise ValueError("test failed")
        return document
    if kind in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copy.deepcopy(_get(document, source))
        if kind == "move":
            _remove(document, source)
        return _add(document, path, value)
    if kind == "remove":
        return _remove(document, path)
    if kind == "replace":
        _get(document, path)
        return _add(_remove(document, path) if path else document, path, operation["value"])
    if kind == "add":
        return _add(document, path, operation["value"])
    raise ValueError(f"unknown operation {kind!r}")


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:  # noqa: ANN401 - JSON of any shape
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else int(path[-1]), value)
    else:
        parent[path[-1]] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:  # noqa: ANN401 - JSON of any shape
    parent = _get(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document
