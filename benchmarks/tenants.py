"""What the tenant of one namespace can do: at kube-apiserver, at the server, and as training pods."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from visibility_api.pushing.body import MAX_BODY_BYTES

from .attack_scene import ANNOTATION, ATTACK
from .attackers import ELSEWHERE, TABLE, YAML, Attack, Target, crowd, number
from .control_plane import TRAINJOBS
from .fleet import IMAGE
from .others import content_length
from .scene import API

MERGE = "Content-Type: application/merge-patch+json\r\n"
JSON = "Content-Type: application/json\r\n"
# kube-apiserver's answers to attackers are short: they are not the attack.
SHORT = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io\r\n"
SLURM_JOBS = "/apis/slurm.example.com/v1/namespaces/{}/slurmjobs"
PODS, JOBS = "/api/v1/namespaces/{}/pods", "/apis/batch/v1/namespaces/{}/jobs"
LABELS = {f"jobset.sigs.k8s.io/{name}": "0" for name in ("jobset-name", "job-index")} | {
    "batch.kubernetes.io/job-completion-index": "0",
    ATTACK: "1",
}
# etcd takes 1.5 MB; on the watch each < has six bytes.
LARGE = "<" * 1_560_000
CHURN_PER_S, CHURNED = 15.0, 10  # labels of so many jobs of the tenant's
# 14 KB of each job; a list of so many of them fits no socket.
FILLER, MANY_JOBS = {f"filler-{'x' * 50}-{number}": "x" * 63 for number in range(110)}, 400
UNREAD_S = 12.0  # the server leaves who reads nothing for 10 s
UNREAD_RETRY_S = 1.0  # after one was refused
ANSWERED_SHARE = 0.9  # of the connections: what kube-apiserver takes to open them is no part of the attack
SEEN_S = 0.3  # until the server has a change
RETRY_S = 10.0  # after a watch was refused
PUSHES_PER_S = 20.0  # of each pod: as many as it may


class _Kube:
    """One account of the tenant at kube-apiserver, on a connection of its own."""

    def __init__(self, target: Target, place: int = 0) -> None:
        self._target = target
        accounts = target.access.accounts
        self._headers = target.bearer(accounts[place % len(accounts)]) + SHORT
        self._connection: Any = None
        self._pushing: Any = None

    async def push(self, path: str, token: str, body: bytes) -> None:
        """As a pod of the tenant's, to the server."""
        if self._pushing is None:
            self._pushing = await self._target.connect(ELSEWHERE[0])
        await self._target.ask(self._pushing, path, self._target.bearer(token), method="POST", body=body)

    async def send(self, method: str, path: str, body: Any = None, kind: str = JSON) -> None:
        if self._connection is None:
            self._connection = await self._target.connect(port=self._target.access.kube_port)
        data = b"" if body is None else json.dumps(body).encode()
        path = path.format(self._target.access.namespace)
        headers = self._headers + (kind if data else "")
        await self._target.ask(
            self._connection, path, headers, method=method, body=data, by="kube-apiserver "
        )

    async def change(self, path: str, metadata: Any) -> None:
        await self.send("PATCH", path, {"metadata": metadata}, MERGE)

    def close(self) -> None:
        for connection in filter(None, (self._connection, self._pushing)):
            connection[1].transport.abort()


def kube(
    tasks: int, work: Callable[[_Kube, Target, int], Awaitable[None]], *, per_s: float = 1000.0
) -> Attack:
    """Each of so many tasks does this again and again at kube-apiserver, so often a second at most."""

    async def attack(target: Target) -> None:
        async def one(place: int) -> None:
            client = _Kube(target, place)
            try:
                while True:
                    due = time.monotonic() + 1 / per_s
                    await work(client, target, place)
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            finally:
                client.close()

        await crowd(tasks, one)

    return attack


def both(*attacks: Attack) -> Attack:
    async def attack(target: Target) -> None:
        await asyncio.gather(*(each(target) for each in attacks))

    return attack


