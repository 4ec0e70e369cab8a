"""Where the time of a job went: seconds by kind, over its whole life, its last hour and its last day.

The kinds are disjoint and sum to the time that has passed. The last hour is kept in intervals of ten minutes,
the day before it in intervals of three hours; of the oldest one its share counts. Pure: times are given to
it, as seconds since 1970 by our clock.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

KINDS = (
    "Queued",
    "Starting",
    "ProgramStartup",
    "Productive",
    "DataLoading",
    "CheckpointSave",
    "CheckpointRestore",
    "Evaluation",
    "LostProgress",
    "Recovery",
    "Stalled",
    "Other",
)
(
    QUEUED,
    STARTING,
    PROGRAM_STARTUP,
    PRODUCTIVE,
    DATA_LOADING,
    CHECKPOINT_SAVE,
    CHECKPOINT_RESTORE,
    EVALUATION,
    LOST_PROGRESS,
    RECOVERY,
    STALLED,
    OTHER,
) = range(len(KINDS))
MARKED = (DATA_LOADING, CHECKPOINT_SAVE, CHECKPOINT_RESTORE, EVALUATION)  # only the run itself can tell
WASTED = (STARTING, LOST_PROGRESS, RECOVERY, STALLED)  # held for nothing

HOUR_S, DAY_S = 3600.0, 86400.0
FINE_S, COARSE_S = 600, 10800  # the intervals of the last hour, and of the day before it
MOST_S = 2.0**34  # no time is later: of the year 2514

Seconds = list[float]  # by kind, as long as KINDS

_UNITS = 4  # in a second: an interval that is complete is kept in quarters, as 16 bits
_FINE = int(HOUR_S) // FINE_S
_MOST = 2**16 - 1
_SLOTS = 16  # more than there are intervals of a kind at one time: an index is kept modulo this
_TOTAL, _PART, _KEPT = struct.Struct("<Bd"), struct.Struct("<Bf"), struct.Struct("<BH")
_TIMES = struct.Struct("<dd")


def none() -> Seconds:
    return [0.0] * len(KINDS)


def _in_quarters(seconds: Sequence[float]) -> Seconds:
    """As they are kept; their sum is rounded once."""
    edges = [0, *(round(_UNITS * each) for each in accumulate(seconds))]
    return [(later - earlier) / _UNITS for earlier, later in pairwise(edges)]


class Ledger:
    """The sums until `until`. Begin with the time at which the job was made, then `add`."""

    __slots__ = ("_coarse", "_current", "_fine", "_packed", "_settled", "_shown", "began", "until", "whole")

    def __init__(self, began: float) -> None:
        self.began = self.until = self._settled = began
        self._shown: list[tuple[float, Sequence[float]]] = []  # after that: since when, and what happened
        self.whole = none()
        self._current = none()  # of the interval that `until` is in
        self._fine: dict[int, Seconds] = {}  # complete intervals, by index
        self._coarse: dict[int, Seconds] = {}  # of those before, the sums
        self._packed = b""  # these two as they were saved, until they are needed

    def add(self, seconds: Sequence[float], until: float) -> None:
        """What happened from `self.until` to `until`, evenly spread over it. Their sum is that time."""
        at, span_s = self.until, until - self.until
        if span_s <= 0:
            return
        for kind, some in enumerate(seconds):
            self.whole[kind] += some
        if span_s > DAY_S + COARSE_S:  # what was before is in no window any more
            at = until - DAY_S - COARSE_S
            self._fine, self._coarse, self._current, self._packed = {}, {}, none(), b""
        settled = int((until - HOUR_S) // FINE_S) * FINE_S  # what was before is in no hour any more
        if at < settled:
            at = self._skip(at, settled, [some / span_s for some in seconds])
        while at < until:
            index = int(at // FINE_S)
            end = min(until, (index + 1) * FINE_S)
            share = (end - at) / span_s
            for kind, some in enumerate(seconds):
                if some:
                    self._current[kind] += some * share
            at = end
            if end == (index + 1) * FINE_S:
                self._complete(index)
        self.until = self._settled = until

    def show(self, seconds: Sequence[float]) -> None:
        """Count this as well, from `until` on, in all that is read from now on. Nothing may be added after
        it.

        It takes the same time however long it was: what a job does is often not settled for days.
        """
        self._shown.append((self.until, seconds))
        for kind, some in enumerate(seconds):
            self.whole[kind] += some
        self.until += sum(seconds)

    def _skip(self, at: float, until: int, shares: Sequence[float]) -> float:
        """All until then goes into the sums of longer intervals; `shares` of each second. Returns `until`."""
        self._unpack()
        self._fine[int(at // FINE_S)], self._current = _in_quarters(self._current), none()
        while self._fine:
            index, sums = self._fine.popitem()
            self._sum_up(index * FINE_S // COARSE_S, sums)
        while at < until:
            index = int(at // COARSE_S)
            end = min(until, (index + 1) * COARSE_S)
            self._sum_up(index, _in_quarters([share * (end - at) for share in shares]))
            at = end
        self._drop(until - DAY_S)
        return at

    def _sum_up(self, index: int, seconds: Sequence[float]) -> None:
        sums = self._coarse.setdefault(index, none())
        for kind, some in enumerate(seconds):
            if some:
                sums[kind] += some

    def _drop(self, oldest: float) -> None:
        for old in [each for each in self._coarse if (each + 1) * COARSE_S <= oldest]:
            del self._coarse[old]

    def _complete(self, index: int) -> None:
        """This interval is over. Of those before the last hour the sums of longer ones are kept."""
        self._unpack()
        self._fine[index], self._current = _in_quarters(self._current), none()
        for old in [each for each in self._fine if each <= index - _FINE]:
            self._sum_up(old * FINE_S // COARSE_S, self._fine.pop(old))
        self._drop((index + 1) * FINE_S - DAY_S)

    def hour(self, at: float = 0.0) -> Seconds:
        """The sums of the hour before `until`, or before `at` if that is later."""
        return self._last(max(at, self.until) - HOUR_S, ((FINE_S, self._fine),))

    def day(self, at: float = 0.0) -> Seconds:
        """The sums of the day before `until`, or before `at` if that is later."""
        return self._last(max(at, self.until) - DAY_S, ((FINE_S, self._fine), (COARSE_S, self._coarse)))

    def _last(self, since: float, kept: Sequence[tuple[int, dict[int, Seconds]]]) -> Seconds:
        self._unpack()
        found = none()
        current = int(self._settled // FINE_S)
        spans = [
            (max(index * size, self.began), sums)
            for size, intervals in ((FINE_S, {current: self._current}), *kept)
            for index, sums in intervals.items()
        ]
        for start, sums in (*spans, *self._shown):
            covered_s = sum(sums)
            left_s = min(covered_s, start + covered_s - since)
            if left_s <= 0:
                continue
            share = left_s / covered_s
            for kind, some in enumerate(sums):
                if some:
                    found[kind] += some * share
        return found

    # --- as bytes: most kinds are 0, so those that are not are kept

    def save(self) -> bytes:
        parts = [_TIMES.pack(self.began, self.until)]
        for pack, sums in ((_TOTAL.pack, self.whole), (_PART.pack, self._current)):
            some = [pack(kind, each) for kind, each in enumerate(sums) if each]
            parts += [len(some).to_bytes(1), *some]
        if self._packed:
            return b"".join([*parts, self._packed])
        for intervals in (self._fine, self._coarse):
            rows = [
                _KEPT.pack(index % _SLOTS << 4 | kind, min(_MOST, round(_UNITS * each)))
                for index, sums in intervals.items()
                for kind, each in enumerate(sums)
                if each
            ]
            parts += [len(rows).to_bytes(1), *rows]
        return b"".join(parts)

    @classmethod
    def load(cls, saved: bytes) -> Ledger:
        """What `save` returned. Raises ValueError, IndexError or struct.error for anything else."""
        began, until = _TIMES.unpack_from(saved)
        if not (0 <= began <= until <= MOST_S):  # NaN too
            raise ValueError(saved)
        ledger = cls(began)
        ledger.until = ledger._settled = until
        at = _TIMES.size
        for form, sums in ((_TOTAL, ledger.whole), (_PART, ledger._current)):
            count, at = saved[at], at + 1
            for kind, each in form.iter_unpack(saved[at : at + count * form.size]):
                if not 0 <= each <= MOST_S:
                    raise ValueError(saved)
                sums[kind] = each
            at += count * form.size
        packed = ledger._packed = saved[at:]
        fine = packed[0] * _KEPT.size
        if len(packed) != 2 + fine + packed[1 + fine] * _KEPT.size:
            raise ValueError(saved)
        return ledger

    def _unpack(self) -> None:
        packed, at = self._packed, 0
        if not packed:
            return
        self._packed = b""
        for size, intervals in ((FINE_S, self._fine), (COARSE_S, self._coarse)):
            count, at = packed[at], at + 1
            latest = int(self._settled // size)
            for slot, units in _KEPT.iter_unpack(packed[at : at + count * _KEPT.size]):
                index = latest - (latest - (slot >> 4)) % _SLOTS
                if slot & 15 <= OTHER:  # else somebody has made it up
                    intervals.setdefault(index, none())[slot & 15] = units / _UNITS
            at += count * _KEPT.size
