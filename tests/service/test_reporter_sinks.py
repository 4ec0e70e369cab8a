"""The sinks beside files: log line, terminal bar, endpoint of its own, push. Real sockets, real TLS."""

from __future__ import annotations

import http.client
import http.server
import io
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from trainjob_progress import report
from trainjob_progress.document import Snapshot
from trainjob_progress.publisher import Publisher
from trainjob_progress.settings import find_sinks
from trainjob_progress.sinks.bar import BarSink, NotebookSink, draw, format_duration
from trainjob_progress.sinks.file import FileSink, TerminationSink
from trainjob_progress.sinks.http import MAX_CONNECTIONS, HTTPSink
from trainjob_progress.sinks.log import LogSink
from trainjob_progress.sinks.push import MAX_INTERVAL_S, PushSink, encode_trainer_status
from trainjob_progress.stalls import StallClock

REPORTER = Path(__file__).parents[2] / "reporter"


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot(**{"state": "running", "timestamp": 1769164245.5, "start_time": 1769164000.0, **fields})


# --- log


def test_a_log_line_is_one_line_and_one_document() -> None:
    reader, writer = os.pipe()
    sink = LogSink(descriptor=writer)
    sink.write(snapshot(step=1, message="a\nb", metrics={f"m{i}": i for i in range(256)}))
    sink.write(snapshot(step=2))
    os.close(writer)
    with open(reader, "rb") as file:
        lines = file.read().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert max(len(line) for line in lines) < 4096


