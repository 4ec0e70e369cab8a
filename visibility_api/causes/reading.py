"""Finds the cause of a program's death in the last lines of its output. Pure: hostile text in, one value out.

The last exception that was not caught says why. One of a launcher, or one that is the sign of another rank's
failure, does not: then the one before it counts. An exception may have been raised while another was handled;
then both are read. What was printed long before the end, and what the program went on after, is no cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainjob_progress.lines import LineReader

from .patterns import PATTERNS, Pattern

MAX_LINES = 400  # the last ones
MAX_LINE_CHARACTERS = 2000
# After its death a program prints no more than so many lines: summaries of launchers and trackers.
LAST_LINES = 80
# Of a run in which one rank has failed others may print so much more progress.
STEPS_AFTER = 3
PROGRAM_ERROR = "ProgramError"

_COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
# A time of the kubelet, and marks of a rank: torch's and torchrun's, mpirun's, Ray's.
_PREFIX = re.compile(
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) )?"
    r"(?:\[(?:default|rank)?(?P<rank>\d{1,6})\]:\s?|\[\d{1,4},(?P<mpi>\d{1,6})\]<\w{1,16}>:\s?"
    r"|\((?:\w{1,60} )?pid=\d{1,9}(?:, ip=[\d.]{7,15})?\) )?",
    re.ASCII,
)
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(
    r'\s+File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7}), in (?P<function>[\w.<>]{1,80})'
)
_ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,120})(?::|$)")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Files of installed packages and of Python itself: not the user's own.
_FOREIGN = re.compile(r"(?:site|dist)-packages/|/lib/python\d|<frozen |^<string>$|/torchrun$|/opt/conda/lib/")
# Exceptions that only say that another process has failed.
_WRAPPERS = frozenset(
    (
        "ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError",
        "SystemExit", "RayTaskError", "TrainingFailedError", "WorkerGroupError", "ActorDiedError",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a program died."""

    name: str  # one CamelCase word; PROGRAM_ERROR: an exception of no class that is known
    says: str  # a sentence; names of code and numbers are all it has of the output
    hint: str  # a sentence
    is_retryable: bool | None
    is_cascade: bool  # mostly the sign of another rank's failure
    line: str  # that says so; for those only who may read the log
    rank: int | None = None  # where the output of several ranks is marked


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    rank: int | None


@dataclass(slots=True)
class _Found:
    """A candidate: a line that says why, or an exception."""

    last: int  # the number of its last line
    cause: Cause


def find_cause(lines: Sequence[str]) -> Cause | None:
    """The cause by the last lines of an output; None where none is known. Of several ranks whose lines are
    marked, the one that failed first."""
    read = [_line(number, each) for number, each in enumerate(lines[-MAX_LINES:])]
    last = list[_Found]()
    for rank in {each.rank for each in read}:
        own = [each for each in read if each.rank == rank]
        found = _at_the_end(own)
        roots = [each for each in found if not each.cause.is_cascade]
        last += (roots or found[:1])[-1:]
    chosen = min(last, key=lambda each: (each.cause.is_cascade, each.last), default=None)
    return chosen.cause if chosen is not None else None


def _at_the_end(lines: Sequence[_Line]) -> list[_Found]:
    """What is found in the output of one rank, in order, but for what it went on after."""
    reader, went_on = LineReader(sees_all=False), list[int]()
    for line in lines:
        if reader.read(line.text) is not None:
            went_on.append(line.number)
    end = lines[-1].number
    since = went_on[-STEPS_AFTER - 1] if len(went_on) > STEPS_AFTER else -1
    return [each for each in _candidates(lines) if each.last > max(since, end - LAST_LINES)]


def _line(number: int, text: str) -> _Line:
    text = _COLOURS.sub("", text[:MAX_LINE_CHARACTERS])
    mark = _PREFIX.match(text)
    rank = None
    if mark is not None:
        text = text[mark.end() :]
        rank = next((int(each) for each in mark.group("rank", "mpi") if each is not None), None)
    return _Line(number, text.rstrip(), rank)


def _candidates(lines: Sequence[_Line]) -> Iterator[_Found]:
    at, chain = 0, list[_Found]()
    while at < len(lines):
        line = lines[at]
        if line.text.endswith(_TRACEBACK):
            at, found = _exception(lines, at)
            if found is not None:
                chain.append(found)
            continue
        if line.text in _CHAINED or not line.text:
            at += 1
            continue
        if chain:
            yield _of_chain(chain)
            chain = []
        if (known := _known(line, is_error=False)) is not None:
            yield _Found(line.number, known)
        at += 1
    if chain:
        yield _of_chain(chain)


def _of_chain(chain: Sequence[_Found]) -> _Found:
    """Of exceptions that were raised while others were handled: the first of a known class, else the last."""
    known = [each for each in chain if each.cause.name != PROGRAM_ERROR]
    roots = [each for each in known if not each.cause.is_cascade]
    chosen = (roots or known or chain[-1:])[0]
    return replace(chosen, last=chain[-1].last)


def _exception(lines: Sequence[_Line], at: int) -> tuple[int, _Found | None]:
    """One traceback, from its first line; the number of the line after it, and what it says."""
    own, at = "", at + 1
    while at < len(lines) and (lines[at].text.startswith((" ", "\t")) or not lines[at].text):
        frame = _FRAME.match(lines[at].text)
        if frame is not None and not _FOREIGN.search(frame["file"]):
            own = f"{_base(frame['file'])}:{frame['line']} in {frame['function']}"
        at += 1
    if at >= len(lines) or (error := _ERROR.match(lines[at].text)) is None:
        return at, None
    message, line = at, lines[at]
    at += 1
    # A message of many lines: until an empty one, another traceback, or what looks like a line of a log.
    while at < len(lines) and at - message < 12 and lines[at].text.startswith((" ", "\t")):
        at += 1
    name = error["type"].rpartition(".")[2]
    if name in _WRAPPERS:
        return at, None
    known = next(
        (cause for each in lines[message:at] if (cause := _known(each, is_error=True)) is not None), None
    )
    where = f" in {own}" if own and re.fullmatch(r"[\w.-]{1,80}:\d+ in [\w.<>]{1,80}", own) else ""
    if known is None:
        known = Cause(
            name=PROGRAM_ERROR,
            says=f"the program raised {name[:80]}{where}.",
            hint="The log says more.",
            is_retryable=False,
            is_cascade=False,
            line=line.text,
            rank=line.rank,
        )
    elif where:
        known = replace(known, says=f"{known.says[:-1]} (raised{where}).")
    return at, _Found(lines[at - 1].number, known)


def _known(line: _Line, *, is_error: bool) -> Cause | None:
    for pattern in PATTERNS:
        text = pattern.raised if is_error else pattern.printed
        if text is not None and (match := text.search(line.text)) is not None:
            return _cause(pattern, match, line)
    return None


def _cause(pattern: Pattern, match: re.Match[str], line: _Line) -> Cause:
    groups = {name: value or "what there is" for name, value in match.groupdict().items()}
    return Cause(
        name=pattern.name,
        says=f"{pattern.says.format(**groups)}.",
        hint=pattern.hint,
        is_retryable=pattern.is_retryable,
        is_cascade=pattern.is_cascade,
        line=line.text,
        rank=line.rank,
    )


def _base(path: str) -> str:
    return path.rpartition("/")[2]
