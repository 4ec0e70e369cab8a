"""What is pushed to one replica is told to the others, over real TLS; and to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
import uvloop

from tests.certificates import Authority, Certificate, client_context
from tests.pushing import BODY, UPSTREAM, Cluster, Endpoint
from tests.service.tls_server import DEADLINE_S, until
from visibility_api.ingest import peer as telling, relay as relaying
from visibility_api.ingest.relay import Relay
from visibility_api.progress.document import Progress
from visibility_api.serving.connection import TlsConnection
from visibility_api.serving.tls import ServingTls

SERVING = Authority("serving")
OURS = SERVING.issue("visibility-api", usages=[], hosts=["127.0.0.1"])
# The same names, of the same CA: all that a client usually looks at.
IMPOSTOR = SERVING.issue("visibility-api", usages=[], hosts=["127.0.0.1"])
TOKEN = "s3cr3t-token"
PATH = UPSTREAM.format("team-a", "bert")
HEADERS = [(b"host", b"h"), (b"authorization", f"bearer   {TOKEN}".encode())]
OWN_PORT = 1  # where nobody listens
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def der(certificate: Certificate) -> bytes:
    return certificate.chain[0]


class Replica:
    """A stand-in for another replica: what it was sent, and on how many connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.ended: list[bytes] = []  # of each connection that has ended, what came after the last request
        self.answer = OK
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.port = 0

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self, certificate: Certificate, directory: Path) -> AsyncIterator[None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate.write(directory, f"replica-{id(certificate)}"))
        server = await asyncio.start_server(self._talk, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                await self.may_answer.wait()
                writer.write(self.answer)
        except asyncio.IncompleteReadError as error:
            self.ended.append(error.partial)
        except OSError:
            self.ended.append(b"")
        finally:
            writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Relaying:
    """A relay that runs, and what it counts; `certificate` is the one that it serves with."""

    peers: Sequence[str]
    certificate: Certificate = OURS
    port: int = OWN_PORT
    outcomes: Counter[str] = field(default_factory=Counter)
    relay: Relay = field(init=False)

    def __post_init__(self) -> None:
        self.relay = Relay(
            tuple(self.peers),
            port=self.port,
            certificate=lambda: der(self.certificate),
            count=lambda outcome: self.outcomes.update([outcome]),
        )

    def push(self, body: bytes = BODY, *, token: str = TOKEN) -> None:
        self.relay.pushed(PATH, [(b"authorization", f"Bearer {token}".encode())], body)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Relaying]:
        """Once the peers are known."""
        with structlog.testing.capture_logs() as logged:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self.relay.run())
                names = sum(":" in each for each in self.peers)
                await until(lambda: sum(e["event"] == "peer found" for e in logged) >= names)
                yield self
                task.cancel()
        assert TOKEN not in str(logged)


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.fixture(autouse=True)
def _pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "LOOK_UP_S", 0.01)
    monkeypatch.setattr(telling, "ANSWER_S", 60.0)  # machines may be slow; what is held stays so


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
    endpoint = Endpoint(cluster, relay=relay.relay.pushed)
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


async def test_what_is_pushed_at_one_is_shown_by_both(pair: tuple[OurServer, OurServer]) -> None:
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


async def test_the_other_judges_the_token_by_itself(pair: tuple[OurServer, OurServer]) -> None:
    one, other = pair
    other.endpoint.cluster.tokens.clear()
    assert (await one.push(45)).status_code == 200
    await until(lambda: one.relay.outcomes == {"Refused": 1})
    assert other.endpoint.outcomes == ["Forbidden"]
    assert other.shown() == []
    assert [spec["token"] for spec in other.endpoint.cluster.reviewed] == ["team-a-bert-job-pod0"]


async def test_what_is_refused_or_passed_over_is_told_to_nobody(pair: tuple[OurServer, OurServer]) -> None:
    one, other = pair
    assert (await one.push(45, Authorization="Bearer made-up")).status_code == 403
    one.endpoint.is_news = False
    assert (await one.push(46)).status_code == 200
    one.endpoint.is_news = True
    assert (await one.push(47)).status_code == 200
    await until(lambda: other.shown() == [47])
    assert other.endpoint.outcomes == ["Taken"]


async def test_who_says_that_a_push_is_relayed_already_only_keeps_it_from_the_others(
    pair: tuple[OurServer, OurServer],
) -> None:
    one, other = pair
    assert (await one.push(45, **{"X-Visibility-Relayed": "1"})).status_code == 200
    assert (await one.push(46)).status_code == 200
    await until(lambda: other.shown() == [46])
    assert one.shown() == [45, 46]


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
        assert runner.run(heard(IMPOSTOR)) == (b"", {"OtherCertificate": 1})
        request, outcomes = runner.run(heard(OURS))
    assert request.startswith(b"POST ")
    assert outcomes == {"Unreachable": 1}  # it has left without an answer


async def test_a_replica_with_our_certificate_is_told_as_it_was_pushed(
    replica: Replica, tmp_path: Path
) -> None:
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.relay.pushed(PATH, HEADERS, BODY)
        await until(lambda: relay.outcomes == {"Accepted": 1})
    (request,) = replica.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == BODY
    assert head.splitlines() == [
        f"POST {PATH} HTTP/1.1".encode(),
        b"Host: visibility-api",
        b"Content-Type: application/json",
        b"x-visibility-relayed: 1",
        f"Authorization: Bearer {TOKEN}".encode(),
        b"Content-Length: %d" % len(BODY),
    ]


