"""What everyone but the attackers sees: documents, watches, pushes, and how old what is shown is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .kubelet import moment, step_now
from .processes import Server, cpu_s, resident_mib, waited_s
from .scene import ONE

CONNECTIONS, PER_S = 2, 25.0  # of each kind of user; each connection so many requests a second
REQUEST_TIMEOUT_S = 20.0
CHANGES_PER_S, PUSHES_PER_S, LOOKS_PER_S = 10.0, 20.0, 20.0
# Of a bare server through kube-apiserver, by the same two users: what these take is no doing of ours.
KUBE_READS = ("bare aggregated", "bare masters")
KUBE_LOGS = "kube logs"  # of a victim's pod, over the server's link: what a probe takes at least
LIVEZ, PUSHES = "livez", "pushes"
READS = ("direct", "aggregated", "masters")
CHANGES, PUSHED, FRESH = "changes", "pushed", "fresh"
KUBE_CHANGES = "kube changes"  # on a bare watch of the same objects over the same link: no doing of ours
LATE, TICK_S = "late", 0.02  # how late the measuring process itself was, so often looked at
_MARK = "changed-at"
_PREPARED = re.compile(r"\((\d+)/")  # what an initializer has printed
_KEPT = 10_000
_LARGE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who reads without doing harm; or one that pushes `body()`."""

    name: str
    server: Server
    ca_file: Path
    path: str = ONE
    headers: Sequence[tuple[str, str]] = ()
    certificate: tuple[Path, Path] | None = None
    connections: int = CONNECTIONS
    per_s: float = PER_S
    keeps_connection: bool = True
    body: Callable[[], bytes] | None = None

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        return context

    def request(
        self, method: str = "GET", path: str = "", body: bytes | None = None, more: str = ""
    ) -> bytes:
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers) + more
        if body is not None:
            head += f"Content-Length: {len(body)}\r\n"
        first = f"{method} {path or self.path} HTTP/1.1\r\nHost: localhost\r\n"
        return f"{first}{head}\r\n".encode() + (body or b"")

    async def connect(self, context: ssl.SSLContext) -> Connection:
        return await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=context, server_hostname="localhost", limit=2**24
        )


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class Seen:
    """Seconds, and what went wrong."""

    times_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def quantile_s(self, share: float) -> float:
        ordered = sorted(self.times_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(slots=True, kw_only=True)
class Round:
    """What all of them saw in one round or several, and what the server used."""

    seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    peak_mib: float = 0.0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0  # it could have run and attackers or others had both cores

    def add(self, other: Round) -> None:
        for name, seen in other.seen.items():
            self.seen[name].times_s += seen.times_s
            self.seen[name].errors += seen.errors
        self.peak_mib = max(self.peak_mib, other.peak_mib)
        self.elapsed_s += other.elapsed_s
        self.cpu_s += other.cpu_s
        self.waited_s += other.waited_s

    def ms(self, *names: str, share: float = 0.99) -> float:
        """Of those that were worst off."""
        return 1000 * max(self.seen[name].quantile_s(share) for name in names)

    @property
    def waited_share(self) -> float:
        return self.waited_s / self.elapsed_s

    @property
    def errors(self) -> list[str]:
        return [f"{name}: {error}" for name, seen in self.seen.items() for error in seen.errors]


class Deliveries:
    """How long after each change a watch brings it, or a later one of the same object. Marks only rise."""

    def __init__(self) -> None:
        self._due: dict[str, deque[tuple[float, float]]] = defaultdict(
            deque
        )  # mark and since when, by object
        self._newest: dict[str, float] = defaultdict(float)  # mark that was brought
        # Since when it was due, and how long it took.
        self._brought: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def due(self, key: str, mark: float) -> None:
        now = time.time()
        if mark > self._newest[key]:
            self._due[key].append((mark, now))
        else:
            self._brought.append((now, 0.0))

    def came(self, key: str, mark: float) -> None:
        waiting, now = self._due[key], time.time()
        self._newest[key] = max(mark, self._newest[key])
        while waiting and waiting[0][0] <= mark:
            _, since = waiting.popleft()
            self._brought.append((since, now - since))

    def of_round(self, began: float) -> list[float]:
        """Of what was due since then; what has not come has taken as long as it waits by now."""
        now = time.time()
        late = [(since, now - since) for waiting in self._due.values() for _, since in waiting]
        return [took for since, took in (*self._brought, *late) if since >= began]


@dataclass(slots=True, kw_only=True)
class Victims:
    """Jobs of one namespace that report, and watches of them; all the time, in rounds or not."""

    namespace: str
    user: User  # at the server
    admin: User  # at kube-apiserver
    beside: User  # there too, over the server's link
    watched: str  # path at the server
    objects: str  # path of their TrainJobs at kube-apiserver
    all_objects: str  # path of all TrainJobs there: what the server watches
    probed: Sequence[str]  # names of jobs
    pushers: Sequence[User]
    # Due when a watch of kube-apiserver itself brings them: it and etcd may be slow by themselves.
    changes: Deliveries = field(default_factory=Deliveries)
    kube_changes: Deliveries = field(default_factory=Deliveries)
    pushed: Deliveries = field(default_factory=Deliveries)
    shown: dict[str, int] = field(default_factory=dict)  # the step of each job that is probed

    @contextlib.asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(self._keep(self.user, self.watched, self._came)),
            asyncio.create_task(self._keep(self.admin, self.objects, self._came_from_kube)),
            asyncio.create_task(self._keep(self.beside, self.all_objects, self._came_again)),
            asyncio.create_task(self._change()),
        ]
        try:
            async with asyncio.timeout(120):
                while self.shown.keys() < set(self.probed):  # noqa: ASYNC110 - what is waited for is in another process
                    await asyncio.sleep(0.1)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, user: User, path: str, came: Callable[[Any], None]) -> None:
        """A watch that is opened again when it ends."""
        context = user.tls()
        while True:
            with contextlib.suppress(OSError, EOFError, ValueError):
                reader, writer = await user.connect(context)
                try:
                    writer.write(user.request(path=f"{path}?watch=1"))
                    await reader.readuntil(b"\r\n\r\n")
                    async for event in _events(reader):
                        came(event)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.2)

    def _came(self, item: Any) -> None:
        name = item["metadata"]["name"]
        self.changes.came(name, float(item["metadata"].get("labels", {}).get(_MARK, 0)))
        step = item["status"].get("steps", {}).get("current")
        if prepared := _PREPARED.search(item["status"].get("phaseMessage", "")):
            step = int(prepared.group(1))
        if step is not None:
            self.shown[name] = step
            self.pushed.came(name, step)

    def _came_from_kube(self, item: Any) -> None:
        if mark := item["metadata"].get("labels", {}).get(_MARK):
            for each in (self.changes, self.kube_changes):
                each.due(item["metadata"]["name"], float(mark))

    def _came_again(self, item: Any) -> None:
        self.kube_changes.came(
            item["metadata"]["name"], float(item["metadata"].get("labels", {}).get(_MARK, 0))
        )

    async def _change(self) -> None:
        """One label after the other, with the time."""
        context, number = self.admin.tls(), 0
        while True:
            with contextlib.suppress(OSError, EOFError, ValueError):
                reader, writer = await self.admin.connect(context)
                try:
                    while True:
                        name, now = self.probed[number % len(self.probed)], time.time()
                        number += 1
                        body = json.dumps({"metadata": {"labels": {_MARK: f"{now:.6f}"}}}).encode()
                        more = "Content-Type: application/merge-patch+json\r\n"
                        writer.write(self.admin.request("PATCH", f"{self.objects}/{name}", body, more))
                        await read_answer(reader)
                        await asyncio.sleep(max(0.0, now + 1 / CHANGES_PER_S - time.time()))
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.2)

    async def look(self, ends: float) -> Seen:
        """How old the shown report of each probed job is, again and again."""
        seen = Seen()
        while time.perf_counter() < ends:
            seen.times_s += [
                time.time() - moment(step) for name, step in self.shown.items() if name in self.probed
            ]
            await asyncio.sleep(1 / LOOKS_PER_S)
        return seen

    def push_body(self, name: str) -> bytes:
        step = step_now()
        self.pushed.due(name, step)
        status = {
            "lastUpdatedTime": datetime.now(UTC).isoformat(),
            "metrics": [
                {"name": "current_step", "value": str(step)},
                {"name": "total_steps", "value": str(10**12)},
            ],
        }
        return json.dumps({"trainerStatus": status}).encode()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[Any]:
    rest = b""
    while size := int(await reader.readline(), 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if len(line) <= _LARGE_BYTES:  # else an attacker's, and to parse it would make this process late
                yield json.loads(line)["object"]


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The head of an answer, when its body has been read too."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"\r\ntransfer-encoding: chunked\r\n" not in head:
        await reader.readexactly(content_length(head))
        return head
    size = 1
    while size:
        size = int(await reader.readline(), 16)
        await reader.readexactly(size + len(b"\r\n"))
    return head


def content_length(head: bytes) -> int:
    """Of an answer's head in lower case."""
    return int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])


