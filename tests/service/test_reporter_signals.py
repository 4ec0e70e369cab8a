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


TERM = "os.kill(os.getpid(), signal.SIGTERM)"
OWN = """
def own(number, frame):
    print("own", number, flush=True)
signal.signal(signal.SIGTERM, own)
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_handler_of_ones_own_runs_once_in_any_order_of_set_up(tmp_path: Path, order: str) -> None:
    """Seen: a handler set after report() was run, but the run it ended was called completed."""
    begin = "r = report(total_steps=10)\nr.flush(20)\nr.__enter__()\n"
    steps = "\nwhile not r.is_due: time.sleep(0.01)\nr.step(4)\n"
    script = (
        (OWN + begin if order == "before" else begin + OWN) + steps + TERM + "\nr.__exit__(None, None, None)"
    )
    code, output, document = run(tmp_path, script)
    assert (code, output) == (0, "own 15\n")
    assert (document["state"], document["ending"], document["step"]) == ("running", "preempted", 4)
    assert document["progressPercentage"] == 40


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("block", ["with report(total_steps=10) as r:\n  ", "r = report(total_steps=10)\n"])
def test_a_handler_that_exits_is_a_preempted_run_with_its_own_exit_code(
    tmp_path: Path, code: int, block: str
) -> None:
    """Seen: `sys.exit(0)` on SIGTERM was completed, 100 %."""
    own = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))\n"
    ended, output, document = run(tmp_path, own + block + f"r.step(4); {TERM}; r.step(6)")
    assert (ended, output) == (code, "")
    assert (document["state"], document["ending"], document["step"]) == ("running", "preempted", 4)


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGXCPU"])
@pytest.mark.parametrize("code", [0, 144])
def test_a_handler_of_a_schedulers_signal_that_exits_is_a_preempted_run(
    tmp_path: Path, name: str, code: int
) -> None:
    """Seen: submitit's, which calls `sys.exit(-1)` when the run is queued again, was failed."""
    own = f"class Own:\n  def on(self, *_): sys.exit({code})\nsignal.signal(signal.{name}, Own().on)\n"
    block = f"with report(total_steps=10) as r: r.step(4); os.kill(os.getpid(), signal.{name}); r.step(6)"
    ended, output, document = run(tmp_path, own + block)
    assert (ended, output) == (code, "")
    assert (document["state"], document["ending"], document["step"]) == ("running", "preempted", 4)
    assert "message" not in document


NESTED = """
def train():
    for _ in track(range(2)):
        for i in track(range(5)):
            if i == 4: {end}
train()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
@pytest.mark.parametrize("loop", ["for i in track(range(10)):\n  if i == 4: {end}", NESTED])
def test_a_handler_that_is_set_late_and_exits_in_a_bare_loop_is_a_preempted_run(
    tmp_path: Path, name: str, loop: str
) -> None:
    end = f"signal.signal(signal.{name}, lambda *_: sys.exit(9)); os.kill(os.getpid(), signal.{name})"
    ended, output, document = run(tmp_path, loop.format(end=end))
    assert (ended, output) == (9, "")
    assert (document["state"], document["ending"], document["step"]) == ("running", "preempted", 4)


def test_an_exception_that_a_signals_handler_has_raised_and_the_program_has_caught_is_no_end(
    tmp_path: Path,
) -> None:
    script = """
def own(*_): raise TimeoutError
signal.signal(signal.SIGUSR1, own)
for _ in track(range(2)):
    try:
        for i in track(range(5)): os.kill(os.getpid(), signal.SIGUSR1)
    except TimeoutError: pass
    for i in track(range(5)):
        if i == 2: break
    break
"""
    code, output, document = run(tmp_path, script)
    assert (code, output, document["ending"]) == (0, "", "stopped")


KEPT_BEFORE = """
try: os.kill(os.getpid(), signal.SIGUSR1)
except TimeoutError as error: kept = error
def train():
    for i in track(range(5)):
        if i == 4: {end}
train()
"""
KEPT_IN_LOOP = """
def work(i):
    if i == 2: os.kill(os.getpid(), signal.SIGUSR1)
    if i == 4: {end}
for i in track(range(5)):
    try: work(i)
    except TimeoutError as error: kept = error
