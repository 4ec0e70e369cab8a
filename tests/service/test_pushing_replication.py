"""What is pushed to one replica is relayed to the others over real TLS, and to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
import uvicorn
import uvloop

from tests.certificates import Certificate, client_context
from tests.pushing import BODY, Cluster, Endpoint
from tests.relaying import (
    IMPOSTOR,
    OURS,
    PATH,
    PATIENT,
    PROOF,
    SERVING,
    Relaying,
    Replica,
    der,
    grant,
    peer_limits,
    pushed_until,
)
from tests.service.tls_server import DEADLINE_S, until
from visibility_api.peers.addresses import Address
from visibility_api.pushing.ownership import Membership
from visibility_api.pushing.relayed import RelayedPush, encode_pushes
from visibility_api.reports.document import Progress
from visibility_api.serving.connection import TlsConnection
from visibility_api.serving.tls import ServingTls


@pytest.fixture
def replica() -> Replica:
    return Replica()


# --- two servers of ours


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the test runner's own stay


@dataclass(frozen=True, slots=True, kw_only=True)
class OurServer:
    endpoint: Endpoint
    relay: Relaying
    port: int

    def shown(self) -> list[int | None]:
        """The percentages that were handed on."""
        found = [observation.outcome for observation in self.endpoint.seen]
        return [each.progress_percentage for each in found if isinstance(each, Progress)]

    async def push(self, percentage: int, **headers: str) -> httpx.Response:
        context = client_context(SERVING.pem)
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=DEADLINE_S) as client:
            return await client.post(
                f"https://127.0.0.1:{self.port}{PATH}",
                headers={"Authorization": "Bearer team-a-bert-job-pod0", **headers},
                content=BODY.replace(b"45,", b"%d," % percentage),
            )


@contextlib.asynccontextmanager
async def our_server(
    cluster: Cluster, listener: socket.socket, peer: int, directory: Path
) -> AsyncIterator[OurServer]:
    certificate, key = OURS.write(directory, "ours")
    tls = ServingTls(certificate_file=certificate, key_file=key)
    relay = Relaying(peers=[f"127.0.0.1:{peer}"], certificate=OURS)
    endpoint = Endpoint(cluster, relay=relay.relay.pushed, proof=PROOF, clock=time.monotonic)
    http = _Server(
        uvicorn.Config(
            endpoint.app,
            http=TlsConnection,
            ssl_context_factory=lambda _config, _default: tls.context,
            lifespan="off",
            log_config=None,
        )
    )
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(http.serve([listener]))
        await until(lambda: http.started)
        assert tls.certificate == der(OURS)
        async with relay.running():
            yield OurServer(endpoint=endpoint, relay=relay, port=listener.getsockname()[1])
        http.should_exit = http.force_exit = True
        await serving


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[OurServer, OurServer]]:
    """Each other's peers, on one cluster; each asks it by itself."""
    clusters = Cluster(), Cluster()
    for each in clusters:
        each.add_job("bert")
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [listener.getsockname()[1] for listener in listeners]
    async with (
        our_server(clusters[0], listeners[0], ports[1], tmp_path) as one,
        our_server(clusters[1], listeners[1], ports[0], tmp_path) as other,
    ):
        yield one, other


async def test_what_is_pushed_to_one_replica_is_shown_by_both(pair: tuple[OurServer, OurServer]) -> None:
    one, other = pair
    assert (await one.push(45)).status_code == 200
    await until(lambda: other.shown() == [45])
    assert (await other.push(46)).status_code == 200
    await until(lambda: one.shown() == [45, 46])
    assert [each.is_relayed for each in one.endpoint.seen] == [False, True]
    await until(lambda: one.relay.outcomes == other.relay.outcomes == {"Accepted": 1})
    # Each report came to each of them once: none was told back to whom it came from.
    assert one.endpoint.outcomes == other.endpoint.outcomes == ["Taken", "Taken"]
    assert other.shown() == [45, 46]


async def test_what_one_replica_has_authenticated_the_other_asks_nobody_about(
    pair: tuple[OurServer, OurServer],
) -> None:
    """Neither for the relayed push nor for what the pod then pushes to it directly."""
    one, other = pair
    assert (await one.push(45)).status_code == 200
    await until(lambda: other.shown() == [45])
    assert (await other.push(46)).status_code == 200
    assert other.shown() == [45, 46]
    assert other.endpoint.cluster.asked == []
    assert len(one.endpoint.cluster.reviewed) == 1
    # What it was told it does not vouch for: the two would believe each other for ever.
    (grant,) = other.endpoint.admission._grants.values()
    assert grant.is_believed


async def test_another_token_of_the_same_pod_is_reviewed(pair: tuple[OurServer, OurServer]) -> None:
    one, other = pair
    assert (await one.push(45)).status_code == 200
    await until(lambda: other.shown() == [45])
    assert (await other.push(46, Authorization="Bearer made-up")).status_code == 403
    assert [spec["token"] for spec in other.endpoint.cluster.reviewed] == ["made-up"]


