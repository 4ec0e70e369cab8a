"""The reporter on every Python that training images use, as far as they are on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pythons import VERSIONS, find_python

REPORTER = Path(__file__).parents[2] / "reporter"

SCRIPT = """
import threading
from trainjob_progress import report, report_metrics, track
for epoch in track(range(4), epochs=2):
    report_metrics({"loss": 0.5, "nan": float("nan")})
with report(total_steps=3) as r:
    for i in range(3):
        r.step(loss=1 / (i + 1))
    r.epoch()
    r.message("done")
"""


AT_ONCE = """
import asyncio, threading
from trainjob_progress import track

async def train(items):
    for _ in track(range(items)):
        await asyncio.sleep(0)

async def both():
    await train(2)
    await asyncio.gather(train(5), train(3))
    thread = threading.Thread(target=lambda: list(track(range(7))))
    for _ in track(range(4)):
        if thread.ident is None:
            thread.start()
            thread.join()
    list(zip(track(range(6)), track(range(9))))

asyncio.run(both())
"""


KEPT = """
from trainjob_progress import track
kept = []
def run():
    kept.append(iter(track(range(10))))
    for i, _ in enumerate(kept[-1]):
        if i == 4:
            return
for epoch in range(3):
    run()
"""


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("pythons")
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPORTER),
        "PYTHONPYCACHEPREFIX": str(directory / "cache"),
        "PYTHONWARNINGS": "error",
        "TRAINJOB_PROGRESS_FILE": str(directory / "progress.json"),
    }


@pytest.mark.parametrize(
    ("script", "at_once", "expected"),
    [
        pytest.param(SCRIPT, 0, {"state": "completed", "step": 3, "epoch": 1, "message": "done"}, id="loops"),
        # The first one counts.
        pytest.param(AT_ONCE, 3, {"state": "completed", "step": 6, "totalSteps": 6}, id="loops at once"),
        # Its iterator is kept. Seen on 3.9 and 3.10: three attempts, of which two had failed.
        pytest.param(KEPT, 0, {"ending": "stopped", "step": 12, "epoch": 2, "message": None}, id="return"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_loops_report_on_this_python(
    version: str, environ: dict[str, str], script: str, at_once: int, expected: dict[str, Any]
) -> None:
    result = subprocess.run([find_python(version), "-c", script], env=environ, capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr.count("run at once") == len(result.stderr.splitlines()) == at_once
    document = json.loads(Path(environ["TRAINJOB_PROGRESS_FILE"]).read_bytes())
    assert {name: document.get(name) for name in expected} == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_every_module_without_a_framework_imports_on_this_python(
    version: str, environ: dict[str, str]
) -> None:
    package = REPORTER / "trainjob_progress"
    names = [
        ".".join(path.relative_to(REPORTER).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(package.rglob("*.py"))
        if path.parent.name not in ("integrations", "trackers")
        or path.stem in ("__init__", "lightgbm", "catboost", "torchtune", "tensorboard")
    ]
    result = subprocess.run(
        [find_python(version), "-c", f"import {', '.join(names)}"],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("version", VERSIONS)
def test_importing_needs_the_standard_library_alone_and_little_of_it(
    version: str, environ: dict[str, str]
) -> None:
    """What is slow to import is left for later; the time itself is measured in benchmarks/."""
    script = "import sys; import trainjob_progress; print(*sys.modules)"
    command = [
        find_python(version),
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(REPORTER)!r}); {script}",
    ]
    result = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    modules = set(result.stdout.split())
    assert "trainjob_progress.reporter" in modules
    late = {
        "json",
        "datetime",
        "logging",
        "ssl",
        "http.client",
        "urllib.request",
        "dataclasses",
        "asyncio",
        "typing",
        "re",
    }
    assert not modules & late
