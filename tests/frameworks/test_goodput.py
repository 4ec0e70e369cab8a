"""Real trainings that load, save, evaluate, die and resume: where their time goes comes out as it was.

`RECORD=1` keeps what was seen in tests/recordings, for tests/unit/test_jobs_goodput_truth.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SERVER_PYTHON = ROOT / ".venv" / "bin" / "python"
TRAININGS = Path(__file__).parent / "trainings"
READ_S = 5.0


def attempt(name: str, directory: Path, number: int) -> dict[str, Any]:
    """One process from its start to its end, as its node sees it."""
    file, message, notes = (directory / f"{each}-{number}" for each in ("progress.json", "message", "notes"))
    message.touch()
    environ = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'reporter'}:{TRAININGS}", "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "TRAINJOB_PROGRESS_FILE": str(file), "NOTES": str(notes),
        "ATTEMPT": str(number), "TRAINJOB_TERMINATION_MESSAGE_PATH": str(message),
    }  # fmt: skip
    documents: list[tuple[float, str]] = []
    is_over = threading.Event()

    def read() -> None:
        due = started + READ_S
        while not is_over.wait(max(0.0, due - time.time())):
            documents.append((time.time(), file.read_text() if file.exists() else ""))
            due += READ_S

    started = time.time()
    process = subprocess.Popen(
        [sys.executable, TRAININGS / f"{name}.py"], cwd=directory, env=environ, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    reader = threading.Thread(target=read)
    reader.start()
    output, _ = process.communicate()
    ended = time.time()
    is_over.set()
    reader.join()
    assert process.returncode == (1 if number == 0 else 0), output[-3000:]
    assert "trainjob_progress:" not in output
    return {
        "started": started,
        "ended": ended,
        "exit": process.returncode,
        "documents": documents,
        "message": message.read_text(),
        "noted": [json.loads(line) for line in notes.read_text().splitlines()],
    }


@pytest.mark.parametrize("name", ["torch_loop", "transformers_trainer", "lightning_trainer"])
def test_each_kind_comes_out_as_it_was(name: str, tmp_path: Path) -> None:
    pytest.importorskip(
        {"torch_loop": "torch", "transformers_trainer": "transformers"}.get(name, "lightning")
    )
    compared = record(name, tmp_path)
    whole_s = sum(compared["truth"].values())
    for kind, seconds in compared["found"].items():
        assert abs(seconds - compared["truth"].get(kind, 0)) < 0.02 * whole_s, (kind, compared)


def test_productive_time_comes_out_of_a_training_that_marks_nothing(tmp_path: Path) -> None:
    """As far as anything tells the wait for each batch from the step."""
    pytest.importorskip("torch")
    compared = record("unmarked_loop", tmp_path)
    truth = compared["truth"]
    expected_s = truth["Productive"] + truth["DataLoading"]
    assert abs(compared["found"]["Productive"] - expected_s) < 0.05 * sum(truth.values()), compared


def record(name: str, tmp_path: Path) -> dict[str, Any]:
    """Two attempts: their true split, and what the server makes of it."""
    recording = {"attempts": [attempt(name, tmp_path, number) for number in range(2)]}
    kept = ROOT / "tests" / "recordings" if os.environ.get("RECORD") else tmp_path
    path = kept / f"{name}.json"
    path.write_text(json.dumps(recording, separators=(",", ":")) + "\n")
    found = subprocess.run(
        [SERVER_PYTHON, "-m", "tests.trainings", path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(found.stdout)
    compared: dict[str, Any] = json.loads(found.stdout)
    return compared