async def observe(users: Sequence[User], server: Server, seconds: float, victims: Victims | None) -> Round:
    """What all see for so long."""
    found, began = Round(), time.perf_counter()
    ends, began_at = began + seconds, time.time()
    cpu, waited = cpu_s(server.pid), waited_s(server.pid)
    everyone = [*users, *(victims.pushers if victims else ())]
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(victims.look(ends)) if victims else None
        for place, user in enumerate(everyone):
            for number in range(user.connections):
                first_s = (number + place / len(everyone)) / user.connections / user.per_s
                group.create_task(_read(user, found.seen[user.name], ends, first_s=first_s))
        group.create_task(_tick(found.seen[LATE], ends))
        while time.perf_counter() < ends:
            found.peak_mib = max(found.peak_mib, resident_mib(server.pid))
            await asyncio.sleep(0.05)
    if victims and looking:
        found.seen[FRESH] = looking.result()
        found.seen[CHANGES].times_s = victims.changes.of_round(began_at)
        found.seen[KUBE_CHANGES].times_s = victims.kube_changes.of_round(began_at)
        found.seen[PUSHED].times_s = victims.pushed.of_round(began_at)
    found.elapsed_s = time.perf_counter() - began
    found.cpu_s, found.waited_s = cpu_s(server.pid) - cpu, waited_s(server.pid) - waited
    return found


async def _tick(seen: Seen, ends: float) -> None:
    while (due := time.perf_counter() + TICK_S) < ends:
        await asyncio.sleep(TICK_S)
        seen.times_s.append(time.perf_counter() - due)


async def _read(user: User, seen: Seen, ends: float, *, first_s: float) -> None:
    """Requests at an even pace; one that takes longer is not followed by a burst."""
    context = user.tls()
    connection: Connection | None = None
    await asyncio.sleep(first_s)
    while (began := time.perf_counter()) < ends:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                if connection is None:
                    connection = await user.connect(context)
                reader, writer = connection
                body = user.body() if user.body else None
                writer.write(user.request("POST" if user.body else "GET", body=body))
                answer = await read_answer(reader)
            if b" 200 " not in answer[:16]:
                seen.errors.append(answer.partition(b"\r\n")[0].decode())
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            seen.errors.append(type(error).__name__)
            connection = _closed(connection)
        seen.times_s.append(time.perf_counter() - began)
        if not user.keeps_connection:
            connection = _closed(connection)
        await asyncio.sleep(max(0.0, began + 1 / user.per_s - time.perf_counter()))
    _closed(connection)


def _closed(connection: Connection | None) -> None:
    if connection is not None:
        connection[1].transport.abort()