def of_each(attack: Attack) -> Attack:
    """At the same time in each of the tenant's further namespaces."""

    async def attacks(target: Target) -> None:
        views = [
            replace(
                target,
                access=msgspec.structs.replace(target.access, **msgspec.structs.asdict(each)),
                is_under_way=asyncio.Event(),
            )
            for each in target.access.others
        ]

        async def announce() -> None:
            for view in views:
                await view.is_under_way.wait()
            target.is_under_way.set()

        await asyncio.gather(announce(), *map(attack, views))

    return attacks


def _large(
    path: str, spec: Callable[[], Any], **kind: str
) -> Callable[[_Kube, Target, int], Awaitable[None]]:
    """An object that is created once, and then given another label each time."""
    made: dict[int, str] = {}

    async def work(client: _Kube, _target: Target, place: int) -> None:
        if place not in made:
            made[place] = f"large-{number()}"
            body = {"metadata": {"name": made[place], "labels": LABELS}, "spec": spec(), **kind}
            await client.send("POST", path, body)
        await client.change(f"{path}/{made[place]}", {"labels": {"turn": str(number())}})

    return work


def _containers() -> Any:
    large = {"name": "node", "image": IMAGE, "env": [{"name": "X", "value": LARGE}]}
    return {"containers": [large], "schedulerName": "none", "restartPolicy": "Never"}


large_pods = _large(PODS, _containers)
# Of a kind that a file describes: numbers that take longest to read.
large_numbers = _large(
    SLURM_JOBS, lambda: {"x": [1e308] * 18_000}, apiVersion="slurm.example.com/v1", kind="SlurmJob"
)
large_jobs = _large(JOBS, lambda: {"suspend": True, "template": {"spec": _containers()}})


