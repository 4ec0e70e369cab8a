"""What the data directory costs: writing it, and a start from it.

    python -m benchmarks.state [--jobs N]

Writing: every job reports once in 15 s, the default probe interval; the reports of a second are one batch.
A start: CPU of the whole server process until it knows every job, with and without the directory, in turns.
The jobs themselves are listed in either case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop
from msgspec.structs import replace

from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.memory import SavedJob, save
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.kinds.replicated_jobs import JOBS as BATCH_JOBS, JOBSETS, PODS, JobSet
from visibility_api.kinds.trainjob import TRAINJOBS, TrainJob, TrainJobKind
from visibility_api.reports.document import Progress
from visibility_api.reports.training_document import parse_document
from visibility_api.store.memory import MemoryStore
from visibility_api.store.state_file import Bounds, StateFile
from visibility_api.workloads.inventory import Inventory
from visibility_api.workloads.objects import BatchJob, Pod

from . import kubernetes
from .memory import until_metric
from .memory_per_job import objects
from .processes import Server, cpu_s, free_port, process
from .scene import ALL, certificates, fetch, kubeconfig_for, serving, until_all_probed, until_ready

JOBS = 10_000
INTERVAL_S = 15
INTERVALS = 4  # of which the first creates the rows
STARTS = 5
WEEK_S = 7 * 86400
BOUNDS = Bounds(max_bytes=256 * 1024 * 1024, max_age_s=1e9)


async def show(jobs: int = JOBS) -> None:
    await _show_writing(jobs)
    await _show_starts(jobs)


async def _show_writing(jobs: int) -> None:
    now = datetime.now(UTC)
    known: list[TrainingJob] = []
    store = MemoryStore(base_revision=1)
    tracker = Tracker(publish=store.put, retract=store.delete, now=lambda: now, interval_s=INTERVAL_S)

    def on_job(job: TrainingJob, status: Observation | None) -> None:
        known.append(job)
        tracker.job_changed(job, status)

    inventory = Inventory((TrainJobKind(),), on_job=on_job, on_gone=tracker.job_gone)
    await inventory.list(TRAINJOBS, in_slices(objects(kubernetes.train_job, TrainJob, jobs)))
    await inventory.list(JOBSETS, in_slices(objects(kubernetes.job_set, JobSet, jobs)))
    await inventory.list(BATCH_JOBS, in_slices(objects(kubernetes.batch_job, BatchJob, jobs)))
    await inventory.list(PODS, in_slices(objects(kubernetes.pod, Pod, jobs)))
    report = parse_document(kubernetes.document())
    assert isinstance(report, Progress)

    def snapshot(ref: JobRef) -> SavedJob:
        state = tracker.state(ref)
        assert state is not None
        return save(ref, state)

    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        file = StateFile(Path(name), BOUNDS)
        encoding_s = writing_s = longest_s = 0.0
        state_bytes = seconds = 0
        written = 0
        for interval in range(INTERVALS):
            if interval == 1:
                encoding_s = writing_s = 0.0
                state_bytes = seconds = 0
                written = written_bytes()
            for second in range(INTERVAL_S):
                now += timedelta(seconds=1)
                batch = known[second::INTERVAL_S]
                for job in batch:
                    assert job.rank0 is not None
                    outcome = replace(report, timestamp=now, step=100 + interval)
                    tracker.observed(
                        Observation(
                            ref=job.ref, attempt=job.rank0.attempt, source="exec", at=now, outcome=outcome
                        )
                    )
                began = time.process_time()
                saved = [snapshot(job.ref) for job in batch]
                between, clock = time.process_time(), time.perf_counter()
                file.write(saved, [])
                writing_s += time.process_time() - between
                longest_s = max(longest_s, time.perf_counter() - clock)
                encoding_s += between - began
                state_bytes += sum(len(each.state) for each in saved)
                seconds += 1
        volume = (written_bytes() - written) / seconds
        size = file.size_bytes
        file.close()
        rows = jobs * (INTERVALS - 1)
        print(f"\nThe data directory of {jobs:,} jobs, each with a report in {INTERVAL_S} s")
        print(f"  state of a job                {state_bytes / rows:8.0f} bytes")
        print(f"  file and its log              {size / 2**20:8.1f} MiB")
        print(f"  encoding, on the event loop   {encoding_s / rows * 1e6:8.1f} us a report")
        print(f"  writing, on its own thread    {writing_s / rows * 1e6:8.1f} us a report")
        print(f"  both                          {(encoding_s + writing_s) / seconds:8.2%} of a core")
        print(f"  longest batch                 {longest_s * 1e3:8.1f} ms")
        print(
            f"  written                       {volume / 1e6:8.2f} MB/s, {volume * WEEK_S / 1e9:.0f} GB a week"
        )


def written_bytes() -> int:
    """What this process has given to write(2) and the like; a page that is written twice counts twice."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/io has no wchar")


async def _show_starts(jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        data = directory / "data"
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, our_port = free_port(), free_port()
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        kept = ("--data-dir", str(data))
        async with process(
            "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
            port=kube_port, log=directory / "kubernetes.log",
        ):  # fmt: skip
            async with serving(directory, tls, kubeconfig, our_port, "--sources=exec", *kept) as first:
                await until_all_probed(first, ca, jobs)
            costs: dict[str, list[float]] = {"without": [], "with": []}
            for _ in range(STARTS):
                for what, flags in (("without", ()), ("with", kept)):
                    async with serving(
                        directory, tls, kubeconfig, our_port, "--sources=status", *flags
                    ) as ours:
                        costs[what].append(await _start(ours, ca, jobs))
                        if what == "with":
                            await _check(ours, ca, jobs)
    print(f"\nCPU seconds of a start with {jobs:,} jobs, until all are known (least of {STARTS})")
    for what, found in costs.items():
        print(f"  {what:7} the data directory   {min(found):6.2f}")
    print(f"  difference                   {min(costs['with']) - min(costs['without']):6.2f}")


async def _start(server: Server, ca: Path, jobs: int) -> float:
    await until_ready(server, ca)
    used_s = cpu_s(server.pid)
    await until_metric(server, ca, jobs, b"visibility_jobs")
    return used_s


async def _check(server: Server, ca: Path, jobs: int) -> None:
    """Each job has its numbers again, though nobody has read them in this process."""
    items = json.loads(await fetch(server, ca, ALL))["items"]
    found = sum("progressPercentage" in item["status"] for item in items)
    if found != jobs:
        raise SystemExit(f"only {found} of {jobs} jobs have the numbers that were kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.jobs))


if __name__ == "__main__":
    main()
