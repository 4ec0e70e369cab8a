"""Relaying to one peer: batches, limits, and peers that misbehave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.processes import free_port
from tests.relaying import OURS, PATIENT, Relaying, Replica, answer, peer_limits, pushed_until
from tests.service.tls_server import until
from visibility_api.peers.addresses import Address
from visibility_api.pushing.peer import ENVELOPE_BYTES
from visibility_api.pushing.relayed import MAX_BATCH_BYTES

OK = answer()


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
    assert (replica.connections, len(replica.batches)) == (1, 20)


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


async def test_what_waits_goes_together_and_in_order(replica: Replica, tmp_path: Path) -> None:
    """Also what several processes of one pod push in the same moment: none of it is in another's report."""
    replica.may_answer.clear()
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        relay.push()
        await until(lambda: len(replica.batches) == 1)
        for number in range(20):
            relay.push(b"other", pod=f"other-{number}")
            relay.push(b"%d" % number)
        assert len(replica.batches) == replica.connections == 1  # one request at a time
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Accepted": 41})
    assert [len(batch) for batch in replica.batches] == [1, 40]
    bodies = [push.body for push in replica.batches[1] if push.membership.pod_uid == "pod-1"]
    assert bodies == [b"%d" % number for number in range(20)]


async def test_what_has_waited_for_too_long_is_not_sent_any_more(replica: Replica, tmp_path: Path) -> None:
    """It would take the place of something newer."""
    limits = peer_limits(keep_s=0.2, first_pause_s=60.0)
    replica.port = free_port()
    async with Relaying(peers=[replica.name], limits=limits).running() as relay:
        relay.push(b"old")
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        await asyncio.sleep(0.2)
        relay.push(b"new", pod="pod-2")
        async with replica.serving(OURS, tmp_path):
            relay.relay.introduce(Address("127.0.0.1", replica.port))
            await until(lambda: relay.outcomes == {"Unreachable": 1, "Dropped": 1, "Accepted": 1})
    assert [push.body for push in replica.pushes] == [b"new"]


async def test_pushes_of_many_pods_within_a_moment_are_one_request(replica: Replica, tmp_path: Path) -> None:
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=peer_limits(gather_s=0.2)).running() as relay,
    ):
        for number in range(100):
            relay.push(pod=f"pod-{number}")
            await asyncio.sleep(0)
        await until(lambda: relay.outcomes == {"Accepted": 100})
    assert [len(batch) for batch in replica.batches] == [100]


async def test_no_request_is_longer_than_the_peer_takes(replica: Replica, tmp_path: Path) -> None:
    body = b"x" * 50_000
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        for number in range(5):
            relay.push(body, pod=f"pod-{number}")
        await until(lambda: relay.outcomes == {"Accepted": 5})
    assert [len(batch) for batch in replica.batches] == [2, 2, 1]
    assert all(length <= MAX_BATCH_BYTES for length in replica.lengths)


@pytest.mark.parametrize("bound", [{"waiting": 3}, {"waiting_bytes": 3 * (900 + ENVELOPE_BYTES) + 500}])
async def test_what_waits_is_bounded_and_the_oldest_goes(
    replica: Replica, tmp_path: Path, bound: dict[str, float]
) -> None:
    replica.may_answer.clear()
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=peer_limits(**bound)).running() as relay,
    ):
        relay.push(pod="first")
        await until(lambda: len(replica.batches) == 1)
        for number in range(10):
            relay.push(b"x" * 900, pod=f"later-{number}")
        assert relay.outcomes == {"Dropped": 7}
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Dropped": 7, "Accepted": 4})
    assert [push.membership.pod_uid for push in replica.batches[1]] == ["later-7", "later-8", "later-9"]


async def test_bodies_that_replace_others_are_counted_right(replica: Replica, tmp_path: Path) -> None:
    replica.may_answer.clear()
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=peer_limits(waiting_bytes=4000)).running() as relay,
    ):
        relay.push(pod="first")
        await until(lambda: len(replica.batches) == 1)
        for size in (3000, 1, 2000, 3000):
            relay.push(b"x" * size)
        assert relay.outcomes == {}
        relay.push(b"x" * 4000)  # too large even alone
        assert relay.outcomes == {"Dropped": 1}
        relay.push(b"x" * 3000)
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Dropped": 1, "Accepted": 2})


