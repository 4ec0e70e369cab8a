"""What frameworks print themselves, read by `trainjob_progress.run`: these trainings know nothing of us."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Progress
from .container import ROOT
from .test_logs import script_of

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
EXAMPLE = {
    name: script_of(name, "None") for name in ("catboost", "keras", "lightgbm", "transformers", "xgboost")
}
EXAMPLE["lightgbm"] = re.sub(r"\n *lightgbm.early_stopping\(.*\),", "", EXAMPLE["lightgbm"])


def lightning(bar: str) -> str:
    script = script_of("lightning", "None")
    script = script.replace('self.log("loss", loss)', 'self.log("loss", loss, prog_bar=True)')
    bars = f"from lightning.pytorch.callbacks import {bar} as Bar\nimport lightning\n"
    return re.sub(
        r"Trainer\(", "Trainer(callbacks=[Bar()], ", script.replace("import lightning\n", bars), count=1
    )


@pytest.mark.parametrize(
    ("framework", "script", "wanted", "metrics"),
    [
        (
            "transformers",
            EXAMPLE["transformers"],
            {"epoch": 3, "progressPercentage": 100},
            {"loss", "grad_norm", "learning_rate", "eval_loss", "train_loss"},
        ),
        ("lightning.pytorch", lightning("RichProgressBar"), {"step": 440, "epoch": 10}, {"loss"}),
        ("lightning.pytorch", lightning("TQDMProgressBar"), {"step": 440, "epoch": 10}, {"loss"}),
        (
            "keras",
            EXAMPLE["keras"].replace("verbose=2", "verbose=1"),
            {"step": 440, "totalSteps": 440, "epoch": 10},
            {"val_accuracy"},
        ),
        ("keras", EXAMPLE["keras"], {"step": 440, "totalSteps": 440, "epoch": 10}, {"val_accuracy"}),
        ("xgboost", EXAMPLE["xgboost"], {"totalSteps": 300}, {"test-logloss", "test-auc"}),
        ("lightgbm", EXAMPLE["lightgbm"], {"totalSteps": 300}, {"test-binary_logloss", "test-auc"}),
        ("catboost", EXAMPLE["catboost"], {"totalSteps": 300}, {"learn", "test"}),
        ("tqdm", NESTED, {"state": "completed", "step": 240, "progressPercentage": 100}, {"loss"}),
    ],
)
def test_what_it_prints_is_reported_and_neither_steps_nor_percentage_fall(
    progress: Progress, tmp_path: Path, framework: str, script: str, wanted: dict[str, Any], metrics: set[str]
) -> None:
    pytest.importorskip(framework)
    (tmp_path / "train.py").write_text(script)
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT / "reporter"), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "KERAS_BACKEND": "jax",
    }  # fmt: skip
    options = ["--total-steps=300"] if "boost" in framework or framework == "lightgbm" else []
    command = [sys.executable, "-m", "trainjob_progress.run", *options, "--", sys.executable, "train.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]
    last = progress.last
    assert last.items() >= wanted.items()
    assert metrics <= set(last["metrics"])
    assert 100 < last["step"] <= last.get("totalSteps", last["step"])
    assert not options or last["step"] > 250  # what was printed last
    assert framework != "lightning.pytorch" or last["metrics"]["loss"] < 1
    said = re.search(r"^accuracy=([\d.]+)$", run.stdout, re.MULTILINE)
    if framework == "keras":
        assert said is not None
        assert last["metrics"]["val_accuracy"] == pytest.approx(float(said.group(1)), abs=0.001)
    steps = [document["step"] for document in progress.seen if "step" in document]
    percentages = [document.get("progressPercentage", 0) for document in progress.seen]
    assert (steps, percentages) == (sorted(steps), sorted(percentages))
