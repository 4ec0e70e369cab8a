"""Where a reporter is made, in which of the program's loops, and how a loop is left: from the frames."""

from __future__ import annotations

import opcode
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Optional

_STDLIB = os.path.dirname(os.__file__)
_DROPPING = {opcode.opmap[name] for name in ("POP_TOP", "POP_ITER") if name in opcode.opmap}


def find_place() -> object:
    """Where in the program a reporter is made."""
    frame = _find_caller()
    return None if frame is None else (frame.f_code, frame.f_lineno)


def _find_caller() -> Optional[FrameType]:
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame


def find_loop() -> object:
    """The outermost loop of the program that the caller runs in; None without one.

    Looks at the caller's function, and at those that called it, as far as they are the program's own: whether
    there is a jump back over the place where each of them is.
    """
    import dis

    found: object = None
    frame = _find_caller()
    while frame is not None and not _is_library(frame.f_code.co_filename):
        at, before = frame.f_lasti, ""
        for instruction in dis.get_instructions(frame.f_code):
            # Of `await` and `yield from`: back to the waiting, and from a throw() to what comes after it.
            is_await = instruction.opname == "JUMP_BACKWARD_NO_INTERRUPT" or before == "CLEANUP_THROW"
            before = instruction.opname
            if is_await:
                continue
            if instruction.opcode not in dis.hasjrel and instruction.opcode not in dis.hasjabs:
                continue
            if isinstance(instruction.argval, int) and instruction.argval <= at <= instruction.offset:
                found = (frame.f_code, instruction.argval)
                break
        if frame.f_code.co_name == "<module>":
            break
        frame = frame.f_back
    return found


def _is_library(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path or path.startswith(("<frozen", _STDLIB))


def is_break(frame: FrameType) -> bool:
    """Whether a loop whose iterator is dropped is left by `break` or `return`, not by an exception.

    Those two take the iterator off the stack themselves; an exception does not come to that instruction.
    """
    return frame.f_code.co_code[frame.f_lasti] in _DROPPING