async def test_a_renewed_certificate_is_followed(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(telling, "LONGEST_PAUSE_S", 0.01)
    async with replica.serving(IMPOSTOR, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"OtherCertificate": 1})
        relay.certificate = IMPOSTOR  # now we have read the files again, too
        await pushed_until(relay, lambda: bool(replica.requests))


async def test_a_replica_is_told_nothing_by_itself(replica: Replica, tmp_path: Path) -> None:
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
    async with replica.serving(OURS, tmp_path), Relaying(peers=[f"peers:{replica.port}"]).running() as relay:
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
        assert len(relay.relay._peers) == relaying.MAX_PEERS
    assert (len(replica.requests), relay.outcomes) == (1, {"Accepted": 1})


# --- what it costs


async def test_one_connection_serves_for_many_pushes_one_after_the_other(
    replica: Replica, tmp_path: Path
) -> None:
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for count in range(1, 21):
            relay.push()
            await until(lambda count=count: relay.outcomes == {"Accepted": count})  # type: ignore[misc]
    assert replica.connections == 1


async def test_a_connection_that_nobody_needs_is_closed_and_made_anew(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "IDLE_S", 0.05)
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for count in (1, 2):
            relay.push()
            await until(lambda count=count: len(replica.ended) == count)  # type: ignore[misc]
    assert (replica.connections, relay.outcomes) == (2, {"Accepted": 2})


async def test_of_one_pod_only_the_newest_waits_and_few_go_at_a_time(
    replica: Replica, tmp_path: Path
) -> None:
    replica.may_answer.clear()
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for number in range(20):
            relay.push(token=f"other-{number}")
        await until(lambda: len(replica.requests) == telling.AT_ONCE)
        for number in range(50):
            relay.push(b"%d" % number)
        assert len(replica.requests) == replica.connections == telling.AT_ONCE
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Accepted": 21})
    of_ours = [request for request in replica.requests if TOKEN.encode() in request]
    assert [request.rpartition(b"\r\n")[2] for request in of_ours] == [b"49"]


@pytest.mark.parametrize("bound", ["MAX_WAITING", "MAX_WAITING_BYTES"])
async def test_what_waits_is_bounded_and_the_oldest_goes(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(telling, bound, {"MAX_WAITING": 3, "MAX_WAITING_BYTES": 3500}[bound])
    replica.may_answer.clear()
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for number in range(telling.AT_ONCE):
            relay.push(token=f"first-{number}")
            await until(lambda number=number: len(replica.requests) == number + 1)  # type: ignore[misc]
        for number in range(10):
            relay.push(b"x" * 900, token=f"later-{number}")
        assert relay.outcomes == {"Dropped": 7}
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Dropped": 7, "Accepted": telling.AT_ONCE + 3})
    told = [n for n in range(10) if any(b"later-%d" % n in request for request in replica.requests)]
    assert told == [7, 8, 9]


async def test_bodies_that_replace_others_are_counted_right(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "MAX_WAITING_BYTES", 3500)
    replica.may_answer.clear()
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for number in range(telling.AT_ONCE):
            relay.push(token=f"first-{number}")
            await until(lambda number=number: len(replica.requests) == number + 1)  # type: ignore[misc]
        for size in (3000, 1, 2000, 3000):
            relay.push(b"x" * size)
        assert relay.outcomes == {}
        relay.push(b"x" * 4000)  # too large even alone
        assert relay.outcomes == {"Dropped": 1}
        relay.push(b"x" * 3000)
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Dropped": 1, "Accepted": telling.AT_ONCE + 1})


async def test_a_replica_that_is_away_is_tried_once_in_a_while_and_then_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telling, "FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr(telling, "LONGEST_PAUSE_S", 60.0)
    connections = 0

    async def slam(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.transport.abort()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    async with (
        server,
        Relaying(peers=[f"127.0.0.1:{server.sockets[0].getsockname()[1]}"]).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        for number in range(100):
            relay.push(token=f"other-{number}")
        assert relay.outcomes == {"Unreachable": 101}  # at once
    assert connections == 1


async def test_a_replica_that_comes_back_is_told_again(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(telling, "LONGEST_PAUSE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as free:
        replica.port = free.getsockname()[1]
    async with Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        async with replica.serving(OURS, tmp_path):
            await pushed_until(relay, lambda: bool(replica.requests))


async def test_a_connection_that_the_replica_has_ended_is_made_anew(replica: Replica, tmp_path: Path) -> None:
    replica.answer = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for count in (1, 2):
            relay.push()
            await until(lambda count=count: relay.outcomes == {"Accepted": count})  # type: ignore[misc]
    assert replica.connections == 2


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


async def test_a_refusal_is_not_tried_again(replica: Replica, tmp_path: Path) -> None:
    replica.answer = OK.replace(b"200 OK", b"503 Service Unavailable")
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Refused": 1})
        relay.push()
        await until(lambda: relay.outcomes == {"Refused": 2})
    assert len(replica.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"junk\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 two content-length\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"x" * 100_000,
    ],
)
async def test_an_answer_that_is_none_ends_the_connection_and_nothing_else(
    replica: Replica, tmp_path: Path, answer: bytes
) -> None:
    replica.answer = answer
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        await until(lambda: len(replica.ended) == 1)


async def test_an_answer_that_does_not_come_is_not_waited_for_long(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "ANSWER_S", 0.05)
    replica.may_answer.clear()
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
    replica.may_answer.set()


async def pushed_until(relay: Relaying, is_so: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            relay.push()
            await asyncio.sleep(0.01)
