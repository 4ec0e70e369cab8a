"""What replicas that share the jobs out survive.

    python -m benchmarks.owner_faults [--faults 288] [--jobs 24] [--seed N] [--keep DIRECTORY]

Three real servers with their log in three real servers of NATS, beside kubernetes.py. Each job pushes a step
after the other. Two clients keep the revisions that they were given: one lists, one watches, each at any
replica. Meanwhile one fault comes after the other, as soon as the last one is healed: members and writers of
the log are killed, ended and stopped, and servers of NATS are killed, stopped and wiped.

It counts, and exits with 1 if any of these is not 0: pushes answered 200 that a replica lacks, points that a
history lacks, older documents that a client was shown, watches that had to list again, and partitions that
two replicas held at one time, by the logs of both. It also tells how long a partition was nobody's.
A document that says itself that it may be old (`ReplicaBehind`) counts apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import ssl
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.nats_servers import NatsServers, running
from visibility_api.replication.nats_client import Location, NatsClient
from visibility_api.replication.partitions import PARTITIONS, partition_of

from . import kubernetes
from .owners import Owners, Replica, events_of, owners
from .push import PATH, token
from .scene import ALL, API, fetch, until_ready

INTERVAL_S = 2.0  # between two pushes of a job
ANSWER_S = 6.0
SETTLED_S = 90.0
STOPPED_S = 25.0, 25.0, 25.0, 60.0  # more than a Lease lasts; a minute
NATS_AWAY_S = 8.0
SAYS_OLD = "documents that say they are old"
KINDS = (
    *(
        f"{role} {how}"
        for role in ("member", "writer")
        for how in ("killed", "restarted", "ended", "stopped")
    ),
    *(f"NATS server {how}" for how in ("killed", "stopped", "wiped")),
)


@dataclass(slots=True)
class Seen:
    """What pods were answered, and what clients were shown."""

    steps: dict[int, int] = field(default_factory=dict)  # acknowledged, by job
    points: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # not looked for yet
    longest_s: float = 0.0  # without an answer of 200, of one job, since the last fault
    counts: Counter[str] = field(default_factory=Counter)

    def found(self, what: str, text: str) -> None:
        self.counts[what] += 1
        if self.counts[what] <= 50:
            print(f"  {datetime.now(UTC):%H:%M:%S} {what}: {text}", flush=True)


class Client:
    """Keeps the revisions that it was given, and looks for older ones."""

    def __init__(self, name: str, seen: Seen) -> None:
        self._name, self._seen = name, seen
        self.revision = 0
        self.is_listed = False
        self.shown: dict[str, tuple[int, int]] = {}  # revision and step of each job

    def take(self, item: Mapping[str, Any], by: int) -> None:
        meta = item["metadata"]
        key, revision = f"{meta['namespace']}/{meta['name']}", int(meta["resourceVersion"])
        step = item["status"].get("steps", {}).get("current", 0)
        before = self.shown.get(key, (0, 0))
        if says_old(item):  # its replica follows nobody: its revisions are its own
            self._seen.counts[SAYS_OLD] += 1
            return
        if revision < before[0] or step < before[1]:
            text = f"{self._name} at {by}: {key} step {step} of {revision}, after {before[1]} of {before[0]}"
            self._seen.found("older documents", text)
        self.shown[key] = max(revision, before[0]), max(step, before[1])
        self.revision = max(self.revision, revision)


def says_old(item: Mapping[str, Any]) -> bool:
    return any(each["reason"] == "ReplicaBehind" for each in item["status"]["conditions"])


class Scene:
    def __init__(self, at: Owners, nats: NatsServers, jobs: int) -> None:
        self.at, self.nats, self.jobs, self.seen = at, nats, jobs, Seen()
        self.lister, self.watcher = Client("list", self.seen), Client("watch", self.seen)
        self.away: list[
            tuple[Path, float, float]
        ] = []  # logs of those that were stopped, from when until when
        context = ssl.create_default_context(cafile=at.ca)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {kubernetes.TOKEN}"},
        )

    def url(self, replica: Replica, path: str) -> str:
        return f"https://localhost:{replica.port}{path}"

    # --- clients

    async def push(self, number: int) -> None:
        """For ever, to all replicas in turn. Each try is another step."""
        path = PATH.format(kubernetes.namespace(number), kubernetes.job_name(number))
        headers = {"Authorization": f"Bearer {token(number)}"}
        replicas = itertools.cycle(self.at.replicas)
        due, answered_at = time.monotonic() + random.random() * INTERVAL_S, time.monotonic()
        for step in itertools.count(1):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            metrics = {"loss": f"{step}.5", "current_step": str(step), "total_steps": "1000000"}
            pairs = [{"name": name, "value": value} for name, value in metrics.items()]
            status = {"lastUpdatedTime": datetime.now(UTC).isoformat(), "metrics": pairs}
            try:
                timeout = aiohttp.ClientTimeout(total=ANSWER_S)
                async with self.session.post(
                    self.url(next(replicas), path),
                    json={"trainerStatus": status},
                    headers=headers,
                    timeout=timeout,
                ) as response:
                    if response.status != 200:
                        raise aiohttp.ClientError(await response.text())
                    await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError):
                self.seen.counts["pushes to be sent again"] += 1
                due = time.monotonic() + 0.3
                continue
            now = time.monotonic()
            self.seen.counts["pushes answered 200"] += 1
            self.seen.steps[number] = step
            self.seen.points[number].append(step)
            self.seen.longest_s = max(self.seen.longest_s, now - answered_at - INTERVAL_S)
            answered_at, due = now, max(due + INTERVAL_S, now)

    async def keep_listing(self) -> None:
        """For ever."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._list(self.lister, random.choice(self.at.replicas))
            await asyncio.sleep(0.5)

    async def _list(self, client: Client, replica: Replica) -> None:
        query = f"?resourceVersion={client.revision}&resourceVersionMatch=NotOlderThan"
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        url = self.url(replica, ALL + (query if client.revision else ""))
        async with self.session.get(url, timeout=timeout) as response:
            response.raise_for_status()
            self._take_list(client, await response.json(), replica)
            self.seen.counts["lists"] += 1

    def _take_list(self, client: Client, found: Mapping[str, Any], replica: Replica) -> None:
        revision = int(found["metadata"]["resourceVersion"])
        if revision < client.revision:
            self.seen.found(
                "older documents", f"list of {revision} after {client.revision} at {replica.port}"
            )
        if any(map(says_old, found["items"])):
            self.seen.counts[SAYS_OLD] += len(found["items"])
            return
        client.revision, client.is_listed = max(client.revision, revision), True
        if len(found["items"]) < self.jobs:
            self.seen.found("older documents", f"list of {len(found['items'])} jobs at {replica.port}")
        for item in found["items"]:
            client.take(item, replica.port)

    async def keep_watching(self) -> None:
        """For ever; a watch goes on at another replica after half a minute, or when it ends."""
        client = self.watcher
        while True:
            replica = random.choice(self.at.replicas)
            try:
                await (self._watch if client.is_listed else self._list)(client, replica)
            except (aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError):
                await asyncio.sleep(0.2)

    async def _watch(self, client: Client, replica: Replica) -> None:
        timeout = aiohttp.ClientTimeout(total=40, sock_read=10)
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds=30&resourceVersion={client.revision}"
        async with self.session.get(self.url(replica, ALL + query), timeout=timeout) as response:
            response.raise_for_status()
            self.seen.counts["watches"] += 1
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.seen.found("watches that list again", f"at {replica.port}: {event['object']}")
                    client.is_listed = False
                    return
                revision = int(event["object"]["metadata"]["resourceVersion"])
                is_mark = event["type"] == "BOOKMARK"
                if revision < client.revision or (revision == client.revision and not is_mark):
                    text = f"event of {revision} after {client.revision} at {replica.port}"
                    self.seen.found("older documents", text)
                if is_mark:
                    client.revision = max(client.revision, revision)
                if event["type"] == "DELETED":
                    self.seen.found("older documents", f"{event['object']['metadata']['name']} was deleted")
                elif not is_mark:
                    client.take(event["object"], replica.port)

    # --- checks

    async def check(self) -> None:
        """Whether each replica shows all that was answered 200, and has its points; the watch, too."""
        steps = dict(self.seen.steps)
        points, self.seen.points = self.seen.points, defaultdict(list)
        await asyncio.sleep(2.0)
        for replica in self.at.running:
            assert replica.server is not None
            items = json.loads(await fetch(replica.server, self.at.ca, ALL))["items"]
            shown = {each["metadata"]["name"]: each["status"].get("steps", {}) for each in items}
            for number, step in steps.items():
                name = kubernetes.job_name(number)
                where = f"job {number} of partition {_partition(number)} at {replica.port}"
                if (found_step := shown.get(name, {}).get("current", 0)) < step:
                    self.seen.found("pushes lost", f"{where}: step {found_step}, not {step}")
                path = f"{API}/namespaces/{kubernetes.namespace(number)}/trainjobs/{name}/history?metric=loss"
                found = json.loads(await fetch(replica.server, self.at.ca, path))["series"]
                kept = {each for series in found for each in series["steps"]}
                if lost := set(points[number]) - kept:
                    self.seen.found("points lost", f"{where}: {sorted(lost)}, has {sorted(kept)[-20:]}")
        for number, step in steps.items():
            key = f"{kubernetes.namespace(number)}/{kubernetes.job_name(number)}"
            if self.watcher.shown.get(key, (0, 0))[1] < step:
                text = f"job {number}: step {self.watcher.shown.get(key)}, not {step}"
                self.seen.found("events lost", text)

    async def settle(self) -> float:
        """Until each replica has a share and NATS has all copies; how long it took until all was owned."""
        took_s = await self.at.until_shared(SETTLED_S)
        for each in self.at.running:
            assert each.server is not None
            await until_ready(each.server, self.at.ca)
        async with asyncio.timeout(SETTLED_S):
            while not all(_has_share(each) for each in self.at.replicas):  # noqa: ASYNC110 - logs of others
                await asyncio.sleep(0.2)
        await self._until_copied()
        return took_s

    async def _until_copied(self) -> None:
        """Another server of NATS may fail when the last one has all."""
        location = Location(servers=self.nats.urls, name="trainjob-visibility", replicas=3, max_bytes=2**28)
        client = NatsClient(location)
        try:
            async with asyncio.timeout(SETTLED_S):
                while True:
                    with contextlib.suppress(Exception):
                        jetstream, states = await client._open(), []
                        for name in (location.stream, location.bucket):
                            info = await jetstream.stream_info(name)
                            states += [each.current and not each.offline for each in info.cluster.replicas]
                        if len(states) == 4 and all(states):
                            return
                    await asyncio.sleep(0.5)
        finally:
            await client.close()

    # --- faults

    async def fault(self, kind: str) -> str:
        """Until it is healed; what there is to say of it."""
        self.seen.longest_s = 0.0
        who, _, how = kind.rpartition(" ")
        if who == "NATS server":
            await self._fail_nats(random.randrange(3), how)
            healed_s = await self.settle()
            return f"a push was {self.seen.longest_s:.1f} s late; owned {healed_s:.1f} s later"
        owns = [await self._owns(each) for each in self.at.running]
        if owns.count(True) != 1:
            self.seen.found("writers", f"there are {owns.count(True)}")
        replica = random.choice(
            [
                each
                for each, is_owner in zip(self.at.running, owns, strict=True)
                if is_owner == (who == "writer")
            ]
        )
        assert replica.server is not None
        began = time.time()
        if how == "stopped":
            os.kill(replica.server.pid, signal.SIGSTOP)
            stopped, replica.server = replica.server, None
            took_s = await self.at.until_shared(SETTLED_S)
            await asyncio.sleep(max(0.0, random.choice(STOPPED_S) - took_s))
            os.kill(stopped.pid, signal.SIGCONT)
            self.away.append((replica.logs[-1], began, time.time()))
            replica.server = stopped
        else:
            await self.at.end(replica, signal.SIGTERM if how == "ended" else signal.SIGKILL)
            self.away.append((replica.logs[-1], time.time() if how == "ended" else began, float("inf")))
            if how == "restarted":
                await self.at.start(replica)
            took_s = await self.at.until_shared(SETTLED_S)
            if how != "restarted":
                await self.at.start(replica)
        await self.settle()
        return f"all owned after {took_s:.1f} s, a push was {self.seen.longest_s:.1f} s late"

    async def _fail_nats(self, number: int, how: str) -> None:
        if how == "stopped":
            with self.nats.paused(number):
                await asyncio.sleep(random.choice(STOPPED_S))
            return
        await asyncio.to_thread(self.nats.kill, number)
        if how == "wiped":
            self.nats.wipe(number)
        await asyncio.sleep(NATS_AWAY_S)
        await asyncio.to_thread(self.nats.start, number)

    async def _owns(self, replica: Replica) -> bool:
        assert replica.server is not None
        return b"visibility_log_owner 1.0" in await fetch(replica.server, self.at.ca, "/metrics")

    # ---

    def held(self) -> tuple[list[str], float]:
        return held(self.at, self.away)

    @contextlib.asynccontextmanager
    async def clients(self) -> AsyncIterator[None]:
        loops: list[Callable[[], Coroutine[Any, Any, None]]] = [self.keep_listing, self.keep_watching]
        async with self.session, asyncio.TaskGroup() as group:
            tasks = [group.create_task(each()) for each in loops]
            tasks += [group.create_task(self.push(number)) for number in range(self.jobs)]
            yield
            for each in tasks:
                each.cancel()


