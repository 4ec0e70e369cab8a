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
from tests.e2e.scripts import ANSWERING_BADLY, REPORTING
from tests.e2e.visibility_server import GROUP, VisibilityServer
from tests.e2e.workspace import TRAINER, Workspace, condition

COMPONENTS = ("source-exec", "source-http")
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


@pytest.mark.parametrize(
    ("begin", "then", "reason"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536, "TooLarge", id="without-end"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + b" " * 99999,
            b"",
            "TooLarge",
            id="too-long",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"", "AnswerCutShort", id="broken"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", "ProbeTimeout", id="late"),
    ],
)
def test_a_pod_that_answers_badly_costs_its_own_report_alone(
    shared: Workspace, begin: bytes, then: bytes, reason: str
) -> None:
    name = f"bad-{reason.lower()}-{len(then)}"
    env, declared = {OWN_PORT: str(free_port())}, {"source": "http"}
    shared.start_job(f"beside-{name}", REPORTING, annotations=declared, env={OWN_PORT: str(free_port())})
    script = ANSWERING_BADLY.format(begin=begin, then=then)
    shared.start_job(name, script, annotations=declared, env=env)
    step = shared.wait_reporting(f"beside-{name}")["status"]["steps"]["current"]
    assert condition(shared.document(name)["status"], "Reporting")["status"] != "True"
    shared.wait_condition(name, "Reporting", "False", reason=reason)
    status = shared.wait_reporting(f"beside-{name}", beyond_step=step)["status"]
    assert condition(status, "Fresh")["status"] == "True"
    assert "steps" not in shared.document(name)["status"]


def told(status: Object) -> tuple[str, str]:
    """Which source was chosen, and why."""
    seen = status["observation"]
    return seen["source"], seen["message"]
