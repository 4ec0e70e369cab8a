"""The progress file and the termination message, written by real processes that end in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress.document import Snapshot
from trainjob_progress.settings import find_attempt, find_sinks
from trainjob_progress.sinks.file import TERMINATION_MAX_BYTES, FileSink, TerminationSink

REPORTER = Path(__file__).parents[2] / "reporter"


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot(**{"state": "running", "timestamp": time.time(), "start_time": 0.0, **fields})


# The end waits for the last document however slow the machine is.
PATIENT = """
from trainjob_progress import *
from trainjob_progress import termination
termination.FLUSH_TIMEOUT_S = 60
"""


class Training:
    """A training script in a process of its own, with its own progress file and termination message."""

    def __init__(self, directory: Path, script: str, **environ: str) -> None:
        self.path = directory / "progress.json"
        self.termination_path = directory / "termination-log"
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPORTER),
            "TRAINJOB_PROGRESS_FILE": str(self.path),
            "TRAINJOB_TERMINATION_MESSAGE_PATH": str(self.termination_path),
            **environ,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", PATIENT + script],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_line(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def end(self) -> tuple[int, str]:
        """(exit code, stderr)."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.path.read_bytes())
        assert self.path.stat().st_mode & 0o777 == 0o644
        document.pop("recent", None)
        assert json.loads(self.termination_path.read_bytes()) == document
        assert list(self.path.parent.glob("*.tmp")) == []
        return document


def test_a_run_without_with_block_that_reaches_its_total_is_completed(tmp_path: Path) -> None:
    training = Training(tmp_path, "r = report(total_steps=2); r.step(loss=1); r.step(loss=0.5)")
    assert training.end() == (0, "")
    document = training.document
    assert (document["state"], document["step"], document["metrics"]) == ("completed", 2, {"loss": 0.5})


def test_a_process_that_ends_early_without_saying_why_is_not_called_completed(tmp_path: Path) -> None:
    training = Training(tmp_path, "r = report(total_steps=3); r.step(); raise SystemExit(3)")
    assert training.end()[0] == 3
    assert (training.document["state"], training.document["step"]) == ("running", 1)


def test_an_uncaught_exception_is_a_failed_run_with_its_first_line(tmp_path: Path) -> None:
    training = Training(tmp_path, "r = report(total_steps=3); r.step(2); 1 / 0")
    assert training.end()[0] == 1
    document = training.document
    assert (document["state"], document["step"], document["message"]) == (
        "failed",
        2,
        "ZeroDivisionError: division by zero",
    )


# Exit handlers that were registered before the run began come after the one that ends it.
EARLIER_HANDLER = """
import atexit
def end():
    {}
atexit.register(end)
{}
"""
OPEN, ENDED = "r = report(total_steps=4); r.step(3)", "with report(total_steps=3) as r: r.step(3)"
LEFT = "for i in track(range(4)):\n    if i == 2: break"


@pytest.mark.parametrize(
    ("handler", "training", "shown"),
    [
        ("r.finish('stopped')", OPEN, ("completed", 3, None, None)),
        ("r.step(); r.finish()", OPEN, ("completed", 4, None, None)),
        ("r.finish('failed', 'no good')", OPEN, ("failed", 3, None, "no good")),
        ("r.update(accuracy=0.5); r.finish()", OPEN, ("completed", 3, 0.5, None)),
        ("r.update(accuracy=0.5)", OPEN, ("running", 3, 0.5, None)),
        ("current().finish('failed')", LEFT, ("failed", 3, None, None)),
        ("current().finish()", LEFT, ("completed", 3, None, None)),
        ("r.finish('failed')", ENDED, ("completed", 3, None, None)),  # it had been said
        ("for i in range(1, 6): r.update(accuracy=i / 10)", ENDED, ("completed", 3, 0.5, None)),
    ],
)
def test_an_exit_handler_still_says_how_the_run_ended_and_what_came_of_it(
    handler: str, training: str, shown: tuple[Any, ...], tmp_path: Path
) -> None:
    """Seen: running, without results, and a temporary file that was left behind."""
    run = Training(tmp_path, EARLIER_HANDLER.format(handler, training))
    assert run.end() == (0, "")
    document = run.document
    accuracy = document.get("metrics", {}).get("accuracy")
    assert (document["state"], document["step"], accuracy, document.get("message")) == shown


