"""What one pod prints of its training processes, at the request of `workloads/rank_states.py`: hostile bytes.

@now SECONDS MACHINE HOST       by the pod's clock
@self PID                       of what prints this
@rank RANK                      then the rank's file, as the reporter has written it
@trace RANK                     then CPython's own dump, if it is newer than that file
@proc PID PARENT STATE TICKS SYSCALL WCHAN NAME
@cpu PID STATE TICKS            a second later
@end
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from visibility_api.reports.fields import MAX_INTEGER, amount, count, time_of
from visibility_api.reports.marks import SECTIONS
from visibility_api.reports.ranks import SLOWEST

from .places import NOWHERE, Place, place_of
from .result import MAX_FRAMES as KEPT_FRAMES

MAX_RANKS = 64  # of one pod
MAX_PROCESSES = 1024  # of one pod; of further ones nothing is known
MAX_PARTS = 4 * MAX_PROCESSES  # lines that begin as ours do: more than there are of all that is kept
MAX_PLAIN = 8  # processes of a pod in which none writes a rank's file
MAX_FRAMES = 16  # that say where it is; fewer are kept
MAX_RANK = 2**31 - 1  # as clients read it
MAX_DEVICES = 8
BUSY_PERCENT = 5.0  # of an accelerator
LONGEST_S = 30 * 86400.0
WORK_AGE_S = 90.0  # of a file that says how a rank works: they are written each 15 s
_BUSY_TICKS = 30  # in the second between both, of 100
_NOT_PLAIN = re.compile(
    r"[^ -~]"
)  # one character of another alphabet makes all of a text four times as large
_FRAME = re.compile(r"[^:/\\\s]{1,100}:[\w.<>-]{1,100}:\d{1,7}")
_TRACE_FRAME = re.compile(r'  File "([^"\n]{1,400})", line (\d{1,7}) in ([\w.<>-]{1,80})')
_PACKAGED = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python\d[\w.]*/")
_PYTHON = ("python", "pt_main_thread", "ray::")
# Of the calls in which a thread waits, by machine: arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h
_CALLS = {
    "x86_64": {
        **dict.fromkeys((202, 449), "a lock"), **dict.fromkeys((35, 230), "its sleep to end"),
        **dict.fromkeys((42, 43, 44, 45, 46, 47, 299), "the network"), **dict.fromkeys((61, 247), "a child"),
        **dict.fromkeys((0, 17, 19), "a read"), **dict.fromkeys((1, 18, 20, 74, 75), "a write"),
        **dict.fromkeys((7, 23, 232, 270, 271, 281), "events"),
    },
    "aarch64": {
        **dict.fromkeys((98, 449), "a lock"), **dict.fromkeys((101, 115), "its sleep to end"),
        **dict.fromkeys((202, 203, 206, 207, 211, 212, 242), "the network"),
        **dict.fromkeys((95, 260), "a child"),
        **dict.fromkeys((63, 65, 67), "a read"), **dict.fromkeys((64, 66, 68, 82, 83), "a write"),
        **dict.fromkeys((22, 72, 73), "events"),
    },
}  # fmt: skip
# The same by where the kernel waits, for a process whose call may not be read.
_WAITS = (
    ("futex", "a lock"), ("hrtimer", "its sleep to end"), ("do_nanosleep", "its sleep to end"),
    ("do_wait", "a child"),
    ("sk_", "the network"), ("tcp_", "the network"), ("inet_", "the network"), ("unix_", "the network"),
    ("pipe_", "a read"), ("ep_poll", "events"), ("do_epoll", "events"), ("do_poll", "events"),
    ("poll_", "events"), ("do_select", "events"), ("nfs", "storage"), ("rpc_", "storage"),
    ("fuse_", "storage"), ("io_schedule", "storage"),
)  # fmt: skip


_STUCK = ("a lock", "its sleep to end")  # C code that holds the interpreter's lock there ends by nobody else


class RankWork(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rank's own work for a step over the last minute, in seconds, as its reporter measures it."""

    work_s: float
    step_s: float | None = None  # of the whole step, with what it waits for others
    best_s: float | None = None  # the least of its run
    slowest: str = ""  # of SLOWEST


