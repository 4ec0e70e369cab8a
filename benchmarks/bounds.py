"""`python -m benchmarks.bounds`: what may not grow, held to a bound; what is over it ends in exit code 1.

How the time of reading grows with what is read, and what a job keeps in memory. A quarter of an input is read
beside the whole: a cost that grows with the length has a ratio of 4, one that grows with its square has 16.
The least CPU time of several readings counts, which other work on the machine can only make larger.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import history
from trainjob_progress.lines import MAX_LINE, LineReader
from trainjob_progress.screen import Screen
from visibility_api.causes.reading import MAX_LINE_CHARACTERS, find_cause
from visibility_api.reports.log_tail import MAX_READ_BYTES, TailReader
from visibility_api.reports.report import parse_report

READINGS = 50
MAX_RATIO = 8.0
MAX_KIB_A_JOB = 9.5  # of Python objects, its first document and the change that brought it included
MAX_DOWNSAMPLING_MS = 10.0
MAX_HISTORY_PERCENT, HISTORY_JOBS = 10.0, 20
MAX_KIB_UNREAD = 0.5  # of a megabyte that nobody reads, spread over a job's objects

_TRAPS = (
    "1", "a", "a ", "a=", "a=1 ", "a:1x", " ", "\t", "[", "{'", "{'a': 1,", "epoch ", "1%|", " 1%|",
    " 1%|x|1/1 [", "━", " ━", "\x1b[", "\x1b[1", "\x1b]", " - ", "a: 1 - ", "a.b/", "a|", "nan", ".1", "1.",
    "[1]\t", "a:1\t", "2026-01-23T10:30:45", "total:", "1:1<", "é",
    "INFO", "INFO ", "a:1:", "I0123 ", "1,234", "train ", "2|1|", "1/1", "a [1/",
)  # fmt: skip
_MOVES = (
    "\r", "\n", "\b", "\t", "\x1b[A", "\x1b[3C", "\x1b[K", "\x1b[2K", "\x1b[5G", "\x1b[9;9H", "\x1b[2J",
    "\x1bM", "x", "xy\r", "x\b", "x\n", "x\x1b[A", "\x1b", "\x1b[", "\x1b]", "\x1b[9C",
)  # fmt: skip
_STARTS = (
    "", "{", "{'a':", "Epoch 1/2 ", "1/1 ━ ", "1:\t", "[1]\t", " 1%|", " 1%||1/1 [", "a=", "1/1 - 1s ",
)  # fmt: skip
_PIECES = (
    "a", "a=", "1", "a:1\t", " 1%|", "\r", "a\r", "\b", "\n", "\n{", "{'a': 1,", "2026-11-21T12:00:00Z ", "é",
)  # fmt: skip
_TRACEBACK = "Traceback (most recent call last):"
_CAUSE_TRAPS = (
    "a.cu:1: ", "x: line 1: ", "1 GiB ", "NaN ", "DataLoader worker (pid ", "unable to open ",
    "Connection to ", "Assertion `", "RuntimeError: ", "OutOfMemoryError: CUDA", "/x/", "a-",
    "size mismatch for a",
)  # fmt: skip
_REPORTS = (
    b"[", b'{"currentStep":[', b'{"currentStep":1', b'{"trainMetrics":{"n', b'{"trainMetrics":"\\"', b"1/",
    b" ",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One measured figure and what it may come to."""

    name: str
    measured: float
    limit: float
    unit: str
    worst: str = ""  # the input that gave the figure

    @property
    def is_kept(self) -> bool:
        return self.measured < self.limit


def ratio(read: Callable[[int], object], *, whole: int, part: int, limit: float, more_s: float) -> float:
    """CPU for `whole` over that for `part`; `more_s` more is no danger.

    Stops as soon as the limit is kept, for what is still to be read can only lower both times.
    """
    whole_s = part_s = math.inf
    for _ in range(READINGS):
        whole_s, part_s = min(whole_s, _cost_s(read, whole)), min(part_s, _cost_s(read, part))
        if whole_s < limit * part_s + more_s:
            break
    return 1.0 if whole_s < part_s + more_s else (whole_s - more_s) / part_s


