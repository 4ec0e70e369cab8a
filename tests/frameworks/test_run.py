"""What frameworks print themselves, read by `trainjob_progress.run`: these trainings know nothing of us."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Progress

os.environ.setdefault("KERAS_BACKEND", "jax")
ROOT = Path(__file__).parents[2]


def train(directory: Path, script: str, *options: str) -> tuple[dict[str, Any], str]:
    """(last document, what was printed) of a training that only prints."""
    script = re.sub(r"^from trainjob_progress.*\n", "", script, flags=re.MULTILINE)
    script = re.sub(r",?\s*callbacks=\[ReportProgress\([^)]*\)?\],?", "", script)
    script = script.replace("progress, results = ReportProgress(), {}", "results = {}")
    script = re.sub(r"^progress = .*\n", "", script, flags=re.MULTILINE)
    script = script.replace("callbacks=[ReportProgress],", "").replace("callbacks=[progress]", "callbacks=[]")
    script = re.sub(r"^.*progress\.finish.*\n|^ *progress,\n", "", script, flags=re.MULTILINE)
    assert "ReportProgress" not in script
    (directory / "train.py").write_text(script)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "reporter"),
        "PYTHONUNBUFFERED": "1",
        "TRAINJOB_PROGRESS_FILE": str(directory / "progress.json"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "trainjob_progress.run", *options, "--", sys.executable, "train.py"]
    run = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads((directory / "progress.json").read_bytes()), run.stdout


def example(name: str) -> str:
    return (ROOT / "examples" / f"train_{name}.py").read_text()


def test_transformers_bar_and_dictionaries(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    document, _ = train(tmp_path, example("transformers"))
    assert document["step"] == document["totalSteps"] > 100
    assert {"loss", "grad_norm", "learning_rate", "eval_loss", "train_loss"} <= set(document["metrics"])
    assert document["epoch"] == 3


@pytest.mark.parametrize("bar", ["RichProgressBar", "TQDMProgressBar"])
def test_lightnings_bars(tmp_path: Path, bar: str) -> None:
    pytest.importorskip("lightning.pytorch")
    script = example("lightning").replace('self.log("loss", loss)', 'self.log("loss", loss, prog_bar=True)')
    bars = f"from lightning.pytorch.callbacks import {bar} as Bar\nimport lightning\n"
    script = script.replace("import lightning\n", bars).replace("[ReportProgress()]", "[Bar()]")
    document, _ = train(tmp_path, script)
    assert document["step"] == 10 * 44
    assert document["epoch"] == 10
    assert document["metrics"]["loss"] < 1


@pytest.mark.parametrize("verbose", [1, 2])
def test_keras_lines(tmp_path: Path, verbose: int) -> None:
    pytest.importorskip("keras")
    document, printed = train(tmp_path, example("keras").replace("verbose=2", f"verbose={verbose}"))
    assert (document["step"], document["totalSteps"], document["epoch"]) == (440, 440, 10)
    said = re.search(r"^accuracy=([\d.]+)$", printed, re.MULTILINE)
    assert said is not None
    assert document["metrics"]["val_accuracy"] == pytest.approx(float(said.group(1)), abs=0.001)


@pytest.mark.parametrize(
    ("framework", "metrics"),
    [
        ("xgboost", {"test-logloss", "test-auc"}),
        ("lightgbm", {"test-binary_logloss", "test-auc"}),
        ("catboost", {"learn", "test"}),
    ],
)
def test_boosting_rounds(tmp_path: Path, framework: str, metrics: set[str]) -> None:
    pytest.importorskip(framework)
    script = re.sub(r"\n *lightgbm.early_stopping\(.*\),", "", example(framework))
    document, _ = train(tmp_path, script, "--total-steps=300")
    assert 250 < document["step"] <= 300  # what was printed last
    assert document["totalSteps"] == 300
    assert metrics <= set(document["metrics"])


NESTED = """
import time
from tqdm import tqdm
for epoch in tqdm(range(4)):
    for step in (bar := tqdm(range(60))):
        time.sleep(0.01)
        bar.set_postfix(loss=1 / (step + 1))
    for step in tqdm(range(20), desc="validating", leave=False):
        time.sleep(0.01)
"""


@pytest.mark.parametrize("name", ["transformers", "lightning", "keras", "nested"])
def test_neither_the_steps_nor_the_percentage_of_a_run_fall(
    progress: Progress, tmp_path: Path, name: str
) -> None:
    pytest.importorskip({"nested": "tqdm", "lightning": "lightning.pytorch"}.get(name, name))
    script = NESTED if name == "nested" else example(name).replace("verbose=2", "verbose=1")
    train(tmp_path, script)
    steps = [document["step"] for document in progress.seen if "step" in document]
    percentages = [document.get("progressPercentage", 0) for document in progress.seen]
    assert steps == sorted(steps)
    assert percentages == sorted(percentages)
    if name == "nested":
        assert progress.numbers == ("completed", 240, 240, 100)
