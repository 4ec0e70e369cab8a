"""Training jobs whose pods cost next to nothing: real objects in a real kube-apiserver, and one node agent.

What a job reports at which moment follows from its number, so whoever reads it knows what is true. A third
each reports through a file (exec), its log, and pushes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from localcluster.machinery.node_agent import ExecError
from tests.e2e.api import Api, Object
from visibility_api.pushing.paths import AUDIENCE

from . import kubernetes

SOURCES = ("exec", "logs", "push")
# What becomes of a job, in turn: half of them go on.
MANNERS = ("steady", "hung", "steady", "lost", "steady", "ended", "steady", "gone", "steady", "crashed")
NODES = 20
BEAT_S = 5.0  # between two reports of a job that is steady
FIRST_STEP, TOTAL_STEPS = 100, 1000
OLD = timedelta(minutes=10)  # as old is the only report of a job that is not steady
RUNNING_FOR = timedelta(hours=1)
TRAINER, JOBSETS = "/apis/trainer.kubeflow.org/v1alpha1", "/apis/jobset.x-k8s.io/v1alpha2"
GROUP = "visibility.trainer.kubeflow.org"


@dataclass(slots=True, kw_only=True)
class Job:
    """One job, and what it reports."""

    number: int
    source: str
    manner: str
    began: datetime  # of the first report
    uids: dict[str, str] = field(default_factory=dict)  # by kind
    token: str = ""  # of its pod, if it pushes
    quiet_from: datetime | None = None  # it reports nothing after that
    has_changed: bool = False  # what its manner says has happened to it

    @property
    def name(self) -> str:
        return kubernetes.job_name(self.number)

    @property
    def namespace(self) -> str:
        return kubernetes.namespace(self.number)

    @property
    def pod(self) -> str:
        return f"{self.name}-node-0-0-abcde"

    @property
    def is_steady(self) -> bool:
        return self.manner == "steady"

    def last_step(self, now: datetime) -> int:
        """Of the last report that it has written by `now`."""
        if not self.is_steady:
            return FIRST_STEP
        until = now if self.quiet_from is None else min(now, self.quiet_from)
        return FIRST_STEP + max(0, int((until - self.began).total_seconds() / BEAT_S))

    def written_at(self, step: int) -> datetime:
        """When the report with that step was written."""
        return self.began + timedelta(seconds=(step - FIRST_STEP) * BEAT_S)

    def document(self, step: int) -> dict[str, Any]:
        return {
            "step": step,
            "totalSteps": TOTAL_STEPS,
            "timestamp": self.written_at(step).isoformat(),
            "metrics": {"loss": loss(step)},
        } | ({"state": "completed"} if self.manner in ("ended", "gone") else {})

    def push(self, step: int) -> bytes:
        """The body, as Hugging Face's callback sends it."""
        metrics = {"loss": loss(step), "current_step": str(step), "total_steps": str(TOTAL_STEPS)}
        status = {
            "lastUpdatedTime": self.written_at(step).isoformat(),
            "progressPercentage": 100 * step // TOTAL_STEPS,
            "metrics": [{"name": name, "value": value} for name, value in metrics.items()],
        }
        return json.dumps({"trainerStatus": status}).encode()


def loss(step: int) -> str:
    return f"{1 / step:.6f}"


