"""The rules of phase, rank 0, failure and accelerators over objects as a real kube-apiserver stores them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.api import Object
from tests.e2e.scripts import SILENT
from tests.e2e.workspace import TRAINER, Workspace
from tests.workload_objects import FoundParts, made
from visibility_api.jobs.job import Phase, TrainingJob
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob, TrainJobKind
from visibility_api.workloads.description import describe_job
from visibility_api.workloads.failures import Replica, pod_failure
from visibility_api.workloads.objects import BatchJob, Pod

AT = "2026-01-23T10:30:00Z"
BEGAN = {"startedAt": "2026-01-23T10:02:00Z", "finishedAt": AT, "containerID": "containerd://1"}


@pytest.fixture(scope="module")
def job(bare: Workspace, request: pytest.FixtureRequest) -> str:
    if request.config.getoption("--cluster") != "real":
        pytest.skip("objects of a real kube-apiserver")
    bare.start_job("recorded", SILENT, annotations={"interval": "5s"})
    bare.wait_running("recorded")
    return "recorded"


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    known = {"name": "node", "image": "python:3", "imageID": "", "ready": False, "restartCount": 0}
    return {"containerStatuses": [{**known, "state": state, **more}]}


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, **BEGAN}}


def with_status(bare: Workspace, job: str, status: dict[str, Any]) -> Object:
    """The job's pod as kube-apiserver would store it with this status, after its checks and defaults."""
    (pod,) = bare.pods(job)
    path = f"/api/v1/namespaces/{bare.name}/pods/{pod['metadata']['name']}/status"
    return bare.cluster.admin.patch(f"{path}?dryRun=All&fieldValidation=Strict", {"status": status})


def described(bare: Workspace, job: str, pod: Object) -> TrainingJob:
    admin = bare.cluster.admin
    trainjob = admin.get(f"{TRAINER}/namespaces/{bare.name}/trainjobs/{job}")
    jobset = admin.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{bare.name}/jobsets/{job}")
    jobs = [made(each, BatchJob) for each in admin.items(f"/apis/batch/v1/namespaces/{bare.name}/jobs")]
    parts = FoundParts([made(jobset, JobSet), *jobs, made(pod, Pod)])
    return describe_job(TrainJobKind(), made(trainjob, TrainJob), parts, {})


def test_a_job_that_runs(bare: Workspace, job: str) -> None:
    (pod,) = bare.pods(job)
    assert pod["spec"]["schedulerName"] == "default-scheduler"  # which nobody gave: a default
    found = described(bare, job, pod)
    assert found.phase is Phase.RUNNING
    assert found.rank0 is not None
    assert found.rank0.pod_name == pod["metadata"]["name"]
    assert found.rank0.container_name == "node"
    assert found.hints.interval_s == 5
    assert [group.name for group in found.replicas] == ["node"]


@pytest.mark.parametrize(
    ("status", "reason", "exit_code", "retryable"),
    [
        (container(ended(137, "OOMKilled")), "OOMKilled", 137, False),
        (
            container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(139), restartCount=4),
            "Error", 139, False,
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
          **container(ended(137))}, "Evicted", 137, True),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                          "message": "preempted", "lastTransitionTime": AT}]}, "Preempted", None, True),
    ],
    ids=["out of memory", "crash loop", "evicted", "preempted"],
)  # fmt: skip
def test_a_pod_shows_why_it_failed(
    bare: Workspace, job: str, status: dict[str, Any], reason: str, exit_code: int | None, retryable: bool
) -> None:
    pod = with_status(bare, job, status)
    if reason == "Preempted":
        pod["metadata"]["deletionTimestamp"] = AT  # no patch can set it
    found = pod_failure(made(pod, Pod), Replica(name="node-0"))
    assert found is not None
    assert (found.reason, found.exit_code, found.is_retryable) == (reason, exit_code, retryable)


def test_the_accelerators_of_a_jobset(bare: Workspace, job: str) -> None:
    admin, path = bare.cluster.admin, f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{bare.name}/jobsets"
    known = admin.get(f"{path}/{job}")
    spec = known["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec |= {"parallelism": 3, "completions": 3}
    spec["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    owned = {"name": "asked", "ownerReferences": known["metadata"]["ownerReferences"]}
    asked = {key: known[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": owned}
    stored = admin.create(f"{path}?dryRun=All&fieldValidation=Strict", asked)
    trainjob = admin.get(f"{TRAINER}/namespaces/{bare.name}/trainjobs/{job}")
    stored["metadata"]["name"] = job  # which is taken
    parts = FoundParts([made(stored, JobSet)])
    found = describe_job(TrainJobKind(), made(trainjob, TrainJob), parts, {})
    assert dict(found.accelerators) == {"nvidia.com/gpu": 12}
