"""`python -m benchmarks.attack`: attacks on the server, and what everyone else notices of them.

Quiet rounds and rounds under attack take turns. In all of them the same users read one document: directly,
through the aggregator, and as a member of system:masters through it; and a kubelet probes /livez, each time
on a new connection. Behind a real kube-apiserver, where $KUBEBUILDER_ASSETS has one, pods of a victim's
namespace push and are probed, and labels there change: how late is a watch, and how old what it shows? The
same document is read from a bare server behind the same kube-apiserver, and the same objects are watched and
a log is read there over the same link. What these take longer is no doing of the server.

The server, with that one, has one core for itself, and the others share the rest, attackers at the lowest
priority. A row in which it waited for its core, because of other work here, does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import uvloop

from .attack_rows import ROWS, Row
from .attack_scene import Scenery, scenery
from .attackers import LEFT
from .others import (
    CHANGES,
    FRESH,
    KUBE_CHANGES,
    KUBE_LOGS,
    KUBE_READS,
    LATE,
    LIVEZ,
    PUSHED,
    PUSHES,
    READS,
    Round,
    observe,
)
from .processes import cpu_s, open_files, resident_mib
from .scene import ALL, fetch
from .slow_link import GBIT

JOBS = 3000
TURNS, QUIET_S, ATTACK_S = 2, 6.0, 8.0
ATTEMPTS = 2
MOST_WAITED, BUSY_ATTEMPTS = 0.05, 3  # of the time, and rows in which it was more that are begun anew
UNDER_WAY_S = 60.0  # at most, until an attack is
CALM_S = 60.0  # at most, until the server is quiet before a row
# What must hold besides the row's `times`. A p99 up to the first is never too much: two quiet rounds on two
# cores are as far apart. One of reads above the second is always too much, unless a bare server's is, too.
NOISE_MS, MOST_MS = 25.0, 100.0
# What is compared with a bare server's or watch's p99 may be so many times that: two bare users who read the
# same at the same time are as far apart, while kube-apiserver is busy.
TIMES_BARE = 1.5
MOST_LIVEZ_MS = 250.0
MOST_MIB = 1024.0  # the Deployment's limit
# So long after the attackers have gone, no more of a core than this is used beyond what others cost.
GONE_S, LEFT_SHARE = 2.0, 0.1
MOST_LEFT = 32  # connections that are open then, beyond those before the attack; users make some


async def calm(at: Scenery) -> None:
    """Wait until the server has let go of the attack before: its connections are closed, its core is free."""
    server = at.ours
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALM_S):
            while True:
                cpu = cpu_s(server.pid)
                await asyncio.sleep(1.0)
                busy = cpu_s(server.pid) - cpu
                if open_files(server.pid) <= at.connections + MOST_LEFT and busy - at.cpu_share <= LEFT_SHARE:
                    return


@contextlib.asynccontextmanager
async def attacking(name: str, at: Scenery) -> AsyncIterator[dict[str, int]]:
    """While the block runs, from when they are under way; what they were answered is known after it."""
    row = ROWS[name]
    at.set(pods=row.pods, bytes_per_s=GBIT if row.is_slow_link or at.is_link_slow else 0)
    child = await asyncio.create_subprocess_exec(
        *_lowest(), sys.executable, "-m", "benchmarks.attack_rows", name,
        "--access", str(at.access_file), "--seconds", str(ATTACK_S + 1.0), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    answers: dict[str, int] = {}
    try:
        assert child.stdout is not None
        async with asyncio.timeout(UNDER_WAY_S):
            if not await child.stdout.readline():
                raise RuntimeError(f"the attackers of {name!r} ended before they began")
        yield answers
        output, _ = await child.communicate()
        answers |= json.loads(output or b"{}")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        at.set()


async def measure(name: str, at: Scenery, tries: int) -> bool:
    """One attack, so often; whether all held each time. 0: once, and again if it did not hold."""
    held = [await measure_counted(name, at) for _ in range(tries or 1)]
    return all(held) or (not tries and await measure_counted(name, at))


async def measure_counted(name: str, at: Scenery) -> bool:
    for _ in range(BUSY_ATTEMPTS):
        held = await measure_once(name, at)
        if held is not None:
            return held
    return False


async def measure_once(name: str, at: Scenery) -> bool | None:
    """One attack, in turns with quiet rounds. Prints its lines; whether all held that must, None if it does
    not count."""
    quiet, attacked, answers = Round(), Round(), dict[str, int]()
    faults: list[str] = []
    for _ in range(TURNS):
        await calm(at)
        quiet.add(await observe(at.users, at.ours, QUIET_S, at.victims))
        async with attacking(name, at) as answered:
            attacked.add(await observe(at.users, at.ours, ATTACK_S, at.victims))
        for status, count in answered.items():
            answers[status] = answers.get(status, 0) + count
        if ROWS[name].is_tenant:
            await asyncio.to_thread(at.clean)
        await asyncio.sleep(GONE_S)
        left_open, cpu = open_files(at.ours.pid) - at.connections, cpu_s(at.ours.pid)
        await asyncio.sleep(1.0)
        left = cpu_s(at.ours.pid) - cpu - at.cpu_share
        if left > LEFT_SHARE or left_open > MOST_LEFT:
            faults.append(f"{left:.2f} of a core and {left_open} connections are left")
    faults += _faults(ROWS[name], quiet, attacked, answers)
    # A quiet round that was none makes it easier, and one under attack harder.
    was_busy = quiet.waited_share > MOST_WAITED or (bool(faults) and attacked.waited_share > MOST_WAITED)
    told = "busy" if was_busy else "NO" if faults else "yes"
    pairs = [(found.ms(*READS, share=0.5), found.ms(*READS)) for found in (quiet, attacked)]
    watched = [(q, a) for *_, q, a, _ in bounds(ROWS[name], quiet, attacked)][2:]
    print(
        f"{name:<33}{pairs[0][0]:5.1f}{pairs[1][0]:6.1f}{pairs[0][1]:7.0f}{pairs[1][1]:5.0f}"
        + "".join(f"{q:7.0f}{a:5.0f}" for q, a in watched)
        + f"{attacked.ms(LIVEZ):6.0f}{len(attacked.errors):4d}{attacked.cpu_s / attacked.elapsed_s:6.2f}"
        f"{attacked.waited_share:5.2f}{attacked.peak_mib:5.0f}  {told}",
        flush=True,
    )
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(answers.items()))
    late = f"{quiet.ms(LATE):.1f} and {attacked.ms(LATE):.1f} ms"
    print(f"    answered {statuses or 'nothing'}; measured late by {late}"[:110])
    two = ", ".join(f"{name.removeprefix('bare ')} {attacked.ms(name):.0f}" for name in KUBE_READS)
    bare = f"{attacked.ms(KUBE_CHANGES):.0f} ms, a bare read of a log {attacked.ms(KUBE_LOGS):.0f} ms"
    print(f"    bare reads, {two}; a bare watch of the same objects {bare}"[:110], flush=True)
    for fault in faults:
        print(f"    {fault}"[:110], flush=True)
    return None if was_busy else not faults


def bounds(row: Row, quiet: Round, attacked: Round) -> Iterator[tuple[str, float, float, float]]:
    """Name, quiet p99, p99 under attack, and what that may be at most, in milliseconds. On top of each comes
    by how much later than in quiet rounds the measuring process itself was."""
    late = max(0.0, attacked.ms(LATE) - quiet.ms(LATE))

    def one(*names: str, least: float = 0.0, most: float = float("inf")) -> tuple[str, float, float, float]:
        q = quiet.ms(*names)
        return names[0], q, attacked.ms(*names), late + max(least, min(most, max(NOISE_MS, row.times * q)))

    yield one(READS[0], PUSHES, most=MOST_MS)
    # kube-apiserver is on the way of these three, and as slow without us.
    yield one(*READS[1:], least=TIMES_BARE * attacked.ms(*KUBE_READS) + NOISE_MS, most=MOST_MS)
    yield one(*KUBE_READS, least=float("inf"))
    yield one(CHANGES, least=TIMES_BARE * attacked.ms(KUBE_CHANGES) + NOISE_MS)
    yield one(PUSHED)
    yield one(FRESH, least=quiet.ms(FRESH) + TIMES_BARE * attacked.ms(KUBE_LOGS) + NOISE_MS)


def _faults(row: Row, quiet: Round, attacked: Round, answers: dict[str, int]) -> Iterator[str]:
    for name, before, p99, most in bounds(row, quiet, attacked):
        if p99 > most:
            yield f"{name}: p99 {p99:.0f} ms, {before:.0f} quiet; at most {most:.0f}"
    if attacked.errors:
        yield f"{len(attacked.errors)} requests of others failed, such as {attacked.errors[0]}"
    if attacked.ms(LIVEZ) > MOST_LIVEZ_MS:
        yield f"/livez: p99 {attacked.ms(LIVEZ):.0f} ms"
    if attacked.peak_mib > MOST_MIB:
        yield f"{attacked.peak_mib:.0f} MiB"
    statuses = [status for status in answers if status.isdigit()]
    is_accepted = LEFT in answers or any(status.startswith("2") for status in statuses)
    if row.is_tenant and not answers:
        yield "no attacker was answered"
    if statuses and is_accepted is row.is_refused:
        yield "attackers were accepted" if is_accepted else "every attacker was refused"


def keep_cores() -> Callable[[int], None]:
    """From now on this process and those that it starts leave one core free. Returns what gives it to one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return lambda _pid: None
    os.sched_setaffinity(0, cores[1:])

    def give(pid: int) -> None:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[:1])

    return give


