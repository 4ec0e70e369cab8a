"""The subresources that are operations of their own: their models, and what is peculiar to their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from visibility_api.models.history import TrainJobProgressHistory
from visibility_api.models.log_tail import TrainJobLogTail
from visibility_api.models.wire import WireModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One such subresource."""

    model: type[WireModel]
    parameters: Sequence[dict[str, Any]] = ()  # beside those of every GET
    media_types: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # beside JSON and YAML


def query_parameter(name: str, type_: str, description: str, **schema: object) -> dict[str, Any]:
    """A query parameter in OpenAPI 3.0."""
    return {"name": name, "in": "query", "description": description, "schema": {"type": type_, **schema}}


_HISTORY = Described(
    model=TrainJobProgressHistory,
    parameters=(
        query_parameter(
            "metric",
            "array",
            "Only this metric; may be given several times. Steps and epochs are always there.",
            items={"type": "string"},
        ),
        query_parameter(
            "since", "string", "Only what was reported since: an RFC 3339 time, or a duration such as 1h."
        ),
        query_parameter(
            "until", "string", "Only what was reported until: an RFC 3339 time, or a duration such as 5m."
        ),
        query_parameter(
            "maxPoints",
            "integer",
            "At most this many points of each series, chosen so that every spike is among them.",
            minimum=2,
            maximum=10000,
        ),
        query_parameter("attempt", "integer", "Only this attempt; 0 is the first.", minimum=0),
    ),
    media_types={
        "application/x-ndjson": {"schema": {"type": "string"}},
        "text/csv": {"schema": {"type": "string"}},
    },
)

_LOG_TAIL = Described(
    model=TrainJobLogTail,
    parameters=(
        query_parameter("lines", "integer", "At most this many lines.", minimum=1, maximum=500, default=50),
        query_parameter(
            "previous",
            "boolean",
            "The log of the run before the present one. Without it: of the run that failed, if one has.",
        ),
    ),
    media_types={"text/plain": {"schema": {"type": "string"}}},
)

# By kind.
OPERATIONS: Mapping[str, Described] = {"TrainJobProgressHistory": _HISTORY, "TrainJobLogTail": _LOG_TAIL}
