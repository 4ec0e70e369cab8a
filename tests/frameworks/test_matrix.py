"""The whole matrix: Python, start method, framework, way to end; MATRIX_REPEATS times each (default 1)."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.matrix import ENDS, SCRIPTS, STARTS, check
from tests.pythons import VERSIONS, find_python

REPEATS = int(os.environ.get("MATRIX_REPEATS", "1"))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_training_ends_as_without_us(version: str, start: str, end: str, tmp_path: Path) -> None:
    check(find_python(version), "plain", start, end, tmp_path, REPEATS)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("framework", [name for name in SCRIPTS if name != "plain"])
def test_a_framework_ends_as_without_us(framework: str, start: str, end: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"no {framework} here")
    check(sys.executable, framework, start, end, tmp_path, REPEATS)
