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

import contextlib
import signal
import time
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence

from .channels import Channel, open_channels
from .command import Command, become, end_like
from .loops import report
from .output_reader import Reader
from .publisher import warn
from .rank import find_rank
from .reporter import Reporter
from .settings import WRAPPER_VARIABLE, find_sinks
from .witness import FORWARDED, Witness, name_signal

if TYPE_CHECKING:
    from .event_files import EventFiles
    from .explained import Explainer
    from .searcher import Searcher
    from .sinks import Sink

SWITCH_INTERVAL_S = 0.0005  # copying waits no longer than this for the interpreter while lines are read
STUCK_S = 1.0  # who takes nothing of the output for so long does not delay the last report


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command to its end, and end as it did. Returns only if it could not be started."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    outputs = _occupy_closed_streams()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    witness = Witness()
    searcher: Optional[Searcher] = None
    if options.pattern is not None:
        from .searcher import Searcher

        searcher = Searcher(options.pattern)
    # By name: a wrapper reads what is printed, and writes no file of its rank.
    sinks = [] if find_rank() else find_sinks()
    explainer = _add_for_people(options, sinks)
    reporter = report(options.total_steps, total_epochs=options.total_epochs, initial_step=None, sinks=sinks)
    try:
        if not reporter.is_active:  # not rank 0, or nowhere to report to: there is nothing for us to do
            witness.dismiss()
            os.waitpid(witness.pid, 0)
            if searcher is not None:
                searcher.end()
            become(options.command, mask)
        place = _offer_place()
        events = _find_events(options)
        channels = open_channels(outputs)
        command = Command(options.command, channels=channels, witness=witness, mask=mask)
    except OSError as error:
        reporter.finish("failed", f"the command did not start: {type(error).__name__}")
        warn(f"{options.command[0]}: {error.strerror or error}")
        return 127 if isinstance(error, FileNotFoundError) else 126  # as shells have it
    plan = {"total_steps": options.total_steps, "total_epochs": options.total_epochs}
    reader = Reader(reporter, None if searcher is None else searcher.search, channels, plan, place, events)
    if explainer is not None:
        reader.explain = explainer.tell
    _follow(command, reader, reporter, channels)
    witness.take_over(channel.stream for channel in channels if channel.is_held)
    witness.dismiss()
    if not any(channel.is_held for channel in channels):
        with contextlib.suppress(OSError):
            os.waitpid(witness.pid, 0)
    return end_like(command.status)


def _add_for_people(options: Options, sinks: List[Sink]) -> Optional[Explainer]:
    """What the user wants to see: a bar, an explanation, or both. Ranks other than 0 show neither."""
    explainer = None
    if options.bar and not find_rank():
        from .sinks.below import BelowSink

        sinks.append(BelowSink())
    if options.explain and not find_rank():
        from .explained import Explainer

        explainer = Explainer(has_pattern=options.pattern is not None)
        sinks.append(explainer)
    return explainer


def _find_events(options: Options) -> Optional[EventFiles]:
    """TensorBoard's event files, before the command adds to them."""
    directory = options.event_files or os.environ.get("TRAINJOB_PROGRESS_EVENT_FILES")
    if not directory:
        return None
    from .event_files import EventFiles

    return EventFiles(directory)


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
    _finish(reporter, command, reader)
    # Whoever reads the output may keep us waiting; meanwhile a signal ends us, as it would the command.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, command.mask)
    for channel in channels:
        channel.join()
    reporter._run.exit()  # a thread that has had no core yet has the last report still to write


def _finish(reporter: Reporter, command: Command, reader: Reader) -> None:
    code = os.waitstatus_to_exitcode(command.status)
    if code == 0:
        # A run that ends well before its end because it was asked to has not completed.
        reporter._run.is_terminated = bool(command.asked_by)
        reporter.finish(None if command.asked_by else reader.find_ending())
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


class Options(NamedTuple):
    """What is said of the command."""

    command: List[str]
    total_steps: Optional[int] = None
    total_epochs: Optional[float] = None
    pattern: Optional[str] = None
    event_files: Optional[str] = None
    bar: bool = False
    explain: bool = False


def _parse(arguments: Sequence[str]) -> Options:
    if arguments[:1] == ["--"] and arguments[1:]:
        return Options(list(arguments[1:]))
    import argparse
    import re

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
    parser.add_argument(
        "--event-files",
        metavar="DIR",
        help="also read the TensorBoard event files that appear below DIR; default: the variable "
        "TRAINJOB_PROGRESS_EVENT_FILES",
    )
    parser.add_argument("--bar", action="store_true", help="show what is understood, below the output")
    parser.add_argument(
        "--explain", action="store_true", help="say of each line what is understood, or why nothing is"
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
    return Options(**vars(options))


if __name__ == "__main__":
    sys.exit(main())
