"""Relaying to one peer: connections, limits, and peers that misbehave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.processes import free_port
from tests.relaying import OK, OURS, PATIENT, TOKEN, Relaying, Replica, peer_limits, pushed_until
from tests.service.tls_server import until
from visibility_api.peers.addresses import Address
from visibility_api.pushing.peer import PeerLimits

IN_FLIGHT = PeerLimits().in_flight


@pytest.fixture
def replica() -> Replica:
    return Replica()


async def test_one_connection_serves_for_many_pushes_one_after_the_other(
    replica: Replica, tmp_path: Path
) -> None:
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for count in range(1, 21):
            relay.push()
            await until(lambda count=count: relay.outcomes == {"Accepted": count})  # type: ignore[misc]
    assert replica.connections == 1


async def test_an_idle_connection_is_closed_and_made_again(replica: Replica, tmp_path: Path) -> None:
    limits = replace(PATIENT, idle_s=0.05)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
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
        await until(lambda: len(replica.requests) == IN_FLIGHT)
        for number in range(50):
            relay.push(b"%d" % number)
        assert len(replica.requests) == replica.connections == IN_FLIGHT
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Accepted": 21})
    of_ours = [request for request in replica.requests if TOKEN.encode() in request]
    assert [request.rpartition(b"\r\n")[2] for request in of_ours] == [b"49"]


@pytest.mark.parametrize("bound", [{"waiting": 3}, {"waiting_bytes": 3500}])
async def test_what_waits_is_bounded_and_the_oldest_goes(
    replica: Replica, tmp_path: Path, bound: dict[str, float]
) -> None:
    replica.may_answer.clear()
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=peer_limits(**bound)).running() as relay,
    ):
        for number in range(IN_FLIGHT):
            relay.push(token=f"first-{number}")
            await until(lambda number=number: len(replica.requests) == number + 1)  # type: ignore[misc]
        for number in range(10):
            relay.push(b"x" * 900, token=f"later-{number}")
        assert relay.outcomes == {"Dropped": 7}
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Dropped": 7, "Accepted": IN_FLIGHT + 3})
    told = [n for n in range(10) if any(b"later-%d" % n in request for request in replica.requests)]
    assert told == [7, 8, 9]


async def test_bodies_that_replace_others_are_counted_right(replica: Replica, tmp_path: Path) -> None:
    replica.may_answer.clear()
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=peer_limits(waiting_bytes=3500)).running() as relay,
    ):
        for number in range(IN_FLIGHT):
            relay.push(token=f"first-{number}")
            await until(lambda number=number: len(replica.requests) == number + 1)  # type: ignore[misc]
        for size in (3000, 1, 2000, 3000):
            relay.push(b"x" * size)
        assert relay.outcomes == {}
        relay.push(b"x" * 4000)  # too large even alone
        assert relay.outcomes == {"Dropped": 1}
        relay.push(b"x" * 3000)
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Dropped": 1, "Accepted": IN_FLIGHT + 1})


async def test_a_replica_that_is_away_is_tried_once_in_a_while_and_then_costs_nothing() -> None:
    limits = peer_limits(first_pause_s=60.0, longest_pause_s=60.0)
    connections = 0

    async def slam(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.transport.abort()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    async with (
        server,
        Relaying(peers=[f"127.0.0.1:{server.sockets[0].getsockname()[1]}"], limits=limits).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        for number in range(100):
            relay.push(token=f"other-{number}")
        assert relay.outcomes == {"Unreachable": 101}  # at once
    assert connections == 1


async def test_a_replica_that_comes_back_gets_pushes_again(replica: Replica, tmp_path: Path) -> None:
    limits = peer_limits(first_pause_s=0.01, longest_pause_s=0.01)
    replica.port = free_port()
    async with Relaying(peers=[replica.name], limits=limits).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        async with replica.serving(OURS, tmp_path):
            await pushed_until(relay, lambda: bool(replica.requests))


async def test_a_replica_that_has_started_again_gets_pushes_at_once(replica: Replica, tmp_path: Path) -> None:
    limits = peer_limits(first_pause_s=600.0, longest_pause_s=600.0)
    replica.port = free_port()
    async with Relaying(peers=[replica.name], limits=limits).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        async with replica.serving(OURS, tmp_path):
            relay.relay.introduce(Address("127.0.0.1", replica.port))
            relay.push()
            await until(lambda: bool(replica.requests))


async def test_a_connection_that_the_replica_has_closed_is_made_again(
    replica: Replica, tmp_path: Path
) -> None:
    replica.answer = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for count in (1, 2):
            relay.push()
            await until(lambda count=count: relay.outcomes == {"Accepted": count})  # type: ignore[misc]
    assert replica.connections == 2


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


async def test_an_answer_that_does_not_come_is_not_waited_for_long(replica: Replica, tmp_path: Path) -> None:
    replica.may_answer.clear()
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=peer_limits(timeout_s=0.05)).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
    replica.may_answer.set()
