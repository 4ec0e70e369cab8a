"""What is kept of one diagnosis, and shown of it."""

from __future__ import annotations

from datetime import datetime

import msgspec

MAX_GROUPS = 8  # the largest ones; of the others the ranks are counted
MAX_SUSPECTS = 8
MAX_FRAMES = 8  # of a group, the innermost ones
MAX_RANGES = 16  # of ranks, as text
IDLE, AT_WORK = "idle", "at work"


class Group(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Ranks that are at the same place."""

    count: int  # of ranks, or of processes where ranks are not known
    ranks: str = ""  # such as 0-36,38; "": not known
    where: str = ""  # in our own words: `is in all_reduce`, `is stopped by a signal`
    # module:function:line, innermost first; only for those who may read the logs of the pods.
    frames: tuple[str, ...] = ()


class Suspect(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A rank that the others wait for, as far as can be seen."""

    pod_name: str
    reason: str  # CamelCase, as `Diagnosis.reason`
    rank: int | None = None
    node_name: str = ""
    step: int | None = None  # the last one that it has finished


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Where the ranks of a job were at one moment. All texts but `frames` are our own."""

    at: datetime  # by our clock
    reason: str  # CamelCase: InDataLoader, ProcessStopped, …: docs/diagnose.md
    message: str  # a sentence, with names of pods and nodes
    hint: str = ""  # a sentence: what to do
    groups: tuple[Group, ...] = ()  # the largest first
    suspects: tuple[Suspect, ...] = ()
    read: int = 0  # ranks, or processes, that were seen
    others: int = 0  # of these, in no group that is kept
    unread: int = 0  # pods that said nothing
    is_requested: bool = False  # by a user; else a stall was its reason
    is_hang: bool = False  # no rank works, and none can go on: `evidence.is_hang`
    shows: str = ""  # IDLE: no rank works; AT_WORK: one does
    evidence: str = ""  # the same as a sentence

    @property
    def is_vague(self) -> bool:
        """Whether it names neither a rank nor a place: reporters sample stacks half a minute after a step."""
        return self.reason in ("NotKnown", "NotReadable")

    @property
    def cell(self) -> str:
        """For a column: `InDataLoader (rank 37)`."""
        first = self.suspects[0] if self.suspects else None
        if first is None:
            return self.reason
        return f"{self.reason} ({f'rank {first.rank}' if first.rank is not None else first.pod_name})"


def as_ranges(ranks: list[int]) -> str:
    """`0-36,38`; after MAX_RANGES ranges an ellipsis."""
    found: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in found]
    return ",".join([*texts[:MAX_RANGES], *(["…"] if len(texts) > MAX_RANGES else [])])
