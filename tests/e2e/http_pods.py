"""Training processes that serve their progress on their pod's own address. Run by test_http.py."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.pod_network import NEIGHBOUR_IP, POD_IP, is_here
from tests.e2e.processes import free_port
from tests.e2e.scripts import OPEN_DATA_HUB, REDIRECTING, REPORTING, TELLING
from tests.e2e.secrecy import assert_untold
from tests.e2e.visibility_server import GROUP, VisibilityServer
from tests.e2e.workspace import TRAINER, Workspace, condition

COMPONENTS = ("source-exec", "source-http")
ODH = "trainer.opendatahub.io"
OWN_PORT = "TRAINJOB_PROGRESS_PORT"
WORDS = {"step": 77, "totalSteps": 100, "timestamp": "2026-01-23T10:30:45Z"}  # of the neighbours


@pytest.fixture(scope="session")
def pod_ip() -> str:
    if not is_here():
        pytest.skip("run by test_http.py, in a network of its own")
    return POD_IP


@pytest.fixture(scope="module")
def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisibilityServer]:
    """The only one here."""
    found = VisibilityServer(cluster, tmp_path_factory.mktemp("server"), components=COMPONENTS)
    yield found
    exit_code = found.stop()
    assert exit_code == 0, found.log_text()[-2000:]


class Neighbours:
    """Another pod and the server's own host, which would both answer a GET with a good document."""

    def __init__(self) -> None:
        self.asked: list[str] = []  # the addresses, in order
        self.port = free_port()
        self._servers = [self._serve(address) for address in (NEIGHBOUR_IP, "127.0.0.1")]

    def _serve(self, address: str) -> ThreadingHTTPServer:
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(address)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(WORDS).encode())

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer((address, self.port), Handler)
        threading.Thread(target=server.serve_forever, name=f"neighbour {address}", daemon=True).start()
        return server

    def check(self) -> None:
        """Whoever asks them is answered, and counted."""
        for server in self._servers:
            address, port = server.server_address[:2]
            with contextlib.closing(http.client.HTTPConnection(str(address), port, timeout=90)) as connection:
                connection.request("GET", "/metrics")
                assert json.loads(connection.getresponse().read()) == WORDS
        assert self.asked == [NEIGHBOUR_IP, "127.0.0.1"]

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def neighbours() -> Iterator[Neighbours]:
    found = Neighbours()
    yield found
    try:
        assert found.asked == []
        found.check()
    finally:
        found.stop()


def test_the_pods_are_where_no_other_test_has_them(shared: Workspace) -> None:
    shared.start_job("somewhere", REPORTING)
    pod = shared.wait_running("somewhere")
    assert (pod["status"]["podIP"], pod["status"]["podIPs"]) == (POD_IP, [{"ip": POD_IP}])
    assert pod["status"]["hostIP"] == "127.0.0.1"


def test_our_reporters_endpoint_is_read_as_it_goes_on_without_an_exec(
    cluster: Cluster, server: VisibilityServer, workspace: Workspace
) -> None:
    workspace.start_job("ours", REPORTING, env={OWN_PORT: str(free_port())})
    status = workspace.wait_reporting("ours")["status"]
    step = status["steps"]["current"]
    assert told(status) == ("http", f"Declared by environment variable {OWN_PORT}.")
    assert status["steps"]["total"] == 100_000
    assert status["rank0"]["podName"].startswith("ours-node-0-0-")
    assert {"name": "loss", "value": "0.5"} in status["metrics"]
    assert condition(status, "Reporting")["status"] == condition(status, "Fresh")["status"] == "True"
    later = workspace.wait_reporting("ours", beyond_step=step)["status"]
    assert told(later) == told(status)
    header, row = workspace.alice.kubectl(
        "get", "tjp", "ours", "-n", workspace.name, "-o", "wide"
    ).stdout.splitlines()
    assert row[header.index("SOURCE") :].split()[0] == "http"
    assert cluster.agent.execs[workspace.name] == 0


