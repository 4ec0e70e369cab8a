"""What the end of a container's log shows of progress. Pure: hostile bytes in, one value out.

A line is understood by `trainjob_progress.lines`, which also reads a program's output where it runs: what
frameworks print has one home (docs/decisions/0006). Here lines become one report: later ones win, metrics add
up, and what each line but the last said is a point. No byte of a log is ever repeated in a refusal.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from trainjob_progress.lines import Fields, LineReader, own_words

from .document import Point, Progress, Refused
from .fields import (
    EARLIEST,
    LATEST,
    MAX_MESSAGE_CHARACTERS,
    MAX_METRIC_CHARACTERS,
    MAX_METRICS,
    MAX_POINTS,
    amount,
    count,
    parse_time,
    percentage,
    total,
    whole,
)
from .log_records import is_record
from .points import latest
from .training_document import parse_document

MAX_READ_BYTES = 64 * 1024  # from the end
MAX_PIECES = 256  # the newest; a bar is redrawn hundreds of times a line, and only the last counts
MAX_MARK_CHARACTERS = 128
# A CRI writes longer lines in parts and the kubelet shows the time of the first one that it hands out.
MAX_TIMED_CHARACTERS = 8192

# Tqdm redraws after \r, Keras takes a line back with \b.
_REDRAWS = re.compile(r"[\r\x08]+")
_FIRST_BREAK = re.compile(r"[\n\r\x08]")
# Mpirun marks each write, and a bar that is redrawn ends no line: what follows may be another rank's.
_MARK = re.compile(r"(?=\[(?:[\w.-]{1,128}@)?\d{1,9},\d{1,9}\]<\w{1,16}>:)")
_OBJECT = re.compile(r"\{['\"]")
# What `timestamps=true` puts before each line: a time in RFC 3339 with nanoseconds.
_KUBELETS_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ?", re.ASCII)
_SIGNS_OF_A_DOCUMENT = (
    '"schemaVersion"', '"trainerStatus"', '"totalSteps"', '"progressPercentage"', '"metrics"', '"state"',
)  # fmt: skip


class TailReader:
    """Reads one container's log by its end, time and again.

    Remembers where it has come, so that each line is read once, and what a tail alone does not show, such as
    Keras' `Epoch 3/10`.
    """

    def __init__(self) -> None:
        # A tail may miss a bar's end and its new beginning: rounds cannot be counted here.
        self._lines = LineReader(sees_all=False)
        self._fold = _Fold()
        self._mark = ""  # how the last line that was over began; its time makes it unlike any other

    def read(self, data: bytes, *, is_whole: bool) -> Progress | Refused:
        """What `steps` returns, at once."""
        steps = self.steps(data, is_whole=is_whole)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                outcome: Progress | Refused = done.value
                return outcome

    def steps(self, data: bytes, *, is_whole: bool) -> Generator[None, None, Progress | Refused]:
        """The progress that the log has shown so far; `data` is its end, requested with `timestamps=true`.
        Each step reads what was written between two line ends or redraws. A reader that is left half way is
        of no further use.

        `is_whole`: nothing of the log was left out before `data`. `timestamp` of the progress is what a
        document contains, else the kubelet's time of the last line with progress: by the node's clock, so the
        training process's own. None where a long line was redrawn at an unknown time: such a line is no point
        either. `points` are of the lines that were not read before, as far as that is known.
        """
        text = data[-MAX_READ_BYTES:].decode("utf-8", "replace")  # perhaps cut within a character
        fresh = self._after_mark(text)
        if fresh is None:
            fresh = text
            if not is_whole or len(data) > MAX_READ_BYTES:
                first_break = _FIRST_BREAK.search(text)
                fresh = text[first_break.end() :] if first_break else ""
        self._remember(text)
        # A line that goes on is read again at the next read, by a reader who has not read it yet.
        over, unfinished = fresh[: fresh.rfind("\n") + 1], fresh[fresh.rfind("\n") + 1 :]
        drawn = deque(_pieces(unfinished), maxlen=MAX_PIECES) if unfinished else ()
        yield from self._take(deque(_pieces(over), maxlen=MAX_PIECES - len(drawn)), self._lines)
        if drawn:
            yield from self._take(drawn, self._lines.copy())
        return self._fold.result()

    def _take(self, pieces: Iterable[_Piece], lines: LineReader) -> Iterator[None]:
        line = None
        for number, written_at, piece in pieces:
            yield
            if number != line:
                self._fold.end_line()
                line = number
            document = _document(piece)
            if isinstance(document, Progress):
                if document.rank in (None, 0):
                    self._fold.take_document(document)
            elif document is None and (fields := lines.read(piece)) is not None:
                self._fold.take(fields, written_at)
        self._fold.end_line()

    def _after_mark(self, text: str) -> str | None:
        """What was not read before; None when that is not known."""
        if not self._mark:
            return None
        at = 0 if text.startswith(self._mark) else text.rfind("\n" + self._mark) + 1
        if at == 0 and not text.startswith(self._mark):
            return None
        return text[text.find("\n", at) + 1 :]

    def _remember(self, text: str) -> None:
        end = text.rfind("\n")
        last = text[text.rfind("\n", 0, max(end, 0)) + 1 : max(end, 0)]
        self._mark = last[:MAX_MARK_CHARACTERS] if _KUBELETS_TIME.match(last) else ""


_Piece = tuple[int, str | None, str]  # the number of its line, its time, its text


def _pieces(text: str) -> Iterator[_Piece]:
    """What rank 0 wrote between line ends and redraws."""
    for number, line in enumerate(text.split("\n")):
        written_at = None
        match = _KUBELETS_TIME.match(line)
        if match is not None:
            written_at = match[1] if len(line) < MAX_TIMED_CHARACTERS else None
            line = line[match.end() :]
        for part in _MARK.split(line) if ">:" in line else (line,):
            words = own_words(part)
            if words is None:
                continue
            pieces = _REDRAWS.split(words)
            if len(pieces) > 1:
                pieces[-1:] = _unglued(pieces[-1])
            for piece in pieces:
                if piece and not piece.isspace():
                    yield number, written_at, piece


def _unglued(piece: str) -> tuple[str, ...]:
    """A part of a bar that a CRI wrote down has no end: what the other stream wrote next stands right behind
    it, without a time (the kubelet's ReadLogs). So do most dictionaries of Hugging Face's arrive."""
    start = _OBJECT.search(piece, 1)
    return (piece[: start.start()], piece[start.start() :]) if start and piece[0] != "{" else (piece,)


def _document(piece: str) -> Progress | Refused | None:
    """Our own JSON line, or why it is to be left out; None when it is something else."""
    if (
        not piece.startswith("{")
        or is_record(piece)
        or not any(sign in piece for sign in _SIGNS_OF_A_DOCUMENT)
    ):
        return None
    outcome = parse_document(piece.encode("utf-8", "replace"))
    return outcome if isinstance(outcome, Progress) or '"schemaVersion"' in piece else None


class _Fold:
    """Lines become one report."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}  # by Progress' names; each has passed its bound
        self._metrics: dict[str, str] = {}
        self._timestamp: datetime | None = None
        self._written_at: str | None = None  # of a line that is newer than `_timestamp`
        self._result: Progress | None = None  # as long as nothing is added to it
        self._had_position = False  # which is not known any more
        self._points: deque[Point] = deque(maxlen=MAX_POINTS)  # since the last result
        self._measured: dict[str, str] = {}  # by the line that is being read
        self._is_point = False  # that line says something of position or metrics

    def take(self, fields: Fields, written_at: str | None) -> None:
        """The fields of a line: a guess, so what is out of bounds is left out, not refused."""
        found = {
            "step": count(fields.get("step")),
            "total_steps": count(fields.get("total_steps")),
            "epoch": amount(fields.get("epoch")),
            "total_epochs": amount(fields.get("total_epochs")),
            "progress_percentage": percentage(fields.get("percentage")),
            "remaining_s": whole(fields.get("remaining_s")),
            "message": _text(fields.get("message")),
        }
        if found["step"] is not None and found["step"] < self._fields.get("step", 0):
            self._fields.pop("state", None)  # a run that has ended goes no further back: this is the next one
        for name, value in found.items():
            if value is not None:
                self._fields[name] = value
            elif name in fields and fields[name] is None:
                self._fields.pop(name, None)  # known before, and not any more
                self._had_position = True
        metrics = fields.get("metrics")
        if isinstance(metrics, dict):
            for name, value in metrics.items():
                self._add_metric(name, value)
        self._is_point = self._is_point or not fields.keys() <= {"message"}
        self._timestamp, self._written_at, self._result = None, written_at, None

    def take_document(self, document: Progress) -> None:
        for name in _DOCUMENT_FIELDS:
            value = getattr(document, name)
            if value is not None:
                self._fields[name] = value
        for metric, value in document.metrics:
            self._add_metric(metric, value)
        last = self._points[-1].timestamp if self._points else None
        self._points.extend(point for point in document.points if last is None or last < point.timestamp)
        self._is_point = True
        self._timestamp, self._written_at, self._result = document.timestamp, None, None

    def end_line(self) -> None:
        """A line has been read: a point if it said more than a message, however often it was redrawn."""
        if self._is_point and (timestamp := self._time()) is not None:
            step, epoch = self._fields.get("step"), self._fields.get("epoch")
            metrics = tuple(self._measured.items())[-MAX_METRICS:]
            self._points.append(Point(timestamp=timestamp, step=step, epoch=epoch, metrics=metrics))
        self._is_point, self._measured = False, {}

    def result(self) -> Progress | Refused:
        """What is known after all lines so far, with a point for each since this was called last."""
        report = self._report()
        if not isinstance(report, Progress) or not self._points:
            return report
        points, self._points = list(self._points), deque(maxlen=MAX_POINTS)
        if points[-1].timestamp == report.timestamp:
            points.pop()  # the report itself
        return replace(report, points=latest(points)) if points else report

    def _time(self) -> datetime | None:
        return self._timestamp or (_kubelets_time(self._written_at) if self._written_at else None)

    def _report(self) -> Progress | Refused:
        if self._result is not None:
            return self._result
        fields = dict(self._fields)
        if not fields and not self._metrics and not self._had_position:
            return Refused(
                reason="NoProgressInLog",
                message="The end of the container's log shows no progress in a known form (docs/logs.md).",
            )
        for planned, done in (("total_steps", "step"), ("total_epochs", "epoch")):
            fields[planned] = total(fields.get(planned), fields.get(done))
        self._result = Progress(
            timestamp=self._time(),
            metrics=tuple(self._metrics.items()),
            **fields,
        )
        return self._result

    def _add_metric(self, name: object, value: object) -> None:
        if not isinstance(name, str) or not name:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or value == "":
            return
        name, value = _plain(name[:MAX_METRIC_CHARACTERS]), _plain(str(value)[:MAX_METRIC_CHARACTERS])
        self._metrics[name] = self._measured[name] = value
        if len(self._metrics) > MAX_METRICS:  # the oldest gives way to a name that changes every step
            self._metrics.pop(next(iter(self._metrics)))


def _kubelets_time(text: str) -> datetime | None:
    """Of what `_KUBELETS_TIME` has matched: one for each line, so not all of RFC 3339 is tried at once."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return parse_time(text)  # a leap second, or no time
    return moment if moment.tzinfo is UTC and EARLIEST <= moment <= LATEST else parse_time(text)


_DOCUMENT_FIELDS = (
    "state", "step", "total_steps", "epoch", "total_epochs", "progress_percentage", "remaining_s", "message",
    "started_at", "rank", "attempt",
)  # fmt: skip


def _text(value: object) -> str | None:
    return _plain(value[:MAX_MESSAGE_CHARACTERS]) if isinstance(value, str) and value else None


def _plain(text: str) -> str:
    """Without halves of surrogate pairs: JSON may carry them, but a list with one in it could not be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
