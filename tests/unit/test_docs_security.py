"""docs/security.md claims nothing that no test shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/security.md").read_text()


def test_every_test_that_the_document_names_exists() -> None:
    known: set[str] = set()
    for file in (ROOT / "tests").rglob("*.py"):
        known |= set(re.findall(r"^ *(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert len(named) > 40
    assert named <= known, named - known


def test_every_line_of_the_threat_model_and_of_what_was_tried_names_a_test() -> None:
    for title in ("Who, and what they must not gain", "Tried, and what happens"):
        section = DOCUMENT.split(f"## {title}\n")[1].split("\n## ")[0]
        header, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
        assert header.endswith("| shown by |")
        assert len(rows) > 10
        for row in rows:
            assert "`test_" in row, row


def test_every_stream_says_what_becomes_of_each_kind_of_bad_piece() -> None:
    section = DOCUMENT.split("## What each stream does with a bad piece\n")[1].split("\n## ")[0]
    header, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert header == "| stream | too long | broken | late | without end |"
    assert len(rows) >= 11
    for row in rows:
        stream, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, stream
        assert all("`test_" in cell or cell == "as too long" for cell in cells), stream
