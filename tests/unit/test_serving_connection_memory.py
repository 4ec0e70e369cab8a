"""What connections take in all: idle ones are closed first, those of whoever has most."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, strategies as st

from visibility_api.auth.certificates import Peer
from visibility_api.serving.connection_memory import (
    CONNECTION_BYTES,
    CROWD_BYTES,
    KEPT_SHARE,
    ConnectionMemory,
)
from visibility_api.serving.flow import PIECE_BYTES, Flow

ROOM = 32 * CONNECTION_BYTES
KEPT = int(32 * KEPT_SHARE)


class Connection:
    def __init__(self, site: str, idle_since: float | None = 0.0, kept_bytes: int = 0) -> None:
        self.site, self.idle_since, self.kept_bytes = site, idle_since, kept_bytes
        self.peer = Peer()
        self.is_open = True

    def drop(self) -> None:
        self.is_open = False


def connect(memory: ConnectionMemory, *connections: Connection) -> list[Connection]:
    for each in connections:
        memory.count(each)
    return list(connections)


def test_the_idle_ones_of_whoever_has_most_are_closed_the_oldest_first() -> None:
    memory = ConnectionMemory(most=ROOM)
    user = connect(memory, Connection("10.0.0.1", idle_since=0.0))[0]
    crowd = connect(memory, *[Connection("10.9.9.9", idle_since=100.0 - n) for n in range(40)])
    assert user.is_open
    assert memory.bytes <= ROOM
    assert crowd[-1].is_open, "the newest is being served"
    assert not crowd[30].is_open, "idle for longer than those that came earlier"
    assert crowd[0].is_open
    assert KEPT - 1 <= sum(each.is_open for each in crowd) <= 32


def test_who_is_served_and_the_front_proxy_are_never_closed() -> None:
    memory = ConnectionMemory(most=ROOM)
    busy = connect(memory, *[Connection("10.9.9.9", idle_since=None) for _ in range(20)])
    proxy = [Connection("10.0.0.2") for _ in range(20)]
    for each in proxy:
        each.peer.is_front_proxy = True
    connect(memory, *proxy)
    assert memory.bytes == 40 * CONNECTION_BYTES
    idle = connect(memory, *[Connection("10.0.0.3") for _ in range(6)])
    assert all(each.is_open for each in busy + proxy)
    are_open = [each.is_open for each in idle]
    assert are_open == sorted(are_open), "the oldest are closed"
    assert 1 <= sum(are_open) <= 3, "they are looked through now and then, not for each newcomer"


def test_a_connection_weighs_what_it_keeps_of_its_largest_piece() -> None:
    memory = ConnectionMemory(most=ROOM)
    readers = connect(memory, *[Connection("10.0.0.1") for _ in range(16)])
    flows = [Flow(asyncio.Transport(), lambda each=each: memory.count(each)) for each in readers]  # type: ignore[misc]
    for connection, flow in zip(readers, flows, strict=True):
        before = memory.bytes
        flow.note_piece(2_000)
        assert memory.bytes == before
        flow.note_piece(20_000)
        connection.kept_bytes = flow.kept_bytes
        flow.note_piece(40_000)
        flow.note_piece(PIECE_BYTES)
        connection.kept_bytes = flow.kept_bytes
        memory.count(connection)
        flow.note_piece(PIECE_BYTES)
        assert connection.kept_bytes > PIECE_BYTES
        assert memory.bytes <= ROOM
    assert sum(each.is_open for each in readers) <= ROOM // (CONNECTION_BYTES + PIECE_BYTES)


def test_when_a_crowd_has_gone_its_memory_is_given_back_once() -> None:
    calls: list[int] = []
    memory = ConnectionMemory(on_calm=lambda: calls.append(memory.bytes))
    for each in connect(
        memory, *[Connection("10.0.0.1") for _ in range(CROWD_BYTES // CONNECTION_BYTES - 1)]
    ):
        memory.leave(each)
    assert calls == []
    for each in connect(memory, *[Connection("10.9.9.9") for _ in range(CROWD_BYTES // CONNECTION_BYTES)]):
        memory.leave(each)
    assert calls == [CROWD_BYTES // 8]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "leave", "grow", "busy", "idle"]), st.integers(0, 9), st.integers(0, 3)
        ),
        max_size=60,
    )
)
def test_the_sum_is_that_of_the_open_ones(happenings: list[tuple[str, int, int]]) -> None:
    memory = ConnectionMemory(most=4 * CONNECTION_BYTES)
    connections: dict[int, Any] = {}
    for what, number, amount in happenings:
        connection = connections.get(number)
        if connection is None or not connection.is_open:
            connection = connections[number] = Connection(f"10.0.0.{number % 3}")
            memory.count(connection)
        match what:
            case "leave":
                memory.leave(connection)
                connection.is_open = False
            case "grow":
                connection.kept_bytes += 1000 * amount
                memory.count(connection)
            case "busy":
                connection.idle_since = None
            case "idle":
                connection.idle_since = float(amount)
        held = [each for each in connections.values() if each.is_open]
        assert memory.bytes == sum(CONNECTION_BYTES + each.kept_bytes for each in held)
    for connection in connections.values():
        memory.leave(connection)
    assert memory.bytes == 0
