"""Trainings on every Python, with every start method and way to end: as without us, and documents are true.

Each Python sees each way to end once here; `make test-frameworks` has the whole matrix, with frameworks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import ENDS, STARTS, check
from tests.pythons import VERSIONS, find_python

CASES = [
    (version, STARTS[(row + column) % len(STARTS)], end)
    for row, version in enumerate(VERSIONS)
    for column, end in enumerate(ENDS)
]


@pytest.mark.parametrize(("version", "start", "end"), CASES)
def test_a_training_ends_as_it_does_without_us(version: str, start: str, end: str, tmp_path: Path) -> None:
    check(find_python(version), "plain", start, end, tmp_path)
