"""Programs that die for real, and what is made of what they print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.causes.programs import PROGRAMS, run
from visibility_api.causes.reading import find_cause


def may_mount() -> bool:
    """Many containers let not even root do that."""
    asked = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return os.geteuid() == 0 and shutil.which("unshare") is not None and subprocess.call(asked) == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_cause_of_a_real_death_is_found(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    if program.needs_root and not may_mount():
        pytest.skip("needs the right to mount")
    printed = run(program, sys.executable, tmp_path)
    found = find_cause(printed.splitlines())
    assert found is not None, printed
    assert (found.name, program.says in found.says) == (program.cause, True), printed
