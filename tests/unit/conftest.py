"""What tests of the reporter share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.reporting import MemorySink


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
