"""Where a thread is: names of code, innermost first. No variable, argument or directory is in them."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Optional

MAX_FRAMES = 16
MAX_NAME = 100  # characters of a module or a function


def sample(thread: int) -> list[str]:
    """The frames of the thread with this identifier, as `module:function:line`; none where it has ended."""
    frame: Optional[FrameType] = sys._current_frames().get(thread)
    named: list[str] = []
    while frame is not None and len(named) < MAX_FRAMES:
        code, module = frame.f_code, _find_module(frame.f_globals, frame.f_code)
        if module.partition(".")[0] != __package__:  # what a tracked loop waits for is in the frames inside
            named.append(f"{module}:{_find_function(code)}:{frame.f_lineno or 0}")
        frame = frame.f_back
    return named


def _find_module(variables: dict[str, Any], code: CodeType) -> str:
    """The module's name; of the program itself and of what is no module, the file's."""
    name = variables.get("__name__")
    if type(name) is str and name != "__main__" and name.replace(".", "a").isidentifier():
        return name[-MAX_NAME:]
    return os.path.basename(code.co_filename)[-MAX_NAME:] or "?"


def _find_function(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
    return name[-MAX_NAME:]
