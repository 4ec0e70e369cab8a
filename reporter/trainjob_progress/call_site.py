"""Where a reporter is made, in which of the program's loops, and how a loop is left: from the frames."""

from __future__ import annotations

import opcode
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dis import Instruction
    from types import CodeType, FrameType
    from typing import Iterator, Literal, Mapping, Optional, Sequence

    from .flows import Flow

    Loop = tuple[CodeType, int]  # where it begins
    WayOut = Literal["break", "end", "failed", "unknown"]

# Instructions after which the next one does not follow; a jump goes where it goes.
_GOING_AWAY = ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "RETURN_", "RAISE_", "RERAISE")
MAX_FRAMES = 50  # of those that are looked at: a loop is near
MAX_KNOWN = 64
_known_loops: dict[tuple[CodeType, int], Sequence[tuple[int, int]]] = {}  # reading code takes milliseconds
_GENERATORS, _COROUTINE = 0x20 | 0x200, 0x80  # flags of code: generators, asynchronous ones too; `async def`

# Of `async for`, from where it asks to where it waits.
_ASKING = ("CACHE", "LOAD_CONST", "SEND", "YIELD_FROM")
_STDLIB = os.path.dirname(os.__file__)
_BETWEEN = ("YIELD", "RESUME", "STORE", "DELETE")  # a loop rests here: an iterator is dropped from outside


def find_place() -> object:
    """Where in the program a reporter is made."""
    frame = _find_caller()
    return None if frame is None else (frame.f_code, frame.f_lineno)


def _find_caller() -> Optional[FrameType]:
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame


def find_loops() -> list[Loop]:
    """The loops of the program that the caller runs in, innermost first.

    Looks at the caller's function, and at those near it that called it, as far as they are the program's own:
    whether there is a jump back over the place where each is. Generators of a library, such as tqdm's,
    lie between the two.
    """
    found: list[Loop] = []
    frame, is_generator = _find_caller(), False
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if _is_library(frame.f_code.co_filename):
            is_generator = bool(frame.f_code.co_flags & _GENERATORS)
            if not is_generator:
                break
            frame = frame.f_back
            continue
        starts = list(dict.fromkeys(start for start, _ in _find_loops(frame.f_code, frame.f_lasti)))
        driver = _find_for(frame)  # goes over what tracks: it is not around it
        if driver is None and is_generator and starts:
            driver = starts[0]  # it calls `next`
        found += [(frame.f_code, start) for start in starts if start != driver]
        if frame.f_code.co_name == "<module>":
            break
        is_generator = bool(frame.f_code.co_flags & _GENERATORS)
        frame = frame.f_back
    return found


def _find_loops(code: CodeType, at: int) -> Sequence[tuple[int, int]]:
    """The jumps back over `at` that make a loop around it, with what they jump to before them."""
    known = _known_loops.get((code, at))
    if known is None:
        if len(_known_loops) >= MAX_KNOWN:
            _known_loops.clear()
        known = _known_loops[code, at] = tuple(_read_loops(code, at))
    return known


def _read_loops(code: CodeType, at: int) -> Iterator[tuple[int, int]]:
    import dis

    whole = dis.Bytecode(code)
    instructions = list(whole)
    following: dict[int, list[int]] = {}
    back, before = [], ""
    for instruction, later in zip(instructions, [*instructions[1:], None]):  # noqa: B905 — younger than 3.9
        name, offset, to = instruction.opname, instruction.offset, instruction.argval
        is_jump = _is_jump(instruction)
        following[offset] = [to] if is_jump else []
        if later is not None and not name.startswith(_GOING_AWAY):
            following[offset].append(later.offset)
        # Of `await` and `yield from`: back to the waiting, and from a throw() to what comes after it.
        is_await = name == "JUMP_BACKWARD_NO_INTERRUPT" or before == "CLEANUP_THROW"
        if is_jump and not is_await and to <= at and to <= offset:
            back.append((to, offset))
        before = name
    if not back:
        return
    entries = getattr(whole, "exception_entries", ())  # Python 3.11 and later
    for entry in entries:
        for offset in range(entry.start, entry.end, 2):
            if offset in following:
                following[offset].append(entry.target)
    at = max(offset for offset in following if offset <= at)  # a call has more than one place
    is_handler = any(entry.target <= at for entry in entries)  # which stands behind the loops that it is in
    for to, offset in back:
        if at > offset and not is_handler:
            continue
        if at in _reach(to, following) and offset in _reach(at, following, but=to):
            yield _find_head(code, to, offset, back), offset


