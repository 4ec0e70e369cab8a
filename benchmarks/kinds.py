"""10,000 jobs of five kinds beside 10,000 TrainJobs: the start, the memory and the lists, in turns.

    python -m benchmarks.kinds [--jobs N] [--turns N]

Each server is a process of its own. Figures are ratios, of the least disturbed turn of each.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import ssl
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from visibility_api.kinds import KINDS

from . import kubernetes
from .kubernetes import JOBSET, Changes, job_name
from .memory import until_metric
from .processes import Server, cpu_s, free_port, peak_mib, process, resident_mib
from .scene import API, certificates, fetch, kubeconfig_for, serving, until_ready

TRAINJOBS = ("trainjobs",)
MIXED = ("trainjobs", "jobsets", "jobs", "pytorchjobs", "rayjobs")
LISTS = 10
TRAINING = {"visibility.trainer.kubeflow.org/training": "true"}
Object = dict[str, Any]


def objects_of(resource: str, number: int) -> Sequence[Object]:
    """A job and what its controllers make for it, down to rank 0's pod: by the kind's first chain."""
    name, train_job = job_name(number), kubernetes.train_job(number)
    if resource == "trainjobs":
        return train_job, *_jobset_of(number)
    meta = train_job["metadata"]
    if resource == "jobsets":
        job_set, *rest = _jobset_of(number)
        del job_set["metadata"]["ownerReferences"]
        return job_set | {"metadata": meta | {"uid": job_set["metadata"]["uid"]}}, *rest
    container = kubernetes.pod(number)["spec"]["containers"][0]
    if resource == "jobs":
        job = kubernetes.batch_job(number)
        template = {"metadata": {"labels": TRAINING}, "spec": {"containers": [container]}}
        job["metadata"] = meta | {"uid": job["metadata"]["uid"], "labels": meta["labels"] | TRAINING}
        job["spec"] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template}
        job["status"] = {"active": 2, "ready": 2}
        index = {"batch.kubernetes.io/job-completion-index": "0"}
        return job, _pod(number, f"{name}-0-abcde", ("Job", name, job), TRAINING | index)
    if resource == "pytorchjobs":
        template = {"spec": {"containers": [container | {"name": "pytorch"}]}}
        job = {
            "metadata": meta,
            "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
            "status": {"conditions": [_running()], "replicaStatuses": {"Master": {"active": 1}}},
        }
        labels = {f"training.kubeflow.org/{key}": value for key, value in _MASTER.items()}
        return job, _pod(number, f"{name}-master-0", ("PyTorchJob", name, job), labels, "pytorch")
    cluster_name = f"{name}-x7k2p"
    head = {"headGroupSpec": {"template": {"spec": {"containers": [container]}}}}
    status = {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running", "rayClusterName": cluster_name}
    job = {"metadata": meta, "spec": {"entrypoint": "x", "rayClusterSpec": head}, "status": status}
    cluster = kubernetes.job_set(number)
    cluster["metadata"] |= {
        "name": cluster_name,
        "labels": {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": name},
        "ownerReferences": [kubernetes.controller("RayJob", name, meta["uid"])],
    }
    cluster |= {"spec": head, "status": {"state": "ready"}}
    labels = {"ray.io/node-type": "head", "ray.io/cluster": cluster_name, "ray.io/group": "headgroup"}
    pod = _pod(number, f"{cluster_name}-head-abcde", ("RayCluster", cluster_name, cluster), labels)
    return job, cluster, pod


_MASTER = {"replica-type": "master", "replica-index": "0", "job-role": "master", "job-name": "job"}


def _jobset_of(number: int) -> Sequence[Object]:
    return kubernetes.job_set(number), kubernetes.batch_job(number), kubernetes.pod(number)


def _running() -> Object:
    return {
        "type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "is running",
        "lastTransitionTime": "2026-01-23T10:00:00Z",
    }  # fmt: skip


def _pod(
    number: int, name: str, owner: tuple[str, str, Object], labels: Mapping[str, str], container: str = "node"
) -> Object:
    made = kubernetes.pod(number)
    kind, owner_name, object_ = owner
    kept = {key: value for key, value in made["metadata"]["labels"].items() if not key.startswith(JOBSET)}
    made["metadata"] |= {
        "name": name,
        "labels": {key: value for key, value in kept.items() if "job-" not in key} | dict(labels),
        "ownerReferences": [kubernetes.controller(kind, owner_name, object_["metadata"]["uid"])],
    }
    made["spec"]["containers"][0]["name"] = made["status"]["containerStatuses"][0]["name"] = container
    return made


class Cluster:
    """What kube-apiserver answers, with so many jobs of these kinds in turn."""

    def __init__(self, jobs: int, kinds: Sequence[str]) -> None:
        self._jobs, self._kinds = jobs, kinds
        self._served: dict[str, set[str]] = {}
        # What a watch of a path with a selector is of: jobs of these resources, at that place of the chain.
        self._found: dict[tuple[str, str], dict[str, int]] = {}
        for kind in KINDS:
            for number, chain in enumerate(kind.chains):
                for depth, objects in enumerate(chain):
                    found = self._found.setdefault((objects.path(None), objects.selector), {})
                    if kind.served.plural in kinds:
                        self._served.setdefault(objects.api, set()).add(objects.plural)
                        if not number:
                            found[kind.served.plural] = depth
        made = self._found["/apis/jobset.x-k8s.io/v1alpha2/jobsets", ""]
        made.update({"trainjobs": 1} if "trainjobs" in kinds else {})

    def answer(self, path: str, query: Mapping[str, str]) -> bytes | None:
        """A page of a list, or what is served of a group and version. None: neither."""
        if path in self._served:
            return msgspec.json.encode({"resources": [{"name": each} for each in self._served[path]]})
        found = self._found.get((path, query.get("labelSelector", "")))
        if found is None or not any(path.startswith(api) for api in self._served):
            return None
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or self._jobs)
        return self._page(tuple(found.items()), start, min(self._jobs, start + limit))

    @functools.lru_cache(maxsize=512)  # noqa: B019 - one for the process
    def _page(self, found: Sequence[tuple[str, int]], start: int, end: int) -> bytes:
        depths, kinds = dict(found), self._kinds
        items = [
            objects_of(resource, number)[depths[resource]]
            for number in range(start, end)
            if (resource := kinds[number % len(kinds)]) in depths
        ]
        meta = {"resourceVersion": "1", "continue": str(end) if end < self._jobs else ""}
        return msgspec.json.encode({"metadata": meta, "items": items})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one server; CPU in ms, memory in MiB."""

    start_cpu: float
    start_peak: float
    steady: float  # every job has its first document
    own_lists: float  # the first list of each kind's resource, together
    first_list: float  # of trainingjobs, after them
    kept_list: float  # of trainingjobs, when nothing changes
    listed: float


