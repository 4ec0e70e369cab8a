"""Where each rank stands: its own file, and what that says of one that does not get on."""

from __future__ import annotations

import contextlib
import ctypes  # noqa: F401 — or there is no watchdog
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.reporting import wait_until
from tests.slow_volume import mounted
from trainjob_progress import heartbeat, idleness, report, stacks, track
from trainjob_progress.document import prepare
from trainjob_progress.heartbeat import MAX_BYTES, QUIET_S, USUAL, Heartbeat, Rhythm
from trainjob_progress.live_run import LiveRun
from trainjob_progress.marks import EVALUATION, SAVE, Marks
from trainjob_progress.reporter import Reporter
from trainjob_progress.watchdog import make_watchdog
from trainjob_progress.work import KEPT, WINDOW_S, Work, read_cpu_s

REPORTER = Path(__file__).parents[2] / "reporter"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("TRAINJOB_PROGRESS_FILE", str(path))
    return path


def read(path: Path, rank: int) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(Path(f"{path}.rank-{rank}").read_bytes())
    except FileNotFoundError:
        return {}
    return said


def count_threads() -> int:
    return sum(thread.name == "progress Heartbeat" for thread in threading.enumerate())


@pytest.mark.parametrize("rank", [0, 3])
def test_each_rank_has_a_file_of_its_own_from_its_beginning_to_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with report(total_steps=5) as r:
        wait_until(lambda: read(path, rank))
        known = {"rank": rank, "pid": os.getpid(), "localRank": 1, "worldSize": 4, "step": 0}
        assert read(path, rank).items() >= {**known, "host": os.uname().nodename}.items()
        assert read(path, rank)["began"] <= read(path, rank)["time"]
        assert "stack" not in read(path, rank)
        assert r.is_active is (rank == 0)
        r.step(2)
        assert count_threads() == 1
    wait_until(lambda: "ended" in read(path, rank))
    assert read(path, rank)["step"] == 2
    wait_until(lambda: count_threads() == 0)
    assert path.exists() is (rank == 0)
    assert not Path(f"{path}.rank-{rank}.trace").exists()
    assert "TRAINJOB_PROGRESS_OWNER" not in os.environ


