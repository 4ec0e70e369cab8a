"""A stand-in cluster for the tests that need one of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localcluster import LocalCluster
from tests.e2e.processes import free_port


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    # A port that stays free while the API server starts anew.
    async with LocalCluster.start(tmp_path / "cluster", port=free_port()) as running:
        yield running
