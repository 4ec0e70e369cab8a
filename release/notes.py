"""The notes of a release: the first section of the changelog."""

from __future__ import annotations

import re

_HEADING = re.compile(r"^## \[?([^\]\n]+)\]?.*$", re.MULTILINE)


def release_notes(changelog: str) -> str:
    """What is between the first heading of a version and the next one. Raises ValueError without one."""
    headings = list(_HEADING.finditer(changelog))
    if not headings:
        raise ValueError("CHANGELOG.md has no section of a version")
    end = headings[1].start() if len(headings) > 1 else len(changelog)
    return changelog[headings[0].end() : end].strip() + "\n"
