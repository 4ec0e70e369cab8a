"""What the demo says of what goes wrong, and that a terminal of 80 columns shows it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from localcluster.demo import scenario
from localcluster.demo.kubectl import Kubectl
from localcluster.demo.scenario import (
    EXAMPLES,
    JOBS,
    TO_BE_FOUND,
    WIDTH,
    find_faults,
    follow,
    say,
    train_job,
    verdicts,
)


def item(name: str, phase: str, *conditions: tuple[str, str], **status: Any) -> dict[str, Any]:
    found = [{"type": type_, "status": held, "message": f"About {type_}."} for type_, held in conditions]
    return {"jobRef": {"name": name}, "status": {"phase": phase, "conditions": found, **status}}


def test_each_thing_that_is_wrong_is_said_in_a_sentence() -> None:
    failure = {"reason": "OOMKilled", "exitCode": 137, "message": "It ran out of memory."}
    diagnosis = {"message": "Rank 2 sleeps.", "suspects": [{"rank": 2}]}
    vague = {"message": "No rank could be read."}
    assert verdicts(
        [
            item("fine", "Running", ("Fresh", "True"), ("Stalled", "False"), ("Diverged", "Unknown")),
            item("hangs", "Running", ("Stalled", "True"), diagnosis=diagnosis),
            item("also", "Running", diagnosis=vague),
            item("leaks", "Failed", ("Failed", "True"), failure=failure),
            item("just-failed", "Failed", ("Failed", "True")),  # why is not known yet
        ]
    ) == [
        ("hangs", "Stalled", "Stalled. About Stalled."),
        ("hangs", "Diagnosed", "Rank 2 sleeps."),
        ("leaks", "Failed", "Failed (OOMKilled, exit code 137). It ran out of memory."),
    ]


def test_what_is_said_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a sentence " * 30)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert all(len(line) <= WIDTH for line in lines)


async def test_it_goes_on_until_what_is_wrong_is_found_or_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a job whose end is seen before why it failed is known."""
    monkeypatch.setattr(scenario, "SHOW_EVERY_S", 0.01)
    trouble = [
        item("hangs", "Running", ("Stalled", "True"), diagnosis={"message": "", "suspects": [{}]}),
        item("diverges", "Failed", ("Diverged", "True")),
    ]
    failure = {"reason": "OOMKilled", "exitCode": 137, "message": "It ran out of memory."}
    leaks = [item("leaks", "Failed"), item("leaks", "Failed", failure=failure)]

    class Alice:
        async def show_jobs(self) -> None: ...

        async def read(self, _path: str) -> dict[str, Any]:
            ended = [item(name, "Succeeded") for name in sorted(JOBS.keys() - {"hangs", "leaks"})]
            return {"items": [*ended, *trouble, leaks[0] if len(leaks) == 1 else leaks.pop(0)]}

    found = await follow(cast("Kubectl", Alice()), asyncio.Event())
    assert found == TO_BE_FOUND
    assert "leaks, after" in capsys.readouterr().out
    monkeypatch.setattr(scenario, "GIVE_UP_S", -1)
    trouble.clear()
    found = await follow(cast("Kubectl", Alice()), asyncio.Event())
    assert found is not None
    assert TO_BE_FOUND - found == {("diverges", "Diverged"), ("hangs", "Stalled"), ("hangs", "Diagnosed")}


def test_time_that_is_not_shown_as_it_was_spent_is_said() -> None:
    def jobs(loading: float, recovery: float) -> dict[str, Any]:
        spent = {
            "slow-loader": {"productive": 20, "dataLoading": loading, "evaluation": 1},
            "restarts": {"productive": 20, "checkpointSave": 2, "lostProgress": 3, "recovery": recovery},
        }
        return {
            "items": [
                item("linear", "Succeeded"),
                *(
                    item(name, "Succeeded", goodput={"whole": {"seconds": seconds}})
                    for name, seconds in spent.items()
                ),
            ]
        }

    assert find_faults(jobs(10, 5)) == []
    assert find_faults(jobs(2, 0)) == [
        "slow-loader shows 9% of its time in its loader",
        "restarts shows no time of recovery",
    ]


def test_every_job_is_a_program_that_exists() -> None:
    for script, *_ in JOBS.values():
        assert (EXAMPLES / script).is_file()
    job = train_job("leaks", ["python"], memory_limit="1Mi")
    assert job["spec"]["trainer"]["resourcesPerNode"] == {"limits": {"memory": "1Mi"}}
