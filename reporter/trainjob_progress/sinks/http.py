"""A sink that answers: the latest document on a port of the training process's own.

One thread for all connections, and none for each: a process that forks must be able to have none at all.
A program may close every descriptor, and open files of its own by the same numbers: each is looked at before.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time

from trainjob_progress import forks
from trainjob_progress.document import Snapshot, encode
from trainjob_progress.publisher import hold_back_sigpipe, wait_for_end
from trainjob_progress.tail import Tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_CONNECTIONS = 8  # a prober or two and a curious person; the rest is turned away
MAX_REQUEST_BYTES = 16 * 1024
REQUEST_TIMEOUT_S = 5.0
PAUSE_S = 0.1  # how long a fork waits for the thread
REST_S = 0.1  # after a connection that could not be taken, for want of descriptors: it is still there


class HTTPSink:
    """Serves the latest document as JSON on `port`, whatever path is asked for; port 0 takes a free one."""

    interval_s = 0.5
    reopens = True

    def __init__(self, port: int, address: str = "") -> None:
        server = _servers.get((address, port))
        if server is None or not server.is_open:
            server = _Server(port, address)
            if port:  # the next run in this process takes over: the port stays taken
                _servers[address, port] = server
        server.start()
        self._server: _Server = server
        self._tail = Tail()
        self.port: int = server.port

    def __reduce__(self) -> Any:  # noqa: ANN401 — whatever copy and pickle take
        return HTTPSink.__new__, (HTTPSink,), {"port": 0}  # a copy has no port and answers nobody

    def write(self, snapshot: Snapshot) -> None:
        self._tail.follow(snapshot)
        self._server.document = encode(snapshot, recent=self._tail.columns(snapshot))

    def resume(self) -> None:
        """Answer again after a fork. On the training thread."""
        self._server.start()

    def close(self) -> None:
        """Stays open: the last document is there to be read until the process has ended."""
        self._server.is_last = True

    def leave(self) -> None:
        """Another process has the port from now on."""
        self._server.pause()
        self._server.forget()


class _Server:
    """Answers GET and HEAD with one document, to MAX_CONNECTIONS at a time."""

    def __init__(self, port: int, address: str) -> None:
        self.document = b""
        self.is_last = False  # nobody will come by to resume it after a fork
        # All addresses, of both families where the node has both: a pod may have an IPv6 address only.
        is_dual = not address and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual or ":" in address else socket.AF_INET
        self._listener = listener = socket.socket(family, socket.SOCK_STREAM)
        if is_dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart comes back within seconds
        try:
            listener.bind((address, port))
            listener.listen(MAX_CONNECTIONS)
        except BaseException:
            listener.close()
            raise
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._opened = [(one, os.fstat(one)) for one in self._descriptors]
        self._connections: dict[socket.socket, _Connection] = {}
        self._is_paused = False
        self._turn = threading.RLock()
        self._thread: Optional[threading.Thread] = None

    @property
    def _descriptors(self) -> tuple[int, ...]:
        return self._listener.fileno(), self._wake_read, self._wake_write

    @property
    def is_open(self) -> bool:
        """Whether the program has left the descriptors alone. If not, their numbers are its own."""
        try:
            return all(os.path.samestat(opened, os.fstat(one)) for one, opened in self._opened)
        except OSError:
            return False

    def start(self) -> None:
        """Have a thread, unless there is one."""
        self.is_last = False
        self._start()

    def resume(self) -> None:
        """After a fork: at once if no call of the reporter is to come."""
        if self.is_last or not forks.IS_WATCHED:
            self._start()

    def _start(self) -> None:
        forks.watch(self)
        with self._turn:
            self._is_paused = False
            if self._thread is None and self.is_open:
                self._thread = threading.Thread(target=self._serve, name="progress endpoint", daemon=True)
                self._thread.start()

    def pause(self) -> None:
        """Before a fork: have no thread. Connections wait."""
        with self._turn:
            self._is_paused = True
            thread = self._thread
        if self.is_open:
            os.write(self._wake_write, b".")
        if thread is not None:
            wait_for_end(thread, PAUSE_S)

    def forget(self) -> None:
        """In a child: the port is the parent's, and must be free when the parent has ended."""
        is_open = self.is_open
        for one in (self._listener, *self._connections):
            one.close() if is_open else one.detach()
        for end in (self._wake_read, self._wake_write) if is_open else ():
            os.close(end)
        _servers.clear()

    def _serve(self) -> None:
        hold_back_sigpipe()
        with _Selector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            for connection in self._connections.values():
                selector.register(connection.socket, connection.interest)
            while True:
                now_s = time.monotonic()
                deadlines = [connection.deadline_s for connection in self._connections.values()]
                timeout_s = max(min(deadlines) - now_s, 0) if deadlines else None
                ready = selector.select(timeout_s)
                if not self.is_open:
                    self._abandon()
                    return
                for key, _ in ready:
                    if key.fd == self._wake_read:
                        os.read(self._wake_read, 4096)
                    elif key.fileobj is self._listener:
                        self._accept(selector)
                    else:
                        self._go_on(selector, key.fileobj)  # type: ignore[arg-type]
                for connection in tuple(self._connections.values()):
                    if connection.deadline_s <= time.monotonic():
                        self._drop(selector, connection.socket)
                with self._turn:
                    if self._is_paused:
                        self._thread = None
                        return

    def _abandon(self) -> None:
        """The program has closed the descriptors."""
        with self._turn:
            self._thread = None
        for one in (self._listener, *self._connections):
            one.detach()
        self._connections.clear()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            time.sleep(REST_S)
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            accepted.close()
            return
        accepted.setblocking(False)
        connection = _Connection(accepted)
        self._connections[accepted] = connection
        selector.register(accepted, connection.interest)

    def _go_on(self, selector: selectors.BaseSelector, of: socket.socket) -> None:
        connection = self._connections[of]
        try:
            is_open = connection.go_on(self.document)
        except BlockingIOError:
            is_open = True
        except OSError:
            is_open = False  # a client that goes away is no news for the training log
        if is_open:
            selector.modify(of, connection.interest)
        else:
            self._drop(selector, of)

    def _drop(self, selector: selectors.BaseSelector, of: socket.socket) -> None:
        selector.unregister(of)
        del self._connections[of]
        of.close()


