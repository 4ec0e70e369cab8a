"""Pushes over real TLS: the clients that are out there, unchanged, and connections that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.pushing import BODY, OURS, UPSTREAM, Cluster, Endpoint
from tests.service.tls_server import serving
from trainjob_progress import report
from trainjob_progress.document import Snapshot
from trainjob_progress.sinks.push import PushSink, find_push_sink
from visibility_api.certificates.files import CertificateFiles
from visibility_api.pushing.body import Bodies
from visibility_api.reports.document import Progress
from visibility_api.serving.tls import ServingTls

SERVING = Authority("serving")
DEADLINE_S = 90.0
POD0 = "team-a-bert-job-pod0"
JOB = ("team-a", "bert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    endpoint: Endpoint
    port: int
    ca_file: Path
    token_file: Path

    def url(self, path: str = UPSTREAM) -> str:
        return f"https://127.0.0.1:{self.port}{path.format(*JOB)}"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    @property
    def environ(self) -> dict[str, str]:
        """As the operator injects it."""
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": self.url(),
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.ca_file),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token_file),
        }

    def seen(self) -> list[Progress]:
        found = [observation.outcome for observation in self.endpoint.seen]
        assert all(isinstance(outcome, Progress) for outcome in found)
        return [outcome for outcome in found if isinstance(outcome, Progress)]

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection, spoken to in raw HTTP/1.1."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *lines: str, body: bytes = b"", path: str = UPSTREAM, job: str = "bert") -> None:
        token = f"team-a-{job}-job-pod0"
        head = [f"POST {path.format('team-a', job)} HTTP/1.1", "Host: h", f"Authorization: Bearer {token}"]
        head += lines
        self.writer.write("\r\n".join((*head, "", "")).encode() + body)

    async def answer(self) -> tuple[int, Any]:
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


@pytest.fixture
def bodies() -> Bodies:
    return Bodies(places=10)


@pytest.fixture
async def server(tmp_path: Path, bodies: Bodies) -> AsyncIterator[Running]:
    cluster = Cluster()
    cluster.add_job("bert")
    cluster.add_job("gpt")
    endpoint = Endpoint(cluster, bodies=bodies)
    certificate, key = SERVING.issue("server", usages=[], hosts=["127.0.0.1"]).write(tmp_path, "server")
    tls = ServingTls(CertificateFiles(certificate, key).read())
    ca_file, token_file = tmp_path / "ca.crt", tmp_path / "token"
    ca_file.write_text(SERVING.pem)
    token_file.write_text(POD0 + "\n")

    async with serving(endpoint.app, tls) as (_, port):
        yield Running(endpoint=endpoint, port=port, ca_file=ca_file, token_file=token_file)


# --- clients


async def test_upstreams_own_script_is_understood_with_the_content_type_of_a_form(server: Running) -> None:
    """What upstream's e2e test and hand-written code do: urllib, which calls any body a form."""

    def push() -> tuple[int, Any, str]:
        token = server.token_file.read_text().strip()
        status = {"lastUpdatedTime": "2026-01-23T10:30:45Z", "progressPercentage": 42}
        status["metrics"] = [{"name": "loss", "value": "0.5"}]  # type: ignore[assignment]
        sent = urllib.request.Request(server.url(), data=json.dumps({"trainerStatus": status}).encode())
        sent.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(sent, context=server.context, timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer), sent.get_header("Content-type")

    code, echo, content_type = await asyncio.to_thread(push)
    assert (code, content_type) == (200, "application/x-www-form-urlencoded")
    assert echo["trainerStatus"]["progressPercentage"] == 42
    (seen,) = server.seen()
    assert (seen.progress_percentage, seen.metrics) == (42, (("loss", "0.5"),))


