"""What is published of a push and of a document is what is read: a writer that follows it loses nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from apidocs.__main__ import document_schema
from tests.unit.test_app_openapi import PUBLISHED
from visibility_api.pushing.payload import read_payload
from visibility_api.reports.document import Progress
from visibility_api.reports.training_document import parse_document

ANY_TIME = "2026-01-23T10:30:45Z"
DOCUMENT_SCHEMA = Draft202012Validator(document_schema())
PUSH_SCHEMA = Draft202012Validator(
    {
        "$ref": "#/components/schemas/TrainerStatusUpdate",
        **json.loads((PUBLISHED / "push.json").read_text()),
    }
)
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
def test_a_push_as_it_is_published_is_taken_as_it_is(status: dict[str, Any]) -> None:
    body = {"trainerStatus": status}
    PUSH_SCHEMA.validate(body)
    assert json.loads(read_payload(json.dumps(body).encode()).echo) == body


WRITTEN = st.fixed_dictionaries(
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


@given(WRITTEN)
def test_a_document_as_it_is_published_is_read_whole(fields: dict[str, Any]) -> None:
    DOCUMENT_SCHEMA.validate(fields)
    progress = parse_document(json.dumps(fields).encode())
    assert isinstance(progress, Progress)
    assert (progress.step, progress.state, progress.epoch) == tuple(
        fields.get(name) for name in ("step", "state", "epoch")
    )
    assert len(progress.metrics) == len(fields.get("metrics", ()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("totalSteps", 0),
        ("timestamp", "2026-01-23T10:30:45"),
        ("metrics", {"": 1}),
        ("metrics", {"loss": ""}),
        ("metrics", {"loss": True}),
        ("message", "x" * 1025),
    ],
)
def test_what_would_be_changed_is_not_published(name: str, value: object) -> None:
    assert not DOCUMENT_SCHEMA.is_valid({"timestamp": ANY_TIME, name: value})
