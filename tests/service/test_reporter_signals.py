"""SIGTERM with a reporter: the handlers run that run without one, and the document says what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PREAMBLE = """
import os, signal, sys, threading, time
from trainjob_progress import *
from trainjob_progress import termination
termination.FLUSH_TIMEOUT_S = 60  # the last document comes however slow the machine is
"""


def run(directory: Path, script: str) -> tuple[int, str, dict[str, Any]]:
    """(exit code, output, document) of a script that ends by itself."""
    path = directory / "progress.json"
    script = PREAMBLE + script
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "reporter"),
        "TRAINJOB_PROGRESS_FILE": str(path),
    }
    result = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=60
    )
    return result.returncode, result.stdout + result.stderr, json.loads(path.read_bytes())


def kill(name: str) -> str:
    return f"os.kill(os.getpid(), signal.{name})"


def exits(code: int, on: str = "SIGTERM") -> str:
    return f"signal.signal(signal.{on}, lambda *_: sys.exit({code}))\n"


TERM = kill("SIGTERM")
WITH, WITHOUT = "with report(total_steps=10) as r:\n  ", "r = report(total_steps=10)\n"
OWN = """
def own(number, frame):
    print("own", number, flush=True)
signal.signal(signal.SIGTERM, own)
"""
BEGIN = "r = report(total_steps=10)\nr.flush(20)\nr.__enter__()\n"
STEPS = f"\nwhile not r.is_due: time.sleep(0.01)\nr.step(4)\n{TERM}\nr.__exit__(None, None, None)"
STACKS = "signal.signal(signal.SIGUSR1, lambda *_: print('stacks', flush=True))\n"
# submitit's is a method.
METHOD = "class Own:\n  def on(self, *_): sys.exit({code})\nsignal.signal(signal.{name}, Own().on)\n"
FLAG = f"""
stop = False
def own(*_):
    global stop
    stop = True
signal.signal(signal.SIGTERM, own)
for i in track(range(10)):
    if i == 3: {TERM}
    if stop: break
"""
NESTED = """
def train():
    for _ in track(range(2)):
        for i in track(range(5)):
            if i == 4: {end}
train()
"""
BARE = "for i in track(range(10)):\n  if i == 4: {end}"
RAISES = "def own(*_): raise TimeoutError\nsignal.signal(signal.SIGUSR1, own)\n"
CAUGHT = f"""
for _ in track(range(2)):
    try:
        for i in track(range(5)): {kill("SIGUSR1")}
    except TimeoutError: pass
    for i in track(range(5)):
        if i == 2: break
    break
"""
KEPT_BEFORE = f"""
try: {kill("SIGUSR1")}
except TimeoutError as error: kept = error
def train():
    for i in track(range(5)):
        if i == 4: sys.exit(3)
train()
"""
KEPT_IN_LOOP = f"""
def work(i):
    if i == 2: {kill("SIGUSR1")}
    if i == 4: sys.exit(3)
for i in track(range(5)):
    try: work(i)
    except TimeoutError as error: kept = error
"""
CHAINED = f"""
with report(total_steps=10) as r:
    found = signal.getsignal(signal.SIGTERM)
    def own(*of):
        {{chains}}
        print("own", flush=True)
    signal.signal(signal.SIGTERM, own)
    {{wait}}
    r.step(4)
    {TERM}
    r.step(6)
"""
IGNORED = f"""
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with report(total_steps=1) as r:
    child = "import os, signal; {TERM}; print('alive')"
    subprocess.run([sys.executable, "-c", child])
    {TERM}
    r.step()
"""
CTRL_C = f"""
with report(total_steps=10) as r:
    try:
        r.step(4)
        {kill("SIGINT")}
        time.sleep(60)
    except KeyboardInterrupt:
        print("saved")
