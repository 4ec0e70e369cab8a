"""Whatever a training process may have written, in any of the forms that are understood."""

from __future__ import annotations

from .argo import parse_argo
from .document import Progress, Refused, parse_document
from .open_data_hub import parse_open_data_hub

# Reasons that hold for every form.
_FINAL = frozenset({"Empty", "TooLarge", "NotUTF8"})


def parse_report(data: bytes) -> Progress | Refused:
    """Our document, Kubeflow's trainerStatus, Open Data Hub's JSON or Argo's `N/M`.

    Never raises. The refusal of something of no form at all is the one of our own document. Forms without
    a time of their own leave `timestamp` None.
    """
    outcome = parse_document(data)
    if isinstance(outcome, Progress) or outcome.reason in _FINAL:
        return outcome
    for parse in (parse_argo, parse_open_data_hub):
        if (found := parse(data)) is not None:
            return found
    return outcome