async def test_a_push_for_a_job_that_the_other_replica_does_not_know_is_refused_there(
    pair: tuple[OurServer, OurServer],
) -> None:
    one, other = pair
    other.endpoint.cluster.jobs.clear()
    assert (await one.push(45)).status_code == 200
    await until(lambda: one.relay.outcomes == {"Refused": 1})
    assert (other.endpoint.outcomes, other.shown()) == (["NotFound"], [])


async def test_what_is_refused_or_passed_over_is_not_relayed(pair: tuple[OurServer, OurServer]) -> None:
    one, other = pair
    assert (await one.push(45, Authorization="Bearer made-up")).status_code == 403
    one.endpoint.is_news = False
    assert (await one.push(46)).status_code == 200
    one.endpoint.is_news = True
    assert (await one.push(47)).status_code == 200
    await until(lambda: other.shown() == [47])
    assert other.endpoint.outcomes == ["Taken"]


async def test_many_requests_of_a_replica_on_one_connection_are_not_held_back(
    pair: tuple[OurServer, OurServer],
) -> None:
    """As those of strangers are, of whom the fifth waits for a second."""
    one, other = pair
    began = time.monotonic()
    for percentage in range(20):
        assert (await one.push(percentage)).status_code == 200
        await until(lambda percentage=percentage: other.shown()[-1:] == [percentage])  # type: ignore[misc]
    assert time.monotonic() - began < 15  # a second for each from the fifth on


async def test_who_has_not_our_key_relays_nothing(pair: tuple[OurServer, OurServer]) -> None:
    one, _ = pair
    member = Membership(job_uid="uid-of-bert", pod_name="any", pod_uid="any", restart_attempt=0)
    push = RelayedPush(
        path=PATH, credential=b"", accepted_for_s=60.0, membership=member, attempt="any/0/0", body=BODY
    )
    of_a_pod = {"Authorization": "Bearer team-a-bert-job-pod0"}
    async with httpx.AsyncClient(verify=client_context(SERVING.pem), trust_env=False) as client:
        for headers in ({}, {"X-Visibility-Peer": PROOF[:-1]}, of_a_pod):
            response = await client.post(
                f"https://127.0.0.1:{one.port}/peers/pushes", headers=headers, content=encode_pushes([push])
            )
            assert response.status_code == 401
    assert one.shown() == []


@pytest.mark.parametrize("body", [b"", b"junk", b"\xc1", b"\x91\x90", b"\x91" * 4000])
async def test_what_is_no_batch_of_pushes_is_refused_whole(
    pair: tuple[OurServer, OurServer], body: bytes
) -> None:
    one, _ = pair
    async with httpx.AsyncClient(verify=client_context(SERVING.pem), trust_env=False) as client:
        response = await client.post(
            f"https://127.0.0.1:{one.port}/peers/pushes", headers={"X-Visibility-Peer": PROOF}, content=body
        )
    assert (response.status_code, response.json()["reason"]) == (400, "BadRequest")


async def test_a_replica_that_never_answers_delays_no_client(tmp_path: Path) -> None:
    """It takes connections and says nothing, not even of TLS."""
    cluster = Cluster()
    cluster.add_job("bert")
    silent = socket.create_server(("127.0.0.1", 0))
    listener = socket.create_server(("127.0.0.1", 0))
    with silent:
        async with our_server(cluster, listener, silent.getsockname()[1], tmp_path) as one:
            for percentage in range(10):
                assert (await one.push(percentage)).status_code == 200
            assert one.shown() == list(range(10))
            assert one.relay.outcomes == {}  # it is still being waited for


