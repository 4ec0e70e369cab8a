"""What `run --bar` and `run --explain` show to the person who runs a command."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pyte
import pytest

from trainjob_progress.explained import explain
from trainjob_progress.lines import MAX_LINE

REPORTER = Path(__file__).parents[2] / "reporter"
COLUMNS, ROWS = 60, 10
LOOP = "for i in range(1, 41): print(f'step {i}/40 loss: {1 / i:.4f}', flush=True)"


def on_a_screen(
    script: str, *, interrupted_after: bytes = b"", stdout: int | None = None
) -> tuple[list[str], bytes, int]:
    """The rows at the end, all that was written, and the exit code. `stdout`: in place of the screen."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTER), "TERM": "xterm", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-m", "trainjob_progress.run", "--bar", "--", sys.executable, "-c", script]
    written = b""
    with subprocess.Popen(argv, env=env, stdin=other, stdout=stdout or other, stderr=other) as process:
        os.close(other)
        while True:
            try:
                data = os.read(main, 4096)
            except OSError:  # the last writer has closed it
                break
            written += data
            if interrupted_after and interrupted_after in written:
                process.send_signal(signal.SIGINT)
                interrupted_after = b""
        code = process.wait(60)
    os.close(main)
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(written)
    return [row.rstrip() for row in screen.display], written, code


def test_the_bar_stays_below_the_output_and_is_its_last_line() -> None:
    rows, written, code = on_a_screen(LOOP + "\nimport time; time.sleep(1.5)\nprint('the end')")
    assert code == 0
    assert f"\x1b[1;{ROWS - 1}r".encode() in written
    shown = [row for row in rows if row]
    assert shown[-2] == "the end"
    assert re.match(r"100% \|.*40/40  completed after", shown[-1])
    assert sum("|" in row for row in shown) == 1, shown
    assert [row for row in shown if row.startswith("step")] == [
        f"step {i}/40 loss: {1 / i:.4f}" for i in range(41 - len(shown) + 2, 41)
    ]


def test_the_bar_is_in_the_last_row_when_the_output_goes_elsewhere() -> None:
    with open(os.devnull, "wb") as elsewhere:
        rows, written, code = on_a_screen(LOOP, stdout=elsewhere.fileno())
    assert (code, sum("|" in row for row in rows)) == (0, 1)
    assert set(re.findall(rb"\x1b\[1;(\d+)r", written)) == {str(ROWS - 1).encode()}


def test_all_rows_scroll_again_after_ctrl_c() -> None:
    script = LOOP + "\nimport time\nwhile True: time.sleep(0.1)"
    _, written, code = on_a_screen(script, interrupted_after=f"\x1b[1;{ROWS - 1}r".encode())
    assert code in (-signal.SIGINT, 130, 1)
    assert written.rindex(b"\x1b[r") > written.rindex(f"\x1b[1;{ROWS - 1}r".encode())


@pytest.mark.parametrize(
    ("line", "fields", "has_pattern", "said"),
    [
        ("step 4/9", {"step": 4, "metrics": {"loss": 0.5}}, False, "taken: step=4, loss=0.5"),
        ("hello", None, False, "not taken, it has no number"),
        ("[rank3]: step 4/9", None, False, "not taken, of another rank"),
        ("version 4", None, False, "not taken, it shows no step, epoch, share or metric that is known"),
        ("version 4", None, True, "not taken, --pattern does not match"),
        ("9" * (MAX_LINE + 1), None, False, f"not taken, longer than {MAX_LINE} characters"),
    ],
)  # fmt: skip
def test_an_explanation_says_why(line: str, fields: dict[str, object], has_pattern: bool, said: str) -> None:
    assert explain(line, fields, None, has_pattern=has_pattern) == said


def test_each_line_is_explained_and_the_output_stays_as_it_is(tmp_path: Path) -> None:
    lines = ("begin", "\x1b[1mstep 3/9 loss: 0.5\x1b[0m", "saving checkpoint at iteration 3")
    script = f"for line in {lines!r}: print(line)"
    argv = [sys.executable, "-m", "trainjob_progress.run", "--explain", "--", sys.executable, "-c", script]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTER)}
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "".join(f"{line}\n" for line in lines)
    assert [line.partition(" <- ")[0] for line in ran.stderr.splitlines()] == [
        "[trainjob_progress] not taken, it has no number",
        "[trainjob_progress] taken: total_steps=9, step=3, loss=0.5",
        "[trainjob_progress] taken: a checkpoint save begins",
    ]
    assert "\x1b" not in ran.stderr


@pytest.mark.parametrize("is_full", [True, False])
def test_the_exit_code_is_the_commands_when_nobody_takes_the_explanations(is_full: bool) -> None:
    # The command's own stderr goes nowhere, so that it is not told.
    script = f"import os; os.dup2(os.open({os.devnull!r}, os.O_WRONLY), 2)\n{LOOP}\nraise SystemExit(5)"
    argv = [sys.executable, "-m", "trainjob_progress.run", "--explain", "--", sys.executable, "-c", script]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTER)}
    if is_full:
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    ran = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=stderr, timeout=60, check=False)
    os.close(stderr)
    assert (ran.returncode, ran.stdout.count(b"\n")) == (5, 40)
