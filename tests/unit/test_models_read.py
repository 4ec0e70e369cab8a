"""What is read by msgspec, from pods and from pushes, has the fields and bounds of the models."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from tests.unit.test_app_openapi import PUBLISHED
from visibility_api.models import training_document
from visibility_api.models.trainer_status import TrainerMetric, TrainerStatus, TrainerStatusUpdate
from visibility_api.models.training_document import ProgressDocument, RecentValues
from visibility_api.models.wire import WireModel
from visibility_api.pushing.payload import _Body, _Metric, _TrainerStatus, read_payload
from visibility_api.reports.document import Progress, _Plain, parse_document
from visibility_api.reports.limits import MAX_INTEGER
from visibility_api.reports.points import _Recent

BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties", "enum")
ANY_TIME = "2026-01-23T10:30:45Z"


def described(model: type[WireModel]) -> dict[str, dict[str, Any]]:
    schema = model.model_json_schema()
    return {name: bounds(field) for name, field in schema["properties"].items()}


def decoded(struct: type[msgspec.Struct]) -> dict[str, dict[str, Any]]:
    _, components = msgspec.json.schema_components([struct])
    return {name: bounds(field) for name, field in components[struct.__name__]["properties"].items()}


def bounds(field: dict[str, Any]) -> dict[str, Any]:
    """Those of the value, whether or not null is allowed beside it."""
    for choice in field.get("anyOf", [field]):
        if choice != {"type": "null"}:
            found = {key: choice[key] for key in BOUNDS if key in choice}
            if choice.get("format") == "int32":  # of a model; the format implies it
                found.setdefault("maximum", 2**31 - 1)
            return {key: sorted(value) if key == "enum" else value for key, value in found.items()}
    raise AssertionError(field)


@pytest.mark.parametrize(
    ("model", "struct"),
    [(TrainerStatusUpdate, _Body), (TrainerStatus, _TrainerStatus), (TrainerMetric, _Metric)],
)
def test_a_push_is_read_as_it_is_described(model: type[WireModel], struct: type[msgspec.Struct]) -> None:
    assert decoded(struct) == described(model)


def test_a_documents_fields_are_read_as_they_are_described() -> None:
    """A schemaVersion is not looked at, and a total of 0 counts as none; writers shall leave it out."""
    model, struct = described(ProgressDocument), decoded(_Plain)
    assert model.pop("schemaVersion") == {"minimum": 1}
    assert (model["totalSteps"].pop("minimum"), struct["totalSteps"].pop("minimum")) == (1, 0)
    for name in ("epoch", "totalEpochs"):  # of floats the fast reader leaves the very last to the other one
        assert model[name].pop("maximum") == MAX_INTEGER
    assert model["message"] == {"maxLength": 1024}
    # A value that is not known yet, of a newer reporter, is read as none instead of being refused.
    assert sorted(model.pop("ending")["enum"]) == ["failed", "finished", "preempted", "stopped"]
    assert struct.pop("ending") == {"maxLength": 64}
    assert struct == model


def test_a_tail_of_earlier_values_is_read_as_it_is_described() -> None:
    assert decoded(_Recent) == described(RecentValues)


TEXT = st.text(min_size=1, max_size=64)
COUNT = st.integers(0, 2**53)
TRAINER_STATUS = st.fixed_dictionaries(
    {"lastUpdatedTime": st.just(ANY_TIME)},
    optional={
        "progressPercentage": st.integers(0, 100),
        "estimatedRemainingSeconds": st.integers(0, 2**31 - 1),
        "metrics": st.lists(st.fixed_dictionaries({"name": TEXT, "value": TEXT}), min_size=1, max_size=3),
    },
)


@given(TRAINER_STATUS)
def test_what_the_model_of_a_push_allows_is_taken_as_it_is(status: dict[str, Any]) -> None:
    body = {"trainerStatus": status}
    model = TrainerStatusUpdate.model_validate_json(json.dumps(body), strict=True, extra="forbid")
    echo = json.loads(read_payload(json.dumps(body).encode()).echo)
    assert echo == body == json.loads(model.encode())


DOCUMENT = st.fixed_dictionaries(
    {"timestamp": st.just(ANY_TIME)},
    optional={
        "schemaVersion": st.just(1),
        "state": st.sampled_from(["running", "completed", "failed"]),
        **dict.fromkeys(["step", "estimatedRemainingSeconds", "rank", "attempt"], COUNT),
        "epoch": st.floats(0, 2**53),
        "progressPercentage": st.integers(0, 100),
        "metrics": st.dictionaries(TEXT, TEXT | COUNT | st.floats(allow_nan=False, allow_infinity=False)),
        "message": TEXT,
        "startTime": st.just(ANY_TIME),
    },
)


@given(DOCUMENT)
def test_what_the_model_of_a_document_allows_is_read(fields: dict[str, Any]) -> None:
    data = json.dumps(fields).encode()
    ProgressDocument.model_validate_json(data, strict=True, extra="forbid")
    progress = parse_document(data)
    assert isinstance(progress, Progress)
    assert (progress.step, progress.state, progress.epoch) == tuple(
        fields.get(name) for name in ("step", "state", "epoch")
    )
    assert len(progress.metrics) == len(fields.get("metrics", ()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 2**53 + 1),
        ("step", 1.5),
        ("totalSteps", 0),
        ("epoch", -1),
        ("state", "done"),
        ("timestamp", "2026-01-23T10:30:45"),
        ("metrics", {"": 1}),
        ("metrics", {"loss": ""}),
        ("metrics", {"loss": True}),
        ("message", "x" * 1025),
    ],
)
def test_what_writers_shall_not_write_the_model_refuses(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        ProgressDocument.model_validate_json(json.dumps({"timestamp": ANY_TIME, name: value}), strict=True)


def test_the_published_schema_is_that_of_the_model() -> None:
    """`make openapi` writes it again."""
    file = (PUBLISHED / training_document.NAME).read_bytes()
    assert json.loads(file) == training_document.published_schema()
