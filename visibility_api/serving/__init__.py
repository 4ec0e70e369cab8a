"""HTTPS on uvicorn: TLS whose certificates change at run time, limits per connection and request, few writes.

This is the only package that knows uvicorn, and it subclasses parts that uvicorn does not document. Another
version could disable a limit without any error, so only tested ones are accepted: see
docs/decisions/0009-the-uvicorn-seam.md. It decides neither who a client is (`auth`) nor what is answered.
"""

from __future__ import annotations

import re

import uvicorn

OLDEST, FIRST_UNTESTED = (0, 50), (0, 55)
# What pyproject.toml requires, and what a user is told to install.
REQUIREMENT = "uvicorn>={}.{},<{}.{}".format(*OLDEST, *FIRST_UNTESTED)


class UntestedUvicorn(Exception):
    """The installed uvicorn is not one of the tested versions; the message says what to install."""


def require_tested_uvicorn(version: str = uvicorn.__version__) -> None:
    """Raise UntestedUvicorn unless `version` is in the tested range.

    To be called before other modules of this package are imported: with another version they may fail.
    """
    found = re.match(r"(\d+)\.(\d+)(?:\.|$)", version)
    if found is None or not OLDEST <= (int(found[1]), int(found[2])) < FIRST_UNTESTED:
        raise UntestedUvicorn(
            f"uvicorn {version} is installed, but only {REQUIREMENT} is tested: "
            f"run `python -m pip install '{REQUIREMENT}'`"
        )
