"""The wrapped command: how it is started, followed to its end, and taken after by the wrapper's own end."""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import Dict, Iterable, List, NoReturn, Sequence, Set

from .channels import Channel
from .witness import FORWARDED, Witness

# Python ignores them when it starts; whoever started us, as a rule, does not.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_ASKS_TO_STOP = {
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
}  # fmt: skip
ASKED_S = 300.0  # within which a command ends that was asked to, but by SIGTERM


def become(words: List[str], mask: Iterable[int]) -> None:
    """Be the command from now on. Returns only by raising OSError."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.execvp(words[0], words)  # noqa: S606 — the command is the caller's own


class Command:
    """A command that runs."""

    def __init__(
        self, words: List[str], *, channels: Sequence[Channel], witness: Witness, mask: Iterable[int]
    ) -> None:
        """Start it: in our process group, with our environment and every descriptor that we have inherited,
        and the signal mask that we had. FORWARDED and SIGCHLD are blocked. Raises OSError."""
        self._asked_s: Dict[int, float] = {}  # the signals that ask for an end and have come: when
        self.status = 0  # as waitpid has it, once it has ended
        self.mask = mask
        self._channels = channels
        self._witness = witness
        actions = [
            (os.POSIX_SPAWN_DUP2, channel.inlet, descriptor)
            for channel in channels
            for descriptor in channel.descriptors
        ]
        # They came to all before the command was there: it has not got them, though the witness has.
        self._early = signal.sigpending() & FORWARDED
        self._pid = os.posix_spawnp(
            words[0], words, os.environ,
            file_actions=actions, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON,
        )  # fmt: skip
        witness.guard(self._pid)

    def wait(self) -> None:
        """Forward signals until it ends."""
        waited: Set[int] = {*FORWARDED, signal.SIGCHLD}
        while True:
            number = signal.sigwait(waited)
            if number == signal.SIGCHLD:
                if self._has_ended():
                    self._witness.guard(0)
                    return
                continue
            if number in _ASKS_TO_STOP:
                self._asked_s[number] = time.monotonic()
            is_news = not self._witness.has_seen(number) or number in self._early
            self._early.discard(number)
            if number == signal.SIGWINCH:
                resized = [channel.resize() for channel in self._channels]  # what it sees changes only now
                is_news = is_news or any(resized)
            if is_news:
                os.kill(self._pid, number)

    @property
    def asked_by(self) -> Set[int]:
        """The signals that may have brought the end about. Some are for a new log file, or a stack dump."""
        since_s = time.monotonic() - ASKED_S
        return {
            number for number, at_s in self._asked_s.items() if number == signal.SIGTERM or at_s > since_s
        }

    def _has_ended(self) -> bool:
        """After a SIGCHLD. Others' children end too: a container's first process inherits them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return False
            if pid == 0:
                return False
            if pid != self._pid:
                continue
            if not os.WIFSTOPPED(status):
                self.status = status
                return True
            _stop_by(os.WSTOPSIG(status))


def end_like(status: int) -> NoReturn:
    """End this process as the command has ended: by the same exit code, or by the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        # A container's first process outlives all that has no handler; its exit code is then what shells say.
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))  # past PYTHONINSPECT and whatever else may come at exit


def _stop_by(number: int) -> None:
    """Stop as the command has, so that a shell's `jobs`, `fg` and `bg` work; returns when we go on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number] if number != signal.SIGSTOP else [])
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
