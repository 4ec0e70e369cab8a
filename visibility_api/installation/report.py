"""What the checks have found: for a reader, 80 columns wide, or as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec

from .look import Finding, State

WIDTH = 79
_MARKS = {State.OK: "ok", State.WARNING: "WARNING", State.FAULT: "FAULT", State.UNKNOWN: "unknown"}
_NAMES = 18  # columns


def describe(found: Sequence[tuple[str, Finding]]) -> str:
    """A line for each link, and below it what to do. The first fault is often the cause of those after it."""
    lines = []
    for name, finding in found:
        first = f"{_MARKS[finding.state]:8}{name:{_NAMES}}"
        lines += textwrap.wrap(
            finding.says,
            WIDTH,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if finding.do:
            lines.append(f"{'':8}do: {finding.do}")  # in one line, to be copied
    return "\n".join([*lines, "", _summary(found), ""])


def encode(found: Sequence[tuple[str, Finding]]) -> str:
    """A list of objects with `link`, `state`, `says` and `do`."""
    lines = [
        {"link": name, "state": finding.state, "says": finding.says, "do": finding.do}
        for name, finding in found
    ]
    return msgspec.json.format(msgspec.json.encode(lines), indent=2).decode() + "\n"


def is_good(found: Sequence[tuple[str, Finding]]) -> bool:
    """Whether there is no fault, and something that holds: who may see nothing has checked nothing."""
    states = {finding.state for _, finding in found}
    return State.FAULT not in states and State.OK in states


def _summary(found: Sequence[tuple[str, Finding]]) -> str:
    faults = [name for name, finding in found if finding.state is State.FAULT]
    if faults:
        return f"{len(faults)} of {len(found)} links are broken. Mend {faults[0]} first."
    if not is_good(found):
        return (
            "Nothing was checked. Use the kubeconfig of an administrator, and log in again if it has ended."
        )
    doubts = sum(finding.state is not State.OK for _, finding in found)
    return "Every link holds." if not doubts else f"No link is broken; {doubts} of {len(found)} need a look."
