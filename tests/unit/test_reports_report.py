"""Every form that a training process may report in: what is taken, and what any other bytes become."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import asdict

from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.fields import (
    MAX_DOCUMENT_BYTES,
    MAX_INTEGER,
    MAX_MESSAGE_CHARACTERS,
    MAX_METRICS,
    parse_time,
)
from visibility_api.reports.report import parse_report
from visibility_api.reports.training_document import parse_document

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("progressPercentage", "estimatedRemainingSeconds", "currentStep", "totalSteps", "currentEpoch"),
        *("totalEpochs", "trainMetrics", "evalMetrics"),
    )
)
# What the instrumentation of opendatahub-io/kubeflow-sdk sends for the Transformers trainer, TrainingHub and
# speculator training: keys, order and types as it has them.
TRANSFORMERS = {
    "progressPercentage": 45,
    "estimatedRemainingSeconds": 795,
    "currentStep": 450,
    "totalSteps": 1000,
    "currentEpoch": 1.35,
    "totalEpochs": 3,
    "trainMetrics": {"loss": 0.2347, "learning_rate": 3e-05, "grad_norm": float("nan")},
    "evalMetrics": {"eval_loss": 0.31, "eval_runtime": 4.2},
}
TRAINING_HUB = {
    "progressPercentage": 50,
    "estimatedRemainingSeconds": None,
    "currentStep": 10,
    "totalSteps": 20,
    "currentEpoch": 1,
    "totalEpochs": 2,
    "trainMetrics": {"loss": "0.5000", "learning_rate": "0.000020", "grad_norm": None, "throughput": "12.00"},
    "evalMetrics": {"eval_loss": None},
}
SPECULATOR = NOTHING | {
    "progressPercentage": 50,
    "currentPhase": "training",
    "trainMetrics": {"loss": "1.2000", "learning_rate": None},
    "evalMetrics": {"loss": "1.3000"},
}
SPECULATOR_END = {"progressPercentage": 100, "estimatedRemainingSeconds": 0, "currentPhase": "complete"}


def encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def read(data: bytes | dict[str, Any]) -> Progress:
    outcome = parse_report(data if isinstance(data, bytes) else encode(data))
    assert isinstance(outcome, Progress), outcome
    return outcome


def refusal(data: bytes | dict[str, Any]) -> Refused:
    outcome = parse_report(data if isinstance(data, bytes) else encode(data))
    assert isinstance(outcome, Refused), outcome
    return outcome


def test_the_transformers_trainers_json_is_taken_whole_and_its_nan_stays_visible() -> None:
    assert b"NaN" in encode(TRANSFORMERS)
    assert read(TRANSFORMERS) == Progress(
        timestamp=None,
        step=450,
        total_steps=1000,
        epoch=1.35,
        total_epochs=3,
        progress_percentage=45,
        remaining_s=795,
        metrics=(
            ("loss", "0.2347"),
            ("learning_rate", "3e-05"),
            ("grad_norm", "nan"),
            ("eval_loss", "0.31"),
            ("eval_runtime", "4.2"),
        ),
    )


def test_training_hubs_metrics_are_text_and_its_nulls_absent() -> None:
    progress = read(json.dumps(TRAINING_HUB, indent=2).encode())
    assert progress.metrics == (("loss", "0.5000"), ("learning_rate", "0.000020"), ("throughput", "12.00"))
    assert (progress.step, progress.total_steps, progress.remaining_s) == (10, 20, None)


def test_a_phase_is_the_message_and_evaluation_metrics_get_their_prefix_once() -> None:
    progress = read(SPECULATOR)
    assert progress.message == "training"
    assert progress.metrics == (("loss", "1.2000"), ("eval_loss", "1.3000"))
    assert read(SPECULATOR_END) == Progress(progress_percentage=100, remaining_s=0, message="complete")


@pytest.mark.parametrize(
    "fields", [NOTHING, NOTHING | {"currentPhase": None}, NOTHING | {"trainMetrics": {}}]
)
def test_open_data_hubs_json_before_the_first_step_is_no_report_yet(fields: dict[str, Any]) -> None:
    assert refusal(fields).reason == "NoProgressYet"


@pytest.mark.parametrize(
    ("odd", "field", "taken"),
    [
        ({"currentStep": "12"}, "step", 12),
        ({"currentStep": 12.0}, "step", 12),
        ({"currentStep": -1}, "step", None),
        ({"currentStep": True}, "step", None),
        ({"currentStep": [1]}, "step", None),
        ({"currentStep": "a lot"}, "step", None),
        ({"currentStep": 2**63}, "step", None),
        ({"currentStep": int("9" * 4000)}, "step", None),
        ({"currentStep": float("inf")}, "step", None),
        ({"currentStep": 9, "totalSteps": 5}, "total_steps", None),
        ({"currentStep": 9, "totalSteps": 0}, "total_steps", None),
        ({"currentEpoch": "1.5"}, "epoch", 1.5),
        ({"currentEpoch": 3, "totalEpochs": 2}, "total_epochs", None),
        ({"progressPercentage": 250}, "progress_percentage", 100),
        ({"progressPercentage": -3}, "progress_percentage", 0),
        ({"progressPercentage": "45"}, "progress_percentage", 45),
        ({"progressPercentage": float("nan")}, "progress_percentage", None),
        ({"estimatedRemainingSeconds": -1}, "remaining_s", None),
        ({"estimatedRemainingSeconds": 1.6}, "remaining_s", 2),
        ({"trainMetrics": [1, 2]}, "metrics", (("eval_loss", "1"),)),
        ({"trainMetrics": {"": 1, "a": {"b": 1}, "c": True, "d": ""}}, "metrics", (("eval_loss", "1"),)),
        ({"trainMetrics": {"loss": float("-inf")}}, "metrics", (("loss", "-inf"), ("eval_loss", "1"))),
        ({"currentPhase": 7}, "message", None),
    ],
)
def test_one_odd_field_of_the_foreign_form_never_costs_the_others(
    odd: dict[str, Any], field: str, taken: object
) -> None:
    progress = read({"evalMetrics": {"loss": 1}} | odd)
    assert asdict(progress)[field] == taken
    assert ("eval_loss", "1") in progress.metrics


def test_numbers_beyond_a_float_are_infinite_in_metrics_and_absent_elsewhere() -> None:
    progress = read(b'{"currentEpoch":1e400,"trainMetrics":{"loss":1e400}}')
    assert (progress.epoch, progress.metrics) == (None, (("loss", "inf"),))


def test_names_values_counts_and_message_are_cut() -> None:
    metrics: dict[str, Any] = {f"{number:04}" + "n" * 1000: "v" * 1000 for number in range(5)}
    metrics |= {str(number): number for number in range(1000)}
    progress = read({"trainMetrics": metrics, "currentPhase": "p" * 5000})
    assert len(progress.metrics) == MAX_METRICS
    assert {len(name) for name, _ in progress.metrics[:5]} == {64}
    assert {len(value) for _, value in progress.metrics[:5]} == {64}
    assert len(progress.message or "") == MAX_MESSAGE_CHARACTERS


def test_half_a_surrogate_pair_does_not_reach_the_encoder() -> None:
    progress = read(rb'{"currentPhase":"\ud800","trainMetrics":{"\udfff":"\ud800"}}')
    assert progress == Progress(message="?", metrics=(("?", "?"),))


@pytest.mark.parametrize(
    ("text", "step", "total"),
    [
        (b"0/1", 0, 1),
        (b"45/100\n", 45, 100),
        (b" 7/7 ", 7, 7),
        (b"9007199254740992/9007199254740992", *[2**53] * 2),
    ],
)
def test_argos_progress_file_is_read(text: bytes, step: int, total: int) -> None:
    assert read(text) == Progress(step=step, total_steps=total)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"0/0", "InvalidField"),
        (b"5/3", "InvalidField"),
        (b"1/9999999999999999", "InvalidField"),
        (b"1/" + b"9" * 5000, "NotJSON"),
        (b"-1/3", "NotJSON"),
        (b"1 / 3", "NotJSON"),
        (b"1/3 2/3", "NotJSON"),
        (b"1/3/5", "NotJSON"),
        ("\u0661/\u0663".encode(), "NotJSON"),
        (b"/", "NotJSON"),
        (b"  \n", "Empty"),
    ],
)
def test_what_argo_itself_would_not_take_is_refused(text: bytes, reason: str) -> None:
    assert refusal(text).reason == reason


def test_kubeflows_status_is_taken_wrapped_as_pushed_and_bare_as_in_a_file() -> None:
    status = {
        "progressPercentage": 45,
        "metrics": [{"name": "loss", "value": "0.2"}],
        "lastUpdatedTime": "2026-01-23T10:30:45Z",
    }
    bare = read(status)
    assert bare == read({"trainerStatus": status})
    assert bare.timestamp == parse_time("2026-01-23T10:30:45Z")
    assert (bare.progress_percentage, bare.metrics) == (45, (("loss", "0.2"),))


def test_our_own_document_is_never_taken_for_another_form() -> None:
    """A mistake in it is named, not read around."""
    own = {"timestamp": "2026-01-23T10:30:45Z", "step": 3, "currentStep": 5, "trainMetrics": {}}
    assert read(own).step == 3
    assert refusal(own | {"step": -1}).reason == "InvalidField"
    assert refusal(own | {"step": float("nan")}).reason == "NotJSON"
    assert refusal({"step": 3}).reason == "MissingField"


@pytest.mark.parametrize(
    "data",
    [
        b'{"currentStep":' + b"[" * 60_000,
        b'{"currentStep":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"currentStep":' + b"1" * 60_000 + b"}",
        b'{"trainMetrics":{"' + b"n" * 60_000 + b'":NaN}}',
        b'{"trainMetrics":"' + b'\\"' * 30_000,
        b'{"trainMetrics":{' + b'"a":1,' * 10_000 + b'"a":2}}',
        b'{"currentStep":1}' + b" " * MAX_DOCUMENT_BYTES,
        b"1/" * 30_000,
        b" " * 60_000 + b"1/x",
    ],
)
def test_hostile_shapes_are_read_or_refused(data: bytes) -> None:
    """In what time, benchmarks/bounds.py measures."""
    assert isinstance(parse_report(data), (Progress, Refused))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["currentStep", "currentEpoch", "totalSteps", "totalEpochs", "progressPercentage"]) | (
    st.sampled_from(["estimatedRemainingSeconds", "trainMetrics", "evalMetrics", "currentPhase", "timestamp"])
)
FOREIGN = st.dictionaries(KEYS, JSON, min_size=1).map(lambda fields: json.dumps(fields).encode())
FRACTIONS = st.tuples(st.integers(), st.integers()).map(lambda pair: f"{pair[0]}/{pair[1]}".encode())


@given(st.binary(max_size=300) | FOREIGN | FRACTIONS)
def test_any_bytes_become_a_bounded_document_or_a_refusal_in_our_own_words(data: bytes) -> None:
    outcome = parse_report(data)
    if isinstance(outcome, Refused):
        assert outcome.message in KNOWN_WORDS or outcome == parse_document(data)
        return
    msgspec.json.encode(outcome)  # whatever was taken can be served
    for count in (
        outcome.step,
        outcome.total_steps,
        outcome.epoch,
        outcome.total_epochs,
        outcome.remaining_s,
    ):
        assert count is None or 0 <= count <= MAX_INTEGER
    assert outcome.progress_percentage is None or 0 <= outcome.progress_percentage <= 100
    assert all(0 < len(name) <= 64 and 0 < len(value) <= 64 for name, value in outcome.metrics)


KNOWN_WORDS = (
    "Of N/M, M must be at least 1 and N at most M.",
    "The process answers, but has nothing to report yet.",
)
SECRET = "hunter2-do-not-echo"


@pytest.mark.parametrize(
    "data",
    [
        f"root:{SECRET}:0:0",
        f'{{"data":{{"password":"{SECRET}"}}}}',
        f'{{"step":"{SECRET}","timestamp":"2026-01-23T10:30:45Z"}}',
        f'{{"timestamp":"{SECRET}"}}',
        f'{{"state":"{SECRET}","timestamp":"2026-01-23T10:30:45Z"}}',
        f'{{"lastUpdatedTime":"{SECRET}"}}',
        f'{{"trainerStatus":{{"metrics":["{SECRET}"]}}}}',
        f'{{"{SECRET}":NaN}}',
        f'{{"currentStep":"{SECRET}","{SECRET}":1}}',
        f"1/{SECRET}",
        f"{SECRET}/1",
        f'["{SECRET}"]',
        f'"{SECRET}"',
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
        f"token: {SECRET}\n",
    ],
)
def test_a_path_that_points_at_a_secret_gives_away_no_byte_of_it(data: str) -> None:
    assert SECRET not in repr(parse_report(data.encode()))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_a_refusal_never_repeats_what_was_read(before: bytes, after: bytes) -> None:
    outcome = parse_report(before + SECRET.encode() + after)
    assert not isinstance(outcome, Refused) or SECRET not in repr(outcome)
