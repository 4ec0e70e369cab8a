"""Many running jobs probed by exec in turn: our CPU, how late probes begin, and what silent jobs cost.

    python -m benchmarks.probing [--jobs 10000] [--interval 30] [--seconds 60]

The real server process against kubernetes.py over TLS. That one shares the machine's cores and needs more CPU
than we do, so what counts is the CPU time of our process, each second of the measured time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import uvloop

from visibility_api.jobs.job import JobRef
from visibility_api.probing.schedule import Schedule
from visibility_api.reports.document import RetryClass

from .processes import Server, cpu_s, machine_cpu_s, resident_mib
from .scene import fetch, started

SILENT_JOBS, SILENT_INTERVAL_S, SILENT_S = (
    1500,
    6.0,
    20.0,
)  # all within the minute in which they are probed often
DAY_S = 86400.0
PLACES = 256  # probes at a time: a third of a second each at 10,000 jobs every 15 s
_PROBES = re.compile(rb'^visibility_probes_total\{outcome="(\w+)".*\} (\S+)$', re.MULTILINE)
_TOOK = re.compile(rb"^visibility_probe_duration_seconds_sum\{.*\} (\S+)$", re.MULTILINE)
_LATE = re.compile(rb'^visibility_probe_lateness_seconds_bucket\{le="(\S+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """What a stretch of time took and brought."""

    probes: int
    failures: int  # of them without a document
    took_s: float  # all probes together
    wall_s: float
    cpu_s: float  # of our process
    cluster_cpu_s: float  # of the fake kube-apiserver
    others_cpu_s: float  # of everything else on the machine: with no core free, probes are late
    late: dict[float, int]  # probes that began at most so many seconds after their time
    resident_mib: float

    @property
    def probe_ms(self) -> float:
        """CPU milliseconds of ours for one probe."""
        return 1000 * self.cpu_s / max(1, self.probes)

    def late_s(self, share: float) -> float:
        """This share of probes began at most so late: the upper end of the histogram's bucket."""
        return min(le for le, number in self.late.items() if number >= share * self.late[math.inf])


async def measure(jobs: int, *, interval_s: float, seconds: float, is_silent: bool = False) -> Probing:
    """All jobs at that interval, for so many seconds after each has been probed once."""
    async with started(
        jobs, of_cluster=("--silent",) if is_silent else (), of_server=probed_every(interval_s)
    ) as at:
        cluster, ours, ca = at.cluster, at.ours, at.ca_file
        await until_probed(ours, ca, jobs)
        if not is_silent:
            await asyncio.sleep(
                interval_s
            )  # the first documents are news to everybody, and paced by themselves
        probes, failures, took_s, late = _read(await fetch(ours, ca, "/metrics"))
        cpu, cluster_cpu, began = cpu_s(ours.pid), cpu_s(cluster.pid), asyncio.get_running_loop().time()
        machine_cpu = machine_cpu_s()
        await asyncio.sleep(seconds)
        used, cluster_used = cpu_s(ours.pid) - cpu, cpu_s(cluster.pid) - cluster_cpu
        machine_used = machine_cpu_s() - machine_cpu
        wall_s = asyncio.get_running_loop().time() - began
        probes_then, failures_then, took_then_s, late_then = _read(await fetch(ours, ca, "/metrics"))
        return Probing(
            probes=probes_then - probes,
            failures=failures_then - failures,
            took_s=took_then_s - took_s,
            wall_s=wall_s,
            cpu_s=used,
            cluster_cpu_s=cluster_used,
            others_cpu_s=machine_used - used - cluster_used,
            late={le: number - late[le] for le, number in late_then.items()},
            resident_mib=resident_mib(ours.pid),
        )


def probed_every(interval_s: float) -> tuple[str, ...]:
    """Arguments of a server that asks each job so often."""
    return "--probe-interval", f"{interval_s:g}s", "--probe-concurrency", str(PLACES)


async def until_probed(ours: Server, ca: Path, jobs: int) -> None:
    """Until so many probes have ended."""
    async with asyncio.timeout(300):
        while True:
            with contextlib.suppress(RuntimeError):
                if await probes_of(ours, ca) >= jobs:
                    return
            await asyncio.sleep(0.5)


async def probes_of(ours: Server, ca: Path) -> int:
    """How many probes have ended since the server began."""
    return _read(await fetch(ours, ca, "/metrics"))[0]


def _read(metrics: bytes) -> tuple[int, int, float, dict[float, int]]:
    """Looks, those that failed, seconds that all took, and the histogram of lateness."""
    probes = [(m[1], int(float(m[2]))) for m in _PROBES.finditer(metrics)]
    late = {float(m[1]): int(float(m[2])) for m in _LATE.finditer(metrics)}
    failed = sum(number for outcome, number in probes if outcome != b"Reported")
    took_s = sum(float(m[1]) for m in _TOOK.finditer(metrics))
    return sum(number for _, number in probes), failed, took_s, late


def probes_a_day(interval_s: float, retry: RetryClass | None) -> int:
    """At a job whose every probe brings the same, on its first day: by the schedule itself."""
    schedule, ref, number = Schedule(), JobRef(resource="trainjobs", namespace="n", name="j", uid="u"), 0
    schedule.put(
        ref, attempt="1", node=None, interval_s=interval_s, is_declared=retry is None, now=0.0, due=0.0
    )
    while (due := schedule.next_due()) is not None and due < DAY_S:
        turn = schedule.take(due)
        if turn is not None:
            schedule.done(turn, now=due, retry=retry)
            number += 1
    return number


async def show(jobs: int, interval_s: float, seconds: float) -> None:
    """Two lines: what probing costs, and what a job costs that never reports."""
    found = await measure(jobs, interval_s=interval_s, seconds=seconds)
    a_second = {
        name: value / found.wall_s
        for name, value in (
            ("probes", found.probes),
            ("ours", found.cpu_s),
            ("cluster", found.cluster_cpu_s),
            ("others", found.others_cpu_s),
        )
    }
    print(
        f"{'PROBING':<12} {jobs} jobs every {interval_s:g} s by exec, {a_second['probes']:.0f} probes/s: "
        f"{a_second['ours']:.2f} of a core, {found.probe_ms:.2f} ms CPU a probe   p50 late <= "
        f"{found.late_s(0.5):g} s   p99 late <= {found.late_s(0.99):g} s\n{'':<12} "
        f"a probe takes {1000 * found.took_s / found.probes:.0f} ms, {found.failures} failed; of the machine "
        f"the fake cluster took {a_second['cluster']:.2f}, all others {a_second['others']:.2f} of a core; "
        f"resident memory {found.resident_mib:.0f} MiB",
        flush=True,
    )
    silent = await measure(SILENT_JOBS, interval_s=SILENT_INTERVAL_S, seconds=SILENT_S, is_silent=True)
    with_, without = probes_a_day(interval_s, None), probes_a_day(interval_s, RetryClass.LATER)
    ratio = without * silent.probe_ms / (with_ * found.probe_ms)
    print(
        f"{'SILENT JOB':<12} {without} probes on the first day of {silent.probe_ms:.2f} ms, one that reports "
        f"{with_} of {found.probe_ms:.2f} ms: {100 * ratio:.2f} % of the cost",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probing", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=30.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=60.0, help="of measuring")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.jobs, given.interval, given.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
