"""The versions of uvicorn that the subclasses in this package are tested with.

They override methods that uvicorn does not document (decision 0009), so another version could disable a limit
without any error. Imports nothing of uvicorn but its version: the other modules may not even import with one
that was not tested.
"""

from __future__ import annotations

import re

import uvicorn

OLDEST = (0, 50)
FIRST_UNTESTED = (0, 55)
# What pyproject.toml requires, and what a user is told to install.
REQUIREMENT = "uvicorn>={}.{},<{}.{}".format(*OLDEST, *FIRST_UNTESTED)

_MAJOR_MINOR = re.compile(r"(\d+)\.(\d+)(?:\.|$)")


class UntestedUvicorn(Exception):
    """The installed uvicorn is not one of the tested versions; the message says what to install."""


def require_tested_uvicorn(version: str = uvicorn.__version__) -> None:
    """Raise UntestedUvicorn unless `version` is in the tested range."""
    found = _MAJOR_MINOR.match(version)
    if found is None or not OLDEST <= (int(found[1]), int(found[2])) < FIRST_UNTESTED:
        raise UntestedUvicorn(
            f"uvicorn {version} is installed, but only {REQUIREMENT} is tested: "
            f"run `python -m pip install '{REQUIREMENT}'`"
        )
