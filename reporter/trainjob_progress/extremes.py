"""What a metric did between two samples: its least, its greatest and a value that is not finite.

The training thread notes, and only what lies outside of what it has noted since the last sample; publishers'
threads read. Constant memory: a span for each metric, of a bounded number of samples.
"""

from __future__ import annotations

import math

from .document import now_s
from .values import to_metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence

    from .document import Snapshot
    from .values import Number

    Seen = tuple[float, Optional[int], Number]  # Unix seconds, step, value
    Spans = dict[str, "Span"]
    # When (microseconds since 1970), step, epoch, and the metrics that were new then.
    Row = tuple[int, Optional[int], Optional[float], dict[str, Any]]
    Event = tuple[int, int, Optional[int], str, Number]  # microseconds, the name's place, step, name, value

MAX_SAMPLES = 16  # several publishers sample in turn, each at least twice a second
MAX_NAMES = 24  # the first named; more would hardly fit into a tail
MAX_EXACT = 4  # rows between two samples that have times of their own
APART_US = 3000  # readers take what differs by 2 ms for one point


class Span:
    """What one metric was since the last sample."""

    __slots__ = ("greatest", "high", "least", "low", "odd")

    def __init__(self) -> None:
        self.low = math.inf
        self.high = -math.inf
        self.least: Optional[Seen] = None  # where `low` was
        self.greatest: Optional[Seen] = None
        self.odd: Optional[Seen] = None  # the first that is not finite

    def note(self, value: Number, step: Optional[int]) -> None:
        """`value` lies outside of what was noted."""
        if value - value != 0:  # NaN, an infinity
            if self.odd is None:
                self.odd = now_s(), step, value
            return
        seen = now_s(), step, value
        if value < self.low:
            self.low, self.least = value, seen
        if value > self.high:
            self.high, self.greatest = value, seen

    def join(self, later: Span) -> Span:
        """Both as one."""
        both = Span()
        lower = self if self.low <= later.low else later
        both.low, both.least = lower.low, lower.least
        higher = self if self.high >= later.high else later
        both.high, both.greatest = higher.high, higher.greatest
        both.odd = self.odd or later.odd
        return both


def keep(kept: list[Spans], spans: Spans) -> None:
    """Add those of one more sample; of too many the two oldest become one."""
    kept.append(spans)
    if len(kept) > MAX_SAMPLES:
        older, newer = kept[0], kept[1]
        both = {**older, **newer}
        for name in older:
            if name in newer:
                both[name] = older[name].join(newer[name])
        kept[:2] = [both]


def find_rows(
    before: Optional[Snapshot], now: Snapshot, since_us: int, until_us: int
) -> tuple[list[Row], int]:
    """Rows for what lies outside of two samples that follow each other, and when the last of it was seen.

    `since_us`: what was seen until then is known; `until_us`: the time of `now`. Values that came within 3 ms
    share a row. Where that makes more than MAX_EXACT rows there are three, with the first, second and third
    value of each metric: all of them, at times that may differ by as much as the two samples.
    """
    events: list[Event] = []
    for place, name in enumerate(tuple(now.metrics)[:MAX_NAMES]):
        spans = [each[name] for each in now.between if name in each]
        if spans:
            around = [now.metrics[name]]
            if before is not None and name in before.metrics:
                around.append(before.metrics[name])
            for seen_s, step, value in _find_outside(spans, around, since_us):
                events.append((int(seen_s * 1_000_000), place, step, name, value))
    events.sort(key=lambda event: event[:2])
    rows = _join_near(events)
    if len(rows) > MAX_EXACT:
        rows = _join_by_order(events)
    return _space(rows, since_us, until_us), max((event[0] for event in events), default=since_us)


def is_given(name: str, now: Snapshot, since_us: int) -> bool:
    """Whether the metric was reported since then, with whatever value: each sample begins spans anew."""
    return any(
        _is_later(seen, since_us)
        for each in now.between
        if name in each
        for seen in (each[name].least, each[name].greatest, each[name].odd)
    )


def _find_outside(spans: Sequence[Span], around: Sequence[Any], since_us: int) -> list[Seen]:
    finite = [value for value in around if isinstance(value, (int, float))]
    least, greatest, odd = None, None, None
    for span in spans:
        if _is_later(span.least, since_us) and (least is None or span.low < least[2]):
            least = span.least
        if _is_later(span.greatest, since_us) and (greatest is None or span.high > greatest[2]):
            greatest = span.greatest
        if odd is None and _is_later(span.odd, since_us):
            odd = span.odd
    found = []
    if least is not None and all(least[2] < value for value in finite):
        found.append(least)
    if greatest is not None and greatest not in found and all(greatest[2] > value for value in finite):
        found.append(greatest)
    if odd is not None and len(finite) == len(around):
        found.append(odd)
    return found


def _is_later(seen: Optional[Seen], since_us: int) -> bool:
    return seen is not None and int(seen[0] * 1_000_000) > since_us


def _join_near(events: Sequence[Event]) -> list[Row]:
    rows: list[Row] = []
    for at_us, _, step, name, value in events:
        if rows and at_us - rows[-1][0] <= APART_US and name not in rows[-1][3]:
            rows[-1][3].update(to_metrics({name: value}))
        else:
            rows.append((at_us, step, None, to_metrics({name: value})))
    return rows


def _join_by_order(events: Sequence[Event]) -> list[Row]:
    groups: list[list[Event]] = []
    counts: dict[str, int] = {}
    for event in events:
        nth = counts[event[3]] = counts.get(event[3], 0) + 1
        if nth > len(groups):
            groups.append([])
        groups[nth - 1].append(event)
    rows: list[Row] = []
    for group in groups:
        at_us, _, step, _, _ = min(group, key=lambda event: event[1])  # of the metric named first
        rows.append((at_us, step, None, to_metrics({event[3]: event[4] for event in group})))
    return sorted(rows, key=lambda row: row[0])


def _space(rows: Sequence[Row], since_us: int, until_us: int) -> list[Row]:
    """The rows, apart from each other and from the samples, or as far as there is room."""
    times = [row[0] for row in rows]
    for place, at_us in enumerate(times):
        times[place] = max(at_us, (times[place - 1] if place else since_us) + APART_US)
    latest_us = until_us
    for place in reversed(range(len(times))):
        latest_us = times[place] = max(min(times[place], latest_us - APART_US), min(since_us, until_us))
    return [(at_us, *row[1:]) for at_us, row in zip(times, rows)]  # noqa: B905 — younger than Python 3.9


def take(spans: Spans, values: Mapping[str, Any]) -> Spans:
    """Those of the metrics that a tail has room for."""
    names = tuple(values)[:MAX_NAMES]
    return {name: spans[name] for name in names if name in spans}