def test_loops_count_on_another_rank_as_they_do_on_rank_0(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    for _ in track(range(2)):
        for _ in track(range(5)):
            pass
    wait_until(lambda: "ended" in read(path, 1))
    assert read(path, 1)["step"] == 10


@pytest.mark.parametrize("world", [{}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_the_only_rank_has_none_while_it_gets_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, world: dict[str, str]
) -> None:
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    with report(total_steps=5) as r:
        r.step()
        r.flush()
    wait_until(lambda: count_threads() == 0)
    assert os.listdir(path.parent) == ["progress.json"]


@pytest.mark.parametrize("rank", [None, 2])
def test_a_rank_that_does_not_get_on_says_where_it_is_until_it_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, rank: int | None
) -> None:
    monkeypatch.setattr(heartbeat, "QUIET_S", 0.0)
    monkeypatch.setattr(heartbeat, "STACK_INTERVAL_S", 0.1)
    monkeypatch.setattr(heartbeat, "IDLE_INTERVAL_S", 0.0)
    monkeypatch.setattr(idleness, "read", lambda: (0.0, 0, {}))
    here, seen = threading.Event(), dict[str, Any]()
    with report(total_steps=9, rank=rank) as r:

        def watch() -> None:
            wait_until(lambda: "idleSince" in (seen.update(read(path, rank or 0)) or seen.get("stack", ())))
            here.set()

        threading.Thread(target=watch).start()
        here.wait(60)  # this thread stands still
        stack = seen["stack"]
        [wait, place, *_] = stack["frames"]
        assert (wait.split(":")[0], place.split(":")[0]) == ("threading", "threading")
        assert any(f"{__name__}:test_a_rank_that_does_not" in frame for frame in stack["frames"])
        assert max(stack["since"], stack["idleSince"]) <= stack["time"] <= seen["time"]
        monkeypatch.setattr(heartbeat, "QUIET_S", QUIET_S)
        r.step()
        wait_until(lambda: "stack" not in read(path, rank or 0))
    wait_until(lambda: "ended" in read(path, rank or 0))


def test_a_stack_has_names_of_code_alone() -> None:
    here, may_end = threading.Event(), threading.Event()

    def wait(password: str) -> str:
        here.set()
        may_end.wait()
        return password

    variables: dict[str, Any] = {"__name__": "not a module's name", "wait": wait}
    exec(compile("def outer():\n    wait('secret')\n", "/home/someone/train.py", "exec"), variables)
    thread = threading.Thread(target=variables["outer"])
    thread.start()
    here.wait()
    frames = stacks.sample(thread.ident or 0)
    may_end.set()
    thread.join()
    names = [frame.rpartition(":")[0] for frame in frames]
    assert "train.py:outer" in names
    assert any(name.startswith(f"{__name__}:") and name.endswith("wait") for name in names)
    assert "secret" not in str(frames)
    assert "/" not in str(frames)
    assert stacks.sample(thread.ident or 0) == []


def test_a_file_has_2048_bytes_at_most(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()
    run = LiveRun()
    run.marks, run.levels = Marks(), [Reporter()]
    monkeypatch.setattr(stacks, "sample", lambda _: [f"{'ö' * 100}:{place}:1" for place in range(16)])
    monkeypatch.setattr(heartbeat, "QUIET_S", -1.0)
    monkeypatch.setattr(heartbeat, "STACK_INTERVAL_S", 0.0)
    beat = Heartbeat(run, str(path), 7, is_alone=False)
    beat.look()
    body = beat.look()
    assert 1500 < len(body) <= MAX_BYTES
    assert json.loads(body)["stack"]["frames"][0].endswith(":0:1")


def test_what_a_wait_is_measured_by() -> None:
    rhythm = Rhythm()
    assert rhythm.is_explained(QUIET_S)
    assert not rhythm.is_explained(QUIET_S + 1)
    rhythm.note(300.0, 1)  # compilation comes once
    assert not rhythm.is_explained(QUIET_S + 1)
    for step in range(1, 20):
        rhythm.note(300.0 + 10 * step, 1)
    assert rhythm.is_explained(USUAL * 10)
    assert not rhythm.is_explained(USUAL * 10 + 1)
    rhythm.note(300.0 + 190 + 120, 1)  # an evaluation
    assert rhythm.is_explained(120)
    assert not rhythm.is_explained(121)
    for second in range(1, 3601):
        rhythm.note(610.0 + second, 10)
    assert rhythm.is_explained(59)  # it was long ago
    assert not rhythm.is_explained(62)


PLACES: dict[str, Callable[[Path], object]] = {
    "no directory": lambda _: None,
    "a FIFO": lambda file: (file.parent.mkdir(), os.mkfifo(file)),
    "a directory": lambda file: file.mkdir(parents=True),
    "a link to a device": lambda file: (file.parent.mkdir(), file.symlink_to("/proc/self/fd/1")),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("suffix", ["", ".trace"])
def test_a_place_where_no_file_may_be_costs_that_file_and_no_word(
    tmp_path: Path, place: str, suffix: str
) -> None:
    path = tmp_path / "there" / "progress.json"
    PLACES[place](Path(f"{path}.rank-1{suffix}"))
    is_there = os.path.lexists(f"{path}.rank-1{suffix}")
    result = run_rank("with report(total_steps=2) as r:\n    r.step(2)\n    wait(1.5)", path)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "")
    assert os.path.lexists(f"{path}.rank-1{suffix}") is is_there


PRELUDE = f"""
import ctypes, faulthandler, os, signal, subprocess, sys, threading
sys.path.insert(0, {str(REPORTER)!r})
from trainjob_progress import heartbeat, report, track, watchdog
watchdog.SPENT_S = 0.002
def wait(seconds):
    threading.Event().wait(seconds)
"""


def start_rank(script: str, path: Path, **environ: str) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "TRAINJOB_PROGRESS_FILE": str(path),
        "RANK": "1",
        "PYTHONWARNINGS": "error",
        **environ,
    }
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, str(path)], env=environ, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run_rank(script: str, path: Path, **environ: str) -> Any:
    with start_rank(script, path, **environ) as process:
        out, error = process.communicate(timeout=60)
        return SimpleNamespace(returncode=process.returncode, stdout=out, stderr=error)


