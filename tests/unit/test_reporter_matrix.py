"""Trainings on every Python, with every start method and way to end: as without us, and documents are true.

The oldest Python and the one that runs this see each way to end once. `make test-frameworks` has the whole
matrix: every Python, every framework.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.matrix import ENDS, NOISE, REPORTER, STARTS, check
from tests.pythons import VERSIONS, find_python

PYTHONS = (VERSIONS[0], f"{sys.version_info.major}.{sys.version_info.minor}")
CASES = [
    (version, STARTS[(row + column) % len(STARTS)], end)
    for row, version in enumerate(PYTHONS)
    for column, end in enumerate(ENDS)
]


@pytest.mark.parametrize(("version", "start", "end"), CASES)
def test_a_training_ends_as_it_does_without_us(version: str, start: str, end: str, tmp_path: Path) -> None:
    python = sys.executable if version == PYTHONS[1] else find_python(version)
    check(python, "plain", start, end, tmp_path)


def test_a_line_that_only_a_reporting_training_prints_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = '\nif os.environ["REPORTS"]: print("a warning of ours", file=sys.stderr)\n'
    monkeypatch.setattr("tests.matrix.REPORTER", REPORTER + fault)
    with pytest.raises(AssertionError, match="a warning of ours"):
        check(sys.executable, "plain", "none", "return", tmp_path)


def test_what_a_training_prints_now_and_then_by_itself_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = 'number = len([name for name in os.listdir("..") if name.endswith(".err")])\n'
    varies = counter + 'print("odd" if number % 2 else "even", file=sys.stderr)\n'
    noise = f'if number == 2: print("{NOISE[0]}", file=sys.stderr)\n'
    monkeypatch.setattr("tests.matrix.REPORTER", REPORTER + varies + noise)
    check(sys.executable, "plain", "none", "return", tmp_path)