"""


@pytest.mark.parametrize("script", [KEPT_BEFORE, KEPT_IN_LOOP], ids=["before", "in the loop"])
def test_an_error_is_not_taken_for_an_exception_of_a_handler_that_the_program_has_kept(
    tmp_path: Path, script: str
) -> None:
    """Seen: an exit long after it was called a preemption."""
    own = "def own(*_): raise TimeoutError\nsignal.signal(signal.SIGUSR1, own)\n"
    code, _, document = run(tmp_path, own + script.format(end="sys.exit(3)"))
    assert (code, document["step"], document.get("ending")) == (3, 4, None)


def test_an_exit_that_follows_a_schedulers_signal_but_is_not_its_handlers_is_what_it_is(
    tmp_path: Path,
) -> None:
    own = "signal.signal(signal.SIGUSR1, lambda *_: print('stacks', flush=True))\n"
    block = "with report(total_steps=10) as r: r.step(4); os.kill(os.getpid(), signal.SIGUSR1); sys.exit(3)"
    ended, output, document = run(tmp_path, own + block)
    assert (ended, output, document["ending"]) == (3, "stacks\n", "failed")


def test_a_loop_that_stops_at_a_flag_is_a_preempted_run(tmp_path: Path) -> None:
    script = f"""
stop = False
def own(*_):
    global stop
    stop = True
signal.signal(signal.SIGTERM, own)
for i in track(range(10)):
    if i == 3:
        {TERM}
    if stop:
        break
"""
    code, output, document = run(tmp_path, script)
    assert (code, output, document["ending"], document["step"]) == (0, "", "preempted", 4)


@pytest.mark.parametrize("chains", ["if callable(found): found(*of)", "if found: found(*of)"])
@pytest.mark.parametrize("wait", ["pass", "while not r.is_due: time.sleep(0.01)"])
def test_a_handler_that_calls_the_one_before_it_runs_to_its_end(
    tmp_path: Path, chains: str, wait: str
) -> None:
    """Seen: where there was none before, ours ended the process from within it."""
    script = f"""
with report(total_steps=10) as r:
    found = signal.getsignal(signal.SIGTERM)
    def own(*of):
        {chains}
        print("own", flush=True)
    signal.signal(signal.SIGTERM, own)
    {wait}
    r.step(4)
    {TERM}
    r.step(6)
"""
    code, output, document = run(tmp_path, script)
    assert (code, output, document["ending"]) == (0, "own\n", "finished")


def test_without_a_handler_the_process_ends_as_it_would_and_the_document_says_preempted(
    tmp_path: Path,
) -> None:
    code, output, document = run(
        tmp_path, f"r = report(total_steps=10); r.step(4, loss=0.5); {TERM}; time.sleep(60)"
    )
    assert (code, output) == (-signal.SIGTERM, "")
    assert (document["state"], document["ending"], document["step"]) == ("running", "preempted", 4)
    assert document["metrics"] == {"loss": 0.5}


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
    os.closerange(3, number + 9)
    while not r.is_due: time.sleep(0.01)
    r.step()
    file = os.open({str(tmp_path / "file")!r}, os.O_RDWR | os.O_CREAT)
    os.dup2(file, number)
    os.kill(os.getpid(), signal.SIGUSR1)
    r.step(2)
print(os.fstat(file).st_size)
"""
    assert run(tmp_path, script)[:2] == (0, "0\n")


def test_a_run_that_outlives_a_sigterm_and_keeps_its_plan_is_finished(tmp_path: Path) -> None:
    code, _, document = run(tmp_path, OWN + f"with report(total_steps=10) as r: r.step(4); {TERM}; r.step(6)")
    assert (code, document["ending"], document["progressPercentage"]) == (0, "finished", 100)


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


def test_an_ignored_sigterm_stays_ignored_by_children_too(tmp_path: Path) -> None:
    script = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with report(total_steps=1) as r:
    child = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('alive')"
    subprocess.run([sys.executable, "-c", child])
    os.kill(os.getpid(), signal.SIGTERM)
    r.step()
"""
    code, output, document = run(tmp_path, script)
    assert (code, output, document["ending"]) == (0, "alive\n", "finished")


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


def test_ctrl_c_that_the_program_catches_is_the_programs_affair(tmp_path: Path) -> None:
    script = """
with report(total_steps=10) as r:
    try:
        r.step(4)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        print("saved")
"""
    code, output, document = run(tmp_path, script)
    assert (code, output, document["state"], document["ending"]) == (0, "saved\n", "completed", "stopped")


def test_the_programs_own_handler_does_not_wait_for_a_sink_that_hangs(tmp_path: Path) -> None:
    script = f"""
termination.FLUSH_TIMEOUT_S = 0.12
from trainjob_progress.live_run import LiveRun
waits = []
await_all = LiveRun._await_all
LiveRun._await_all = lambda run, is_done: waits.append(run) or await_all(run, is_done)
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
