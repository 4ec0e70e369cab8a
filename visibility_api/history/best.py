"""Which value of a metric is the best, where a word of its name tells.

As the page has it (dashboard/src/model/best.ts), and the plugin. One table tests all three
(tests/unit/best_values.json).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

_LOSS, _SCALE = re.compile(r"\w*loss(es)?"), re.compile(r"loss[_\s-]?scal", re.IGNORECASE)
_LOWER = re.compile(r"err|errors?|perplexity|ppl|nll|r?mse|mae|wer|cer|fid")
_HIGHER = re.compile(
    r"acc\d?|accuracy|precision|recall|f1|bleu\d?|rouge\w?|auc|auroc|map|miou|iou|rewards?|psnr|ssim"
)
_DIGITS = 7  # of earlier values (docs/document.md): a last one that is the same to these is the best


def better_of(metric: str) -> Callable[[float, float], float] | None:
    """`min` or `max`; None where the name does not tell."""
    apart = re.sub("([a-z])([A-Z])", r"\1 \2", metric)  # topAcc has acc, and mIoU has miou
    words = re.split("[^a-z0-9]+", f"{metric} {apart}".lower())
    is_loss = any(map(_LOSS.fullmatch, words)) and not _SCALE.search(metric)
    if is_loss or any(map(_LOWER.fullmatch, words)):
        return min
    return max if any(map(_HIGHER.fullmatch, words)) else None


def best_value(metric: str, last: str, earlier: Iterable[float]) -> str | None:
    """The best of all as text; None where the name does not tell, or no value is finite."""
    better, best = better_of(metric), math.nan
    if better is None:
        return None
    try:
        now = float(last)
    except ValueError:
        now = math.nan
    for value in (*earlier, now):
        if math.isfinite(value):
            best = value if math.isnan(best) else better(best, value)
    if math.isnan(best):
        return None
    text = f"{best:.{_DIGITS}g}"
    return last if text == f"{now:.{_DIGITS}g}" else text
