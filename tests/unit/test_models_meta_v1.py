"""The models of meta/v1 have Kubernetes' own fields, and are what is sent."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import msgspec
import pytest

from apidocs.schemas import META, meta_schemas
from tests.jobs import document
from tests.unit.resource_server import ALL, TABLE, ResourceServer
from visibility_api.jobs.job import Phase
from visibility_api.models import meta_v1
from visibility_api.models.wire import WireModel

DEFINITIONS = meta_schemas()
MODELS = [
    model
    for name, model in inspect.getmembers(meta_v1, inspect.isclass)
    if issubclass(model, WireModel) and META + name in DEFINITIONS
]


def test_the_published_definitions_have_models() -> None:
    """The others describe fields that are never sent, or discovery, which has no model."""
    names = {name.removeprefix(META) for name in DEFINITIONS}
    assert names - {model.__name__ for model in MODELS} == {
        *(
            "APIResource",
            "APIResourceList",
            "FieldsV1",
            "ManagedFieldsEntry",
            "OwnerReference",
            "ShardInfo",
            "Time",
        ),
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_model_has_fields_of_the_definition_that_is_published(model: type[WireModel]) -> None:
    """O8: the definition is Kubernetes' own and complete; what we send has to fit it."""
    definition = DEFINITIONS[META + model.__name__]
    ours = model.model_json_schema()
    for name, field in ours["properties"].items():
        published = definition["properties"][name]
        assert essence(field) == essence(published), name
    assert set(definition.get("required", ())) <= set(ours.get("required", ())) | {"kind", "apiVersion"}


def essence(field: dict[str, Any]) -> tuple[object, ...]:
    """What both ways to write a schema have in common."""
    inner = field.get("allOf", [field])[0]
    reference = str(inner.get("$ref", "")).rpartition("/")[2].removeprefix(META)
    items = essence(field["items"]) if "items" in field else None
    return (reference, inner.get("type"), inner.get("format"), items)


class Column(msgspec.Struct, forbid_unknown_fields=True):
    """All fields are required, in clients too."""

    name: str
    type: str
    format: str
    description: str
    priority: int


class RowCondition(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["Completed"]
    status: Literal["True"]
    reason: str | None = None


class Row(msgspec.Struct, forbid_unknown_fields=True):
    cells: list[str | None]
    object: dict[str, Any] | None
    conditions: list[RowCondition] | None = None


class Table(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """meta.k8s.io/v1, which no published definition has."""

    kind: Literal["Table"]
    api_version: Literal["meta.k8s.io/v1"]
    metadata: dict[str, Any]
    column_definitions: list[Column]
    rows: list[Row]


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
async def test_a_table_is_one(include: str) -> None:
    server = ResourceServer()
    server.store.put(document(phase=Phase.SUCCEEDED))
    answer = await server.get(f"{ALL}?includeObject={include}", TABLE)
    table = msgspec.json.decode(answer.body, type=Table)
    meta_v1.ListMeta.model_validate(table.metadata, extra="forbid")
    assert [row.cells[0] for row in table.rows] == ["bert"]
    assert {len(row.cells) for row in table.rows} == {len(table.column_definitions)}
    assert (table.rows[0].object is None) == (include == "None")


async def test_each_line_of_a_watch_is_an_event() -> None:
    server = ResourceServer()
    server.store.put(document())
    async with server.watch(f"{ALL}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1") as client:
        events = [await client.event(), *await client.rest()]
    assert all(event.keys() == {"type", "object"} for event in events)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
