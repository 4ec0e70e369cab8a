"""Whatever a training process may have written, in any of the forms that are understood."""

from __future__ import annotations

import re

from .document import Outcome, Progress, Refused
from .fields import MAX_INTEGER
from .open_data_hub import parse_open_data_hub
from .refusals import parse_json
from .training_document import parse_document

# Reasons that hold for every form.
_FINAL = frozenset({"Empty", "TooLarge", "NotUTF8", "TooDeep", "TooComplex"})
# Argo Workflows' progress file (`ARGO_PROGRESS_FILE`): the text `N/M`, N of M units done.
# Sixteen digits hold 2^53; more would only cost time to convert.
_ARGO = re.compile(rb"\s*([0-9]{1,16})/([0-9]{1,16})\s*", re.ASCII)


_FOREIGN = Refused(
    reason="NotAReport",
    message="There is a document with a time, but neither a position nor a schemaVersion.",
)


def parse_report(data: bytes, *, is_path_trusted: bool = True) -> Outcome:
    """Our document, Kubeflow's trainerStatus, Open Data Hub's JSON or Argo's `N/M`.

    `is_path_trusted`: the container's author chose where `data` was read. If not, other programs' JSON with a
    `timestamp`, and two numbers, are no report.

    Never raises. The refusal of something of no form at all is the one of our own document. Forms without
    a time of their own leave `timestamp` None.
    """
    outcome = parse_document(data)
    if isinstance(outcome, Progress):
        return outcome if is_path_trusted or _is_marked(outcome, data) else _FOREIGN
    if outcome.reason in _FINAL:
        return outcome
    for parse in (_parse_argo, parse_open_data_hub) if is_path_trusted else (parse_open_data_hub,):
        if (found := parse(data)) is not None:
            return found
    return outcome


def _is_marked(report: Progress, data: bytes) -> bool:
    if report.step is not None or report.epoch is not None or report.progress_percentage is not None:
        return True
    fields = parse_json(data)  # a document that has these is meant for us
    return type(fields.get("schemaVersion")) is int or isinstance(fields.get("trainerStatus"), dict)


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
