"""One attempt of a job as its history keeps it: rows that came lately, and columns, packed and thinned.

A row is a point of all metrics that were measured then. Pure: no I/O, and times are given to it.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from visibility_api.reports.fields import MAX_INTEGER

from .columns import pack, unpack
from .thinning import thin

RECENT_BYTES, RECENT_BYTES_OF_SERIES = 1024, 48  # of `recent`, and for each metric more
ATTEMPT_BYTES = 256  # what one costs beside its columns
MAX_SERIES = 64  # metrics of one attempt

# What msgspec raises for bytes that are not as expected, text that is no UTF-8 and too deep nesting included.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

SEPARATOR = "\x1f"  # between the names of a shape
NO_STEP = -1.0  # where no step was reported


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


@dataclass(slots=True)
class Columns:
    """The points of one attempt: rows, and for each metric in which rows it has which values."""

    times: list[float] = field(default_factory=list)  # milliseconds, training clock
    steps: list[float] = field(default_factory=list)  # -1: none
    marks: list[int] = field(default_factory=list)  # rows that show the progress
    epochs: list[float] = field(default_factory=list)  # of `marks`; NaN: none
    series: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def read(attempt: Attempt) -> Columns:
    """All points of an attempt. What cannot be read, as after a fault of the disk, is left out."""
    columns = _unpacked(attempt.packed)
    for more in (_unpacked(attempt.recent), _rows(attempt, len(attempt.pending))[0]):
        _append(columns, more)
    return columns


def _rows(attempt: Attempt, size: int) -> tuple[Columns, int]:
    """The oldest pending rows, of so many bytes or a row more, and how many bytes they have."""
    columns = Columns()
    shapes = [shape.split(SEPARATOR) if shape else [] for shape in attempt.shapes]
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
    return (columns, position * 8) if _is_whole(columns) else (Columns(), len(attempt.pending))


def _taken(attempt: Attempt, size: int) -> Columns:
    """The same, which are pending no longer."""
    columns, used = _rows(attempt, size)
    attempt.pending = attempt.pending[used:]
    if not attempt.pending:
        attempt.shapes = []
    return columns


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


def last_metrics(attempt: Attempt) -> set[str]:
    """The metrics of the latest rows, those of one time and step."""
    columns = read(attempt)
    known = set()
    for name, (rows, _) in columns.series.items():
        if columns.times[rows[-1]] == attempt.last_ms and columns.steps[rows[-1]] == attempt.last_step:
            known.add(name)
    return known


def fold(attempt: Attempt, size: int) -> None:
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


def end(attempt: Attempt) -> None:
    """Pack what is pending: the latest rows whole, as `recent`, which is thinned when nothing else can be."""
    if not attempt.pending:
        return
    columns = _unpacked(attempt.packed)
    _append(columns, _unpacked(attempt.recent))
    _append(columns, _taken(attempt, len(attempt.pending) // 2))
    _thin(columns, attempt)
    attempt.packed = _pack(columns)
    attempt.recent = _pack(_taken(attempt, len(attempt.pending)))


def join(longer: Attempt, shorter: Attempt) -> None:
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


def size_bytes(attempt: Attempt) -> int:
    return ATTEMPT_BYTES + len(attempt.packed) + len(attempt.recent)


def shrink(attempt: Attempt, excess: int, *, goes_on: bool, may_drop_series: bool) -> bool:
    """Thin an attempt so that it has so many bytes less; False when that cannot be, and it is as thin as can
    be. `goes_on`: what it had lately stays whole as long as there is anything else. `may_drop_series`: its
    metrics may go, all but one."""
    columns, most = _unpacked(attempt.packed), len(attempt.packed) - excess
    if not goes_on and len(attempt.recent) > most:  # or all before would be thinned to nothing for it
        most += len(attempt.recent)
        _append(columns, _unpacked(attempt.recent))
        attempt.recent = b""
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
        elif may_drop_series and len(columns.series) > 1:
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
        found = _decode(packed)
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
    except (*UNREADABLE, struct.error, ValueError, OverflowError, IndexError):
        return Columns()
    return columns if _is_whole(columns) else Columns()


def _is_whole(columns: Columns) -> bool:
    """Whether every number of a row is that of a row, and times and steps are such as can be."""
    rows = len(columns.times)
    return (
        len(columns.steps) == rows
        and all(map(math.isfinite, columns.times))
        and all(NO_STEP <= step <= MAX_INTEGER for step in columns.steps)
        and all(
            len(numbers) == len(values) and (not numbers or 0 <= min(numbers) <= max(numbers) < rows)
            for numbers, values in ((columns.marks, columns.epochs), *columns.series.values())
        )
    )


def is_possible(attempt: Attempt) -> bool:
    """Whether its numbers are such as we write; of its columns `read` finds out."""
    whole = (attempt.number, attempt.ahead_ms, attempt.shift_ms, attempt.rows)
    times = (attempt.last_step, attempt.width_ms, attempt.wide_until_ms)
    return (
        all(abs(each) <= MAX_INTEGER for each in whole)
        and all(map(math.isfinite, times))
        and not math.isnan(attempt.first_ms + attempt.last_ms if attempt.rows else 0.0)
    )
