"""The interpreters that are on this machine, for what must run on each of them."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]


def find_python(version: str) -> str:
    """An interpreter that pyenv has, or one on PATH."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(found[0]) if found else shutil.which(f"python{version}")
    if python is None or not _runs(python):
        pytest.skip(f"no Python {version} here")
    return python


@cache
def _runs(python: str) -> bool:
    """pyenv puts a script on PATH for every version, which may not be one that is chosen here."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
