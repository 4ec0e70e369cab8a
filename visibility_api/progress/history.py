"""The past of one job: its steps and metrics over time, by attempt, in bounded memory.

All points are kept while there is room. Then the oldest part is thinned first, to the extremes of ever
longer stretches (`thinning`); what was reported lately stays whole. The first and last point of an attempt,
extremes, NaN and infinity always stay. Pure: no I/O, and times are given to it.

reports ─► pending: the latest rows, whole ─► recent: thinned ─► packed: thinned, and again as it fills
The last two are columns (`columns`): one of times and one of steps for all metrics, and for each metric its
values with the numbers of their rows. There are two, so that most reports cost no more than packing the
small one.

Times are milliseconds since 1970 by the training clock, and corrected only when they are read: so the same
point is known again wherever it comes from, and what is learnt of the clock holds for all of them.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from .columns import pack, unpack
from .document import Point, Progress
from .thinning import thin

# Of one job: of all that is packed, and of what is pending.
PACKED_BYTES, PENDING_BYTES = 6 * 1024, 4 * 1024
RECENT_BYTES, RECENT_BYTES_OF_SERIES = 1024, 48  # of `recent`, and for each metric more
MAX_SHAPES = 4  # of pending rows; training and evaluation report different metrics in turn
MAX_ATTEMPTS = 10
ATTEMPT_BYTES = 256  # what one costs beside its columns
MAX_SERIES = 64  # metrics of one attempt
MAX_NAME_CHARACTERS = 2048  # of all metrics of one report
SAME_MS = 2.0  # times of one point differ by no more: they are rounded, and told as ages
COVERED_MS = 60_000.0  # replicas probe at different times: one is always a little behind

FORMAT = 1  # of what is stored; of one in a newer format nothing is read

_SEPARATOR = "\x1f"  # between the names of a shape
NO_STEP = -1.0  # where no step was reported
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class _Packed(msgspec.Struct, array_like=True, gc=False):
    """The columns of an attempt as bytes (`columns`)."""

    times: bytes = b""
    steps: bytes = b""
    marks: bytes = b""  # rows that show the progress
    epochs: bytes = b""  # of those; empty: none was reported
    series: list[tuple[str, bytes, bytes]] = []  # a metric, its rows, its values


class Attempt(msgspec.Struct, array_like=True, gc=False):
    """One attempt as it is kept. The order of the fields is part of the stored form."""

    key: str  # Rank0.attempt
    number: int  # 0 is the job's first
    ahead_ms: int = 0  # how far the training clock is ahead of ours
    shift_ms: int = 0  # added to its times since it was set
    rows: int = 0  # how many were reported
    first_ms: float = math.inf
    last_ms: float = -math.inf
    last_step: float = NO_STEP
    width_ms: float = 0.0  # of the stretches that are thinned; 0: all is there yet
    wide_until_ms: float = 0.0  # before this they are twice as wide
    packed: bytes = b""
    recent: bytes = b""
    pending: bytearray = msgspec.field(
        default_factory=bytearray
    )  # rows of doubles: shape, time, step, epoch, …
    shapes: list[str] = []  # names of metrics that come together, in pending rows


class _Saved(msgspec.Struct, array_like=True, gc=False):
    attempts: list[Attempt]
    count: int


_encode = msgspec.msgpack.Encoder().encode
_decode_packed = msgspec.msgpack.Decoder(_Packed).decode
_decode = msgspec.msgpack.Decoder(_Saved).decode


@dataclass(slots=True)
class Columns:
    """The points of one attempt: rows, and for each metric in which rows it has which values."""

    times: list[float] = field(default_factory=list)  # milliseconds, training clock
    steps: list[float] = field(default_factory=list)  # -1: none
    marks: list[int] = field(default_factory=list)  # rows that show the progress
    epochs: list[float] = field(default_factory=list)  # of `marks`; NaN: none
    series: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)


class JobHistory:
    """The attempts of one job, oldest first. Never more than its bounds; see `save` for storing it."""

    __slots__ = ("_attempts", "_count")

    def __init__(self) -> None:
        self._attempts: list[Attempt] = []
        self._count = 0  # attempts so far, also of those that are kept no more

    @property
    def attempts(self) -> Sequence[Attempt]:
        return self._attempts

    @property
    def rows(self) -> int:
        """How many points were reported, of the attempts that are kept."""
        return sum(each.rows for each in self._attempts)

    def add(
        self,
        attempt: str,
        report: Progress,
        points: Sequence[Point] = (),
        *,
        continues: bool,
        reported_at: datetime,
        ahead_s: float,
        is_clock_set: bool = False,
    ) -> None:
        """Keep a report that counts, and the points that come with it; what is known already is left out.

        `continues`: it is of the attempt that was reported last, whatever that is called. `reported_at` and
        `ahead_s`: when it was written by our clock, and how far the training clock is ahead of ours.
        `is_clock_set`: that clock was set since the last report.
        """
        kept = self._attempts[-1] if self._attempts else None
        if kept is None or (not continues and kept.key != attempt):
            kept = self._begin(attempt)
        kept.key = attempt
        told_ms = _milliseconds(report.timestamp or reported_at)
        if is_clock_set and kept.rows:
            kept.shift_ms = _milliseconds(reported_at) + kept.ahead_ms - told_ms
        elif not kept.shift_ms:
            kept.ahead_ms = round(ahead_s * 1000)
        at_ms = told_ms + kept.shift_ms
        for point in points:
            point_ms = float(_milliseconds(point.timestamp) + kept.shift_ms)
            step = NO_STEP if point.step is None else float(point.step)
            later_ms = point_ms - kept.last_ms
            if (later_ms > SAME_MS or (step > kept.last_step and later_ms >= -SAME_MS)) and point_ms <= at_ms:
                self._put(kept, max(point_ms, kept.last_ms), step, point.epoch, point.metrics)
        step = NO_STEP if report.step is None else float(report.step)
        metrics = report.metrics
        if abs(at_ms - kept.last_ms) <= SAME_MS and step == kept.last_step:
            known = _last_metrics(kept)
            metrics = tuple([each for each in metrics if each[0] not in known])
            if not metrics:
                return
        self._put(kept, max(float(at_ms), kept.last_ms), step, report.epoch, metrics)

    def _begin(self, key: str) -> Attempt:
        if self._attempts:
            _end(self._attempts[-1])
        begun = Attempt(key=key, number=self._count)
        self._count += 1
        self._attempts.append(begun)
        self._bound()
        return begun

    def _put(
        self,
        attempt: Attempt,
        at_ms: float,
        step: float,
        epoch: float | None,
        metrics: Sequence[tuple[str, str | float]],
    ) -> None:
        names: list[str] = []
        values = [0.0, at_ms, step, math.nan if epoch is None else epoch]
        for name, text in metrics:
            try:
                value = float(text)
            except ValueError:  # a metric may be any text; only numbers have a history
                continue
            if name:
                names.append(name)
                values.append(value)
        if not names and step == NO_STEP and epoch is None:
            return
        shape = _SEPARATOR.join(names)
        if (
            len(names) > MAX_SERIES
            or len(shape) > MAX_NAME_CHARACTERS
            or shape.count(_SEPARATOR) >= len(names) > 0
        ):
            names = _bounded(names)
            del values[4 + len(names) :]
            shape = _SEPARATOR.join(names)
        if shape not in attempt.shapes:
            if len(attempt.shapes) == MAX_SHAPES:
                self._fold(attempt, len(attempt.pending))
            attempt.shapes.append(shape)
        values[0] = float(attempt.shapes.index(shape))
        attempt.pending += struct.pack(f"<{len(values)}d", *values)
        attempt.rows += 1
        attempt.last_ms, attempt.last_step = at_ms, step
        attempt.first_ms = min(attempt.first_ms, at_ms)
        if len(attempt.pending) > PENDING_BYTES - 8 * len(values):
            self._fold(attempt, len(attempt.pending) // 2)

    def _fold(self, attempt: Attempt, size: int) -> None:
        """Thin about so many bytes of the pending rows, the oldest."""
        columns = _unpacked(attempt.recent)
        _append(columns, _taken(attempt, size))
        _thin(columns, attempt)
        attempt.recent = _pack(columns)
        if len(attempt.recent) > RECENT_BYTES + RECENT_BYTES_OF_SERIES * len(columns.series):
            columns = _unpacked(attempt.packed)
            _append(columns, _unpacked(attempt.recent))
            _thin(columns, attempt)
            attempt.packed, attempt.recent = _pack(columns), b""
        self._bound()

    def _excess(self) -> int:
        """Bytes beyond what there is room for."""
        return sum(map(_size, self._attempts)) - PACKED_BYTES

    def _bound(self) -> None:
        """Make room: thin the largest attempt, and when that is of no more use, drop the shortest."""
        attempts = self._attempts
        while len(attempts) > MAX_ATTEMPTS:
            self._drop()
        while (excess := self._excess()) > 0:
            excess += RECENT_BYTES  # or the next few rows would need as much work again
            if not _shrink(max(attempts, key=_size), excess):
                if len(attempts) == 1:
                    return
                self._drop()

    def _drop(self) -> None:
        """Of the attempts that have ended the shortest, the oldest of equals."""
        self._attempts.remove(min(self._attempts[:-1], key=lambda each: each.rows))

    def save(self) -> bytes:
        """All of it, for `restore`."""
        return _encode(_Saved(self._attempts, self._count))

    def covers(self, other: JobHistory) -> bool:
        """Whether the other has nothing earlier, and nothing later that will not be reported here as well."""
        own = {each.key: each for each in self._attempts}
        return all(
            (mine := own.get(each.key)) is not None
            and mine.first_ms <= each.first_ms
            and mine.last_ms >= each.last_ms - COVERED_MS
            for each in other._attempts
        )

    def merge(self, other: JobHistory) -> None:
        """Take over what another process has kept of the same job: its attempts, and of one that both know
        the longer, continued by what the other has later."""
        own = {each.key: each for each in self._attempts}
        merged: list[Attempt] = []
        later: list[tuple[Attempt, Attempt]] = []
        for each in other._attempts:
            mine = own.pop(each.key, each)
            longer, shorter = (mine, each) if mine.rows > each.rows else (each, mine)
            if shorter.first_ms < longer.first_ms:
                _join(longer, shorter)
            elif shorter.last_ms > longer.last_ms:
                later.append((longer, shorter))
            merged.append(longer)
        merged += own.values()
        merged.sort(key=lambda each: (each.first_ms - each.ahead_ms, each.number))
        number = -1
        for each in merged:
            each.number = number = max(number + 1, each.number)
        self._attempts, self._count = merged, max(self._count, other._count, number + 1)
        for longer, shorter in later:
            self._continue(longer, shorter)
        for each in merged[:-1]:
            _end(each)
        self._bound()

    def _continue(self, attempt: Attempt, other: Attempt) -> None:
        """Add what another process has of the same attempt after its last row."""
        columns = read(other)
        epochs = dict(zip(columns.marks, columns.epochs, strict=True))
        metrics: dict[int, list[tuple[str, float]]] = {}
        for name, (rows, values) in columns.series.items():
            for row, value in zip(rows, values, strict=True):
                metrics.setdefault(row, []).append((name, value))
        for row, (time, step) in enumerate(zip(columns.times, columns.steps, strict=True)):
            if time > attempt.last_ms:
                epoch = epochs.get(row, math.nan)
                self._put(attempt, time, step, None if math.isnan(epoch) else epoch, metrics.get(row, ()))
        attempt.shift_ms, attempt.ahead_ms = other.shift_ms, other.ahead_ms


def restore(saved: bytes) -> JobHistory | None:
    """What `save` returned; None for anything else."""
    try:
        found = _decode(saved)
    except msgspec.MsgspecError:
        return None
    history = JobHistory()
    history._attempts, history._count = found.attempts, found.count
    return history


def read(attempt: Attempt) -> Columns:
    """All points of an attempt. What cannot be read, as after a fault of the disk, is left out."""
    columns = _unpacked(attempt.packed)
    for more in (_unpacked(attempt.recent), _rows(attempt, len(attempt.pending))[0]):
        _append(columns, more)
    return columns


def _rows(attempt: Attempt, size: int) -> tuple[Columns, int]:
    """The oldest pending rows, of so many bytes or a row more, and how many bytes they have."""
    columns = Columns()
    shapes = [shape.split(_SEPARATOR) if shape else [] for shape in attempt.shapes]
    position = 0
    try:
        numbers = struct.unpack(f"<{len(attempt.pending) // 8}d", attempt.pending)
        while position * 8 < size:
            shape, first = numbers[position], position
            names = shapes[int(shape)]
            width = 4 + len(names)
            while position * 8 < size and numbers[position] == shape:  # rows that are alike, together
                position += width
            _append(columns, _cut(numbers[first:position], width, names))
    except (struct.error, ValueError, OverflowError, IndexError):  # not what `_put` has written
        return Columns(), len(attempt.pending)
    return columns, position * 8


def _cut(numbers: Sequence[float], width: int, names: Sequence[str]) -> Columns:
    """The columns of rows with the same metrics. Raises ValueError if the last row is not whole."""
    count, rest = divmod(len(numbers), width)
    if rest:
        raise ValueError("a row ends early")
    return Columns(
        times=list(numbers[1::width]),
        steps=list(numbers[2::width]),
        marks=list(range(count)),
        epochs=list(numbers[3::width]),
        series={
            name: (list(range(count)), list(numbers[place::width])) for place, name in enumerate(names, 4)
        },
    )


def _last_metrics(attempt: Attempt) -> set[str]:
    """The metrics of the latest rows, those of one time and step."""
    columns = read(attempt)
    known = set()
    for name, (rows, _) in columns.series.items():
        if columns.times[rows[-1]] == attempt.last_ms and columns.steps[rows[-1]] == attempt.last_step:
            known.add(name)
    return known


def _taken(attempt: Attempt, size: int) -> Columns:
    """The same, which are pending no longer."""
    columns, used = _rows(attempt, size)
    attempt.pending = attempt.pending[used:]
    if not attempt.pending:
        attempt.shapes = []
    return columns


def _end(attempt: Attempt) -> None:
    """Pack what is pending: the latest rows whole, as `recent`, which is thinned when nothing else can be."""
    if not attempt.pending:
        return
    columns = _unpacked(attempt.packed)
    _append(columns, _unpacked(attempt.recent))
    _append(columns, _taken(attempt, len(attempt.pending) // 2))
    _thin(columns, attempt)
    attempt.packed = _pack(columns)
    attempt.recent = _pack(_taken(attempt, len(attempt.pending)))


def _join(longer: Attempt, shorter: Attempt) -> None:
    """Add to the one what the other has of before and after it."""
    more, whole, columns = read(shorter), read(longer), Columns()
    _append(columns, _between(more, -math.inf, longer.first_ms))
    _append(columns, whole)
    _append(columns, _between(more, longer.last_ms, math.inf))
    longer.rows += len(columns.times) - len(whole.times)
    longer.first_ms = min(longer.first_ms, shorter.first_ms)
    _thin(columns, longer)
    longer.packed, longer.recent, longer.pending, longer.shapes = _pack(columns), b"", bytearray(), []
    if shorter.last_ms > longer.last_ms:
        longer.last_ms, longer.last_step = shorter.last_ms, shorter.last_step
        longer.shift_ms, longer.ahead_ms = shorter.shift_ms, shorter.ahead_ms


def _append(columns: Columns, more: Columns) -> None:
    """Put these points at the end."""
    base = len(columns.times)
    columns.times += more.times
    columns.steps += more.steps
    columns.marks += [base + row for row in more.marks]
    columns.epochs += more.epochs
    for name, (rows, values) in more.series.items():
        kept = columns.series.setdefault(name, ([], []))
        kept[0].extend([base + row for row in rows])
        kept[1].extend(values)


def _between(columns: Columns, after_ms: float, before_ms: float) -> Columns:
    """The points between these times."""
    start = bisect_right(columns.times, after_ms)
    stop = max(start, bisect_left(columns.times, before_ms))
    cut = Columns(times=columns.times[start:stop], steps=columns.steps[start:stop])
    for row, epoch in zip(columns.marks, columns.epochs, strict=True):
        if start <= row < stop:
            cut.marks.append(row - start)
            cut.epochs.append(epoch)
    for name, (rows, values) in columns.series.items():
        first, last = bisect_left(rows, start), bisect_left(rows, stop)
        if first < last:
            cut.series[name] = [row - start for row in rows[first:last]], values[first:last]
    return cut


# --- bounds


def _size(attempt: Attempt) -> int:
    return ATTEMPT_BYTES + len(attempt.packed) + len(attempt.recent)


def _shrink(attempt: Attempt, excess: int) -> bool:
    """Thin an attempt so that it has so many bytes less; False when that cannot be."""
    columns, most = _unpacked(attempt.packed), len(attempt.packed) - excess
    while True:
        _thin(columns, attempt)
        attempt.packed = _pack(columns)
        if len(attempt.packed) <= most:
            return True
        if _widen(columns, attempt):
            continue
        if attempt.recent:
            most += len(attempt.recent)
            _append(columns, _unpacked(attempt.recent))
            attempt.recent = b""
        elif len(columns.series) > 1:
            _drop_series(columns, len(columns.series) * 3 // 4)
        else:
            return False


def _widen(columns: Columns, attempt: Attempt) -> bool:
    """Make the stretches of some more of the past twice as wide; False when there is one stretch only."""
    began, rows = attempt.first_ms, len(columns.times)
    span = columns.times[-1] - began if rows else 0.0
    if rows < 4 or attempt.width_ms > span + 1:
        return False
    if not attempt.width_ms:
        attempt.width_ms, attempt.wide_until_ms = max(1.0, 2.0 * span / rows), began
    wide = 2 * attempt.width_ms
    attempt.wide_until_ms += wide * max(1, math.ceil(span / 4 / wide))
    if attempt.wide_until_ms > columns.times[-1]:
        attempt.width_ms, attempt.wide_until_ms = wide, began
    return True


def _drop_series(columns: Columns, most: int) -> None:
    """Keep so many metrics: those with the most points, of equals those whose last point is the latest."""
    by_weight = sorted(columns.series.items(), key=lambda each: (len(each[1][0]), each[1][0][-1]))
    for name, _ in by_weight[: len(by_weight) - most]:
        del columns.series[name]


def _thin(columns: Columns, attempt: Attempt) -> None:
    """Thin it by the attempt's widths."""
    if len(columns.series) > MAX_SERIES:
        _drop_series(columns, MAX_SERIES)
    if not attempt.width_ms or not columns.times:
        return
    began, width, until = attempt.first_ms, attempt.width_ms, attempt.wide_until_ms
    stretch_of = [
        (time - began) // (2 * width) if time < until else -1.0 - (time - began) // width
        for time in columns.times
    ]
    for name, (rows, values) in columns.series.items():
        kept = thin(values, _stretches(rows, stretch_of))
        if len(kept) < len(rows):
            columns.series[name] = [rows[each] for each in kept], [values[each] for each in kept]
    position = [columns.steps[row] for row in columns.marks]
    if position and max(position) == NO_STEP:
        position = columns.epochs
    kept = thin(position, _stretches(columns.marks, stretch_of))
    columns.marks = [columns.marks[each] for each in kept]
    columns.epochs = [columns.epochs[each] for each in kept]
    _drop_rows(columns)