def test_a_log_line_brings_what_came_since_the_line_before() -> None:
    reader, writer = os.pipe()
    sink = LogSink(descriptor=writer)
    for at in range(3, 200):
        said = snapshot(timestamp=1769164000.0 + at, step=at, metrics={"loss": 1 / at})
        sink.write(said) if at in (10, 15, 199) else sink.follow(said)
    os.close(writer)
    with open(reader, "rb") as file:
        lines = [json.loads(line) for line in file]
    assert [line["recent"]["step"] for line in lines[:2]] == [[3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    assert lines[1]["recent"]["secondsBefore"] == [5, 4, 3, 2, 1]
    assert len(lines[2]["recent"]["step"]) <= 16  # a log keeps everything
    assert lines[2]["recent"]["step"][-8:] == list(range(191, 199))


def test_a_sink_that_follows_is_told_of_what_it_is_not_given_to_write() -> None:
    told = threading.Event()

    class Following:
        interval_s = 3600.0

        def write(self, snapshot: Snapshot) -> None:
            pass

        def follow(self, snapshot: Snapshot) -> None:
            if snapshot.step == 2:
                told.set()

        def close(self) -> None:
            pass

    with report(total_steps=3, sinks=[Following()]) as r:
        r.step(2)
        assert told.wait(60)


def test_a_termination_message_has_no_earlier_values(tmp_path: Path) -> None:
    sink = TerminationSink(str(tmp_path / "message"))
    for at in (1, 2, 3):
        sink.write(snapshot(timestamp=1769164000.0 + at, step=at))
    assert "recent" not in json.loads((tmp_path / "message").read_text())


def test_a_log_that_nobody_reads_any_more_is_one_line_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with report(total_steps=3, sinks=[LogSink(0.01, writer)]) as r:
        r.step(3)
    os.close(writer)
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 1
    assert "BrokenPipeError" in errors[0]


# --- bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_shows_share_steps_time_left_and_metrics() -> None:
    line = draw(
        snapshot(step=45, total_steps=100, percentage=45, remaining_s=795, metrics={"loss": 0.23468}), 80
    )
    assert line.startswith(" 45% |")
    assert line.endswith("| 45/100  4:05  13:15 left  loss=0.2347")
    assert len(line) <= 80


def test_without_a_total_there_is_no_bar_but_what_is_known() -> None:
    assert draw(snapshot(step=45, metrics={"loss": 0.5}), 80) == "45  4:05  loss=0.5"


@pytest.mark.parametrize("columns", [0, 1, 10, 40, 79, 200])
def test_the_bar_fits_any_terminal(columns: int) -> None:
    many = {f"metric{i}": 0.5 for i in range(20)}
    line = draw(
        snapshot(step=1, total_steps=2, percentage=50, remaining_s=9, metrics=many, message="m" * 99), columns
    )
    assert len(line) <= columns


def test_control_characters_never_reach_the_terminal() -> None:
    assert "\x1b" not in draw(snapshot(step=1, metrics={"\x1b[2J": "\x1b]0;"}, message="\x1b[31m"), 80)


def test_the_bar_is_redrawn_in_place_and_left_standing() -> None:
    terminal = Terminal()
    with report(total_steps=2, sinks=[BarSink(terminal)]) as r:
        r.step(2)
    text = terminal.getvalue()
    assert text.count("\n") == 1
    assert "100% |" in text.split("\r")[-1]
    assert "completed after 0:00" in text


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0:00"), (65, "1:05"), (3600 * 26 + 61, "26:01:01")])
def test_durations_read_as_clocks(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# --- endpoint


def get(port: int, method: str = "GET", path: str = "/") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/metrics", "/any/../thing?x=1"])
def test_the_endpoint_serves_the_latest_document_on_any_path(path: str) -> None:
    sink = HTTPSink(0, "127.0.0.1")
    sink.write(snapshot(step=1))
    sink.write(snapshot(step=2))
    status, body = get(sink.port, path=path)
    assert (status, json.loads(body)["step"]) == (200, 2)


def test_the_endpoint_has_nothing_before_the_first_document() -> None:
    assert get(HTTPSink(0, "127.0.0.1").port)[0] == 503


def test_the_endpoint_takes_no_other_method() -> None:
    sink = HTTPSink(0, "127.0.0.1")
    sink.write(snapshot())
    assert get(sink.port, "HEAD") == (200, b"")
    assert get(sink.port, "POST")[0] == 501


def test_the_endpoint_keeps_its_last_document_after_the_run() -> None:
    sink = HTTPSink(0, "127.0.0.1")
    with report(total_steps=1, sinks=[sink]) as r:
        r.step()
    assert json.loads(get(sink.port)[1])["state"] == "completed"


def test_idle_clients_cannot_exhaust_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = HTTPSink(0, "127.0.0.1")
    sink.write(snapshot(step=1))
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", sink.port)) for _ in range(MAX_CONNECTIONS * 3)]
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(sink.port)  # one too many is turned away at once, not left waiting
    assert threading.active_count() <= before + MAX_CONNECTIONS
    for client in idle:
        client.close()


def test_two_runs_of_one_process_share_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for run in (1, 2):
        sink = HTTPSink(port, "127.0.0.1")
        sink.write(snapshot(step=run))
        assert json.loads(get(port)[1])["step"] == run


def test_a_port_that_is_taken_costs_one_line_and_no_more(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as taken:
        environ = {"TRAINJOB_PROGRESS_PORT": str(taken.getsockname()[1]), "TRAINJOB_PROGRESS_FILE": "/tmp/x"}
        assert len(find_sinks(environ)) == 1
    assert capfd.readouterr().err.startswith("trainjob_progress: one place to report to is left out: OSError")


OUT_OF_DESCRIPTORS = """
import os, resource, socket, time
from trainjob_progress.sinks.http import HTTPSink
sink = HTTPSink(0, "127.0.0.1")
clients = [socket.socket() for _ in range(2)]
resource.setrlimit(resource.RLIMIT_NOFILE, (clients[-1].fileno() + 1,) * 2)
for client in clients:
    client.connect(("127.0.0.1", sink.port))
began_s = time.process_time()
time.sleep(1)
print(time.process_time() - began_s < 0.3, flush=True)
os._exit(0)  # at its end a thread would need a descriptor to be ended
"""

CLOSES_ALL = """
import os, sys, time
from trainjob_progress import report
from trainjob_progress.sinks.http import HTTPSink
from trainjob_progress.trackers.tensorboard import find
sink = HTTPSink(0, "127.0.0.1")
r = report(sinks=[sink, find({"TENSORBOARD_LOGGING_DIR": sys.argv[1]})])
r.step(loss=0.5)
r.flush(60)
os.closerange(3, 256)
files = [os.open(sys.argv[1] + f"/{n}", os.O_RDWR | os.O_CREAT) for n in range(20)]
for _ in range(3):
    child = os.fork()
    if not child:
        for file in files:
            os.fstat(file)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    r.step(loss=0.25)
    r.flush(60)
print([os.fstat(file).st_size for file in files] == 20 * [0])
HTTPSink(sink.port, "127.0.0.1")
"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # Seen: the thread took a whole core, and Python's lock, until a descriptor was free.
        pytest.param(OUT_OF_DESCRIPTORS, "True", id="no descriptor for a connection"),
        # Seen: children and the process itself lost files of their own.
        pytest.param(CLOSES_ALL, "0 0 0 True", id="all descriptors closed"),
    ],
)
def test_the_endpoint_leaves_the_programs_descriptors_and_cores_alone(
    tmp_path: Path, script: str, expected: str
) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTER)}
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)]
    result = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (result.stdout.split(), result.stderr, result.returncode) == (expected.split(), "", 0)


# --- push


@dataclass
class PushServer:
    """Takes pushes over TLS as Kubeflow Trainer's status server does, and answers what a test wants."""

    ca_path: str
    token_path: Path
    port: int = 0
    status: int = 200
    refusals: list[tuple[int, str]] = field(default_factory=list)  # status and Retry-After, before that
    stalls: threading.Event | None = None
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/j/status"

    def sink(self, **changes: Any) -> PushSink:
        options = {"url": self.url, "ca_path": self.ca_path, "token_path": str(self.token_path), **changes}
        return PushSink(**options)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def push_server(authority: trustme.CA, tmp_path: Path) -> Iterator[PushServer]:
    (tmp_path / "token").write_text("a-token\n")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    state = PushServer(ca_path=str(tmp_path / "ca.crt"), token_path=tmp_path / "token")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append((self.path, dict(self.headers), body))
            if state.stalls is not None:
                state.stalls.wait(60)
            status, retry_after = state.refusals.pop(0) if state.refusals else (state.status, "")
            if status == 0:  # the server goes away
                return
            self.send_response(status)
            self.send_header("Retry-After", retry_after)
            self.send_header("Location", "https://elsewhere.invalid/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield state
    if state.stalls is not None:
        state.stalls.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_push_is_what_kubeflow_trainer_takes(push_server: PushServer) -> None:
    push_server.sink().write(
        snapshot(
            step=45,
            total_steps=100,
            epoch=1.5,
            percentage=45,
            remaining_s=795,
            metrics={"loss": 0.25, "lr": "1e-5"},
        )
    )
    ((path, headers, body),) = push_server.requests
    assert path == "/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/j/status"
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer a-token", "application/json")
    assert json.loads(body) == {
        "trainerStatus": {
            "progressPercentage": 45,
            "estimatedRemainingSeconds": 795,
            "metrics": [
                {"name": "current_step", "value": "45"},
                {"name": "total_steps", "value": "100"},
                {"name": "current_epoch", "value": "1.5"},
                {"name": "loss", "value": "0.25"},
                {"name": "lr", "value": "1e-5"},
            ],
            "lastUpdatedTime": "2026-01-23T10:30:45.500000Z",
        }
    }


def test_a_push_keeps_upstreams_limits() -> None:
    metrics: dict[str, float | str] = {f"m{i}": "v" * 64 for i in range(256)}
    status = json.loads(encode_trainer_status(snapshot(step=1, remaining_s=2**40, metrics=metrics)))[
        "trainerStatus"
    ]
    assert len(status["metrics"]) == 256
    assert status["estimatedRemainingSeconds"] == 2**31 - 1
    assert all(
        isinstance(metric["value"], str) and 1 <= len(metric["value"]) <= 64 for metric in status["metrics"]
    )


def test_a_push_of_many_wide_characters_still_fits() -> None:
    metrics = {f"{i:03}" + "🚀" * 61: "🚀" * 64 for i in range(256)}
    body = encode_trainer_status(snapshot(step=1, metrics={**metrics, "\ud800": "\udfff"}))
    assert len(body) <= 65536
    assert len(json.loads(body)["trainerStatus"]["metrics"]) > 50


def test_a_renewed_token_is_used(push_server: PushServer) -> None:
    sink = push_server.sink()
    sink.write(snapshot())
    push_server.token_path.write_text("another")
    sink.write(snapshot())
    assert [headers["Authorization"] for _, headers, _ in push_server.requests] == [
        "Bearer a-token",
        "Bearer another",
    ]


@pytest.mark.parametrize("status", [301, 307, 403, 404, 413, 422, 429, 500, 503])
def test_an_answer_that_is_no_success_is_an_error_and_slows_the_next_tries(
    push_server: PushServer, status: int
) -> None:
    push_server.status = status
    sink = push_server.sink()
    waits = []
    for _ in range(6):
        with pytest.raises(OSError, match=f"the server answered {status}"):
            sink.write(snapshot())
        waits.append(sink.interval_s)
    assert waits == [10, 20, 40, MAX_INTERVAL_S, MAX_INTERVAL_S, MAX_INTERVAL_S]
    push_server.status = 200
    sink.write(snapshot())
    assert sink.interval_s == 5


@pytest.mark.parametrize("refusals", [[(503, "")], [(429, "1")], [(0, "")], [(500, "0"), (429, "0")]])
def test_a_last_push_that_is_refused_for_now_is_tried_again(
    push_server: PushServer, refusals: list[tuple[int, str]]
) -> None:
    """Seen: one 503 for the last push, and the server stayed at step 0 of 3."""
    with report(total_steps=3, sinks=[push_server.sink()], wait_s=60) as r:
        r.flush(60)
        push_server.refusals = list(refusals)
        r.step(3)
    bodies = [json.loads(body)["trainerStatus"] for *_, body in push_server.requests]
    assert [body["progressPercentage"] for body in bodies] == [0, *(len(refusals) + 1) * [100]]


@pytest.mark.parametrize("refusal", [(404, "0"), (307, ""), (403, ""), (503, "60")])
def test_a_last_push_that_would_be_refused_again_is_not_tried_again(
    push_server: PushServer, refusal: tuple[int, str]
) -> None:
    push_server.refusals = [refusal]
    sink = push_server.sink()
    with pytest.raises(OSError, match="the server answered"):
        sink.write(snapshot(ending="finished"))
    assert (len(push_server.requests), sink.interval_s) == (1, 60 if refusal[1] == "60" else 10)


def test_the_end_of_a_process_waits_longest_for_what_gets_ahead(
    push_server: PushServer, tmp_path: Path
) -> None:
    """Seen: a push that took half a second was given up, and the server stayed at step 0 of 8."""
    sinks = [FileSink(str(tmp_path / "file")), push_server.sink(), BarSink()]
    assert [Publisher(one, lambda: None).find_limits(0.12) for one in sinks] == [(5, 20), (3, 3), (0.12, 1)]


def test_a_greenlet_that_hangs_is_still_though_the_thread_that_looks_runs() -> None:
    """Seen: a minute at the end of a program with gevent, whose threads are greenlets."""
    clock = StallClock()
    clock.look(threading.current_thread())
    time.sleep(0.02)
    clock.look(threading.current_thread())
    assert clock.still_s >= 0.02


def stop_answering(server: PushServer) -> dict[str, Any]:
    server.stalls = threading.Event()
    return {}


def use_another_authority(server: PushServer) -> dict[str, Any]:
    path = server.token_path.with_name("other.crt")
    trustme.CA().cert_pem.write_to_path(path)
    return {"ca_path": str(path)}


FAULTS: list[Callable[[PushServer], dict[str, Any]]] = [
    stop_answering,
    use_another_authority,
    lambda _: {"ca_path": None},
    lambda _: {"token_path": "/nowhere/token"},
    lambda _: {"url": "https://no-such-host.invalid/x"},
    lambda server: {"url": server.url.replace("localhost", "127.0.0.1")},  # the certificate says localhost
    lambda _: {"url": "https://127.0.0.1:1/refused"},
]


@pytest.mark.parametrize("fault", FAULTS)
def test_training_is_untouched_by_a_push_that_fails(
    push_server: PushServer,
    fault: Callable[[PushServer], dict[str, Any]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    sink = push_server.sink(timeout_s=0.2, **fault(push_server))
    with report(total_steps=3, sinks=[sink], wait_s=0.5) as r:
        r.step(3)
    errors = capfd.readouterr().err.splitlines()
    for publisher in r._run._publishers:  # what it has to say it may say later, and not into another test
        publisher.join(60)
    assert (
        1 <= len(errors) <= 2
    )  # the sink's line, and perhaps that there was no time left for the last document
    assert "a-token" not in "".join(errors)


@pytest.mark.parametrize("url", ["http://trainer:10443/x", "trainer", "file:///etc/passwd", "https://"])
def test_a_token_is_sent_over_tls_only(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    environ = {"KUBEFLOW_TRAINER_SERVER_URL": url, "KUBEFLOW_TRAINER_SERVER_TOKEN": "/token"}
    assert find_sinks(environ) == []
    assert "must be an https URL" in capfd.readouterr().err


def test_several_sinks_at_once_get_the_same_last_document(push_server: PushServer, tmp_path: Path) -> None:
    environ = {
        "TRAINJOB_PROGRESS_FILE": str(tmp_path / "progress.json"),
        "TRAINJOB_TERMINATION_MESSAGE_PATH": str(tmp_path / "termination"),
        "TRAINJOB_PROGRESS_PORT": "0",
        "KUBEFLOW_TRAINER_SERVER_URL": push_server.url,
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": push_server.ca_path,
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(push_server.token_path),
    }
    sinks = find_sinks(environ)
    assert len(sinks) == 4
    with report(total_steps=3, sinks=sinks) as r:
        r.step(3, loss=0.5)
    document = json.loads((tmp_path / "progress.json").read_bytes())
    endpoint = next(sink for sink in sinks if isinstance(sink, HTTPSink))
    answered = json.loads(get(endpoint.port)[1])
    for earlier in (document, answered):
        earlier.pop("recent", None)
    assert json.loads((tmp_path / "termination").read_bytes()) == document
    assert answered == document
    assert json.loads(push_server.requests[-1][2])["trainerStatus"]["progressPercentage"] == 100


def test_the_bar_shows_its_rate_and_a_line_is_printed_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    sink = BarSink(terminal)
    monkeypatch.setattr(sys, "stdout", terminal)  # as tqdm.write: the bar alone is on stderr
    with report(total_steps=10, sinks=[sink]) as r:
        for _ in range(5):
            time.sleep(0.02)
            r.step()
            r.flush(60)
        r.write("saved checkpoint 5")
        r.finish(wait_s=60)
    drawn = terminal.getvalue()
    assert "steps/s" in drawn
    before, after = drawn.split("saved checkpoint 5\n")
    assert before.endswith("\r\x1b[2K")
    assert after.startswith(" 50% |")  # the bar is there again, below
    assert drawn.endswith("\n")


def test_what_is_written_without_a_bar_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for sinks in ([], [BarSink()]):
        with report(sinks=sinks) as r:
            r.write("saved \ud800")
        printed = capsys.readouterr()
        assert printed.out == "saved ?\n"
        assert "saved" not in printed.err


@pytest.mark.parametrize(("rate", "text"), [(12.345, "12.3 steps/s"), (0.25, "4 s/step"), (None, "45/100")])
def test_the_bar_says_how_fast_it_goes(rate: float | None, text: str) -> None:
    assert text in draw(snapshot(step=45, total_steps=100, percentage=45, rate=rate), 120)


def test_a_notebooks_bar_updates_itself_in_its_cell() -> None:
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    class Display:
        HTML = str

        @staticmethod
        def display(html: str, display_id: bool) -> Handle:
            assert display_id
            shown.append(html)
            return Handle()

    with report(total_steps=4, sinks=[NotebookSink(Display)]) as r:
        r.step(2, name="<script>")
        r.flush(60)
        assert 'value="50"' in shown[-1]
        r.step(2)
        r.finish(wait_s=60)
    assert shown[0] == "<progress></progress>"
    assert 'value="100" max="100"' in shown[-1]
    assert "name=&lt;script&gt;" in shown[-1]
