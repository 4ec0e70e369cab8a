"""The exec source: every form of report a file may hold, and not a byte of what is no report."""

from __future__ import annotations

import json

import pytest

from tests.unit.test_progress_report import SECRET, TRANSFORMERS
from visibility_api.progress.document import Progress, Refused

from .test_cluster_execute import ask, saying

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
    outcome = (await ask(saying((1, file)))).outcome
    assert isinstance(outcome, Progress), outcome
    assert outcome.step == shown


async def test_the_file_of_the_kep_is_read() -> None:
    outcome = (await ask(saying((1, json.dumps(BARE).encode())))).outcome  # KUBEFLOW_TRAINER_STATUS_FILE
    assert isinstance(outcome, Progress), outcome
    assert outcome.progress_percentage == 45


@pytest.mark.parametrize(
    "file", [f"{SECRET}/100", f"token: {SECRET}", f'{{"currentStep":"{SECRET}"}}', SECRET]
)
async def test_a_secret_in_place_of_a_report_is_never_repeated(file: str) -> None:
    answer = await ask(saying((1, file.encode()), (2, SECRET.encode())))
    assert isinstance(answer.outcome, Refused)
    assert SECRET not in repr(answer)
