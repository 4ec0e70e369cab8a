"""What the owner of the log sends its followers: frames, each as its length and MessagePack.

First `Hello`. If the follower's revision is not part of the owner's history, a `Listed` comes for each job:
as it was at the oldest revision of the owner's log. Then a `Kept` for each job, and every `Changed` in order,
with `Advanced` for what the next owner needs beside it, and `Beat`. `Complete` comes when that has caught up
with the present for the first time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import structlog
from isal import isal_zlib
from msgspec.structs import replace

from visibility_api.history.attempt import UNREADABLE
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Addition
from visibility_api.jobs.summary import JobProgress
from visibility_api.store import ChangeType

log = structlog.get_logger("visibility.replication")

MAX_FRAME_BYTES = 4 * 1024 * 1024  # of one job: etcd lets its labels alone have 1.5 MiB
# Of a report of a member: what 3,000 pushes a second come to until a silent member holds nothing more.
MAX_REPORT_BYTES, PIECE_BYTES = 128 * 1024 * 1024, 1024 * 1024
ACK = struct.Struct(">Q")  # what a follower sends back: the position of the last Beat

_LENGTH = struct.Struct(">I")


class _Frame(msgspec.Struct, frozen=True, array_like=True, tag=True, tag_field="frame", gc=False):
    pass


class Hello(_Frame, frozen=True):
    """The first frame."""

    epoch: int  # of the owner
    revision: int  # from which changes follow
    is_resumed: bool  # the follower has everything up to it; else `Listed` frames tell


class Listed(_Frame, frozen=True):
    """One job, as it was at `Hello.revision`."""

    revision: int  # at which it was changed last
    document: JobProgress


class Kept(_Frame, frozen=True):
    """All that the next owner needs to know of one job."""

    ref: JobRef
    state: bytes | None  # jobs/memory.py
    history: bytes | None


class Complete(_Frame, frozen=True):
    """All that there is was sent: until now the follower has shown what it had before."""


class Changed(_Frame, frozen=True):
    """One step of the log; DELETED has the last document."""

    type: ChangeType
    revision: int
    document: JobProgress


class Advanced(_Frame, frozen=True):
    """What the next owner needs to know of a job that has changed."""

    ref: JobRef
    state: bytes | None
    points: tuple[Addition, ...]  # that its history has gained


class Gone(_Frame, frozen=True):
    """A job was deleted: what a member says to the owner of the log, which sends `Changed`."""

    ref: JobRef


class Passed(_Frame, frozen=True):
    """A push to a job of the replica that this is sent to (`push_streams`)."""

    number: int  # of those of one connection
    path: str
    client: str  # the address of the pod, as the sender has seen it
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Answered(_Frame, frozen=True):
    """What a push is answered that was passed on."""

    number: int
    status: int
    body: bytes


class Beat(_Frame, frozen=True):
    """Everything before was sent; it comes after each group of changes, and each second without any."""

    position: int  # counts what was sent; the follower returns it
    revision: int
    unlisted: tuple[str | None, ...] = ()  # JobLog.unlisted
    is_last: bool = False  # the owner gives the log up


Frame = Hello | Listed | Kept | Complete | Changed | Advanced | Gone | Beat | Passed | Answered


def _plain(value: object) -> object:
    """Labels are read-only mappings."""
    return dict(value)  # type: ignore[call-overload]  # msgspec asks for nothing else


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class BadFrame(Exception):
    """The stream is not one of ours, or not of this version; the message says why."""


def encode(frame: Frame, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """One frame. What is too large, or has what MessagePack has no form for, costs its job alone (decision
    0005): of its document the identity and the phase are sent, and nothing of what is kept of it."""
    data = _encoded(frame, max_bytes)
    if data or not isinstance(frame, Changed | Listed):
        return data
    job = frame.document.job
    log.error("document not sent to a follower", job=str(job.ref))
    bare = TrainingJob(ref=job.ref, created_at=job.created_at, phase=job.phase)
    return _encoded(replace(frame, document=JobProgress(job=bare, phase=frame.document.phase)), max_bytes)


def _encoded(frame: Frame, max_bytes: int) -> bytes:
    """Nothing if it cannot be sent."""
    try:
        body = _encode(frame)
    except (OverflowError, UnicodeEncodeError, TypeError):
        return b""
    return _LENGTH.pack(len(body)) + body if len(body) <= max_bytes else b""


class FrameReader:
    """Takes a stream apart, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with this piece. Raises BadFrame after those that were good."""
        data, start = self._rest + data, 0
        while len(data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            begin, end = start + _LENGTH.size, start + _LENGTH.size + length
            if length > MAX_FRAME_BYTES:
                raise BadFrame("a frame is longer than the limit")
            if end > len(data):
                break
            start = end
            try:
                frame: Frame = _decode(memoryview(data)[begin:end])
            except UNREADABLE as error:
                raise BadFrame("a frame cannot be read") from error
            yield frame
        self._rest = data[start:]


def decompress(data: bytes) -> Iterator[bytes]:
    """Pieces of what a member has compressed. Raises BadFrame."""
    decompressor, left = isal_zlib.decompressobj(), MAX_REPORT_BYTES
    try:
        while not decompressor.eof:
            piece = decompressor.decompress(data, PIECE_BYTES)
            left -= len(piece)
            if left < 0 or not piece:
                raise BadFrame("a report is too long, or has no end")
            yield piece
            data = decompressor.unconsumed_tail
    except isal_zlib.error as error:  # type: ignore[misc]  # typed as an instance
        raise BadFrame("a report cannot be decompressed") from error
