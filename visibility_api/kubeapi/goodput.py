"""`status.goodput`, as v1alpha1 has it: what the time of a job, or of many, was spent on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec

from visibility_api.jobs.goodput import goodput, read_goodput, scheduling_goodput, wasted
from visibility_api.jobs.ledger import DAY_S, HOUR_S, KINDS
from visibility_api.jobs.summary import JobProgress
from visibility_api.models import v1alpha1
from visibility_api.models.wire import struct_of

from .age import duration

_Goodput = struct_of(v1alpha1.Goodput)
_GoodputOfWindow = struct_of(v1alpha1.GoodputOfWindow)

# Of SecondsByKind, as KINDS.
_FIELDS = [
    b'"%s":%%.0f' % each.alias.encode() for each in v1alpha1.SecondsByKind.model_fields.values() if each.alias
]


def encode_goodput(document: JobProgress) -> v1alpha1.Goodput | None:
    """None where nothing is known yet."""
    account = read_goodput(document.goodput)
    if account is None:
        return None
    ledger = account.ledger
    number = document.resources.accelerators if document.resources is not None else 0
    lasted_s = ledger.until - ledger.began
    return _Goodput(
        time=whole_second(ledger.until),
        current=None if document.phase.is_final else KINDS[account.doing],
        whole=_window(ledger.whole, number),
        hour=_window(ledger.hour(), number) if lasted_s > HOUR_S else None,
        day=_window(ledger.day(), number) if lasted_s > DAY_S else None,
        wasted_message=_describe_waste(wasted(account)) or None,
    )


def goodput_cell(document: JobProgress) -> str | None:
    """Such as 83%."""
    account = read_goodput(document.goodput)
    share = None if account is None else goodput(account.ledger.whole)
    return None if share is None else f"{100 * share:.0f}%"


def _window(seconds: Sequence[float], accelerators: int) -> v1alpha1.GoodputOfWindow:
    of_accelerators = [accelerators * each for each in seconds] if accelerators else None
    return encode_window(seconds, of_accelerators, weights=seconds)


def encode_window(
    seconds: Sequence[float], of_accelerators: Sequence[float] | None, *, weights: Sequence[float]
) -> v1alpha1.GoodputOfWindow:
    """The sums of one window; `of_accelerators`: the same times the accelerators, None for none. `weights`:
    those of the two that the percentages are of."""
    return _GoodputOfWindow(
        percentage=_percentage(goodput(weights)),
        scheduling_percentage=_percentage(scheduling_goodput(weights)),
        seconds=_by_kind(seconds),
        accelerator_seconds=_by_kind(of_accelerators) if of_accelerators is not None else None,
    )


def _describe_waste(seconds: Mapping[int, float]) -> str:
    """Such as "Stalled 2h, Recovery 90s"."""
    parts = [(round(some), KINDS[kind]) for kind, some in seconds.items() if some >= 0.5]
    return ", ".join([f"{kind} {duration(some)}" for some, kind in sorted(parts, reverse=True)])


def _by_kind(seconds: Sequence[float]) -> v1alpha1.SecondsByKind:
    """In fact its JSON: a struct of twelve fields takes five times as long."""
    fields = [name % each for name, each in zip(_FIELDS, seconds, strict=True) if each >= 0.5]
    return cast(v1alpha1.SecondsByKind, msgspec.Raw(b"{%s}" % b",".join(fields)))


def _percentage(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def whole_second(moment: float) -> datetime:
    """As `metav1.Time`; in fact the encoded text."""
    text: str = msgspec.to_builtins(datetime.fromtimestamp(int(moment), UTC))
    return cast(datetime, text)
