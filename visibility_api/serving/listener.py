"""Accepts connections and begins their TLS handshakes at a bounded rate, in turns by address.

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

from .by_address import ByAddress
from .connections import Connections

log = structlog.get_logger("visibility.serving")

BACKLOG = 2048  # connections that the kernel keeps until they are accepted
# What the kernel takes of a client before it is read (Linux doubles this for its own use): a connection keeps
# as much memory as was once read from it in one piece, twice. Requests and pushes have a few KiB.
RECEIVE_BYTES = 32 * 1024
ACCEPTED_AT_ONCE = 8  # in one turn of the loop: each takes a twentieth of a millisecond
# In each turn two handshakes: 1,000 a second at most, half of a core, for pods that push without kept-alive
# connections. A loop that is busy takes fewer turns. More of them in longer turns would delay others longer.
TURN_S, BEGUN_AT_ONCE = 0.002, 2
MAX_WAITING = 4096  # that have sent nothing, and as many whose handshake has not begun: a socket each
MAX_WAIT_S = 15.0  # until something is sent
HANDSHAKE_TIMEOUT_S = 10.0  # as Go's clients give up
SHUTDOWN_TIMEOUT_S = 2.0  # until the client answers the end of TLS; uvloop would wait for 30 s
PAUSE_S = 0.5  # after a failure to accept: no file descriptor is free


class _Accepted:
    """A connection until its handshake is complete: a `Stranger`."""

    def __init__(self, accepted: socket.socket, site: str, now: float) -> None:
        self.socket = accepted
        self.site = site
        self.waits_until = now + MAX_WAIT_S  # loop time
        self.peer = Peer()
        self.handshake: asyncio.Task[bool] | None = None  # once it has begun

    def drop(self) -> None:
        """Give up its handshake."""
        if self.handshake is not None:
            self.handshake.cancel()


class Listener:
    """One listening socket, from `start` to `close`."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext],
        connections: Connections,
        *,
        pause_s: float = PAUSE_S,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._connections = connections
        self._pause_s = pause_s
        self._max_waiting = max_waiting
        self._silent: ByAddress[_Accepted] = ByAddress()
        self._ready: ByAddress[_Accepted] = ByAddress()  # have sent something; their handshake has not begun
        self._handshakes: set[asyncio.Task[bool]] = set()  # whether it was completed
        self._begun = 0  # handshakes, in this turn
        self._accept_timer: asyncio.TimerHandle | None = None
        self._turn_timer: asyncio.TimerHandle | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Accept connections from now on; their handshakes are tasks of `group`."""
        self._loop, self._group = asyncio.get_running_loop(), group
        self._listening.setblocking(False)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)  # of all accepted ones
        self._listening.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept no more, close the socket, and give up connections that are not served yet."""
        for timer in (self._accept_timer, self._turn_timer):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for waiting in (*self._silent, *self._ready):
            self._close(waiting)
        for handshake in tuple(self._handshakes):
            handshake.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

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

    def _enter(self, accepted: socket.socket, site: str) -> None:
        connection = _Accepted(accepted, site, self._loop.time())
        self._add(connection, self._silent)
        self._loop.add_reader(accepted, self._on_first_bytes, connection)

    def _add(self, connection: _Accepted, to: ByAddress[_Accepted]) -> None:
        """When too many wait, the oldest of the address that has most is closed."""
        to.add(connection)
        if len(to) > self._max_waiting:
            self._close(to.oldest_of_most())

    def _on_first_bytes(self, connection: _Accepted) -> None:
        try:
            is_open = bool(connection.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        if not is_open:  # it has gone, and needs no handshake
            self._close(connection)
            return
        self._loop.remove_reader(connection.socket)
        self._silent.discard(connection)
        self._add(connection, self._ready)
        self._begin_some()

    def sweep(self, now: float) -> None:
        """To be called now and then: close those that have sent nothing for too long."""
        for connection in [each for each in self._silent if each.waits_until <= now]:
            self._close(connection)

    def _close(self, connection: _Accepted) -> None:
        """Of one that waits."""
        self._loop.remove_reader(connection.socket)
        self._silent.discard(connection)
        self._ready.discard(connection)
        connection.socket.close()

    def _begin_turn(self) -> None:
        self._turn_timer = None
        self._begun = 0
        self._begin_some()

    def _begin_some(self) -> None:
        """Begin what handshakes this turn still allows."""
        while self._ready and self._begun < BEGUN_AT_ONCE:
            self._begun += 1
            self._begin(self._ready.take())
        if self._turn_timer is None and self._begun:
            self._turn_timer = self._loop.call_later(TURN_S, self._begin_turn)

    def _begin(self, accepted: _Accepted) -> None:
        task = self._group.create_task(self._handshake(accepted.socket), name="TLS handshake")
        accepted.handshake = task
        self._handshakes.add(task)
        task.add_done_callback(functools.partial(self._end, accepted))
        self._connections.enter_stranger(accepted)

    async def _handshake(self, accepted: socket.socket) -> bool:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._tls(),
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError:
            return False  # what a client can cause; an ssl.SSLError and a TimeoutError are OSErrors
        except Exception as error:  # one connection's fault must not end the server
            log.error("connection not served", **describe_fault(error))
            return False
        return True

    def _end(self, accepted: _Accepted, handshake: asyncio.Task[bool]) -> None:
        self._handshakes.discard(handshake)
        self._connections.leave_stranger(accepted)
        if handshake.cancelled() or not handshake.result():
            accepted.socket.close()  # else the transport closes it
