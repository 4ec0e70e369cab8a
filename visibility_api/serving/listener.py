"""Accepts connections and starts their TLS handshakes at a bounded rate, in turns by address.

A handshake costs three quarters of a millisecond before anything is known of a client. All that are requested
at the same moment would be served in one turn of the loop, and everybody else would wait for them. Until its
handshake a connection is a socket and nothing else, and none begins before its client has sent something.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable

import structlog

from visibility_api.auth.certificates import Peer
from visibility_api.auth.review_admission import site_of
from visibility_api.errors.text import describe_fault

from .strangers import Strangers

log = structlog.get_logger("visibility.serving")

BACKLOG = 2048  # connections that the kernel keeps until they are accepted
# What the kernel takes of a client before it is read (Linux doubles this for its own use): a connection keeps
# for ever as much memory as was once read from it in one piece, twice. Requests and pushes have a few KiB.
RECEIVE_BYTES = 32 * 1024
ACCEPTED_AT_ONCE = 32  # then other tasks run
# In each turn five handshakes: 1,000 a second at most, half of a core, for pods that push without kept-alive
# connections. A loop that is busy takes fewer turns.
TURN_S, STARTED_AT_ONCE = 0.005, 5
NEWEST_EACH = 4  # handshakes: else one may be overtaken for longer than it would wait for its turn
MAX_WAITING = 4096  # accepted, and their handshake not begun: a socket each
MAX_WAIT_S = 15.0  # most clients give up after 10 s
SWEEP_S = 5.0  # between two searches for those that have waited so long
MAX_HANDSHAKES = 512  # begun and not complete, at up to 130 kB each
HANDSHAKE_TIMEOUT_S = 10.0  # as Go's clients give up
SHUTDOWN_TIMEOUT_S = 2.0  # until the client answers the end of TLS; uvloop would wait for 30 s
ENDED_AT_ONCE = 64  # connections found closed by their clients in one turn
PAUSE_S = 0.5  # after a failure to accept: no file descriptor is free

_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # Linux
_CLOSED_BY_CLIENT = (b"\x07", b"\x08")  # TCP_CLOSE and TCP_CLOSE_WAIT, the first byte of `struct tcp_info`
_UNKNOWN = Peer()


class _Connection:
    """One that waits for its handshake or is in it: a `Stranger`."""

    __slots__ = ("give_up", "peer", "site", "socket", "waits_until")

    give_up: Callable[[], object]  # as long as it waits, closes it; then, cancels its handshake

    def __init__(self, accepted: socket.socket, site: str, waits_until: float) -> None:
        self.socket = accepted
        self.site = site
        self.waits_until = waits_until  # loop time
        self.peer = _UNKNOWN

    def drop(self) -> None:
        """Close, or give up its handshake."""
        self.give_up()


class Listener:
    """One listening socket, from `start` to `close`.

    Addresses take turns. Of one address the oldest connection is served, but each fourth time the newest, so
    that neither a crowd that keeps coming nor one that came before delays a client for long. When too many
    wait, the oldest of the address that has most is closed.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        *,
        pause_s: float = PAUSE_S,
        max_waiting: int = MAX_WAITING,
        max_handshakes: int = MAX_HANDSHAKES,
    ) -> None:
        self._pause_s = pause_s
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._waiting: dict[_Connection, None] = {}  # their handshake has not begun; the oldest first
        self._waiting_by_site = Strangers(most=max_waiting)
        # Those of them that have sent something, the oldest first, by address; the next to be served first.
        self._ready: dict[str, dict[_Connection, None]] = {}
        self._started = 0  # handshakes, in this turn
        self._until_newest: dict[str, int] = {}  # handshakes, of each address of which some are ready
        self._handshakes = Strangers(most=max_handshakes)
        self._tasks: set[asyncio.Task[bool]] = set()  # a handshake each; whether it was completed
        self._accept_timer: asyncio.TimerHandle | None = None
        self._turn_timer: asyncio.TimerHandle | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Accept connections from now on; their handshakes are tasks of `group`."""
        self._loop, self._group = asyncio.get_running_loop(), group
        self._listening.setblocking(False)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)  # of all accepted ones
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more, close the socket, and give up connections that are not served yet."""
        for timer in (self._accept_timer, self._turn_timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for connection in tuple(self._waiting):
            connection.drop()
        for task in tuple(self._tasks):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening)
                self._accept_timer = self._loop.call_later(self._pause_s, self._resume)
                return
            accepted.setblocking(False)
            self._enter(accepted, site_of(str(address[0])))

    def _resume(self) -> None:
        self._accept_timer = None
        self._loop.add_reader(self._listening, self._accept)

    def _enter(self, accepted: socket.socket, site: str) -> None:
        connection = _Connection(accepted, site, self._loop.time() + MAX_WAIT_S)
        connection.give_up = functools.partial(self._close, connection)
        self._waiting[connection] = None
        self._waiting_by_site.enter(connection)
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        try:
            if not accepted.recv(1, socket.MSG_PEEK):
                self._close(connection)
                return
        except BlockingIOError:
            self._loop.add_reader(accepted, self._on_first_bytes, connection)
            return
        except OSError:
            self._close(connection)
            return
        self._make_ready(connection)

    def _on_first_bytes(self, connection: _Connection) -> None:
        self._loop.remove_reader(connection.socket)
        self._make_ready(connection)

    def _make_ready(self, connection: _Connection) -> None:
        self._ready.setdefault(connection.site, {})[connection] = None
        self._serve()

    def _begin_turn(self) -> None:
        self._turn_timer = None
        self._started = 0
        self._serve()

    def _serve(self) -> None:
        """Start what handshakes this turn still allows."""
        left = ENDED_AT_ONCE
        while self._ready and left and self._started < STARTED_AT_ONCE:
            site = next(iter(self._ready))
            ready = self._ready.pop(site)
            until_newest = self._until_newest.pop(site, 0)
            connection = next(iter(ready) if until_newest else reversed(ready))
            del ready[connection]
            if ready:
                self._ready[site] = ready
                self._until_newest[site] = (until_newest or NEWEST_EACH) - 1
            if _is_closed_by_client(connection.socket):
                self._close(connection)
                left -= 1
                continue
            self._begin(connection)
            self._started += 1
        if self._turn_timer is None and (self._started or self._ready):
            self._turn_timer = self._loop.call_later(TURN_S, self._begin_turn)

    def _begin(self, connection: _Connection) -> None:
        self._forget(connection)
        task = self._group.create_task(self._handshake(connection), name="TLS handshake")
        connection.give_up = task.cancel
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._end, connection))
        self._handshakes.enter(connection)

    async def _handshake(self, connection: _Connection) -> bool:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                connection.socket,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError:
            return False  # what a client can cause; an ssl.SSLError and a TimeoutError are OSErrors
        except Exception as error:  # one connection's fault must not end the server
            log.error("connection not served", **describe_fault(error))
            return False
        return True

    def _end(self, connection: _Connection, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        self._handshakes.leave(connection)
        if task.cancelled() or not task.result():
            connection.socket.close()  # else the transport closes it

    def _sweep(self) -> None:
        """Close those that have waited for too long."""
        self._sweep_timer = None
        now = self._loop.time()
        while self._waiting and (oldest := next(iter(self._waiting))).waits_until <= now:
            self._close(oldest)
        if self._waiting:
            self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _close(self, connection: _Connection) -> None:
        """Of one that waits."""
        ready = self._ready.get(connection.site, {})
        if connection in ready:
            del ready[connection]
            if not ready:
                del self._ready[connection.site]
                self._until_newest.pop(connection.site, None)
        else:
            self._loop.remove_reader(connection.socket)
        self._forget(connection)
        connection.socket.close()

    def _forget(self, connection: _Connection) -> None:
        self._waiting.pop(connection, None)
        self._waiting_by_site.leave(connection)


def _is_closed_by_client(connection: socket.socket) -> bool:
    """Also when there is something left to read, which is why reading does not tell.

    Elsewhere than on Linux a handshake finds out.
    """
    if _TCP_INFO is None:
        return False
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1) in _CLOSED_BY_CLIENT
    except OSError:
        return True
