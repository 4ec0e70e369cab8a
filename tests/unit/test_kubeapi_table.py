"""Tables: T1 to T12, and the columns of issue 3."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import KILLED, NOW, document, rank0, spent
from tests.unit.resource_server import ALL, BERT, PARTIAL, TABLE, TEAM, ResourceServer
from visibility_api.diagnosis.result import Diagnosis, Suspect
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Phase, Rank0
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary, Resources
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi.age import duration
from visibility_api.kubeapi.columns import COLUMNS, short_number
from visibility_api.kubeapi.table import TableForm
from visibility_api.kubeapi.v1alpha1 import Codec
from visibility_api.store import Entry

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400

SHOWN: dict[str, Any] = {
    "progress_percentage": 45,
    "step": 450,
    "total_steps": 1000,
    "steps_per_s": 5.4321,
    "epoch": 2.5,
    "total_epochs": 10.0,
    "metrics": (("accuracy", "0.9"), ("loss", "0.23456789")),
    "completion_at": NOW + timedelta(minutes=5, seconds=30),
    "seen_at": NOW - timedelta(seconds=3),
    "observation": ObservationSummary(
        source="exec",
        last_probe_at=NOW,
        next_probe_at=NOW,
        latency_s=0.1,
        consecutive_failures=0,
        reason="",
        message="",
    ),
}


@pytest.fixture
def server() -> ResourceServer:
    return ResourceServer()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (42 * MINUTE + 59, "42m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (5 * HOUR + 10 * MINUTE, "5h10m"),
        (8 * HOUR, "8h"),
        (30 * HOUR, "30h"),
        (48 * HOUR, "2d"),
        (3 * DAY + 4 * HOUR, "3d4h"),
        (8 * DAY, "8d"),
        (400 * DAY, "400d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 50 * DAY, "3y50d"),
        (8 * YEAR, "8y"),
        (9 * YEAR + 300 * DAY, "9y"),
    ],
)
def test_durations_are_written_as_kubectl_writes_them(seconds: int, text: str) -> None:
    """T7"""
    assert duration(seconds) == text


def test_an_age_may_be_unknown_or_in_the_future() -> None:
    """T7: 2 s ahead is a fault, less are clocks apart."""
    job = document().job
    for ahead_s, shown in ((None, "<unknown>"), (2, "<invalid>"), (1.9, "0s"), (0.1, "0s"), (-1.9, "1s")):
        created_at = None if ahead_s is None else NOW + timedelta(seconds=ahead_s)
        of_job = msgspec.structs.replace(document(), job=replace(job, created_at=created_at))
        assert cells(of_job)["Age"] == shown


def test_the_columns_answer_at_a_glance() -> None:
    """Issue 3; T2, T3, T9: the first is the name, none is the namespace."""
    assert [c.name.upper() for c in COLUMNS if c.priority == 0] == [
        "NAME", "PHASE", "PROGRESS", "STEP", "LOSS", "ETA", "SEEN", "AGE",
    ]  # fmt: skip
    assert [c.name.upper() for c in COLUMNS if c.priority] == [
        "EPOCH", "RATE", "SOURCE", "POD", "ACCELERATORS", "GOODPUT", "WASTED", "CHECKPOINT", "ATTEMPTS",
        "REASON", "MESSAGE",
    ]  # fmt: skip
    for column in COLUMNS:
        definition = column.definition()
        assert set(definition) == {"name", "type", "format", "description", "priority"}
        assert definition["description"].endswith(".")
    assert COLUMNS[0].definition()["format"] == "name"


async def test_a_list_is_a_table_of_cells_by_position(server: ResourceServer) -> None:
    """T1, T2, T4, T8, T10"""
    revision = server.put("bert", labels={"a": "b"}, **SHOWN)
    answer = await server.get(TEAM, TABLE)
    table = answer.json()
    assert answer.header("content-type") == "application/json"
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": str(revision)}
    (row,) = table["rows"]
    assert len(table["columnDefinitions"]) == len(row["cells"]) == len(COLUMNS)
    assert row["cells"] == [
        "bert", "Running", "45%", "450/1000", "0.2346", "5m30s", "3s", "9m",
        "2.5/10", "5.4/s", "exec", *[None] * (len(COLUMNS) - 11),
    ]  # fmt: skip
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["apiVersion"] == "meta.k8s.io/v1"
    assert row["object"]["metadata"]["labels"] == {"a": "b"}
    assert "status" not in row["object"]


async def test_ages_go_on_while_the_document_stays(server: ResourceServer) -> None:
    """T6: rendered on the server, so never from a cache."""
    server.put("bert", **SHOWN)
    assert (await server.get(TEAM, TABLE)).json()["rows"][0]["cells"][5:8] == ["5m30s", "3s", "9m"]
    server.now = NOW + timedelta(minutes=10)
    for target in (TEAM, BERT):
        cells = (await server.get(target, TABLE)).json()["rows"][0]["cells"]
        assert cells[5:8] == [None, "10m", "19m"]  # an end that has passed is none


async def test_an_empty_list_keeps_its_columns(server: ResourceServer) -> None:
    """T3, T4"""
    table = (await server.get(ALL, TABLE)).json()
    assert table["rows"] == []
    assert len(table["columnDefinitions"]) == len(COLUMNS)
    assert table["metadata"]["resourceVersion"] == str(server.store.revision)


async def test_a_single_object_and_its_subresource_are_tables_too(server: ResourceServer) -> None:
    """T10, T11: with the object's own revision."""
    revision = server.put("bert")
    server.put("other")
    for target in (BERT, f"{BERT}/progress"):
        table = (await server.get(target, TABLE)).json()
        assert table["kind"] == "Table"
        assert table["metadata"] == {"resourceVersion": str(revision)}
        assert [row["cells"][0] for row in table["rows"]] == ["bert"]


