"""The encoder of v1alpha1: R18, L1. Field by field against the schema: test_app_schemas."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from tests.jobs import NOW, document, spent
from visibility_api.jobs.job import Phase
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary, Resources
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi.v1alpha1 import Codec
from visibility_api.store import Entry

CODEC = Codec(TrainJobKind.served)


def encoded(shown: JobProgress, revision: int = 12) -> dict[str, Any]:
    entry = Entry(document=shown, revision=revision)
    value = json.loads(CODEC.document(entry))
    assert isinstance(value, dict)
    return value


def test_metadata_is_the_jobs_own_with_our_revision() -> None:
    """L3: the revision is a decimal string."""
    shown = encoded(document("bert", uid="u-1", labels={"team": "a"}), revision=1_767_323_045_000_001)
    assert shown["kind"] == "TrainJobProgress"
    assert shown["apiVersion"] == "visibility.trainer.kubeflow.org/v1alpha1"
    assert shown["metadata"] == {
        "name": "bert",
        "namespace": "team-a",
        "uid": "u-1",
        "resourceVersion": "1767323045000001",
        "creationTimestamp": "2026-01-02T02:55:05Z",
        "labels": {"team": "a"},
    }


def test_what_is_not_known_is_absent_and_never_null_or_zero() -> None:
    shown = encoded(document(phase=Phase.PENDING))
    assert shown["status"] == {"phase": "Pending"}
    assert "labels" not in shown["metadata"]


def test_what_is_known_to_be_zero_is_shown() -> None:
    status = encoded(
        document(
            step=0,
            epoch=0.0,
            steps_per_s=0.0,
            progress_percentage=0,
            remaining_s=0,
            observation=ObservationSummary(
                source="exec",
                last_probe_at=None,
                next_probe_at=None,
                latency_s=None,
                consecutive_failures=0,
                reason="",
                message="",
            ),
        )
    )["status"]
    assert status == {
        "phase": "Running",
        "progressPercentage": 0,
        "estimatedRemainingSeconds": 0,
        "steps": {"current": 0, "perSecond": 0},
        "epochs": {"current": 0},
        "observation": {"source": "exec", "consecutiveFailures": 0},
    }


def test_what_time_was_spent_on_is_shown_for_its_life_and_for_windows_that_are_shorter() -> None:
    account = spent({"Queued": 1800, "Starting": 600, "Productive": 4500, "Other": 300})
    resources = Resources(accelerators=8, by_name=(), held_s=0, wasted_s=0)
    status = encoded(document(goodput=account, resources=resources))["status"]
    found = status["goodput"]
    whole = {"queued": 1800, "starting": 600, "productive": 4500, "other": 300}
    assert found["whole"] == {
        "percentage": 83.3,
        "schedulingPercentage": 75,
        "seconds": whole,
        "acceleratorSeconds": {kind: 8 * some for kind, some in whole.items()},
    }
    assert found["hour"]["seconds"] == {kind: some / 2 for kind, some in whole.items()}
    assert "day" not in found
    assert (found["current"], found["wastedMessage"]) == ("Productive", "Starting 10m")
    assert found["time"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:04:05Z"),
        (datetime(999, 1, 2, tzinfo=UTC), "0999-01-02T00:00:00Z"),
    ],
)
def test_times_are_whole_seconds_in_utc(moment: datetime, text: str) -> None:
    """R18"""
    assert encoded(document(updated_at=moment))["status"]["lastUpdatedTime"] == text


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(5.4321987, b"5.432"), (3.0, b"3"), (123456.7, b"123500"), (0.000012345, b"0.00001234")],
)
def test_rates_have_four_digits_and_whole_numbers_no_fraction(rate: float, shown: bytes) -> None:
    entry = Entry(document=document(steps_per_s=rate), revision=1)
    assert b'"perSecond":%s}' % shown in CODEC.document(entry)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_absent(value: float) -> None:
    """R18: NaN and Infinity are not JSON."""
    assert encoded(document(steps_per_s=value, epoch=value, step=1))["status"]["steps"] == {"current": 1}


def test_a_condition_has_all_five_fields_even_empty_ones() -> None:
    """metav1.Condition; `kubectl wait` reads type and status."""
    fresh = Condition(type="Fresh", status="True", reason="RecentReport", message="", since=NOW)
    assert encoded(document(conditions=(fresh,)))["status"]["conditions"] == [
        {
            "type": "Fresh",
            "status": "True",
            "reason": "RecentReport",
            "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_arrives_as_it_was_in_one_line(name: str, value: str) -> None:
    """W1: an event is a line, whatever a training process puts into its message."""
    entry = Entry(document=document(metrics=((name, value),), message=value or None), revision=1)
    body = CODEC.document(entry)
    assert b"\n" not in body
    status = json.loads(body)["status"]
    assert status["metrics"] == [{"name": name, "value": value}]
    assert status.get("message", "") == value


def test_an_entry_is_encoded_once() -> None:
    entry = Entry(document=document(), revision=1)
    assert CODEC.document(entry) is CODEC.document(entry)
    assert CODEC.metadata(entry) is CODEC.metadata(entry)


def test_text_that_no_json_can_hold_costs_that_job_its_numbers_and_no_list() -> None:
    shown = encoded(msgspec.structs.replace(document(), message="\ud800"))
    assert shown["metadata"]["name"] == document().job.ref.name
    assert shown["status"] == {"phase": document().phase.value}
