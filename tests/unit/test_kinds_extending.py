"""A kind that nobody has: what docs/extending.md says is all that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from visibility_api.app.discovery import resource_list
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import Phase, Replica as ReplicaCounts, TrainingJob
from visibility_api.kinds import KINDS
from visibility_api.models.served import progress_of
from visibility_api.pushing.ownership import Owners
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.inventory import Inventory
from visibility_api.workloads.kind import AllPods, Group, JobKind, Parts, View, WatchedObjects, pods_with
from visibility_api.workloads.objects import AnyObject, KubernetesObject, ObjectCondition, Pod
from visibility_api.workloads.rank0 import named_pod


class SlurmSpec(KubernetesObject, frozen=True):
    nodes: int = 1


class SlurmStatus(KubernetesObject, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None


class SlurmJob(AnyObject, frozen=True):
    spec: SlurmSpec = SlurmSpec()
    status: SlurmStatus = SlurmStatus()


JOBS = WatchedObjects(
    api="/apis/slurm.example.com/v1",
    plural="slurmjobs",
    kind="SlurmJob",
    type=SlurmJob,
    makes=lambda job, pod: pod.name.startswith(f"{job.metadata.name}-"),
    is_read=False,
)
PODS = pods_with("slurm.example.com/rank=0")


class SlurmJobKind(JobKind):
    served = progress_of("SlurmJob", "slurmjobs", "slurmp")
    chains = ((JOBS, PODS),)
    success = "Succeeded"

    def view(self, job: SlurmJob, parts: Parts) -> View:
        first = named_pod(parts.pods(PODS, job.metadata), f"{job.metadata.name}-0")
        nodes = ReplicaCounts(name="node", desired=job.spec.nodes)
        return View(groups=(Group(counts=nodes, claim=first),), leaders=("node",))

    def all_pods(self, job: SlurmJob, parts: Parts) -> AllPods | None:
        def replica(pod: Pod, _labels: Mapping[str, str]) -> Replica | None:
            return Replica(name=f"node-{pod.metadata.name.rpartition('-')[2]}")

        return AllPods(f"slurm.example.com/job={job.metadata.name}", replica)


POD: dict[str, Any] = {
    "metadata": {
        "name": "bert-0",
        "namespace": "team-a",
        "uid": "p1",
        "ownerReferences": [
            {"kind": "SlurmJob", "name": "bert", "uid": "s1", "controller": True, "blockOwnerDeletion": True}
        ],
    },
    "spec": {"nodeName": "gpu-1", "containers": [{"name": "main"}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
}


class Client:
    async def get(self, path: str, **_limits: object) -> bytes:
        assert path == "/api/v1/namespaces/team-a/pods/bert-0"
        return msgspec.json.encode(POD)


async def test_a_kind_is_one_description() -> None:
    kind, jobs = SlurmJobKind(), dict[str, TrainingJob]()
    inventory = Inventory(
        (*KINDS, kind), on_job=lambda job, _: jobs.update({str(job.ref): job}), on_gone=lambda _: None
    )
    for objects in inventory.collections:
        await inventory.list(objects, in_slices(()))
    meta = {"name": "bert", "namespace": "team-a", "uid": "s1"}
    inventory.change(JOBS, "ADDED", msgspec.convert({"metadata": meta, "spec": {"nodes": 4}}, SlurmJob))
    inventory.change(PODS, "ADDED", msgspec.convert(POD, Pod))
    job = jobs["slurmjobs/team-a/bert"]
    assert job.phase is Phase.RUNNING
    assert job.rank0 is not None
    assert (job.rank0.pod_name, job.replicas[0].desired) == ("bert-0", 4)
    owner = await Owners(Client()).find((kind,), "team-a", "bert-0", "p1")
    assert owner is not None
    assert (owner[0], owner[1].job_uid) == (kind, job.ref.uid)
    names = [entry["name"] for entry in resource_list((kind.served,))["resources"]]
    below = ("progress", "history", "log-tail", "diagnose")
    assert names == ["slurmjobs", *(f"slurmjobs/{each}" for each in below)]
