"""Any bytes become a document or a named refusal: docs/document.md, with the cases of tests/vectors."""

from __future__ import annotations

import base64
import json
import time
import timeit
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.fields import MAX_DOCUMENT_BYTES, MAX_METRICS, parse_time
from visibility_api.reports.marks import SECTIONS
from visibility_api.reports.refusals import MAX_DEPTH, MAX_MARKS
from visibility_api.reports.training_document import parse_document

VECTORS = [
    pytest.param(vector, id=vector["name"])
    for file in ("accepted.json", "refused.json")
    for vector in json.loads((Path(__file__).parent.parent / "vectors" / file).read_text())
]
REASONS = {
    "Empty",
    "TooLarge",
    "NotUTF8",
    "NotJSON",
    "NotAnObject",
    "TooDeep",
    "TooComplex",
    "MissingField",
    "InvalidField",
}
STAMP = '"timestamp":"2026-01-23T10:30:45Z"'


def document_of(vector: dict[str, Any]) -> bytes:
    if "documentBase64" in vector:
        return base64.b64decode(vector["documentBase64"])
    text: str = vector["document"]
    if "repeat" in vector:
        text = text.replace(vector["repeat"]["token"], vector["repeat"]["text"] * vector["repeat"]["times"])
    return text.encode().ljust(vector.get("padTo", 0), b" ")


def columns_of(report: Progress) -> dict[str, Any] | None:
    """The points as docs/document.md writes them; metrics as text."""
    if not report.points:
        return None
    assert report.timestamp is not None
    names = dict.fromkeys(name for point in report.points for name, _ in point.metrics)
    columns = {
        "secondsBefore": [(report.timestamp - point.timestamp).total_seconds() for point in report.points],
        "step": [point.step for point in report.points],
        "epoch": [point.epoch for point in report.points],
        "metrics": {name: [dict(point.metrics).get(name) for point in report.points] for name in names},
    }
    return {name: column for name, column in columns.items() if column and set(column) != {None}}


def marks_of(report: Progress) -> dict[str, Any]:
    """What the run marks of its time, as docs/document.md writes it."""
    marks, section, checkpoint = report.marks, None, None
    if marks.section is not None and marks.section_at is not None:
        section = {"kind": SECTIONS[marks.section], "startTime": shown(marks.section_at)}
    if marks.checkpoint_at is not None:
        checkpoint = {"step": marks.checkpoint_step, "timestamp": shown(marks.checkpoint_at)}
    spent = {name: some for name, some in zip(SECTIONS, marks.spent_s, strict=True) if some}
    return {"timeSpent": spent or None, "section": section, "checkpoint": checkpoint}


def shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".") + "Z"


@pytest.mark.parametrize("vector", VECTORS)
def test_each_shared_vector_is_read_as_it_says(vector: dict[str, Any]) -> None:
    outcome = parse_document(document_of(vector))
    if not vector["accepted"]:
        assert isinstance(outcome, Refused)
        assert outcome.reason == vector["reason"]
        return
    assert isinstance(outcome, Progress), outcome
    said = vector["progress"]
    assert outcome.timestamp == parse_time(said["timestamp"])
    assert outcome.step == said.get("step")
    assert outcome.total_steps == said.get("totalSteps")
    assert outcome.epoch == said.get("epoch")
    assert outcome.total_epochs == said.get("totalEpochs")
    assert outcome.progress_percentage == said.get("progressPercentage")
    assert outcome.remaining_s == said.get("estimatedRemainingSeconds")
    assert outcome.state == said.get("state")
    assert outcome.ending == said.get("ending")
    assert outcome.message == said.get("message")
    if "metrics" in said:
        assert dict(outcome.metrics) == said["metrics"]
    assert outcome.started_at == (parse_time(said["startTime"]) if "startTime" in said else None)
    assert columns_of(outcome) == said.get("recent")
    assert marks_of(outcome) == {name: said.get(name) for name in ("timeSpent", "section", "checkpoint")}


HUGE = st.integers(min_value=-(10**600), max_value=10**600)  # beyond what a float can hold
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | HUGE | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=70), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["state", "step", "totalSteps", "epoch", "totalEpochs", "progressPercentage", "message", "metrics",
     "estimatedRemainingSeconds", "startTime", "timestamp", "rank", "attempt", "trainerStatus", "recent",
     "timeSpent", "section", "checkpoint"]
)  # fmt: skip


@given(st.dictionaries(FIELDS, JSON), st.booleans())
def test_fields_of_any_type_never_escape_their_limits(fields: dict[str, Any], stamped: bool) -> None:
    if stamped:
        fields["timestamp"] = "2026-01-23T10:30:45Z"
    outcome = parse_document(json.dumps(fields).encode("utf-8", "surrogatepass"))
    if isinstance(outcome, Refused):
        assert outcome.reason in REASONS
        return
    assert outcome.step is None or 0 <= outcome.step <= 2**53
    assert outcome.total_steps is None or outcome.total_steps >= max(1, outcome.step or 0)
    assert outcome.progress_percentage is None or 0 <= outcome.progress_percentage <= 100
    assert outcome.remaining_s is None or outcome.remaining_s >= 0
    assert len(outcome.metrics) <= MAX_METRICS
    assert all(0 < len(name) <= 64 and len(value) <= 64 for name, value in outcome.metrics)
    assert outcome.message is None or len(outcome.message) <= 1024


