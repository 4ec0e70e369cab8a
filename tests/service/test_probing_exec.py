"""The exec source: every form of report a file may hold, and not a byte of what is no report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobs import RANK0
from tests.unit.test_reports_report import SECRET, TRANSFORMERS
from visibility_api.jobs.job import ANNOTATED_PATH
from visibility_api.reports.document import Progress, Refused, RetryClass

from .test_kube_execute import ask, exit_status, saying

BARE = {"progressPercentage": 45, "lastUpdatedTime": "2026-01-23T10:30:45Z"}


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (b'{"timestamp":"2026-01-23T10:30:45Z","step":450}', 450),
        (b"450/1000\n", 450),  # ARGO_PROGRESS_FILE
        (json.dumps(TRANSFORMERS).encode(), 450),
    ],
)
async def test_a_file_of_each_form_is_read(file: bytes, shown: int) -> None:
    outcome = await ask(saying((1, file)))
    assert isinstance(outcome, Progress), outcome
    assert outcome.step == shown


async def test_the_file_of_the_kep_is_read() -> None:
    outcome = await ask(saying((1, json.dumps(BARE).encode())))  # KUBEFLOW_TRAINER_STATUS_FILE
    assert isinstance(outcome, Progress), outcome
    assert outcome.progress_percentage == 45


@pytest.mark.parametrize(
    "file", [f"{SECRET}/100", f"token: {SECRET}", f'{{"currentStep":"{SECRET}"}}', SECRET]
)
async def test_a_secret_in_place_of_a_report_is_never_repeated(file: str) -> None:
    outcome = await ask(saying((1, file.encode()), (2, SECRET.encode())))
    assert isinstance(outcome, Refused)
    assert SECRET not in repr(outcome)


NO_FILE = saying((2, b"cat: can't open: No such file or directory"), status=exit_status(1))


async def test_without_a_file_at_the_default_path_the_message_says_how_to_report() -> None:
    outcome = await ask(NO_FILE)
    assert isinstance(outcome, Refused)
    assert outcome.message == (
        "No progress file at /tmp/trainjob-progress.json (the default path; the job declares no other). "
        "Instrument the job or set TRAINJOB_PROGRESS_FILE."
    )


async def test_without_a_file_at_the_declared_path_the_message_says_who_declared_it() -> None:
    declared = (("http", "annotation x/port"), ("exec", "environment variable ARGO_PROGRESS_FILE"))
    outcome = await ask(NO_FILE, rank0=replace(RANK0, progress_path="/data/p", declared=declared))
    assert isinstance(outcome, Refused)
    assert outcome.message == (
        "No progress file at /data/p, the path in environment variable ARGO_PROGRESS_FILE. "
        "Check that rank 0 writes it."
    )


ANNOTATED = replace(RANK0, progress_path="/mnt/p", declared=(ANNOTATED_PATH,))
FOREIGN = [  # what parses, and is no report
    b'{"timestamp":"2026-01-23T10:30:45Z","message":"hunter2"}',
    b'{"timestamp":"2026-01-23T10:30:45Z","metrics":{"password":"hunter2"}}',
    b'{"timestamp":"2026-01-23T10:30:45Z","state":"failed","schemaVersion":"hunter2"}',
    b'{"lastUpdatedTime":"2026-01-23T10:30:45Z","metrics":[{"name":"password","value":"hunter2"}]}',
    b"12/34",
]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(NO_FILE, id="nothing"),
        pytest.param(saying((2, b"cat: read error: Is a directory"), status=exit_status(1)), id="directory"),
        pytest.param(saying((2, b"cat: Permission denied"), status=exit_status(1)), id="not readable"),
        pytest.param(saying((2, b"cat: Invalid argument"), status=exit_status(1)), id="another error"),
        pytest.param(saying((1, b"")), id="empty"),
        pytest.param(saying((1, b"\xff")), id="binary"),
        pytest.param(saying((1, SECRET.encode())), id="text"),
        pytest.param(saying((1, b"[" * 1000)), id="deep"),
        pytest.param(saying((1, b"{}")), id="JSON"),
        pytest.param(saying((1, b'{"timestamp":"2026-01-23T10:30:45Z","step":-1}')), id="a wrong field"),
        pytest.param(saying((1, b" " * 70_000)), id="large"),
        *(pytest.param(saying((1, each)), id=f"foreign {number}") for number, each in enumerate(FOREIGN)),
    ],
)
async def test_an_annotated_path_answers_the_same_for_all_that_is_no_report(answer: Any) -> None:
    outcome = await ask(answer, rank0=ANNOTATED)
    assert outcome == Refused(
        reason="NoProgressFile",
        message="No report at /mnt/p, the path in the job's annotation. "
        "Check that rank 0 writes its progress there (docs/document.md).",
        retry=RetryClass.LATER,
    )


@pytest.mark.parametrize(
    "file",
    [
        b'{"timestamp":"2026-01-23T10:30:45Z","step":450}',
        b'{"timestamp":"2026-01-23T10:30:45Z","schemaVersion":1,"message":"loading"}',
        b'{"trainerStatus":{"lastUpdatedTime":"2026-01-23T10:30:45Z"}}',
        json.dumps(BARE).encode(),
        json.dumps(TRANSFORMERS).encode(),
    ],
)
async def test_a_report_at_an_annotated_path_is_read(file: bytes) -> None:
    outcome = await ask(saying((1, file)), rank0=ANNOTATED)
    assert isinstance(outcome, Progress), outcome


async def test_what_is_not_the_files_fault_is_told_of_an_annotated_path_too() -> None:
    outcome = await ask(saying(status=exit_status(127)), rank0=ANNOTATED)
    assert isinstance(outcome, Refused)
    assert outcome.reason == "NoCatInImage"
