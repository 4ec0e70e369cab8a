"""All attacks of `benchmarks.attack`, a row each. `python -m benchmarks.attack_rows NAME` carries one out.

It prints a line when the attack is under way, and at the end as JSON how often it got which HTTP status.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from . import tenants
from .attack_scene import Access
from .attackers import (
    BIG_HEAD,
    CHUNKED,
    ELSEWHERE,
    PATIENCE_S,
    Attack,
    Target,
    handshakes,
    hellos,
    histories,
    holding,
    keeping,
    leaving,
    lists,
    long,
    number,
    opening,
    pushing,
    repeating,
    selections,
    together,
    watching,
)
from .scene import ALL, API, ONE
from .tenants import kube, of_namespace, probed, pushes, watches


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attack, and what it needs around it."""

    attack: Attack
    is_tenant: bool = False  # by the tenant of one namespace, behind a real kube-apiserver
    # The attackers are to be refused, each time. Else some are to be answered 2xx: a row whose attackers are
    # all refused attacks nothing.
    is_refused: bool = False
    on_way: int = 1  # so many connections are begun: the attack is under way
    pods: str = "quick"  # how the tenant's pods report (benchmarks/kubelet.py)
    is_slow_link: bool = False  # 1 Gbit/s between kube-apiserver and the server
    # p99 of others: so many times the quiet one. 2 is what users are promised. Of strangers' rows it is 5:
    # handshakes and refusals come in bursts, and the quiet p99 is that of one request in a hundred.
    times: float = 2.0


def stranger(attack: Attack, *, on_way: int = 1) -> Row:
    """Without rights."""
    return Row(attack=attack, is_refused=True, on_way=on_way, times=5.0)


def user(attack: Attack, *, is_refused: bool = False, on_way: int = 1) -> Row:
    """Who may read all jobs."""
    return Row(attack=attack, is_refused=is_refused, on_way=on_way, times=5.0)


def tenant(
    attack: Attack,
    *,
    pods: str = "quick",
    is_refused: bool = False,
    is_slow_link: bool = False,
    times: float = 2.0,
) -> Row:
    return Row(
        attack=attack,
        is_tenant=True,
        is_refused=is_refused,
        pods=pods,
        is_slow_link=is_slow_link,
        times=times,
    )


async def nothing(target: Target) -> None:
    """How far two quiet rounds are apart: the noise in all other rows."""
    target.is_under_way.set()
    await asyncio.Event().wait()


_LARGE_PODS = kube(2, tenants.large_pods, per_s=5)
_LARGE_ANNOTATIONS = kube(4, tenants.large_annotations, per_s=10)
_LOGS, _FILES = probed("logs"), probed("exec")

