"""What the demo says of what goes wrong, and that a terminal of 80 columns shows it."""

from __future__ import annotations

from typing import Any

import pytest

from localcluster.demo.scenario import EXAMPLES, JOBS, WIDTH, say, train_job, verdicts


def item(name: str, phase: str, *conditions: tuple[str, str], **status: Any) -> dict[str, Any]:
    found = [{"type": type_, "status": held, "message": f"About {type_}."} for type_, held in conditions]
    return {"metadata": {"name": name}, "status": {"phase": phase, "conditions": found, **status}}


def test_each_thing_that_is_wrong_is_said_in_a_sentence() -> None:
    failure = {"reason": "OOMKilled", "exitCode": 137, "message": "It ran out of memory."}
    assert verdicts(
        [
            item("fine", "Running", ("Fresh", "True"), ("Stalled", "False"), ("Diverged", "Unknown")),
            item("hangs", "Running", ("Stalled", "True")),
            item("leaks", "Failed", ("Failed", "True"), failure=failure),
            item("just-failed", "Failed", ("Failed", "True")),  # why is not known yet
        ]
    ) == [
        ("hangs", "Stalled", "Stalled. About Stalled."),
        ("leaks", "Failed", "Failed (OOMKilled, exit code 137). It ran out of memory."),
    ]


def test_what_is_said_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a sentence " * 30)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert all(len(line) <= WIDTH for line in lines)


def test_every_job_is_a_program_that_exists() -> None:
    for script, *_ in JOBS.values():
        assert (EXAMPLES / script).is_file()
    job = train_job("leaks", "digits.py", [], memory_limit="1Mi")
    assert job["spec"]["trainer"]["resourcesPerNode"] == {"limits": {"memory": "1Mi"}}
