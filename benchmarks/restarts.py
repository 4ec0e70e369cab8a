"""`python -m benchmarks.restarts`: what clients are shown while replicas are rolled, killed and restarted.

Behind a real kube-apiserver ($KUBEBUILDER_ASSETS), with 1,000 jobs of which a third each report by file, log
and push. Clients list, get, watch and print tables all the time, through the aggregator and directly. Not one
job may show an older document, a younger age or a blank than before. No request may fail during a rolling
update, and no client that resumes a watch may be told to list again. Another replica owns the jobs 20 s after
the owner was killed, and a second after it was asked to end. Exits with 1 if one of these is not so."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from tests.e2e.kube import find_binaries
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.manifests import NAMESPACE, SERVICE_NAME, apply_rights, server_flags
from visibility_api.assembly import LEASE

from .control_plane import ControlPlane, control_plane
from .fleet import BEAT_S, Fleet, Job
from .processes import free_port
from .scene import ALL, API, certificates
from .witness import ALONE, INTERVAL_S, PUSHED_S, QUIET, Witness, settled_form

JOBS = 1000
COMPONENTS = ("source-exec", "source-logs", "source-push")
QUIET_S = 16.0  # before and between: longer than an interval of probes
LAST_PUSHES = 10  # jobs that push once more right before each kill, and never again
KILL_AFTER_S = 1.2  # after that push: more than a kill may cost
BACKLOG = 4096  # of the stage's own listeners: as kube-apiserver has it
DRAIN_S = 2  # --shutdown-delay-duration
READY_WITHIN_S = max(150.0, 2 * INTERVAL_S)
PATIENCE_S = max(300.0, 10 * INTERVAL_S)
TAKEN_OVER_S = {signal.SIGTERM: 1.0, signal.SIGKILL: 20.0}  # at most, so another replica owns the jobs
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
ROLLING, KILLS, SINGLE = SCENES = "rolling update", "kill -9 of either", ALONE
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Balancer:
    """The Service: each new connection goes to the next of the ready replicas."""

    def __init__(self) -> None:
        self.port = free_port()
        self.ready: list[int] = []
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        other: asyncio.StreamWriter | None = None
        try:
            port = self.ready[next(self._turn) % len(self.ready)]
            other_reader, other = await asyncio.open_connection("127.0.0.1", port)
            ways = {
                asyncio.create_task(_relay(reader, other)),
                asyncio.create_task(_relay(other_reader, writer)),
            }
            _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in left:
                way.cancel()
        except (OSError, ZeroDivisionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for side in (writer, other):
                if side is not None:
                    side.transport.abort()


async def _relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # uvloop's word for a closed transport
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a replica is started."""

    tree: Path | None = None  # of another version; None: this one
    prefix: Sequence[str] = ()  # of its command
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()  # later ones count


PLAIN = Manner()