LATE = """
class Late:
    def __del__(self): {}
late = Late()
late.r = report(total_steps=4)
late.r.step(3)
"""
GENERATOR = """
def train():
    with report(total_steps=4) as r:
        r.step(3)
        yield
at_rest = train()
next(at_rest)
raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("script", "code", "shown"),
    [
        (LATE.format("self.r.finish('stopped')"), 0, ("completed", None)),
        (LATE.format("self.r.update(accuracy=0.5)") + "late.r.finish()", 0, ("completed", 0.5)),
        (GENERATOR, 3, ("running", None)),  # what Python clears up has said nothing
    ],
)
def test_what_comes_when_python_is_no_more_holds_nothing_up(
    script: str, code: int, shown: tuple[Any, ...], tmp_path: Path
) -> None:
    """Seen before Python 3.12: the process waited for ever, for a thread that would never run."""
    run = Training(tmp_path, script)
    assert run.end() == (code, "")
    assert (run.document["state"], run.document.get("metrics", {}).get("accuracy")) == shown


SLOW_LOOP = (
    "r = report(total_steps=9); r.step(7, loss=0.5); print('ready', flush=True)\nimport time\ntime.sleep(60)"
)


def test_sigterm_in_the_middle_of_the_end_lets_the_last_document_through(tmp_path: Path) -> None:
    script = f"""
import os, signal, threading
from trainjob_progress.sinks.file import FileSink
class SlowSink(FileSink):
    def write(self, snapshot):
        if snapshot.state == "completed":
            os.kill(os.getpid(), signal.SIGTERM)
            import time; time.sleep(0.3)  # the disk takes its time
        super().write(snapshot)
