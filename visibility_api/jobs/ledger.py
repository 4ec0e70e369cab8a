"""Where the time of a job went: seconds by kind, over its whole life, its last hour and its last day.

The kinds are disjoint and sum to the time that has passed. The last hour is kept in intervals of ten minutes,
the day before it in intervals of four hours; of the oldest one its share counts. Pure: times are given to
it, as seconds since 1970 by our clock.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from operator import add

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
FINE_S, COARSE_S = 600, 14400  # the intervals of the last hour, and of the day before it
MOST_S = 2.0**34  # no time is later: of the year 2514

Seconds = list[float]  # by kind, as long as KINDS

_UNITS = 4  # in a second: an interval that is complete is kept in quarters, as 16 bits
_FINE = int(HOUR_S) // FINE_S
_MOST = 2**16 - 1
_PLACES_OF_BITS = tuple(1 << place for place in range(16))
_TIMES, _BITS = struct.Struct("<dd"), struct.Struct("<H")
# Of a kind: its number, and a bit for each interval in which there was some: 8 of the hour, 16 of the day.
_INTERVALS, _KIND_PLACE, _DAY_PLACE = struct.Struct("<I"), 24, 8
_PLACES = 2**_KIND_PLACE - 1


def none() -> Seconds:
    return [0.0] * len(KINDS)


def pack(values: Sequence[float], form: str) -> bytes:
    """At most 16 values: a bit for each that is not 0, then these in the `form` of `struct`."""
    some = [*filter(None, values)]
    return struct.pack(f"<H{len(some)}{form}", sum(compress(_PLACES_OF_BITS, values)), *some)


def unpack(saved: bytes, at: int, length: int, form: str) -> tuple[Seconds, int]:
    """The values that are packed there, and where they end. Raises ValueError or struct.error."""
    (bits,) = _BITS.unpack_from(saved, at)
    layout, places = _layout(bits, form)
    at += _BITS.size
    values = [0.0] * length
    if bits >> length:
        raise ValueError(saved)
    for place, each in zip(places, layout.unpack_from(saved, at), strict=True):
        values[place] = each
    return values, at + layout.size


@lru_cache(maxsize=1024)  # jobs spend their time on few sets of kinds
def _layout(bits: int, form: str) -> tuple[struct.Struct, tuple[int, ...]]:
    """Of so many values, and their places."""
    places = tuple([place for place in range(bits.bit_length()) if bits >> place & 1])
    return struct.Struct(f"<{len(places)}{form}"), places


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
        self.whole = [*map(add, self.whole, seconds)]
        if span_s > DAY_S + COARSE_S:  # what was before is in no window any more
            at = until - DAY_S - COARSE_S
            self._fine, self._coarse, self._current, self._packed = {}, {}, none(), b""
        settled = int((until - HOUR_S) // FINE_S) * FINE_S  # what was before is in no hour any more
        if at < settled:
            self._complete(int(at // FINE_S))
        while at < settled:
            index = int(at // COARSE_S)
            end: float = min(settled, (index + 1) * COARSE_S)
            self._sum_up(index, _in_quarters([some * (end - at) / span_s for some in seconds]))
            at = end
        while at < until:
            index = int(at // FINE_S)
            end = min(until, (index + 1) * FINE_S)
            share = (end - at) / span_s
            shared = seconds if share == 1 else [some * share for some in seconds]
            self._current = [*map(add, self._current, shared)]
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
        self.whole = [*map(add, self.whole, seconds)]
        self.until += sum(seconds)

    def _sum_up(self, index: int, seconds: Sequence[float]) -> None:
        self._coarse[index] = [*map(add, self._coarse.get(index, none()), seconds)]

    def _complete(self, index: int) -> None:
        """This interval is over. Of those before the last hour the sums of longer ones are kept."""
        self._unpack()
        self._fine[index], self._current = _in_quarters(self._current), none()
        for old in [each for each in self._fine if each <= index - _FINE]:
            self._sum_up(old * FINE_S // COARSE_S, self._fine.pop(old))
        oldest = (index + 1) * FINE_S - DAY_S
        for old in [each for each in self._coarse if (each + 1) * COARSE_S <= oldest]:
            del self._coarse[old]

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
        times = _TIMES.pack(self.began, self.until)
        return b"".join((times, pack(self.whole, "d"), pack(self._current, "f"), self._pack_intervals()))

    @classmethod
    def load(cls, saved: bytes) -> Ledger:
        """What `save` returned. Raises ValueError or struct.error for anything else."""
        began, until = _TIMES.unpack_from(saved)
        if not (0 <= began <= until <= MOST_S):  # NaN too
            raise ValueError(saved)
        ledger = cls(began)
        ledger.until = ledger._settled = until
        ledger.whole, at = unpack(saved, _TIMES.size, len(KINDS), "d")
        ledger._current, at = unpack(saved, at, len(KINDS), "f")
        sums = (*ledger.whole, *ledger._current)
        if not (min(sums) >= 0 and max(sums) <= MOST_S and sum(sums) >= 0):  # NaN is not
            raise ValueError(saved)
        packed, at = saved[at:], 0
        while at < len(packed):
            (head,) = _INTERVALS.unpack_from(packed, at)
            at += _INTERVALS.size + 2 * (head & _PLACES).bit_count()
        if at != len(packed):
            raise ValueError(saved)
        ledger._packed = packed
        return ledger

    def _pack_intervals(self) -> bytes:
        if self._packed:
            return self._packed
        kinds: dict[int, tuple[int, list[int]]] = {}
        for first, size, intervals in ((0, FINE_S, self._fine), (_DAY_PLACE, COARSE_S, self._coarse)):
            latest = int(self._settled // size)
            for index in sorted(intervals, reverse=True):
                for kind, each in enumerate(intervals[index]):
                    if each:
                        bits, units = kinds.get(kind, (kind << _KIND_PLACE, []))
                        units.append(min(_MOST, round(_UNITS * each)))
                        kinds[kind] = bits | 1 << first + latest - index, units
        return b"".join([struct.pack(f"<I{len(units)}H", bits, *units) for bits, units in kinds.values()])

    def _unpack(self) -> None:
        packed, at = self._packed, 0
        self._packed = b""
        while at < len(packed):
            (head,) = _INTERVALS.unpack_from(packed, at)
            kind, (layout, places) = head >> _KIND_PLACE, _layout(head & _PLACES, "H")
            for place, units in zip(places, layout.unpack_from(packed, at + _INTERVALS.size), strict=True):
                if kind <= OTHER:  # else somebody has made it up
                    self._interval(place)[kind] = units / _UNITS
            at += _INTERVALS.size + layout.size

    def _interval(self, place: int) -> Seconds:
        """Of the last ones, by its place in what is packed."""
        if place < _DAY_PLACE:
            return self._fine.setdefault(int(self._settled // FINE_S) - place, none())
        return self._coarse.setdefault(int(self._settled // COARSE_S) + _DAY_PLACE - place, none())
