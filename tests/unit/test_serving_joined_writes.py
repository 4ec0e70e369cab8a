"""Writes of one turn of the event loop leave together, in order, and none is lost at the end."""

from __future__ import annotations

import asyncio

from visibility_api.serving.joined_writes import JOINED_BYTES, JoinedWrites


class Wire(asyncio.Transport):
    """What would have been sent, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        assert not self.is_closed
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


async def test_writes_of_one_turn_leave_as_one_when_it_ends() -> None:
    wire = Wire()
    joined = JoinedWrites(wire, asyncio.get_running_loop())
    joined.write(b"head")
    joined.write(b"body")
    assert wire.writes == []
    await asyncio.sleep(0)
    assert wire.writes == [b"headbody"]
    joined.write(b"next")
    await asyncio.sleep(0)
    assert wire.writes == [b"headbody", b"next"]


async def test_large_writes_go_on_at_once_and_in_order_without_being_copied() -> None:
    wire = Wire()
    joined = JoinedWrites(wire, asyncio.get_running_loop())
    large = b"x" * (JOINED_BYTES + 1)
    joined.write(b"head")
    joined.write(large)
    assert wire.writes == [b"head", large]
    assert wire.writes[1] is large
    await asyncio.sleep(0)
    assert len(wire.writes) == 2


async def test_closing_sends_what_is_pending_first() -> None:
    wire = Wire()
    joined = JoinedWrites(wire, asyncio.get_running_loop())
    joined.write(b"last words")
    joined.close()
    assert wire.writes == [b"last words"]
    assert joined.is_closing()
    await asyncio.sleep(0)
    assert wire.writes == [b"last words"]
