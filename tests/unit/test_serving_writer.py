"""How responses are written: in few writes, and none of their bytes lost, moved or invented."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from visibility_api.serving.writer import PIECE_BYTES, SMALL_BYTES, Response, Writer

OK = b"HTTP/1.1 200 OK\r\n"
LOG = logging.getLogger("tests")


class Wire(asyncio.Transport):
    """What would have been sent, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False
        self.is_reading = True

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def exchange(
    app: Callable[[Any, Any, Any], Awaitable[None]],
    wire: Wire,
    *,
    keep_alive: bool = True,
    method: str = "GET",
) -> Coroutine[Any, Any, None]:
    writer = Writer(wire, asyncio.get_running_loop())
    cycle = Response(
        scope={"type": "http", "method": method},  # type: ignore[typeddict-item]
        transport=writer, flow=FlowControl(writer), logger=LOG, access_logger=LOG, access_log=False,
        default_headers=[], message_event=asyncio.Event(), expect_100_continue=False, keep_alive=keep_alive,
        on_response=lambda: None,
    )  # fmt: skip
    return cycle.run_asgi(app)


def start(**headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": 200, "headers": pairs}


def body(content: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def sending(*messages: dict[str, Any]) -> Callable[[Any, Any, Any], Awaitable[None]]:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


async def test_what_one_turn_of_the_loop_answers_leaves_at_its_end_in_one_write_each() -> None:
    wires = Wire(), Wire()
    made: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start(content_length="2", etag='"7"'))
        await send(body(b"a", more=True))
        await send(body(b"b"))
        made.append(sum(len(wire.writes) for wire in wires))

    async with asyncio.TaskGroup() as answers:
        for wire in wires:
            answers.create_task(exchange(app, wire))
    assert made == [0, 0]
    assert [wire.writes for wire in wires] == [[OK + b'content-length: 2\r\netag: "7"\r\n\r\nab']] * 2


@pytest.mark.parametrize(
    ("method", "content"), [("GET", b""), ("GET", b"ab"), ("GET", SMALL_BYTES * b"a"), ("HEAD", b"ab")]
)
async def test_a_whole_answer_is_as_one_of_uvicorns_in_one_write(method: str, content: bytes) -> None:
    whole, parts = Wire(), Wire()
    length = str(len(content))
    await exchange(sending(start(etag='"7"', content_length=length), body(content)), whole, method=method)
    await exchange(sending(start(content_length=length, etag='"7"'), body(content)), parts, method=method)
    await asyncio.sleep(0)
    assert len(whole.writes) == 1
    sent = [sorted(b"".join(wire.writes).split(b"\r\n")) for wire in (whole, parts)]
    assert sent[0] == sent[1]


async def test_a_failure_after_the_head_of_a_whole_answer_is_answered_500() -> None:
    wire = Wire()
    await exchange(sending(start(content_length="2")), wire)
    await asyncio.sleep(0)
    assert b"".join(wire.writes).startswith(b"HTTP/1.1 500 ")


async def test_an_answer_before_the_end_of_its_connection_leaves_at_once() -> None:
    wire = Wire()
    await exchange(sending(start(content_length="1"), body(b"a")), wire, keep_alive=False)
    assert b"".join(wire.writes) == OK + b"content-length: 1\r\nconnection: close\r\n\r\na"
    assert wire.is_closed


async def test_the_head_of_a_stream_leaves_before_its_first_event() -> None:
    """client-go's `Watch` returns only once it has come."""
    wire = Wire()
    written: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start())
        await asyncio.sleep(0)
        written.append(len(wire.writes))
        await send(body(b"abc", more=True))
        await send(body())

    await exchange(app, wire)
    await asyncio.sleep(0)
    assert written == [1]
    assert b"".join(wire.writes) == OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nx: y", "a\rx: y"])
async def test_a_line_break_in_a_header_is_never_sent(value: str) -> None:
    wire = Wire()
    await exchange(sending(start(warning=value, content_length="0"), body()), wire)
    assert wire.is_closed
    assert b"x: y" not in b"".join(wire.writes)


@pytest.mark.parametrize("content", [b"a", b"abc"])
async def test_a_body_of_another_length_than_announced_ends_the_connection(content: bytes) -> None:
    """Or the next answer would be read as the rest of this one."""
    wire = Wire()
    await exchange(sending(start(content_length="2"), body(content)), wire)
    assert wire.is_closed


sizes = st.sampled_from([0, 1, 100, SMALL_BYTES, SMALL_BYTES + 1, PIECE_BYTES, PIECE_BYTES + 1, 200_000])


@given(st.lists(st.tuples(sizes, st.booleans()), max_size=12))
def test_no_byte_is_lost_or_overtaken_and_no_write_is_larger_than_a_piece(
    steps: list[tuple[int, bool]],
) -> None:
    async def scenario() -> None:
        wire = Wire()
        writer = Writer(wire, asyncio.get_running_loop())
        sent = b""
        for size, ends_turn in steps:
            data = random.Random(len(sent)).randbytes(size)
            writer.write(data)
            sent += data
            if ends_turn:
                await asyncio.sleep(0)
                assert b"".join(wire.writes) == sent
        writer.close()
        assert b"".join(wire.writes) == sent
        assert max(map(len, wire.writes), default=0) <= PIECE_BYTES
        assert (writer.kept_bytes > PIECE_BYTES) == any(size > SMALL_BYTES for size, _ in steps)

    asyncio.run(scenario())


async def test_what_was_held_is_read_on_only_when_uvicorn_wants_it_too() -> None:
    wire = Wire()
    writer = Writer(wire, asyncio.get_running_loop())
    flow = FlowControl(writer)
    writer.hold()
    flow.pause_reading()
    flow.resume_reading()
    assert not wire.is_reading
    flow.pause_reading()
    writer.release()
    assert not wire.is_reading
    flow.resume_reading()
    assert wire.is_reading
    writer.hold()
    writer.release()
    assert wire.is_reading