def test_what_open_data_hubs_instrumentation_serves_is_read_where_its_annotations_say(
    shared: Workspace,
) -> None:
    port = str(free_port())
    wishes = {f"{ODH}/progression-tracking": "true", f"{ODH}/metrics-port": port}
    shared.start_job("open-data-hub", OPEN_DATA_HUB, annotations=wishes, env={"PORT": port})
    status = shared.wait_reporting("open-data-hub")["status"]
    assert told(status) == ("http", f"Declared by annotation {ODH}/metrics-port.")
    assert (status["steps"], status["progressPercentage"]) == ({"current": 450, "total": 1000}, 45)
    assert status["epochs"] == {"current": 1.35, "total": 3}
    metrics = {metric["name"]: metric["value"] for metric in status["metrics"]}
    assert metrics == {"loss": "0.2347", "grad_norm": "nan", "eval_loss": "0.31"}


def test_a_redirect_is_not_followed(shared: Workspace, neighbours: Neighbours) -> None:
    port = str(free_port())
    target = f"http://{NEIGHBOUR_IP}:{neighbours.port}/metrics"
    env = {"PORT": port, "TARGET": target}
    shared.start_job("redirecting", REDIRECTING, annotations={"port": port, "source": "http"}, env=env)
    found = shared.wait_condition("redirecting", "Reporting", "False", reason="HTTPStatus")
    assert found["message"] == f"Port {port} answered with HTTP status 302 instead of 200."
    status = shared.document("redirecting")["status"]
    assert told(status) == ("http", f"{found['message']} Declared by annotation {GROUP}/source.")
    assert "steps" not in status


def test_an_annotation_changes_the_port_and_never_the_host(shared: Workspace, neighbours: Neighbours) -> None:
    own = str(free_port())
    annotations = {"port": str(neighbours.port), "source": "http"}
    shared.start_job("elsewhere", REPORTING, annotations=annotations, env={OWN_PORT: own})
    found = shared.wait_condition("elsewhere", "Reporting", "False", reason="NothingListens")
    assert found["message"].startswith(f"Nothing listens on port {neighbours.port} of the pod.")
    path = f"{TRAINER}/namespaces/{shared.name}/trainjobs/elsewhere"
    shared.cluster.admin.patch(path, {"metadata": {"annotations": {f"{GROUP}/port": own}}})
    status = shared.wait_reporting("elsewhere")["status"]
    assert told(status) == ("http", f"Declared by annotation {GROUP}/source.")
    assert status["steps"]["total"] == 100_000


def test_an_annotation_that_names_a_host_is_ignored_and_the_pod_asked(
    shared: Workspace, neighbours: Neighbours
) -> None:
    named = {
        "host-and-port": f"{NEIGHBOUR_IP}:{neighbours.port}",
        "user-and-host": f"{neighbours.port}@{NEIGHBOUR_IP}",
        "path": f"{neighbours.port}/../{NEIGHBOUR_IP}",
    }
    for name, value in named.items():
        env = {OWN_PORT: str(free_port())}
        shared.start_job(name, REPORTING, annotations={"port": value}, env=env)
    for name in named:
        status = shared.wait_reporting(name)["status"]
        assert told(status) == ("http", f"Declared by environment variable {OWN_PORT}.")
        assert status["steps"]["total"] == 100_000
        fault = f"Annotation {GROUP}/port is ignored: it must be a port number"
        assert fault in condition(status, "Reporting")["message"]


def test_not_a_byte_of_what_a_port_tells_is_repeated(shared: Workspace, server: VisibilityServer) -> None:
    port = str(free_port())
    env = {"HOST": POD_IP, "PORT": port}
    shared.start_job("telling", TELLING, annotations={"port": port, "source": "http"}, env=env)
    found = shared.wait_condition("telling", "Reporting", "False", reason="NotJSON")
    assert found["message"].startswith(f"Port {port}: ")
    assert_untold(shared, server)


def told(status: Object) -> tuple[str, str]:
    """Which source was chosen, and why."""
    seen = status["observation"]
    return seen["source"], seen["message"]
