"""Since when this process and those that it has made do nothing: no work, no data from network or disk.

By /proc alone, on Linux; where that is not readable nothing is said. What waits for a lock, a pipe, another
process of its own or a sleep to end does nothing. What waits for an answer of a service may get it, also
where it polls the service's socket. A poll that has a listening socket as well is a server's: gloo, NCCL and
torch's store wait so for the other ranks all the time.

What waits for a pipe or a file is woken with each part, so a thread that was not woken gets nothing. Of files
that holds for file systems that read in small parts. A program that serves one (FUSE) may fetch all of a file
first, and direct I/O wakes at its end: nothing is said of these, nor of what writes.
"""

from __future__ import annotations

import os
import struct
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional, Sequence

    # Seconds on the CPU, but for the thread that asks; bytes received, of all interfaces; the threads, and
    # how often each was woken that waits for a file or a pipe.
    Activity = tuple[float, int, dict[int, int]]

SHARE = 0.02  # of one CPU
RECEIVED_PER_S = 4096.0  # bytes: what launchers and stores send to see that all live is less
MAX_PROCESSES, MAX_TASKS = 1024, 512  # of the pod, and of this process and its own
MAX_POLLED = 1024  # of one thread
# Where the kernel has what waits for a lock, a child or a sleep, what for a pipe, and what polls.
_WAITS = (
    "futex", "do_wait", "hrtimer", "do_nanosleep", "sigsuspend", "do_sigtimedwait",
)  # fmt: skip
_PIPES = ("pipe_", "anon_pipe", "unix_stream")
_POLLS = ("do_poll", "do_sys_poll", "poll_schedule", "ep_poll", "do_epoll", "do_select")
# The numbers of their system calls, of x86-64 and of arm64.
_POLL, _SELECT, _EPOLL = {7, 271, 73}, {23, 270, 72}, {232, 281, 22, 441}
_LISTENING = "0A"
# Those of read, readv, pread and preadv, by machine; -1 is a page of a file in memory.
_READS = {
    "x86_64": ("0", "17", "19", "295", "327", "-1"),
    "aarch64": ("63", "65", "67", "69", "286", "-1"),
}  # fmt: skip
_FILES = ("btrfs", "ceph", "cifs", "ext2", "ext3", "ext4", "lustre", "nfs", "nfs4", "smb3", "xfs")


class Idleness:
    """To be asked again and again, by one thread. `read`: what there is now; None while one is at work."""

    def __init__(self, read: Callable[[], Optional[Activity]]) -> None:
        self._read = read
        self._last: Optional[tuple[float, Activity]] = None
        self._since: Optional[float] = None  # Unix seconds

    def look(self) -> Optional[float]:
        """Since when, in Unix seconds; None: it is at work, or that is not known."""
        at_s, now, last = time.monotonic(), self._read(), self._last
        self._last = None if now is None else (at_s, now)
        if now is None or last is None:
            self._since = None
            return None
        took_s, (cpu_s, received, tasks) = at_s - last[0], last[1]
        is_idle = (
            now[2] == tasks
            and now[0] - cpu_s <= SHARE * took_s
            and now[1] - received <= RECEIVED_PER_S * took_s
        )
        if not is_idle:
            self._since = None
        elif self._since is None:
            self._since = time.time() - took_s
        return self._since


def read() -> Optional[Activity]:
    """Of this process now; None while one of them works, waits for an answer, or cannot be read."""
    try:
        cpu_s, tasks = time.process_time() - time.thread_time(), dict[int, int]()
        own, asking, ticks = os.getpid(), threading.get_native_id(), os.sysconf("SC_CLK_TCK")
        for pid, spent in _find_family(own):
            cpu_s += 0.0 if pid == own else spent / ticks
            for name in os.listdir(f"/proc/{pid}/task"):
                wakings = 0 if int(name) == asking else watch(pid, name)
                if len(tasks) >= MAX_TASKS or wakings is None:
                    return None
                tasks[int(name)] = wakings
        return cpu_s, _count_received(), tasks
    except (
        AttributeError,
        LookupError,
        OSError,
        ValueError,
        struct.error,
    ):  # another system, or one that has just ended
        return None


