"""Log lines as JSON, one object each, that say of which job, replica and step they are. Opt-in:

    from trainjob_progress.logging import configure

    configure()

Nothing here raises into the program. Lines stay below 4 KiB: one write of that size into a pipe is not torn
apart by other writers (PIPE_BUF).
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import traceback

from . import open_runs, redaction
from .launchers import find_identity
from .positions import find_position
from .rank import find_rank
from .settings import find_attempt
from .termination import let_through
from .values import show, to_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, TextIO, Union

MAX_BYTES = 4096  # of a line, with its end
MAX_EXTRAS = 64
MAX_CAUSES, MAX_FRAMES = 4, 12  # of an exception
# How long a text may be; the next one where the line is too long still.
_LENGTHS = (2000, 500, 100, 20)
_OF_RECORDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(
    level: Union[int, str] = logging.INFO,
    *,
    logger: Optional[logging.Logger] = None,
    stream: Optional[TextIO] = None,
    **context: object,
) -> logging.Handler:
    """Log JSON to `stream`, by default stderr, from `logger` (the root) on; returns the handler.

    It takes the place of handlers that print to stdout or stderr, so that no line comes twice. `context`:
    fields of every line, such as `job`, in place of what the environment says.
    """
    logger = logging.getLogger() if logger is None else logger
    stream = sys.stderr if stream is None else stream
    handler = JSONHandler(stream)
    handler.setFormatter(JSONFormatter(context))
    for other in tuple(logger.handlers):
        if isinstance(other, logging.StreamHandler) and other.stream in (sys.stdout, sys.stderr, stream):
            logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler


class JSONHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers alone
    """Writes each record with one call. A stream that takes nothing any more costs the line."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        super().__init__(stream)
        self.setFormatter(JSONFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            encoding = getattr(self.stream, "encoding", None) or "utf-8"
            # A stream in ASCII or Latin-1 gets the rest as question marks.
            self.stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
            self.flush()
        except Exception as error:  # the stream's own trouble
            let_through(error)


class JSONFormatter(logging.Formatter):
    """For a handler of one's own. `context`: as of `configure`."""

    def __init__(self, context: Optional[Mapping[str, object]] = None) -> None:
        super().__init__()
        self._context: dict[str, object] = {**find_identity(), **(context or {})}
        attempt = find_attempt()
        if attempt is not None:
            self._context.setdefault("attempt", attempt)

    def format(self, record: logging.LogRecord) -> str:
        """Never raises, whatever the record holds."""
        line = ""
        for length in _LENGTHS:
            line = json.dumps(self._fields(record, length), ensure_ascii=False)
            line = line.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8 form
            if len(line.encode()) < MAX_BYTES:
                break
        return line

    def _fields(self, record: logging.LogRecord, length: int) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "timestamp": _format_time(record.created),
            "level": record.levelname,
            "logger": _cut(str(record.name), length),
            "message": _cut(_message(record), length),
            **{name: _plain(value, length) for name, value in self._context.items()},
            **_position(),
        }
        extras = [item for item in vars(record).items() if item[0] not in _OF_RECORDS]
        for name, value in extras[: MAX_EXTRAS * length // _LENGTHS[0] or 1]:
            if name not in fields or name == "step":
                fields[_cut(str(name), 64)] = _plain(value, length)
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            fields["exception.type"] = type(error).__name__
            fields["exception.message"] = _cut(redaction.describe(error), length)
            fields["exception.stacktrace"] = _trace(error)[-length:]
        if record.stack_info:
            fields["code.stacktrace"] = str(record.stack_info)[-length:]
        return fields


def _position() -> dict[str, Any]:
    """Of this process, and of the run that it reports."""
    found: dict[str, Any] = {}
    try:
        rank = find_rank()
        if rank is not None:
            found["rank"] = rank
        if open_runs.runs:
            position = find_position(tuple(open_runs.runs[-1].levels))
            found |= {"step": position.step, "total_steps": position.total_steps}
    except Exception as error:  # another thread ends the run meanwhile
        let_through(error)
    return {name: value for name, value in found.items() if value is not None}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # arguments that do not fit, or a foreign type's own trouble
        let_through(error)
        return f"{record.msg if isinstance(record.msg, str) else show(record.msg)} {show(record.args)}"


def _plain(value: Any, length: int) -> Any:  # noqa: ANN401 — of anybody's
    """As JSON has it, else as a text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _cut(value, length)
    number = to_number(value)
    if number is not None:
        is_json = isinstance(number, int) and abs(number) < 2**63
        return number if is_json or (isinstance(number, float) and math.isfinite(number)) else show(number)
    try:
        if (
            isinstance(value, (dict, list, tuple))
            and len(text := json.dumps(value, allow_nan=False)) < length
        ):
            return json.loads(text)
        return _cut(repr(value), length)
    except Exception as error:
        let_through(error)
        return show(value)


def _trace(error: BaseException) -> str:
    """Where it was raised, without what looks like a credential; the causes first."""
    parts: list[str] = []
    one: Optional[BaseException] = error
    while one is not None and len(parts) < MAX_CAUSES:
        try:
            frames = traceback.format_tb(one.__traceback__, limit=-MAX_FRAMES)
        except Exception as trouble:  # a loader of source that fails
            let_through(trouble)
            frames = []
        parts.append("".join(map(redaction.redact, frames)) + redaction.describe(one))
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\n\n".join(reversed(parts))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _format_time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1_000_000):06d}Z"
