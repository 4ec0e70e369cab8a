"""Whatever a training process may have written, in any of the forms that are understood."""

from __future__ import annotations

import re

from .document import MAX_INTEGER, Outcome, Progress, Refused, parse_document
from .open_data_hub import parse_open_data_hub

# Reasons that hold for every form.
_FINAL = frozenset({"Empty", "TooLarge", "NotUTF8"})
# Argo Workflows' progress file (`ARGO_PROGRESS_FILE`): the text `N/M`, N of M units done.
# Sixteen digits hold 2^53; more would only cost time to convert.
_ARGO = re.compile(rb"\s*([0-9]{1,16})/([0-9]{1,16})\s*", re.ASCII)


def parse_report(data: bytes) -> Outcome:
    """Our document, Kubeflow's trainerStatus, Open Data Hub's JSON or Argo's `N/M`.

    Never raises. The refusal of something of no form at all is the one of our own document. Forms without
    a time of their own leave `timestamp` None.
    """
    outcome = parse_document(data)
    if isinstance(outcome, Progress) or outcome.reason in _FINAL:
        return outcome
    for parse in (_parse_argo, parse_open_data_hub):
        if (found := parse(data)) is not None:
            return found
    return outcome


def _parse_argo(data: bytes) -> Outcome | None:
    """None when it is not of this form. What Argo itself leaves out (more done than there is, nothing to do
    at all) is refused."""
    match = _ARGO.fullmatch(data)
    if match is None:
        return None
    done, total = int(match[1]), int(match[2])
    if not 0 < total <= MAX_INTEGER or done > total:
        return Refused(reason="InvalidField", message="Of N/M, M must be at least 1 and N at most M.")
    return Progress(step=done, total_steps=total)