@given(st.lists(st.dictionaries(st.sampled_from(["name", "value"]), JSON) | JSON, max_size=4))
def test_upstream_metrics_of_any_type_are_taken_or_refused(pairs: list[Any]) -> None:
    status = {"lastUpdatedTime": "2026-01-23T10:30:45Z", "metrics": pairs}
    outcome = parse_document(json.dumps({"trainerStatus": status}).encode("utf-8", "surrogatepass"))
    assert isinstance(outcome, Progress) or outcome.reason in REASONS


@pytest.mark.parametrize("digits", [19, 310, 4000, 60_000])
@pytest.mark.parametrize("name", ["step", "epoch", "estimatedRemainingSeconds", "rank"])
def test_a_number_of_any_length_is_refused_by_name(name: str, digits: int) -> None:
    outcome = parse_document(f'{{"{name}":{"1" * digits},{STAMP}}}'.encode())
    assert isinstance(outcome, Refused)
    assert outcome.reason in ("InvalidField", "TooComplex")


def test_a_percentage_of_any_length_is_clamped() -> None:
    outcome = parse_document(f'{{"progressPercentage":{"1" * 400},{STAMP}}}'.encode())
    assert isinstance(outcome, Progress)
    assert outcome.progress_percentage == 100


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_levels_are_counted_outside_of_strings(opening: bytes, closing: bytes) -> None:
    for depth in (MAX_DEPTH - 1, MAX_DEPTH):
        deep = opening * depth + b'"[[[["' + closing * depth
        outcome = parse_document(b'{"timestamp":"2026-01-23T10:30:45Z","x":%s}' % deep)
        reason = outcome.reason if isinstance(outcome, Refused) else None
        assert reason == ("TooDeep" if depth + 1 > MAX_DEPTH else None)


HEAD = b'{"timestamp":"2026-01-23T10:30:45Z","x":['


@pytest.mark.parametrize(
    ("unit", "number", "reason"),
    [
        (b"[],", 3_000, None),
        (b"[],", 4_000, "TooComplex"),
        (b"{},", 4_000, "TooComplex"),
        (b'{"a":1},', 2_500, "TooComplex"),
        (b"1,", MAX_MARKS + 1, "TooComplex"),
        (b"-1.5E+308,", 6_000, None),
        (b"9" * 40 + b",", 1_000, None),
        (b"9" * 4300 + b",", 15, None),
        (b"9" * 4301 + b",", 1, "TooComplex"),
    ],
)
def test_what_costs_more_than_its_length_is_refused(unit: bytes, number: int, reason: str | None) -> None:
    outcome = parse_document(HEAD + unit * number + b"0]}")
    assert (outcome.reason if isinstance(outcome, Refused) else None) == reason


@pytest.mark.parametrize("number", ["1e23", "1e308", "5e-324", "9007199254740993.0", "9" * 39])
def test_no_number_costs_many_times_what_another_does(number: str) -> None:
    """A decoder that is slow with one such number took 0.3 to 9 us for each, where 0.5 takes 0.02."""

    def cpu_s(each: str) -> float:
        metrics = ",".join([f'"a":{each}'] * 1000)
        data = f'{{{STAMP},"metrics":{{{metrics}}}}}'.encode()
        return min(timeit.repeat(lambda: parse_document(data), timer=time.thread_time, number=3, repeat=5))

    assert cpu_s(number) < 10 * cpu_s("0.5")


def test_of_very_many_earlier_values_the_latest_rows_are_read() -> None:
    columns = {f"m{number}": list(range(250)) for number in range(20)}
    recent = {"secondsBefore": list(range(250, 0, -1)), "metrics": columns}
    outcome = parse_document(json.dumps({"timestamp": "2026-01-23T10:30:45Z", "recent": recent}).encode())
    assert isinstance(outcome, Progress)
    assert [dict(point.metrics)["m0"] for point in outcome.points] == [str(row) for row in range(148, 250)]


def test_a_document_of_any_size_costs_no_more_than_taking_its_length() -> None:
    outcome = parse_document(b"[" * (MAX_DOCUMENT_BYTES + 1))
    assert outcome == Refused(reason="TooLarge", message="The document is larger than 65536 bytes.")


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-23T10:30:45Z", datetime(2026, 1, 23, 10, 30, 45, tzinfo=UTC)),
        ("2026-01-23t10:30:45.5z", datetime(2026, 1, 23, 10, 30, 45, 500_000, tzinfo=UTC)),
        ("2026-01-23T10:30:45.123456789+02:00", datetime(2026, 1, 23, 8, 30, 45, 123_456, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2026-01-23T10:30:45", None),
        ("2026-W04-5T10:30:45Z", None),
        ("2026-02-30T10:30:45Z", None),
        ("2026-01-23T10:30:45+99:99", None),
        ("0000-01-23T10:30:45Z", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("٢٠٢٦-01-23T10:30:45Z", None),
        ("", None),
    ],
)
def test_times_are_rfc_3339_with_a_zone(text: str, instant: datetime | None) -> None:
    assert parse_time(text) == instant


@given(st.text(max_size=64))
def test_any_text_is_a_time_or_none(text: str) -> None:
    instant = parse_time(text)
    assert instant is None or instant.tzinfo is UTC