def _cost_s(read: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    read(size)
    return time.process_time() - began


def lines() -> Bound:
    """A printed line of up to MAX_LINE characters."""

    def reader(text: str) -> Callable[[int], object]:
        def read(size: int) -> None:
            lines = LineReader()
            lines.read(text[:size])
            lines.read(text[:size] + "x")

        return read

    found = [
        (ratio(reader(text), whole=len(text), part=MAX_LINE // 4, limit=MAX_RATIO, more_s=0.001), text[:24])
        for start in _STARTS
        for text in (start + (trap * MAX_LINE)[: MAX_LINE - len(start) - 1] for trap in _TRAPS)
    ]
    return _worst("a printed line", found)


def screens() -> Bound:
    """Output of a wrapped command with control characters in it, onto a screen of long lines."""

    def reader(text: str) -> Callable[[int], object]:
        def read(size: int) -> None:
            Screen().write("x" * MAX_LINE + text[:size])

        return read

    found = [
        (ratio(reader(text), whole=len(text), part=len(text) // 4, limit=MAX_RATIO, more_s=0.005), repr(move))
        for move in _MOVES
        for text in ((move * 20_000)[:20_000],)
    ]
    return _worst("output on a screen", found)


def tails() -> Bound:
    """A log of as many bytes as are read of it."""

    def reader(data: bytes) -> Callable[[int], object]:
        return lambda size: TailReader().read(data[:size], is_whole=False)

    found = [
        (
            ratio(
                reader(_log([(piece * 8000)[:8000]] * (MAX_READ_BYTES // 8000 + 1))),
                whole=MAX_READ_BYTES, part=MAX_READ_BYTES // 4, limit=MAX_RATIO, more_s=0.005,
            ),
            piece,
        )
        for piece in _PIECES
    ]  # fmt: skip
    return _worst("a log's end", found)


def causes() -> Bound:
    """Lines in which the cause of a failure is looked for, as long as they are read."""

    def reader(text: str) -> Callable[[int], object]:
        return lambda size: find_cause([text[:size]] * 8 + [_TRACEBACK, "E: " + text[:size]])

    traps = (*_TRAPS, *_CAUSE_TRAPS)
    found = [
        (
            ratio(
                reader((trap * MAX_LINE_CHARACTERS)[:MAX_LINE_CHARACTERS]),
                whole=MAX_LINE_CHARACTERS, part=MAX_LINE_CHARACTERS // 4, limit=MAX_RATIO, more_s=0.002,
            ),
            trap,
        )
        for trap in traps
    ]  # fmt: skip
    return _worst("a cause", found)


def beyond_the_tail() -> Bound:
    """40 MB before the end of a log cost no more than twice that end."""
    tail = _log(["a=1 " * 2000] * 9)
    data = b"a=1 " * 10_000_000 + tail

    def read(size: int) -> None:
        TailReader().read(data if size > len(tail) else tail, is_whole=False)

    measured = ratio(read, whole=len(data), part=len(tail), limit=2.0, more_s=0.02)
    return Bound(name="40 MB before a log's end", measured=measured, limit=2.0, unit="times the end's CPU")


def reports() -> Bound:
    """A report of 64,000 bytes in the shapes that parsers choke on."""

    def reader(data: bytes) -> Callable[[int], object]:
        return lambda size: parse_report(data[:size])

    found = [
        (
            ratio(
                reader(start + start[-1:] * 64_000), whole=64_000, part=16_000, limit=MAX_RATIO, more_s=0.001
            ),
            start.decode(),
        )
        for start in _REPORTS
    ]
    return _worst("a report", found)


def job_memory() -> list[Bound]:
    """In processes that do nothing else."""
    bare, filled = _kib_a_job(), _kib_a_job("filled")
    return [
        Bound(name="a job with its document", measured=bare, limit=MAX_KIB_A_JOB, unit="KiB"),
        Bound(
            name="what nobody reads of a job", measured=filled - bare, limit=MAX_KIB_UNREAD, unit="KiB kept"
        ),
    ]


def histories() -> list[Bound]:
    """What the past of jobs costs whoever reads it, and the server with each report."""
    least_ms, _ = history.downsampling_ms()
    without_s, with_s = history.reporting_s(HISTORY_JOBS)
    of_a_core = (with_s - without_s) * history.REPORTS_A_SECOND
    return [
        Bound(name="500 of 5,000 points", measured=least_ms, limit=MAX_DOWNSAMPLING_MS, unit="ms"),
        Bound(
            name="histories of 10,000 jobs",
            measured=100 * of_a_core,
            limit=MAX_HISTORY_PERCENT,
            unit="% of a core, ten metrics each 15 s",
        ),
    ]


def _kib_a_job(*how: str) -> float:
    command = [sys.executable, "-m", "benchmarks.memory_per_job", *how]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def _log(said: list[str]) -> bytes:
    """The lines as the kubelet gives them."""
    return "".join(
        f"2026-11-21T12:00:{i % 60:02d}.000000000Z {line}\n" for i, line in enumerate(said)
    ).encode()


def _worst(name: str, found: list[tuple[float, str]]) -> Bound:
    measured, text = max(found)
    unit = f"times the CPU for 4 times the length, worst of {len(found)}"
    return Bound(name=name, measured=measured, limit=MAX_RATIO, unit=unit, worst=repr(text))


async def show() -> None:
    """A line a figure; SystemExit when one is over its bound."""
    found = await asyncio.to_thread(
        lambda: [
            lines(),
            screens(),
            tails(),
            causes(),
            beyond_the_tail(),
            reports(),
            *histories(),
            *job_memory(),
        ]
    )
    for each in found:
        figure = f"{each.name:<26} {each.measured:6.2f} {each.unit} (bound {each.limit:g})"
        print(f"{figure}   {each.worst}".rstrip(), flush=True)
    over = [each.name for each in found if not each.is_kept]
    if over:
        raise SystemExit(f"over the bound: {', '.join(over)}")


if __name__ == "__main__":
    asyncio.run(show())
