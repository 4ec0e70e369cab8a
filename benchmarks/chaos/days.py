"""The bad days, a function each: it makes one, and returns when its cause has gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from cryptography import x509

from benchmarks.fleet import NODES, Job
from benchmarks.processes import resident_mib
from benchmarks.restarts import Manner, Replica
from benchmarks.scene import ALL
from tests.e2e.manifests import NAMESPACE

from .ground import SECRET, Ground

STORM_S = 45.0
GONE_S = 60.0
SHARE = 0.9  # of the requests in a storm
CUT_S = 90.0  # a follower is not ready a minute after it knows, and the Service knows that 6 s later
BEHIND_S = 33.0  # a follower has found nobody for 24 s, up to 7 s after it has heard the last word; a search
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
JUMPS = ("+7200", "-7200", "+0")  # seconds
JUMP_S = 20.0
SLOW_CLIENTS = 200
LIFETIME_S, EXPIRED_S = 120.0, 30.0
BINDING = "trainjob-visibility:certificate"
# The first day fills the ring of changes that watches resume from (10,000 at most); the second must be flat.
JOBS_AN_HOUR, WARM_HOURS, HOURS, MOST_GROWTH_MIB = 100, 24, 48, 8.0
RESTARTS_AT_ONCE = 64  # requests; the API server takes them one after the other anyway
RESTART_S = 10.0  # the kubelet's first back-off


@dataclass(frozen=True, slots=True, kw_only=True)
class BadDay:
    """`is_others`: kube-apiserver reaches nobody, so others are hurt anyway. `may_fail`: reads may
    fail, because nobody can say what the caller may read. `may_relist`: replicas may lose the owner for so
    long that they say so, and watchers list again afterwards. `meanwhile`: what is wrong as long as its
    cause."""

    make: Callable[[Ground], Awaitable[str]]
    prepare: Callable[[Ground], Awaitable[None]] | None = None  # before it begins
    is_others: bool = False
    may_fail: bool = False
    may_relist: bool = False
    behind_s: float = 2.0  # for so long a replica may show older documents than another: cores are busy here
    meanwhile: frozenset[str] = frozenset()


async def kube_apiserver_gone(at: Ground) -> str:
    await asyncio.to_thread(at.plane.stop_apiserver)
    await asyncio.sleep(GONE_S)
    await asyncio.to_thread(at.plane.start_apiserver)
    return f"{GONE_S:.0f} s"


async def kube_apiserver_slow(at: Ground) -> str:
    at.way.delay_s = 5.0
    await asyncio.sleep(STORM_S)
    at.way.delay_s = 0.0
    return f"5 s more for each of the server's requests, {STORM_S:.0f} s long"


async def _storm(at: Ground, status: int) -> str:
    at.way.status, at.way.share, at.way.answered = status, SHARE, 0
    at.way.cut()  # watches have to begin anew in it
    await asyncio.sleep(STORM_S)
    at.way.status = 0
    return f"{STORM_S:.0f} s, {at.way.answered} requests of the server were answered so"


async def storm_of_429(at: Ground) -> str:
    return await _storm(at, 429)


async def storm_of_500(at: Ground) -> str:
    return await _storm(at, 500)


async def watch_cache_reset(at: Ground) -> str:
    """kube-apiserver starts anew, and knows no revision of before: 410."""
    await asyncio.to_thread(at.plane.forget_history)
    return "kube-apiserver was started anew"


async def etcd_compacted(at: Ground) -> str:
    revision = await asyncio.to_thread(at.plane.compact)
    at.way.cut()
    return f"up to revision {revision}, and every watch has to begin anew"


async def exec_hangs_on_a_node(at: Ground) -> str:
    """Those of other nodes are probed as before."""
    at.fleet.hanging.add("node-0")
    elsewhere = {job.name for job in at.fleet.jobs if job.number % NODES}
    await asyncio.sleep(GONE_S)
    items = await at.listed(f"https://localhost:{at.running[0].port}")
    late = sorted(elsewhere.intersection(at.late(items)))
    if len(late) > len(elsewhere) / 20:  # cores are busy here
        at.complaints.append(f"{len(late)} jobs of other nodes are late, such as {late[0]}")
    at.fleet.hanging.clear()
    return f"one of {NODES} nodes, {GONE_S:.0f} s"


async def pods_restart_at_once(at: Ground) -> str:
    jobs = [job for job in at.fleet.jobs if job.is_steady]
    slots, began = asyncio.Semaphore(RESTARTS_AT_ONCE), time.monotonic()
    headers = at.headers | {"Content-Type": "application/merge-patch+json"}

    async def restart(job: Job) -> None:
        async with slots:
            path, patch = at.fleet.restarted(job)
            async with at.http.patch(f"{at.front}{path}", json=patch, headers=headers) as answer:
                answer.raise_for_status()

    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(restart(job))
    return f"{len(jobs)} pods in {time.monotonic() - began:.1f} s"


async def clocks_jump(at: Ground) -> str:
    """Of both replicas, two hours ahead and then two behind; the clock that measures intervals does not.
    No server can show a true age or end by it, but it has to say that its clock is wrong."""
    offset = at.directory / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    for old in list(at.running):
        await at.replace(old, Manner(env=faked))
    for jump in JUMPS:
        offset.write_text(jump)
        await asyncio.sleep(JUMP_S)
        if jump != "+0" and (unaware := [each.name for each in at.running if not await at.notes_clock(each)]):
            at.complaints.append(f"{', '.join(unaware)} did not notice the jump by {jump} s")
    return f"of both replicas, by {JUMPS[0]} s, then {JUMPS[1]} s"


async def out_of_memory(at: Ground) -> str:
    """The kernel kills the owner, as at its limit; the kubelet starts its container again."""
    owner, _ = at.owner_and_follower()
    await owner.end(signal.SIGKILL)
    await asyncio.sleep(RESTART_S)
    await owner.start()
    return f"the owner was killed, and started again {RESTART_S:.0f} s later"


async def disk_full(at: Ground) -> str:
    disk = at.directory / "disk"
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True)  # noqa: ASYNC221 - takes no time
    try:
        owner, _ = at.owner_and_follower()
        new = await at.replace(owner, Manner(flags=[f"--data-dir={disk}/data"]))
        await asyncio.sleep(3)
        await asyncio.to_thread(_fill, disk / "filler")
        await asyncio.sleep(STORM_S)
        await new.end(signal.SIGKILL)
        await new.start()
        (disk / "filler").unlink()
        await asyncio.sleep(RESTART_S)
        await at.replace(new)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)  # noqa: ASYNC221 - takes no time
    return f"of the data directory, {STORM_S:.0f} s long, with a kill and a start meanwhile"


def _fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as sink:
        while True:
            sink.write(b"x" * 4096)


async def slow_clients(at: Ground) -> str:
    """They ask for lists and watches, and read nothing."""
    connector = aiohttp.TCPConnector(ssl=False, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1024) as http:

        async def one(number: int) -> None:
            port = at.running[number % 2].port
            query = "" if number % 4 == 0 else "?watch=1&timeoutSeconds=300"
            try:
                async with http.get(f"https://localhost:{port}{ALL}{query}", headers=at.headers):
                    await asyncio.sleep(STORM_S)
            except (aiohttp.ClientError, TimeoutError):
                pass

        await asyncio.gather(*(one(number) for number in range(SLOW_CLIENTS)))
    return f"{SLOW_CLIENTS} that read nothing, {STORM_S:.0f} s long"


async def follower_cut_off(at: Ground) -> str:
    owner, _ = at.owner_and_follower()
    gate = at.gates[owner.port]
    await gate.refuse()
    await asyncio.sleep(CUT_S)
    forwarded = list(at.balancer.ready)
    await gate.allow()
    if forwarded != [owner.port]:
        at.complaints.append("a follower that knows nothing new is ready")
    return f"{CUT_S:.0f} s"


async def dns_gone(at: Ground) -> str:
    """Of the names of other replicas. In a pod kube-apiserver is reached by an address."""
    hosts = at.directory / "hosts"
    named = "127.0.0.1 localhost replicas.test\n"
    hosts.write_text(named)
    prefix = ("unshare", "-m", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh")
    at.peer_host = "replicas.test"
    for old in list(at.running):
        await at.replace(old, Manner(prefix=prefix))
    hosts.write_text("127.0.0.1 localhost\n")
    await asyncio.sleep(GONE_S / 2)
    owner, _ = at.owner_and_follower()
    await owner.end(signal.SIGTERM)  # and nobody is found
    await asyncio.sleep(GONE_S / 2)
    hosts.write_text(named)
    await owner.start()
    at.peer_host = "127.0.0.1"
    return f"{GONE_S:.0f} s, with a restart of the owner meanwhile"


async def short_certificates(at: Ground) -> None:
    """Whoever has served another one would put that back: both replicas end first."""
    replicas = list(at.running)
    for each in replicas:
        await each.end(signal.SIGTERM)
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}"
    await asyncio.to_thread(at.plane.api.patch, secret, {"data": {"tls.crt": None, "tls.key": None}})
    for each in replicas:
        each.manner = Manner(flags=[f"--certificate-lifetime={LIFETIME_S:.0f}s"])
        await each.start()


async def certificate_ends(at: Ground) -> str:
    """It lasts some minutes, and the right to renew it is missing meanwhile."""
    api = at.plane.api
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"
    while max(await asyncio.gather(*map(_ends, at.running))) > time.time() + LIFETIME_S:  # noqa: ASYNC110 - no certificate tells that it has changed
        await asyncio.sleep(1)
    kept = await asyncio.to_thread(api.get, f"{bindings}/{BINDING}")
    await asyncio.to_thread(api.delete, f"{bindings}/{BINDING}")
    ends = max(await asyncio.gather(*map(_ends, at.running)))
    await asyncio.sleep(max(0.0, ends - time.time()) + EXPIRED_S)
    bound = {"metadata": {"name": BINDING}, "subjects": kept["subjects"], "roleRef": kept["roleRef"]}
    await asyncio.to_thread(api.create, bindings, bound)
    return f"nobody could renew it, and it was over for {EXPIRED_S:.0f} s"


async def _ends(replica: Replica) -> float:
    """When the certificate that it serves ends."""
    text = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", replica.port))
    return x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc.timestamp()


async def day_of_churn(at: Ground) -> str:
    """As many jobs come and go as in two days, an hour at a time."""
    began = datetime.now(UTC)
    used: list[list[float]] = []
    for hour in range(HOURS):
        first = 1_000_000 + hour * JOBS_AN_HOUR
        await asyncio.to_thread(at.plane.pass_by, range(first, first + JOBS_AN_HOUR))
        used.append([resident_mib(each.process.pid) for each in at.running if each.process is not None])
    early, late = used[WARM_HOURS - 1], used[-1]
    if any(after - before > MOST_GROWTH_MIB for before, after in zip(early, late, strict=True)):
        at.complaints.append(f"memory grew: {early} to {late}")
    took_s = (datetime.now(UTC) - began).total_seconds()
    return (
        f"{HOURS} times {JOBS_AN_HOUR} jobs, in {took_s:.0f} s; MiB after {WARM_HOURS} hours and {HOURS}: "
        + ", ".join(f"{before:.0f} and {after:.0f}" for before, after in zip(early, late, strict=True))
    )


DAYS: dict[str, BadDay] = {
    "kube-apiserver gone": BadDay(make=kube_apiserver_gone, is_others=True, may_fail=True, may_relist=True),
    "kube-apiserver slow": BadDay(make=kube_apiserver_slow, may_fail=True, may_relist=True),
    "429 to the server": BadDay(make=storm_of_429, may_fail=True, may_relist=True),
    "500 to the server": BadDay(make=storm_of_500, may_fail=True, may_relist=True),
    "watch cache reset": BadDay(make=watch_cache_reset, is_others=True, may_fail=True),
    "etcd compacted": BadDay(make=etcd_compacted),
    "exec hangs on a node": BadDay(make=exec_hangs_on_a_node),
    "pods restart at once": BadDay(make=pods_restart_at_once),
    "clocks jump": BadDay(make=clocks_jump, meanwhile=frozenset({"end in the past", "younger"})),
    "out of memory": BadDay(make=out_of_memory, may_fail=True),
    "disk full": BadDay(make=disk_full),
    "slow clients": BadDay(make=slow_clients),
    "follower cut off": BadDay(make=follower_cut_off, may_relist=True, behind_s=BEHIND_S),
    "DNS gone": BadDay(make=dns_gone),
    # kube-apiserver trusts no server whose certificate has ended, so nothing can be done for others either.
    "certificate ends": BadDay(
        make=certificate_ends, prepare=short_certificates, is_others=True, may_fail=True
    ),
    "a day of churn": BadDay(make=day_of_churn),
}
