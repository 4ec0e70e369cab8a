"""Clusters, the server under test and namespaces for the e2e suite.

One cluster and one server for each worker of a run; a namespace for each module or test, so that jobs may
share names and a broken one disturbs nobody.
"""

from __future__ import annotations

import contextlib
import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canary import assert_untold
from tests.e2e.cluster import Cluster, ExecPath
from tests.e2e.crds import Definitions
from tests.e2e.kube import find_binaries
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.rbac import wait_allowed
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User, Workspace
from tests.nats_servers import running

_HERE = Path(__file__).parent
# The stand-in is cut off and restarted within this process, and may leave a connection to the garbage
# collector. The server under test has a process of its own.
_CUT_CONNECTIONS = "ignore:unclosed:ResourceWarning"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a cluster; without the real one's binaries that is skipped."""
    missing = find_binaries()[1] if config.getoption("--cluster") == "real" else []
    for item in items:
        if _HERE not in item.path.parents:
            continue
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.filterwarnings(_CUT_CONNECTIONS))
        if missing and item.get_closest_marker("e2e"):
            reason = f"not tested against a real kube-apiserver: {'; '.join(missing)}"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def pod_ip() -> str:
    """Of all pods; http_pods.py gives them another one."""
    return "127.0.0.1"


@pytest.fixture(scope="session")
def definitions(request: pytest.FixtureRequest) -> Definitions:
    return Definitions(request.config.getoption("--crds"))


def start_cluster(config: pytest.Config, directory: Path, definitions: Definitions, pod_ip: str) -> Cluster:
    """A real one or the stand-in, as the suite was told. The caller stops it."""
    if config.getoption("--cluster") == "real":
        from tests.e2e.real_cluster import RealCluster

        return RealCluster(directory, find_binaries()[0], definitions=definitions, pod_ip=pod_ip)
    from tests.e2e.local_cluster import StandInCluster

    return StandInCluster(directory, pod_ip=pod_ip)


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    definitions: Definitions,
    pod_ip: str,
) -> Iterator[Cluster]:
    found = start_cluster(request.config, tmp_path_factory.mktemp("cluster"), definitions, pod_ip)
    with contextlib.ExitStack() as stack:
        if request.config.getoption("--store") == "nats":
            servers = stack.enter_context(running(tmp_path_factory.mktemp("nats"), 3))
            VisibilityServer.stores = servers.urls
        stack.callback(found.stop)
        yield found
        stack.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()  # here, not in somebody else's test


@pytest.fixture(scope="session")
def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisibilityServer]:
    found = VisibilityServer(cluster, tmp_path_factory.mktemp("server"))
    try:
        yield found
    finally:
        exit_code = found.stop()
    assert exit_code == 0, found.log_text()[-2000:]
    events = cluster.admin.get("/api/v1/events")
    assert_untold(json.dumps(events), where="Events")
    assert "visibility-api" not in {event.get("reportingComponent") for event in events["items"] or ()}


@pytest.fixture(scope="session")
def users(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, User]]:
    directory = tmp_path_factory.mktemp("users")
    found = {
        "admin": User("kubernetes-admin", cluster, cluster.admin_pair, directory / "admin"),
        "alice": User("alice", cluster, cluster.issue_client("alice"), directory / "alice"),
        "bob": User("bob", cluster, cluster.issue_client("bob"), directory / "bob"),
    }
    yield found
    for user in found.values():
        user.api.close()


def _workspace(cluster: Cluster, users: dict[str, User], *, is_served: bool = True) -> Iterator[Workspace]:
    found = Workspace(cluster, users)
    try:
        if is_served:  # else nobody has installed what viewers may do
            wait_allowed(cluster.admin, found.name, "list", user=found.alice.name)
        yield found
    finally:
        found.clean()


@pytest.fixture(scope="module")
def bare(cluster: Cluster, users: dict[str, User]) -> Iterator[Workspace]:
    """A namespace on a cluster where the server need not run."""
    yield from _workspace(cluster, users, is_served=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What goes through exec is tested on every path the cluster has; the stand-in has one."""
    if "exec_path" in metafunc.fixturenames:
        is_real = metafunc.config.getoption("--cluster") == "real"
        paths = list(ExecPath) if is_real else [ExecPath.TRANSLATED]
        metafunc.parametrize("exec_path", paths, indirect=True, ids=lambda path: path.name.lower())


@pytest.fixture
def exec_path(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[ExecPath]:
    """The way an exec takes from the API server to the kubelet during the test."""
    path: ExecPath = request.param
    nodes = "/api/v1/nodes"
    (node,) = cluster.admin.items(nodes)
    status = f"{nodes}/{node['metadata']['name']}/status"
    cluster.admin.patch(status, {"status": {"declaredFeatures": path.declared_features}})
    yield path
    cluster.admin.patch(status, {"status": {"declaredFeatures": None}})


@pytest.fixture
def workspace(cluster: Cluster, server: VisibilityServer, users: dict[str, User]) -> Iterator[Workspace]:
    """A namespace for one test."""
    yield from _workspace(cluster, users)


@pytest.fixture(scope="module")
def shared(cluster: Cluster, server: VisibilityServer, users: dict[str, User]) -> Iterator[Workspace]:
    """A namespace for the tests of one module."""
    yield from _workspace(cluster, users)


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


@pytest.fixture(autouse=True)
def _nothing_has_died(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that used the cluster or the server and left it dead has failed, whatever it asserted."""
    yield
    for name in ("cluster", "server"):
        if name in request.fixturenames:
            found = request.getfixturevalue(name)
            found.check() if name == "cluster" else found.check_alive()
