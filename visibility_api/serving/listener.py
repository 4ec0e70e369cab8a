"""Accepts connections and starts their TLS handshakes at a bounded rate, in turns by address.

A handshake costs a millisecond before anything is known of a client. All that ask for one at the same moment
would be served in one turn of the loop, and everybody else would wait for them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog
from cachetools import LRUCache

from visibility_api.auth.review_admission import site_of
from visibility_api.client_queues import ClientQueues
from visibility_api.errors import TooManyRequests
from visibility_api.faults import describe_fault

log = structlog.get_logger("visibility.serving")

BACKLOG = 2048  # connections that the kernel keeps until they are accepted
ACCEPTED_AT_ONCE = 32  # then other tasks run
# Of all addresses: half of a core. Those who push without kept-alive connections need one for each push.
HANDSHAKES_PER_S, BURST = 600.0, 24.0
# Of one address. A pod needs one in some seconds; most clients give up after MAX_DELAY_S.
ADDRESS_HANDSHAKES_PER_S, ADDRESS_BURST = 80.0, 16.0
MAX_DELAY_S = 15.0
MAX_BEGINNING = 16_384  # connections of all addresses that are accepted and not served yet
MAX_ADDRESSES = 16_384
MAX_WAITING, MAX_WAITING_OF_ADDRESS = 4096, 1024  # accepted, and their handshake not begun
HANDSHAKE_TIMEOUT_S = 30.0
PAUSE_S = 0.5  # after a failure to accept: no file descriptor is free


class Listener:
    """One listening socket, from `start` to `close`."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._pause_s = pause_s
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._queues = ClientQueues(
            crowded="too many connections wait for their TLS handshake",
            max_running=MAX_WAITING,
            max_running_per_client=MAX_WAITING,
            max_waiting=MAX_WAITING,
            max_waiting_per_client=MAX_WAITING_OF_ADDRESS,
            starts_per_s=HANDSHAKES_PER_S,
            start_burst=BURST,
        )
        # When an address that never paused could begin its next handshake: loop time, by `site_of` it.
        self._next_at: LRUCache[str, float] = LRUCache(MAX_ADDRESSES)
        self._pause: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[None]] = set()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Accept connections from now on; their handshakes are tasks of `group`."""
        self._loop, self._group = asyncio.get_running_loop(), group
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more, close the socket, and give up handshakes that are not complete."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in tuple(self._beginning):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(self._pause_s, self._resume)
                return
            if len(self._beginning) >= MAX_BEGINNING:
                connection.close()
                continue
            connection.setblocking(False)
            task = self._group.create_task(self._begin(connection, str(address[0])), name="TLS handshake")
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _delay_s(self, site: str) -> float:
        """How long this address must wait to keep to its rate; not counted when longer than MAX_DELAY_S."""
        now = self._loop.time()
        earliest = now - (ADDRESS_BURST - 1) / ADDRESS_HANDSHAKES_PER_S
        at = max(self._next_at.get(site, earliest), earliest)
        delay_s = max(0.0, at - now)
        if delay_s <= MAX_DELAY_S:
            self._next_at[site] = at + 1 / ADDRESS_HANDSHAKES_PER_S
        return delay_s

    async def _begin(self, connection: socket.socket, address: str) -> None:
        """Start the handshake when its turn has come."""
        is_served = False
        try:
            site = site_of(address)
            delay_s = self._delay_s(site)
            if delay_s > MAX_DELAY_S:
                return
            if delay_s > 0.0:
                await asyncio.sleep(delay_s)
            async with self._queues.slot(site):
                pass  # only starts are limited: a client that is slow must not keep others waiting
            if _has_left(connection):
                return
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
            is_served = True  # the transport closes the socket
        except (TooManyRequests, OSError):
            pass  # what a client can cause; an ssl.SSLError and a TimeoutError are OSErrors
        except Exception as error:  # one connection's fault must not end the server
            log.error("connection not served", **describe_fault(error))
        finally:
            if not is_served:
                connection.close()


def _has_left(connection: socket.socket) -> bool:
    """Whether the client closed the connection while it waited. Raises OSError when it broke it off."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