async def test_rows_carry_what_includeobject_asks_for(server: ResourceServer) -> None:
    """T8: --sort-by asks for the whole object."""
    server.put("bert", **SHOWN)
    objects = {}
    for value in ("", "Metadata", "Object", "None"):
        answer = await server.get(f"{TEAM}?includeObject={value}", TABLE)
        objects[value] = answer.json()["rows"][0]["object"]
    assert objects[""] == objects["Metadata"] == (await server.get(BERT, PARTIAL)).json()
    assert objects["Object"] == (await server.get(BERT)).json()
    assert objects["None"] is None


async def test_v1beta1_is_served_under_its_own_name(server: ResourceServer) -> None:
    """T1"""
    server.put("bert")
    answer = await server.get(TEAM, ("Accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io"))
    assert answer.json()["apiVersion"] == "meta.k8s.io/v1beta1"
    assert answer.json()["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


async def test_rows_of_ended_runs_are_marked(server: ResourceServer) -> None:
    """T12"""
    for name, phase in (("a", Phase.SUCCEEDED), ("b", Phase.FAILED), ("c", Phase.RUNNING)):
        server.put(name, phase=phase)
    rows = (await server.get(TEAM, TABLE)).json()["rows"]
    assert [row.get("conditions", [{}])[0].get("type") for row in rows] == ["Completed", "Completed", None]
    assert rows[0]["conditions"][0]["status"] == "True"


def cells(shown: JobProgress) -> dict[str, str | None]:
    form = TableForm(Codec(TrainJobKind.served), "v1", "None", lambda: NOW)
    every = msgspec.json.decode(form.items()(Entry(document=shown, revision=1)))["cells"]
    return dict(zip((column.name for column in COLUMNS), every, strict=True))


def test_what_is_not_known_is_blank() -> None:
    """T4: null prints as blank."""
    shown = cells(msgspec.structs.replace(document(), job=replace(document().job, created_at=None)))
    assert {name for name, cell in shown.items() if cell is not None} == {"Name", "Phase", "Age"}
    assert shown["Age"] == "<unknown>"


@pytest.mark.parametrize(
    ("metrics", "cell"),
    [
        ((), None),
        ((("loss", "0.5"), ("eval_loss", "0.7")), "0.5"),
        ((("eval_loss", "0.7"), ("train_loss", "0.25")), "0.25"),
        ((("eval_loss", "0.7"),), "0.7"),
        ((("Train/Loss", "1.5"),), "1.5"),
        ((("accuracy", "0.912345"), ("lr", "0.1")), "accuracy=0.9123"),
        ((("glossiness", "3"),), "glossiness=3"),
        ((("loss", "nan"),), "nan"),
        ((("loss", "1.23e-7"),), "1.230e-07"),
        ((("loss", "12345.678"),), "12346"),
        ((("loss", "n/a"),), "n/a"),
    ],
)
def test_the_loss_is_the_training_loss_or_a_metric_with_its_name(
    metrics: tuple[tuple[str, str], ...], cell: str | None
) -> None:
    """Issue 3: nobody must take an accuracy for a loss."""
    assert cells(document(metrics=metrics))["Loss"] == cell


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (5.0, "5"), (0.05, "0.05"), (1234.5, "1234"), (-1.5, "-1.5")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("conditions", "phase", "job_reason", "cell"),
    [
        ({}, Phase.RUNNING, "Rank0Running", None),
        ({"Fresh": "False"}, Phase.RUNNING, "Rank0Running", "FreshFalse"),
        ({"Fresh": "False", "Stalled": "True"}, Phase.RUNNING, "", "StalledTrue"),
        ({"Plateaued": "True"}, Phase.RUNNING, "", "PlateauedTrue"),
        ({"Fresh": "False", "Plateaued": "True"}, Phase.RUNNING, "", "FreshFalse"),
        ({"Reporting": "False", "Fresh": "False"}, Phase.RUNNING, "", "ReportingFalse"),
        ({"Reporting": "False"}, Phase.PENDING, "Unscheduled", "Unscheduled"),
        ({"Failed": "True", "Fresh": "False"}, Phase.FAILED, "", "FailedTrue"),
        ({"Complete": "True"}, Phase.SUCCEEDED, "", "CompleteTrue"),
        ({"Diverged": "True", "Complete": "True"}, Phase.SUCCEEDED, "", "DivergedTrue"),
        ({"Diverged": "Unknown", "Complete": "True"}, Phase.SUCCEEDED, "", "CompleteTrue"),
        ({"Suspended": "True"}, Phase.SUSPENDED, "Suspended", "SuspendedTrue"),
    ],
)
def test_the_reason_is_the_one_that_explains_most(
    conditions: dict[str, str], phase: Phase, job_reason: str, cell: str | None
) -> None:
    made = tuple(
        Condition(type=type_, status=status, reason=type_ + status, message="", since=NOW)
        for type_, status in conditions.items()
    )
    shown = document(phase=phase, conditions=made)
    assert cells(msgspec.structs.replace(shown, job=replace(shown.job, reason=job_reason)))["Reason"] == cell


