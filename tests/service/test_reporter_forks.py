"""A process that forks while it reports: its children run, and it is as it would be without us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pythons import VERSIONS, find_python

ROOT = Path(__file__).parents[2]
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
# The oldest; the first that warns of a fork beside threads; the newest that is released.
FORKED = sorted({VERSIONS[0], HERE, "3.12", "3.14"}, key=VERSIONS.index)

# A child that imports what our threads import, and prints: each needs a lock that a fork may hand on.
CHILD = """
def child(number=0):
    import json, ssl, http.client, encodings.idna, threading, logging, socket
    json.dumps({"a": 1})
    socket.getaddrinfo("127.0.0.1", 80)
    print("child", flush=True)
    return number
"""

STARTS = {
    "os.fork": """
for _ in range(5):
    r.step(loss=0.5)
    pid = os.fork()
    if pid == 0:
        child(); os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""",
    "fork": """
for _ in range(5):
    r.step(loss=0.5)
    p = multiprocessing.get_context("fork").Process(target=child); p.start(); p.join(); assert p.exitcode == 0
""",
    "ProcessPoolExecutor": """
from concurrent.futures import ProcessPoolExecutor
for _ in range(5):
    r.step(loss=0.5)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(child, range(1)))
""",
    "preexec_fn": """
for _ in range(5):
    r.step(loss=0.5)
    subprocess.run(["true"], preexec_fn=lambda: child(), check=True)
""",
    "a thread": """
def fork():
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            child(); os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
t = threading.Thread(target=fork); t.start()
while t.is_alive(): r.update(loss=0.5)
t.join()
for _ in range(5): r.step()
""",
    "os.fork in C": """
import ctypes
libc = ctypes.PyDLL(None)
for _ in range(5):
    r.step(loss=0.5)
    pid = libc.fork()
    if pid == 0:
        r.step(3, loss=7.0); r.flush(); r.finish("failed"); child(); os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""",
}


def run(version: str, directory: Path, script: str, *options: str, **environ: str) -> tuple[int, str, str]:
    path = directory / "train.py"
    path.write_text(script)
    result = subprocess.run(
        [find_python(version), *options, str(path)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "reporter"),
            "TRAINJOB_PROGRESS_FILE": str(directory / "progress.json"),
            "TRAINJOB_TERMINATION_MESSAGE_PATH": str(directory / "message"),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", FORKED)
def test_children_of_a_fork_run_to_their_end(version: str, start: str, tmp_path: Path) -> None:
    """Seen: a child forked shortly after report() hung for ever at its first `import json`.

    Warnings are errors: from Python 3.12 on, one is given to a process with threads that forks.
    """
    script = (
        "import multiprocessing, os, subprocess, sys, threading\n"
        "from trainjob_progress import report, termination\n"
        "termination.FLUSH_TIMEOUT_S = 60\n"  # the last document comes however slow the machine is
        f"{CHILD}\nif __name__ == '__main__':\n"
        "  with report(total_steps=5) as r:\n"
        + "".join(f"    {line}\n" for line in STARTS[start].strip().splitlines())
    )
    # Some cases have threads that are not ours, and are warned of.
    strict = ["-W", "ignore" if start in ("a thread", "ProcessPoolExecutor") else "error"]
    assert run(version, tmp_path, script, *strict) == (0, "child\n" * 5, "")
    document = json.loads((tmp_path / "progress.json").read_bytes())
    assert (document["state"], document["step"]) == ("completed", 5)


def test_nothing_is_imported_or_started_on_a_thread_of_ours(tmp_path: Path) -> None:
    """And files are opened, connections made, by sinks alone."""
    script = """
import sys, threading, os
events = []
def note(event, arguments):
    if event in ("import", "_thread.start_new_thread", "_thread.start_joinable_thread", "exec", "compile"):
        if threading.current_thread() is not threading.main_thread():
            events.append((event, arguments[0]))
from trainjob_progress import report
r = report(total_steps=1000)
sys.addaudithook(note)
import time
for _ in range(15):
    r.step(loss=0.5)
    time.sleep(0.1)
r.finish(wait_s=10)
print(events)
"""
    environ = {
        "TRAINJOB_PROGRESS_LOG": "1",
        "TRAINJOB_PROGRESS_PORT": "0",
        "TRAINJOB_PROGRESS_BAR": "1",
        "KUBEFLOW_TRAINER_SERVER_URL": "https://localhost:1/x",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": __file__,
    }
    code, output, _ = run(HERE, tmp_path, script, **environ)
    assert (code, output.splitlines()[-1]) == (0, "[]")


def test_a_child_does_not_keep_the_port(tmp_path: Path) -> None:
    script = """
import os
from trainjob_progress import report
from trainjob_progress.sinks.http import HTTPSink
sink = HTTPSink(0, "127.0.0.1")
r = report(total_steps=2, sinks=[sink])
r.step()
listener = os.fstat(sink._server._listener.fileno()).st_ino

def is_held():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_ino == listener:
                return True
        except OSError:
            pass
    return False

assert is_held()
pid = os.fork()
if pid == 0:
    os._exit(3 if is_held() else 0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run(HERE, tmp_path, script)[1] == "0\n"


def test_the_endpoint_answers_again_after_a_fork(tmp_path: Path) -> None:
    script = """
import os, urllib.request
from trainjob_progress import report
from trainjob_progress.sinks.http import HTTPSink
def ask():
    return urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/", timeout=20).read().count(b'"totalSteps"')
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
sink = HTTPSink(0, "127.0.0.1")
r = report(total_steps=2, sinks=[sink])
r.flush(10)
fork(); r.step(); print(ask())
r.finish(wait_s=10)
fork(); print(ask())
"""
    assert run(HERE, tmp_path, script)[1] == "1\n1\n"


def test_what_was_said_before_a_fork_is_written_though_the_loop_does_not_come_by_again(
    tmp_path: Path,
) -> None:
    script = """
import os, time
from trainjob_progress import report
r = report(total_steps=9)
r.flush(10)
r.step(7)
pid = os.fork()
if pid == 0:
    os.close(1), os.close(2)
    time.sleep(60)
print(pid, flush=True)
os.kill(os.getpid(), 9)
"""
    code, output, _ = run(HERE, tmp_path, script)
    os.kill(int(output), 9)
    assert code == -9
    assert json.loads((tmp_path / "progress.json").read_bytes())["step"] == 7
