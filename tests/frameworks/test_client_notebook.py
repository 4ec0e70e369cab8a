"""The client in a real Jupyter kernel: its display follows the job while other cells run."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.test_client_requests import HISTORY, RECORD
from trainjob_client import JobRecord, JobRecords

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = ("""
from trainjob_client import Client
client = Client("team-a", config_file={config!r})
shown = client.show_job("bert")
""", "assert shown.wait(60)", 'client.get_job("bert")')  # fmt: skip


@pytest.fixture
def server() -> Iterator[str]:
    """Of one job, that has come ten percent further at each look, until it has succeeded."""
    steps = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            meta = {"name": "bert", "namespace": "team-a", "uid": "u", "resourceVersion": "1"}
            found: dict[str, object] = {"kind": "TrainJobProgress", "metadata": meta}
            if self.path.split("?")[0].endswith("/history"):
                series = {
                    "metric": "loss",
                    "attempt": 0,
                    "times": [1, 2],
                    "steps": [1, 2],
                    "values": ["2", "1"],
                }
                found |= {"attempts": [], "progress": [], "series": [series]}
            else:
                percent = min(100, 40 * next(steps))
                phase = "Succeeded" if percent == 100 else "Running"
                found["status"] = {"phase": phase, "progressPercentage": percent}
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_the_display_follows_the_job_until_it_ends(server: str, tmp_path: Path) -> None:
    config = {
        "current-context": "one",
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "contexts": [{"name": "one", "context": {"cluster": "a"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))  # JSON is YAML
    cells = [nbformat.v4.new_code_cell(each.format(config=str(tmp_path / "config"))) for each in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    first, _, last = notebook.cells
    (shown,) = [each for each in first.outputs if each.output_type == "display_data"]
    assert "100 %" in shown.data["text/html"]
    assert "Succeeded" in shown.data["text/html"]
    assert "<svg" in shown.data["text/html"]
    assert "Succeeded" in last.outputs[0].data["text/html"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_history_and_records_become_a_data_frame_of_either_library(library: str) -> None:
    pytest.importorskip(library)
    frame = getattr(HISTORY, f"to_{library}")()
    assert list(frame.columns) == ["time", "attempt", "step", "metric", "value"]
    assert list(frame["metric"]) == ["loss", "lr", "loss", "epoch"]
    steps = ["1", "None", "2", "None"] if library == "polars" else ["1", "<NA>", "2", "<NA>"]  # no floats
    assert [str(each) for each in frame["step"]] == steps
    records = JobRecords([JobRecord.model_validate(RECORD)])
    assert list(getattr(records, f"to_{library}")()["metric.loss"]) == [0.25]
