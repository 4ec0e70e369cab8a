"""What a scrape of /metrics/jobs costs, and what the metrics add to a report: CPU of the server's process.

    python -m benchmarks.job_metrics [--jobs 10000]

The rendering alone, in this process, after none, a tenth and all of the jobs have reported. Then the real
server: pushes to it and to one without these metrics, in turns, and scrapes through TLS after these.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import ssl
import statistics
import sys
import time
from datetime import timedelta

import uvloop
from msgspec.structs import replace

from tests.jobs import JOB, NOW, RANK0, T0, job_ref, spent
from visibility_api.job_metrics.exposition import JobMetrics, JobMetricsSource
from visibility_api.jobs.job import Phase, TrainingJob
from visibility_api.jobs.summary import Condition, JobProgress
from visibility_api.models.condition_types import CONDITION_TYPES
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

from .processes import cpu_s, free_port
from .push import push_all
from .scene import Scene, serving, started, until_ready

SCRAPES = 5
SHARES = (0.0, 0.1, 1.0)  # of the jobs that report between two scrapes
PATH = "/metrics/jobs"
NEW_TOKENS, NEW_TOKENS_S = 1000, 10.0  # of one address: 100 a second are reviewed


async def _through_tls(jobs: int) -> None:
    of_server = ("--sources=push", "--job-metrics=50000")
    pushes: tuple[list[float], list[float]] = [], []
    scrapes: dict[float, list[float]] = {share: [] for share in SHARES}
    async with (
        started(jobs, of_server=of_server) as at,
        serving(at.directory, at.tls, at.directory / "kubeconfig", free_port(), of_server[0]) as bare,
    ):
        for server in (at.ours, bare):
            await until_ready(server, at.ca_file)
        for first in range(0, jobs, NEW_TOKENS):
            for server in (at.ours, bare):
                push_all(server, ca=at.ca_file, jobs=NEW_TOKENS, pushes=1, first_job=first)
            await asyncio.sleep(NEW_TOKENS_S)
        _get(at)
        for _ in range(SCRAPES):
            for server, used in zip((at.ours, bare), pushes, strict=True):
                used.append(push_all(server, ca=at.ca_file, jobs=jobs, pushes=1))
            for share, taken in sorted(scrapes.items(), reverse=True):
                if 0 < share < 1:
                    push_all(at.ours, ca=at.ca_file, jobs=int(share * jobs), pushes=1)
                before = cpu_s(at.ours.pid)
                size = _get(at)
                taken.append(cpu_s(at.ours.pid) - before)
    for name, used in zip(("with", "without"), pushes, strict=True):
        print(f"{'PUSH':<12} {name} metrics of jobs: {statistics.median(used):.0f} us CPU a push", flush=True)
    for share, taken in scrapes.items():
        _print("TLS", f"{jobs} jobs, {100 * share:.0f} % have reported", taken, size)


def _get(at: Scene) -> int:
    """Bytes of one scrape."""
    context = ssl.create_default_context(cafile=at.ca_file)
    connection = http.client.HTTPSConnection("localhost", at.ours.port, context=context)
    connection.request("GET", PATH, headers=dict(at.by_token))
    answer = connection.getresponse()
    size = len(answer.read())
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"GET {PATH}: {answer.status}")
    return size


async def _rendering(jobs: int) -> None:
    store = MemoryStore(base_revision=1)
    metrics = JobMetrics(
        JobMetricsSource(
            store=store,
            most=jobs,
            metrics=frozenset(("loss",)),
            kinds=lambda: {"trainjobs": "TrainJob"},
            is_owner=lambda: True,
        ),
        JobLog(store),
    )
    made = [_job(number) for number in range(jobs)]
    step = 0
    for job in made:
        store.put(_document(job, step))
    gc.freeze()
    gc.set_threshold(1_000, 10, 10_000)  # as in the server
    await _scrape(metrics)
    for share in SHARES:
        used, size, changes = [], 0, [0.0]
        for _ in range(SCRAPES):
            step += 1
            for job in made[: int(share * jobs)]:
                store.put(_document(job, step))
                before = time.process_time()
                metrics.changed(job.ref, ())
                changes.append(time.process_time() - before)
            took, size = await _scrape(metrics)
            used.append(took)
        print(f"{'CHANGE':<12} {1e6 * statistics.median(changes):.1f} us CPU", flush=True)
        _print("RENDERING", f"{jobs} jobs, {100 * share:.0f} % have reported", used, size)


async def _scrape(metrics: JobMetrics) -> tuple[float, int]:
    before = time.process_time()
    size = sum([len(piece) async for piece in metrics.pieces()])
    return time.process_time() - before, size


def _job(number: int) -> TrainingJob:
    ref = job_ref(f"llama-pretrain-{number:05}", f"team-{number % 40}")
    rank0 = replace(RANK0, pod_name=f"{ref.name}-node-0-0-abcde", node_name=f"gpu-node-{number % 500}")
    return replace(JOB, ref=ref, rank0=rank0, accelerators=(("nvidia.com/gpu", 8),))


_CONDITIONS = tuple(
    Condition(type=each.name, status="False", reason="R", message="", since=T0)
    for each in CONDITION_TYPES[:8]
)


def _document(job: TrainingJob, step: int) -> JobProgress:
    now = NOW + timedelta(seconds=step)
    return JobProgress(
        job=job,
        phase=Phase.RUNNING,
        progress_percentage=step % 100,
        completion_at=now + timedelta(hours=1),
        started_at=T0,
        attempts=1,
        seen_at=now,
        step=step,
        total_steps=100_000,
        steps_per_s=1.0 + step / 7,
        metrics=(("loss", str(1 / (1 + step))),),
        goodput=spent({"Queued": 30, "Starting": 20, "Productive": 1000 + step, "CheckpointSave": 7}),
        conditions=_CONDITIONS,
    )


def _print(name: str, what: str, used: list[float], size: int) -> None:
    print(
        f"{name:<12} {what}, {size / 1e6:.1f} MB: {1000 * statistics.median(used):.0f} ms CPU a scrape "
        f"(from {1000 * min(used):.0f} to {1000 * max(used):.0f})",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.job_metrics", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_rendering(given.jobs))
        runner.run(_through_tls(given.jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
