"""The published schema, the shared vectors and the reporter say the same of a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft202012Validator

from trainjob_progress.document import TIMES, Snapshot, encode
from trainjob_progress.values import to_metrics

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "openapi/progress-document.schema.json").read_text())
ACCEPTED = json.loads((ROOT / "tests/vectors/accepted.json").read_text())
REFUSED = json.loads((ROOT / "tests/vectors/refused.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("vector", ACCEPTED, ids=lambda vector: vector["name"])
def test_what_a_reader_makes_of_a_document_is_a_document(vector: dict[str, Any]) -> None:
    VALIDATOR.validate(vector["progress"])


# Of our own form; and a schema sees the form of a date, not the calendar.
SEEN_BY_SCHEMA = [
    vector
    for vector in REFUSED
    if vector["reason"] in ("MissingField", "InvalidField")
    and "trainerStatus" not in vector["name"]
    and vector["name"] != "a timestamp that is no date"
]


@pytest.mark.parametrize("vector", SEEN_BY_SCHEMA, ids=lambda vector: vector["name"])
def test_what_a_reader_refuses_the_schema_refuses(vector: dict[str, Any]) -> None:
    document = json.loads(vector["document"])
    document = {name: value for name, value in document.items() if value is not None}  # null means absent
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize("vector", [*ACCEPTED, *REFUSED], ids=lambda vector: vector["name"])
def test_a_vector_says_what_is_expected_of_a_reader(vector: dict[str, Any]) -> None:
    assert ("document" in vector) != ("documentBase64" in vector)
    assert ("progress" in vector, "reason" in vector) == (vector["accepted"], not vector["accepted"])


numbers = st.one_of(st.none(), st.integers(min_value=0, max_value=2**53))


@settings(max_examples=200)
@given(
    st.builds(
        Snapshot,
        state=st.sampled_from(["running", "completed", "failed"]),
        timestamp=st.floats(min_value=0, max_value=4e9),
        start_time=st.floats(min_value=0, max_value=4e9),
        step=numbers,
        total_steps=st.one_of(st.none(), st.integers(min_value=1, max_value=2**53)),
        epoch=st.one_of(st.none(), st.floats(min_value=0, max_value=1e6)),
        total_epochs=numbers,
        percentage=st.one_of(st.none(), st.integers(min_value=0, max_value=100)),
        remaining_s=numbers,
        metrics=st.dictionaries(st.text(), st.one_of(st.floats(), st.integers(), st.text()), max_size=20).map(
            to_metrics
        ),
        message=st.one_of(st.none(), st.text(max_size=1500)),
        rank=numbers,
        attempt=numbers,
        spent_s=st.one_of(st.just(()), st.tuples(*[st.floats(min_value=0, max_value=1e9)] * 4)),
        section=st.one_of(
            st.none(), st.tuples(st.sampled_from(TIMES), st.floats(min_value=0, max_value=4e9))
        ),
        checkpoint=st.one_of(
            st.none(), st.tuples(st.integers(0, 2**53), st.floats(min_value=0, max_value=4e9))
        ),
    ),
    st.sampled_from([1000, 65536]),
)
def test_whatever_the_reporter_writes_follows_the_schema(snapshot: Snapshot, max_bytes: int) -> None:
    VALIDATOR.validate(json.loads(encode(snapshot, max_bytes)))
