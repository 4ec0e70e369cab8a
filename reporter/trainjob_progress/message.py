"""What a run's message says: what it does, what runs beside it, and how those before it have ended. Pure."""

from __future__ import annotations

from .positions import find_position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    from .levels import Level
    from .positions import Position

    # Runs that failed or have a name: how many, and how the last of them have ended.
    Earlier = tuple[int, tuple[str, ...]]

MAX_SHOWN = 3  # runs beside another one or before it
MAX_NOTE = 100  # characters of one before it


def note(earlier: Earlier, name: Optional[str], ending: str, at: Position) -> Earlier:
    """With one more."""
    count, last = earlier
    where = _show(at)
    text = f"{name or 'an attempt'} {ending}" + (f" at {where}" if where else "")
    return count + 1, (*last, text[:MAX_NOTE])[-MAX_SHOWN:]


def say(
    message: Optional[str],
    counted: Sequence[Level],
    uncounted: Sequence[Level],
    beside: Sequence[tuple[Optional[str], Sequence[Level]]],
    earlier: Earlier,
) -> Optional[str]:
    """`message`: as it was given. `counted`, `uncounted`: the open levels whose steps are shown, and those
    within. `beside`: the message and the levels of each run beside it."""
    named = [*(level._name for level in counted), message]
    uncounted = [level for level in uncounted if not level._is_sample]
    if uncounted:
        named.append(_find_name(uncounted, "" if message else "another loop"))
    said = ": ".join(part for part in named if part)
    if uncounted:
        said = f"{said} {_show(find_position(uncounted))}".strip()
    parts = [said] if said else []
    for given, levels in beside[:MAX_SHOWN]:
        if levels:
            parts.append(f"{given or _find_name(levels)} {_show(find_position(levels))}".strip())
    count, last = earlier
    if count:
        more = f" and {count - len(last)} more" if count > len(last) else ""
        parts.append(f"earlier: {', '.join(last)}{more}")
    return "; ".join(parts) or None


def _find_name(levels: Sequence[Level], instead: str = "another loop") -> str:
    return next((level._name for level in levels if level._name), instead)


def _show(position: Position) -> str:
    """Steps, or epochs where no step was counted."""
    step, epoch = position.step, position.epoch
    if position.total_steps:
        return f"{step}/{position.total_steps}"
    if epoch and not step:
        return f"epoch {epoch:g}" + (f"/{position.total_epochs:g}" if position.total_epochs else "")
    return f"{step or ''}"
