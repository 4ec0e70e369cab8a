"""Gives another replica the state of every job, as it is now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

import structlog

from visibility_api.errors.faults import describe_fault
from visibility_api.errors.status import TooManyRequests
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.saved import SavedJob

from .addresses import Address, plain
from .frames import END, frame
from .recognition import check_proof

log = structlog.get_logger("visibility.peers")

PATH, HISTORY_PATH = "/peers/state", "/peers/history"
PORT = b"x-visibility-peer-port"
MAX_STREAMS = 4  # at a time: each replica of a roll-out takes once or twice
CHUNK_BYTES = 64 * 1024
SLICE_S = 0.005  # of the event loop

Snapshot = Callable[[JobRef], SavedJob | None]
Headers = Sequence[tuple[bytes, bytes]]


class StateGiver:
    """Streams the state of `jobs`, or their histories, each as `snapshot` or `history` returns it at its
    turn; None for one that is gone.

    `proof` returns what a replica has to present. `met` is called with the address of one that has: it is
    about to need what is pushed here from now on.
    """

    def __init__(
        self,
        *,
        proof: Callable[[], str],
        jobs: Callable[[], Iterable[JobRef]],
        snapshot: Snapshot,
        history: Snapshot = lambda _ref: None,
        met: Callable[[Address], None] = lambda _address: None,
    ) -> None:
        self._proof = proof
        self._jobs = jobs
        self._snapshot = snapshot
        self._history = history
        self._met = met
        self._streams = 0

    def recognise(self, headers: Headers) -> None:
        """Raises Unauthorized for whoever is not a replica of this server."""
        check_proof(headers, self._proof())

    def admit(self, headers: Headers, client: str) -> None:
        """The same, and TooManyRequests for one stream too many.

        `client` is the caller's IP address, or "".
        """
        self.recognise(headers)
        if self._streams >= MAX_STREAMS:
            raise TooManyRequests("other replicas are being given the state; try again later")
        port = next((value for name, value in headers if name == PORT), b"")
        if client and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536:
            self._met(Address(plain(client), int(port)))

    def stream(self) -> AsyncGenerator[bytes, None]:
        """The states as frames, in pieces of some size; other tasks have their turn between them."""
        return self._stream(self._snapshot)

    def stream_histories(self) -> AsyncGenerator[bytes, None]:
        """The same of the histories."""
        return self._stream(self._history)

    async def _stream(self, snapshot: Snapshot) -> AsyncGenerator[bytes, None]:
        self._streams += 1
        try:
            piece, began = bytearray(), time.monotonic()
            for ref in list(self._jobs()):
                piece += _frame(ref, snapshot)
                if len(piece) >= CHUNK_BYTES or time.monotonic() - began > SLICE_S:
                    yield bytes(piece)
                    piece.clear()
                    await asyncio.sleep(0)
                    began = time.monotonic()
            yield bytes(piece) + END
        finally:
            self._streams -= 1


def _frame(ref: JobRef, snapshot: Snapshot) -> bytes:
    try:
        saved = snapshot(ref)
    except Exception as error:  # of one job; the others are given (decision 0005)
        log.error("job's state not given", job=str(ref), **describe_fault(error))
        return b""
    return frame(saved) if saved is not None else b""
