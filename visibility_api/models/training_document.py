"""The progress document that a training process writes: docs/document.md explains it.

Published as `visibility_api/openapi/progress-document.schema.json` for writers. The server reads documents
with `reports/document.py`, which accepts more than this: it rounds, clamps and cuts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field, StrictFloat, StrictInt, WithJsonSchema

from .served import GROUP
from .wire import WireModel

NAME = "progress-document.schema.json"
MAX_AGE_S = 366 * 86400
MAX_NUMBER = 2**53  # above it JSON readers lose digits: RFC 8259 section 6

Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
Amount = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
Instant = Annotated[
    AwareDatetime,
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "pattern": r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,12})?([Zz]|[+-]\d{2}:\d{2})$",
        }
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Value = Annotated[StrictInt | StrictFloat, WithJsonSchema({"type": "number"})] | Name


class RecentValues(WireModel):
    """Earlier values: columns of one length, a row a time, oldest first."""

    seconds_before: list[Annotated[float, Field(ge=0, le=MAX_AGE_S)]] = Field(
        max_length=256, description="How long before timestamp each row was, never growing."
    )
    step: list[Count | None] | None = Field(default=None, max_length=256)
    epoch: list[Amount | None] | None = Field(default=None, max_length=256)
    metrics: dict[Name, Annotated[list[Value | None], Field(max_length=256)]] | None = Field(
        default=None, max_length=256, description="What was measured at each time; null where nothing was."
    )


class RankColumns(WireModel):
    """Columns of one length, a row a rank, as of one moment."""

    timestamp: Instant | None = Field(default=None, description="When rank 0 gathered them.")
    rank: list[Count] = Field(max_length=64, description="Global ranks, each once.")
    name: list[Annotated[str, Field(max_length=64)] | None] | None = Field(
        default=None, max_length=64, description="Of its pod or host."
    )
    step: list[Count | None] | None = Field(default=None, max_length=64, description="Steps it has finished.")
    step_seconds: list[Annotated[float, Field(gt=0, lt=MAX_NUMBER)] | None] | None = Field(
        default=None,
        max_length=64,
        description="Its own work for one step, without waiting for the other ranks.",
    )


class ProgressDocument(WireModel):
    """What a training process reports about itself; docs/document.md explains it. Writers should write what
    this schema allows; readers also accept what they can round, clamp or cut."""

    model_config = ConfigDict(
        title="Progress document",
        json_schema_extra={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"https://{GROUP}/schemas/{NAME}",
            "additionalProperties": True,
        },
    )

    schema_version: int | None = Field(
        default=None, ge=1, description="Version of this form. Known fields never change their meaning."
    )
    state: Literal["running", "completed", "failed"] | None = Field(
        default=None,
        description="State that the process reports. The container's exit code takes precedence over it.",
    )
    ending: Literal["finished", "stopped", "preempted", "failed"] | None = Field(
        default=None,
        description="How the run ended: as planned, stopped earlier on purpose, preempted (by SIGTERM), "
        "or failed. Absent while it runs. Readers ignore a value that they do not know.",
    )
    step: Count | None = Field(default=None, description="Optimizer steps finished; 0 before the first.")
    total_steps: Count | None = Field(
        default=None, ge=1, description="Steps planned, at least step. Absent when the end is not known."
    )
    epoch: Amount | None = Field(default=None, description="Epochs finished; may be a fraction.")
    total_epochs: Amount | None = Field(default=None, description="Epochs planned.")
    progress_percentage: int | None = Field(
        default=None, ge=0, le=100, description="How much of the run is done."
    )
    estimated_remaining_seconds: Count | None = Field(
        default=None, description="Estimated time until the run ends."
    )
    metrics: dict[Name, Value] | None = Field(
        default=None,
        max_length=256,
        description="The latest value of each metric. NaN and infinities are the strings nan, inf and -inf.",
    )
    message: str | None = Field(default=None, max_length=1024, description="A sentence for people.")
    start_time: Instant | None = Field(default=None, description="When this attempt began to train.")
    timestamp: Instant = Field(description="When the numbers last changed, by the training process's clock.")
    rank: Count | None = Field(default=None, description="Global rank of the process that wrote this.")
    attempt: Count | None = Field(
        default=None, description="Earlier starts of this training, where the launcher counts them."
    )
    recent: RecentValues | None = Field(
        default=None,
        description="Values that came shortly before, without the document's own, so that readers that come "
        "rarely miss none. At most 16 KiB of text. Readers ignore it where it breaks a rule.",
    )

    ranks: RankColumns | None = Field(
        default=None,
        description="How all ranks get on, as rank 0 has last gathered it: of more than 64 the slowest and a"
        " selection. At most 16 KiB of text. Readers ignore it where it breaks a rule.",
    )


def published_schema() -> dict[str, Any]:
    """The JSON Schema of the document, draft 2020-12."""
    schema = ProgressDocument.model_json_schema()
    first = ("$schema", "$id", "title", "description", "type", "required", "additionalProperties")
    return {key: schema[key] for key in (*first, "properties", "$defs")}
