"""`python -m benchmarks`: every measurement, and a table of ratios."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop

from . import kubernetes, load, probe, reporter, watchers
from .processes import Server, free_port, process, resident_mib
from .scene import ALL, API, certificates, fetch, kubeconfig_for, serving, until_all_probed

ONE = f"{API}/namespaces/{kubernetes.namespace(0)}/trainjobs/{kubernetes.job_name(0)}/progress"
ROUNDS = 3
WATCHED_JOBS = 500
CHANGES_PER_S = 50


async def run(jobs: int, gets: int, lists: int, watchers_: int) -> None:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, our_port, bare_port = free_port(), free_port(), free_port()
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        print(f"serving {jobs} jobs to one client on two cores; this takes about a minute", flush=True)
        async with (
            process(
                "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
                port=kube_port, log=directory / "kubernetes.log",
            ) as kube,
            serving(directory, tls, kubeconfig, our_port) as ours,
        ):  # fmt: skip
            await until_all_probed(ours, ca, jobs)
            print(f"resident memory at {jobs} jobs with a document each: {resident_mib(ours.pid):.0f} MiB")
            one, every = await fetch(ours, ca, ONE), await fetch(ours, ca, ALL)
            (directory / "one.json").write_bytes(one)
            (directory / "all.json").write_bytes(every)
            async with process(
                "benchmarks.bare", "--port", str(bare_port), *tls,
                "--body", f"{ONE}={directory / 'one.json'}", "--body", f"{ALL}={directory / 'all.json'}",
                port=bare_port, log=directory / "bare.log",
            ) as ceiling:  # fmt: skip
                await _compare("GET one", ours, ceiling, ca, ONE, gets)
                await _compare(f"LIST {jobs}", ours, ceiling, ca, ALL, lists, connections=2)
            cost = await probe.measure(kube, ca)
            print(
                f"{'exec probe':<12} ours {cost.ours_ms:6.2f} ms CPU   stock kubernetes_asyncio "
                f"{cost.stock_ms:6.2f} ms   ratio {cost.ours_ms / cost.stock_ms:.2f}",
                flush=True,
            )
        await _watch(directory, tls, ca, watchers_)


async def _watch(directory: Path, tls: tuple[str, ...], ca: Path, number: int) -> None:
    """A server of its own: its jobs change all the time, which the requests above had better not meet."""
    kube_port, our_port = free_port(), free_port()
    kubeconfig = kubeconfig_for(directory, kube_port, ca)
    async with (
        process(
            "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(WATCHED_JOBS),
            "--changes-per-s", str(CHANGES_PER_S), *tls,
            port=kube_port, log=directory / "kubernetes.log",
        ),
        serving(directory, tls, kubeconfig, our_port) as ours,
    ):  # fmt: skip
        await until_all_probed(ours, ca, WATCHED_JOBS)
        seen = await watchers.measure(
            ours, ALL, ca_file=str(ca), token=kubernetes.TOKEN, watchers=number, seconds=10
        )
        lost = 1 - seen.events / (number * CHANGES_PER_S * 10)
        print(
            f"{'WATCH':<12} {number} watchers, {CHANGES_PER_S} changes a second: {seen.cpu_us:.1f} us CPU an "
            f"event   p99 {1000 * seen.quantile_s(0.99):.0f} ms   {100 * max(0.0, lost):.1f} % not yet there"
        )


async def _compare(
    title: str, ours: Server, ceiling: Server, ca: Path, path: str, requests: int, connections: int = 16
) -> None:
    """The same requests to both in turns; the best round of each counts, for noise only ever adds."""
    best: dict[str, load.Load] = {}
    for _ in range(ROUNDS):
        for name, server in (("ours", ours), ("bare", ceiling)):
            measured = await load.get_many(
                server,
                path,
                ca_file=str(ca),
                headers=[("Authorization", f"Bearer {kubernetes.TOKEN}")],
                requests=requests,
                connections=connections,
            )
            if name not in best or measured.cpu_ms < best[name].cpu_ms:
                best[name] = measured
    mine, bare_one = best["ours"], best["bare"]
    print(
        f"{title:<12} ours {mine.cpu_ms:7.3f} ms CPU ({mine.per_cpu_s:7.0f} a CPU-second)   "
        f"bare {bare_one.cpu_ms:7.3f} ms   ratio {bare_one.cpu_ms / mine.cpu_ms:.2f} of the ceiling   "
        f"p99 {1000 * mine.quantile_s(0.99):.1f} ms   {mine.body_bytes} bytes",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--gets", type=int, default=10_000, help="GETs a round")
    parser.add_argument("--lists", type=int, default=40, help="LISTs a round")
    parser.add_argument("--watchers", type=int, default=1000)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(given.jobs, given.gets, given.lists, given.watchers))
    return reporter.main()


if __name__ == "__main__":
    sys.exit(main())