STALLING = """
heartbeat.QUIET_S = heartbeat.IDLE_INTERVAL_S = 0.0
with report(total_steps=2):
    before, file = set(sys.modules), sys.argv[1] + ".rank-1"
    while not os.path.exists(file) or '"stack"' not in open(file).read():
        wait(0.05)
    print(sorted(name for name in sys.modules.keys() - before if name.startswith("trainjob_progress.")))
"""


def test_a_stall_imports_nothing(tmp_path: Path) -> None:
    """Seen: what another thread imports took 0.7 MiB, by an arena of its own of the C library."""
    result = run_rank(STALLING, tmp_path / "progress.json")
    assert (result.returncode, result.stdout) == (0, "[]\n")


HOLDING = """
def hold():  # until the test has seen the trace
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
own = open(os.environ["OWN"], "w")
faulthandler.dump_traceback_later(2, file=own)
with report(total_steps=2) as r:
    wait(1.2)
    hold()
    wait(1.2)
    print(os.path.getsize(sys.argv[1] + ".rank-1.trace"))
own.close()
"""


def test_a_process_that_holds_the_lock_in_c_leaves_a_trace_until_it_goes_on(tmp_path: Path) -> None:
    path, own = tmp_path / "progress.json", tmp_path / "own"
    trace = Path(f"{path}.rank-1.trace")
    with start_rank(HOLDING, path, OWN=str(own)) as process:
        wait_until(lambda: trace.exists() and trace.stat().st_size, timeout_s=240.0)
        text = trace.read_text()
        out, error = process.communicate("\n", timeout=60)
    *_, main = text.split("\n\n")
    assert "(most recent call first)" in main.splitlines()[0]
    assert main.splitlines()[1].endswith(" in hold")
    assert (process.returncode, error, out) == (0, "", "0\n")  # the old trace is gone
    assert "in hold" in own.read_text()  # the program's own watchdog was left alone
    assert not trace.exists()


STOPPED = """
with report(total_steps=2) as r:
    wait(1.2)
    made = os.stat(sys.argv[1] + ".rank-1.trace").st_mtime_ns
    print("ready", flush=True)
    for _ in range(40):
        wait(0.05)
        sum(range(10**5))
    print(os.stat(sys.argv[1] + ".rank-1.trace").st_mtime_ns == made)
"""


def test_a_process_that_was_stopped_leaves_no_trace(tmp_path: Path) -> None:
    """Seen: the stacks of threads that go on were read, and one process in thirty ended by it."""
    with start_rank(STOPPED, tmp_path / "progress.json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        threading.Event().wait(1.5)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60) == ("True\n", "")


def test_where_there_is_no_lock_there_is_no_watchdog_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "trace")
    assert make_watchdog(path)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert make_watchdog(path) is None


HANDLERS = {
    "before": "signal.signal(signal.SIGURG, print)\nwith report(total_steps=1):\n    wait(1.5)",
    "after": "with report(total_steps=1):\n    wait(1.5)\n"
    "    signal.signal(signal.SIGURG, print)\n    wait(1.5)",
    "in C": "faulthandler.register(signal.SIGURG)\nwith report(total_steps=1):\n    wait(1.5)",
}


@pytest.mark.parametrize("when", HANDLERS)
def test_a_signal_that_the_program_handles_is_the_programs(tmp_path: Path, when: str) -> None:
    path = tmp_path / "progress.json"
    script = (
        f"{HANDLERS[when]}\n    print(os.path.exists(os.environ['TRAINJOB_PROGRESS_FILE'] + '.rank-1.trace'))"
    )
    script += "\n    print(signal.getsignal(signal.SIGURG))"
    result = run_rank(script, path)
    assert result.stdout.split()[0] == "False"
    assert ("print" in result.stdout) is (when != "in C")
    assert (result.returncode, result.stderr) == (0, "")