def _stretches(rows: Sequence[int], stretch_of: Sequence[float]) -> list[tuple[int, int]]:
    """From which to before which of the points of these rows each stretch is."""
    found: list[tuple[int, int]] = []
    start, current = 0, stretch_of[rows[0]] if rows else 0.0
    for index, row in enumerate(rows):
        if stretch_of[row] != current:
            found.append((start, index))
            start, current = index, stretch_of[row]
    found.append((start, len(rows)))
    return found


def _drop_rows(columns: Columns) -> None:
    """Drop the rows that no series needs any more."""
    needed = set(columns.marks)
    for rows, _ in columns.series.values():
        needed.update(rows)
    if len(needed) == len(columns.times):
        return
    left = sorted(needed)
    number = {row: index for index, row in enumerate(left)}
    columns.times = [columns.times[row] for row in left]
    columns.steps = [columns.steps[row] for row in left]
    columns.marks = [number[row] for row in columns.marks]
    columns.series = {
        name: ([number[row] for row in rows], values) for name, (rows, values) in columns.series.items()
    }


def _bounded(names: Sequence[str]) -> list[str]:
    """As many of the names as fit into one shape."""
    kept: list[str] = []
    characters = 0
    for name in names[:MAX_SERIES]:
        characters += len(name) + 1
        if characters > MAX_NAME_CHARACTERS:
            break
        kept.append(name.replace(_SEPARATOR, " "))
    return kept


