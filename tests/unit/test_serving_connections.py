"""Connections that give way: those of unknown clients, and idle ones when there are too many or too large."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from visibility_api.auth.certificates import Peer
from visibility_api.serving import connections
from visibility_api.serving.connections import (
    CLOSED_AT_ONCE,
    CONNECTION_BYTES,
    CROWD,
    KEEP_ALIVE_S,
    KEPT_SHARE,
    KNOWN_READ_AT_ONCE,
    LOOKED_AT_ONCE,
    READ_AT_ONCE,
    ConnectionLimits,
    Connections,
)

ROOM = ConnectionLimits(kept_bytes=32 * CONNECTION_BYTES)
KEPT = int(32 * KEPT_SHARE)


class Connection:
    def __init__(
        self,
        site: str,
        *,
        idle_since: float | None = 0.0,
        kept_bytes: int = CONNECTION_BYTES,
        known: bool = True,
    ) -> None:
        self.site, self.idle_since, self.kept_bytes = site, idle_since, kept_bytes
        self.peer = Peer(chain=(b"a certificate",) if known else ())
        self.head_deadline, self.was_asked = math.inf, True
        self.answered_at = math.inf if idle_since is None else idle_since
        self.is_open = True
        self.reads: list[Connection] = []

    def drop(self) -> None:
        self.is_open = False

    shutdown = drop

    def read_on(self) -> None:
        self.reads.append(self)


def connect(all_: Connections, *made: Connection) -> list[Connection]:
    for each in made:
        all_.enter(each)
    return list(made)


def strangers(all_: Connections, site: str, number: int = 1) -> list[Connection]:
    return connect(all_, *[Connection(site, known=False) for _ in range(number)])


def sweep(all_: Connections, made: list[Connection], now: float = 0.0) -> None:
    asyncio.run(all_.sweep(now, has_client_ca=True))
    for each in made:
        if not each.is_open:
            all_.leave(each)


def test_a_flood_of_connections_drops_its_own_oldest_ones() -> None:
    all_ = Connections(ConnectionLimits(strangers=10))
    kubelet = strangers(all_, "10.0.0.1")[0]
    flood = strangers(all_, "10.9.9.9", 50)
    assert kubelet.is_open
    assert [each.is_open for each in flood] == [False] * 41 + [True] * 9
    assert strangers(all_, "10.0.0.2")[0].is_open
    assert all_.strangers == 10


def test_those_who_are_known_meanwhile_are_neither_counted_nor_dropped() -> None:
    all_ = Connections(ConnectionLimits(strangers=10))
    users = strangers(all_, "10.0.0.1", 10)
    for each in users:
        each.peer.is_known = True
    more = strangers(all_, "10.0.0.1", 10)
    assert all(each.is_open for each in users + more)
    assert all_.strangers == 10


def test_of_many_strangers_those_who_are_known_are_looked_for_now_and_then_and_never_dropped() -> None:
    """To look through a thousand takes 50 us, for each connection of a flood."""
    all_ = Connections(ConnectionLimits(strangers=320))
    users = strangers(all_, "10.9.9.9", 100)
    for each in users:
        each.peer.is_known = True
    flood = strangers(all_, "10.9.9.9", 1000)
    assert all(each.is_open for each in users)
    assert [each.is_open for each in flood] == [False] * 680 + [True] * 320


def test_heads_share_so_many_bytes() -> None:
    all_ = Connections(ConnectionLimits(head_bytes=100_000))
    first, second = connect(all_, Connection("10.9.9.9"), Connection("10.9.9.9"))
    assert all_.hold_head(first, 60_000)
    assert all_.hold_head(first, 70_000)  # the same head, longer
    assert not all_.hold_head(second, 40_000)
    all_.release_head(first)
    assert all_.hold_head(second, 90_000)


def test_the_idle_ones_of_whoever_has_most_are_closed_the_oldest_first() -> None:
    all_ = Connections(ROOM)
    user = Connection("10.0.0.1", idle_since=0.0)
    crowd = [Connection("10.9.9.9", idle_since=100.0 - n) for n in range(40)]
    sweep(all_, connect(all_, user, *crowd))
    assert user.is_open
    assert [each.is_open for each in crowd] == [True] * (KEPT - 1) + [False] * (40 - KEPT + 1)


def test_who_is_served_and_the_front_proxy_are_never_closed() -> None:
    all_ = Connections(ROOM)
    busy = [Connection("10.9.9.9", idle_since=None) for _ in range(20)]
    proxy = [Connection("10.0.0.2") for _ in range(20)]
    for each in proxy:
        each.peer.is_front_proxy = True
    idle = [Connection("10.9.9.9") for _ in range(6)]
    sweep(all_, connect(all_, *busy, *proxy, *idle))
    assert all(each.is_open for each in busy + proxy)
    assert not any(each.is_open for each in idle)


def test_a_connection_is_closed_once_it_was_idle_for_long_and_not_while_it_is_served() -> None:
    all_ = Connections(ConnectionLimits())
    idle, later = Connection("10.0.0.1", idle_since=10.0), Connection("10.0.0.1", idle_since=10.1)
    busy = Connection("10.0.0.1", idle_since=10.0)
    busy.idle_since = None  # the next request has come
    made = connect(all_, idle, later, busy)
    sweep(all_, made, now=10.0 + KEEP_ALIVE_S)
    assert [each.is_open for each in made] == [False, True, True]
    sweep(all_, made, now=11.0 + KEEP_ALIVE_S)
    assert [each.is_open for each in made] == [False, False, True]


def test_what_somebody_else_is_served_costs_nobody_an_idle_connection() -> None:
    """A thousand watches of one address kept more than all may, and other readers lost theirs each time."""
    all_ = Connections(ROOM)
    watches = [Connection("10.9.9.9", idle_since=None) for _ in range(40)]
    reader = Connection("10.0.0.3")
    sweep(all_, connect(all_, *watches, reader))
    assert reader.is_open


def test_a_connection_weighs_what_it_keeps_of_its_largest_piece() -> None:
    all_ = Connections(ROOM)
    readers = [Connection("10.0.0.1", kept_bytes=4 * CONNECTION_BYTES) for _ in range(10)]
    sweep(all_, connect(all_, *readers))
    assert sum(each.is_open for each in readers) == KEPT // 4


def test_idle_connections_are_closed_before_newcomers_are_refused() -> None:
    limits = ConnectionLimits(connections=40, reserve=4)
    all_ = Connections(limits)
    busy = connect(all_, *[Connection("10.0.0.1", idle_since=None) for _ in range(20)])
    idle = connect(all_, *[Connection("10.9.9.9") for _ in range(16)])
    sweep(all_, busy + idle)
    left = int(KEPT_SHARE * (limits.connections - 2 * limits.reserve)) - len(busy)
    assert [each.is_open for each in idle] == [False] * (len(idle) - left) + [True] * left
    assert len(all_) < limits.connections - limits.reserve


async def test_a_thousand_connections_are_looked_at_and_closed_in_many_turns_of_the_loop() -> None:
    """All at once, it kept the loop for up to 17 ms, several times a second."""
    all_ = Connections(ConnectionLimits(connections=1000, reserve=100))
    idle = connect(all_, *[Connection("10.9.9.9", idle_since=float(n)) for n in range(900)])
    closed = [0]
    sweep = asyncio.create_task(all_.sweep(0.0, has_client_ca=True))
    while not sweep.done():
        await asyncio.sleep(0)
        closed.append(sum(not each.is_open for each in idle))
        if len(closed) == 2 * len(idle) // LOOKED_AT_ONCE:
            idle[0].idle_since = None  # it sends a request meanwhile
    assert max(after - before for before, after in pairwise(closed)) <= CLOSED_AT_ONCE
    assert closed[-1] == 900 - int(KEPT_SHARE * 800)
    assert len(closed) > 2 * len(idle) // LOOKED_AT_ONCE
    assert idle[0].is_open


def test_heads_that_are_late_and_connections_from_before_the_first_ca_are_ended() -> None:
    all_ = Connections(ConnectionLimits())
    late, early, other = connect(all_, *[Connection("10.0.0.1") for _ in range(3)])
    late.head_deadline, early.was_asked = 10.0, False
    asyncio.run(all_.sweep(9.0, has_client_ca=False))
    assert [late.is_open, early.is_open] == [True, True]
    asyncio.run(all_.sweep(10.0, has_client_ca=True))
    assert [late.is_open, early.is_open, other.is_open] == [False, False, True]


def test_when_a_crowd_has_gone_its_memory_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(connections, "trim_memory", lambda: calls.append(len(all_)))
    all_ = Connections(ConnectionLimits())
    for number in (CROWD - 1, CROWD):
        for each in connect(all_, *[Connection("10.9.9.9") for _ in range(number)]):
            all_.leave(each)
            sweep(all_, [])
    assert calls == [CROWD // 8]


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "leave", "hold", "release", "know"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_nothing_stays_behind(happenings: list[tuple[str, int]]) -> None:
    all_ = Connections(ConnectionLimits(strangers=4, head_bytes=50_000))
    made: dict[int, Connection] = {}
    for what, number in happenings:
        connection = made.get(number)
        if connection is None:
            if what == "enter":
                made[number] = strangers(all_, f"10.0.0.{number % 3}")[0]
            continue
        match what:
            case "leave":
                all_.leave(made.pop(number))
            case "hold":
                all_.hold_head(connection, 20_000 * number)
            case "release":
                all_.release_head(connection)
            case "know":
                connection.peer.is_known = True
        assert all_.strangers <= 4
        assert 0 <= all_.head_bytes <= 50_000
        assert len(all_) == len(made)
    for connection in made.values():
        all_.leave(connection)
    assert (len(all_), all_.strangers, all_.head_bytes) == (0, 0, 0)


async def test_of_a_crowd_a_few_are_read_from_in_each_turn_of_the_loop() -> None:
    all_ = Connections(ConnectionLimits())
    crowd = strangers(all_, "10.9.9.9", 5 * READ_AT_ONCE)
    for each in crowd:
        all_.read_in_turn(each)
    turns = [0]
    while turns[-1] < len(crowd):
        await asyncio.sleep(0)
        turns.append(sum(len(each.reads) for each in crowd))
    assert max(after - before for before, after in pairwise(turns)) == READ_AT_ONCE
    assert [len(each.reads) for each in crowd] == [1] * len(crowd)
    all_.read_in_turn(crowd[0])
    await asyncio.sleep(0)
    assert len(crowd[0].reads) == 2


async def test_neither_another_address_nor_a_newcomer_waits_for_a_crowd_to_be_read() -> None:
    all_ = Connections(ConnectionLimits())
    crowd = strangers(all_, "10.9.9.9", 100)
    newcomer, user = strangers(all_, "10.9.9.9")[0], strangers(all_, "10.0.0.1")[0]
    for each in (*crowd, newcomer, user):
        all_.read_in_turn(each)
    await asyncio.sleep(0)
    assert crowd[0].reads
    assert user.reads
    await asyncio.sleep(0)
    assert newcomer.reads


async def test_of_known_clients_a_few_are_read_from_at_once_and_then_namespaces_take_turns() -> None:
    """A thousand pods of a tenant may push at the same moment."""
    all_ = Connections(ConnectionLimits())
    crowd_of, user_of = "system:serviceaccount:team-a", "system:serviceaccount:team-b"
    assert [all_.may_read(7.0, crowd_of) for _ in range(READ_AT_ONCE + 1)] == [True] * READ_AT_ONCE + [False]
    assert all_.may_read(7.0, user_of)
    assert sum(all_.may_read(7.001, f"{number}") for number in range(100)) == KNOWN_READ_AT_ONCE
    crowd = connect(all_, *[Connection(f"10.1.0.{number}") for number in range(100)])
    user = connect(all_, Connection("10.0.0.1"))[0]
    for each in crowd:
        each.peer.client = crowd_of
    user.peer.client = user_of
    for each in (*crowd, user):
        all_.read_in_turn(each)
    assert not all_.may_read(7.002, user_of)  # before those that wait
    await asyncio.sleep(0)
    assert user.reads
    assert sum(len(each.reads) for each in crowd) == READ_AT_ONCE


async def test_a_connection_that_is_closed_is_not_read_from() -> None:
    all_ = Connections(ConnectionLimits())
    gone, stays = strangers(all_, "10.9.9.9", 2)
    all_.read_in_turn(gone)
    all_.read_in_turn(stays)
    all_.leave(gone)
    await asyncio.sleep(0)
    assert (gone.reads, len(stays.reads)) == ([], 1)
