"""TLS sessions of exec connections: resumed by the same client only, and not required."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kubernetes_asyncio.client import Configuration

from tests.certificates import SERVER, Authority, Certificate
from visibility_api.kube.client import KubeClient
from visibility_api.kube.credentials import Credentials
from visibility_api.kube.errors import Unreachable
from visibility_api.kube.exec import execute
from visibility_api.kube.tls import ResumingContext

from .websocket_server import DEADLINE_S, ScriptedServer, scripted_server

SERVING, CLIENTS = Authority("serving"), Authority("clients")
KUBE_APISERVER = SERVING.issue("kube-apiserver", usages=[SERVER], hosts=["127.0.0.1"])
USER = CLIENTS.issue("trainjob-visibility")
NOBODYS = Authority("other").issue("trainjob-visibility")

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """On the loop the server runs on, and on the one it falls back to."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(work, DEADLINE_S))

    return run


def server_tls(
    directory: Path, certificate: Certificate = KUBE_APISERVER, *, asks_for_certificates: bool = False
) -> ssl.SSLContext:
    """As kube-apiserver: a client certificate may be shown, and is checked if it is."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate.write(directory, "server"))
    if asks_for_certificates:
        context.load_verify_locations(cadata=CLIENTS.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_of(
    server: ScriptedServer,
    directory: Path,
    *,
    ca: Authority = SERVING,
    user: Certificate | None = None,
    token: str = "t0ken",
) -> KubeClient:
    configuration = Configuration(host=f"https://127.0.0.1:{server.port}")
    (directory / "ca.crt").write_text(ca.pem)
    configuration.ssl_ca_cert = str(directory / "ca.crt")
    if user is None:
        configuration.api_key["BearerToken"] = f"Bearer {token}"
    else:
        configuration.cert_file, configuration.key_file = map(str, user.write(directory, "user"))
    return KubeClient(configuration, Credentials(configuration))


async def probe(client: KubeClient, times: int = 1) -> None:
    for _ in range(times):
        done = await execute(
            client, namespace="n", pod="p", container="c", argv=("cat",), max_bytes=100, timeout_s=DEADLINE_S
        )
        assert done == b"hello"


def resumed(server: ScriptedServer) -> Sequence[bool | None]:
    return [each.is_resumed for each in server.seen]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_token_users_session_is_resumed_and_the_token_goes_with_every_request(
    run: Run, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    async def work() -> None:
        context = server_tls(tmp_path)
        context.maximum_version = version
        async with scripted_server(tls=context) as server, client_of(server, tmp_path) as client:
            await probe(client, 3)
        assert resumed(server) == [False, True, True]
        assert all(b"Authorization: Bearer t0ken\r\n" in each.head for each in server.seen)

    run(work())


def test_a_client_certificate_identifies_the_client_in_resumed_sessions_too(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        context = server_tls(tmp_path, asks_for_certificates=True)
        async with scripted_server(tls=context) as server, client_of(server, tmp_path, user=USER) as client:
            await probe(client, 3)
        assert resumed(server) == [False, True, True]
        for each in server.seen:
            assert each.peer["subject"] == ((("commonName", "trainjob-visibility"),),)

    run(work())


def test_connections_at_the_same_time_may_resume_one_session(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        async with scripted_server(tls=server_tls(tmp_path)) as server, client_of(server, tmp_path) as client:
            await probe(client)
            await asyncio.gather(*(probe(client) for _ in range(5)))
        assert resumed(server) == [False] + [True] * 5

    run(work())


def test_other_credentials_never_resume_a_session(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        context = server_tls(tmp_path, asks_for_certificates=True)
        async with scripted_server(tls=context) as server:
            async with client_of(server, tmp_path, user=USER) as client:
                await probe(client)
            async with client_of(server, tmp_path) as client:
                await probe(client)
            async with client_of(server, tmp_path, ca=CLIENTS) as client:
                with pytest.raises(Unreachable, match="is not accepted"):
                    await probe(client)
            async with client_of(server, tmp_path, user=NOBODYS) as client:
                with pytest.raises(Unreachable):
                    await probe(client)
        assert resumed(server) == [False, False]
        assert not server.seen[1].peer  # the certificate of the first is not the second's

    run(work())


def test_a_server_that_lost_its_tickets_gets_a_full_handshake(run: Run, tmp_path: Path) -> None:
    contexts = [server_tls(tmp_path), server_tls(tmp_path)]

    async def work() -> None:
        assert await turns(tmp_path, contexts, [0, 0, 1, 1, 1]) == [
            *(False, True),
            *(False, True, True),
        ]

    run(work())


async def turns(
    directory: Path, contexts: Sequence[ssl.SSLContext], order: Sequence[int]
) -> list[bool | None]:
    """Probes of one client at one address, where one server after the other listens."""
    found: list[bool | None] = []
    client, port = None, 0
    try:
        for which in order:
            async with scripted_server(tls=contexts[which], port=port) as server:
                port = server.port
                client = client or client_of(server, directory)
                await probe(client)
                found += resumed(server)
    finally:
        if client is not None:
            await client.close()
    return found


def test_a_server_without_tickets_is_met_in_full_each_time(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        context = server_tls(tmp_path)
        context.num_tickets = 0
        async with scripted_server(tls=context) as server, client_of(server, tmp_path) as client:
            await probe(client, 3)
        assert resumed(server) == [False, False, False]

    run(work())


def test_a_servers_certificate_is_checked_again_after_a_while(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResumingContext, "max_age_s", 0.0)

    async def work() -> None:
        context = server_tls(tmp_path)
        async with scripted_server(tls=context) as server, client_of(server, tmp_path) as client:
            await probe(client, 3)
        assert resumed(server) == [False, False, False]

    run(work())


def test_a_server_of_another_name_is_refused(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        other = SERVING.issue("other", usages=[SERVER], hosts=["other.example"])
        async with (
            scripted_server(tls=server_tls(tmp_path, other)) as server,
            client_of(server, tmp_path) as client,
        ):
            with pytest.raises(Unreachable, match="IP address mismatch"):
                await probe(client)
        assert server.seen == []

    run(work())
