"""The whole matrix: Python, start method, framework, way to end; MATRIX_REPEATS times each (default 1).

Twenty of each take about three quarters of an hour of one core.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.matrix import ENDS, SCRIPTS, STARTS, check
from tests.pythons import VERSIONS, find_python

REPEATS = int(os.environ.get("MATRIX_REPEATS", "1"))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_training_ends_as_without_us(
    version: str, start: str, end: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    more_s = check(find_python(version), "plain", start, end, tmp_path, REPEATS)
    record_property("more_s", more_s)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("framework", [name for name in SCRIPTS if name != "plain"])
def test_a_framework_ends_as_without_us(
    framework: str, start: str, end: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"no {framework} here")
    more_s = check(sys.executable, framework, start, end, tmp_path, REPEATS)
    record_property("more_s", more_s)