def _partition(number: int) -> int:
    return partition_of("trainjobs", kubernetes.namespace(number), kubernetes.job_name(number))


def _has_share(replica: Replica) -> bool:
    """By its log: something is held, and not all of it."""
    held: set[int] = set()
    for _, is_taken, partitions in events_of(replica.logs[-1]):
        held = held | partitions if is_taken else held - partitions
    return 0 < len(held) < PARTITIONS


def held(at: Owners, away: Sequence[tuple[Path, float, float]]) -> tuple[list[str], float]:
    """By the logs: partitions that two replicas held at one time, and the longest time that one was nobody's.

    One that was stopped holds nothing meanwhile: it says so when it goes on, and writes nothing before."""
    spans: dict[int, list[tuple[float, float, Path]]] = {}
    for replica in at.replicas:
        for log in replica.logs:
            begun: dict[int, float] = {}
            ends = [(start, False, set(range(PARTITIONS))) for of, start, _ in away if of == log]
            for moment, is_taken, partitions in sorted([*events_of(log), *ends], key=lambda each: each[0]):
                for each in partitions:
                    if is_taken:
                        begun.setdefault(each, moment)
                    elif each in begun:
                        spans.setdefault(each, []).append((begun.pop(each), moment, log))
            for each, moment in begun.items():
                spans.setdefault(each, []).append((moment, float("inf"), log))
    found, longest_s = [], 0.0
    for number, all_ in spans.items():
        until, by = 0.0, Path()
        for begin, end, log in sorted(all_, key=lambda span: span[0]):
            if until:
                longest_s = max(longest_s, begin - until)
            if begin < until and by != log:
                found.append(f"{number}: {by.parent} until {until:.3f}, {log.parent} from {begin:.3f}")
            if end > until:
                until, by = end, log
    return found, longest_s