async def test_our_own_reporter_pushes_here_when_pointed_here(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = find_push_sink(server.environ)
    assert sink is not None

    def train() -> None:
        with report(total_steps=8, sinks=[sink]) as r:
            for _ in range(8):
                r.step(loss=0.25)

    await asyncio.to_thread(train)
    last = server.seen()[-1]
    assert (last.step, last.total_steps, last.progress_percentage) == (8, 8, 100)
    assert ("loss", "0.25") in last.metrics


async def test_a_refusal_is_a_failure_to_our_own_reporter(server: Running) -> None:
    server.token_file.write_text("made-up")
    sink = PushSink(server.url(OURS), str(server.ca_file), str(server.token_file))
    snapshot = Snapshot(state="running", timestamp=1769164245.5, start_time=1769164000.0, step=1)
    with pytest.raises(OSError, match="403"):
        await asyncio.to_thread(sink.write, snapshot)
    assert server.seen() == []


# --- connections


async def test_a_kept_alive_connection_pushes_again_and_again(server: Running) -> None:
    async with server.connect() as connection:
        for path in (UPSTREAM, OURS) * 4:
            connection.send(f"Content-Length: {len(BODY)}", body=BODY, path=path)
            assert (await connection.answer())[0] == 200
    assert len(server.seen()) == 8


async def test_a_body_in_chunks_is_taken(server: Running) -> None:
    pieces = [BODY[i : i + 10] for i in range(0, len(BODY), 10)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    async with server.connect() as connection:
        connection.send("Transfer-Encoding: chunked", body=chunks)
        assert await connection.answer() == (200, json.loads(BODY))


async def test_a_long_body_is_refused_before_it_is_sent_and_the_connection_goes_on(server: Running) -> None:
    async with server.connect() as connection:
        connection.send("Content-Length: 70000", "Expect: 100-continue")
        code, status = await connection.answer()  # and no "100 Continue" before it
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
        connection.writer.write(b" " * 70_000)
        connection.send(f"Content-Length: {len(BODY)}", body=BODY)
        assert (await connection.answer())[0] == 200


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(server: Running) -> None:
    async with server.connect() as connection:
        connection.send(f"Content-Length: {len(BODY)}", "Expect: 100-continue")
        async with asyncio.timeout(DEADLINE_S):
            assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.writer.write(BODY)
        assert (await connection.answer())[0] == 200


@pytest.mark.parametrize("bodies", [Bodies(timeout_s=0.05)])
async def test_a_body_that_does_not_come_is_given_up(server: Running) -> None:
    async with server.connect() as connection:
        connection.send("Content-Length: 100", body=b'{"trainer')
        assert (await connection.answer())[0] == 422


async def test_a_client_that_leaves_in_its_body_is_forgotten(server: Running) -> None:
    async with server.connect() as connection:
        connection.send("Content-Length: 100", body=b'{"trainer')
        async with asyncio.timeout(DEADLINE_S):
            while len(server.endpoint.cluster.asked) < 4:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.005)
    async with asyncio.timeout(DEADLINE_S):
        while not server.endpoint.outcomes:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
    assert (server.endpoint.outcomes, server.seen()) == (["ClientGone"], [])


async def test_pipelined_pushes_are_answered_in_order(server: Running) -> None:
    async with server.connect() as connection:
        for body in (BODY, b"{}", b"no json"):
            connection.send(f"Content-Length: {len(body)}", body=body)
        answers = [await connection.answer() for _ in range(3)]
    assert [code for code, _ in answers] == [200, 200, 422]
    assert [echo for _, echo in answers][:2] == [json.loads(BODY), {}]


async def test_a_token_is_in_no_log_and_in_no_answer(
    server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    server.endpoint.cluster.away = RuntimeError("s3cr3t")
    server.endpoint.cluster.add_token("s3cr3t-token", pod=None)
    async with server.connect() as connection:
        head = f"POST {UPSTREAM.format(*JOB)} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cr3t-token\r\n"
        connection.writer.write(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        code, status = await connection.answer()
    assert code == 500
    assert "s3cr3t" not in json.dumps(status) + "".join(capsys.readouterr())