class Replica:
    """One server process; it may be started again on the same port and directory."""

    def __init__(self, stage: Stage, number: int, port: int, manner: Manner) -> None:
        self._stage = stage
        self.port = port
        self.name = f"replica {number}"
        self.directory = stage.directory / f"replica-{number}"
        self.manner = manner
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, is_awaited: bool = True) -> None:
        """Until it is ready. Then the Service forwards to it."""
        stage, began = self._stage, time.perf_counter()
        self.directory.mkdir(exist_ok=True)
        manner = self.manner
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if manner.tree is not None:
            env["PYTHONPATH"] = f"{manner.tree}:{manner.tree}/reporter"
        with (self.directory / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *manner.prefix,
                *(sys.executable, "-m", "visibility_api", "serve", "--kubeconfig", str(stage.kubeconfig)),
                *("--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
                *stage.certificate_flags(),
                *("--shutdown-delay-duration", f"{DRAIN_S}s", "--data-dir", str(self.directory / "data")),
                *(f"--peers={peer}" for peer in stage.peers(self.port)),
                "--probe-timeout=15s",  # a busy machine is no reason
                f"--probe-interval={INTERVAL_S:.0f}s",
                *server_flags(COMPONENTS),
                *manner.flags,
                stdout=log, stderr=log, env=env | manner.env, cwd=manner.tree,
            )  # fmt: skip
        if not is_awaited:
            return
        while not await self.is_ready():
            if self.process.returncode is not None or time.perf_counter() - began > READY_WITHIN_S:
                raise SystemExit(f"it has ended, or is not ready; its log:\n{self.log()[-3000:]}")
            await asyncio.sleep(0.1)
        stage.balancer.ready.append(self.port)
        stage.running.append(self)
        print(f"  {self.name} is ready after {time.perf_counter() - began:.1f} s", flush=True)

    async def is_ready(self) -> bool:
        try:
            async with self._stage.http.get(f"https://localhost:{self.port}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def end(self, number: signal.Signals) -> None:
        """Send it this signal and wait for its end; the Service does not forward to it any more."""
        process, stage = self.process, self._stage
        assert process is not None
        if number == signal.SIGKILL:
            process.kill()
            await process.wait()
        began = time.perf_counter()
        if self in stage.running:
            stage.running.remove(self)
        if self.port in stage.balancer.ready:
            stage.balancer.ready.remove(self.port)
        if number != signal.SIGKILL:
            process.send_signal(number)
            await process.wait()
            print(f"  {self.name} has ended after {time.perf_counter() - began:.1f} s", flush=True)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")


class Stage:
    """The cluster, its jobs, and what all replicas have in common."""

    def __init__(
        self, directory: Path, plane: ControlPlane, fleet: Fleet, http: aiohttp.ClientSession
    ) -> None:
        self.directory, self.plane, self.fleet, self.http = directory, plane, fleet, http
        self.kubeconfig = plane.kubeconfig()
        self.cert, self.key, ca = certificates(directory, SERVICE_NAME)
        self.ca: Path | None = ca  # None: the replicas publish their own
        self.ports = [free_port() for _ in range(3)]
        self.balancer = Balancer()
        self.manner = PLAIN  # of replicas that are started without another one
        self.running: list[Replica] = []
        self._numbers = itertools.count(1)

    def owner(self) -> str:
        """The holder of the Lease; "" for nobody."""
        holder: str = self.plane.api.get(LEASE_PATH)["spec"].get("holderIdentity") or ""
        return holder

    def certificate_flags(self) -> Sequence[str]:
        return "--tls-cert-file", str(self.cert), "--tls-private-key-file", str(self.key)

    def peers(self, port: int) -> Sequence[str]:  # noqa: ARG002 - of the replica with this port
        return [f"127.0.0.1:{each}" for each in self.ports]

    def replica(self, manner: Manner | None = None) -> Replica:
        """Another pod: a directory of its own, and an address that nobody has now."""
        manner = manner or self.manner
        port = next(port for port in self.ports if port not in {each.port for each in self.running})
        return Replica(self, next(self._numbers), port, manner)


class Readers:
    """Clients of every kind, all the time; what they are shown goes to the witness."""

    def __init__(self, stage: Stage, witness: Witness, token: str) -> None:
        self._stage, self._witness = stage, witness
        self._headers = {"Authorization": f"Bearer {token}"}
        self.front = f"https://localhost:{stage.plane.server.port}"

    def loops(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return self._list, self._table, self._one, self._watch, self._each

    async def list_of(self, base: str) -> Any:
        return await self.json(f"{base}{ALL}")

    async def _list(self) -> None:
        began = datetime.now(UTC)
        found = await self.list_of(self.front)
        self._witness.list_came(found["items"], began, "list")
        await asyncio.sleep(1.5)

    async def _each(self) -> None:
        for replica in list(self._stage.running):
            began = datetime.now(UTC)
            with contextlib.suppress(aiohttp.ClientError):
                found = await self.list_of(f"https://localhost:{replica.port}")
                self._witness.list_came(found["items"], began, f"list of {replica.name}")
        await asyncio.sleep(1.5)

    async def _table(self) -> None:
        began = datetime.now(UTC)
        found = await self.json(f"{self.front}{ALL}", Accept=TABLE)
        self._witness.table_came(found, began, "table")
        await asyncio.sleep(3)

    async def _one(self) -> None:
        began = datetime.now(UTC)
        namespace, name = random.choice(list(self._witness.jobs))
        path = f"{API}/namespaces/{namespace}/trainjobs/{name}/progress"
        self._witness.document_came(await self.json(f"{self.front}{path}"), began, "get")
        await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        """A list, then its changes; a stream that ends is resumed where it was, as informers do. What a
        change
        says may be some time on its way."""
        found = await self.list_of(self.front)
        version = found["metadata"]["resourceVersion"]
        while True:
            url = f"{self.front}{ALL}?watch=true&resourceVersion={version}"
            async with self._stage.http.get(url, headers=self._headers) as answer:
                answer.raise_for_status()
                with contextlib.suppress(aiohttp.ClientPayloadError):  # its replica was killed
                    async for line in answer.content:
                        event = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            self._witness.watch_failed(event)
                            return
                        if event["type"] == "DELETED":
                            continue
                        item = event["object"]
                        version = item["metadata"]["resourceVersion"]
                        text = item["status"].get("lastUpdatedTime", "2000-01-01T00:00Z")
                        self._witness.document_came(item, datetime.fromisoformat(text), "watch")
            self._witness.resumed[self._witness.stage] += 1

    async def json(self, url: str, **headers: str) -> Any:
        async with self._stage.http.get(url, headers=self._headers | headers) as answer:
            body = await answer.read()
            answer.raise_for_status()
            return msgspec.json.decode(body)


class Pushers:
    """The training processes that push: each report once it is there, until it is accepted."""

    def __init__(self, stage: Stage, jobs: list[Job], witness: Witness) -> None:
        self._stage, self._witness = stage, witness
        self._jobs = [job for job in jobs if job.source == "push"]
        self.accepted: dict[int, int] = {}  # the last step, by job
        self.refused: Counter[str] = Counter()  # by stage
        self.why: Counter[str] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for job in self._jobs:
                group.create_task(self._push_all(job), name=f"pushes of {job.name}")

    async def _push_all(self, job: Job) -> None:
        while True:
            step = job.last_step(datetime.now(UTC))
            if step > self.accepted.get(job.number, 0) and job.wrote(step):
                await self._push(job, step)
            await asyncio.sleep(PUSHED_S if job.is_steady else BEAT_S)

    async def _push(self, job: Job, step: int) -> None:
        url = (
            f"https://localhost:{self._stage.balancer.port}/apis/trainer.kubeflow.org/v1alpha1"
            f"/namespaces/{job.namespace}/trainjobs/{job.name}/status"
        )
        headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
        try:
            async with self._stage.http.post(url, data=job.push(step), headers=headers) as answer:
                if answer.status == 200:
                    self.accepted[job.number] = step
                    return
                why = f"{answer.status} {(await answer.text())[:300]}"
        except aiohttp.ClientError as error:
            why = repr(error)
        stage = self._witness.stage
        self.refused[stage] += 1
        self.why[f"{stage}: {why}"[:200]] += 1
        if stage == ROLLING:
            self._witness.examples["refused"].append(f"push: {why}")

    async def last_ones(self) -> None:
        """A few steady jobs push what they have and then nothing more; returns when that was accepted."""
        chosen = [job for job in self._jobs if job.is_steady and job.quiet_from is None][:LAST_PUSHES]
        now = datetime.now(UTC)
        for job in chosen:
            job.quiet_from = now
            while self.accepted.get(job.number, 0) < job.last_step(now):
                await self._push(job, job.last_step(now))


async def keep(work: Callable[[], Awaitable[None]], witness: Witness) -> None:
    while True:
        try:
            await work()
        except (aiohttp.ClientError, TimeoutError) as error:
            witness.refused[witness.stage] += 1
            if witness.stage in witness.judged:
                witness.examples["refused"].append(f"{work.__name__}: {error!r}")
            await asyncio.sleep(0.2)


class Play:
    """The scenes, one after the other."""

    def __init__(self, stage: Stage, witness: Witness, readers: Readers, pushers: Pushers) -> None:
        self._stage, self._witness, self._readers, self._pushers = stage, witness, readers, pushers

    async def begin(self) -> None:
        stage = self._stage
        self._tell("start")
        for _ in range(2):
            await stage.replica().start()
        await asyncio.to_thread(self._register)

    def _register(self) -> None:
        self._stage.plane.register_ours(self._stage.balancer.port, self._stage.ca)
        self._stage.plane.wait_available(ALL)

    async def all_probed(self) -> None:
        """Until both have read every job."""
        await self._until(_unread, "every job is read")

    async def all_read(self) -> None:
        """The same, and then what becomes of each."""
        await self.all_probed()
        await asyncio.to_thread(self._stage.fleet.change)
        await self._until_still()
        self._witness.is_settled = True

    async def play(self, names: Sequence[str]) -> None:
        scenes = {ROLLING: self._rolling_update, KILLS: self._kills, SINGLE: self._single}
        self._witness.judged = frozenset(scenes)
        self._tell(QUIET)
        await asyncio.sleep(QUIET_S)
        for name in names or scenes:
            self._tell(name)
            await scenes[name]()
        self._tell("end")

    async def _rolling_update(self) -> None:
        for old in list(self._stage.running):
            await self._stage.replica().start()
            await self._pushers.last_ones()
            await self._end(old, signal.SIGTERM)
            await self._check()
        await self._settle()
        if refused := self._witness.refused[ROLLING] + self._pushers.refused[ROLLING]:
            self._witness.faults["refused"] += refused

    async def _kills(self) -> None:
        """The container of one starts again; of the other the pod is lost with its directory."""
        one, other = list(self._stage.running)
        for replica, next_ in ((one, one), (other, None)):
            await self._pushers.last_ones()
            await asyncio.sleep(KILL_AFTER_S)
            await self._end(replica, signal.SIGKILL)
            await self._check()
            await (next_ or self._stage.replica()).start()
            await self._settle()

    async def _single(self) -> None:
        single, other = list(self._stage.running)
        await other.end(signal.SIGTERM)
        await self._settle()
        for _ in range(2):
            await self._pushers.last_ones()
            await asyncio.sleep(KILL_AFTER_S)
            await single.end(signal.SIGKILL)
            await single.start()
            await self._settle()

    async def _end(self, replica: Replica, number: signal.Signals) -> None:
        """End it, and say how long nobody owned the jobs, if it did."""
        before = await asyncio.to_thread(self._stage.owner)
        ending, began = asyncio.create_task(replica.end(number)), time.perf_counter()
        if before.endswith(f"_{replica.port}"):
            most_s = TAKEN_OVER_S[number]
            while time.perf_counter() - began < 2 * most_s:
                after = await asyncio.to_thread(self._stage.owner)
                if after not in ("", before):
                    break
                await asyncio.sleep(0.02)
            took_s = time.perf_counter() - began
            print(f"  another replica owned the jobs {took_s:.2f} s after {number.name}", flush=True)
            if took_s > most_s:
                self._witness.faults["late"] += 1
                self._witness.examples["late"].append(f"[{self._witness.stage}] {took_s:.1f} s")
        await ending

    async def _settle(self) -> None:
        began = time.perf_counter()
        await asyncio.to_thread(self._stage.plane.wait_available, ALL)
        print(f"  answers after {time.perf_counter() - began:.1f} s", flush=True)
        await asyncio.sleep(QUIET_S)
        await self._check()

    async def _check(self) -> None:
        """Every replica has all that was reported long enough ago."""
        for replica in self._stage.running:
            found = await self._readers.list_of(f"https://localhost:{replica.port}")
            for text in self._witness.not_current(found["items"], datetime.now(UTC)):
                self._witness.faults["lost"] += 1
                self._witness.examples["lost"].append(f"[{self._witness.stage}] {replica.name}: {text}")

    async def _until_still(self) -> None:
        """Until what is shown of the jobs that are not steady has not changed for an interval of probes."""
        began = since = time.perf_counter()
        before: dict[tuple[str, str], Any] = {}
        changed: list[tuple[str, str]] = []
        while time.perf_counter() - since < INTERVAL_S + 3:
            await asyncio.sleep(1)
            found = {}
            for each in self._stage.running:
                for item in (await self._readers.list_of(f"https://localhost:{each.port}"))["items"]:
                    namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
                    if not self._witness.jobs[namespace, name].is_steady:
                        found[each.name, name] = settled_form(item["status"])
            if found != before:
                changed = [key for key in found if found[key] != before.get(key)]
                before, since = found, time.perf_counter()
            if time.perf_counter() - began > PATIENCE_S:
                raise SystemExit(
                    f"{len(changed)} do not settle, such as {[(key, found[key]) for key in changed[:3]]}"
                )
        print(f"  nothing of them changes after {since - began:.1f} s", flush=True)

    async def _until(self, left: Callable[[list[Any]], list[str]], what: str) -> None:
        began = time.perf_counter()
        while True:
            found = []
            for replica in self._stage.running:
                try:
                    items = (await self._readers.list_of(f"https://localhost:{replica.port}"))["items"]
                except aiohttp.ClientResponseError as error:  # a cluster that just began may review nobody
                    found.append(f"{replica.name}: {error.status}")
                    continue
                found += left(items)
            if not found:
                print(f"  {what} after {time.perf_counter() - began:.1f} s", flush=True)
                return
            if time.perf_counter() - began > PATIENCE_S:
                raise SystemExit(f"not within {PATIENCE_S} s: {what}; {len(found)} left, such as {found[:3]}")
            await asyncio.sleep(1)

    def _tell(self, stage: str) -> None:
        before = self._witness.stage
        if before:
            show_stage(self._witness, before)
        self._witness.stage = stage
        print(f"{stage} …" if stage != "end" else "", flush=True)


def _unread(items: list[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in items if "steps" not in item["status"]]


def show_stage(witness: Witness, stage: str) -> None:
    back = {source: seconds for (of, source), seconds in sorted(witness.back_s.items()) if of == stage}
    oldest = {source: seconds for (of, source), seconds in sorted(witness.oldest_s.items()) if of == stage}
    print(
        f"  {witness.documents[stage]:,} documents, {witness.refused[stage]} requests without an answer,"
        f" {witness.resumed[stage]} watches resumed\n"
        f"  back, at most:   {_seconds(back)}\n  oldest, at most: {_seconds(oldest)}\n"
        f"  what one replica shows, others show within {1000 * witness.behind_s.get(stage, 0.0):.0f} ms",
        flush=True,
    )


def _seconds(by_source: dict[str, float]) -> str:
    return ", ".join(f"{source} {seconds:.1f} s" for source, seconds in by_source.items()) or "none"


async def show(names: Sequence[str] = (), jobs: int = JOBS) -> bool:
    """Whether nothing was wrong."""
    binaries, missing = find_binaries()
    if missing:
        print(f"needs a real kube-apiserver: {'; '.join(missing)}", flush=True)
        return False
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        plane = stack.enter_context(control_plane(directory, binaries))
        token = await asyncio.to_thread(plane.prepare)
        apply_rights(plane.api, COMPONENTS)
        fleet = Fleet(plane.api, jobs)
        kubelet, kubelet_port = KubeletServer(fleet), free_port()
        await kubelet.start(plane.kubelet_tls(), kubelet_port)
        try:
            await asyncio.to_thread(fleet.create, kubelet_port)
            print(f"{jobs} jobs created, {time.perf_counter() - began:.0f} s", flush=True)
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=False, limit=64),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30),
            ) as http:
                stage = Stage(directory, plane, fleet, http)
                witness = Witness(fleet.jobs)
                async with stage.balancer.serving():
                    await _play(stage, witness, token, names)
        finally:
            await kubelet.stop()
    for kind, number in witness.faults.items():
        print(f"{kind}: {number}")
        for example in witness.examples[kind][:12]:
            print(f"    {example}"[:400])
    print(f"{'NOT held' if witness.faults else 'held'}, {time.perf_counter() - began:.0f} s", flush=True)
    return not witness.faults


async def _play(stage: Stage, witness: Witness, token: str, names: Sequence[str]) -> None:
    readers, pushers = Readers(stage, witness, token), Pushers(stage, stage.fleet.jobs, witness)
    play = Play(stage, witness, readers, pushers)
    try:
        await play.begin()
        await beside(pushers.run(), play.all_read())
        clients = [keep(work, witness) for work in readers.loops()]
        await beside(pushers.run(), *clients, play.play(names))
        print(f"  pushes that were sent again: {dict(pushers.refused)}")
    finally:
        for replica in list(stage.running):
            await replica.end(signal.SIGKILL)


async def beside(*work: Coroutine[Any, Any, None]) -> None:
    """Until one of them ends, as the last one does."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restarts", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENE", help=f"only these: {'; '.join(SCENES)}")
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    if unknown := set(given.names) - set(SCENES):
        parser.error(f"there is no scene called {', '.join(sorted(unknown))}")
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # execs whose replica has died
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(show(given.names, given.jobs)) else 1


if __name__ == "__main__":
    sys.exit(main())
