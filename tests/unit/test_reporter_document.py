"""The document that the reporter writes: form, limits, and what becomes of odd values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from trainjob_progress import Reporter
from trainjob_progress.document import MAX_BYTES, Snapshot, encode, format_time
from trainjob_progress.values import to_count, to_metrics, to_number


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot(
        **{"state": "running", "timestamp": 1769164245.123456, "start_time": 1769164000.0, **fields}
    )


def keep(given: Mapping[str, object]) -> dict[str, object]:
    """What a reporter keeps of what it is given."""
    return Reporter()._take_in(given)


def test_unknown_fields_are_absent_not_zero() -> None:
    assert json.loads(encode(snapshot())) == {
        "schemaVersion": 1,
        "state": "running",
        "startTime": "2026-01-23T10:26:40.000000Z",
        "timestamp": "2026-01-23T10:30:45.123456Z",
    }


def test_zero_is_written() -> None:
    document = json.loads(encode(snapshot(step=0, percentage=0, remaining_s=0, epoch=0)))
    assert (document["step"], document["progressPercentage"], document["estimatedRemainingSeconds"]) == (
        0,
        0,
        0,
    )


@given(st.floats(min_value=0, max_value=4e9))
def test_times_are_rfc_3339_in_utc(unix_s: float) -> None:
    text = format_time(unix_s)
    assert text.endswith("Z")
    assert abs(datetime.fromisoformat(text).timestamp() - unix_s) < 2e-6
    assert datetime.fromisoformat(text).tzinfo is UTC


names = st.text(min_size=1, max_size=80)
values = st.one_of(st.integers(), st.floats(), st.text(max_size=80), st.booleans(), st.none(), st.binary())


@settings(max_examples=300)
@given(
    st.dictionaries(names, values, max_size=300),
    st.text(max_size=2000),
    st.sampled_from([1000, 4096, MAX_BYTES]),
)
def test_any_metrics_and_message_make_a_document_that_fits(
    metrics: dict[str, Any], message: str, max_bytes: int
) -> None:
    body = encode(snapshot(step=2**53, metrics=to_metrics(keep(metrics)), message=message), max_bytes)
    assert len(body) <= max_bytes
    document = json.loads(body.decode())
    assert document["step"] == 2**53
    assert len(document.get("metrics", {})) <= 256
    for name, value in document.get("metrics", {}).items():
        assert 1 <= len(name) <= 64
        assert not isinstance(value, str) or 1 <= len(value) <= 64


def test_what_does_not_fit_is_metrics_before_message_and_the_last_before_the_first() -> None:
    metrics = {f"metric_{i:03}": 0.123456789 for i in range(200)}
    document = json.loads(encode(snapshot(metrics=metrics, message="evaluating"), 1000))
    assert document["message"] == "evaluating"
    assert list(document["metrics"]) == list(metrics)[: len(document["metrics"])]
    assert len(document["metrics"]) > 10


@pytest.mark.parametrize(
    ("value", "text"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf"), (2**60, "1.152921504606847e+18")],
)
def test_numbers_that_json_readers_lose_are_written_as_text(value: float, text: str) -> None:
    metrics = to_metrics(keep({"loss": value}))
    assert json.loads(encode(snapshot(metrics=metrics)))["metrics"] == {"loss": text}


def test_what_is_no_number_is_left_out() -> None:
    class Broken:
        def item(self) -> float:
            raise RuntimeError("CUDA error: device-side assert triggered")

    metrics = to_metrics(
        keep({"a": object(), "b": [1, 2], "c": Broken(), "d": None, "": 1, "e": True, "f": 0.5})
    )
    assert metrics == {"e": 1, "f": 0.5}
    assert metrics["e"] is not True  # readers know no metric that is a truth


def test_one_element_of_a_foreign_type_is_a_number() -> None:
    class Tensor:
        def __init__(self, value: float, has_gradient: bool = True) -> None:
            self.value, self.has_gradient = value, has_gradient

        def detach(self) -> Tensor:
            return Tensor(self.value, has_gradient=False)

        def item(self) -> float:
            assert not self.has_gradient, "torch warns here"
            return self.value

    assert to_number(Tensor(0.25)) == 0.25
    assert to_count(Tensor(4.0)) == 4


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 2**53 + 1, "four", None, object()])
def test_what_cannot_be_a_count_is_none(value: object) -> None:
    assert to_count(value) is None


def test_the_first_names_are_the_last_to_be_dropped() -> None:
    metrics = to_metrics({f"m{i}": i for i in range(300)})
    assert list(metrics) == [f"m{i}" for i in range(256)]


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**2000, 10**5000], ids=range(4))
def test_a_number_too_large_for_any_reader_loses_itself_at_most(number: int) -> None:
    metrics = to_metrics(keep({"huge": number, "loss": 0.5}))
    assert metrics["loss"] == 0.5
    assert float(str(metrics["huge"]).split("e+")[1]) >= 400
