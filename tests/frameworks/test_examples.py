"""The examples run as they are, and their reports end where they end."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("train_*.py"))
STOPS_EARLY = {"train_lightgbm.py"}  # by early stopping: completed, and as far as its steps say


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_trains_and_reports_to_its_end(example: Path, tmp_path: Path) -> None:
    for module in re.findall(r"^(?:from|import) (\w+)", example.read_text(), re.MULTILINE):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module} here")
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "reporter"),
        "TRAINJOB_PROGRESS_FILE": str(tmp_path / "progress.json"),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(example)]
    if example.name == "train_anything.py":
        command = [sys.executable, "-m", "trainjob_progress.run", "--", *command]
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]
    document = json.loads((tmp_path / "progress.json").read_bytes())
    assert document["state"] == "completed"
    if example.name in STOPS_EARLY:
        assert document["ending"] == "stopped"
        assert 0 < document["progressPercentage"] < 100
    else:
        assert document["progressPercentage"] == 100
    if example.name not in STOPS_EARLY:
        assert document["step"] == document["totalSteps"]
    said = re.search(r"^(accuracy|auc|loss)=([\d.]+)$", run.stdout, re.MULTILINE)
    if said is not None:  # what the program says last is what the report says, and it has learnt something
        name, value = said.group(1), float(said.group(2))
        reported = [float(v) for key, v in document["metrics"].items() if name[:3] in key.lower()]
        assert any(abs(number - value) < 0.006 for number in reported), document["metrics"]
        assert value > 0.8 if name != "loss" else value < 5
    assert "trainjob_progress:" not in run.stderr