ROWS: dict[str, Row] = {
    "nothing": Row(attack=nothing),
    "2 pods of 9.4 MB, relabelled": tenant(_LARGE_PODS),
    "the same, 1 Gbit/s": tenant(_LARGE_PODS, is_slow_link=True),
    "2 Jobs of 9.4 MB, 1 Gbit/s": tenant(kube(2, tenants.large_jobs, per_s=5), is_slow_link=True),
    "annotations of 256 KiB, 40/s": tenant(_LARGE_ANNOTATIONS),
    "annotations, 1 Gbit/s": tenant(_LARGE_ANNOTATIONS, is_slow_link=True),
    "pods and jobs made and deleted": tenant(kube(4, tenants.come_and_go, per_s=10)),
    "labels of 10 jobs, 60/s": tenant(kube(4, tenants.change_labels, per_s=15)),
    "slow execs on the victim's node": tenant(_FILES, pods="slow"),
    "slow logs on the victim's node": tenant(_LOGS, pods="slow"),
    "files of 4 MiB": tenant(_FILES, pods="long"),
    "log lines of 60 KB": tenant(_LOGS, pods="long"),
    "log lines of 60 KB, 1 Gbit/s": tenant(_LOGS, pods="long", is_slow_link=True),
    "logs of names, initializers": tenant(_LOGS, pods="names"),
    "execs, a message each byte": tenant(_FILES, pods="bytes"),
    "48 crash loops, 34 metrics": tenant(kube(48, tenants.crash_loop, per_s=2)),
    "described kind, numbers 1e308": tenant(kube(4, tenants.large_numbers, per_s=10)),
    "10 users, 300 Table watches each": tenant(tenants.both(watches(10, 300), tenants.churn)),
    "2 users, 2,450 watches each": tenant(tenants.both(watches(2, 2450), tenants.churn)),
    "lists of one namespace, churn": tenant(tenants.both(of_namespace(20, tenants.lists), tenants.churn)),
    "unread lists by kube-apiserver": tenant(tenants.unread(300)),
    "GETs of one namespace": tenant(of_namespace(300, tenants.gets)),
    "histories of one namespace": tenant(of_namespace(50, tenants.histories)),
    "log-tails of one namespace": tenant(of_namespace(20, tenants.log_tails), pods="long"),
    "log-tails of numbers 1e308": tenant(of_namespace(20, tenants.log_tails), pods="numbers"),
    "records, 500 MB in a list": tenant(
        of_namespace(20, tenants.records, resource="jobrecords"), is_refused=True
    ),
    "watches, timeoutSeconds=-5": tenant(of_namespace(100, tenants.over)),
    "pushes, 1,000 pods": tenant(pushes(1000, tenants.plain)),
    "hostile pushes, one pod": tenant(pushes(1, tenants.hostile)),
    "hostile pushes, 48 pods": tenant(pushes(48, tenants.hostile)),
    "hostile pushes, 1,000 pods": tenant(pushes(1000, tenants.hostile)),
    "pushes in chunks of a byte": tenant(pushes(48, tenants.in_chunks, headers=CHUNKED)),
    "pushes of 48 deleted pods": tenant(pushes(48, tenants.plain, gone=True), is_refused=True),
    "pushes of 200 namespaces": tenant(tenants.of_each(pushes(4, tenants.plain))),
    "hostile pushes, 200 namespaces": tenant(tenants.of_each(pushes(4, tenants.hostile))),
    "GETs of 200 namespaces": tenant(tenants.of_each(of_namespace(2, tenants.gets))),
    "watches of 200 namespaces": tenant(tenants.of_each(tenants.both(watches(1, 10), tenants.slow_churn))),
    "random tokens, 1,000 parallel": stranger(repeating(1000, lambda t, _: (ONE, t.bearer()))),
    "the same on /healthz": user(repeating(1000, lambda t, _: ("/healthz", t.bearer()))),
    "the same, users' address": stranger(
        repeating(500, lambda t, _: (ONE, t.bearer()), lone=True), on_way=500
    ),
    "1,000 new ones at one moment": stranger(together),
    "pushes with random tokens": stranger(pushing),
    "anonymous, random paths": stranger(repeating(200, lambda _t, _p: (f"/{number()}", ""))),
    "no rights, random names": stranger(repeating(100, lambda t, _: (f"{ALL}/{number()}?watch=1", t.nobody))),
    "anonymous, long lines and heads": stranger(repeating(200, long)),
    "documents of the API, gzip": user(
        repeating(50, lambda t, p: (("/openapi/v2", API, "/openapi/v3")[p % 3], t.reader))
    ),
    "20 YAML, Table, pretty lists": user(repeating(20, lists)),
    "100 YAML lists, clients leave": user(leaving),
    "20 lists, random selectors": user(repeating(20, selections)),
    "100 histories, YAML, CSV": user(repeating(100, histories)),
    "100 Table watches, reopened": user(watching),
    "random continue tokens": user(
        repeating(20, lambda t, _: (f"{ALL}?limit=500&continue={number()}", t.reader)), is_refused=True
    ),
    "200 lists that nobody reads": user(
        holding(200, lambda t: f"GET {ALL} HTTP/1.1\r\nHost: localhost\r\n{t.reader}\r\n".encode())
    ),
    "200 heads of 900 KiB, unfinished": stranger(holding(200, lambda _: BIG_HEAD)),
    "500 known, heads of 900 KiB": user(keeping(500, BIG_HEAD)),
    "8,000 known, silent": user(keeping(8000)),
    "3,000 known, a page each": user(keeping(3000, path=f"{ALL}?limit=100")),
    "500 heads, a byte a second": stranger(holding(500, lambda _: b"GET / HTTP/1.1\r\nX-Y: ", drip=b"x")),
    "3,000 silent connections": stranger(opening),
    "3,000 connections without TLS": stranger(hellos(*ELSEWHERE, number=3000, hello=b"", hold_s=PATIENCE_S)),
    "clients gone without a word": stranger(hellos(*ELSEWHERE, number=500, hello=b"")),
    "3,000 unfinished handshakes": stranger(hellos(*ELSEWHERE, number=3000, hold_s=PATIENCE_S)),
    "handshakes without end": stranger(handshakes(*ELSEWHERE)),
    # Who comes from the users' own address while more come than handshakes are begun waits among them
    # (docs/security.md): measured from when all of these have had their first answer.
    "the same, from users' address": stranger(handshakes("127.0.0.1"), on_way=100),
    "unfinished, users' address": stranger(hellos("127.0.0.1", number=100), on_way=100),
    "3,000 more, users' address": stranger(hellos("127.0.0.1", number=3000, hold_s=PATIENCE_S), on_way=3000),
}


async def run(row: Row, target: Target, seconds: float) -> None:
    # uvloop tells of each connection that is ended while it is written to.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    loop = asyncio.get_running_loop()

    async def announce(limit: asyncio.Timeout) -> None:
        await target.is_under_way.wait()
        print("under way", flush=True)
        limit.reschedule(loop.time() + seconds)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S) as limit, asyncio.TaskGroup() as group:
            group.create_task(announce(limit))
            await row.attack(target)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack_rows", description=__doc__)
    parser.add_argument("name", choices=[*ROWS], metavar="NAME")
    parser.add_argument("--access", type=Path, required=True, help="file with what the attackers have")
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    row = ROWS[given.name]
    access = msgspec.json.decode(given.access.read_bytes(), type=Access)
    target = Target(access=access, on_way=row.on_way)
    uvloop.run(run(row, target, given.seconds))
    print(json.dumps(target.answers), flush=True)


if __name__ == "__main__":
    main()
