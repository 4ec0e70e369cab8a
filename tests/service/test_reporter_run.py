"""`python -m trainjob_progress.run -- COMMAND…` around real commands."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

REPORTER = Path(__file__).parents[2] / "reporter"


class Run:
    """A command under `run`, and the document it leaves."""

    def __init__(
        self,
        directory: Path,
        script: str,
        *options: str,
        command: tuple[str, ...] = (),
        stdout: Any = subprocess.PIPE,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path = directory / "progress.json"
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPORTER),
            "PYTHONUNBUFFERED": "1",
            "TRAINJOB_PROGRESS_FILE": str(self.path),
            "TMPDIR": str(directory),
            **environ,
        }
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "trainjob_progress.run", *options, "--",
                *(command or (sys.executable, "-c", script)),
            ],
            env=variables, stdout=stdout, stderr=subprocess.PIPE,
        )  # fmt: skip

    def end(self) -> tuple[int, bytes, bytes]:
        """(exit code, stdout, stderr)."""
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.path.read_bytes())
        return document


def test_output_passes_unchanged_and_is_reported(tmp_path: Path) -> None:
    script = (
        "import sys\nfor i in range(10):\n"
        "    print({'loss': str(1 / (i + 1)), 'epoch': str(i / 10)})\n"
        "    sys.stderr.write(f'\\r {i + 1}0%|██| {i + 1}/10 [00:01<00:01, 5.41it/s]')\n"
        "sys.stdout.buffer.write(b'\\xff\\x00 odd bytes')"
    )
    run = Run(tmp_path, script)
    code, output, errors = run.end()
    assert code == 0
    assert output.count(b"'loss'") == 10
    assert output.endswith(b"\xff\x00 odd bytes")
    assert errors.count(b"\r") == 10
    document = run.document
    assert (document["state"], document["step"], document["totalSteps"]) == ("completed", 10, 10)
    assert document["metrics"] == {"loss": 0.1}


SAVING = """
import os, time
def wait_for(text):
    while text not in open(os.environ["TRAINJOB_PROGRESS_FILE"]).read():
        time.sleep(0.01)
