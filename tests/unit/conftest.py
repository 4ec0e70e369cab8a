"""What unit tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.jobs import JOB
from tests.reporting import MemorySink

from .bench import Bench


@pytest.fixture
def bench() -> Bench:
    """With a job whose rank 0 runs."""
    bench = Bench()
    bench.job(JOB)
    return bench


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture(autouse=True)
def _no_run_left_open() -> Iterator[None]:
    """A run that one test leaves open would take in what the next one in this process reports."""
    yield
    loops = sys.modules.get("trainjob_progress.loops")
    if loops is not None:
        loops.abandon_all()
