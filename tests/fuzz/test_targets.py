"""What the fuzzers have found and begin with is read again in every run, and a little that is new."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from .targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
SEEDS = sorted(each for each in CORPUS.rglob("*") if each.is_file())
PIECES = [
    b'{"', b'"}', b":", b"[", b"]", b"1e400", b"\xff", b"\r\n", b"timestamp", b"2026-01-23T10:30:45Z", b"%00",
    b"?limit=", b"labelSelector=", b" in (", b"\x81\x7e", b"\x1b[2J", b"10/20", b"\xed\xa0\x80", b"\\ud800",
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}/{seed.name}")
def test_no_input_that_was_kept_breaks_a_parser(seed: Path) -> None:
    TARGETS[seed.parent.name](seed.read_bytes())


def test_every_parser_has_inputs_to_begin_with() -> None:
    assert {seed.parent.name for seed in SEEDS} == set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=40)
@given(st.lists(st.binary(max_size=40) | st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_no_bytes_break_a_parser(name: str, data: bytes) -> None:
    TARGETS[name](data)
