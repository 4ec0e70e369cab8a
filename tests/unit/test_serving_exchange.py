"""How a response is written: in few writes, and never with a header that contains another."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from visibility_api.serving.coalescing_writer import CoalescingWriter
from visibility_api.serving.exchange import Exchange
from visibility_api.serving.flow import PIECE_BYTES, Flow

OK = b"HTTP/1.1 200 OK\r\n"
LOG = logging.getLogger("tests")


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


def flow_of(wire: Wire) -> Flow:
    return Flow(wire, lambda: None)


async def answer(
    app: Callable[[Any, Any, Any], Awaitable[None]],
    *,
    method: str = "GET",
    keep_alive: bool = True,
    default_headers: list[tuple[bytes, bytes]] | None = None,
    flow: Flow | None = None,
) -> Wire:
    wire = Wire()
    await exchange(app, wire, method, keep_alive, default_headers, flow)
    await asyncio.sleep(0)  # the end of this turn
    return wire


def exchange(
    app: Callable[[Any, Any, Any], Awaitable[None]],
    wire: Wire,
    method: str = "GET",
    keep_alive: bool = True,
    default_headers: list[tuple[bytes, bytes]] | None = None,
    flow: Flow | None = None,
) -> Coroutine[Any, Any, None]:
    one = Exchange(
        scope={"type": "http", "method": method},  # type: ignore[typeddict-item]
        transport=wire,
        flow=flow or flow_of(wire),
        logger=LOG,
        access_logger=LOG,
        access_log=False,
        default_headers=default_headers or [],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: None,
    )
    one.writer = CoalescingWriter(asyncio.get_running_loop(), wire)
    return one.run_asgi(app)


def start(status: int = 200, **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def body(content: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def sending(*messages: dict[str, Any]) -> Callable[[Any, Any, Any], Awaitable[None]]:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


async def test_head_and_body_of_known_length_leave_as_one() -> None:
    wire = await answer(sending(start(content_length="2", etag='"7"'), body(b"ab")))
    assert wire.writes == [OK + b'content-length: 2\r\netag: "7"\r\n\r\nab']
    assert not wire.is_closed


async def test_answers_made_in_one_turn_leave_together_at_its_end() -> None:
    wires = Wire(), Wire()
    made: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start(content_length="1"))
        await send(body(b"a"))
        made.append(sum(len(wire.writes) for wire in wires))

    async with asyncio.TaskGroup() as answers:
        for wire in wires:
            answers.create_task(exchange(app, wire))
    assert made == [0, 0]
    assert [len(wire.writes) for wire in wires] == [1, 1]


async def test_an_answer_before_the_end_of_its_connection_leaves_at_once() -> None:
    wire = Wire()
    await exchange(sending(start(content_length="1"), body(b"a")), wire, keep_alive=False)
    assert wire.writes
    assert wire.is_closed


async def test_further_slices_leave_by_themselves_and_are_not_copied() -> None:
    slice_ = b"x" * 100
    wire = await answer(sending(start(content_length="101"), body(b"a", more=True), body(slice_)))
    assert wire.writes == [OK + b"content-length: 101\r\n\r\na", slice_]
    assert wire.writes[1] is slice_


@pytest.mark.parametrize("size", [PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_large_slice_leaves_in_pieces_and_none_is_lost(size: int, is_stream: bool) -> None:
    slice_ = random.Random(size).randbytes(size)
    told = {} if is_stream else {"content_length": str(size + 1)}
    wire = await answer(sending(start(**told), body(b"a", more=True), body(slice_)))
    assert max(map(len, wire.writes)) <= PIECE_BYTES
    sent = b"".join(wire.writes).partition(b"\r\n\r\n")[2]
    if is_stream:
        assert sent == b"1\r\na\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, slice_)
    else:
        assert sent == b"a" + slice_


async def test_default_headers_come_first() -> None:
    wire = await answer(sending(start(content_length="0"), body()), default_headers=[(b"date", b"now")])
    assert wire.writes == [OK + b"date: now\r\ncontent-length: 0\r\n\r\n"]


async def test_the_head_of_a_stream_is_written_before_its_first_event() -> None:
    """client-go's `Watch` returns only once it has come."""
    wire = Wire()
    written: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start())
        written.append(len(wire.writes))
        await send(body(b"abc", more=True))
        await send(body())

    flow = flow_of(wire)
    exchange = Exchange(
        scope={"type": "http", "method": "GET"},  # type: ignore[typeddict-item]
        transport=wire, flow=flow, logger=LOG, access_logger=LOG, access_log=False, default_headers=[],
        message_event=asyncio.Event(), expect_100_continue=False, keep_alive=True, on_response=lambda: None,
    )  # fmt: skip
    await exchange.run_asgi(app)
    assert written == [1]
    assert wire.writes == [OK + b"transfer-encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n"]


async def test_the_last_chunk_brings_the_end_along() -> None:
    wire = await answer(sending(start(), body(b"abc")))
    assert wire.writes[1:] == [b"3\r\nabc\r\n0\r\n\r\n"]


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_announces_none(status: int) -> None:
    (only,) = (await answer(sending(start(status, etag='"7"'), body()))).writes
    assert only.endswith(b'\r\netag: "7"\r\n\r\n')


async def test_head_gets_the_headers_of_get_and_no_body() -> None:
    wire = await answer(sending(start(content_length="2"), body(b"ab")), method="HEAD")
    assert wire.writes == [OK + b"content-length: 2\r\n\r\n"]
    wire = await answer(sending(start(), body(b"ab")), method="HEAD")
    assert wire.writes == [OK + b"\r\n"]


async def test_a_client_without_keep_alive_gets_connection_close() -> None:
    wire = await answer(sending(start(content_length="0"), body()), keep_alive=False)
    assert wire.writes == [OK + b"content-length: 0\r\nconnection: close\r\n\r\n"]
    assert wire.is_closed


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nx: y", "a\rx: y"])
async def test_a_line_break_in_a_header_is_never_sent(value: str, caplog: pytest.LogCaptureFixture) -> None:
    wire = await answer(sending(start(content_length="0", warning=value), body()))
    assert wire.is_closed
    assert b"x: y" not in b"".join(wire.writes)
    assert "line break" in caplog.text


@pytest.mark.parametrize("content", [b"a", b"abc"])
async def test_a_body_of_another_length_than_announced_ends_the_connection(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Or the next answer would be read as the rest of this one."""
    wire = await answer(sending(start(content_length="2"), body(content)))
    assert wire.is_closed
    assert "announced length" in caplog.text


async def test_an_application_that_fails_is_answered_500(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise KeyError

    wire = await answer(app)
    assert wire.writes[0].startswith(b"HTTP/1.1 500 ")
    assert wire.is_closed


async def test_nothing_is_written_while_the_client_does_not_read() -> None:
    wire = Wire()
    flow = flow_of(wire)
    flow.pause_writing()
    answering = asyncio.ensure_future(answer(sending(start(content_length="0"), body()), flow=flow))
    await asyncio.sleep(0)
    assert not answering.done()
    flow.resume_writing()
    assert len((await answering).writes) == 1
