"""Relays the pushes that this replica accepts to the other replicas, with the pod that it has authenticated.

Replicas believe each other, as where one takes the state of all jobs from another: both sides prove that they
have the key that all of them serve with. No token is sent. All of it is best effort and blocks nobody: the
job's next push has the same information again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import structlog

from visibility_api.peers.addresses import Address, resolve, split_name
from visibility_api.peers.recognition import certificate_fingerprint

from .admission import Grant
from .peer import Peer, PeerLimits, Waiting

log = structlog.get_logger("visibility.relay")

HEADERS = {"Host": "visibility-api", "Content-Type": "application/msgpack"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits:
    resolve_interval_s: float = 10.0
    introduced_s: float = 120.0  # longer than DNS takes to know a pod that has just started
    peers: int = 8
    last_s: float = 1.0  # for what waits when this process ends
    idle_s: float = 60.0  # after this a connection is not reused: well below the peer's KEEP_ALIVE_S
    peer: PeerLimits = field(default_factory=PeerLimits)


class Relay:
    """Sends what is `pushed` to every replica that the names in `peers` (HOST or HOST:PORT) resolve to.

    It does so while `run` is running. `port` is what this server listens on, and the default for peers;
    `certificate` returns the serving certificate of this moment, DER, and `proof` what
    `recognition.derive_proof` makes of its key. `count` is called with an outcome, and how many pushes to one
    peer have had it.
    """

    def __init__(
        self,
        peers: tuple[str, ...],
        *,
        port: int,
        certificate: Callable[[], bytes],
        proof: Callable[[], str],
        count: Callable[[str, int], None] = lambda _outcome, _pushes: None,
        limits: RelayLimits = RelayLimits(),
    ) -> None:
        self._limits = limits
        self._addresses = {
            split_name(peer, port): set[Address]() for peer in peers
        }  # of each name, when last resolved
        self._port = port
        self._certificate = certificate
        self._proof = proof
        self._expected: tuple[bytes, aiohttp.Fingerprint] | None = None  # the certificate and its fingerprint
        self._count = count
        self._peers: dict[Address, Peer] = {}
        self._unresolved: set[str] = set()  # names of which it was logged that they do not resolve
        self._introduced: dict[Address, float] = {}  # until when each is a peer without being resolved
        self._follow_now: Callable[[], None] | None = None  # while running

    def pushed(self, path: str, grant: Grant, attempt: str, body: bytes) -> None:
        """Relay a push that was accepted, without waiting for anything."""
        if self._peers:
            push = Waiting(path, grant, attempt, body, time.monotonic())
            for peer in self._peers.values():
                peer.put(push)

    def introduce(self, address: Address) -> None:
        """A replica has just started there: relay to it before its name is resolved the next time, and though
        the one before it did not answer."""
        if (peer := self._peers.get(address)) is not None:
            peer.resume()
        self._known()  # without those whose time is over
        if len(self._introduced) < self._limits.peers:
            self._introduced[address] = asyncio.get_running_loop().time() + self._limits.introduced_s
            if self._follow_now is not None:
                self._follow_now()

    async def run(self) -> None:
        """Follow the peers' names until cancelled; then what waits is sent, within a second."""
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=self._limits.idle_s
        )  # each Peer limits itself
        async with (
            aiohttp.ClientSession(
                connector=connector,
                headers=HEADERS,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as session,
            asyncio.TaskGroup() as group,
        ):
            self._follow_now = lambda: self._follow(self._known(), group, session)
            try:
                while True:
                    for host, port in self._addresses:
                        await self._resolve(host, port)
                        self._follow_now()
                    self._follow_now()  # for those introduced before this began
                    await asyncio.sleep(self._limits.resolve_interval_s)
            finally:
                self._follow_now = None
                if sending := [task for peer in self._peers.values() if (task := peer.sending) is not None]:
                    await asyncio.wait(sending, timeout=self._limits.last_s)
                self._follow(set(), group, session)

    def _known(self) -> set[Address]:
        now = asyncio.get_running_loop().time()
        self._introduced = {each: until for each, until in self._introduced.items() if until > now}
        return set(self._introduced).union(*self._addresses.values())

    async def _resolve(self, host: str, port: int) -> None:
        """Take all addresses of a name but this server's own; keep the last ones when it does not resolve."""
        try:
            found = await resolve(host, port, own_port=self._port)
        except (OSError, UnicodeError):  # DNS is unreachable, or there is no other replica yet
            if host not in self._unresolved:
                log.warning("name of the peers does not resolve", name=host)
            self._unresolved.add(host)
            return
        self._unresolved.discard(host)
        self._addresses[host, port] = found

    def _follow(self, found: set[Address], group: asyncio.TaskGroup, session: aiohttp.ClientSession) -> None:
        chosen = sorted(found)[: self._limits.peers]
        for address in self._peers.keys() - set(chosen):
            self._peers.pop(address).leave()
            log.info("peer gone", peer=address.host)
        for address in chosen:
            if address not in self._peers:
                self._peers[address] = Peer(
                    address,
                    group,
                    session,
                    fingerprint=self._fingerprint,
                    proof=self._proof,
                    count=self._count,
                    limits=self._limits.peer,
                )
                log.info("peer found", peer=address.host)

    def _fingerprint(self) -> aiohttp.Fingerprint:
        """Of the serving certificate; after it was renewed another one, so no older connection is reused."""
        der = self._certificate()
        if self._expected is None or self._expected[0] != der:
            self._expected = der, certificate_fingerprint(der)
        return self._expected[1]