class _Connection:
    """One request and its answer; then it is closed, as HTTP/1.0 has it."""

    def __init__(self, of: socket.socket) -> None:
        self.socket = of
        self.deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
        self.interest = selectors.EVENT_READ
        self._request = b""
        self._answer = b""

    def go_on(self, document: bytes) -> bool:
        """Read or write what can be without waiting. Whether there is more to do."""
        if not self._answer:
            chunk = self.socket.recv(4096)
            self._request += chunk
            is_whole = b"\r\n\r\n" in self._request or b"\n\n" in self._request
            if not is_whole:
                return bool(chunk) and len(self._request) < MAX_REQUEST_BYTES
            self._answer = _answer(self._request, document)
            self.interest = selectors.EVENT_WRITE
        self._answer = self._answer[self.socket.send(self._answer) :]
        if self._answer:
            return True
        self.socket.shutdown(socket.SHUT_WR)
        return False


_servers: dict[tuple[str, int], _Server] = {}
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)  # epoll has a descriptor itself


def _answer(request: bytes, document: bytes) -> bytes:
    words = request.split(b"\r\n", 1)[0].split()
    method = words[0] if words else b""
    status, body, kind = b"200 OK", document, b"application/json"
    if len(words) not in (2, 3):
        status, body = b"400 Bad Request", b"not an HTTP request\n"
    elif method not in (b"GET", b"HEAD"):
        status, body = b"501 Not Implemented", b"only GET and HEAD are answered\n"
    elif not document:
        status, body = b"503 Service Unavailable", b"nothing reported yet\n"
    if body is not document or not document:
        kind = b"text/plain; charset=utf-8"
    head = [
        b"HTTP/1.0 " + status,
        b"Server: trainjob_progress",
        b"Content-Type: " + kind,
        b"Content-Length: %d" % len(body),
        b"Connection: close",
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)
