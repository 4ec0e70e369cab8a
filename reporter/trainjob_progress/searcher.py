"""Searches lines for a user's pattern in a process of its own: some patterns take for ever, and nothing in a
Python program can interrupt one. The kernel ends this process when a line has taken a second of its CPU."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
from typing import Callable, Dict, Optional

from .publisher import warn
from .witness import close_all_but

LIMIT_S = 1.0  # of CPU, for one line
_SIZE = struct.Struct("<I")
Groups = Optional[Dict[str, Optional[str]]]  # of a match, by name


class Searcher:
    """Starts the process, and asks it. To be made before any thread is, with the signals blocked."""

    def __init__(self, pattern: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._is_alive = True
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):  # nothing of it may be printed
                self._socket.close()
                _serve(theirs, make_search(pattern))
            os._exit(0)
        theirs.close()

    def search(self, line: str) -> Groups:
        """The named groups of the first match; None without one."""
        if not self._is_alive:
            return None
        try:
            _send(self._socket, line.encode("utf-8", "replace"))
            answer = _receive(self._socket)
        except OSError:
            answer = b""
        if not answer:
            self._is_alive = False
            warn(f"--pattern has taken more than {LIMIT_S:g} s for one line: it is not used any more")
            return None
        groups: Groups = json.loads(answer)
        return groups

    def end(self) -> None:
        """Leave no process behind."""
        self._socket.close()
        os.waitpid(self._pid, 0)


def make_search(pattern: str) -> Callable[[str], Groups]:
    """The same in this process, without a limit."""
    find = re.compile(pattern).search

    def search(line: str) -> Groups:
        match = find(line)
        return None if match is None else match.groupdict()

    return search


def _serve(wrapper: socket.socket, search: Callable[[str], Groups]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)  # who waits for the end of the output does not wait for this process
    close_all_but({0, 1, 2, wrapper.fileno()})
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGVTALRM})
    while line := _receive(wrapper):
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        found = search(line.decode("utf-8", "replace"))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        _send(wrapper, json.dumps(found).encode())


def _send(to: socket.socket, data: bytes) -> None:
    to.sendall(_SIZE.pack(len(data)) + data)


def _receive(source: socket.socket) -> bytes:
    """Nothing at its end."""
    head = source.recv(_SIZE.size, socket.MSG_WAITALL)
    if len(head) < _SIZE.size:
        return b""
    return source.recv(_SIZE.unpack(head)[0], socket.MSG_WAITALL)
