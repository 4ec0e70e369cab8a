"""The interpreters that are on this machine, for what must run on each of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]


def find_python(version: str) -> str:
    """An interpreter on PATH, or one that pyenv has."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(found[0]) if found else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"no Python {version} here")
    return python
