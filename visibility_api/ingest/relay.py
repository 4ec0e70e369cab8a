"""What one replica has taken is told to the others: posted once more, with the pod's own token.

Each of them judges it by itself, by its own reviews and limits, so nothing is believed for coming from here.
A token goes to nobody but a replica of ours: who does not show the very certificate that we serve with is
sent nothing at all. All of it is best effort and in nobody's way: the job's next push tells the same again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

from .body import Headers
from .peer import Address, Peer

log = structlog.get_logger("visibility.relay")

RELAYED = b"x-visibility-relayed"  # a push with this header is told to nobody else

LOOK_UP_S = 10.0  # between two looks at the peers' names
MAX_PEERS = 8


class Relay:
    """Tells what is `pushed` to every replica that `peers` (HOST or HOST:PORT) resolve to, as long as `run`
    is under way. `port` is the one that we and, unless said otherwise, they serve on; `certificate` gives
    the one that we serve with now, DER. `count` is told what became of each push to each peer.
    """

    def __init__(
        self,
        peers: tuple[str, ...],
        *,
        port: int,
        certificate: Callable[[], bytes],
        count: Callable[[str], None] = lambda _outcome: None,
    ) -> None:
        self._names = {_split(peer, port): set[Address]() for peer in peers}  # and what each stood for last
        self._port = port
        self._certificate = certificate
        self._count = count
        self._peers: dict[Address, Peer] = {}
        self._lost: set[str] = set()  # names that could not be resolved, which has been told

    def pushed(self, path: str, headers: Headers, body: bytes) -> None:
        """Tell the others, soon; waits for nothing. `path` and the token are ones that were accepted."""
        if not self._peers:
            return
        credentials = next(value for name, value in headers if name == b"authorization")  # as for the gate
        token = credentials.split()[-1]  # a single word, so it cannot end its line
        head = (
            b"POST %b HTTP/1.1\r\nHost: visibility-api\r\nContent-Type: application/json\r\n%b: 1\r\n"
            b"Authorization: Bearer %b\r\n" % (path.encode(), RELAYED, token)
        )
        for peer in self._peers.values():
            peer.put(head, body)

    async def run(self) -> None:
        """Follow the peers' names for ever. What is under way ends with this call."""
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    for host, port in self._names:
                        await self._look_up(host, port)
                        self._follow(set().union(*self._names.values()), group)
                    await asyncio.sleep(LOOK_UP_S)
            finally:
                self._follow(set(), group)

    async def _look_up(self, host: str, port: int) -> None:
        """All addresses of a name but our own; they stay as they are when it cannot be resolved now."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # the name server is away, or no replica is there yet
            if host not in self._lost:
                log.warning("peers not found", name=host)
            self._lost.add(host)
            return
        self._lost.discard(host)
        addresses = {str(address[0]) for *_, address in found}
        self._names[host, port] = {
            Address(each, port) for each in addresses if port != self._port or not _is_own(each)
        }

    def _follow(self, found: set[Address], group: asyncio.TaskGroup) -> None:
        chosen = sorted(found)[:MAX_PEERS]
        for address in self._peers.keys() - set(chosen):
            self._peers.pop(address).close()
            log.info("peer gone", peer=address.host)
        for address in chosen:
            if address not in self._peers:
                self._peers[address] = Peer(address, group, certificate=self._certificate, count=self._count)
                log.info("peer found", peer=address.host)
            self._peers[address].tidy()


def _split(peer: str, port: int) -> tuple[str, int]:
    host, _, own = peer.partition(":")
    return host, int(own) if own else port


def _is_own(host: str) -> bool:
    """Whether an address is one of this machine or pod: what is sent there would leave from it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # nothing is sent
        except OSError:
            return False
        return bool(probe.getsockname()[0] == host)