"""
End = tuple[int, str, "str | None", "int | None"]
PREEMPTED: End = (0, "", "preempted", 4)
# By what happens: the program, then its exit code, what it prints, how its run ended and after which step
# (None: whichever).
ENDS: dict[str, tuple[str, End]] = {
    # Seen: a handler set after report() was run, but the run it ended was called completed.
    "a handler of its own runs once, set before": (OWN + BEGIN + STEPS, (0, "own 15\n", "preempted", 4)),
    "a handler of its own runs once, set after": (BEGIN + OWN + STEPS, (0, "own 15\n", "preempted", 4)),
    # Seen: `sys.exit(0)` on SIGTERM was completed, 100 %.
    **{
        f"a handler exits with {code}, {'in' if block == WITH else 'without'} a block": (
            f"{exits(code)}{block}r.step(4); {TERM}; r.step(6)",
            (code, "", "preempted", 4),
        )
        for code in (0, 3)
        for block in (WITH, WITHOUT)
    },
    # Seen: submitit's, which calls `sys.exit(-1)` when the run is queued again, was failed.
    **{
        f"a handler of {name} exits with {code}": (
            f"{METHOD.format(name=name, code=code)}{WITH}r.step(4); {kill(name)}; r.step(6)",
            (code, "", "preempted", 4),
        )
        for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU")
        for code in (0, 144)
    },
    **{
        f"a handler of {name} is set late and exits in a bare loop, {how}": (
            loop.format(end=f"{exits(9, name).strip()}; {kill(name)}"),
            (9, "", "preempted", 4),
        )
        for name in ("SIGTERM", "SIGUSR1")
        for how, loop in (("one", BARE), ("nested", NESTED))
    },
    "an exception of a handler that is caught is no end": (RAISES + CAUGHT, (0, "", "stopped", None)),
    # Seen: an exit long after it was called a preemption.
    "an exception of a handler was kept before": (RAISES + KEPT_BEFORE, (3, "", None, 4)),
    "an exception of a handler was kept in the loop": (RAISES + KEPT_IN_LOOP, (3, "", None, 4)),
    "an exit follows a scheduler's signal": (
        f"{STACKS}{WITH}r.step(4); {kill('SIGUSR1')}; sys.exit(3)",
        (3, "stacks\n", "failed", 4),
    ),
    "a loop stops at a flag": (FLAG, PREEMPTED),
    # Seen: where there was none before, ours ended the process from within it.
    **{
        f"a handler calls the one before it, {number}": (
            CHAINED.format(chains=chains, wait=wait),
            (0, "own\n", "finished", 10),
        )
        for number, (chains, wait) in enumerate(
            (chains, wait)
            for chains in ("if callable(found): found(*of)", "if found: found(*of)", "found(*of)")
            for wait in ("pass", "while not r.is_due: time.sleep(0.01)")
        )
    },
    "no handler": (f"{WITHOUT}r.step(4); {TERM}; time.sleep(60)", (-signal.SIGTERM, "", "preempted", 4)),
    "it outlives the signal and keeps its plan": (
        f"{OWN}{WITH}r.step(4); {TERM}; r.step(6)",
        (0, "own 15\n", "finished", 10),
    ),
    "the signal is ignored, by children too": (IGNORED, (0, "alive\n", "finished", 1)),
    "it catches Ctrl-C": (CTRL_C, (0, "saved\n", "stopped", 4)),
}
STATES = {"preempted": "running", "finished": "completed", "stopped": "completed", "failed": "failed"}


@pytest.mark.parametrize("what", ENDS)
def test_a_program_runs_its_own_handlers_and_the_document_says_how_it_ended(
    tmp_path: Path, what: str
) -> None:
    script, (code, output, ending, step) = ENDS[what]
    ended, printed, document = run(tmp_path, script)
    assert (ended, printed, document.get("ending")) == (code, output, ending)
    assert step in (None, document["step"])
    assert document["state"] == STATES.get(ending or "", "running")
    assert "message" not in document or ending not in ("preempted", "finished", "stopped")


HANG = """
import ctypes
c = ctypes.CDLL(None)
lock = ctypes.create_string_buffer(64)
c.pthread_mutex_lock(lock)
"""


def test_without_a_handler_a_process_that_hangs_in_c_ends_at_once(tmp_path: Path) -> None:
    """Seen: by SIGKILL, after the whole grace period."""
    path = tmp_path / "progress.json"
    script = PREAMBLE + HANG + "import socket; socket.setdefaulttimeout(60)\n"
    script += "r = report(total_steps=10); r.step(4); print(flush=True); c.pthread_mutex_lock(lock)"
    environ = {"PYTHONPATH": str(ROOT / "reporter"), "TRAINJOB_PROGRESS_FILE": str(path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        training.stdout.readline()
        try:
            training.terminate()
            assert training.wait(60) == -signal.SIGTERM
        finally:
            training.kill()
    document = json.loads(path.read_bytes())
    assert (document["state"], document["ending"], document["step"]) == ("running", "preempted", 4)


def test_a_sigterm_for_a_child_that_was_forked_in_c_does_not_end_its_parent(tmp_path: Path) -> None:
    script = f"""{HANG}