print("step 10/100 loss: 0.5")
print("saving checkpoint at iteration 10 to /ckpt")
wait_for('"section":{"kind":"checkpointSave"')
print("successfully saved checkpoint from iteration 10 to /ckpt")
wait_for('"checkpoint":{"step":10')
print("Evaluating on 5120 samples")
wait_for('"section":{"kind":"evaluation"')
print("step 11/100 loss: 0.5")
print("{'eval_loss': '0.5', 'eval_runtime': '12.5'}")
"""


def test_saves_and_evaluations_are_marked_by_the_lines_that_say_so(tmp_path: Path) -> None:
    run = Run(tmp_path, SAVING)
    assert run.end()[0] == 0
    assert run.document["checkpoint"]["step"] == 10
    spent = run.document["timeSpent"]
    assert 0 < spent["checkpointSave"] < 12.5 < spent["evaluation"] < 25
    assert "section" not in run.document


FLOOD = """
import os, sys
from hashlib import sha256
seen = sha256()
for at in range(800):
    block = b"".join(b"step %d/40000 | loss: 0.5\\n" % (50 * at + i // 20 + 1) for i in range(1000))
    seen.update(block)
    while block:
        block = block[os.write(1, block):]
sys.stderr.write(seen.hexdigest())
"""


@pytest.mark.parametrize("mode", ["pipe", "wb", "ab"])
def test_a_flood_passes_unchanged_and_its_last_line_counts(tmp_path: Path, mode: str) -> None:
    """The kernel moves most of it past us, into a pipe or a file, but into none that is appended to."""
    target = tmp_path / "output"
    with target.open("wb" if mode == "pipe" else mode) as file:
        run = Run(tmp_path, FLOOD, stdout=subprocess.PIPE if mode == "pipe" else file)
        code, output, errors = run.end()
    assert code == 0
    assert hashlib.sha256(output if mode == "pipe" else target.read_bytes()).hexdigest() == errors.decode()
    assert (run.document["step"], run.document["totalSteps"]) == (40000, 40000)


ENDLESS = """
import os
block = b"x" * 200_000 + b"\\n"
for at in range(1, 10**9):
    os.write(1, block + b"step %d/1000000000 | loss: 0.5\\n" % at)
"""


def test_a_flood_without_a_pause_is_reported_while_it_lasts(tmp_path: Path) -> None:
    """Seen: whoever read it was slower than the command; nothing was looked at until the end."""
    run = Run(tmp_path, ENDLESS)
    assert run.process.stdout is not None
    steps: set[int] = set()
    began_s = time.monotonic()
    while len(steps) < 3 and time.monotonic() < began_s + 60:
        os.read(run.process.stdout.fileno(), 8192)
        with contextlib.suppress(OSError):
            steps.add(run.document.get("step") or 0)
    run.process.terminate()
    run.end()
    assert len(steps) == 3, f"seen: {steps}"


def test_a_failing_command_is_a_failed_run_with_its_exit_code(tmp_path: Path) -> None:
    run = Run(tmp_path, "print('step 3/10 loss 0.5'); raise SystemExit(3)")
    assert run.end()[0] == 3
    document = run.document
    assert (document["state"], document["step"]) == ("failed", 3)
    assert document["message"] == "the command ended with exit code 3"


def test_a_killed_command_is_a_failed_run_that_names_the_signal(tmp_path: Path) -> None:
    run = Run(tmp_path, "import os; print('step 3/10', flush=True); os.kill(os.getpid(), 9)")
    assert run.end()[0] == -9
    assert run.document["message"] == "the command was ended by SIGKILL"


def test_a_command_that_ends_well_when_it_is_asked_to_stop_has_not_completed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('step 8/10 loss 0.5', flush=True), os._exit(0)))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    run = Run(tmp_path, script)
    assert run.process.stdout is not None
    assert run.process.stdout.readline() == b"ready\n"
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 0
    assert (run.document["state"], run.document["ending"], run.document["step"]) == (
        "running",
        "preempted",
        8,
    )
    assert run.document["progressPercentage"] == 80


@pytest.mark.parametrize(
    ("last_words", "ending"),
    [
        ("print('step 10/10 loss 0.5', flush=True); os._exit(0)", "finished"),
        ("os._exit(1)", "preempted"),
        ("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", "preempted"),
        ("os.kill(os.getpid(), 9)", "preempted"),
    ],
)
def test_how_a_command_ends_that_is_asked_to_stop(tmp_path: Path, last_words: str, ending: str) -> None:
    script = (
        f"import os, signal, sys\ndef end(*_):\n    {last_words}\nsignal.signal(15, end)\n"
        "print('step 4/10 loss 0.5', flush=True)\nwhile True: signal.pause()"
    )
    run = Run(tmp_path, script)
    assert run.process.stdout is not None
    assert run.process.stdout.readline() == b"step 4/10 loss 0.5\n"
    run.process.send_signal(signal.SIGTERM)
    ended = run.end()
    assert run.document["ending"] == ending, ended


@pytest.mark.parametrize(
    "script",
    [
        "for i in range(50): print(f'step {i}/50 loss 0.5')",  # counts from 0
        "for i in range(0, 100, 10): print(f'step {i}/100 loss 0.5')",  # prints each tenth
        "for i in range(1, 4): print(f'Epoch {i}/3'); print('train loss: 0.5')",  # at an epoch's beginning
        "for i in range(3): print(f'Epoch {i}/2'); print('train loss: 0.5')",
    ],
)
def test_a_command_that_ends_well_by_the_last_line_that_it_would_print_has_completed(
    tmp_path: Path, script: str
) -> None:
    run = Run(tmp_path, script)
    assert run.end()[0] == 0
    assert run.document["ending"] == "finished"


@pytest.mark.parametrize(
    ("done", "named", "code", "ending", "epoch", "total"),
    [(10, 10, 0, "finished", 10, 10), (10, 9, 0, "finished", 10, 10), (6, 10, 0, "stopped", 5, None),
     (10, 10, 1, "failed", 9, None)],
)  # fmt: skip
def test_a_commands_end_says_how_many_epochs_there_were_that_count_from_0(
    tmp_path: Path, done: int, named: int, code: int, ending: str, epoch: int, total: int | None
) -> None:
    """Seen: 6 of 10 were "finished", with totalEpochs 0; 10 of 10 were 90 %."""
    run = Run(tmp_path, f"for i in range({done}): print(f'Epoch {{i}}/{named} loss: 0.5')\nexit({code})")
    assert run.end()[0] == code
    document = run.document
    assert (document["ending"], document["epoch"], document.get("totalEpochs")) == (ending, epoch, total)


TUTORIAL = "Epoch {}/10\n----------\ntrain Loss: 0.3 Acc: 0.9\nval Loss: 0.4 Acc: 0.8\n"
BAR = (
    "Epoch {}/10\n\r 50%|█    | 10/20 [00:05<00:05,  1.00it/s]\r100%|█████| 20/20 [00:10<00:00,  1.00it/s]\n"
)
KERAS = "Epoch {}/10\n10/20 ━━━━━━━━━━ 1s 9ms/step - loss: 0.28\n"


@pytest.mark.parametrize(
    ("text", "done", "code", "ending", "percentage"),
    [
        (TUTORIAL, 10, 0, "finished", 100), (BAR, 10, 0, "finished", 100), (TUTORIAL, 4, 0, "stopped", 40),
        (TUTORIAL, 9, 0, "stopped", 90), (BAR, 4, 0, "stopped", 40), (TUTORIAL, 10, 1, "failed", 90),
        ("Epoch {}/10\nstep 10/20 loss: 0.5\n", 4, 0, "stopped", 35), (KERAS, 4, 0, "stopped", 35),
    ],
)  # fmt: skip
def test_the_epoch_of_the_last_headline_is_done_when_the_command_has_ended_well(
    tmp_path: Path, text: str, done: int, code: int, ending: str, percentage: int
) -> None:
    """Seen: 10 of 10 epochs were 90 %, and 3 of 3 were 66 %."""
    run = Run(tmp_path, f"for i in range({done}): print({text!r}.format(i + 1), end='')\nexit({code})")
    assert run.end()[0] == code
    document = run.document
    epoch = done if percentage == done * 10 else done - 1
    assert (document["ending"], document["progressPercentage"]) == (ending, percentage)
    assert document["epoch"] in (epoch, percentage / 10)


def test_a_command_that_ends_before_its_planned_end_has_stopped(tmp_path: Path) -> None:
    run = Run(tmp_path, "print('step 4/10 loss 0.5')")
    assert run.end()[0] == 0
    assert (run.document["ending"], run.document["progressPercentage"]) == ("stopped", 40)


@pytest.mark.parametrize(("command", "code"), [("/nowhere/train", 127), ("/etc/hostname", 126)])
def test_a_command_that_cannot_be_started_is_said_as_a_shell_does(
    tmp_path: Path, command: str, code: int
) -> None:
    run = Run(tmp_path, "", command=(command,))
    assert run.end()[0] == code
    assert run.document["state"] == "failed"


@pytest.mark.parametrize("way", ["", "import os; os.fork() or os._exit(0)\n"])
def test_a_command_that_reports_itself_is_believed_more_than_its_output(tmp_path: Path, way: str) -> None:
    """Seen: it was silent under the wrapper, and what it printed was all that was known, if anything."""
    script = (
        f"{way}from trainjob_progress import report\n"
        "with report(total_steps=5) as r:\n    print('step 1/10 loss 7.5')\n    r.step(4, loss=0.5)"
    )
    run = Run(tmp_path, script)
    assert run.end()[0] == 0
    document = run.document
    assert (document["step"], document["totalSteps"], document["ending"]) == (4, 5, "stopped")
    assert document["metrics"] == {"loss": 0.5}
    assert list(tmp_path.iterdir()) == [run.path]


def test_a_command_that_reports_itself_has_the_port_as_well(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = (
        "import urllib.request\nfrom trainjob_progress import report\n"
        "with report(total_steps=5) as r:\n    r.step(4)\n    r.flush(30)\n"
        f"    print(urllib.request.urlopen('http://127.0.0.1:{port}/').read().decode())"
    )
    run = Run(tmp_path, script, environ={"TRAINJOB_PROGRESS_PORT": str(port)})
    code, output, errors = run.end()
    assert (code, json.loads(output)["step"]) == (0, 4), errors


def test_a_total_and_a_pattern_can_be_given(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        "print('tick 30 err 0.5')",
        "--total-steps=40",
        r"--pattern=tick (?P<step>\d+) err (?P<error>\S+)",
    )
    assert run.end()[0] == 0
    assert (run.document["step"], run.document["totalSteps"]) == (30, 40)
    assert run.document["metrics"] == {"error": 0.5}


def test_a_pattern_that_is_broken_is_said_before_anything_runs(tmp_path: Path) -> None:
    code, output, errors = Run(tmp_path, "print('ran')", "--pattern=(").end()
    assert (code, output) == (2, b"")
    assert b"--pattern:" in errors


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"^(?:\d|\d\d)*loss (?P<loss>\d+)", "1" * 60),
        (r"^(\w+\s?)*loss (?P<loss>\d+)!$", "alpha beta gamma delta epsilon zeta eta theta loss 5?"),
        (r"^.*.*.*.*.*loss=(?P<loss>\d+)$", "x" * 2000),
    ],
)
def test_a_pattern_that_takes_for_ever_is_given_up(tmp_path: Path, pattern: str, line: str) -> None:
    """Seen: the wrapper outlived its command, and no signal but SIGKILL ended it."""
    code, output, errors = Run(tmp_path, f"print('{line}'); exit(3)", f"--pattern={pattern}").end()
    assert (code, output.decode()) == (3, f"{line}\n")
    assert b"--pattern has taken more than 1 s" in errors


@pytest.mark.parametrize("descriptor", [1, 2])
def test_a_command_whose_output_nobody_reads_any_more_ends_as_it_would_without_us(
    tmp_path: Path, descriptor: int
) -> None:
    """`yes | head -1` ends."""
    run = Run(tmp_path, "", command=("sh", "-c", f"exec yes 'step 3/10 loss 0.5' >&{descriptor}"))
    stream = run.process.stdout if descriptor == 1 else run.process.stderr
    assert stream is not None
    assert stream.readline() == b"step 3/10 loss 0.5\n"
    stream.close()
    run.process.stdout, run.process.stderr = (
        (None, run.process.stderr) if descriptor == 1 else (run.process.stdout, None)
    )
    assert run.end()[0] == -signal.SIGPIPE
    assert (run.document["state"], run.document["step"]) == ("failed", 3)


def test_output_that_a_full_disk_does_not_take_is_told_of_once(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        run = Run(tmp_path, "for i in range(9): print(f'step {i + 1}/9 loss 0.5')", stdout=full)
        code, _, errors = run.end()
    assert (code, run.document["step"]) == (0, 9)
    assert errors == b"trainjob_progress: some of the command's output is lost: No space left on device\n"


def test_text_without_progress_is_reported_without_a_step(tmp_path: Path) -> None:
    run = Run(tmp_path, "print('loading'); print('epochs of history, in 3 files'); print('done')")
    assert run.end()[0] == 0
    assert run.document["state"] == "completed"
    assert not {"step", "totalSteps", "epoch", "progressPercentage"} & run.document.keys()


def test_a_line_without_an_end_is_bounded(tmp_path: Path) -> None:
    script = "import sys\nsys.stdout.write('x' * 50_000_000)\nprint('\\nstep 2/4 loss 0.5')\n"
    run = Run(tmp_path, script)
    code, output, _ = run.end()
    assert (code, len(output)) == (0, 50_000_019)
    assert run.document["step"] == 2


EARLY = """
import os, signal, sys
from trainjob_progress import run

really = run.open_channels

def open_channels(outputs):
    os.killpg(0, signal.SIGINT)
    return really(outputs)

run.open_channels = open_channels
sys.exit(run.main(["--", "sleep", "60"]))
"""


def test_a_signal_to_all_before_the_command_is_there_comes_to_it(tmp_path: Path) -> None:
    """Seen: Ctrl-C in the first tenth of a second stopped nothing."""
    environ = {**os.environ, "PYTHONPATH": str(REPORTER), "TRAINJOB_PROGRESS_FILE": str(tmp_path / "p.json")}
    done = subprocess.run(
        [sys.executable, "-c", EARLY], env=environ, start_new_session=True, timeout=30, check=False
    )
    assert done.returncode == -signal.SIGINT


BUSY = """
import sys, time
from trainjob_progress import run
from trainjob_progress.sinks.file import FileSink

really = FileSink.write

def write(self, snapshot):
    free_s = time.monotonic() + (0 if snapshot.state == "running" else 0.5)
    while time.monotonic() < free_s:
        pass
    really(self, snapshot)

FileSink.write = write
sys.exit(run.main(["--", "echo", "step 9/9 loss 0.5"]))
"""


def test_the_last_document_is_waited_for_where_others_have_the_cores(tmp_path: Path) -> None:
    """Seen: at a load of 39, three of 100 commands that had finished were running for ever."""
    path = tmp_path / "p.json"
    environ = {**os.environ, "PYTHONPATH": str(REPORTER), "TRAINJOB_PROGRESS_FILE": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", BUSY], env=environ, capture_output=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == (b"step 9/9 loss 0.5\n", b"")
    assert json.loads(path.read_bytes())["state"] == "completed"


LOGS = """
import os, time
from trainjob_progress.trackers import Point
from trainjob_progress.trackers.tensorboard import EventFile
writer = EventFile("runs/now")
for step in range(1, 31):
    writer.log([Point(float(step), step, {"loss": 1 / step})])
    print(*({said}))
os._exit(0)
"""


@pytest.mark.parametrize(
    ("said", "step"),
    [("", 30), ("f'step {step}/60',", 30), ("'epoch 1/1',", 30)],
    ids=["nothing", "steps", "epochs"],
)
def test_event_files_of_tensorboard_are_read_beside_the_output(tmp_path: Path, said: str, step: int) -> None:
    script = LOGS.replace("{said}", said or "()")
    directory = {"TRAINJOB_PROGRESS_EVENT_FILES": str(tmp_path / "runs"), "PWD": str(tmp_path)}
    run = Run(tmp_path, f"import os; os.chdir({str(tmp_path)!r})\n{script}", environ=directory)
    code, _, errors = run.end()
    assert (code, errors) == (0, b"")
    assert (run.document["step"], run.document["metrics"]["loss"]) == (step, pytest.approx(1 / 30))
    planned = Run(
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})\n{script}",
        *("--event-files", str(tmp_path / "runs"), "--total-steps", "30"),
    )
    assert planned.end()[0] == 0
    assert (planned.document["totalSteps"], planned.document["state"]) == (30, "completed")


def test_an_event_file_that_is_not_there_does_not_keep_the_command_from_starting(tmp_path: Path) -> None:
    """Seen, with a link that leads nowhere: the training never started."""
    (tmp_path / "events.out.tfevents.1.old").symlink_to("nowhere")
    run = Run(tmp_path, "raise SystemExit(3)", "--event-files", str(tmp_path))
    assert run.end()[0] == 3
