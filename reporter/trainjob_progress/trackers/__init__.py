"""Sinks for experiment trackers: what a run reports goes to each that `TRAINJOB_PROGRESS_SINKS` names.

A module a tracker, imported only where it is named. Other packages bring theirs by an entry point of the
group `trainjob_progress.sinks`: a callable that takes the environment and gives a sink.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Any, Deque, Mapping, NamedTuple, Optional, Protocol, Sequence

from trainjob_progress.document import Snapshot
from trainjob_progress.extremes import find_rows
from trainjob_progress.launchers import find_identity

if TYPE_CHECKING:
    from trainjob_progress.sinks import Sink

GROUP = "trainjob_progress.sinks"
OURS = ("katib", "mlflow", "tensorboard", "wandb")
MAX_WAITING = 1000  # snapshots, at most two a second, of which the oldest give way
MAX_POINTS = 100  # for one call of a tracker
MAX_INTERVAL_S = 60.0
NEAR_S = 0.003  # values of the same step that come within it are one point
END_S = 5.0  # how long the end of a run may wait for a tracker


class Point(NamedTuple):
    """Values that were new at one moment."""

    unix_s: float
    step: int
    values: dict[str, float]


class Tracker(Protocol):
    """One that takes points. Called by one thread; may block, may raise: the points are given again then."""

    def log(self, points: Sequence[Point]) -> None: ...

    def end(self, ending: Optional[str]) -> None:
        """The run is over, as Snapshot.ending has it; None: nobody knows how. May come twice."""


class TrackerSink:
    """Gives a tracker what is new in each snapshot, of a queue that has an end.

    Asks half as often after each failure, down to once a minute.
    """

    end_s = END_S

    def __init__(self, tracker: Tracker, interval_s: float, *, reopens: bool = True) -> None:
        self.interval_s = self._usual_s = interval_s
        self.reopens = reopens  # it takes results after the end
        self.name = type(tracker).__name__
        self.queue: Deque[Snapshot] = deque(maxlen=MAX_WAITING)  # the run appends each snapshot
        self._tracker = tracker
        self._points: list[Point] = []  # given to the tracker, not taken yet
        self._before: Optional[Snapshot] = None
        self._seen_us = 0  # until when extremes between snapshots are known
        self._count = 0

    def write(self, snapshot: Snapshot) -> None:
        self.queue.append(snapshot)
        try:
            self._send()
            if snapshot.ending is not None:
                self._tracker.end(snapshot.ending)
        except BaseException:
            self.interval_s = min(2 * self.interval_s, MAX_INTERVAL_S)
            raise
        self.interval_s = self._usual_s

    def close(self) -> None:
        if self._points:
            return  # it was away just now
        self._send()  # of a run whose place another one has taken
        self._tracker.end(self._before.ending if self._before is not None else None)

    def _send(self) -> None:
        while self._points or self.queue:
            if not self._points:
                self._fill()
            if self._points:
                self._tracker.log(self._points)
            self._points = []

    def _fill(self) -> None:
        while self.queue and len(self._points) < MAX_POINTS:
            self._add(self.queue.popleft())

    def _add(self, snapshot: Snapshot) -> None:
        """Points for what is new since the snapshot before, and for what lay outside of both in between."""
        before, at_us = self._before, int(snapshot.timestamp * 1_000_000)
        if snapshot is before:
            return
        rows, seen_us = find_rows(before, snapshot, min(self._seen_us, at_us), at_us)
        for name, value in snapshot.metrics.items():
            if before is None or before.metrics.get(name) != value:
                rows.append((*self._date(snapshot, name, value), None, {name: value}))
        for unix_us, step, epoch, values in sorted(rows, key=lambda row: row[0]):
            # Without a step or an epoch it is the number of times that something was reported.
            at = int(step or snapshot.step or epoch or snapshot.epoch or self._count)
            numbers = {name: _to_float(value) for name, value in values.items()}
            finite = {name: number for name, number in numbers.items() if number is not None}
            last = self._points[-1] if self._points else None
            is_near = last is not None and last.step == at and unix_us / 1e6 - last.unix_s < NEAR_S
            if last is not None and is_near and not last.values.keys() & finite.keys():
                last.values.update(finite)
            elif finite:
                self._points.append(Point(unix_us / 1e6, at, finite))
                self._count += 1
        self._seen_us, self._before = max(seen_us, at_us), snapshot

    def _date(self, snapshot: Snapshot, name: str, value: Any) -> tuple[int, Optional[int]]:  # noqa: ANN401
        """When a metric has become what it is, and at which step, where that is known."""
        for spans in snapshot.between:
            span = spans.get(name)
            for seen in (span.least, span.greatest) if span is not None else ():
                if seen is not None and seen[2] == value and int(seen[0] * 1_000_000) > self._seen_us:
                    return int(seen[0] * 1_000_000), seen[1]
        return int(snapshot.timestamp * 1_000_000), snapshot.step


def find_named(name: str, environ: Mapping[str, str]) -> Optional[Sink]:
    """Raises whatever making it raises, LookupError where nobody brings one of that name."""
    if name in OURS:
        made: Optional[Sink] = import_module(f"{__name__}.{name}").find(environ)
        return made
    from importlib.metadata import entry_points

    found: Any = entry_points()
    found = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())  # Python 3.9
    for one in found:
        if one.name == name:
            return one.load()(environ)  # type: ignore[no-any-return]
    raise LookupError(f"no sink {name!r}: one of {', '.join(OURS)}, or of the entry points {GROUP}")


def find_name() -> str:
    """What a run is called: as its job, else by when and where it began."""
    return find_identity().get("job") or f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{socket.gethostname()}"


def find_tags() -> dict[str, str]:
    """Of which job a run is, for trackers that have tags."""
    return {
        f"kubeflow.job.{'name' if key == 'job' else key}": value for key, value in find_identity().items()
    }


def encode_field(number: int, value: Any) -> bytes:  # noqa: ANN401 — bytes, text, float or int
    """A field of a protobuf message: a whole number, a double, or anything else by its length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _to_float(value: Any) -> Optional[float]:  # noqa: ANN401 — of a document's metrics
    """Also of "nan" and "inf", for which JSON has no number."""
    try:
        return float(value)
    except ValueError:
        return None
