"""Clients as they come, each through the aggregator of the chosen cluster: the fixtures of tests/e2e."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.quiet_jobs import QuietJobs
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import (  # noqa: F401 - fixtures are found by being here
    _nothing_has_died,
    cluster,
    pod_ip,
    server,
    shared,
    users,
    workspace,
)
from tests.e2e.kube import find_binaries
from tests.e2e.workspace import Workspace

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As in tests/e2e: without the real cluster's binaries what needs a cluster is skipped, not passed."""
    missing = find_binaries()[1] if config.getoption("--cluster") == "real" else []
    for item in items:
        if _HERE not in item.path.parents or "cluster" not in getattr(item, "fixturenames", ()):
            continue
        item.add_marker(pytest.mark.e2e)
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
        if missing:
            reason = f"not tested against a real kube-apiserver: {'; '.join(missing)}"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _leave_nothing_of_the_clients_behind() -> Iterator[None]:
    """Some clients leave a broken-off watch to the garbage collector: here, not in somebody else's test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, shared: Workspace) -> QuietJobs:  # noqa: F811 - a fixture
    """Jobs in the module's namespace."""
    return QuietJobs(cluster.admin, shared.name)


@pytest.fixture
def own_jobs(cluster: Cluster, workspace: Workspace) -> QuietJobs:  # noqa: F811 - a fixture
    """Jobs in a namespace that one test has for itself."""
    return QuietJobs(cluster.admin, workspace.name)


@pytest.fixture
def bert(own_jobs: QuietJobs) -> QuietJobs:
    """A namespace with one job, bert, which is gold and pending."""
    own_jobs.create("bert", {"tier": "gold"})
    own_jobs.wait_served("bert")
    return own_jobs
