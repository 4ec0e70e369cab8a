"""Reports for a program that knows nothing of it: `python -m trainjob_progress.run -- COMMAND…`

The command runs as it would without us: in the same process group, session and terminal, with the same stdin,
environment and signals; its output goes where it went, and its end is the end here. What the output says of
progress goes into reports too.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():
    del sys.path[0]  # there the program's modules are, not ours: one of them may be called `signal`

import argparse
import codecs
import contextlib
import re
import signal
import threading
import time
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence

from .channels import FLOOD, Channel, open_channels
from .command import Command, become, end_like
from .loops import report
from .publisher import warn
from .reporter import Reporter
from .settings import WRAPPER_VARIABLE
from .witness import FORWARDED, Witness, name_signal

if TYPE_CHECKING:  # what reads lines is imported while the command runs: its patterns take a while
    from .lines import Fields
    from .screen import Line

READ_INTERVAL_S = 0.1  # between two readings of the output; a report is due every 0.5 s
MAX_SHARE = 0.1  # of a core, for reading: a program that prints without a pause is not slowed down by it
SWITCH_INTERVAL_S = 0.0005  # copying waits no longer than this for the interpreter while lines are read
MAX_APART = 0.1  # of the whole: whoever stops by so much before the end has stopped
STUCK_S = 1.0  # who takes nothing of the output for so long does not delay the last report


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command to its end, and end as it did. Returns only if it could not be started."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    outputs = _occupy_closed_streams()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    witness = Witness()
    reporter = report(options.total_steps, total_epochs=options.total_epochs, initial_step=None)
    try:
        if not reporter.is_active:  # not rank 0, or nowhere to report to: there is nothing for us to do
            witness.dismiss()
            os.waitpid(witness.pid, 0)
            become(options.command, mask)
        place = _offer_place()
        channels = open_channels(outputs)
        command = Command(options.command, channels=channels, witness=witness, mask=mask)
    except OSError as error:
        reporter.finish("failed", f"the command did not start: {type(error).__name__}")
        warn(f"{options.command[0]}: {error.strerror or error}")
        return 127 if isinstance(error, FileNotFoundError) else 126  # as shells have it
    plan = {"total_steps": options.total_steps, "total_epochs": options.total_epochs}
    reader = Reader(reporter, options.pattern, channels, plan, place)
    _follow(command, reader, reporter, channels)
    witness.take_over(channel.stream for channel in channels if channel.is_held)
    witness.dismiss()
    if not any(channel.is_held for channel in channels):
        with contextlib.suppress(OSError):
            os.waitpid(witness.pid, 0)
    return end_like(command.status)


def _follow(command: Command, reader: Reader, reporter: Reporter, channels: Sequence[Channel]) -> None:
    """Until the command has ended, what it wrote is copied and the last report is written."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for channel in channels:
        channel.start()
    reader.start()
    command.wait()
    for channel in channels:
        channel.stop()
    deadline_s = time.monotonic() + STUCK_S
    for channel in channels:
        channel.join(max(deadline_s - time.monotonic(), 0))
    reader.end()
    _finish(reporter, command, is_near_end=reader.is_near_end)
    # Whoever reads the output may keep us waiting; meanwhile a signal ends us, as it would the command.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, command.mask)
    for channel in channels:
        channel.join()


