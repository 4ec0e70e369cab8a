"""A reflector that is cut at random while documents change ends with exactly the server's state."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading

import aiohttp
import pytest

from tests.e2e.clients.http_server import HttpServer
from tests.e2e.clients.reflector import Reflector, key_of
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.workspace import Workspace
from tests.unit.resource_server import ALL, BASE_REVISION

_CUTS = 1000
_CUTS_THROUGH_THE_AGGREGATOR = 60
_HISTORY = 200  # changes; short, so that some cuts last longer than it reaches
# Names of jobs, and the bytes that arrive between two cuts on average.
_FEW = ("abc", 3_000)  # about a list, and several events
_MANY = ("abcdefghijkl", 12_000)  # less than a list, and many events


class World:
    """Jobs that come, change and go at random."""

    def __init__(self, server: HttpServer, source: random.Random, names: str) -> None:
        self._server = server
        self._source = source
        self._names = names
        self._step = 0

    def change(self) -> None:
        server, source = self._server.current, self._source
        self._step += 1
        name, namespace = source.choice(self._names), source.choice(("team-a", "team-b"))
        entry = server.store.get("trainjobs", namespace, name)
        labels = {"app": source.choice("xy")}
        chance = source.random()
        if entry is None or chance < 0.1:  # a new one, maybe under the name of one that still is
            server.put(name, namespace=namespace, labels=labels, uid=f"uid-{self._step}", step=self._step)
        elif chance < 0.25:
            server.delete(name, namespace=namespace)
        else:
            uid = entry.document.job.ref.uid
            server.put(name, namespace=namespace, labels=labels, uid=uid, step=self._step)

    async def live(self) -> None:
        while True:
            for _ in range(self._source.randrange(1, 4)):
                self.change()
            for _ in range(self._source.randrange(1, 8)):
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("streams_lists", "selector", "scale"),
    [(False, "", _FEW), (False, "app=x", _FEW), (True, "", _MANY), (True, "app=x", _FEW)],
    ids=["lists all", "lists chosen", "streams all", "streams chosen"],
)
async def test_a_reflector_cut_a_thousand_times_ends_with_the_servers_state(
    streams_lists: bool, selector: str, scale: tuple[str, int]
) -> None:
    names, mean_bytes = scale
    source = random.Random(f"{streams_lists} {selector}")
    server = HttpServer(max_changes=_HISTORY)
    world = World(server, source, names)
    async with server.serving(), aiohttp.ClientSession(server.url) as session:
        reflector = Reflector(session, ALL, streams_lists=streams_lists, selector=selector)
        living = asyncio.create_task(world.live())
        for number in range(_CUTS):
            reflector.allow_bytes = int(source.expovariate(1 / mean_bytes)) + 1
            await reflector.run_until_cut()
            if number % 100 == 50:  # away for longer than the history reaches
                for _ in range(2 * _HISTORY):
                    world.change()
            if number % 250 == 200:  # a new process, whose clock is ahead, or behind by an hour
                shift_s = 3600 if number % 500 < 250 else -7200
                server.restart(base_revision=BASE_REVISION + shift_s * 1_000_000)
        living.cancel()
        server.current.put("last", labels={"app": "x"})
        await reflector.run_until(server.current.store.revision)
        async with session.get(ALL, params={"labelSelector": selector}) as answer:
            state = {key_of(item): item for item in (await answer.json())["items"]}
    assert reflector.held == state
    assert reflector.lists >= 10


def change_until(stopping: threading.Event, jobs: QuietJobs, source: random.Random) -> None:
    """Three jobs, each made, changed and deleted again and again, in a thread of its own."""
    names = _FEW[0]
    alive: set[str] = set()
    round_ = 0
    while not stopping.is_set():
        round_ += 1
        name = source.choice(names)
        if name not in alive:
            jobs.create(name)
            alive.add(name)
        elif source.random() < 0.2:
            jobs.delete(name)
            alive.discard(name)
        else:
            jobs.label(name, round=str(round_))


@pytest.mark.parametrize("streams_lists", [False, True], ids=["lists", "streams its lists"])
async def test_a_reflector_cut_through_the_aggregator_ends_with_the_servers_state(
    workspace: Workspace, own_jobs: QuietJobs, streams_lists: bool
) -> None:
    source = random.Random(streams_lists)
    tls = ssl.create_default_context(cafile=str(workspace.cluster.ca_file))
    tls.load_cert_chain(workspace.alice.pair.cert, workspace.alice.pair.key)
    stopping = threading.Event()
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(workspace.cluster.url, connector=connector) as session:
        reflector = Reflector(session, own_jobs.collection, streams_lists=streams_lists)
        living = asyncio.create_task(
            asyncio.to_thread(change_until, stopping, own_jobs, random.Random(source.random()))
        )
        for _ in range(_CUTS_THROUGH_THE_AGGREGATOR):
            reflector.allow_bytes = int(source.expovariate(1 / _FEW[1])) + 1
            await reflector.run_until_cut()
        stopping.set()
        await living
        await asyncio.to_thread(own_jobs.create, "last")
        await asyncio.to_thread(own_jobs.wait_served, "last")
        state = await asyncio.to_thread(own_jobs.served)
        await reflector.run_until(int(state["last"]["metadata"]["resourceVersion"]))
    assert {key[1]: held for key, held in reflector.held.items()} == state
