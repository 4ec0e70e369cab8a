"""What one look at a job brought, as the probes and other sources hand it on."""

from __future__ import annotations

from datetime import datetime

import msgspec

from .document import Progress, Refused
from .job import JobRef


class Observation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer, good or bad, of one source about one attempt of one job."""

    ref: JobRef
    attempt: str  # Rank0.attempt of the container that was asked
    source: str
    at: datetime  # our clock
    outcome: Progress | Refused
    latency_s: float | None = None  # None when there was no answer
    next_at: datetime | None = None  # when this source asks again; None = it does not
    why: str = ""  # why this source, in our own words
    is_last_word: bool = False  # of an attempt that has ended: read from what it left behind
    is_stand_in: bool = False  # of another process of the job; counts until rank 0 itself speaks
    is_relayed: bool = False  # another replica heard it; what was said to us since may be newer