looks = []
look, termination.look = termination.look, lambda: looks.append(look())
with report(total_steps=1) as r:
    child = ctypes.PyDLL(None).fork()  # by a thread that holds the lock of the interpreter
    if child == 0:
        {TERM}
    c.waitpid(child, None, 0)
    while len(looks) < 3: time.sleep(0.01)
    threads = [one for one in threading.enumerate() if one.name == "progress end"]
    r.step()
print("alive", threads)
"""
    code, output, document = run(tmp_path, script)
    assert (code, output, document["ending"]) == (0, "alive []\n", "finished")


def test_a_childs_run_takes_away_no_signal_that_comes_to_its_parent(tmp_path: Path) -> None:
    """Seen: both read the same socket, and a parent that hung in C was not ended."""
    script = f"""
import ctypes
from trainjob_progress import stuck
from trainjob_progress.sinks.file import FileSink
with report(total_steps=1):
    ends = stuck._ends
    pid = os.fork()
    if pid == 0:
        with report(sinks=[FileSink({str(tmp_path / "child")!r})]): own = stuck._ends
        os._exit(own is None or bool({{*own}} & {{*ends}}))
    print(os.waitpid(pid, 0)[1], stuck._ends == ends)
"""
    assert run(tmp_path, script)[1] == "0 True\n"


@pytest.mark.parametrize("own", ["-1", "os.dup(1)"])
def test_a_descriptor_that_signals_are_written_to_is_the_programs_again_afterwards(
    tmp_path: Path, own: str
) -> None:
    script = f"""
import ctypes
own = {own}
if own > 0: os.set_blocking(own, False)
signal.set_wakeup_fd(own)
with report(total_steps=1) as r:
    r.step()
    pid = os.fork()
    if pid == 0: os._exit(signal.set_wakeup_fd(-1) != own)
    assert os.waitpid(pid, 0)[1] == 0
assert signal.set_wakeup_fd(-1) == own
"""
    assert run(tmp_path, script)[:2] == (0, "")


def test_no_signal_is_written_into_a_file_that_got_the_number_of_a_descriptor_that_the_program_has_closed(
    tmp_path: Path,
) -> None:
    script = f"""
import ctypes
from trainjob_progress import stuck
signal.signal(signal.SIGUSR1, lambda *_: None)
with report(total_steps=3) as r:
    number = stuck._ends[1]
    for end in stuck._ends: os.close(end)
    while not r.is_due: time.sleep(0.01)
    r.step()
    file = os.open({str(tmp_path / "file")!r}, os.O_RDWR | os.O_CREAT)
    os.dup2(file, number)
    os.kill(os.getpid(), signal.SIGUSR1)
    r.step(2)
print(os.fstat(file).st_size)
"""
    assert run(tmp_path, script)[:2] == (0, "0\n")


def test_a_framework_that_looks_for_a_handler_finds_none_of_ours(tmp_path: Path) -> None:
    """Lightning leaves out what it would do on SIGTERM where it finds a handler."""
    script = """
r = report(total_steps=10)
found = signal.getsignal(signal.SIGTERM)
print(found in (None, signal.SIG_DFL), found == signal.SIG_DFL, found == signal.SIG_IGN, found == 0)
def own(*_): pass
signal.signal(signal.SIGTERM, own)
r2 = report(total_steps=10)
print(signal.getsignal(signal.SIGTERM) == own)
signal.signal(signal.SIGTERM, found)
print(signal.getsignal(signal.SIGTERM) is found)
"""
    output = run(tmp_path, script)[1]
    assert output.splitlines()[:3] == ["True True False False", "True", "True"]


def test_other_signals_are_left_alone(tmp_path: Path) -> None:
    script = """
before = {n: signal.getsignal(n) for n in signal.valid_signals() if n != signal.SIGTERM}
with report(total_steps=1) as r:
    r.step()
    assert {n: signal.getsignal(n) for n in before} == before
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
"""
    assert run(tmp_path, script)[:2] == (0, "")


def test_the_programs_own_handler_does_not_wait_for_a_sink_that_hangs(tmp_path: Path) -> None:
    script = f"""