# --- the packed form


def _pack(columns: Columns) -> bytes:
    has_epochs = not all(map(math.isnan, columns.epochs))
    packed = _encode(
        _Packed(
            times=pack(columns.times),
            steps=pack(columns.steps),
            marks=pack(columns.marks),
            epochs=pack(columns.epochs) if has_epochs else b"",
            series=[(name, pack(rows), pack(values)) for name, (rows, values) in columns.series.items()],
        )
    )
    return bytes(memoryview(packed))  # a copy: the encoder's has room for more


def _unpacked(packed: bytes) -> Columns:
    """The columns; none at all if they cannot be read."""
    if not packed:
        return Columns()
    try:
        found = _decode_packed(packed)
        marks = list(map(int, unpack(found.marks)))
        columns = Columns(
            times=unpack(found.times),
            steps=unpack(found.steps),
            marks=marks,
            epochs=unpack(found.epochs) or [math.nan] * len(marks),
            series={
                name: (list(map(int, unpack(rows))), unpack(values)) for name, rows, values in found.series
            },
        )
    except (msgspec.MsgspecError, struct.error, ValueError, OverflowError, IndexError):
        return Columns()
    return columns if _is_whole(columns) else Columns()


def _is_whole(columns: Columns) -> bool:
    """Whether every number of a row is that of a row."""
    rows = len(columns.times)
    return len(columns.steps) == rows and all(
        len(numbers) == len(values) and (not numbers or 0 <= min(numbers) <= max(numbers) < rows)
        for numbers, values in ((columns.marks, columns.epochs), *columns.series.values())
    )


def _milliseconds(moment: datetime) -> int:
    return round((moment - _EPOCH) / _MILLISECOND)