def _find_family(own: int) -> Iterator[tuple[int, int]]:
    """Each process that is this one or was made by it, and its time on the CPU, in ticks."""
    found: dict[int, tuple[int, int]] = {}
    names = [name for name in os.listdir("/proc") if name.isdecimal()]
    if len(names) > MAX_PROCESSES:
        raise ValueError("more processes than are looked at")
    for name in names:
        try:
            fields = _read(f"/proc/{name}/stat").rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        found[int(name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    family = {own}
    while True:
        more = {pid for pid, (parent, _) in found.items() if parent in family} - family
        if not more:
            break
        family |= more
    for pid in family:
        yield pid, found[pid][1]


def watch(pid: int, task: str) -> Optional[int]:
    """How often a thread was woken by parts of the pipe or file that it waits for; 0 where it waits for none
    or would run, for what it uses of a CPU is counted. None: it waits for what may come by itself."""
    where = _read(f"/proc/{pid}/task/{task}/wchan")
    if where.startswith(_PIPES):
        return _count_wakings(pid, task)
    is_ready = where in ("", "0") and _find_state(pid, task) == "R"
    is_polling = where.startswith(_POLLS) and not _awaits_answer(pid, task)
    if is_ready or is_polling or where.startswith(_WAITS):
        return 0
    return _count_wakings(pid, task) if _reads_file(pid, task) else None


def _find_state(pid: int, task: str) -> str:
    return _read(f"/proc/{pid}/task/{task}/stat").rpartition(") ")[2][:1]


def _awaits_answer(pid: int, task: str) -> bool:
    """Of a thread that polls: whether a socket of the network, as a client does."""
    call = _read(f"/proc/{pid}/task/{task}/syscall").split()
    if call[0] == "running":  # what it uses of a CPU is counted
        return False
    number, first, second = int(call[0]), int(call[1], 16), int(call[2], 16)
    if number in _SELECT:
        return first > 0  # without files it is a sleep
    if number in _POLL:
        polled = _find_polled(pid, first, second)
    elif number in _EPOLL:
        entries = _read(f"/proc/{pid}/fdinfo/{first}").splitlines()
        polled = [int(each.split()[1]) for each in entries if each.startswith("tfd:")]
    else:
        return True
    links = [os.readlink(f"/proc/{pid}/fd/{each}") for each in polled[:MAX_POLLED]]
    sockets = {each[len("socket:[") : -1] for each in links if each.startswith("socket:[")}
    if sockets:  # a pair of one host is none of the network
        lines = _read(f"/proc/{pid}/net/unix").splitlines()[1:]
        sockets -= {line.split()[6] for line in lines}
    return len(polled) > MAX_POLLED or (bool(sockets) and not sockets & _find_listening(pid))


def _reads_file(pid: int, task: str) -> bool:
    """Whether it waits for a part of a file that comes in small parts."""
    call = _read(f"/proc/{pid}/task/{task}/syscall").split()
    if call[0] not in _READS.get(os.uname().machine, ()):
        return False
    mounts = [line.partition(" - ") for line in _read(f"/proc/{pid}/mountinfo").splitlines()]
    types = {mount.split()[0]: rest.split()[0] for mount, _, rest in mounts}
    if call[0] == "-1":  # which one is not known
        is_served = any(each.startswith("fuse") for each in types.values())
        return _find_state(pid, task) == "D" and not is_served
    lines = _read(f"/proc/{pid}/fdinfo/{int(call[1], 16)}").splitlines()
    about = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    is_direct = int(about["flags"], 8) & os.O_DIRECT
    return not is_direct and types.get(about["mnt_id"]) in _FILES


def _count_wakings(pid: int, task: str) -> int:
    found = _read(f"/proc/{pid}/task/{task}/status").partition("\nvoluntary_ctxt_switches:")[2]
    return int(found.split()[0])


def _find_polled(pid: int, address: int, count: int) -> Sequence[int]:
    """The files of a poll(2), from the memory of what waits in it."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        found = memory.read(8 * min(count, MAX_POLLED + 1))
    return [file for file, _ in struct.iter_unpack("=ii", found) if file >= 0]


def _find_listening(pid: int) -> set[str]:
    """The inodes of listening sockets, which the kernel names first."""
    found = set()
    for name in ("tcp", "tcp6"):
        if not os.path.exists(f"/proc/{pid}/net/{name}"):
            continue  # without IPv6
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
            next(file)
            for line in file:
                fields = line.split()
                if fields[3] != _LISTENING:
                    break
                found.add(fields[9])
    return found


def _count_received() -> int:
    lines = _read("/proc/self/net/dev").splitlines()[2:]
    return sum(int(line.partition(":")[2].split()[0]) for line in lines)


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()
