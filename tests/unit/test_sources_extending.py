"""A source that nobody has: three files of the server are all that docs/architecture.md says it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
from visibility_api.reports.document import Progress


class CarrierSource:
    def __init__(self, now): self._now = now

    async def probe(self, ref, rank0):
        return Progress(timestamp=self._now(), step=7, total_steps=10)
"""

# A line that is in the file, and what a source adds to it.
LINES = {
    "models/sources.py": (
        "SOURCE_TYPES = (\n",
        'SOURCE_TYPES = (\n    SourceType(name="carrier", meaning="bird", rights=("get /api/v1 nests",)),\n',
    ),
    "ownership.py": (
        '        "http": lambda:',
        '        "carrier": lambda: CarrierSource(_now),\n        "http": lambda:',
    ),
}

SEEN = """
import asyncio

from tests.jobs import JOB, REF
from msgspec.structs import replace
from visibility_api.jobs.tracker import Tracker
from visibility_api.models import v1alpha1
from visibility_api.ownership import _now, _sources
from visibility_api.probing.prober import Prober
from visibility_api.probing.readings import Readings
from visibility_api.rights import needed_by
from visibility_api.settings import Settings
from visibility_api.workloads.annotations import read_annotations

settings = Settings(sources=["carrier"])
print(*needed_by(settings), sep="\\n")
print(v1alpha1.Observation.model_fields["source"].description)


async def probe():
    shown = asyncio.Queue()
    tracker = Tracker(publish=shown.put_nowait, retract=print, now=_now, interval_s=15.0)
    seen = asyncio.Event()
    prober = Prober(
        _sources(settings, None, Readings()), record=tracker.observed, now=_now, interval_s=15.0,
        concurrency=4,
    )
    hints = read_annotations({"visibility.trainer.kubeflow.org/source": "carrier"}).hints
    job = replace(JOB, hints=hints)
    tracker.job_changed(job, None)
    prober.job_changed(job)
    task = asyncio.create_task(prober.run())
    while (document := await shown.get()).progress_percentage is None:
        pass
    print(document.progress_percentage, document.observation.source)
    task.cancel()


asyncio.run(asyncio.wait_for(probe(), 60))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the server with the source."""
    shutil.copytree(
        ROOT / "visibility_api", tmp_path / "visibility_api", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def test_a_source_is_three_files(checkout: Path) -> None:
    """Settings, annotations, rights, probing and the published description follow from them."""
    server = checkout / "visibility_api"
    (server / "probing/carrier_source.py").write_text(SOURCE)
    for name, (line, more) in LINES.items():
        text = (server / name).read_text()
        assert text.count(line) == 1, name
        (server / name).write_text(text.replace(line, more))
    importing = "from visibility_api.probing.carrier_source import CarrierSource\n"
    ownership = (server / "ownership.py").read_text()
    at = ownership.index("from visibility_api.probing.causes")
    (server / "ownership.py").write_text(ownership[:at] + importing + ownership[at:])
    run = subprocess.run(
        [sys.executable, "-c", SEEN],
        env={**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{ROOT}"},
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "get nests" in run.stdout
    assert "carrier (bird), exec (" in run.stdout
    assert run.stdout.endswith("70 carrier\n")
