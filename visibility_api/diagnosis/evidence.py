"""Whether ranks that make no step hang, do nothing, or work. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from .claims import Seen
from .places import COLLECTIVE
from .result import AT_WORK, IDLE

STILL_S = 80.0  # at one place: stacks are sampled from half a minute after the last step on
GONE = ("ended", "over", "stopped")
# Which may keep a CPU busy for minutes without another stack, in C.
_LONG = ("Compiling", "InCheckpoint", "InDataLoader")
_TAKES_LONG = ("Compiling", "InCheckpoint")
_SECTIONS = {
    "evaluation": "marks an evaluation",
    "checkpointSave": "marks a checkpoint",
    "checkpointRestore": "marks the reading of a checkpoint",
}


def is_hang(seen: Sequence[Seen]) -> bool:
    """Whether no rank has worked for two minutes, and nothing that is known of them could end that.

    Each waits at one place in a collective or in the backward pass, without CPU or accelerator, or is gone.
    What waits for data, storage, a service or a process of its own may go on by itself.
    """
    waiting = [each.state for each in seen if each.state.state not in GONE]
    return (
        len(seen) > 1
        and all(
            state.state == ""
            and state.place.reason in ("InCollective", "InBackward")
            and state.place.where not in ("send", "recv")  # from and to whom is not known
            and state.is_busy is False
            and (state.for_s or 0.0) >= STILL_S
            for state in waiting
        )
        and bool(waiting)
    )


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
