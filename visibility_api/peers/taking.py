"""Takes the state of the jobs from the replicas that run: at the start, a little later, then rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import structlog
from yarl import URL

from visibility_api.errors.faults import describe_fault
from visibility_api.jobs.saved import SavedJob

from .addresses import Address, resolve, split_name
from .frames import BadFrame, FrameReader
from .giving import HISTORY_PATH, PATH, PORT
from .recognition import PROOF, certificate_fingerprint

log = structlog.get_logger("visibility.peers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeLimits:
    """Bounds on what is taken, and on how long this replica waits for it."""

    total_s: float = 5.0  # no job is followed before, so readiness waits no longer
    resolve_again_s: float = 0.25  # a pod's DNS may not answer in its first moments
    # Again so long after the time before: what was relayed to this replica before it knew the jobs is found
    # then, and a replica whose name was not known yet.
    again_s: tuple[float, ...] = (5.0, 20.0)
    again_total_s: float = 30.0
    # From then on for ever: what one replica has missed, such as a last push, may be nowhere else any more.
    every_s: float = 120.0
    synced_s: float = 60.0  # a watch may never be: of a kind that the cluster lacks
    peers: int = 8
    bytes: int = 256 * 1024 * 1024  # from one replica
    chunk_bytes: int = 64 * 1024


class StateTaker:
    """Passes what each replica knows of each job to `take`, and its history to `take_history`, while `run` is
    running; long after the start to `catch_up` instead.

    `names` are HOST or HOST:PORT, `port` what this server listens on; `certificate` returns the serving
    certificate, DER, and `proof` what `recognition.derive_proof` makes of its key.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        port: int,
        certificate: Callable[[], bytes],
        proof: Callable[[], str],
        take: Callable[[SavedJob], object],
        take_history: Callable[[SavedJob], object] = lambda _saved: None,
        catch_up: Callable[[SavedJob], object] = lambda _saved: None,
        limits: TakeLimits = TakeLimits(),
    ) -> None:
        self._names = [split_name(name, port) for name in names]
        self._port = port
        self._certificate = certificate
        self._proof = proof
        self._takers = {PATH: take, HISTORY_PATH: take_history}
        self._catch_up = catch_up
        self._note, self._warn = log.info, log.warning
        self._limits = limits
        self.done = asyncio.Event()  # the first time is over; also when there was nobody there, or no time
        # What was pushed to the others before this replica knew the jobs is taken as well; or the same.
        self.caught_up = asyncio.Event()

    async def run(self, is_synced: Callable[[], bool] = lambda: True) -> None:
        """Take, a few times more, and then rarely for ever; never raises for what a peer does.

        `is_synced`: this replica knows every job, so what is pushed from then on can be forwarded to it.
        """
        limits = self._limits
        try:
            is_alone = not await self._take_within(limits.total_s, PATH)
        finally:
            self.done.set()
        if is_alone:
            self.caught_up.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.synced_s):
                while not is_synced():  # noqa: ASYNC110 - the state of several watches
                    await asyncio.sleep(limits.resolve_again_s)
        too_late = asyncio.get_running_loop().call_later(limits.total_s, self.caught_up.set)
        await self._take_within(limits.again_total_s, PATH)
        too_late.cancel()
        self.caught_up.set()
        # Ten times as much, and needed to show the past only: no job waits for it.
        await self._take_within(limits.again_total_s, HISTORY_PATH)
        for pause_s in limits.again_s:
            await asyncio.sleep(pause_s)
            await self._take_within(limits.again_total_s, PATH)
        await self._take_within(limits.again_total_s, HISTORY_PATH)
        self._takers[PATH] = self._catch_up
        self._note = self._warn = log.debug  # the relay says which peer cannot be reached
        while True:
            await asyncio.sleep(limits.every_s)
            await self._take_within(limits.again_total_s, PATH)

    async def _take_within(self, limit_s: float, path: str) -> bool:
        """Whether there is any other replica."""
        seen: set[Address] = set()
        try:
            async with (
                asyncio.timeout(limit_s),
                aiohttp.ClientSession(
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as session,
                asyncio.TaskGroup() as group,
            ):

                async def take_by(host: str, port: int) -> None:
                    for address in sorted(await self._find(host, port)):
                        if address not in seen and len(seen) < self._limits.peers:
                            seen.add(address)
                            taking = self._take_from(address, session, path)
                            group.create_task(taking, name=f"take {address.host}")

                for host, port in self._names:  # one that does not resolve delays no other
                    group.create_task(take_by(host, port), name=f"find {host}")
        except TimeoutError:
            self._warn("state not taken from every peer in time", limit_s=limit_s, path=path)
        return bool(seen)

    async def _find(self, host: str, port: int) -> set[Address]:
        """The addresses of the other replicas of this name, which need not resolve yet."""
        while True:
            try:
                return await resolve(host, port, own_port=self._port)
            except UnicodeError:
                return set()
            except OSError:
                await asyncio.sleep(self._limits.resolve_again_s)

    async def _take_from(self, address: Address, session: aiohttp.ClientSession, path: str) -> None:
        jobs, take_one = 0, self._takers[path]

        def take(saved: SavedJob) -> None:
            nonlocal jobs
            jobs += 1
            try:
                take_one(saved)
            except Exception as error:  # of one job; the others are taken (decision 0005)
                log.error("job's state not taken", job=str(saved.ref), **describe_fault(error))

        try:
            await self._exchange(address, session, path, take)
        except aiohttp.ServerFingerprintMismatch:
            self._warn("state not taken", peer=address.host, reason="it presents another certificate")
        except BadFrame as error:
            self._warn("state not taken", peer=address.host, jobs=jobs, reason=str(error))
        except (aiohttp.ClientError, OSError, ValueError, TypeError) as error:  # the last two: of our key
            self._warn("state not taken", peer=address.host, jobs=jobs, **describe_fault(error))
        else:
            self._note("state taken", peer=address.host, jobs=jobs, path=path)

    async def _exchange(
        self,
        address: Address,
        session: aiohttp.ClientSession,
        path: str,
        take: Callable[[SavedJob], None],
    ) -> None:
        headers = {
            "Host": "visibility-api",
            PROOF.decode(): self._proof(),
            PORT.decode(): str(self._port),
        }
        url = URL.build(scheme="https", host=address.host, port=address.port, path=path)
        fingerprint = certificate_fingerprint(self._certificate())
        async with session.get(url, headers=headers, ssl=fingerprint, allow_redirects=False) as response:
            if response.status != 200:
                raise BadFrame(f"it answers {response.status}")
            reader, left = FrameReader(), self._limits.bytes
            async for chunk in response.content.iter_chunked(self._limits.chunk_bytes):
                left -= len(chunk)
                for saved in reader.feed(chunk):
                    take(saved)
                if left < 0:
                    raise BadFrame("it is too much")
            if not reader.is_ended:
                raise BadFrame("it broke off")