FAILURE = Failure(
    at=NOW, replica="node-3", pod_name="bert-node-0-3-x", exit_code=137, reason="OOMKilled", message="Killed."
)


def test_of_a_stall_the_reason_is_what_its_diagnosis_found() -> None:
    stalled = Condition(type="Stalled", status="True", reason="NoAdvance", message="", since=NOW)
    suspect = Suspect(pod_name="bert-7", reason="InDataLoader", rank=37)
    found = Diagnosis(at=NOW, reason="InDataLoader", message="It waits.", suspects=(suspect,))
    earlier = replace(found, at=NOW - timedelta(seconds=1))
    shown = document(conditions=(stalled,), diagnosis=found)
    assert cells(shown)["Reason"] == "InDataLoader (rank 37)"
    assert cells(replace(shown, diagnosis=earlier))["Reason"] == "NoAdvance"
    nameless = replace(found, suspects=(replace(suspect, rank=None),))
    assert cells(replace(shown, diagnosis=nameless))["Reason"] == "InDataLoader (bert-7)"


OF_RANK0 = msgspec.structs.replace(FAILURE, pod_name=rank0().pod_name)


@pytest.mark.parametrize(
    ("failure", "pod", "reason"),
    [
        (None, None, "FailedJobs"),
        (None, rank0(last_termination=KILLED), "FailedJobs (exit 137)"),
        (FAILURE, rank0(), "OOMKilled (exit 137, node-3)"),
        (FAILURE, None, "OOMKilled (exit 137, node-3)"),
        (OF_RANK0, rank0(last_termination=KILLED), "OOMKilled (exit 137)"),
        (msgspec.structs.replace(OF_RANK0, reason="Error"), rank0(), "FailedJobs (exit 137)"),
        (msgspec.structs.replace(OF_RANK0, reason="NodeLost", exit_code=None), rank0(), "NodeLost"),
        (Failure(at=NOW, reason="FailedJobs", is_of_job=True), None, "FailedJobs"),
    ],
)
def test_the_reason_of_a_failed_job_is_what_failed_first(
    failure: Failure | None, pod: Rank0 | None, reason: str
) -> None:
    failed = Condition(type="Failed", status="True", reason="FailedJobs", message="2 jobs", since=NOW)
    shown = document(phase=Phase.FAILED, failure=failure, conditions=(failed,))
    row = cells(msgspec.structs.replace(shown, job=replace(shown.job, rank0=pod)))
    assert row["Reason"] == reason
    assert row["Message"] == ((failure.message if failure else "2 jobs") or None)


