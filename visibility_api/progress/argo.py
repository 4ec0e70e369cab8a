"""Argo Workflows' progress file (`ARGO_PROGRESS_FILE`): the text `N/M`, N of M units done."""

from __future__ import annotations

import re

from .document import MAX_INTEGER, Progress, Refused

# Sixteen digits hold 2^53; more would only cost time to convert.
_PROGRESS = re.compile(rb"\s*([0-9]{1,16})/([0-9]{1,16})\s*", re.ASCII)


def parse_argo(data: bytes) -> Progress | Refused | None:
    """The progress in `data`; None when it is not of this form.

    What Argo itself leaves out (more done than there is, nothing to do at all) is refused.
    """
    match = _PROGRESS.fullmatch(data)
    if match is None:
        return None
    done, total = int(match[1]), int(match[2])
    if not 0 < total <= MAX_INTEGER or done > total:
        return Refused(reason="InvalidField", message="of N/M, M must be at least 1 and N at most M")
    return Progress(step=done, total_steps=total)
