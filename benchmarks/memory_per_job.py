"""Measures what a job, or with `pods` a pod, keeps in memory, in a process that does nothing else."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.kinds.replicated_jobs import JOBS as BATCH_JOBS, JOBSETS, PODS, JobSet
from visibility_api.kinds.trainjob import TRAINJOBS, TrainJob, TrainJobKind
from visibility_api.reports.document import Progress
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.inventory import Inventory
from visibility_api.workloads.object_cache import PodCache, key_of
from visibility_api.workloads.objects import BatchJob, Pod

from . import kubernetes

JOBS = 100
AT = datetime(2026, 1, 23, 10, tzinfo=UTC)

Change = Callable[[dict[str, Any]], None]


def objects(
    make: Callable[[int], dict[str, Any]], kind: type[Any], number: int, change: Change = lambda _: None
) -> Iterator[Any]:
    """So many objects, as they are read from a cluster."""
    for each in range(number):
        object_ = make(each)
        change(object_)
        yield msgspec.json.decode(msgspec.json.encode(object_), type=kind)


async def kib_a_job(change: Change = lambda _: None) -> float:
    """Of `JOBS` jobs with a document each, whose objects are as a cluster shows them but for `change`."""

    gc.collect()
    tracemalloc.start()
    try:
        jobs: list[TrainingJob] = []
        store = MemoryStore(base_revision=1)
        tracker = Tracker(publish=store.put, retract=store.delete, now=lambda: AT, interval_s=15)

        def on_job(job: TrainingJob, status: Observation | None) -> None:
            jobs.append(job)
            tracker.job_changed(job, status)

        inventory = Inventory((TrainJobKind(),), on_job=on_job, on_gone=tracker.job_gone)
        await inventory.list(TRAINJOBS, in_slices(objects(kubernetes.train_job, TrainJob, JOBS, change)))
        await inventory.list(JOBSETS, in_slices(objects(kubernetes.job_set, JobSet, JOBS, change)))
        await inventory.list(BATCH_JOBS, in_slices(objects(kubernetes.batch_job, BatchJob, JOBS, change)))
        await inventory.list(PODS, in_slices(objects(kubernetes.pod, Pod, JOBS, change)))
        assert len(jobs) == JOBS
        for job in jobs:
            assert job.rank0 is not None
            report = Progress(timestamp=AT, step=1, metrics=tuple((f"metric-{n}", f"{n}") for n in range(4)))
            tracker.observed(
                Observation(ref=job.ref, attempt=job.rank0.attempt, source="exec", at=AT, outcome=report)
            )
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1024 / JOBS
    finally:
        tracemalloc.stop()


def fill(object_: dict[str, Any]) -> None:
    """Put much into the object that nobody reads."""
    metadata = object_["metadata"]
    metadata["annotations"] = {f"example.org/{n}": "x" * 1000 for n in range(50)}
    if "containers" in object_["spec"]:
        metadata["labels"] |= {f"example.org/{n}": "x" * 60 for n in range(50)}
        for container in object_["spec"]["containers"]:
            container["env"] += [{"name": f"SETTING_{n}", "value": "x" * 200} for n in range(100)]


def kib_a_pod(change: Change) -> float:
    """Of `JOBS` pods, whatever of them is kept. The most of hostile ones, before a namespace is bounded."""
    cache = PodCache(Pod, is_own=False, owner_kinds=("Job",))
    gc.collect()
    tracemalloc.start()
    try:
        for pod in objects(kubernetes.pod, Pod, JOBS, change):
            cache.put(key_of(pod), pod)
        del pod
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1024 / JOBS
    finally:
        tracemalloc.stop()


def _variable(pod: dict[str, Any]) -> None:
    pod["spec"]["containers"][0]["env"].append({"name": "TRAINJOB_PROGRESS_FILE", "value": "x" * 60_000})


def _containers(pod: dict[str, Any]) -> None:
    pod["spec"]["containers"] += [{"name": f"{n:063}"} for n in range(900)]


PODS_OF: dict[str, Change] = {
    "as usual": lambda _: None,
    "much that nobody reads": fill,
    "a variable that is read, of 60 KB": _variable,
    "900 containers": _containers,
}


if __name__ == "__main__":
    if "pods" in sys.argv:
        for name, change in PODS_OF.items():
            print(f"{kib_a_pod(change):7.2f} KiB  {name}")
        sys.exit()
    print(asyncio.run(kib_a_job(*([fill] if "filled" in sys.argv else []))))
