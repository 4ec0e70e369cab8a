"""The progress document as bytes: its fields, its limits, and how it is made to fit.

Knows the wire form (docs/document.md), not where it goes. Readers share no code with this file, only
tests/vectors/ and openapi/progress-document.schema.json.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Sequence, Union

SCHEMA_VERSION = 1
MAX_BYTES = 64 * 1024
MAX_RECENT_BYTES = 16 * 1024  # of earlier values
MAX_RANKS = 64
MAX_METRICS = 256
MAX_TEXT = 64  # characters of a metric's name or value; the limits of TrainJob.status.trainerStatus
MAX_MESSAGE = 1024  # characters; enough for a sentence and an error's first line
TIMES = ("dataLoading", "checkpointSave", "checkpointRestore", "evaluation")  # kinds that a run marks
MAX_INTEGER = 2**53  # above it a JSON reader that uses doubles would see another number


class Snapshot:
    """What one process knew of its training at one moment; None = not known, never 0. Not to be changed.

    Not a dataclass or a NamedTuple: importing what those need takes as long as all of this package.
    """

    __slots__ = (
        "attempt", "between", "checkpoint", "ending", "epoch", "message", "metrics", "percentage", "rank",
        "ranks", "rate", "remaining_s", "section", "spent_s", "start_time", "state", "step", "timestamp",
        "total_epochs", "total_steps",
    )  # fmt: skip

    def __init__(
        self,
        *,
        state: str,
        timestamp: float,
        start_time: float,
        step: Optional[int] = None,
        total_steps: Optional[int] = None,
        epoch: Optional[float] = None,
        total_epochs: Optional[float] = None,
        percentage: Optional[int] = None,
        remaining_s: Optional[int] = None,
        metrics: Optional[Mapping[str, Union[int, float, str]]] = None,
        message: Optional[str] = None,
        rank: Optional[int] = None,
        attempt: Optional[int] = None,
        ending: Optional[str] = None,
        rate: Optional[float] = None,
        ranks: Optional[Mapping[str, Any]] = None,
        between: tuple[Any, ...] = (),
        spent_s: Sequence[float] = (),
        section: Optional[tuple[str, float]] = None,
        checkpoint: Optional[tuple[int, float]] = None,
    ) -> None:
        self.state = state  # running, completed, failed
        self.ending = ending  # finished, stopped, preempted, failed; None while the run goes on
        self.timestamp = timestamp  # Unix seconds, the training process's clock
        self.start_time = start_time  # Unix seconds; of this attempt, not of the job
        self.step = step
        self.total_steps = total_steps
        self.epoch = epoch
        self.total_epochs = total_epochs
        self.percentage = percentage  # 0 to 100
        self.remaining_s = remaining_s  # at least 0
        self.metrics = metrics if metrics is not None else {}
        self.message = message
        self.rank = rank
        self.attempt = attempt
        self.ranks = ranks  # columns, a row a rank
        self.between = between  # of each metric the extremes since each of the last samples: extremes.py
        self.spent_s = spent_s  # of TIMES, the sections that are closed
        self.section = section  # the open one: its kind, and since when, in Unix seconds
        self.checkpoint = checkpoint  # the last complete one: its step, and when it was complete
        self.rate = rate  # steps a second, for people; readers of the document work their own out

    def is_same_progress(self, other: Snapshot) -> bool:
        """Whether nothing has moved between the two but the clock, and perhaps the run's end has come."""
        return all(getattr(self, name) == getattr(other, name) for name in (*self._MOVING, *self._MARKED))

    def has_only_marked(self, other: Snapshot) -> bool:
        """Whether nothing has moved between the two but what the run marks of its time."""
        return all(getattr(self, name) == getattr(other, name) for name in self._MOVING)

    def replace(self, **fields: object) -> Snapshot:
        """The same with other `fields`."""
        return Snapshot(**{**{name: getattr(self, name) for name in self.__slots__}, **fields})

    _MOVING = ("epoch", "message", "metrics", "percentage", "step", "total_epochs", "total_steps")
    _MARKED = ("section", "checkpoint", "spent_s")


