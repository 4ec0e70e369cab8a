"""Whether ranks that make no step hang, do nothing, or work. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from .claims import Seen
from .places import COLLECTIVE
from .reading import RankState
from .result import AT_WORK, IDLE

STILL_S = 80.0  # at one place: stacks are sampled from half a minute after the last step on
GONE = ("ended", "over", "stopped")
# Which may keep a CPU busy for minutes without another stack, in C.
_LONG = ("Compiling", "InCheckpoint", "InDataLoader")
_OWN = ("InDataLoader", "InOwnCode", "Sleeps", "WaitsForLocal")
_TAKES_LONG = ("Compiling", "InCheckpoint")
_SECTIONS = {
    "evaluation": "marks an evaluation",
    "checkpointSave": "marks a checkpoint",
    "checkpointRestore": "marks the reading of a checkpoint",
}


def is_hang(seen: Sequence[Seen]) -> bool:
    """Whether no rank has worked for two minutes, and nothing that is known of them could end that.

    Each waits at one place in a collective or in the backward pass, without CPU or accelerator, or is gone.
    The one that they wait for is stuck. What waits for a service, or for storage that answers, or has a
    worker that does, may go on by itself.
    """
    states = [each.state for each in seen if each.state.state not in GONE]
    waiting = [state for state in states if _waits_for_others(state)]
    others = [state for state in states if not _waits_for_others(state)]
    return (
        len(seen) > 1
        and len(waiting) >= max(1, len(others))
        and all(state.is_busy is False and (state.for_s or 0.0) >= STILL_S for state in states)
        and all(map(_is_stuck, others))
    )


def _waits_for_others(state: RankState) -> bool:
    """From and to whom it sends and receives is not known."""
    place = state.place
    return (
        state.state == ""
        and place.reason in ("InCollective", "InBackward")
        and place.where not in ("send", "recv")
    )


def _is_stuck(state: RankState) -> bool:
    """Whether nothing came to it for long, and it waits for its own processes or a file that is not read."""
    is_known = state.state in ("held", "storage") or (state.state == "" and state.place.reason in _OWN)
    return is_known and state.section not in _SECTIONS and (state.idle_s or 0.0) >= STILL_S


def weigh(seen: Sequence[Seen], *, is_whole: bool) -> tuple[str, str]:
    """IDLE, AT_WORK or neither, and that as a sentence.

    A rank is at work that marks a section or, outside of a collective, uses a CPU or an accelerator in
    changing stacks. One that does so in the same stack may wait, by spinning: for that most of those who wait
    for accelerators are known.
    """
    for each in seen:
        state = each.state
        if state.state or state.place.kind == COLLECTIVE:
            continue
        is_changing = bool(state.frames) and (state.for_s or 0.0) < STILL_S
        says = _SECTIONS.get(state.section, "")
        if not says and state.is_busy and (is_changing or state.place.reason in _LONG):
            says = f"uses a CPU or an accelerator in {state.place.where}"
        if says:
            return AT_WORK, f"{'A process' if each.rank is None else f'Rank {each.rank}'} {says}."
    working = [each.state for each in seen if each.state.state not in GONE]
    is_idle = len(seen) > 1 and all(
        state.is_busy is False
        and state.place.reason not in _TAKES_LONG
        and bool(state.frames)
        and (state.for_s or 0.0) >= STILL_S
        for state in working
    )
    if not (is_whole and is_idle):
        return "", ""
    return IDLE, f"All {len(seen)} ranks were read: none uses a CPU or an accelerator, nor changes its place."