def _lowest() -> Sequence[str]:
    """What attackers are started with: below all else of this benchmark, with `chrt -r 5` before other
    work on the machine. In real time they would use up what all may have, and stop who measures for 50 ms."""
    if os.sched_getscheduler(0) == os.SCHED_RR:
        return ("chrt", "--other", "0", "nice", "-n", "-15")
    return ("nice", "-n", "19")


def _is_throttled() -> bool:
    """Whether Linux stops what runs in real time for 50 ms in each second in which it uses a core up."""
    limit = Path("/proc/sys/kernel/sched_rt_runtime_us")
    return os.sched_getscheduler(0) == os.SCHED_RR and limit.exists() and limit.read_text().strip() != "-1"


def _lower(pid: int) -> None:
    """With `chrt -r 5`, kube-apiserver and kubelet run below who measures: at one priority they alternate."""
    if os.sched_getscheduler(0) == os.SCHED_RR:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(3))


async def show(
    names: Sequence[str] = (), jobs: int = JOBS, tries: int = 0, *, is_link_slow: bool = False
) -> bool:
    """Lines for each attack; whether all held."""
    if _is_throttled():
        print(
            "real-time processes that use up a core are stopped for 50 ms in each second, which the\n"
            "times below show; to allow all of it: sysctl kernel.sched_rt_runtime_us=-1, and 950000\n"
            "again afterwards, since a process that does not end would keep its core from all others",
            flush=True,
        )
    give_core = keep_cores()
    async with scenery(jobs) as at:
        for server in (at.ours, at.beside):
            if server is not None:
                give_core(server.pid)
        for other in (at.plane and at.plane.server, at.kubelet):
            if other is not None:
                _lower(other.pid)
        at.is_link_slow = is_link_slow
        await fetch(at.ours, at.users[0].ca_file, ALL, token=at.access.token)
        await observe(at.users, at.ours, QUIET_S, at.victims)  # caches, connections and tokens are warm
        usual = await observe(at.users, at.ours, QUIET_S, at.victims)
        at.cpu_share = usual.cpu_s / usual.elapsed_s
        at.connections = open_files(at.ours.pid)
        chosen = [name for name in names or ROWS if at.plane or not ROWS[name].is_tenant]
        print(
            f"{jobs} jobs, {resident_mib(at.ours.pid):.0f} MiB; ms, quiet and attacked: reads, and p99 of "
            "a bare server's through kube-apiserver, changes, pushes, ages\n"
            f"{'attack':<33}{'GET p50':>11}{'GET p99':>12}{'kube':>12}{'changes':>12}{'pushed':>12}"
            f"{'fresh':>12}{'livez':>6}{'err':>4}{'cpu':>6}{'wait':>5}{'MiB':>5}  held",
            flush=True,
        )
        failed = [name for name in chosen if not await measure(name, at, tries)]
        print(
            f"after all of them {resident_mib(at.ours.pid):.0f} MiB\n"
            f"not carried out: {', '.join(name for name in names or ROWS if name not in chosen) or 'none'}\n"
            f"did not hold: {', '.join(failed) or 'none'}",
            flush=True,
        )
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {'; '.join(ROWS)}")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--tries", type=int, default=0, help="of each; by default a second one if it must")
    parser.add_argument("--slow-link", action="store_true", help="1 Gbit/s to kube-apiserver in all rows")
    given = parser.parse_args()
    if unknown := set(given.names) - set(ROWS):
        parser.error(f"there is no attack called {', '.join(sorted(unknown))}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        shown = show(given.names, given.jobs, given.tries, is_link_slow=given.slow_link)
        return 0 if runner.run(shown) else 1


if __name__ == "__main__":
    sys.exit(main())
