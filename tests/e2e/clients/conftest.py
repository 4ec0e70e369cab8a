"""Clients as they come, each through the aggregator of the chosen cluster."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _leave_nothing_of_the_clients_behind() -> Iterator[None]:
    """Some clients leave a broken-off watch to the garbage collector: here, not in somebody else's test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
