"""What is said of phases, failures and replicas, over objects that Kubeflow's published types accept."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/bin/python"  # the server's own environment: `make test-frameworks` makes both
CONFIGURATION = ROOT / "tests" / "frameworks" / "frameworks.ini"


@pytest.mark.parametrize("rules", ["phases", "failures", "trainjobs"])
def test_the_rules_hold_for_objects_of_the_published_types(rules: str, tmp_path: Path) -> None:
    types = importlib.util.find_spec("kubeflow_trainer_api")
    if types is None or types.origin is None:
        pytest.skip("no kubeflow_trainer_api here")
    assert PYTHON.exists(), "there is no .venv; `make test-frameworks` makes one"
    (tmp_path / "kubeflow_trainer_api").symlink_to(Path(types.origin).parent)
    command = [PYTHON, "-m", "pytest", "-q", "-n0", "-c", CONFIGURATION, "--rootdir", ROOT]
    plugins = ["-p", "tests.frameworks.typed_objects", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, *plugins, ROOT / "tests" / "unit" / f"test_workloads_{rules}.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "reporter", tmp_path)))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    checked = {
        name: int(count) for name, count in re.findall(r"^checked (\w+) (\d+)$", ran.stdout, re.MULTILINE)
    }
    assert min(checked[name] for name in ("Pod", "TrainJob", "BatchJob")) > 5, checked
    assert checked["JobSet"] > 1
