"""How bodies leave: lengths, slices, gzip. R14, R15."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from tests.asgi import Answer
from tests.unit.api_shell import ONE, Shell
from visibility_api.kubeapi import compression
from visibility_api.kubeapi.compression import Part, accepts_gzip
from visibility_api.kubeapi.delivery import GZIP_ABOVE_BYTES, YIELD_BYTES
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse
from visibility_api.kubeapi.turns import Turns

GZIP = ("Accept-Encoding", "gzip")
LARGE = b"x" * (GZIP_ABOVE_BYTES + 1)


async def deliver(body: bytes | Sequence[bytes], *headers: tuple[str, str], status: int = 200) -> Answer:
    async def handler(_: ResourceRequest) -> ResourceResponse:
        return ResourceResponse(body=body, status=status)

    return await Shell(handler=handler).get(ONE, *headers)


@pytest.mark.parametrize("body", [b"", b"{}\n", LARGE, [b"a", b"bc"], [], (b"", b"x")])
async def test_the_length_is_sent_before_the_body(body: bytes | Sequence[bytes]) -> None:
    answer = await deliver(body)
    whole = body if isinstance(body, bytes) else b"".join(body)
    assert (answer.body, answer.is_complete) == (whole, True)
    assert answer.header("content-length") == str(len(whole))


async def test_the_small_ends_of_a_list_leave_with_its_slices() -> None:
    """A write costs much the same whatever its size."""
    first, second = b"1" * 50_000, b"2" * 50_000
    answer = await deliver([b"{", first, second, b"]}"])
    assert answer.chunks == [b"{" + first, second + b"]}"]


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_tells_no_length(status: int) -> None:
    assert (await deliver(b"", status=status)).header("content-length") is None


@pytest.mark.parametrize("body", [LARGE, [LARGE[:70_000], LARGE[70_000:]]])
async def test_a_large_body_is_compressed_for_whoever_takes_gzip(body: bytes | Sequence[bytes]) -> None:
    """R14."""
    answer = await deliver(body, GZIP)
    assert (answer.header("content-encoding"), answer.header("vary")) == ("gzip", "Accept-Encoding")
    assert answer.header("content-length") is None
    assert gzip.decompress(answer.body) == LARGE
    assert len(answer.body) < len(LARGE) / 10


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (LARGE[:-1], [GZIP]),  # exactly at the limit
        (LARGE, []),
        (LARGE, [("Accept-Encoding", "identity")]),
        (LARGE, [("Accept-Encoding", "gzip;q=0")]),
        (LARGE, [("Accept-Encoding", "deflate, br")]),
    ],
)
async def test_all_else_is_sent_as_it_is(body: bytes, headers: list[tuple[str, str]]) -> None:
    """R14."""
    answer = await deliver(body, *headers)
    assert (answer.header("content-encoding"), answer.body) == (None, body)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"gzip", True), (b"GZIP", True), (b"deflate, gzip;q=0.5", True), (b"gzip;q=1.0", True),
        (b"gzip; q=0.001", True), (b"gzip;q=0.0", False), (b"gzip;q=0", False), (b"x-gzip", False),
        (b"", False), (b"*", False),
    ],
)  # fmt: skip
def test_gzip_is_taken_when_it_is_named_and_not_weighed_down(value: bytes, expected: bool) -> None:
    """R14."""
    assert accepts_gzip([(b"accept-encoding", value)]) is expected


async def pieces(body: bytes | Sequence[bytes]) -> list[bytes]:
    return [piece async for piece in compression.gzip(body)]


async def test_a_part_of_a_later_body_is_not_compressed_again() -> None:
    kept, before, after = Part(LARGE), Part(b"before"), Part(b"after")
    first = await pieces([kept, before])
    again = await pieces([kept, after])
    assert again[1] is first[1]
    assert gzip.decompress(b"".join(first)) == kept + before
    assert gzip.decompress(b"".join(again)) == kept + after


async def test_an_equal_part_is_not_the_same_part() -> None:
    """No answer is taken from what another's rights filled."""
    mine, yours = Part(LARGE), Part(LARGE)
    assert (await pieces([mine]))[1] is not (await pieces([yours]))[1]


@given(st.lists(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(Part)), max_size=8))
async def test_what_is_compressed_is_what_comes_out(parts: list[bytes]) -> None:
    """Also for readers that stop at the end of the first member, as httpx does."""
    for _ in range(2):
        compressed = b"".join(await pieces(parts))
        reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert reader.decompress(compressed) == b"".join(parts)
        assert reader.eof
        assert not reader.unused_data


def test_codings_beyond_the_bound_are_not_read() -> None:
    assert accepts_gzip([(b"accept-encoding", b"a," * 63 + b"gzip")])
    assert not accepts_gzip([(b"accept-encoding", b"a," * 100 + b"gzip")])


async def test_in_one_turn_of_the_loop_a_slice_of_one_response_is_sent() -> None:
    """However many are sent at the same moment: whoever asks for one document waits for one slice."""
    turn = 0
    sent: list[tuple[int, bytes]] = []

    async def note(message: dict[str, object]) -> None:
        body = message.get("body")
        if isinstance(body, bytes) and body:
            sent.append((turn, body[:1]))

    async def handler(request: ResourceRequest) -> ResourceResponse:
        return ResourceResponse(body=[request.attributes.name.encode() * YIELD_BYTES] * 3)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    shell = Shell(handler=handler)
    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*[shell.get(ONE.replace("bert", name), before_send=note) for name in "abcdefgh"])
    counting.cancel()
    turns = Counter(turn for turn, _ in sent)
    assert max(turns.values()) <= 2  # the end of a response leaves with its last slice
    assert {name for _, name in sent[:16]} == {*[bytes([letter]) for letter in b"abcdefgh"]}


async def test_a_response_that_is_given_up_leaves_its_turn_to_the_next() -> None:
    turns = Turns()
    with turns.sending(), turns.sending():
        waiting = [asyncio.create_task(turns.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        for gone in waiting[:2]:
            gone.cancel()
        await waiting[2]
        await turns.wait()