async def test_a_replica_that_is_away_is_tried_once_in_a_while_and_nothing_is_lost_meanwhile(
    replica: Replica, tmp_path: Path
) -> None:
    limits = peer_limits(first_pause_s=60.0, longest_pause_s=60.0)
    connections = 0

    async def slam(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.transport.abort()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    replica.port = server.sockets[0].getsockname()[1]
    async with Relaying(peers=[replica.name], limits=limits).running() as relay:
        async with server:
            relay.push(b"old")
            await until(lambda: relay.outcomes == {"Unreachable": 1})
            for number in range(100):
                relay.push(pod=f"other-{number}")
            relay.push(b"new")
        assert connections == 1
        async with replica.serving(OURS, tmp_path):
            relay.relay.introduce(Address("127.0.0.1", replica.port))
            await until(lambda: relay.outcomes == {"Unreachable": 1, "Accepted": 101})
    assert [push.body for push in replica.pushes if push.membership.pod_uid == "pod-1"] == [b"new"]


async def test_a_replica_that_comes_back_gets_what_it_has_missed(replica: Replica, tmp_path: Path) -> None:
    limits = peer_limits(first_pause_s=0.01, longest_pause_s=0.01)
    replica.port = free_port()
    async with Relaying(peers=[replica.name], limits=limits).running() as relay:
        relay.push(b"last")
        await until(lambda: relay.outcomes["Unreachable"] >= 1)
        async with replica.serving(OURS, tmp_path):
            await until(lambda: relay.outcomes["Accepted"] == 1)
    assert [push.body for push in replica.pushes] == [b"last"]


async def test_a_replica_that_starts_again_while_it_is_being_tried_is_tried_again_at_once(
    replica: Replica, tmp_path: Path
) -> None:
    replica.may_answer.clear()
    limits = peer_limits(timeout_s=1.0, first_pause_s=600.0, longest_pause_s=600.0)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
        relay.push()
        await until(lambda: len(replica.batches) == 1)
        relay.relay.introduce(Address("127.0.0.1", replica.port))
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        replica.may_answer.set()
        await until(lambda: relay.outcomes == {"Unreachable": 1, "Accepted": 1})


async def test_what_a_replica_that_is_gone_was_to_get_is_dropped(replica: Replica, tmp_path: Path) -> None:
    """Also what was in flight, whose answer never comes."""
    replica.may_answer.clear()
    limits = replace(peer_limits(timeout_s=0.2), introduced_s=60.0, peers=1)
    async with replica.serving(OURS, tmp_path), Relaying(peers=[], limits=limits).running() as relay:
        relay.relay.introduce(Address("127.0.0.1", replica.port))
        await pushed_until(relay, lambda: len(replica.batches) == 1)
        relay.relay._introduced.clear()
        await until(lambda: not relay.relay._peers)
        await until(lambda: relay.outcomes["Unreachable"] == 1)
        assert relay.outcomes["Dropped"] >= 1
        replica.may_answer.set()
        relay.push()
    assert len(replica.batches) == 1


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
    async with replica.serving(OURS, tmp_path), Relaying(peers=[replica.name]).running() as relay:
        replica.answer = answer(status=b"404 Not Found")
        relay.push()
        await until(lambda: relay.outcomes == {"Refused": 1})
        replica.answer = answer(refused=1)
        relay.push()
        await until(lambda: relay.outcomes == {"Refused": 2})
    assert len(replica.requests) == 2


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (b"401 Unauthorized", "OtherCertificate"),  # it has read the renewed files, this replica not yet
        (b"429 Too Many Requests", "Unreachable"),
        (b"503 Service Unavailable", "Unreachable"),
    ],
)
async def test_a_replica_that_takes_nothing_for_a_moment_is_tried_again(
    replica: Replica, tmp_path: Path, status: bytes, outcome: str
) -> None:
    replica.answer = answer(status=status)
    limits = peer_limits(first_pause_s=0.01, longest_pause_s=0.01)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes[outcome] >= 1)
        replica.answer = OK
        await until(lambda: relay.outcomes["Accepted"] == 1)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"junk\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 two content-length\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        answer(refused=-1),
        b"x" * 100_000,
    ],
)
async def test_an_answer_that_is_none_is_as_good_as_no_answer(
    replica: Replica, tmp_path: Path, nonsense: bytes
) -> None:
    replica.answer = nonsense
    limits = peer_limits(first_pause_s=60.0)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})


async def test_an_answer_that_does_not_come_is_not_waited_for_long(replica: Replica, tmp_path: Path) -> None:
    replica.may_answer.clear()
    limits = peer_limits(timeout_s=0.05, first_pause_s=60.0)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
    replica.may_answer.set()


async def test_what_waits_is_sent_before_the_process_ends(replica: Replica, tmp_path: Path) -> None:
    limits = replace(peer_limits(gather_s=0.1), last_s=60.0)
    async with (
        replica.serving(OURS, tmp_path),
        Relaying(peers=[replica.name], limits=limits).running() as relay,
    ):
        relay.push(b"last")
        assert replica.pushes == []
    assert [push.body for push in replica.pushes] == [b"last"]


async def test_a_replica_that_is_away_delays_the_end_of_the_process_not_at_all(replica: Replica) -> None:
    replica.port = free_port()
    limits = replace(peer_limits(first_pause_s=600.0), last_s=600.0)
    async with asyncio.timeout(60), Relaying(peers=[replica.name], limits=limits).running() as relay:
        relay.push()
        await until(lambda: relay.outcomes == {"Unreachable": 1})
        relay.push()