# --- who is told


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_impostor_gets_no_byte_though_its_ca_and_names_are_ours(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion
) -> None:
    """On either loop. That one with our certificate hears it shows that the test would notice."""

    def listen(listener: socket.socket, certificate: Certificate) -> bytes:
        """The first that comes of a connection but its handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate.write(tmp_path, "listener"))
        context.maximum_version = version
        connection, _ = listener.accept()
        connection.settimeout(DEADLINE_S)
        try:
            with context.wrap_socket(connection, server_side=True) as tls:
                return tls.recv(65536)
        except (ConnectionError, ssl.SSLError):  # the end came before the handshake was through
            return b""

    async def heard(certificate: Certificate) -> tuple[bytes, Counter[str]]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            name = f"127.0.0.1:{listener.getsockname()[1]}"
            async with Relaying(peers=[name]).running() as relay:
                relay.push()
                first = await asyncio.to_thread(listen, listener, certificate)
                await until(lambda: bool(relay.outcomes))
                return first, relay.outcomes

    with asyncio.Runner(loop_factory=loop) as runner:
        request, outcomes = runner.run(heard(IMPOSTOR))
        assert (request, outcomes["OtherCertificate"]) == (b"", 1)
        request, outcomes = runner.run(heard(OURS))
    assert request.startswith(b"POST ")
    assert outcomes["Unreachable"] == 1  # it has left without an answer


async def test_a_replica_with_our_certificate_gets_the_push_unchanged_and_no_token(
    replica: Replica, tmp_path: Path
) -> None:
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.relay.pushed(PATH, grant(until=time.monotonic() + 60), "p1/0/0", BODY)
        await until(lambda: relay.outcomes == {"Accepted": 1})
    (push,) = replica.pushes
    assert 50 < push.accepted_for_s <= 60
    assert (push.path, push.credential, push.attempt, push.body) == (PATH, b"hash", "p1/0/0", BODY)
    assert push.membership == grant().membership
    assert replica.requests[0].splitlines() == [
        b"POST /peers/pushes HTTP/1.1",
        b"Host: visibility-api",
        b"Content-Type: application/msgpack",
        f"x-visibility-peer: {PROOF}".encode(),
        b"Content-Length: %d" % replica.lengths[0],
        b"",
    ]


async def test_a_replica_that_has_just_started_is_relayed_to_before_its_name_is_known(
    replica: Replica, tmp_path: Path
) -> None:
    limits = replace(PATIENT, introduced_s=DEADLINE_S)
    async with replica.serving(OURS, tmp_path), Relaying(peers=[], limits=limits).running() as relay:
        relay.push()
        assert relay.outcomes == {}
        relay.relay.introduce(Address("127.0.0.1", replica.port))
        await pushed_until(relay, lambda: bool(replica.requests))


async def test_introductions_end_and_are_bounded(replica: Replica, tmp_path: Path) -> None:
    limits = replace(PATIENT, introduced_s=0.0, peers=2)
    async with Relaying(peers=[], limits=limits).running() as relay:
        for port in range(1, 10):
            relay.relay.introduce(Address("127.0.0.1", port))
        relay.push()
        assert relay.outcomes == {}  # each has ended at once


async def test_a_renewed_certificate_is_followed(replica: Replica, tmp_path: Path) -> None:
    limits = peer_limits(first_pause_s=0.01, longest_pause_s=0.01)
    async with (
        replica.serving(IMPOSTOR, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes == {"OtherCertificate": 1})
        relay.certificate = IMPOSTOR  # now we have read the files again, too
        await pushed_until(relay, lambda: bool(replica.requests))


async def test_a_connection_from_before_a_renewal_is_not_used_again(replica: Replica, tmp_path: Path) -> None:
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Accepted": 1})
        relay.certificate = IMPOSTOR  # this replica has read the renewed files, the other one not yet
        relay.push()
        await until(lambda: relay.outcomes == {"Accepted": 1, "OtherCertificate": 1})
    assert (replica.connections, len(replica.requests)) == (2, 1)


async def test_no_proxy_of_the_environment_is_used(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Replica()
    async with proxy.serving(OURS, tmp_path), replica.serving(OURS, tmp_path):
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://{proxy.name}")
        async with Relaying(peers=[replica.name]).running() as relay:
            relay.push()
            await until(lambda: relay.outcomes == {"Accepted": 1})
    assert proxy.connections == 0


async def test_a_replica_relays_nothing_to_itself(replica: Replica, tmp_path: Path) -> None:
    """Of the addresses behind the name one is our own."""
    own = Replica()
    async with own.serving(OURS, tmp_path), replica.serving(OURS, tmp_path):
        relay = Relaying(peers=[f"localhost:{own.port}", replica.name], port=own.port)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(relay.relay.run())
            await pushed_until(relay, lambda: bool(replica.requests))
            task.cancel()
    assert own.connections == 0


async def test_peers_come_and_go_and_stay_while_the_name_server_is_away(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[str] | Exception] = [["127.0.0.1"]]
    asked = itertools.count(1)
    rounds = 0

    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        nonlocal rounds
        rounds = next(asked)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return [(socket.AF_INET, 1, 6, "", (each, port)) for each in answers[0]]

    async def turned() -> None:
        before = rounds
        await until(lambda: rounds > before + 1)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    limits = replace(PATIENT, idle_s=0.5)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[f"peers:{replica.port}"], limits=limits).running() as relay,
    ):
        answers[0] = socket.gaierror("no such name")
        await turned()
        relay.push()
        await until(lambda: relay.outcomes == {"Accepted": 1})
        answers[0] = []
        await turned()
        relay.push()
        await until(lambda: len(replica.ended) == 1)  # and the connection is closed
        answers[0] = [f"127.0.0.{number}" for number in range(1, 20)]
        await turned()
        assert len(relay.relay._peers) == PATIENT.peers
    assert (len(replica.requests), relay.outcomes) == (1, {"Accepted": 1})