async def measure(jobs: int, kinds: Sequence[str]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, our_port = free_port(), free_port()
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        async with process(
            "benchmarks.kinds", "--port", str(kube_port), "--jobs", str(jobs), *tls, "--kinds", *kinds,
            port=kube_port, log=directory / "kubernetes.log",
        ):  # fmt: skip
            for _ in range(2):  # the first makes the pages
                async with serving(directory, tls, kubeconfig, our_port, "--sources=status") as ours:
                    await until_metric(ours, ca, jobs, b"visibility_jobs")
                    await until_ready(ours, ca)
                    start_cpu, start_peak = 1000 * cpu_s(ours.pid), peak_mib(ours.pid)
            async with serving(directory, tls, kubeconfig, our_port) as ours:
                await until_metric(ours, ca, jobs, b"visibility_probes_total")
                await asyncio.sleep(2.0)
                steady = resident_mib(ours.pid)
                own = await _cpu_ms(ours, ca, [f"{API}/{kind}" for kind in kinds])
                first = await _cpu_ms(ours, ca, [f"{API}/trainingjobs"])
                kept = await _cpu_ms(ours, ca, [f"{API}/trainingjobs"] * LISTS) / LISTS
                await asyncio.sleep(2.0)
                listed = resident_mib(ours.pid)
    return Figures(
        start_cpu=start_cpu, start_peak=start_peak, steady=steady, own_lists=own, first_list=first,
        kept_list=kept, listed=listed,
    )  # fmt: skip


async def _cpu_ms(ours: Server, ca: Path, paths: Sequence[str]) -> float:
    before = cpu_s(ours.pid)
    for path in paths:
        await fetch(ours, ca, path)
    return 1000 * (cpu_s(ours.pid) - before)


async def show(jobs: int = 10_000, turns: int = 3) -> None:
    """In turns; a line a figure: with TrainJobs, with five kinds, and the ratio."""
    found: dict[Sequence[str], list[Figures]] = {TRAINJOBS: [], MIXED: []}
    for _ in range(turns):
        for kinds, measured in found.items():
            measured.append(await measure(jobs, kinds))
    print(f"{jobs} jobs, the least of {turns} turns:   TrainJobs   {len(MIXED)} kinds   ratio")
    for field, what in {
        "start_cpu": "start, ms CPU",
        "start_peak": "start, peak MiB",
        "steady": "with documents, MiB",
        "own_lists": "first LIST of each kind, ms CPU",
        "first_list": "first LIST of trainingjobs, ms CPU",
        "kept_list": "LIST of trainingjobs again, ms CPU",
        "listed": "once listed, MiB",
    }.items():
        one, many = (min(getattr(each, field) for each in measured) for measured in found.values())
        print(f"{what:<36} {one:9.1f} {many:9.1f} {many / max(one, 0.1):9.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kinds", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    for hidden in ("--port", "--cert", "--key"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--kinds", nargs="+", default=MIXED, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.port is None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(show(given.jobs, given.turns))
        return 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(given.cert, given.key)
    same = kubernetes.document()
    answer = Cluster(given.jobs, given.kinds).answer
    app = kubernetes.application(given.jobs, Changes(0.0), say=lambda: same, answer=answer)
    web.run_app(
        app, host="127.0.0.1", port=int(given.port), ssl_context=context, access_log=None, print=None,
        shutdown_timeout=0.1, loop=uvloop.new_event_loop(),
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
