"""Connections whose callers are not known: so many, and so many bytes of heads, and nobody else's."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

from hypothesis import given, strategies as st

from visibility_api.auth.certificates import Peer
from visibility_api.serving.strangers import (
    FREE_HEAD_BYTES,
    HEADER_BYTES,
    READ_AT_ONCE,
    Strangers,
)


class Connection:
    def __init__(self, site: str) -> None:
        self.site = site
        self.peer = Peer()
        self.is_open = True

    def drop(self) -> None:
        self.is_open = False


def connect(strangers: Strangers, site: str, number: int = 1) -> list[Connection]:
    made = [Connection(site) for _ in range(number)]
    for each in made:
        strangers.enter(each)
    return made


def test_a_flood_of_connections_drops_its_own_oldest_ones() -> None:
    strangers = Strangers(most=10)
    kubelet = connect(strangers, "10.0.0.1")[0]
    flood = connect(strangers, "10.9.9.9", 50)
    assert kubelet.is_open
    assert [each.is_open for each in flood] == [False] * 41 + [True] * 9
    newcomer = connect(strangers, "10.0.0.2")[0]
    assert newcomer.is_open
    assert len(strangers) == 10


def test_those_who_are_known_meanwhile_are_neither_counted_nor_dropped() -> None:
    strangers = Strangers(most=10)
    users = connect(strangers, "10.0.0.1", 10)
    for each in users:
        each.peer.is_known = True
    more = connect(strangers, "10.0.0.1", 10)
    assert all(each.is_open for each in users + more)
    assert len(strangers) == 10


def test_heads_share_so_many_bytes() -> None:
    strangers = Strangers(most_head_bytes=100_000)
    first, second = connect(strangers, "10.9.9.9", 2)
    assert strangers.charge(first, FREE_HEAD_BYTES + 60_000, 0)
    assert strangers.charge(first, FREE_HEAD_BYTES + 70_000, 0)  # the same head, longer
    assert not strangers.charge(second, FREE_HEAD_BYTES + 40_000, 0)
    assert strangers.charge(second, FREE_HEAD_BYTES, 0)  # of normal size
    assert not strangers.charge(second, FREE_HEAD_BYTES, 40_000 // HEADER_BYTES)  # many short headers
    second.peer.is_known = True
    assert strangers.charge(second, FREE_HEAD_BYTES + 40_000, 0)
    third = connect(strangers, "10.9.9.9")[0]
    third.peer.is_known = True
    assert not strangers.charge(third, FREE_HEAD_BYTES + 70_000, 0)  # those who are known share as many
    third.peer.is_front_proxy = True
    assert strangers.charge(third, FREE_HEAD_BYTES + 900_000, 0)
    strangers.release(first)
    assert strangers.charge(connect(strangers, "10.9.9.9")[0], FREE_HEAD_BYTES + 90_000, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "leave", "charge", "release", "know"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_nothing_stays_behind(happenings: list[tuple[str, int]]) -> None:
    strangers = Strangers(most=4, most_head_bytes=50_000)
    connections: dict[int, Connection] = {}
    for what, number in happenings:
        if what == "enter" and number not in connections:
            connections[number] = connect(strangers, f"10.0.0.{number % 3}")[0]
        elif (connection := connections.get(number)) is not None:
            match what:
                case "leave":
                    strangers.leave(connection)
                    del connections[number]
                case "charge":
                    strangers.charge(connection, FREE_HEAD_BYTES + 20_000, number)
                case "release":
                    strangers.release(connection)
                case "know":
                    connection.peer.is_known = True
        assert len(strangers) <= 4
        assert 0 <= strangers.head_bytes <= 2 * 50_000
    for connection in connections.values():
        strangers.leave(connection)
    assert (len(strangers), strangers.head_bytes) == (0, 0)


async def test_of_a_crowd_a_few_are_read_from_in_each_turn_of_the_loop() -> None:
    strangers = Strangers()
    read: list[int] = []
    for number, each in enumerate(connect(strangers, "10.9.9.9", 5 * READ_AT_ONCE)):
        strangers.read_in_turn(each, partial(read.append, number))
    turns = [len(read)]
    while len(read) < 5 * READ_AT_ONCE:
        await asyncio.sleep(0)
        turns.append(len(read))
    assert max(after - before for before, after in pairwise(turns)) == READ_AT_ONCE
    assert sorted(read) == list(range(5 * READ_AT_ONCE))
    strangers.read_in_turn(connect(strangers, "10.9.9.9")[0], partial(read.append, -1))
    await asyncio.sleep(0)
    assert read[-1] == -1


async def test_neither_another_address_nor_a_newcomer_waits_for_a_crowd_to_be_read() -> None:
    strangers = Strangers()
    read: list[int] = []
    for number, each in enumerate(connect(strangers, "10.9.9.9", 100)):
        strangers.read_in_turn(each, partial(read.append, number))
    strangers.read_in_turn(connect(strangers, "10.9.9.9")[0], partial(read.append, -1))
    strangers.read_in_turn(connect(strangers, "10.0.0.1")[0], partial(read.append, -2))
    await asyncio.sleep(0)
    assert -2 in read
    await asyncio.sleep(0)
    assert -1 in read
    assert read[0] == 0


async def test_a_connection_that_is_closed_is_not_read_from() -> None:
    strangers = Strangers()
    read: list[int] = []
    gone, stays = connect(strangers, "10.9.9.9", 2)
    strangers.read_in_turn(gone, partial(read.append, 0))
    strangers.leave(gone)
    strangers.read_in_turn(stays, partial(read.append, 1))
    await asyncio.sleep(0)
    assert read == [1]