r = report(total_steps=2, sinks=[SlowSink({str(tmp_path / "progress.json")!r})])
r.step(2)
r.finish()
print("survived")
"""
    training = Training(tmp_path, script)
    assert training.end()[0] == -signal.SIGTERM
    assert json.loads(training.path.read_bytes())["state"] == "completed"


@pytest.mark.parametrize(
    "make_child",
    [
        "subprocess.run([sys.executable, '-c', code], check=True)",
        "pid = os.fork()\nif pid == 0:\n  exec(code); os._exit(0)\nos.waitpid(pid, 0)",
        "p = multiprocessing.get_context('fork').Process(target=exec, args=(code,)); p.start(); p.join()",
        "p = multiprocessing.get_context('spawn').Process(target=exec, args=(code,)); p.start(); p.join()",
    ],
)
def test_a_child_of_a_process_that_reports_does_not(tmp_path: Path, make_child: str) -> None:
    script = (
        "import multiprocessing, os, subprocess, sys\n"
        "code = 'from trainjob_progress import report\\nwith report(total_steps=9) as r: r.step(9)'\n"
        f"r = report(total_steps=2)\nr.step()\n{make_child}\nr.flush()"
    )
    training = Training(tmp_path, script)
    code, errors = training.end()
    assert code == 0, errors
    assert (training.document["state"], training.document["step"]) == ("running", 1)


def test_a_process_started_after_the_run_reports_again(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\nwith report(total_steps=2) as r: r.step(2)\n"
        "code = 'from trainjob_progress import report\\nwith report(total_steps=9) as r: r.step(9)'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)"
    )
    training = Training(tmp_path, script)
    assert training.end() == (0, "")
    assert training.document["step"] == 9


def test_the_old_sigterm_handler_is_back_after_the_run(tmp_path: Path) -> None:
    check = (
        "import signal\nwith report() as r: assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    )
    assert Training(tmp_path, check).end() == (0, "")


def test_a_killed_process_leaves_what_it_wrote_before(tmp_path: Path) -> None:
    training = Training(tmp_path, SLOW_LOOP)
    training.wait_for_line()
    deadline_s = time.monotonic() + 60
    while not training.termination_path.exists() or b'"step":7' not in training.termination_path.read_bytes():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    training.process.kill()
    training.end()
    assert json.loads(training.termination_path.read_bytes())["step"] == 7


def test_a_training_on_another_thread_reports_as_well(tmp_path: Path) -> None:
    script = (
        "import threading\ndef train():\n  with report(total_steps=2) as r: r.step(2)\n"
        "t = threading.Thread(target=train); t.start(); t.join()"
    )
    training = Training(tmp_path, script)
    assert training.end() == (0, "")
    assert training.document["state"] == "completed"


def test_a_missing_directory_is_one_line_and_the_run_succeeds(tmp_path: Path) -> None:
    script = "with report(total_steps=2) as r: r.step(2)"
    training = Training(
        tmp_path, script, TRAINJOB_PROGRESS_FILE="/nowhere/p.json", TRAINJOB_TERMINATION_MESSAGE_PATH=""
    )
    code, errors = training.end()
    assert code == 0
    assert errors.splitlines() == [
        "trainjob_progress: FileSink failed, training goes on: FileNotFoundError: "
        + errors.split("FileNotFoundError: ", 1)[1].rstrip("\n")
    ]


def test_a_full_disk_is_one_line_and_the_old_document_stays_whole(tmp_path: Path) -> None:
    script = (
        "import resource\nr = report(total_steps=2)\nr.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\nr.step(2); r.finish()"
    )
    training = Training(tmp_path, script, TRAINJOB_TERMINATION_MESSAGE_PATH="")
    code, errors = training.end()
    assert (code, errors.count("\n")) == (0, 1)
    assert "FileSink failed" in errors
    assert json.loads(training.path.read_bytes())["step"] == 0
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.parametrize(
    ("options", "error"), [("size=4k", "No space left on device"), ("ro", "Read-only file system")]
)
def test_a_filesystem_that_takes_nothing_is_one_line(tmp_path: Path, options: str, error: str) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs {tmp_path}"
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    fill = f"dd if=/dev/zero of={tmp_path}/fill 2>/dev/null"
    script = (
        "from trainjob_progress import report\nwith report(total_steps=2) as r: r.step(2)\nprint('trained')"
    )
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount}; {fill}; exec {sys.executable} -c "{script}"'],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPORTER),
            "TRAINJOB_PROGRESS_FILE": str(tmp_path / "p.json"),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout) == (0, "trained\n")
    assert run.stderr.count("trainjob_progress:") == 1
    assert error in run.stderr


def test_a_closed_stderr_is_survived(tmp_path: Path) -> None:
    script = "import os\nos.close(2)\nwith report(total_steps=2) as r: r.step(2)"
    assert Training(tmp_path, script, TRAINJOB_PROGRESS_FILE="/nowhere/p.json").end()[0] == 0


def test_a_reader_never_sees_half_a_document(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    sink = FileSink(str(path))
    sink.write(snapshot(step=0))
    is_over = threading.Event()

    def write() -> None:
        step = 0
        while step < 2000 or reads <= 10:  # whoever gets to run first
            sink.write(snapshot(step=(step := step + 1), message="x" * (step % 900)))
        is_over.set()

    reads = 0
    writer = threading.Thread(target=write)
    writer.start()
    while not is_over.is_set():
        json.loads(path.read_bytes())
        reads += 1
    writer.join()


def test_the_termination_message_is_whole_json_whatever_was_longer_before(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    inode = path.stat().st_ino
    sink = TerminationSink(str(path))
    for length in (0, 600, 20, 3000, 1):
        sink.write(snapshot(message="é" * length, metrics={f"m{i}": i for i in range(length)}))
        body = path.read_bytes()
        assert len(body) <= TERMINATION_MAX_BYTES
        json.loads(body)
    assert path.stat().st_ino == inode  # the kubelet mounts it: it must not be replaced


def test_a_termination_message_that_the_program_wrote_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("out of licences")
    TerminationSink(str(path)).write(snapshot())
    assert path.read_text() == "out of licences"


def test_off_a_cluster_there_is_nowhere_to_write() -> None:
    assert find_sinks({}) == []


def test_in_a_pod_the_default_file_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/termination-log")
    sinks = find_sinks({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert [(type(sink), sink._path) for sink in sinks] == [  # type: ignore[attr-defined]
        (FileSink, "/tmp/trainjob-progress.json"),
        (TerminationSink, "/dev/termination-log"),
    ]


def test_an_empty_variable_switches_a_sink_off() -> None:
    off = {"TRAINJOB_PROGRESS_FILE": "", "TRAINJOB_TERMINATION_MESSAGE_PATH": ""}
    assert find_sinks({"KUBERNETES_SERVICE_HOST": "10.0.0.1", **off}) == []


@pytest.mark.parametrize(
    ("environ", "attempt"),
    [
        ({}, None),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2),
        ({"TRAINJOB_ATTEMPT": "1", "TORCHELASTIC_RESTART_COUNT": "2"}, 1),
        ({"TRAINJOB_ATTEMPT": "first"}, None),
    ],
)
def test_the_attempt_is_what_the_launcher_counts(environ: dict[str, str], attempt: int | None) -> None:
    assert find_attempt(environ) == attempt


# A scheduler that gives the thread of the file one turn in some hundred of another process.
STARVED = """
import atexit, hashlib, os, subprocess, sys, threading
from trainjob_progress import report
from trainjob_progress.sinks.file import FileSink

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
atexit.register(busy.kill)

