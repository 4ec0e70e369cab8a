"""Every example has a TrainJob, and what the TrainJob runs is the example."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
import yaml

from examples.manifests import EXAMPLES, render

DIRECTORY = Path(__file__).parents[2] / "examples"


def test_every_example_has_a_manifest() -> None:
    assert {path.stem for path in DIRECTORY.glob("train_*.py")} == {f"train_{name}" for name in EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_manifest_is_what_its_example_makes_of_it(name: str) -> None:
    """Otherwise: python examples/manifests.py"""
    assert (DIRECTORY / f"train_{name}.yaml").read_text() == render(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_trainjob_runs_the_example_unchanged(name: str, tmp_path: Path) -> None:
    manifest = yaml.safe_load((DIRECTORY / f"train_{name}.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    shell, option, commands = manifest["spec"]["trainer"]["command"]
    # Everything but the installation and the training itself, in a shell.
    install, *rest = commands.splitlines()
    assert install.startswith("pip install --quiet trainjob-progress")
    assert rest[-1].startswith("exec python ")
    script = "\n".join(rest[:-2]).replace("/tmp/train.py", "train.py")
    subprocess.run([shell, option, script], cwd=tmp_path, check=True)
    written = (tmp_path / "train.py").read_text()
    assert written == (DIRECTORY / f"train_{name}.py").read_text()
    ast.parse(written)