class Device(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An accelerator of a rank, as its reporter reads it. None: not known."""

    name: str  # such as gpu_0, within the pod
    used: tuple[float | None, ...]  # of MEASURED, in that order


class RankState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of one training process, at the moment that its pod was asked."""

    rank: int | None = None  # None: not known
    step: int | None = None  # the last one that it has finished
    state: str = ""  # "", "stopped", "ended", "over" (its run), "storage" (waits for it), "held" (by C code)
    place: Place = NOWHERE
    frames: tuple[str, ...] = ()
    for_s: float | None = None  # so long at least
    is_busy: bool | None = None  # it used a CPU, or its accelerator
    idle_s: float | None = None  # for so long it has done nothing that may end by itself, as far as is seen
    call: str = ""  # what it waits for, by the kernel
    section: str = ""  # of SECTIONS, the one that it marks
    world_size: int | None = None  # ranks of its run, as it says
    began: float | None = None  # its run, in Unix seconds by the pod's clock
    written: float | None = None  # the file, by the same clock
    work: RankWork | None = None  # of one that is at work
    devices: tuple[Device, ...] = ()


# Fields of a device in a rank's file, and what MLflow calls them.
MEASURED = {
    "utilizationPercentage": "utilization_percentage",
    "memoryUsedPercentage": "memory_usage_percentage",
    "memoryUsedMegabytes": "memory_usage_megabytes",
    "powerWatts": "power_usage_watts",
}


class _Process(NamedTuple):
    parent: int
    state: str
    ticks: int
    call: str
    name: str


class _Printed:
    """The parts of the output."""

    def __init__(self, output: bytes) -> None:
        self.now: float | None = None
        self.machine, self.host, self.own = "", "", -1
        self.files: dict[int, bytes] = {}
        self.traces: dict[int, bytes] = {}
        self.processes: dict[int, _Process] = {}
        self.later: dict[int, tuple[str, int]] = {}
        self.is_whole = False
        for head, text in _parts(output):
            kind, *words = head.split(" ")
            self._take(kind, words, text)

    def _take(self, kind: str, words: list[str], text: bytes) -> None:
        numbers = [count(int(word)) if _is_number(word) else None for word in words]
        match kind, numbers:
            case "@now", [int(now), *_] if self.now is None:
                self.now, self.machine, self.host, *_ = float(now), *words[1:], "", ""
            case "@self", [int(pid)]:
                self.own = pid
            case "@rank", [int(rank)] if len(self.files) < MAX_RANKS and rank <= MAX_RANK:
                self.files.setdefault(rank, text)
            case "@trace", [int(rank)] if len(self.traces) < MAX_RANKS:
                self.traces.setdefault(rank, text)
            case "@proc", [int(pid), int(parent), _, int(ticks), number, _, *_] if (
                len(self.processes) < MAX_PROCESSES
            ):
                call = _CALLS.get(self.machine, {}).get(-1 if number is None else number, "")
                call = call or next((says for begins, says in _WAITS if words[5].startswith(begins)), "")
                name = " ".join(words[6:])[:16]
                self.processes.setdefault(pid, _Process(parent, words[2][:1], ticks, call, name))
            case "@cpu", [int(pid), _, int(ticks)] if len(self.later) < MAX_PROCESSES:
                self.later.setdefault(pid, (words[1][:1], ticks))
            case "@end", []:
                self.is_whole = True


def read_pod(output: bytes) -> list[RankState]:
    """The training processes of one pod, each rank once; nothing for what cannot be read."""
    printed = _Printed(output)
    found = [state for rank in printed.files if (state := _read_rank(printed, rank)) is not None]
    return found or list(_plain(printed))


def _read_rank(printed: _Printed, rank: int) -> RankState | None:
    try:
        file = msgspec.json.decode(printed.files[rank].strip())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    pid = count(file.get("pid")) if isinstance(file, dict) else None
    if pid is None or count(file.get("rank")) != rank:
        return None
    if printed.host and file.get("host", printed.host) != printed.host:
        return None  # of another pod, on a volume that both have
    stack = file.get("stack") if isinstance(file.get("stack"), dict) else {}
    frames, since = _frames(stack.get("frames")), time_of(stack.get("since"))
    began, written = time_of(file.get("began")), time_of(file.get("time"))
    process = printed.processes.get(pid)
    state, is_busy = _state(printed, pid)
    is_busy = is_busy or (True if _uses_accelerator(file.get("accelerators")) else is_busy)
    trace = _read_trace(printed.traces.get(rank, b""))
    if time_of(file.get("ended")) is not None:
        state = "over"
    elif state == "" and trace:
        state, frames, since = "held", trace, None
    if state in ("ended", "over"):
        frames, since = (), None
    step_at = _age_s(printed.now, time_of(file.get("stepTime")))
    is_sampled = frames and since is not None
    call = process.call if process is not None else ""
    idle_since = None
    if state == "held" and call in _STUCK:
        idle_since = written
    elif state in ("", "storage"):
        idle_since = time_of(stack.get("idleSince"))
    marked = file.get("section")
    section = marked if isinstance(marked, str) and marked in SECTIONS else ""
    return RankState(
        rank=rank,
        step=count(file.get("step")),
        state=state,
        place=place_of(frames, section),
        frames=frames[:KEPT_FRAMES],
        for_s=_age_s(printed.now, since)
        if is_sampled
        else _age_s(printed.now, written)
        if step_at is None
        else step_at,
        is_busy=is_busy,
        idle_s=None if is_busy is not False else _age_s(printed.now, idle_since),
        call=call,
        world_size=count(file.get("worldSize")),
        began=began.timestamp() if began is not None else None,
        written=written.timestamp() if written is not None else None,
        section=section,
        work=None if state else _read_work(file, _age_s(printed.now, written)),
        devices=() if state else _devices(file.get("accelerators")),
    )


def _read_work(file: dict[str, Any], age_s: float | None) -> RankWork | None:
    """What a file that was written lately says of it."""
    work_s, slowest = amount(file.get("workSeconds")), file.get("slowest")
    if not work_s or age_s is None or age_s > WORK_AGE_S:
        return None
    return RankWork(
        work_s=work_s,
        step_s=amount(file.get("stepSeconds")),
        best_s=amount(file.get("bestWorkSeconds")),
        slowest=slowest if isinstance(slowest, str) and slowest in SLOWEST else "",
    )


def _plain(printed: _Printed) -> Iterator[RankState]:
    """Of a pod in which no rank writes a file, by the kernel alone."""
    found = [
        pid
        for pid, process in printed.processes.items()
        if pid != printed.own and process.name.startswith(_PYTHON)
    ]
    for pid in found[:MAX_PLAIN]:
        state, is_busy = _state(printed, pid)
        if state != "ended":
            call = printed.processes[pid].call
            yield RankState(state=state, is_busy=is_busy, call=call)


def _state(printed: _Printed, pid: int) -> tuple[str, bool | None]:
    """What the kernel says of a process, and whether it used a CPU."""
    first, later = printed.processes.get(pid), printed.later.get(pid)
    if first is None:
        is_gone = printed.is_whole and bool(printed.processes) and len(printed.processes) < MAX_PROCESSES
        return ("ended" if is_gone else ""), None
    if first.state in ("Z", "X") or (later is None and printed.is_whole):
        return "ended", None
    state, ticks = later if later is not None else (first.state, first.ticks)
    is_busy = ticks - first.ticks >= _BUSY_TICKS if later is not None else None
    if state in "Tt" and first.state in "Tt":
        return "stopped", is_busy
    if state == first.state == "D" and not is_busy:
        return "storage", is_busy
    return "", is_busy


def _read_trace(dump: bytes) -> tuple[str, ...]:
    """The frames of the last thread in a dump of CPython's faulthandler, which is the main one."""
    blocks = dump.decode(errors="replace").split("(most recent call first):")
    if len(blocks) < 2:
        return ()
    frames = []
    for path, line, function in _TRACE_FRAME.findall(blocks[-1])[:MAX_FRAMES]:
        packaged = _PACKAGED.match(path)
        module = path.rpartition("/")[2]  # of the program's own, which may have the name of a library
        if packaged is not None:
            module = path[packaged.end() :].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        frames.append(f"{module}:{function}:{line}")
    return _frames(frames)


def _uses_accelerator(devices: object) -> bool:
    """Whether one of the rank's own is at work, as far as its reporter can read them."""
    found = devices[:MAX_DEVICES] if isinstance(devices, list) else []
    used = [amount(each.get("utilizationPercentage")) for each in found if isinstance(each, dict)]
    return any(each is not None and each >= BUSY_PERCENT for each in used)


def _devices(given: object) -> tuple[Device, ...]:
    found = (
        [each for each in given[:MAX_DEVICES] if isinstance(each, dict)] if isinstance(given, list) else []
    )
    return tuple(
        [
            Device(
                f"{'tpu' if each.get('kind') == 'tpu' else 'gpu'}_{number}",
                tuple([amount(each.get(field)) for field in MEASURED]),
            )
            for each in found
            if (number := count(each.get("index"))) is not None
        ]
    )


def _frames(given: object) -> tuple[str, ...]:
    """Names of code; what is none is left out."""
    found = given[:MAX_FRAMES] if isinstance(given, list) else []
    plain = [_NOT_PLAIN.sub("_", each) for each in found if isinstance(each, str)]
    return tuple([each for each in plain if _FRAME.fullmatch(each) is not None])


def _parts(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Each line that begins with an `@`, and what stands between it and the next; the first MAX_PARTS."""
    start = 0 if output.startswith(b"@") else output.find(b"\n@") + 1
    for _ in range(MAX_PARTS):
        end = output.find(b"\n@", start)
        head, _, text = output[start : end if end >= 0 else None].partition(b"\n")
        yield head[:200].decode(errors="replace"), text
        if end < 0:
            return
        start = end + 1


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= len(str(MAX_INTEGER))


def _age_s(now: float | None, moment: datetime | None) -> float | None:
    if now is None or moment is None:
        return None
    return min(LONGEST_S, max(0.0, now - moment.timestamp()))