class Starved(FileSink):
    def write(self, snapshot):
        if snapshot.state == "completed":
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
            hashlib.pbkdf2_hmac("sha256", b"", b"", 5_000)  # without Python's lock
        super().write(snapshot)

with report(total_steps=3, sinks=[Starved(sys.argv[1])]) as r:
    r.step(3)
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="no such scheduler here")
def test_a_thread_that_is_not_given_its_turn_writes_the_last_document(tmp_path: Path) -> None:
    """Seen at loads of 8 to 30: running, in the last document of a training that had finished."""
    path = tmp_path / "progress.json"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTER)}
    script = [sys.executable, "-c", STARVED, str(path)]
    result = subprocess.run(script, env=environ, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert json.loads(path.read_bytes())["state"] == "completed"


IN_TURNS = """
for batch in track(range(40), desc=NAME):
    time.sleep(PAUSE_S)
"""


def test_of_processes_that_share_a_file_the_first_is_shown_until_it_ends(tmp_path: Path) -> None:
    """A sweep in one pod. Seen: 24 of 27 documents were of another trial than the one before."""
    names = {"first": 0.08, "second": 0.02, "third": 0.14}
    trainings, shown = [], []
    for name, pause_s in names.items():
        script = f"import time\nprint(flush=True)\nNAME, PAUSE_S = {name!r}, {pause_s}\n{IN_TURNS}"
        trainings.append(Training(tmp_path, script))
        trainings[-1].wait_for_line()
        time.sleep(0.3)
    path = trainings[0].path
    while any(training.process.poll() is None for training in trainings):
        document = json.loads(path.read_bytes())
        shown.append((document["message"], document["state"]))
        time.sleep(0.01)
    assert [training.end()[0] for training in trainings] == [0, 0, 0]
    completed = shown.index(("first", "completed"))
    steady = [message for message, _ in shown[len(shown) // 4 : completed]]
    assert steady
    assert set(steady) == {"first"}
    assert {message for message, _ in shown[completed + 100 :]} == {"third"}
    document = json.loads(path.read_bytes())
    assert (document["message"], document["state"], document["step"]) == ("third", "completed", 40)


def test_a_process_that_was_killed_does_not_hold_a_file(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    FileSink(str(path)).write(snapshot(start_time=1.0, step=5))
    sink = FileSink(str(path))
    for step in (1, 2):
        sink.write(snapshot(start_time=2.0, step=step))
        assert json.loads(path.read_bytes())["step"] == step
