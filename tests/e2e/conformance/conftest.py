"""The two ways in: past the aggregator, and through it.

Whoever asks the server itself brings the front-proxy certificate and names the user, as kube-apiserver does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.conformance.fronts import FRONTS, Front, open_front
from tests.e2e.conformance.team import Team
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User, Workspace


@pytest.fixture(scope="session")
def fronts(cluster: Cluster, server: VisibilityServer, users: dict[str, User]) -> Iterator[dict[str, Front]]:
    found = {name: open_front(name, cluster, server, users) for name in FRONTS}
    yield found
    for each in found.values():
        each.close()


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest, fronts: dict[str, Front]) -> Front:
    """Each way in."""
    return fronts[request.param]


@pytest.fixture
def direct(fronts: dict[str, Front]) -> Front:
    """Past the aggregator only."""
    return fronts["direct"]


@pytest.fixture
def aggregated(fronts: dict[str, Front]) -> Front:
    """Through kube-apiserver only."""
    return fronts["aggregated"]


@pytest.fixture
def team(workspace: Workspace, fronts: dict[str, Front]) -> Team:
    """An empty namespace for one test."""
    return Team(workspace, fronts["direct"])


@pytest.fixture(scope="module")
def crowd(shared: Workspace, fronts: dict[str, Front]) -> Team:
    """Seven documents that no test of the module changes."""
    found = Team(shared, fronts["direct"])
    found.create("b", model="bert", size="small")
    found.create("a", model="bert", size="large")
    found.create("f", model="gpt", size="12")
    found.create("c", model="gpt", size="7")
    found.create("e")
    found.create("d", suspended=True, model="")
    found.create("g", model="gpt-neo")
    return found
