"""WebSocket frames cut anywhere, frames that break the rules, and floods."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from tests.websocket_frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame, unmasked
from visibility_api.kube.exec.frames import FrameError, FrameReader

MAX = 200_000
CONTROL = st.builds(frame, st.sampled_from([PING, PONG]), st.binary(max_size=125))


def read(data: bytes, *, max_bytes: int = MAX) -> list[bytes]:
    return list(FrameReader(max_bytes).feed(data))


@st.composite
def in_parts(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A message and frames that make it up, with others between them."""
    parts = draw(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
    frames = b""
    for at, part in enumerate(parts):
        frames += frame(CONTINUATION if at else BINARY, part, is_final=at == len(parts) - 1)
        if at < len(parts) - 1:
            frames += draw(CONTROL | st.just(b""))
    return b"".join(parts), frames


@given(st.lists(in_parts(), max_size=5), st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_messages_arrive_complete_however_they_are_cut(
    messages: list[tuple[bytes, bytes]], sizes: list[int]
) -> None:
    reader, rest, turn = FrameReader(MAX), b"".join(frames for _, frames in messages), 0
    found: list[bytes] = []
    while rest:
        size = sizes[turn % len(sizes)]
        found += reader.feed(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert [each for each in found if each] == [message for message, _ in messages if message]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, MAX])
def test_every_way_to_write_a_length_is_read(size: int) -> None:
    assert read(frame(BINARY, b"x" * size)) == [b"x" * size]


@given(st.lists(st.binary(max_size=200) | in_parts().map(lambda both: both[1]), max_size=6))
def test_any_bytes_are_messages_within_the_bound_or_refused(chunks: list[bytes]) -> None:
    reader = FrameReader(500)
    with suppress(FrameError):
        for chunk in chunks:
            for message in reader.feed(chunk):
                assert len(message) <= 500
            assert len(reader._buffer) <= 500 + 10


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (frame(BINARY, b"x", reserved=0x40), "reserved"),
        (frame(TEXT, b"x"), "neither binary"),
        (frame(3), "neither binary"),
        (frame(11), "neither binary"),
        (b"\x82\x81keyss", "masked"),
        (b"\x82\xfe\x00\x7e", "masked"),
        (frame(PING, b"x" * 126), "control"),
        (frame(PING, is_final=False), "control"),
        (frame(CLOSE, is_final=False), "control"),
        (frame(CONTINUATION, b"x"), "out of order"),
        (frame(BINARY, is_final=False) + frame(BINARY), "out of order"),
        (frame(BINARY, b"x" * 101)[:10], "too long"),
        (b"\x82\x7f" + b"\xff" * 8, "too long"),
        (frame(BINARY, b"x" * 60, is_final=False) + frame(CONTINUATION, b"x" * 41)[:2], "too long"),
    ],
    ids=range(14),
)
def test_a_frame_against_the_rules_is_refused_before_it_is_waited_for(data: bytes, rule: str) -> None:
    with pytest.raises(FrameError, match=rule):
        read(data, max_bytes=100)


def test_a_ping_is_answered_with_what_it_holds_and_hidden_from_the_wire() -> None:
    reader = FrameReader(MAX)
    assert list(reader.feed(frame(PING, b"s3cr3t"))) == [b""]
    assert unmasked(reader.pongs) == (0x80 | PONG, b"s3cr3t")
    assert b"s3cr3t" not in reader.pongs


def test_nothing_is_read_after_a_close() -> None:
    reader = FrameReader(MAX)
    assert list(reader.feed(frame(CLOSE, b"\x03\xe8") + frame(BINARY, b"late"))) == [b""]
    assert reader.is_closed
    assert list(reader.feed(frame(BINARY, b"later"))) == []


def test_a_reader_that_stops_loses_nothing_it_has_not_seen() -> None:
    reader = FrameReader(MAX)
    some = reader.feed(frame(BINARY, b"one") + frame(BINARY, b"two"))
    assert next(some) == b"one"
    some.close()
    assert list(reader.feed(frame(BINARY, b"three"))) == [b"two", b"three"]
