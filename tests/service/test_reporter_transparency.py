"""What a command sees under `run`, and what others see of it, is as without: each test runs both."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPORTER = Path(__file__).parents[2] / "reporter"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
SIGNALS = [
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGTERM, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGWINCH, signal.SIGURG, signal.SIGRTMIN, signal.SIGRTMAX,
]  # fmt: skip
# Says which signal has come, and at the end how often each has.
# A signal that comes just before a read begins is handled when that read ends: scripts wait in short turns.
WAIT = "import select\nwhile not select.select([0], [], [], 0.05)[0]: pass\n"
COUNTER = f"""
import os, signal, sys
seen = {{}}
def note(number, _):
    seen[number] = seen.get(number, 0) + 1
    os.write(1, b"%d\\n" % number)
for number in {[int(number) for number in SIGNALS]}:
    signal.signal(number, note)
os.write(1, b"ready\\n")
{WAIT}
sys.stdin.read()
os.write(1, repr(seen).encode())
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(params=["bare", "wrapped"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts a command in a session of its own, bare or wrapped; whatever is left of it is ended."""
    started: list[subprocess.Popen[bytes]] = []
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPORTER),
        "TRAINJOB_PROGRESS_FILE": str(tmp_path / "progress.json"),
    }

    def run(*command: str, before: tuple[str, ...] = (), **how: Any) -> subprocess.Popen[bytes]:
        wrapper = (sys.executable, "-m", "trainjob_progress.run", "--") if request.param == "wrapped" else ()
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options = {"env": environ, "start_new_session": True, **streams, **how}
        process = subprocess.Popen([*before, *wrapper, *command], **options)
        started.append(process)
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def python(script: str) -> tuple[str, str, str]:
    return sys.executable, "-c", script


def read_until(source: int, word: bytes) -> bytes:
    data = b""
    while word not in data:
        data += os.read(source, 4096)
    return data


# Its end


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_commands(start: Start, code: int) -> None:
    assert start(*python(f"raise SystemExit({code})")).wait(60) == code


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV]
)
def test_a_command_that_a_signal_ends_is_seen_to_be_ended_by_it(start: Start, number: int) -> None:
    assert start("sh", "-c", f"kill -{int(number)} $$").wait(60) == -number


def test_a_command_may_leave_someone_running_who_goes_on_to_write(start: Start, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start("sh", "-c", f"(read line <{pipe}; echo late; echo fault >&2) & echo early; exit 3")
    assert process.wait(60) == 3
    assert process.stdout is not None
    assert process.stdout.readline() == b"early\n"
    pipe.write_text("now\n")
    assert process.communicate(timeout=60) == (b"late\n", b"fault\n")


def test_whoever_kills_the_process_that_they_know_ends_the_command(start: Start) -> None:
    readable, writable = os.pipe()
    process = start("sh", "-c", "echo ready; exec sleep 600", pass_fds=[writable])
    os.close(writable)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    assert os.read(readable, 1) == b""  # nobody is left who has it open
    os.close(readable)


# Signals


def count_signals(process: subprocess.Popen[bytes], send: Callable[[int], object]) -> dict[int, int]:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    for number in SIGNALS:
        send(number)
        assert process.stdout.readline() == b"%d\n" % number
    seen: dict[int, int] = eval(process.communicate(timeout=60)[0])
    return seen


def test_a_signal_to_the_process_comes_once(start: Start) -> None:
    process = start(*python(COUNTER))
    assert count_signals(process, process.send_signal) == dict.fromkeys(SIGNALS, 1)


def test_a_signal_to_the_process_group_comes_once(start: Start) -> None:
    process = start(*python(COUNTER))
    assert count_signals(process, lambda number: os.killpg(process.pid, number)) == dict.fromkeys(SIGNALS, 1)


def test_a_signal_to_each_process_by_its_name_comes_once(start: Start) -> None:
    """As `pkill -f train.py` sends it: one after the other."""
    process = start(*python(COUNTER + "# train-by-this-name"))

    def send_to_all(number: int) -> None:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"train-by-this-name" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        for pid in sorted(found):
            os.kill(pid, number)

    assert count_signals(process, send_to_all) == dict.fromkeys(SIGNALS, 1)


def test_a_command_that_stops_is_seen_to_stop_and_goes_on_with_the_next_signal(start: Start) -> None:
    process = start("sh", "-c", "echo ready; kill -TSTP $$; echo again", stdin=subprocess.DEVNULL)
    # An orphaned process group is not stopped by TSTP; this one has its parent, but in another session.
    assert process.communicate(timeout=60)[0] == b"ready\nagain\n"
    process = start("sh", "-c", "echo ready; kill -STOP $$; echo again")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == b"ready\nagain\n"


def test_signals_are_blocked_and_ignored_as_they_were(start: Start) -> None:
    shown = ("grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status")
    for before in ("", "trap '' HUP INT; "):
        output = start("sh", "-c", before + 'exec "$@"', "sh", *shown).communicate(timeout=60)[0]
        blocked, ignored = (int(line.split()[1], 16) for line in output.splitlines())
        c_librarys_own = 0x180000000  # 32 and 33
        assert (blocked, ignored & ~c_librarys_own) == (0, 3 if before else 0)


# What it inherits


def test_every_open_file_is_the_commands_too(start: Start, tmp_path: Path) -> None:
    """`run -- train --config <(generate)`."""
    readable, writable = os.pipe()
    os.write(writable, b"lr: 1e-3")
    os.close(writable)
    process = start("cat", f"/dev/fd/{readable}", pass_fds=[readable])
    os.close(readable)
    assert process.communicate(timeout=60) == (b"lr: 1e-3", b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_what_is_closed_stays_closed(start: Start, tmp_path: Path, closed: str) -> None:
    says = f"exec 9>{tmp_path}/open; for i in 0 1 2; do [ -e /proc/$$/fd/$i ] && echo $i >&9; done; true"
    process = start("sh", "-c", says, before=("sh", "-c", f'exec "$@" {closed}', "sh"))
    assert process.wait(60) == 0
    names = {"<&-": "0", ">&-": "1", "2>&-": "2"}
    expected = {"0", "1", "2"} - {names[word] for word in closed.split()}
    assert set((tmp_path / "open").read_text().split()) == expected


def test_stdin_is_the_commands(start: Start) -> None:
    data = os.urandom(300_000)
    assert start("cat").communicate(data, timeout=60) == (data, b"")


def test_the_process_group_and_the_session_are_the_same(start: Start) -> None:
    process = start(*python("import os; print(os.getpgrp(), os.getsid(0))"))
    assert process.communicate(timeout=60)[0] == b"%d %d\n" % (process.pid, process.pid)


@pytest.mark.parametrize("word", ["--", "--total-steps=3", "-h", "\udcff"])
def test_words_of_the_command_are_the_commands(start: Start, word: str) -> None:
    process = start("printf", "%s|", "a", word, "--", word)
    assert process.communicate(timeout=60)[0] == os.fsencode(f"a|{word}|--|{word}|")


def test_modules_of_the_program_do_not_take_the_place_of_ours(start: Start, tmp_path: Path) -> None:
    for name in ("argparse", "json", "socket", "select", "resource"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not for you')")
    assert start("echo", "fine", cwd=tmp_path).communicate(timeout=60) == (b"fine\n", b"")


# Its output


def test_two_streams_in_one_keep_their_order(start: Start) -> None:
    script = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
    output = start(*python(script), stderr=subprocess.STDOUT).communicate(timeout=60)[0]
    assert output == b"".join(b"%d\n" % i for i in range(2000))


def test_any_bytes_pass_unchanged(start: Start) -> None:
    script = (
        "import os, random\nrandom.seed(7)\nfor i in range(40): os.write(1 + i % 2, random.randbytes(99_999))"
    )
    output, errors = start(*python(script)).communicate(timeout=60)
    assert (len(output), len(errors)) == (20 * 99_999, 20 * 99_999)
    assert hash((output, errors)) == EXPECTED.setdefault("any bytes", hash((output, errors)))


EXPECTED: dict[str, int] = {}  # what the first of two runs has given


# On a terminal


@contextlib.contextmanager
def on_terminal(start: Start, *command: str, shell: str = "", **how: Any) -> Iterator[tuple[Any, int]]:
    """(the process, the terminal's other side); the terminal is its controlling one."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    before = ("setsid", "--ctty", "sh", "-c", 'trap : INT QUIT; "$@"; echo "code $?"', "sh")
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": False, **how}
    process = start(*command, before=before, **streams)
    os.close(theirs)
    yield process, ours
    process.wait(60)
    os.close(ours)


def test_a_terminal_is_a_terminal_of_the_same_size(start: Start) -> None:
    script = (
        "import os; print([os.isatty(i) for i in range(3)], *os.get_terminal_size(1), "
        "os.tcgetpgrp(0) == os.getpgrp())"
    )
    with on_terminal(start, *python(script)) as (_, terminal):
        assert b"[True, True, True] 120 40 True\r\ncode 0" in read_until(terminal, b"code")


def test_a_pipe_beside_a_terminal_is_a_pipe(start: Start) -> None:
    script = "import os; os.write(2, repr([os.isatty(i) for i in range(3)]).encode())"
    readable, writable = os.pipe()
    with on_terminal(start, *python(script), stdout=writable) as (_, terminal):
        os.close(writable)
        assert b"[True, False, True]" in read_until(terminal, b"]")
    os.close(readable)


def test_another_size_of_the_terminal_is_known_when_the_command_hears_of_it(start: Start) -> None:
    script = (
        "import os, signal, sys\n"
        "def show(*_): os.write(1, b'now %d %d' % os.get_terminal_size(1))\n"
        "signal.signal(signal.SIGWINCH, show)\n"
        "print('ready', flush=True)\n" + WAIT
    )
    with on_terminal(start, *python(script)) as (_, terminal):
        read_until(terminal, b"ready")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 77, 0, 0))
        read_until(terminal, b"now 77 30")
        os.write(terminal, b"\n")
        read_until(terminal, b"code 0")


@pytest.mark.parametrize(("key", "number"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)])
def test_a_key_is_one_signal(start: Start, key: bytes, number: int) -> None:
    script = COUNTER.replace("sys.stdin.read()", "sys.stdin.readline()")
    with on_terminal(start, *python(script)) as (_, terminal):
        read_until(terminal, b"ready")
        os.write(terminal, key)
        read_until(terminal, b"%d\r\n" % number)
        os.write(terminal, b"\n")
        assert b"{%d: 1}" % number in read_until(terminal, b"}")


