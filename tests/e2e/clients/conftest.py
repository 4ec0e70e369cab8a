"""Clients as they come, each through the aggregator of the chosen cluster."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.e2e.clients.quiet_jobs import QuietJobs
from tests.e2e.cluster import Cluster
from tests.e2e.workspace import Workspace


@pytest.fixture(autouse=True)
def _leave_nothing_of_the_clients_behind() -> Iterator[None]:
    """Some clients leave a broken-off watch to the garbage collector: here, not in somebody else's test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, shared: Workspace) -> QuietJobs:
    """Jobs in the module's namespace."""
    return QuietJobs(cluster.admin, shared.name)


@pytest.fixture
def own_jobs(cluster: Cluster, workspace: Workspace) -> QuietJobs:
    """Jobs in a namespace that one test has for itself."""
    return QuietJobs(cluster.admin, workspace.name)


@pytest.fixture
def bert(own_jobs: QuietJobs) -> QuietJobs:
    """A namespace with one job, bert, which is gold and pending."""
    own_jobs.create("bert", {"tier": "gold"})
    own_jobs.wait_served("bert")
    return own_jobs