def _find_head(code: CodeType, to: int, offset: int, back: Sequence[tuple[int, int]]) -> int:
    """Where a loop begins. The condition of a `while` stands twice: at its end, from where it goes on behind
    the first one, and at its beginning, to where `continue` jumps."""
    line = _find_line(code, offset)
    return min((other for other, _ in back if other <= to and _find_line(code, other) == line), default=to)


def _is_jump(instruction: Instruction) -> bool:
    import dis

    return instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs


def _find_line(code: CodeType, at: int) -> Optional[int]:
    import dis

    return next((line for start, line in reversed(list(dis.findlinestarts(code))) if start <= at), None)


def _find_lines(code: CodeType, offsets: range) -> range:
    import dis

    lines = [line for start, line in dis.findlinestarts(code) if start in offsets and line]
    return range(min(lines, default=0), max(lines, default=0) + 1)


def _reach(start: int, following: Mapping[int, Sequence[int]], but: Optional[int] = None) -> set[int]:
    """Where the program may come to from there, as far as it does not come by `but`."""
    found, waiting = {start}, [start]
    while waiting:
        for offset in following[waiting.pop()]:
            if offset not in found and offset != but:
                found.add(offset)
                waiting.append(offset)
    return found


class Home:
    """The loop of the program that asks a tracked one for its items, and whether it is still there.

    An exception may leave a loop while a traceback or a variable keeps its iterator. This holds no frame,
    which would keep the function's variables. It reads the code when another loop begins, not before.
    """

    __slots__ = ("_around", "_chain", "_is_gone", "_loop", "_thread_id")

    def __init__(self, frame: Optional[FrameType], around: Sequence[object] = ()) -> None:
        """`frame`: the caller of `next`. `around`: loops that are not it, though around that."""
        self._around = around
        self._thread_id = threading.get_ident()
        self._loop: Optional[tuple[int, CodeType, range, range]] = None
        self._is_gone = True  # its function, as far as is known
        # Of the functions that run, innermost first. Not generators: they may rest, and be on no stack.
        self._chain: list[tuple[int, CodeType, int]] = []
        while frame is not None and len(self._chain) < MAX_FRAMES:
            code = frame.f_code
            if not code.co_flags & _GENERATORS and frame.f_globals.get("__package__") != __package__:
                self._chain.append((id(frame), code, frame.f_lasti))
            if code.co_name == "<module>":
                break
            frame = frame.f_back

    def is_left(self, flow: Flow, stacks: dict[int, dict[int, FrameType]]) -> bool:
        """Whether the program runs in that loop no more. `flow`: in which the tracked one was begun.

        `stacks`: by thread, frames by number; empty at first, and for one moment.
        """
        if self._chain:
            self._loop = self._find_loop()
            self._chain = []
        if self._loop is None:
            return False
        number, code, offsets, lines = self._loop
        stack = stacks.get(self._thread_id)
        if stack is None:
            stack = stacks[self._thread_id] = _find_stack(self._thread_id)
        if not stack or (code.co_flags & _COROUTINE and not flow.is_here):
            return False  # a coroutine may wait for what runs here
        frame = stack.get(number)
        self._is_gone = frame is None or frame.f_code is not code
        if frame is None or self._is_gone:
            return True
        return frame.f_lasti not in offsets and (frame.f_lineno or 0) not in lines

    @property
    def is_guarded(self) -> bool:
        """Whether an exception may have left it while its function goes on."""
        return self._loop is None or self._is_gone or _has_handler(self._loop[1], self._loop[2].start)

    def _find_loop(self) -> Optional[tuple[int, CodeType, range, range]]:
        """The nearest one. It is told by its offsets, and by its lines: handlers may stand elsewhere."""
        import dis

        for number, code, at in self._chain:
            found = [] if _is_library(code.co_filename) else list(_find_loops(code, at))
            found = [one for one in found if (code, one[0]) not in self._around]
            if found:
                start = max(found)[0]
                offsets = range(start, max(end for begin, end in found if begin == start) + 1)
                return number, code, offsets, _find_lines(code, offsets)
        if not self._chain or _is_library(self._chain[0][1].co_filename):
            return None
        number, code, at = self._chain[0]  # outside of all loops: this call alone
        if opcode.opname[code.co_code[at]] == "FOR_ITER":  # but for one that ends with `break`
            return None
        line = _find_line(code, at)  # or that of a `while`, whose condition stands twice
        back = [one for one in dis.get_instructions(code) if _is_jump(one) and at < one.argval <= one.offset]
        end = next((one.offset for one in back if _find_line(code, one.offset) == line), None)
        if end is None:
            return number, code, range(at, at + 1), range(0)
        offsets = range(at, end + 1)
        return number, code, offsets, _find_lines(code, offsets)