ABUSE = """
def is_handled():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return bool((int(lines["SigCgt"], 16) | int(lines["SigIgn"], 16)) >> (signal.SIGURG - 1) & 1)
def find_own():
    own = os.stat(sys.argv[1] + ".rank-1.trace")
    return next(int(one) for one in os.listdir("/proc/self/fd") if is_same(own, int(one)))
def is_same(own, descriptor):
    try:
        return os.path.samestat(own, os.fstat(descriptor))
    except OSError:  # the listing's own
        return False
def take_in_python():
    signal.signal(signal.SIGURG, lambda *_: None)
def take_in_c():
    ctypes.CDLL(None).signal(int(signal.SIGURG), ctypes.c_void_p(1))
with report(total_steps=1):
    wait(1.2)
    assert is_handled()
"""
TAKEN = """
    number = find_own()
    if {is_closed_first}:
        os.close(number)
        assert os.open(os.devnull, os.O_RDONLY) < number  # what is opened next gets another number
        wait(1.2)
        assert not is_handled()
    os.dup2(os.open(sys.argv[1] + ".theirs", os.O_CREAT | os.O_WRONLY), number)
    os.write(number, b"a checkpoint")
    wait(1.2)
    assert not is_handled()
    os.kill(os.getpid(), signal.SIGURG)
os.write(number, b", whole")
with open(sys.argv[1] + ".theirs") as theirs:
    print(theirs.read())
"""


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_a_programs_file_that_has_the_traces_descriptor_is_left_alone(
    tmp_path: Path, is_closed_first: bool
) -> None:
    result = run_rank(ABUSE + TAKEN.format(is_closed_first=is_closed_first), tmp_path / "progress.json")
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "a checkpoint, whole\n")
    assert not (tmp_path / "progress.json.rank-1.trace").exists()


@pytest.mark.parametrize("take", ["take_in_python", "take_in_c"])
@pytest.mark.parametrize("forks", [True, False])
def test_a_handler_of_the_programs_outlives_a_fork_and_the_run(
    tmp_path: Path, take: str, forks: bool
) -> None:
    script = f"""
    {take}()
    if {forks}:
        if os.fork() == 0:
            os._exit(not is_handled())
        assert os.wait()[1] == 0
for thread in threading.enumerate():
    if thread.name == "progress Heartbeat":
        thread.join()
print(is_handled())
"""
    result = run_rank(ABUSE + script, tmp_path / "progress.json")
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "True\n")


def test_a_trace_that_was_removed_costs_no_word(tmp_path: Path) -> None:
    result = run_rank(ABUSE + "    os.unlink(sys.argv[1] + '.rank-1.trace')", tmp_path / "progress.json")
    assert (result.returncode, result.stderr) == (0, "")


FORKING = """
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from trainjob_progress import *; report().step(7)"
class Forking:
    def __iter__(self):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        return iter([1])
r = report(total_steps=9)
wait(1.2)
r.step()
if os.fork() == 0:
    report(total_steps=3).step()
    os._exit(signal.getsignal(signal.SIGURG) != signal.SIG_DFL or threading.active_count() != 1)
print(os.wait()[1])
subprocess.run([sys.executable, "-c", CHILD, sys.path[0]], check=True)
for _ in r.track(Forking()):
    print(sum(thread.name == "progress Heartbeat" for thread in threading.enumerate()))
r.finish()
"""


