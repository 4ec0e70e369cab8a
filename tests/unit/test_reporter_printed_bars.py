"""What real libraries printed, in a terminal and in a pipe: tests/vectors/bars.json."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress.lines import LineReader
from trainjob_progress.screen import Screen
from visibility_api.reports.document import Progress
from visibility_api.reports.log_tail import TailReader

RECORDED = json.loads((Path(__file__).parents[1] / "vectors/bars.json").read_text())
POSITION = ("step", "total_steps", "epoch", "total_epochs")
each_recording = pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: f"{each['by']}: {each['on']}")


def readings(text: str, piece: int) -> list[dict[str, Any]]:
    """What is read of it, one after the other, when it comes in pieces of so many characters."""
    screen, reader = Screen(), LineReader()
    lines = [line for at in range(0, len(text), piece) for line in screen.write(text[at : at + piece])]
    said = [reader.read(line.text, depth=line.depth) for line in [*lines, *screen.end()]]
    return [fields for fields in said if fields]


@each_recording
@pytest.mark.parametrize("piece", [1, 97, 10**6])
def test_what_a_bar_shows_is_read_whatever_pieces_it_comes_in(recorded: dict[str, Any], piece: int) -> None:
    known: dict[str, Any] = {}
    metrics: set[str] = set()
    for fields in readings(recorded["text"], piece):
        metrics |= set(fields.get("metrics") or ())
        known.update({name: fields[name] for name in POSITION if name in fields})
    assert known == recorded["says"]
    assert sorted(metrics) == recorded["metrics"]


@each_recording
def test_no_percentage_falls(recorded: dict[str, Any]) -> None:
    """But where the bar was drawn once before it was given its name, and with it the number of epochs."""
    shares = [
        fields["step"] / fields["total_steps"]
        for fields in readings(recorded["text"], 10**6)
        if fields.get("step") and fields.get("total_steps", 0) == recorded["says"].get("total_steps")
    ]
    assert all(before <= after for before, after in pairwise(shares))
    assert shares == [] or shares[-1] == 1


@each_recording
def test_a_log_that_holds_it_shows_the_same_or_less(recorded: dict[str, Any]) -> None:
    lines = recorded["text"].rstrip("\n").split("\n")
    log = "".join(f"2026-11-21T12:00:{at:02d}.000000000Z {line}\n" for at, line in enumerate(lines))
    outcome = TailReader().read(log.encode(), is_whole=True)
    if not isinstance(outcome, Progress):
        assert recorded["says"] == {}
        return
    for name in POSITION:
        assert getattr(outcome, name) in (None, recorded["says"].get(name))