termination.FLUSH_TIMEOUT_S = 0.12
from trainjob_progress.live_run import LiveRun
waits = []
await_last = LiveRun._await_last
LiveRun._await_last = lambda run, *arguments: waits.append(run) or await_last(run, *arguments)
class Hanging:
    interval_s = 0.01
    def write(self, snapshot): time.sleep(60)
    def close(self): pass
from trainjob_progress.sinks.file import FileSink
r = report(total_steps=10, sinks=[Hanging(), FileSink({str(tmp_path / "progress.json")!r})])
r.flush(1)
def own(*_):
    print(waits)
    sys.exit(0)
signal.signal(signal.SIGTERM, own)
while not r.is_due: time.sleep(0.01)
r.step()
{TERM}
"""
    code, output, document = run(tmp_path, script)
    assert (code, output.splitlines()[0], document["ending"]) == (0, "[]", "preempted")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_sigpipe_would_end_is_not_ended_by_what_we_print(tmp_path: Path, stream: str) -> None:
    """Seen: with SIGPIPE set to SIG_DFL, the log line for a reader that had gone ended the training."""
    script = """
import signal, sys
from trainjob_progress import report
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
sys.stdin.readline()
with report(total_steps=2, wait_s=60) as r:
    r.step(2, loss=[1.0, 2.0])
    r.flush(60)
"""
    path = tmp_path / "progress.json"
    environ = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "reporter"), "TRAINJOB_PROGRESS_FILE": str(path),
        "TRAINJOB_PROGRESS_LOG": "1",
    }  # fmt: skip
    outputs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
    training = subprocess.Popen([sys.executable, "-c", script], env=environ, stdin=subprocess.PIPE, **outputs)
    reader = getattr(training, stream)
    reader.close()
    training.communicate(b"go\n", timeout=60)
    assert training.returncode == 0
    assert json.loads(path.read_bytes())["state"] == "completed"


AT_EACH_LINE = """
import json, os, signal, sys, time
import trainjob_progress.sinks.file
from trainjob_progress import report

PACKAGE = os.path.dirname(trainjob_progress.__file__)
ROOMS = [os.path.join(PACKAGE, name) for name in ("publisher.py", "published_run.py", "live_run.py")]
WRITTEN = sys.argv[1]

class Sink:
    interval_s = 60
    is_local = True
    def write(self, snapshot):
        with open(WRITTEN + ".new", "w") as file: json.dump([snapshot.ending, snapshot.step], file)
        os.replace(WRITTEN + ".new", WRITTEN)
    def close(self): pass

def train():
    r = report(total_steps=3, sinks=[Sink()])
    for _ in range(2): r.step(loss=1.0)
    r.flush()
    r.step(loss=0.5)
    os.waitpid(os.fork() or os._exit(0), 0)
    r.finish()
    r.update(accuracy=1.0)
    with report(total_steps=2, sinks=[Sink()]) as r: r.step(2)

def run(terminated_at=None):
    reached = []
    def note(frame, event, _):
        place = frame.f_code.co_filename, frame.f_lineno
        if place not in reached and place[0] in ROOMS:
            reached.append(place)
            if place == terminated_at:
                sys.settrace(None)
                os.kill(os.getpid(), signal.SIGTERM)
        return note
    sys.settrace(lambda frame, *_: note if frame.f_code.co_filename.startswith(PACKAGE) else None)
    train()
    sys.settrace(None)
    return reached

read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps(run()).encode())
    os._exit(0)
os.close(write)
places = [tuple(each) for each in json.load(os.fdopen(read))]
os.wait()
assert len(places) > 100
for place in places:
    with open(WRITTEN, "w") as file: json.dump(["nothing yet", None], file)
    began_s = time.monotonic()
    if os.fork() == 0:
        run(place)
        os._exit(0)
    code = os.wait()[1]
    took_s = time.monotonic() - began_s
    with open(WRITTEN) as file: ending, step = json.load(file)
    is_reached = code != 0  # where the end had to wait for a thread, it may not have to this time
    if is_reached and (code != signal.SIGTERM or took_s > 4 or ending is None):
        print(place, code, took_s, ending, step)
"""


@pytest.mark.timeout(300)
def test_it_ends_the_process_at_once_and_truly_at_each_line_of_ours(tmp_path: Path) -> None:
    """Seen: 5 s for a lock that the training thread held, 20 s for threads that `finish` had not asked yet,
    and no last document."""
    written = str(tmp_path / "written.json")
    done = subprocess.run(
        [sys.executable, "-c", AT_EACH_LINE, written],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "reporter")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
