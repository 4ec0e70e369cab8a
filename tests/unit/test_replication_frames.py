"""The stream between replicas, cut anywhere, and what is no stream of ours."""

from __future__ import annotations

import itertools
import struct
from functools import partial
from typing import Any, cast

import pytest
import structlog
from hypothesis import given, strategies as st
from isal import isal_zlib

from tests.jobs import document
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.summary import JobProgress
from visibility_api.replication.addresses import Address
from visibility_api.replication.frames import (
    MAX_FRAME_BYTES,
    MAX_REPORT_BYTES,
    BadFrame,
    Beat,
    Changed,
    Frame,
    FrameReader,
    Hello,
    decompress,
    encode,
)
from visibility_api.replication.partitions import Report
from visibility_api.replication.shares import Shares
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

from .turns import busy_s

FRAMES = [
    Hello(epoch=1, revision=2, is_resumed=False),
    Changed("ADDED", 3, document("bert", step=7)),
    Beat(position=1, revision=3, unlisted=(None, "team-a"), is_last=True),
]


@given(cuts=st.lists(st.integers(0, 2000), max_size=20))
def test_a_stream_gives_the_same_frames_however_it_is_cut(cuts: list[int]) -> None:
    stream, reader, read = b"".join(map(encode, FRAMES)), FrameReader(), []
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(places):
        read += list(reader.feed(stream[start:end]))
    assert read == FRAMES


def test_a_frame_that_says_it_is_longer_than_the_limit_is_not_waited_for() -> None:
    with pytest.raises(BadFrame, match="longer than the limit"):
        list(FrameReader().feed(struct.pack(">I", MAX_FRAME_BYTES + 1)))


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(document("bert", step=2**70), id="a number too large"),
        pytest.param(document("bert", message="half a pair: \ud800"), id="no text"),
        pytest.param(document("bert", message="x" * MAX_FRAME_BYTES), id="too long"),
    ],
)
def test_of_a_job_that_has_no_form_for_the_stream_identity_and_phase_are_sent(shown: JobProgress) -> None:
    (sent,) = FrameReader().feed(encode(Changed("MODIFIED", 3, shown)))
    assert isinstance(sent, Changed)
    assert sent.document.job.ref == shown.job.ref
    assert (sent.document.phase, sent.document.step, sent.document.message) == (shown.phase, None, None)


@given(body=st.binary(max_size=200))
def test_bytes_that_are_no_frame_end_the_stream(body: bytes) -> None:
    reader = FrameReader()
    assert list(reader.feed(encode(FRAMES[0]))) == FRAMES[:1]
    try:
        read = list(reader.feed(struct.pack(">I", len(body)) + body))
    except BadFrame:
        return
    assert all(isinstance(frame, Frame) for frame in read)


def test_a_report_that_is_very_long_once_decompressed_is_not_read_to_its_end() -> None:
    """One of 64 MiB, as long as a request may be, would be 64 GiB."""
    zeros = isal_zlib.compress(b"\0" * MAX_REPORT_BYTES, 1)
    assert sum(map(len, decompress(zeros))) == MAX_REPORT_BYTES
    with pytest.raises(BadFrame, match="too long"):
        list(decompress(isal_zlib.compress(b"\0" * (MAX_REPORT_BYTES + 1), 1)))


@pytest.mark.parametrize("data", [b"no zlib", isal_zlib.compress(b"cut short", 1)[:-4]])
def test_a_report_that_cannot_be_decompressed_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(decompress(data))


async def test_a_long_report_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visibility_api.replication.shares.in_slices", partial(in_slices, slice_s=0.0002))
    found = b"".join(encode(Changed("MODIFIED", 3, document(f"job-{n}", step=n))) for n in range(1000))
    report = Report("other", 1, 1, Address("10.0.0.1", 443), (), False, isal_zlib.compress(found, 1))
    shares = Shares(JobLog(MemoryStore(base_revision=1)), "own", written=cast(Any, None))
    turns = await busy_s(shares.heard(report))
    assert max(turns) < sum(turns) / 3


class Stored:
    """A log that is stored at once."""

    position, confirmed, sequence = 0, 0, 0

    async def stored(self, _position: int, _within_s: float) -> bool:
        return True


async def test_a_report_that_comes_again_is_not_read_again() -> None:
    """Its bytes could not be read: that would be logged."""
    shares = Shares(JobLog(MemoryStore(base_revision=1)), "own", written=Stored())
    shares.begin(cast(Any, object()), lambda: 1)
    for frames in (b"", b"damaged"):
        report = Report("other", 1, 1, Address("10.0.0.1", 443), (), False, frames)
        with structlog.testing.capture_logs() as logged:
            await shares.heard(report)
    assert not logged