class Reader:
    """Reports what a program's output says, a little later than it says it: nothing waits for this."""

    def __init__(
        self,
        reporter: Reporter,
        pattern: Optional[str],
        channels: Sequence[Channel],
        plan: Mapping[str, Optional[float]],
        place: str,
    ) -> None:
        """`pattern`: in place of what is known. `plan`: total_steps and total_epochs, as far as given.
        `place`: of the file by which a reporter in the command takes ours."""
        self._place = place
        self._plan = plan
        self._reporter = reporter
        self._pattern = pattern
        self._channels = channels
        self._positions = {"step": _Positions(), "epoch": _Positions()}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Read what there is to the end."""
        self._is_over.set()
        self._thread.join()
        self._read()
        for output in self._outputs:
            self._report(output.screen.end())

    def _run(self) -> None:
        from .lines import LineReader

        self._lines = LineReader(self._pattern)
        self._outputs = [_Output(channel) for channel in self._channels]
        pause_s = READ_INTERVAL_S
        while not self._is_over.wait(pause_s):
            began_s = time.thread_time()
            self._read()
            pause_s = max(READ_INTERVAL_S, (time.thread_time() - began_s) * (1 / MAX_SHARE - 1))

    def _read(self) -> None:
        if os.path.exists(self._place):
            self._reporter._run.leave()
            with contextlib.suppress(OSError):
                os.unlink(self._place)
        for output in self._outputs:
            self._report(output.read())

    def _report(self, lines: Sequence[Line]) -> None:
        for line in lines:
            try:
                fields = self._lines.read(line.text, depth=line.depth)
            except Exception as error:  # a line that breaks us is a line we do not understand
                fields = None
                warn(f"a line could not be read: {type(error).__name__}")
            if fields:
                self._update(fields)

    @property
    def is_near_end(self) -> bool:
        """Whether no more than what lies between two positions was left to do: one that counts from 0, prints
        each hundredth, or prints before it works, has no line for its end."""
        steps, epochs = self._positions["step"], self._positions["epoch"]
        return steps.is_near_end if steps.total else epochs.is_near_end

    def _update(self, fields: Fields) -> None:
        for name, planned in self._plan.items():  # whoever starts the command knows better than a guess
            if planned is not None:
                fields.pop(name, None)
            elif name in fields and fields[name] is None:
                fields[name] = 0  # no plan: None would leave the old one
        if "step" in fields and fields["step"] is None:
            self._reporter._step = None
        for name, position in self._positions.items():
            position.follow(fields.get(name), fields.get(f"total_{name}s"), self._plan[f"total_{name}s"])
        self._reporter.update(**fields)


class _Positions:
    """How far apart the positions are that are printed."""

    def __init__(self) -> None:
        self.total: Optional[float] = None
        self._at: float = 0
        self._apart: float = 1

    def follow(self, at: Optional[float], printed: Optional[float], planned: Optional[float]) -> None:
        if at is not None:
            if at > self._at:
                self._apart = max(self._apart, at - self._at)
            self._at = at
        self.total = planned or (self.total if printed is None else printed)

    @property
    def is_near_end(self) -> bool:
        total = self.total or 0
        return total > 0 and total - self._at <= max(min(self._apart, total * MAX_APART), 1)


class _Output:
    """One output as a terminal would show it."""

    def __init__(self, channel: Channel) -> None:
        from .screen import Screen

        self._make_screen = Screen
        self.screen = Screen()
        self._channel = channel
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self) -> List[Line]:
        data, has_gap = self._channel.take()
        if has_gap:
            data = data[-FLOOD:]  # 1,600 short lines
            self.screen, data = self._make_screen(), data[data.find(b"\n") + 1 :]
        return self.screen.write(self._decode(data)) + self.screen.pause()


def _finish(reporter: Reporter, command: Command, *, is_near_end: bool) -> None:
    code = os.waitstatus_to_exitcode(command.status)
    if code == 0:
        # A run that ends well before its end because it was asked to has not completed.
        reporter._run.is_terminated = bool(command.asked_by)
        reporter.finish("completed" if is_near_end and not command.asked_by else None)
        return
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {name_signal(-code)}"
    reporter.finish("preempted" if signal.SIGTERM in command.asked_by else "failed", f"the command {how}")


def _offer_place() -> str:
    """Tell reporters in the command where to ask for our place. No other user can know it."""
    path = f"{os.environ.get('TMPDIR') or '/tmp'}/trainjob-progress-{os.urandom(8).hex()}"  # noqa: S108
    os.environ[WRAPPER_VARIABLE] = f"{os.getpid()}:{path}"
    return path


def _occupy_closed_streams() -> List[int]:
    """The outputs that are open. No file of ours may become the command's stdin or stdout: where these are
    closed, something is open now that is not inherited."""
    closed = []
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return [output for output in (1, 2) if output not in closed]
        closed.append(descriptor)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainjob_progress.run",
        description="Run a training command and report what it prints of its progress.",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT …]",
    )
    parser.add_argument(
        "--total-steps", type=int, metavar="N", help="steps planned, whatever the output says"
    )
    parser.add_argument("--total-epochs", type=float, metavar="N", help="epochs planned")
    parser.add_argument(
        "--pattern",
        metavar="REGEX",
        help="how to read a line, in place of what is known: named groups step, total, epoch, epochs, "
        "percentage, message; any other name is a metric",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error("there is no COMMAND")
    if options.pattern is not None:
        try:
            re.compile(options.pattern)
        except re.error as error:
            parser.error(f"--pattern: {error}")
        from .patterns import has_nested_repetition

        if has_nested_repetition(options.pattern):
            parser.error(
                "--pattern: a repetition inside of a repetition may take for ever: write [ab]* for (a*b)*"
            )
    return options


if __name__ == "__main__":
    sys.exit(main())