def encode(
    snapshot: Snapshot, max_bytes: int = MAX_BYTES, recent: Optional[Mapping[str, Any]] = None
) -> bytes:
    """The document in at most `max_bytes` of UTF-8, with earlier values if `recent` has any.

    These give way first, then the other ranks and metrics, the last names before the first; then the message
    loses its end. What remains without them takes less than 800 bytes.
    """
    metrics = list(snapshot.metrics.items())[:MAX_METRICS]
    message = snapshot.message[:MAX_MESSAGE] if snapshot.message else ""
    body = _dump(snapshot, metrics, message)
    if len(body) > max_bytes and snapshot.ranks:
        snapshot = snapshot.replace(ranks=None)
        body = _dump(snapshot, metrics, message)
    while len(body) > max_bytes and metrics:
        metrics = metrics[: len(metrics) * 3 // 4]
        body = _dump(snapshot, metrics, message)
    if len(body) > max_bytes:
        spare = max_bytes - len(_dump(snapshot, metrics, "")) - len(b',"message":""')
        message = message[: max(spare, 0) // 6]  # a character takes 6 bytes at most: \u0001
        body = _dump(snapshot, metrics, message)
    if not recent:
        return body
    tail = _dump_recent(recent, min(max_bytes - len(body) - len(b',"recent":'), MAX_RECENT_BYTES))
    return b'%s,"recent":%s}' % (body[:-1], tail) if tail else body


_encode: Callable[[Any], str]
decode: Callable[[bytes], Any]
_ahead_s = float("-inf")  # of the wall clock, to the monotonic one


def now_s() -> float:
    """Unix seconds for a document. Where the wall clock is set back they go on from where it was: a later
    document has a later time."""
    global _ahead_s
    wall_s, monotonic_s = time.time(), time.monotonic()
    ahead_s = wall_s - monotonic_s
    if ahead_s >= _ahead_s:
        _ahead_s = ahead_s
        return wall_s
    return monotonic_s + _ahead_s


def prepare() -> None:
    """Import what encoding needs, on the thread that begins to report: see forks.py.

    Not at the top of this file: it would be a third of the time that importing this package takes.
    """
    global _encode, decode
    try:
        _encode  # noqa: B018
    except NameError:
        import dis  # noqa: F401 — call_site.py's
        import json
        import select  # noqa: F401 — publisher.py's

        _encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        decode = json.loads


def format_time(unix_s: float) -> str:
    """RFC 3339 in UTC with microseconds; by hand, because importing datetime costs what all of this may."""
    seconds, micros = divmod(int(unix_s * 1_000_000), 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{micros:06d}Z"


def _name(spent_s: Sequence[float]) -> Optional[dict[str, float]]:
    """Seconds by kind of TIMES, without kinds that had none."""
    return {kind: round(some, 3) for kind, some in zip(TIMES, spent_s) if some >= 0.001} or None  # noqa: B905 — 3.9


def _date(marked: Optional[tuple[Any, float]], what: str, since: str) -> Optional[dict[str, Any]]:
    return None if marked is None else {what: marked[0], since: format_time(marked[1])}


def _dump_recent(recent: Mapping[str, Any], max_bytes: int) -> bytes:
    """Nothing if that does not fit without its last named metrics."""
    columns = dict(recent)
    metrics = columns.pop("metrics", {})
    names = list(metrics)
    while True:
        if names:
            columns["metrics"] = {name: metrics[name] for name in names}
        body = _encode(columns).encode("utf-8", "replace")
        if len(body) <= max_bytes:
            return body
        if not names:
            return b""
        names = names[: len(names) * 3 // 4]
        columns.pop("metrics", None)


def _dump(snapshot: Snapshot, metrics: list[tuple[str, Union[int, float, str]]], message: str) -> bytes:
    prepare()
    fields: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "state": snapshot.state,
        "ending": snapshot.ending,
        "step": snapshot.step,
        "totalSteps": snapshot.total_steps,
        "epoch": snapshot.epoch,
        "totalEpochs": snapshot.total_epochs,
        "progressPercentage": snapshot.percentage,
        "estimatedRemainingSeconds": snapshot.remaining_s,
        "metrics": dict(metrics) or None,
        "message": message or None,
        "startTime": format_time(snapshot.start_time),
        "timestamp": format_time(snapshot.timestamp),
        "rank": snapshot.rank,
        "attempt": snapshot.attempt,
        "timeSpent": _name(snapshot.spent_s),
        "section": _date(snapshot.section, "kind", "startTime"),
        "checkpoint": _date(snapshot.checkpoint, "step", "timestamp"),
        "ranks": snapshot.ranks,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    text = _encode(known)
    return text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8 form
