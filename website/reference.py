"""The page of the API, from the published OpenAPI document. It knows nothing of the server's code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

PREFIX = "org.kubeflow.trainer.visibility.v1alpha1."
FOLDER = "/apis/visibility.trainer.kubeflow.org/v1alpha1/"
# Those of every other kind are the same under another name.
ROOTS = ("TrainJobProgress", "TrainJobProgressHistory", "TrainJobLogTail", "TrainJobDiagnosis", "TrainingJob")
RESOURCES = ("trainjobs", "trainingjobs")
INTRODUCTION = """\
Made from the published document, `/openapi/v3`. `kubectl explain tjp.status` shows the same. Other kinds have
the same paths and types under their own names, such as `pytorchjobs` and `PyTorchJobProgress`
([kinds](kinds.md))."""
Schema = Mapping[str, Any]


def reference(document: Schema) -> str:
    """Markdown."""
    schemas = document["components"]["schemas"]
    parts = [
        "# API reference",
        INTRODUCTION,
        "## Paths",
        f"All paths begin with `{FOLDER}`. All are read-only.",
        *_paths(document["paths"], document["components"]["parameters"]),
        "## Types",
    ]
    for name in _reachable(schemas):
        parts += [f"### {name}", *_type(schemas[PREFIX + name])]
    return "\n\n".join(parts) + "\n"


def _paths(paths: Schema, parameters: Schema) -> Iterator[str]:
    rows, used = {}, set()
    for path, item in paths.items():
        short = path.removeprefix(FOLDER)
        if "get" not in item or re.sub("^namespaces/{namespace}/", "", short).split("/")[0] not in RESOURCES:
            continue
        own = [each["$ref"].rpartition("/")[2] for each in _parameters(item)]
        names = sorted(name for name in own if parameters[name]["in"] == "query")
        used |= {*names}
        rows[short] = f"{item['get']['description']} | {', '.join(f'`{name}`' for name in names)}"
    yield _table("path", "does | parameters", rows)
    yield "### Parameters"
    yield _table(
        "parameter", "meaning", {name: _cell(parameters[name]["description"]) for name in sorted(used)}
    )


def _parameters(item: Schema) -> list[Schema]:
    return [*item.get("parameters", ()), *item["get"].get("parameters", ())]


def _reachable(schemas: Schema) -> list[str]:
    """Names of our types, each after the first that has it."""
    found: list[str] = []
    waiting = list(reversed(ROOTS))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            waiting += reversed([each for each in _named(schemas[PREFIX + name]) if each not in found])
    return found


def _named(thing: object) -> Iterator[str]:
    if isinstance(thing, dict):
        if PREFIX in str(thing.get("$ref", "")):
            yield thing["$ref"].rpartition(".")[2]
        for value in thing.values():
            yield from _named(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from _named(value)


def _type(schema: Schema) -> Iterator[str]:
    yield schema.get("description", "")
    required = schema.get("required", ())
    rows = {
        name: f"{_kind(field)}{', required' * (name in required)} | {_cell(field.get('description', ''))}"
        for name, field in schema.get("properties", {}).items()
    }
    if rows:
        yield _table("field", "type | meaning", rows)


def _kind(field: Schema) -> str:
    for each in (field, *field.get("allOf", ())):
        if "$ref" in each:
            name = each["$ref"].rpartition(".")[2]
            return f"[{name}](#{name.lower()})" if PREFIX in each["$ref"] else name
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_kind(field['additionalProperties'])}"
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    return str(field.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _table(first: str, others: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {first} | {others} |", "|---" * (others.count("|") + 2) + "|"]
    return "\n".join([*lines, *(f"| `{name}` | {text} |" for name, text in rows.items())])
