"""`kubectl trainjob-progress` through real kubectl: found as a plugin, in a pipe and in a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte
import pytest

from tests.e2e.processes import PATIENCE_S
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.scripts import REPORTING
from tests.e2e.workspace import User, Workspace

PLUGIN = "trainjob-progress"


@pytest.fixture(scope="module")
def team(shared: Workspace, jobs: QuietJobs) -> Workspace:
    """bert runs and reports, llama has failed."""
    shared.start_job("bert", REPORTING)
    jobs.create("llama")
    jobs.end("llama", condition="Failed")
    jobs.wait_phase("llama", "Failed")
    shared.wait_reporting("bert")
    return shared


def environment(user: User) -> dict[str, str]:
    """kubectl accepts no flags before a plugin's name, so the plugin finds its kubeconfig by the variable."""
    beside_python = str(Path(sys.executable).parent)
    found = user.kubectl_env()
    return {**found, "PATH": f"{beside_python}:{found['PATH']}", "KUBECONFIG": str(user.kubeconfig)}


def plugin(user: User, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [user.kubectl_argv()[0], PLUGIN, *words]
    return subprocess.run(
        argv, env=environment(user), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def on_a_screen(user: User, width: int, *words: str, **variables: str) -> str:
    """What it writes to a terminal of that width."""
    main, other = pty.openpty()
    env: Mapping[str, str] = {**environment(user), "COLUMNS": str(width), "LANG": "C.UTF-8", **variables}
    argv = [user.kubectl_argv()[0], PLUGIN, *words]
    with subprocess.Popen(argv, env=env, stdin=other, stdout=other, stderr=other) as process:
        os.close(other)
        found, end = b"", time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if not select.select([main], [], [], 0.1)[0]:
                continue
            try:
                found += os.read(main, 4096)
            except OSError:  # the last writer has closed it
                break
        assert process.wait(PATIENCE_S) == 0, found
    os.close(main)
    return found.decode().replace("\r\n", "\n")


class Screen:
    """A terminal in which a command runs until it is interrupted."""

    def __init__(self, user: User, *words: str) -> None:
        self._main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self._screen = pyte.Screen(100, 24)
        self._stream = pyte.ByteStream(self._screen)
        argv = [user.kubectl_argv()[0], PLUGIN, *words]
        env = {**environment(user), "LANG": "C.UTF-8", "TERM": "xterm"}
        self._process = subprocess.Popen(
            argv, env=env, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)

    def wait_until(self, holds: Callable[[str], bool], what: str) -> str:
        """What is on it then."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            text = "\n".join(self._screen.display)
            if holds(text):
                return text
            if select.select([self._main], [], [], 0.1)[0]:
                self._stream.feed(os.read(self._main, 4096))
        raise AssertionError(f"never: {what}; the screen is {text}")

    def end(self, by: signal.Signals | None = None) -> int:
        """The exit code."""
        if by is not None:
            os.killpg(self._process.pid, by)
        end = time.monotonic() + PATIENCE_S
        while self._process.poll() is None and time.monotonic() < end:
            if select.select([self._main], [], [], 0.1)[0]:  # what nobody reads would keep the command
                with contextlib.suppress(OSError):  # the last writer has closed it
                    os.read(self._main, 4096)
        code = self._process.wait(0.0)
        os.close(self._main)
        return code


def test_kubectl_finds_the_plugin_and_it_lists_what_kubectl_lists(team: Workspace) -> None:
    answer = plugin(team.alice, "-n", team.name)
    assert (answer.returncode, answer.stderr) == (0, "")
    rows = [re.split(r" {2,}", line) for line in answer.stdout.splitlines()]
    assert [row[:3] for row in rows] == [
        ["NAME", "KIND", "PHASE"],
        ["bert", "TrainJob", "Running"],
        ["llama", "TrainJob", "Failed"],
    ]
    names = team.alice.kubectl("get", "tjp", "-n", team.name, "-o", "name").stdout
    assert plugin(team.alice, "-n", team.name, "-k", "TrainJob", "-o", "name").stdout == names
    yaml = team.alice.kubectl("get", "tjp", "llama", "-n", team.name, "-o", "yaml").stdout
    assert (
        plugin(team.alice, "llama", "-n", team.name, "-o", "yaml").stdout.splitlines()[:3]
        == yaml.splitlines()[:3]
    )
    refused = plugin(team.bob, "-n", team.name)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error from server (Forbidden): trainingjobs.visibility")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("bert",), 0, "loss: 0.5"),
        (("history", "bert"), 0, "time,attempt,step,metric,value\n"),
        (("wait", "bert", "--until", "loss<1", "--timeout", "60s"), 0, "bert condition met"),
        (("wait", "llama"), 3, "llama has ended: Failed"),
        (("wait", "bert", "--timeout", "0"), 4, "timed out waiting"),
        (("why", "llama"), 0, "llama  Failed"),
        (("compare", "bert", "llama"), 0, "Phase"),
        (("top",), 0, "NAMESPACE"),
        (("check",), 0, "2 jobs may be read"),
        (("trainjob/nobody",), 1, "Error from server (NotFound)"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_every_command_answers_in_a_pipe(
    team: Workspace, words: tuple[str, ...], code: int, says: str
) -> None:
    answer = plugin(team.alice, *words, "-n", team.name)
    assert answer.returncode == code, answer
    assert says in answer.stdout + answer.stderr
    assert "\x1b" not in answer.stdout + answer.stderr


def test_in_a_terminal_there_are_bars_and_colours_as_the_variables_say(team: Workspace) -> None:
    words = ("-n", team.name)
    painted = on_a_screen(team.alice, 100, *words, TERM="xterm")
    assert "░" in painted
    assert "\x1b[31mFailed\x1b[0m" in painted
    plain = on_a_screen(team.alice, 80, "bert", *words, TERM="xterm", NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "░" in plain
    dumb = on_a_screen(team.alice, 40, *words, TERM="dumb")
    assert dumb.isascii()
    assert "\x1b" not in dumb
    for width, shown in ((80, plain), (40, dumb)):
        assert max(map(len, shown.splitlines())) <= width, shown


def test_kubectl_completes_the_names_of_jobs(team: Workspace) -> None:
    assert shutil.which("kubectl_complete-trainjob_progress", path=environment(team.alice)["PATH"])
    argv = [team.alice.kubectl_argv()[0], "__complete", PLUGIN, "-n", team.name, "logs", "be"]
    answer = subprocess.run(
        argv, env=environment(team.alice), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert answer.stdout.splitlines() == ["bert", ":4"]


def test_a_live_list_and_a_live_job_change_on_the_screen_as_the_cluster_does(
    team: Workspace, jobs: QuietJobs
) -> None:
    screen = Screen(team.alice, "-w", "-n", team.name)
    screen.wait_until(lambda text: "bert" in text and "new" not in text, "the list is drawn")
    jobs.create("new")
    screen.wait_until(lambda text: "new " in text, "a job that is made comes")
    jobs.end("new", condition="Failed")
    failed = screen.wait_until(lambda text: re.search(r"new .*Failed", text) is not None, "it has failed")
    jobs.delete("new")
    screen.wait_until(lambda text: "new " not in text, "a job that is deleted goes")
    assert failed.splitlines()[0].split()[:4] == ["NAME", "KIND", "PHASE", "PROGRESS"]
    assert screen.end(signal.SIGINT) == 130
    jobs.create("one")
    screen = Screen(team.alice, "one", "-w", "-n", team.name)
    screen.wait_until(lambda text: f"{team.name}/one" in text, "the job is drawn")
    jobs.end("one", condition="Failed")
    screen.wait_until(lambda text: re.search(r"/one +Failed", text) is not None, "its end is drawn")
    assert screen.end() == 0
    jobs.delete("one")
