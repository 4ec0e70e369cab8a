"""What judges the acceptance test of restarts recognises what must not be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.fleet import FIRST_STEP, Job
from benchmarks.witness import RELAYED_S, Witness

NOW = datetime(2026, 1, 23, 10, 0, tzinfo=UTC)
STAGE = "a kill"


def job(manner: str = "hung", source: str = "exec") -> Job:
    return Job(number=0, source=source, manner=manner, began=NOW - timedelta(minutes=10))


def item(of: Job, step: int = FIRST_STEP, **more: Any) -> dict[str, Any]:
    status = {
        "phase": "Running",
        "progressPercentage": step // 10,
        "lastUpdatedTime": of.written_at(step).isoformat(),
        "startTime": "2026-01-23T09:00:00Z",
        "metrics": [],
        "steps": {"current": step, "total": 1000, "perSecond": 0.2},
        "estimatedRemainingSeconds": 60,
        "estimatedCompletionTime": "2126-01-23T10:00:00Z",
        "conditions": [{"type": "Fresh", "status": "False", "reason": "NoNewReport", "message": "12m"}],
    }
    return {"metadata": {"name": of.name, "namespace": of.namespace}, "status": status | more}


def witness(of: Job) -> Witness:
    found = Witness([of])
    found.stage, found.judged, found.is_settled = STAGE, frozenset({STAGE}), True
    found.list_came([item(of)], NOW, "list")
    assert not found.faults
    return found


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    del document["status"][name]
    return document


def test_the_same_again_with_a_greater_age_is_no_fault() -> None:
    of = job()
    seen = witness(of)
    seen.list_came(
        [item(of, conditions=[{**item(of)["status"]["conditions"][0], "message": "13m"}])], NOW, "get"
    )
    assert not seen.faults
    assert seen.not_current([item(of)], NOW) == []


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("blank", lambda of: without(item(of), "metrics")),
        ("untrue time", lambda of: item(of, lastUpdatedTime="2026-01-23T09:59:59Z")),
        ("end in the past", lambda of: item(of, estimatedCompletionTime="2026-01-23T09:59:59Z")),
        ("changed", lambda of: item(of, conditions=[{"type": "Fresh", "status": "True", "reason": "R"}])),
    ],
)
def test_a_job_that_is_shown_worse_than_before_is_a_fault(kind: str, shown: Any) -> None:
    of = job()
    seen = witness(of)
    seen.document_came(shown(of), NOW, "get")
    assert kind in seen.faults


def test_a_job_that_is_not_in_a_list_is_a_fault() -> None:
    seen = witness(job())
    seen.list_came([], NOW, "list")
    assert seen.faults == {"missing": 1}


def test_an_older_report_is_a_fault_once_another_replica_had_time_to_be_told() -> None:
    of = job("steady")
    seen = witness(of)
    seen.document_came(item(of, FIRST_STEP + 1), NOW, "get")
    seen.document_came(item(of, FIRST_STEP), datetime.now(UTC) + timedelta(seconds=RELAYED_S / 2), "get")
    assert not seen.faults
    seen.document_came(item(of, FIRST_STEP), datetime.now(UTC) + timedelta(seconds=2 * RELAYED_S), "get")
    assert seen.faults == {"older": 1}


def test_a_last_report_that_is_not_there_in_time_is_lost() -> None:
    of = job("steady", source="push")
    of.quiet_from = NOW
    assert witness(of).not_current([item(of)], NOW) != []


def test_a_table_with_a_younger_age_is_a_fault() -> None:
    of = job()
    seen = witness(of)
    columns = [{"name": "Step"}, {"name": "Seen"}]
    meta = item(of)["metadata"]
    for cells, faults in ((["100/1000", "10m"], {}), (["100/1000", "9m2s"], {"younger": 1})):
        table = {"columnDefinitions": columns, "rows": [{"object": {"metadata": meta}, "cells": cells}]}
        seen.table_came(table, NOW, "table")
        assert seen.faults == faults
