"""The frames themselves; that they are the right ones is shown by test_kubelet_server.py."""

from __future__ import annotations

import struct
import zlib

from hypothesis import given, strategies as st

from tests.e2e.spdy import DICTIONARY, SpdySession


def test_the_header_dictionary_is_the_one_of_the_draft() -> None:
    # Every zlib header of a SPDY/3 peer names this checksum (RFC 1950, DICTID).
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


async def _nothing() -> None:
    return None


def _session(sent: list[bytes]) -> SpdySession:
    return SpdySession(sent.append, _nothing, expected_streams=frozenset({"error"}))


def test_a_ping_is_echoed_even_when_it_arrives_byte_by_byte() -> None:
    sent: list[bytes] = []
    session = _session(sent)
    ping = struct.pack(">HHII", 0x8003, 6, 4, 1)
    for position in range(len(ping)):
        session.feed_data(ping[position : position + 1])
    assert sent == [ping]


@given(st.binary(max_size=200))
def test_any_bytes_end_the_session_or_wait_for_more(data: bytes) -> None:
    session = _session([])
    finished, rest = session.feed_data(data)
    assert rest == b""
    assert finished <= session.gone.is_set()