def test_a_checkpoint_on_keyboard_interrupt_is_written_to_its_end(start: Start, tmp_path: Path) -> None:
    script = (
        "import os, select\ntry:\n    print('ready', flush=True)\n"
        "    while not select.select([0], [], [], 0.05)[0]: pass\n"
        "except KeyboardInterrupt:\n"
        "    for part in range(300):\n        os.stat('/')\n        open('checkpoint', 'a').write('.')\n"
        "    print('saved', flush=True)"
    )
    with on_terminal(start, *python(script), cwd=tmp_path) as (_, terminal):
        read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        read_until(terminal, b"saved")
    assert (tmp_path / "checkpoint").read_text() == "." * 300


# What is the wrapper's alone


def test_without_anywhere_to_report_to_the_wrapper_becomes_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainjob_progress.run", "sh", "-c", "echo $$"]
    process = subprocess.Popen(command, env={"PYTHONPATH": str(REPORTER), "PATH": os.environ["PATH"]},
                               stdout=subprocess.PIPE)  # fmt: skip
    assert process.communicate(timeout=60)[0] == b"%d\n" % process.pid


def test_an_output_that_does_not_block_loses_nothing(tmp_path: Path) -> None:
    """Whoever shares it with us may have made it so."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPORTER),
        "TRAINJOB_PROGRESS_FILE": str(tmp_path / "p"),
    }
    command = [sys.executable, "-m", "trainjob_progress.run", "head", "-c", "500000", "/dev/zero"]
    process = subprocess.Popen(command, env=environ, stdout=writable)
    os.close(writable)
    size = 0
    while chunk := os.read(readable, 10_000):
        size += len(chunk)
    os.close(readable)
    assert (process.wait(60), size) == (0, 500_000)


def test_a_signal_while_the_output_is_waited_for_ends_what_is_left(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    path = tmp_path / "progress.json"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTER), "TRAINJOB_PROGRESS_FILE": str(path)}
    command = ["sh", "-c", "echo step 3/10; exec head -c 100000 /dev/zero"]
    process = subprocess.Popen([sys.executable, "-m", "trainjob_progress.run", "--", *command], env=environ,
                               stdout=writable)  # fmt: skip
    os.close(writable)
    while not path.exists() or json.loads(path.read_bytes())["state"] == "running":
        pass  # the document is written though nobody reads the output
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    os.close(readable)
