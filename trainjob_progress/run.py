"""Reports for a program that knows nothing of it: `python -m trainjob_progress.run -- COMMAND…`

The command's output goes where it went; what it says of progress goes into reports too. Its exit code is
the exit code here, and signals go on to it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import IO, Optional, Sequence

from .lines import MAX_LINE, LineReader
from .loops import report
from .publisher import warn
from .reporter import Reporter

DRAIN_TIMEOUT_S = 5.0  # for output that a grandchild still holds open when the command has ended
_BREAKS = re.compile(rb"[\r\n\x08]+")  # tqdm ends a line with \r, Keras takes one back with \b


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command to its end. Returns its exit code; 128 + n when signal n ended it."""
    options = _parse(arguments)
    reporter = report(options.total_steps, total_epochs=options.total_epochs)
    signals = _open_signals()
    try:
        process = subprocess.Popen(  # noqa: S603 — the command is the caller's own
            options.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        reporter.finish("failed", f"the command did not start: {type(error).__name__}")
        warn(f"{options.command[0]}: {error.strerror or error}")
        return 127 if isinstance(error, FileNotFoundError) else 126  # as shells have it

    def pass_on(number: int, _: Optional[FrameType]) -> None:
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pass_on)
    reader = Reader(reporter, LineReader(options.pattern))
    threads = [
        threading.Thread(target=reader.copy, args=(source, target), daemon=True)
        for source, target in ((process.stdout, 1), (process.stderr, 2))
    ]
    for thread in threads:
        thread.start()
    while (code := process.poll()) is None:
        os.read(signals, 4096)
    for thread in threads:
        thread.join(DRAIN_TIMEOUT_S)
    if code == 0:
        reporter.finish()
    elif code > 0:
        reporter.finish("failed", f"the command ended with exit code {code}")
    else:
        reporter.finish("failed", f"the command was ended by {_name_signal(-code)}")
    return code if code >= 0 else 128 - code


def _open_signals() -> int:
    """A file descriptor with a byte for each signal that has come, the command's end among them.

    A signal that comes in the moment before a call blocks would wait as long as the call does.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return readable


class Reader:
    """Copies a program's output and reports what its lines say."""

    def __init__(self, reporter: Reporter, lines: LineReader) -> None:
        self._reporter = reporter
        self._lines = lines
        self._turn = threading.Lock()  # stdout and stderr tell one story

    def copy(self, source: IO[bytes], target: int) -> None:
        """Everything from `source` to the file descriptor `target`, at once and unchanged."""
        rest = b""
        is_open = True
        while True:
            chunk = os.read(source.fileno(), 65536)
            if not chunk:
                break
            is_open = is_open and _write_all(target, chunk)
            *lines, rest = _BREAKS.split(rest + chunk)
            for line in lines:
                self._report(line)
            # A bar's line is complete when it is drawn, not when it is taken back.
            if rest.endswith(b"]"):
                self._report(rest)
            rest = rest[-MAX_LINE:]
        self._report(rest)

    def _report(self, line: bytes) -> None:
        with self._turn:
            try:
                fields = self._lines.read(line.decode("utf-8", "replace"))
            except Exception as error:  # a line that breaks us is a line we do not understand
                fields = None
                warn(f"a line could not be read: {type(error).__name__}")
            if fields:
                self._reporter.update(**fields)


def _write_all(target: int, chunk: bytes) -> bool:
    """Whether there is still someone to write to. If not, the program must not notice: it is read on."""
    try:
        while chunk:
            chunk = chunk[os.write(target, chunk) :]
    except OSError:
        return False
    return True


def _parse(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainjob_progress.run",
        description="Run a training command and report what it prints of its progress.",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT …]",
    )
    parser.add_argument(
        "--total-steps", type=int, metavar="N", help="steps planned, where the output does not say"
    )
    parser.add_argument("--total-epochs", type=float, metavar="N", help="epochs planned")
    parser.add_argument(
        "--pattern",
        metavar="REGEX",
        help="how to read a line, in place of what is known: named groups step, total, epoch, epochs, "
        "percentage, message; any other name is a metric",
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.pattern is not None:
        try:
            re.compile(options.pattern)
        except re.error as error:
            parser.error(f"--pattern: {error}")
    return options


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


if __name__ == "__main__":
    sys.exit(main())
