"""The interface of a source, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from visibility_api.progress.document import Progress, Refused
from visibility_api.progress.job import JobRef, Rank0


class Patience(Enum):
    """How soon to ask again after a look that brought nothing."""

    SOON = "soon"  # connection trouble: not the job's fault, and it ends for all jobs at once
    LATER = "later"  # answered, but nothing there yet: it may be about to write its first report
    FORBIDDEN = "forbidden"  # a right is missing: it may come at any time, and asking costs no pod anything
    RARELY = "rarely"  # permanent for this pod, or asking itself costs the pod something


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a source brought; `patience` matters only when it was refused."""

    outcome: Progress | Refused
    patience: Patience = Patience.SOON


class Source(Protocol):
    """One way to ask a rank-0 container. Never raises: failure is an Answer."""

    name: str

    async def ask(self, ref: JobRef, rank0: Rank0) -> Answer: ...