def _find_stack(thread_id: int) -> dict[int, FrameType]:
    frame, stack = sys._current_frames().get(thread_id), {}
    while frame is not None:
        stack[id(frame)] = frame
        frame = frame.f_back
    return stack


def _is_library(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path or path.startswith(("<frozen", _STDLIB))


def _has_handler(code: CodeType, at: int) -> bool:
    """Whether an exception at this place may be caught in its own function."""
    import dis

    whole = dis.Bytecode(code)
    entries = getattr(whole, "exception_entries", None)
    if entries is None:  # before Python 3.11 instructions begin what has a handler, and name it
        return any(one.opname.startswith("SETUP_") and one.offset < at < one.argval for one in whole)
    return any(entry.start <= at < entry.end for entry in entries)


def find_loop_code(frame: FrameType) -> Optional[CodeType]:
    """The code whose `for` asks for the next item; None when something else does."""
    return frame.f_code if _find_instruction(frame) == "FOR_ITER" else None


def is_by_hand(frame: Optional[FrameType], around: Sequence[object] = ()) -> bool:
    """Whether `iter` or `next` is called, and no `for` asks, by way of generators or of a `__next__` either.

    A generator that calls them outside of its loops takes a sample. `around`: loops that are not meant.
    """
    is_nearest = True
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code, is_call = frame.f_code, _find_instruction(frame).startswith(("CALL", "PRECALL"))
        if code.co_flags & _GENERATORS:
            if is_call and all((code, start) in around for start, _ in _find_loops(code, frame.f_lasti)):
                break
        elif _find_for(frame) is not None or (is_nearest and not is_call):
            return False
        else:
            is_nearest = False
        if code.co_name == "<module>":
            break
        frame = frame.f_back
    return True


def find_way_out(loop: Optional[CodeType]) -> WayOut:
    """How a loop was left whose iterator the caller's caller drops. `loop`: of `find_loop_code`.

    "break": or by `return`. "end": what is around its iterator is over, or the function that kept it.
    "failed": by an exception.
    """
    frame = sys._getframe(1).f_back
    if frame is None:
        return "unknown"  # the interpreter itself drops it, at its end
    name = _find_instruction(frame)
    while frame.f_code.co_flags & _GENERATORS and name.startswith(_BETWEEN) and frame.f_back is not None:
        frame, loop = frame.f_back, None  # that closes the generator in which the loop rests
        name = _find_instruction(frame)
    if name in ("POP_TOP", "POP_ITER"):  # they take the iterator off the stack; an exception passes them by
        return "break"
    if frame.f_code is loop and not name.startswith(("FOR_ITER", "END_FOR", "RETURN", *_BETWEEN)):
        return "failed"
    if _count_holders(frame) - 1 > _count_holders(sys._getframe()):  # 1: the variable `frame`
        return "unknown"  # a traceback holds it: what is around the iterator, such as `map`, has raised
    return "end" if name.startswith(("FOR_ITER", "END_FOR", "RETURN", "CALL", "PRECALL")) else "unknown"


def _count_holders(frame: FrameType) -> int:
    return sys.getrefcount(frame)


def _find_instruction(frame: FrameType) -> str:
    at = _find_offset(frame)
    return opcode.opname[frame.f_code.co_code[at]] if at >= 0 else ""


def _find_offset(frame: FrameType) -> int:
    code, at = frame.f_code.co_code, frame.f_lasti
    while at > 0 and opcode.opname[code[at]] == "CACHE":  # of the call before it
        at -= 2
    return at


def _find_for(frame: FrameType) -> Optional[int]:
    """Where the `for`, or `async for`, begins that asks for its next item; None when something else does."""
    code, at = frame.f_code.co_code, _find_offset(frame)
    while at > 0 and opcode.opname[code[at]] in _ASKING:
        at -= 2
    name = opcode.opname[code[at]] if at >= 0 else ""
    if name == "GET_ANEXT" and opcode.opname[code[at - 2]] == "SETUP_FINALLY":  # before Python 3.11
        at -= 2
    elif name not in ("FOR_ITER", "GET_ANEXT"):
        return None
    while at > 0 and opcode.opname[code[at - 2]] == "EXTENDED_ARG":
        at -= 2
    return at
