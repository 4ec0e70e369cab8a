"""Trainings that do not mention us report, because of their environment alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("framework", ["transformers", "trl", "lightning"])
def test_a_program_that_knows_nothing_of_us_reports(framework: str, tmp_path: Path) -> None:
    pytest.importorskip("lightning.pytorch" if framework == "lightning" else framework)
    script = (ROOT / "examples" / f"train_{framework}.py").read_text()
    script = re.sub(r"^from trainjob_progress.*\n", "", script, flags=re.MULTILINE)
    script = re.sub(r",?\s*callbacks=\[ReportProgress(\(\))?\],?", "", script)
    assert "ReportProgress" not in script
    (tmp_path / "train.py").write_text(script)
    environ = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}/reporter:{ROOT}/reporter/trainjob_progress/auto",
        "TRAINJOB_PROGRESS_AUTO": "1",
        "TRAINJOB_PROGRESS_FILE": str(tmp_path / "progress.json"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-3000:]
    document = json.loads((tmp_path / "progress.json").read_bytes())
    assert (document["state"], document["progressPercentage"]) == ("completed", 100)
    assert document["step"] == document["totalSteps"] > 100
    assert "loss" in document["metrics"]
