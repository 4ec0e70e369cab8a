"""Another cluster whose TLS is bad: what happened and what to do is told in words, and it heals by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import uvloop
import yaml
from kubernetes_asyncio.client import Configuration
from structlog.testing import capture_logs

from tests.certificates import SERVER, Authority, Certificate
from visibility_api.jobs.job import JobRef
from visibility_api.kube import client as kube_client
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import Unreachable
from visibility_api.workloads import elsewhere
from visibility_api.workloads.elsewhere import ShownJob, Upstreams

from .tls_server import until

WEST, OTHER = Authority("west"), Authority("other")
HERE = ["127.0.0.1"]
TODAY = datetime.now(UTC)
LONG_AGO, YESTERDAY = TODAY - timedelta(9), TODAY - timedelta(1)
GOOD = WEST.issue("west", usages=[SERVER], hosts=HERE)
EXPIRED = WEST.issue("w", usages=[SERVER], hosts=HERE, not_before=LONG_AGO, not_after=YESTERDAY)
LIST = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
JOB = json.dumps(
    {
        "metadata": {"name": "trainjobs.bert", "namespace": "team"},
        "jobRef": {"resource": "trainjobs", "name": "bert"},
        "status": {"phase": "Running", "phaseMessage": "It runs."},
    }
)
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


async def kubernetes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty list, and watches without events."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while b"watch=true" not in await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(LIST), LIST))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()
    writer.close()


async def plain_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass
    writer.close()


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As kube-apiserver does where a client certificate or a token has expired."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@contextlib.asynccontextmanager
async def following(
    directory: Path, answer: Answer, certificate: Certificate | None, ca: Authority
) -> AsyncIterator[tuple[Upstreams, ssl.SSLContext | None, Path]]:
    """The clusters as the server follows them, the worker's context, and the file with its CA."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate.write(directory, "server"))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)  # type: ignore[arg-type]  # any
    port = server.sockets[0].getsockname()[1]
    ca_file, kubeconfig = directory / "ca.pem", directory / "west"
    ca_file.write_text(ca.pem)
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca_file)}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    async with server, await KubeClient.connect(kubeconfig, files_interval_s=0.0, is_foreign=True) as client:
        upstreams = Upstreams({"west": client}, lambda *_id: None)
        task = asyncio.create_task(upstreams.run())
        yield upstreams, context, ca_file
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def told(upstreams: Upstreams) -> str:
    """What `/readyz?verbose` says, once a request has failed or an answer has come."""
    return next((each for each in upstreams.faults if "not listed yet" not in each), "")


def shown(upstreams: Upstreams) -> str:
    """What the job says to its readers."""
    found = upstreams.find(JobRef(resource="trainjobs", namespace="team", name="bert", uid="u"))
    return found.decision.message if found is not None else ""


@pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize(
    ("answer", "certificate", "says", "shows"),
    [
        (
            kubernetes,
            EXPIRED,
            "the certificate of PLACE is not accepted: certificate has expired. Renew it",
            "whose certificate is not accepted (certificate has expired)",
        ),
        (
            kubernetes,
            WEST.issue("w", usages=[SERVER], hosts=HERE, not_before=TODAY + timedelta(1)),
            "the certificate of PLACE is not accepted: certificate is not yet valid. Check both clocks",
            "whose certificate is not accepted (certificate is not yet valid)",
        ),
        (
            kubernetes,
            WEST.issue("w", usages=[SERVER], hosts=["west.example"]),
            "is not valid for '127.0.0.1'. Use an address that it names, or set tls-server-name",
            "whose certificate is not accepted (IP address mismatch)",
        ),
        (
            kubernetes,
            OTHER.issue("w", usages=[SERVER], hosts=HERE),
            "the certificate of PLACE is not accepted: unable to get local issuer certificate. Give its CA",
            "whose certificate is not accepted (unable to get local issuer certificate)",
        ),
        (
            refuse,
            GOOD,
            "HTTP 401. Renew the token or the client certificate that this server presents",
            "which does not accept the credentials that this server presents (HTTP 401)",
        ),
        (plain_http, None, "no TLS connection to PLACE: ", "which does not answer"),
        (silence, None, "no TCP and TLS connection in time. Check the address", "which does not answer"),
        (hang_up, None, "no connection to PLACE", "which does not answer"),
    ],
    ids=["expired", "early", "other name", "other CA", "401", "plain HTTP", "endless handshake", "hung up"],
)  # fmt: skip
def test_a_connection_that_another_cluster_spoils_is_told_in_words_and_its_jobs_say_why_they_are_old(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    answer: Answer,
    certificate: Certificate | None,
    says: str,
    shows: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kube_client, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(elsewhere, "CHECK_S", 0.05)
    monkeypatch.setattr(elsewhere, "DOWN_S", 0.0)

    async def run() -> str:
        async with following(tmp_path, answer, certificate, WEST) as (upstreams, _, _):
            upstreams._change("west", "ADDED", msgspec.json.decode(JOB, type=ShownJob))
            await until(lambda: bool(told(upstreams)) and "Last seen" in shown(upstreams))
            # A reader of jobs need not know the address of that cluster.
            assert shown(upstreams) == f"It runs. Last seen in cluster west, {shows}."
            return told(upstreams)

    with capture_logs() as logs, asyncio.Runner(loop_factory=make_loop) as runner:
        found = runner.run(run())
    host, port = "127.0.0.1", found.partition("127.0.0.1:")[2].partition(" ")[0].strip(":,.")
    assert says.replace("PLACE", f"{host}:{port}") in found
    assert " object at 0x" not in found
    assert found.removeprefix("west: ") in [each.get("error") for each in logs]


async def test_a_ca_that_is_put_right_in_its_file_and_a_certificate_that_is_renewed_heal_by_themselves(
    tmp_path: Path,
) -> None:
    async with following(tmp_path, kubernetes, GOOD, OTHER) as (upstreams, context, ca_file):
        await until(lambda: "unable to get local issuer" in told(upstreams))
        ca_file.write_text(WEST.pem)
        await until(lambda: not upstreams.faults)
    async with following(tmp_path, kubernetes, EXPIRED, WEST) as (upstreams, context, _):
        await until(lambda: "certificate has expired" in told(upstreams))
        assert context is not None
        context.load_cert_chain(*GOOD.write(tmp_path, "server"))
        await until(lambda: not upstreams.faults)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_of_a_port_where_nothing_listens_it_is_told_that_it_refuses(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """An event loop says `Connect call failed`, whatever the reason."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"https://127.0.0.1:{listener.getsockname()[1]}"

    async def get() -> str:
        async with KubeClient(Configuration(host=host)) as client:
            with pytest.raises(Unreachable) as error:
                await client.get("/apis")
            return str(error.value)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        found = runner.run(get())
    assert found == f"GET /apis: no connection to {host.removeprefix('https://')}: Connection refused"