class Fleet:
    """`jobs` of them, created by `create`; a NodeAgent for all their pods."""

    def __init__(
        self, api: Api, jobs: int, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._api, self._now = api, now
        self.started = now().replace(microsecond=0)
        self.jobs = [self._job(number) for number in range(jobs)]
        self._by_pod = {job.pod: job for job in self.jobs}

    def _job(self, number: int) -> Job:
        manner = MANNERS[number // len(SOURCES) % len(MANNERS)]
        spread = timedelta(milliseconds=number * 4999 % int(BEAT_S * 1000))
        began = self.started - (spread if manner == "steady" else OLD + spread)
        return Job(number=number, source=SOURCES[number % len(SOURCES)], manner=manner, began=began)

    # --- the cluster

    def create(self, kubelet_port: int) -> None:
        """Nodes, and for each job its TrainJob, JobSet, Job, and a pod that runs. Blocks."""
        for number in range(NODES):
            name = f"node-{number}"
            self._api.create("/api/v1/nodes", {"metadata": {"name": name}})
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
                "declaredFeatures": ["ExtendWebSocketsToKubelet"],  # of the ways of an exec the cheapest
            }
            self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        for number in range(kubernetes.NAMESPACES):
            accounts = f"/api/v1/namespaces/{kubernetes.namespace(number)}/serviceaccounts"
            self._api.create(accounts, {"metadata": {"name": "default"}})
        self._each(self._create, self.jobs)

    def change(self) -> None:
        """Let happen to each job what its manner says. Blocks."""
        self._each(self._change, [job for job in self.jobs if not job.is_steady])

    def _each(self, work: Callable[[Job], None], jobs: Iterable[Job]) -> None:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in pool.map(work, jobs):
                pass

    def _create(self, job: Job) -> None:
        name, namespace = job.name, job.namespace
        made = kubernetes.train_job(job.number)
        self._own(
            job, "TrainJob", f"{TRAINER}/namespaces/{namespace}/trainjobs", None,
            {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]},
        )  # fmt: skip
        self._own(
            job, "JobSet", f"{JOBSETS}/namespaces/{namespace}/jobsets", "TrainJob",
            {"spec": kubernetes.job_set(job.number)["spec"]},
        )  # fmt: skip
        pod = kubernetes.pod(job.number)
        labels = pod["metadata"]["labels"] | {f"{kubernetes.JOBSET}jobset-uid": job.uids["JobSet"]}
        del labels["batch.kubernetes.io/controller-uid"], labels["batch.kubernetes.io/job-name"]
        container = {"name": "node", "image": "registry.example/train:1"}
        if job.source == "exec":
            container |= {"env": [{"name": "TRAINJOB_PROGRESS_FILE", "value": "/tmp/progress.json"}]}
        template = {"containers": [container], "restartPolicy": "Never"}
        of_job = kubernetes.batch_job(job.number)["metadata"]["labels"] | {
            f"{kubernetes.JOBSET}jobset-uid": job.uids["JobSet"]
        }
        self._own(
            job, "Job", f"/apis/batch/v1/namespaces/{namespace}/jobs", "JobSet",
            {
                "metadata": {"name": f"{name}-node-0", "labels": of_job},
                "spec": {"completionMode": "Indexed", "completions": 1, "template": {"spec": template}},
            },
        )  # fmt: skip
        labels |= {
            "batch.kubernetes.io/controller-uid": job.uids["Job"],
            "batch.kubernetes.io/job-name": f"{name}-node-0",
        }
        spec = template | {
            "nodeName": f"node-{job.number % NODES}",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 0,
        }
        meta = {"name": job.pod, "labels": labels, "annotations": pod["metadata"]["annotations"]}
        self._own(job, "Pod", f"/api/v1/namespaces/{namespace}/pods", "Job", {"metadata": meta, "spec": spec})
        self._show_pod(job, {"running": {"startedAt": _rfc3339(self.started - RUNNING_FOR)}})
        if job.source == "push":
            job.token = self._token(job)

    def _own(self, job: Job, kind: str, path: str, owner: str | None, body: Object) -> None:
        meta = {"name": job.name, **body.get("metadata", {})}
        if owner is not None:
            api = {"TrainJob": "trainer.kubeflow.org/v1alpha1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
            name = f"{job.name}-node-0" if owner == "Job" else job.name
            reference = {"apiVersion": api.get(owner, "batch/v1"), "kind": owner, "name": name}
            reference |= {"uid": job.uids[owner], "controller": True, "blockOwnerDeletion": True}
            meta["ownerReferences"] = [reference]
        api_version = "/".join(path.removeprefix("/apis/").removeprefix("/api/").split("/")[:-3])
        made = self._api.create(path, body | {"apiVersion": api_version, "kind": kind, "metadata": meta})
        job.uids[kind] = made["metadata"]["uid"]

    def _show_pod(self, job: Job, state: Object, *, phase: str = "Running", **more: Any) -> None:
        status = {
            "phase": phase,
            "startTime": _rfc3339(self.started - RUNNING_FOR),
            "containerStatuses": [
                {
                    "name": "node",
                    "image": "registry.example/train:1",
                    "imageID": "",
                    "restartCount": 0,
                    "ready": phase == "Running",
                    "state": state,
                    **more,
                }
            ],
        }
        path = f"/api/v1/namespaces/{job.namespace}/pods/{job.pod}/status"
        self._api.patch(path, {"status": status})

    def _token(self, job: Job) -> str:
        pod = {"kind": "Pod", "apiVersion": "v1", "name": job.pod, "uid": job.uids["Pod"]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [AUDIENCE], "boundObjectRef": pod},
        }
        path = f"/api/v1/namespaces/{job.namespace}/serviceaccounts/default/token"
        token: str = self._api.create(path, body)["status"]["token"]
        return token

    def _change(self, job: Job) -> None:
        job.has_changed = True
        ended_at = self._now() - timedelta(seconds=10)  # after the pod was made: else it is not the pod's end
        ended = {"startedAt": _rfc3339(self.started - RUNNING_FOR), "finishedAt": _rfc3339(ended_at)}
        if job.manner == "crashed":
            left = {"exitCode": 1, "reason": "Error", **ended}
            self._show_pod(
                job,
                {"running": {"startedAt": _rfc3339(ended_at + timedelta(seconds=10))}},
                restartCount=1,
                lastState={"terminated": left},
            )
        elif job.manner in ("ended", "gone"):
            words = json.dumps(job.document(FIRST_STEP)) if job.source == "exec" else ""
            left = {"exitCode": 0, "reason": "Completed", "message": words, **ended}
            self._show_pod(job, {"terminated": left}, phase="Succeeded")
            complete = {
                "type": "Complete",
                "status": "True",
                "reason": "AllJobsCompleted",
                "message": "jobset completed successfully",
                "lastTransitionTime": _rfc3339(ended_at + timedelta(seconds=5)),
            }
            path = f"{TRAINER}/namespaces/{job.namespace}/trainjobs/{job.name}/status"
            self._api.patch(path, {"status": {"conditions": [complete]}})
        if job.manner == "gone":
            self._api.delete(f"/api/v1/namespaces/{job.namespace}/pods/{job.pod}", gracePeriodSeconds=0)

    # --- the node agent

    async def exec(
        self,
        namespace: str,  # noqa: ARG002 - a NodeAgent takes it
        pod: str,
        container: str,
        argv: Sequence[str],  # noqa: ARG002 - a NodeAgent takes it
    ) -> Output:
        job = self._by_pod[pod]
        if job.manner == "gone" and job.has_changed:
            raise ExecError("InternalError", f'container not found ("{container}")')
        if job.source != "exec" or (job.has_changed and job.manner in ("lost", "crashed")):
            return Output(err=kubernetes.NO_FILE)
        return Output(json.dumps(job.document(job.last_step(self._now()))).encode())

    async def stream_logs(
        self,
        namespace: str,  # noqa: ARG002 - a NodeAgent takes it
        pod: str,
        container: str,  # noqa: ARG002 - a NodeAgent takes it
        *,
        previous: bool = False,
        **options: Any,  # noqa: ARG002 - a NodeAgent takes it
    ) -> AsyncIterator[bytes]:
        job = self._by_pod[pod]
        has_log = not job.has_changed or job.manner not in ("lost", "crashed", "gone")
        if job.source == "logs" and has_log and not previous:
            last = job.last_step(self._now())
            for step in range(max(FIRST_STEP, last - 20), last + 1):
                written = job.written_at(step).isoformat().removesuffix("+00:00")
                yield f"{written}Z {json.dumps(job.document(step))}\n".encode()


class Output:
    """A command that has printed this and ended."""

    def __init__(self, out: bytes = b"", err: bytes = b"") -> None:
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self._code = 1 if err else 0
        for reader, data in ((self.stdout, out), (self.stderr, err)):
            reader.feed_data(data)
            reader.feed_eof()

    async def wait(self) -> int:
        return self._code

    def kill(self) -> None:
        pass

    async def close(self) -> None:
        pass


def _rfc3339(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
