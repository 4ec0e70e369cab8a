"""Cells of a notebook that fail or are interrupted, and are run again, in a real kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

BEGIN = "import os, signal, time\nfrom trainjob_progress import current, track\nFAILS = True"
FAILING = {
    "exception": "raise RuntimeError('out of memory')",
    "interrupt": "os.kill(os.getpid(), signal.SIGINT); time.sleep(20)",
}
LOOPS = {
    "loop": "for i in track(range(200)):",
    "kept iterator": "batches = enumerate(track(range(200)))\nfor i, _ in batches:",
}


@pytest.mark.parametrize("how", FAILING)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_cell_that_is_run_again_is_a_run_of_its_own(
    how: str, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 200 of 28,000, epoch 61: IPython keeps the traceback. A third loop was not counted at all."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv("TRAINJOB_PROGRESS_FILE", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["reporter", os.environ.get("PYTHONPATH", "")]))
    cell = f"{LOOPS[loop]}\n    if FAILS and i == 60:\n        {FAILING[how]}"
    sources = [BEGIN, cell, cell, "FAILS = False", cell, cell, "current().flush(5)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(notebook, allow_errors=True, kernel_name="python3", timeout=120).execute()
    assert [len([out for out in each.outputs if out.output_type == "error"]) for each in notebook.cells] == [
        0, 1, 1, 0, 0, 0, 0,
    ]  # fmt: skip
    last = json.loads(path.read_bytes())
    assert (last["ending"], last["step"], last["totalSteps"], last["epoch"]) == ("finished", 200, 200, 1)
    said = "failed" if loop == "loop" else "ended"  # who keeps the iterator may have left the loop otherwise
    assert last["message"] == f"earlier: an attempt {said} at 60/200, an attempt {said} at 60/200"
