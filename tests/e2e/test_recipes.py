"""The commands of docs/recipes.md, as they stand there, by a user who may view the namespace."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.processes import PATIENCE_S
from tests.e2e.scripts import REPORTING, SHORT
from tests.e2e.workspace import Workspace

PAGE = (Path(__file__).parents[2] / "docs/recipes.md").read_text()
Run = Callable[[Workspace, str, int], subprocess.CompletedProcess[str]]


def block(heading: str, number: int) -> tuple[str, str]:
    """The language and the code at that place below the heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    found: tuple[str, str] = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", section)[number]
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(workspace: Workspace, heading: str, number: int = 0) -> subprocess.CompletedProcess[str]:
        language, text = block(heading, number)
        program = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
        user = workspace.alice
        bin_ = tmp_path / "bin"
        bin_.mkdir(exist_ok=True)
        if not (bin_ / "kubectl").exists():
            (bin_ / "kubectl").symlink_to(user.kubectl_argv()[0])
        env = user.kubectl_env() | {"KUBECONFIG": str(user.kubeconfig)}
        env["PATH"] = f"{bin_}:{env['PATH']}"
        return subprocess.run(
            [*program, text.replace("team-a", workspace.name)],
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run


def test_ci_waits_for_the_end_and_fails_with_the_job(workspace: Workspace, run: Run) -> None:
    workspace.start_job("bert", SHORT)
    assert (told := run(workspace, "Wait in CI", 0)).returncode == 0, told.stderr
    workspace.delete_job("bert")
    workspace.start_job("bert", "raise SystemExit(3)")
    workspace.wait_document("bert", lambda status: status["phase"] == "Failed", what="failed")
    told = run(workspace, "Wait in CI", 0)
    assert told.returncode == 1
    assert "exit code 3" in told.stdout


def test_a_job_that_needs_somebody_is_named_and_others_are_not(workspace: Workspace, run: Run) -> None:
    workspace.start_job("bert", REPORTING)
    workspace.start_job("broken", "raise SystemExit(3)")
    workspace.wait_reporting("bert")
    workspace.wait_document("broken", lambda status: status["phase"] == "Failed", what="failed")
    told = run(workspace, "Alert", 0)
    assert told.returncode == 0, told.stderr
    (line,) = told.stdout.strip().splitlines()
    assert line.startswith("trainjobs.broken Failed: ")


def test_a_notebook_follows_a_job_to_its_end_and_reads_its_curve(workspace: Workspace, run: Run) -> None:
    workspace.start_job("bert", SHORT)
    told = run(workspace, "Follow in a notebook", 0)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1].startswith("Succeeded 100 {'loss': '0.2'")
    told = run(workspace, "Follow in a notebook", 1)
    assert told.returncode == 0, told.stderr
    assert told.stdout.split()[-2:] == ["5", "0.2"]


def test_the_fleet_is_sorted_summed_and_selected(workspace: Workspace, run: Run) -> None:
    workspace.start_job("bert", REPORTING)
    workspace.wait_document("bert", lambda status: status["phase"] == "Running", what="runs")
    for heading, number, shown in (
        ("Sort the fleet by waste", 0, "trainjobs.bert"),
        ("Sort the fleet by waste", 1, workspace.name),
        ("List what runs", 0, "trainjobs.bert"),
    ):
        told = run(workspace, heading, number)
        assert told.returncode == 0, told.stderr
        assert shown in told.stdout