def test_children_of_a_rank_write_no_file_and_a_fork_ends_nothing_for_long(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    result = run_rank(FORKING, path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == ["0", "1"]
    said = read(path, 1)
    assert (said["step"], "ended" in said) == (1, True)


def test_a_rank_that_is_killed_leaves_its_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    with start_rank("with report(total_steps=2) as r:\n    input()", path) as process:
        wait_until(lambda: read(path, 1))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM  # nothing of ours is in its way
    assert "ended" not in read(path, 1)


@pytest.mark.parametrize(
    ("waited_s", "computed_s", "section", "said"),
    [
        (0.0, 0.1, False, (0.1, 0.1, "Productive")),
        (0.3, 0.1, False, (0.4, 0.1, "DataLoading")),
        (0.1, 0.3, False, (0.4, 0.1, "Productive")),
        (
            0.4,
            0.4,
            False,
            (0.5, 0.1, "DataLoading"),
        ),  # loads on the thread that trains: never more than the step
        (0.3, 0.1, True, (0.1, 0.1, "Productive")),  # an evaluation is no work of a step
    ],
)
def test_own_work_is_what_a_rank_loads_and_computes(
    waited_s: float, computed_s: float, section: bool, said: tuple[float, float, str]
) -> None:
    clock = {"cpu_s": 0.0}
    marks = Marks()
    work = Work(lambda _: clock["cpu_s"])
    at_s, step = 0.0, 0
    for second in (False, True):
        for _ in range(2 * KEPT):
            work.note(at_s, step, marks)
            at_s, step = at_s + WINDOW_S, step + 10
            marks.loading_s += 10 * (waited_s if second else 0.0)
            clock["cpu_s"] += 10 * (computed_s if second else 0.1)
            if second and section:
                marks.add(EVALUATION, 1.0)
    found = work.find()
    assert (found["workSeconds"], found["bestWorkSeconds"], found["slowest"]) == said
    assert found["stepSeconds"] == WINDOW_S / 10


def test_own_work_has_its_share_of_the_checkpoints_that_a_rank_waits_for() -> None:
    marks, cpu_s = Marks(), [0.0]
    work = Work(lambda _: cpu_s[0])
    at_s, step = 0.0, 0
    for save_s in (*[20.0] * 4, *[100.0] * 4):
        for window in range(12):
            work.note(at_s, step, marks)
            took_s = save_s if window == 6 else 0.0
            at_s, step, cpu_s[0] = at_s + WINDOW_S + took_s, step + 10, cpu_s[0] + 2.0
            if took_s:
                marks.add(SAVE, took_s)
        work.note(at_s, step, marks)
    found = work.find()
    assert (found["workSeconds"], found["bestWorkSeconds"]) == (
        pytest.approx(0.2 + 100 / 120, rel=0.01),
        pytest.approx(0.2 + 20 / 120, rel=0.01),
    )
    assert found["stepSeconds"] == pytest.approx(WINDOW_S / 10 + 100 / 120, rel=0.01)
    assert found["slowest"] == "CheckpointSave"


def test_nothing_is_said_of_work_that_nobody_knows() -> None:
    work = Work(lambda _: None)
    for second in range(100):
        work.note(10.0 * second, second, Marks())
    assert work.find() == {}


@pytest.fixture(autouse=True)
def _all_is_over() -> Iterator[None]:
    yield
    report(sinks=[])
    wait_until(lambda: count_threads() == 0)


class Doing:
    """What a process and its own do, as the kernel would say it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.cpu_s, self.received, self.tasks = 0.0, 0, {7: 0, 8: 40}
        self.is_waiting = True

    def read(self) -> idleness.Activity | None:
        return (self.cpu_s, self.received, self.tasks) if self.is_waiting else None


@pytest.mark.parametrize(
    ("change", "is_idle"),
    [
        ({"cpu_s": 0.05, "received": 5000}, True),
        ({"cpu_s": 1.0}, False),
        ({"received": 50_000}, False),
        ({"tasks": {7: 0, 9: 40}}, False),
        ({"tasks": {7: 0, 8: 41}}, False),
        ({"is_waiting": False}, False),
    ],
    ids=str,
)
def test_a_process_is_idle_while_neither_it_nor_its_own_do_or_get_anything(
    change: dict[str, Any], is_idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    doing = Doing()
    monkeypatch.setattr(
        idleness, "time", SimpleNamespace(monotonic=lambda: doing.now_s, time=lambda: doing.now_s)
    )
    watched = idleness.Idleness(doing.read)
    assert watched.look() is None
    for _ in range(3):
        doing.now_s += 5
        assert watched.look() == 1000
    doing.now_s += 5
    for name, value in change.items():
        setattr(doing, name, value)
    assert watched.look() == (1000 if is_idle else None)


CONNECTED = (
    "import os, select, socket, time; server = socket.create_server(('127.0.0.1', 0)); "
    "client = socket.create_connection(server.getsockname()); client.settimeout(60); "
    "accepted, pair = server.accept(), socket.socketpair(); polled, events = select.poll(), select.epoll(); "
)


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="by Linux's /proc")
@pytest.mark.parametrize(
    ("script", "waits_for_nothing"),
    [
        ("polled.register(os.pipe()[0]); polled.poll()", True),
        ("polled.register(pair[0], select.POLLIN); polled.poll()", True),
        ("select.select([], [], [], 60)", True),
        ("client.recv(1)", False),
        ("events.register(client, select.EPOLLIN); events.poll()", False),
        ("select.select([client], [], [])", False),
        ("events.register(client, select.EPOLLIN); events.register(server); events.poll()", True),
    ],
    ids=["pipe", "pair", "sleep", "answer", "answer by epoll", "answer by select", "server"],
)
def test_a_poll_of_a_services_socket_waits_for_an_answer(script: str, waits_for_nothing: bool) -> None:
    command = (sys.executable, "-c", f"{CONNECTED}print(1, flush=True); {script}")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            where = Path(f"/proc/{child.pid}/wchan")
            wait_until(lambda: "poll" in where.read_text() or "select" in where.read_text())
            assert (idleness.watch(child.pid, str(child.pid)) is not None) is waits_for_nothing
        finally:
            child.kill()


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="by Linux's /proc")
@pytest.mark.parametrize("script", ["input()", "while True: pass"])
def test_a_child_that_waits_for_a_pipe_is_counted_and_so_is_what_one_spends(script: str) -> None:
    command = (sys.executable, "-c", f"print(1, flush=True)\n{script}")
    seen: list[idleness.Activity] = []

    def is_seen() -> bool:
        found = idleness.read()
        seen.extend([found] if found is not None and child.pid in found[2] else [])
        return bool(seen) and (script == "input()" or seen[-1][0] > seen[0][0] + 0.2)

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            wait_until(is_seen)
        finally:
            child.kill()


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="by Linux's /proc")
@pytest.mark.parametrize(
    ("seconds", "reads", "is_served"),
    [
        (0, "os.read(file, 9)", False),
        (0.02, "while os.read(file, 9000): pass", False),
        (0, "os.read(file, 9)", True),
        (0, "os.read(os.open(name, os.O_DIRECT), 9)", False),
    ],
    ids=["unanswered", "slow", "of a program that may fetch all of it", "direct"],
)
def test_a_read_that_wakes_nobody_gets_nothing(
    seconds: float, reads: str, is_served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own word, of a file system of ours."""
    if not is_served:
        monkeypatch.setattr(idleness, "_FILES", ("fuse",))
    script = f"import os, sys; name = sys.argv[1]; file = os.open(name, 0); print(1, flush=True)\n{reads}"
    ending = contextlib.ExitStack()  # who reads it ends after its volume alone
    with ending, mounted(tmp_path / "volume", seconds) as path:
        command = (sys.executable, "-c", script, str(path))
        child = ending.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        ending.callback(child.kill)
        assert child.stdout is not None
        child.stdout.readline()
        task, where = str(child.pid), Path(f"/proc/{child.pid}/wchan")
        wait_until(lambda: where.read_text() in ("request_wait_answer", "folio_wait_bit_common"))
        found = {idleness.watch(child.pid, task) for _ in range(9)}
        if seconds:
            wait_until(lambda: found.add(idleness.watch(child.pid, task)) or len(found - {0, None}) > 2)
        else:
            assert (found == {None}) is (is_served or "DIRECT" in reads)
            assert len(found) == 1


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="by Linux's /proc")
@pytest.mark.parametrize(
    ("state", "volume", "expected"),
    [("D", "nfs4", True), ("S", "nfs4", False), ("D", "fuse.s3fs", False)],
)
def test_a_page_of_a_mapped_file_is_read_where_no_program_serves_files(
    state: str, volume: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So seen of ext4 on a disk that gave no answer: `-1` in `syscall`, `D`, and no switch in 20 s."""
    said = {
        "syscall": "-1 0x7ffd436b1cc0 0x7fdd1f79d7ab",
        "mountinfo": f"30 1 8:1 / / rw - overlay o rw\n31 30 0:4 / /data rw - {volume} s rw",
        "stat": f"7 (python3) {state} 1 7",
    }
    monkeypatch.setattr(idleness, "_read", lambda path: said[path.rpartition("/")[2]])
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    assert idleness._reads_file(7, "7") is expected


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="by Linux's /proc")
def test_own_work_has_what_a_thread_waits_for_a_cpu_that_others_use() -> None:
    cores = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            os.sched_setaffinity(other.pid, {min(cores)})
            os.sched_setaffinity(0, {min(cores)})
            began_s, had_s = time.monotonic(), time.thread_time()
            before_s = read_cpu_s(threading.get_ident())
            while time.thread_time() - had_s < 0.2:
                pass
            took_s, after_s = time.monotonic() - began_s, read_cpu_s(threading.get_ident())
        finally:
            os.sched_setaffinity(0, cores)
            other.kill()
    assert before_s is not None
    assert after_s is not None
    assert took_s > 0.3
    assert after_s - before_s == pytest.approx(took_s, rel=0.1)