async def run(given: argparse.Namespace, directory: Path) -> bool:
    random.seed(given.seed)
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with running(directory / "nats", 3) as nats:
        await asyncio.sleep(3.0)  # they choose a leader
        flags = "--sources=push", f"--store-max-mib={given.max_mib}"
        async with owners(3, given.jobs, *flags, urls=nats.urls, place=directory) as at:
            scene = Scene(at, nats, given.jobs)
            async with scene.clients():
                await asyncio.sleep(5.0)
                await scene.settle()
                kinds = itertools.chain.from_iterable(
                    random.sample(KINDS, len(KINDS)) for _ in itertools.count()
                )
                for number, kind in enumerate(itertools.islice(kinds, given.faults), 1):
                    if time.time() > given.until:
                        break
                    print(f"{number} {datetime.now(UTC):%H:%M:%S} {kind}", end="", flush=True)
                    try:
                        told = await scene.fault(kind)
                    except TimeoutError:
                        scene.seen.found("not healed", f"in {SETTLED_S:g} s: {kind}")
                        break
                    print(f": {told}", flush=True)
                    await scene.check()
                    twice, unowned_s = scene.held()
                    scene.seen.counts["partitions held twice"] = len(twice)
                    if twice:
                        print("  held twice:", *twice[-4:], sep="\n    ", flush=True)
                    if number % 10 == 0:
                        tell(number, scene.seen.counts, unowned_s)
            tell(number, scene.seen.counts, scene.held()[1])
            return not any(scene.seen.counts[each] for each in BAD)


BAD = (
    *("pushes lost", "points lost", "older documents", "events lost", "watches that list again"),
    *("partitions held twice", "writers", "not healed"),
)


def tell(number: int, counts: Counter[str], unowned_s: float) -> None:
    asked = (
        "pushes answered 200",
        "pushes to be sent again",
        "lists",
        "watches",
        "documents that say they are old",
    )
    told = [f"{counts[each]} {each}" for each in (*asked, *BAD)]
    print(
        f"{number} faults: {', '.join(told)}; a partition was nobody's for {unowned_s:.1f} s at most",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owner_faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=288, help="one each five minutes of a day")
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-mib", type=int, default=256)
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds since 1970")
    parser.add_argument("--keep", type=Path, help="where logs are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        return 0 if uvloop.run(run(given, given.keep or Path(name))) else 1


if __name__ == "__main__":
    sys.exit(main())
