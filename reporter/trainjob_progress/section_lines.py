"""Lines that say that a program saves, restores or evaluates, or has done so. Pure: text in, marks out.

Of Transformers, Lightning, Keras, Megatron, torchtitan, fairseq and DeepSpeed. A section that no line ends
is over with the next line that shows a step.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from .marks import EVALUATION, RESTORE, SAVE
from .patterns import lazily

_MAY_SAY = lazily(r"checkpoint|\bsav(?:ing|ed)\b|evaluat|validation|eval_runtime", re.IGNORECASE)
_BEGINS = (
    (
        SAVE,
        lazily(
            r"\bsaving model checkpoint to\b|\bsaving checkpoint at iteration\b|\[torch\] saving \S"
            r"|\bpreparing to save checkpoint\b|\bsaving the checkpoint \(or staging\b|\bsaving model to\b",
            re.IGNORECASE,
        ),
    ),
    (RESTORE, lazily(r"\bloading (?:the |distributed |release )?checkpoint (?:from|at)\b", re.IGNORECASE)),
    (
        EVALUATION,
        lazily(
            r"\*{5} running evaluation \*{5}|\bbegin validation on\b|^\W{0,4}evaluating (?:iter|on)\b"
            r"|^validation(?: dataloader \d{1,4})?:\s",
            re.IGNORECASE,
        ),
    ),
)
_ENDS = (
    (
        SAVE,
        lazily(
            r"\bsuccessfully saved checkpoint\b|\bsaved checkpoint \S{1,500} \(epoch\b|\bfinished saving\b"
            r"|\bcheckpoint \S{1,200} is ready now",
            re.IGNORECASE,
        ),
    ),
    (
        RESTORE,
        lazily(r"\bsuccessfully loaded checkpoint\b|\bfinished loading the checkpoint\b", re.IGNORECASE),
    ),
    (EVALUATION, lazily(r"\bvalidation loss at iteration\b|\bvalid on '\w{1,64}' subset\b", re.IGNORECASE)),
)
_STEP = lazily(
    r"\bcheckpoint-(\d{1,15})\b|\bglobal_step(\d{1,15})\b|\b(?:at|from) iteration\s{1,16}(\d{1,15})\b"
    r"|@ (\d{1,15}) updates\b|\bglobal step (\d{1,15})\b",
    re.IGNORECASE,
)
_TOOK = lazily(r"'eval_runtime': '?(\d{1,9}(?:\.\d{1,9})?)")  # Transformers, at an evaluation's end


class Mark(NamedTuple):
    """What a line says of a section."""

    kind: int
    is_begin: bool
    step: Optional[int] = None  # of a checkpoint
    took_s: Optional[float] = None  # where the line says it itself


def read_mark(line: str) -> Optional[Mark]:
    """None where it says nothing."""
    if not _MAY_SAY.search(line):
        return None
    took = _TOOK.search(line)
    if took:
        return Mark(EVALUATION, is_begin=False, took_s=float(took.group(1)))
    for patterns, is_begin in ((_ENDS, False), (_BEGINS, True)):
        for kind, pattern in patterns:
            if pattern.search(line):
                found = _STEP.search(line) if kind == SAVE else None
                step = next(filter(None, found.groups())) if found else None
                return Mark(kind, is_begin, None if step is None else int(step))
    return None
