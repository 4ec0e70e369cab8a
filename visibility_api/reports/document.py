"""The report of a training process, in whatever form it came, and why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal, get_args

import msgspec

from .marks import NO_MARKS, Marks
from .points import Point as Point
from .ranks import NO_RANKS, Ranks

State = Literal["running", "completed", "failed"]
STATES: tuple[State, ...] = ("running", "completed", "failed")
Ending = Literal["finished", "stopped", "preempted", "failed"]
ENDINGS: Mapping[str | None, Ending] = {ending: ending for ending in get_args(Ending)}


class Progress(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The report: how far one training process has come, by its own account. Absent is None."""

    # The training process's clock, UTC; may disagree with ours. None: this form of report carries no time.
    timestamp: datetime | None = None
    state: State | None = None
    ending: Ending | None = None  # how the run ended; None while it runs, and of older reporters
    step: int | None = None  # optimizer steps finished
    total_steps: int | None = None  # at least `step`; None when the run has no planned end
    epoch: float | None = None
    total_epochs: float | None = None
    progress_percentage: int | None = None  # 0 to 100
    remaining_s: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()  # in the order they were written
    message: str | None = None
    started_at: datetime | None = None
    rank: int | None = None
    attempt: int | None = None
    # Earlier values, oldest first, without the report's own: for the history. Two reports that differ only in
    # them count as equal, and a record keeps none of them (`without_points`).
    points: tuple[Point, ...] = ()
    # The pace of all ranks. The same holds for it.
    ranks: Ranks = NO_RANKS
    marks: Marks = NO_MARKS  # of its time

    @property
    def is_final(self) -> bool:
        return self.state in ("completed", "failed") or self.ending is not None

    @property
    def is_whole(self) -> bool:
        """Whether the run says that all of what was planned is done, though steps may not show it."""
        return self.state == "completed" and self.ending != "stopped"


class RetryClass(Enum):
    """How soon to probe again after a probe that brought no report."""

    SOON = "soon"  # connection trouble: not the job's fault, and it ends for all jobs at once
    LATER = "later"  # answered, but there is no report yet: the first one may be about to be written
    FORBIDDEN = (
        "forbidden"  # a right is missing: it may be granted at any time, and trying costs no pod anything
    )
    RARELY = "rarely"  # permanent for this pod, or probing itself costs the pod something


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no report, in our own words only."""

    reason: str  # CamelCase, shown as the reason of a condition
    message: str
    retry: RetryClass = (
        RetryClass.LATER
    )  # what cannot be parsed may have been caught in the middle of a write


Outcome = Progress | Refused  # of reading one source once


class Refusal(Exception):
    """Carries a `Refused` out of a parser; never leaves `reports/` and `pushing/payload.py`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason)
        self.refused = Refused(reason=reason, message=message)