async def come_and_go(client: _Kube, _target: Target, _place: int) -> None:
    """A pod that claims to be one of a job, and a job."""
    name = f"short-{number()}"
    small = {"containers": [{"name": "node", "image": IMAGE}], "schedulerName": "none"}
    made = {"metadata": {"name": name, "labels": LABELS}, "spec": {"runtimeRef": {"name": "torch"}}}
    made |= {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    await client.send("POST", PODS, {"metadata": {"name": name, "labels": LABELS}, "spec": small})
    await client.send("POST", TRAINJOBS, made)
    for path in (PODS, TRAINJOBS):
        await client.send("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})


async def crash_loop(client: _Kube, target: Target, place: int) -> None:
    """The Job of a job is made anew, and its rank 0 reports once: as many metrics, with names as long, as
    leave some histories no room in which to thin them."""
    job, (path, token) = target.access.jobs[place], target.access.pods[place]
    attempt = {"jobset.sigs.k8s.io/restart-attempt": str(int(10 * time.time()) % 10**9)}
    await client.change(f"{JOBS}/{job}-node-0", {"labels": attempt})
    await asyncio.sleep(random.uniform(1, 2) * SEEN_S)  # not all at one moment
    pairs = [{"name": f"{n:0{4 + place % 22}}", "value": f"{n}"} for n in range(34)]
    status = {"lastUpdatedTime": datetime.now(UTC).isoformat(), "metrics": pairs}
    await client.push(path, token, json.dumps({"trainerStatus": status}).encode())


async def large_annotations(client: _Kube, target: Target, place: int) -> None:
    job = target.access.jobs[place]
    await client.change(f"{TRAINJOBS}/{job}", {"annotations": {"filler": random.randbytes(120_000).hex()}})


async def change_labels(client: _Kube, target: Target, _place: int) -> None:
    job = random.choice(target.access.jobs[:CHURNED])
    await client.change(f"{TRAINJOBS}/{job}", {"labels": {"turn": str(number())}})


churn = kube(1, change_labels, per_s=CHURN_PER_S)
slow_churn = kube(1, change_labels, per_s=0.2)


def probed(source: str) -> Attack:
    """All jobs of the tenant are to be probed each second, on the victim's node."""

    async def attack(target: Target) -> None:
        under_way = target.is_under_way
        target.is_under_way = asyncio.Event()
        client = _Kube(target)
        for job in target.access.jobs:
            annotations = {f"{ANNOTATION}source": source, f"{ANNOTATION}interval": "1s"}
            await client.change(f"{TRAINJOBS}/{job}", {"annotations": annotations})
        await asyncio.sleep(2.0)
        under_way.set()
        await asyncio.Event().wait()

    return attack


def watches(users: int, each: int) -> Attack:
    """So many of the tenant's accounts keep so many Table watches open, with unlike selectors of 20 parts."""

    async def attack(target: Target) -> None:
        opening = asyncio.Semaphore(64)
        target.on_way = users * each  # to open them is another attack: that of handshakes

        async def one(place: int) -> None:
            async with opening:
                reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
            selector = "%2C".join([f"absent-{place}-{part}%21%3Dx" for part in range(20)])
            query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
            path = f"{API}/namespaces/{target.access.namespace}/trainjobs?{query}&labelSelector={selector}"
            bearer = target.bearer(target.access.accounts[place % users])
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{TABLE}{bearer}\r\n".encode()
            try:
                while True:
                    writer.write(request)
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    status = head.split()[1].decode()
                    target.answers[status] += 1
                    if status == "200":
                        break
                    # On the same connection, which client-go keeps too. Handshakes have rows of their own.
                    await reader.readexactly(content_length(head))
                    await asyncio.sleep(RETRY_S)
                while await reader.read(256 * 1024):
                    pass
            finally:
                writer.transport.abort()

        await crowd(users * each, one)

    return attack


def of_namespace(
    tasks: int, request: Callable[[Target, int], tuple[str, str]], *, resource: str = "trainjobs"
) -> Attack:
    """So many connections of the tenant's accounts send requests for their namespace without pause."""

    async def attack(target: Target) -> None:
        async def one(place: int) -> None:
            connection = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
            bearer = target.bearer(target.access.accounts[place % len(target.access.accounts)])
            try:
                while True:
                    path, headers = request(target, place)
                    whole = f"{API}/namespaces/{target.access.namespace}/{resource}{path}"
                    await target.ask(connection, whole, headers + bearer)
            finally:
                connection[1].transport.abort()

        await crowd(tasks, one)

    return attack


def unread(connections: int) -> Attack:
    """Lists of 7 MB through kube-apiserver, of which no more than the head is read, again and again."""

    async def attack(target: Target) -> None:
        under_way, target.is_under_way = target.is_under_way, asyncio.Event()
        clients = [_Kube(target, place) for place in range(8)]
        made = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
        made |= {"spec": {"runtimeRef": {"name": "torch"}}}

        async def make(client: _Kube) -> None:
            for _ in range(MANY_JOBS // len(clients)):
                metadata = {"name": f"large-{number()}", "labels": FILLER | {ATTACK: "1"}}
                await client.send("POST", TRAINJOBS, made | {"metadata": metadata})

        await asyncio.gather(*map(make, clients))
        path = f"{API}/namespaces/{target.access.namespace}/trainjobs"

        answered = set[int]()

        async def one(place: int) -> None:
            reader, writer = await target.connect(port=target.access.kube_port, receive_bytes=4096)
            bearer = target.bearer(target.access.accounts[place % len(target.access.accounts)])
            try:
                while True:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{YAML}{bearer}\r\n".encode())
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    status = head.split()[1].decode()
                    target.answers[status] += 1
                    answered.add(place)
                    if len(answered) >= connections * ANSWERED_SHARE:
                        under_way.set()
                    if status == "200":
                        break
                    await reader.readexactly(content_length(head))
                    await asyncio.sleep(UNREAD_RETRY_S)
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # of every socket's transport
                await asyncio.sleep(UNREAD_S)
            finally:
                writer.transport.abort()

        await crowd(connections, one)

    return attack


def lists(_target: Target, place: int) -> tuple[str, str]:
    return ("", f"?labelSelector=k{number()}!=v")[place % 2], (YAML, TABLE, "")[place % 3]


def gets(target: Target, place: int) -> tuple[str, str]:
    return f"/{random.choice(target.access.jobs)}", (YAML, TABLE, "", "")[place % 4]


def histories(target: Target, place: int) -> tuple[str, str]:
    forms = (YAML, "", "Accept: text/csv\r\n")
    return f"/{random.choice(target.access.jobs)}/history", forms[place % 3]


def log_tails(target: Target, _place: int) -> tuple[str, str]:
    return f"/{random.choice(target.access.jobs)}/log-tail", ""


def over(_target: Target, _place: int) -> tuple[str, str]:
    """A watch that ends at once, as kube-apiserver's do."""
    return "?watch=1&timeoutSeconds=-5", ""


def records(_target: Target, place: int) -> tuple[str, str]:
    return ("", f"?labelSelector=k{number()}!=v", "?fieldSelector=status.phase=Failed")[place % 3], TABLE


def pushes(pods: int, bodies: Callable[[], bytes], *, gone: bool = False, headers: str = "") -> Attack:
    """So many pods of the tenant push as often as they may."""

    async def attack(target: Target) -> None:
        of = (target.access.gone if gone else target.access.pods)[:pods]

        async def one(place: int) -> None:
            path, token = of[place]
            connection = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
            try:
                while True:
                    due = time.monotonic() + 1 / PUSHES_PER_S
                    of_pod = headers + target.bearer(token)
                    await target.ask(connection, path, of_pod, method="POST", body=bodies())
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            finally:
                connection[1].transport.abort()

        await crowd(len(of), one)

    return attack


def plain() -> bytes:
    status = {"lastUpdatedTime": datetime.now(UTC).isoformat(), "progressPercentage": random.randrange(100)}
    return json.dumps({"trainerStatus": status}).encode()


def _many_metrics() -> bytes:
    """Each time others, so that all of them are recorded."""
    now = datetime.now(UTC).isoformat()
    pairs = [{"name": f"{n:03}" + "\u200b" * 25, "value": random.random()} for n in range(256)]
    status = {"lastUpdatedTime": now, "progressPercentage": random.randrange(100), "metrics": pairs}
    return json.dumps({"trainerStatus": status}, ensure_ascii=False).encode()


def _many_values() -> bytes:
    """A document with as many earlier values as are read."""
    rows = range(100, 0, -1)
    columns = {f"m{n}": [random.random() for _ in rows] for n in range(20)}
    recent = {"secondsBefore": [each / 10 for each in rows], "metrics": columns}
    document = {"timestamp": datetime.now(UTC).isoformat(), "step": random.randrange(1000), "recent": recent}
    return json.dumps(document).encode()


def in_chunks() -> bytes:
    """As many chunks as are read; now and then one for each byte, which costs a handshake as well."""
    size = random.choice((*[32] * 49, 1))
    chunk = b"%x\r\n%s\r\n" % (size, b" " * size)
    status = plain()
    return b"%x\r\n%s\r\n" % (len(status), status) + chunk * (60_000 // size) + b"0\r\n\r\n"


def _of_parts(part: bytes, *, before: bytes = b"", after: bytes = b"") -> Callable[[], bytes]:
    body = before + part * ((MAX_BODY_BYTES - len(before) - len(after)) // len(part)) + after
    return lambda: body


_HOSTILE: tuple[Callable[[], bytes], ...] = (
    _of_parts(b"[", after=b"\xff"),
    _of_parts(b"[]," , before=b"[", after=b"[]]\xff"),
    _of_parts(b'{"":0},', before=b'{"timestamp":"2026-01-23T10:30:45Z","x":['),
    _of_parts(b'"a":1e23,', before=b'{"timestamp":"2026-01-23T10:30:45Z","metrics":{', after=b'"b":1}}'),
    _of_parts(b"\xed\xa0\x80", before=b'{"trainerStatus":"', after=b'"}'),
    _many_metrics,
    _many_values,
)  # fmt: skip


def hostile() -> bytes:
    return random.choice(_HOSTILE)()
