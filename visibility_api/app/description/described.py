"""The subresources that are operations of their own: their models, and what is peculiar to their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from visibility_api.app.routers import history, log_tail
from visibility_api.models.subresources import TrainJobLogTail, TrainJobProgressHistory
from visibility_api.models.wire import WireModel, not_nullable


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One such subresource."""

    model: type[WireModel]
    parameters: Sequence[dict[str, Any]] = ()  # beside those of every GET
    media_types: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # beside JSON and YAML


def query_parameter(name: str, type_: str, description: str, **schema: object) -> dict[str, Any]:
    """A query parameter in OpenAPI 3.0."""
    return {"name": name, "in": "query", "description": description, "schema": {"type": type_, **schema}}


def _parameters(router: APIRouter) -> list[dict[str, Any]]:
    """Those of the router's GET, in Kubernetes' form: no titles, what may be absent is not null."""
    (route,) = map(copy, router.routes)
    assert isinstance(route, APIRoute)  # noqa: S101 - no other is included
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


# By kind.
OPERATIONS: Mapping[str, Described] = {
    "TrainJobProgressHistory": Described(
        model=TrainJobProgressHistory,
        parameters=_parameters(history.router),
        media_types={
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/csv": {"schema": {"type": "string"}},
        },
    ),
    "TrainJobLogTail": Described(
        model=TrainJobLogTail,
        parameters=_parameters(log_tail.router),
        media_types={"text/plain": {"schema": {"type": "string"}}},
    ),
}