@pytest.mark.parametrize(
    ("held", "accelerators", "wasted"),
    [
        (None, None, None),
        (Resources(accelerators=64, by_name=(), held_s=9, wasted_s=None), "64", None),
        (Resources(accelerators=64, by_name=(), held_s=9, wasted_s=0), "64", "0h"),
        (Resources(accelerators=64, by_name=(), held_s=9, wasted_s=5400), "64", "1.5h"),
        (Resources(accelerators=64, by_name=(), held_s=9, wasted_s=1_234_567), "64", "343h"),
    ],
)
def test_waste_is_shown_in_accelerator_hours(
    held: Resources | None, accelerators: str | None, wasted: str | None
) -> None:
    row = cells(document(resources=held))
    assert (row["Accelerators"], row["Wasted"]) == (accelerators, wasted)


@pytest.mark.parametrize(
    ("seconds", "shown"), [({}, None), ({"Queued": 60}, None), ({"Productive": 500, "Other": 100}, "83%")]
)
def test_goodput_is_of_the_time_in_which_the_job_was_not_queued(
    seconds: dict[str, float], shown: str | None
) -> None:
    assert cells(document(goodput=spent(seconds)))["Goodput"] == shown


def test_the_attempts_say_why_the_last_one_failed() -> None:
    assert cells(document(attempts=1))["Attempts"] == "1"
    assert cells(document(attempts=3, failure=FAILURE))["Attempts"] == "3 (OOMKilled)"


@pytest.mark.parametrize(
    ("said", "failed", "cell"),
    [
        (None, None, None),
        ("evaluating", None, "evaluating"),
        ("CUDA out of memory", "2 jobs failed", "CUDA out of memory"),
        (None, "2 jobs failed", "2 jobs failed"),
        ("one\n\ttwo\x1b[31m", None, "one two�[31m"),
        ("m" * 1000, None, "m" * 99 + "…"),
        (" \n ", None, None),
    ],
)
def test_the_message_is_the_run_s_own_on_one_line(
    said: str | None, failed: str | None, cell: str | None
) -> None:
    conditions = () if failed is None else (
        Condition(type="Failed", status="True", reason="FailedJobs", message=failed, since=NOW),
    )  # fmt: skip
    assert cells(document(message=said, conditions=conditions))["Message"] == cell


@pytest.mark.parametrize(
    ("phase", "cell"),
    [
        (Phase.INITIALIZING, "dataset-initializer: Fetching 12 files 41 % (5/12)."),
        (Phase.PENDING, "dataset-initializer: Fetching 12 files 41 % (5/12)."),
        (Phase.RUNNING, "evaluating"),
        (Phase.SUCCEEDED, "evaluating"),
    ],
)
def test_before_a_run_the_message_is_what_it_waits_for(phase: Phase, cell: str) -> None:
    shown = document(phase=phase, message="evaluating")  # of an attempt before, where it is to run again
    waiting = replace(shown.job, message="dataset-initializer: Fetching 12 files 41 % (5/12).")
    assert cells(msgspec.structs.replace(shown, job=waiting))["Message"] == cell
