"""Training jobs whose pods cost next to nothing: real objects in a real kube-apiserver, and one node agent.

What a job reports at which moment follows from its number, so whoever reads it knows what is true. A third
each reports through a file (exec), its log, and pushes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from localcluster.machinery.node_agent import ExecError, LogQuery
from tests.e2e.api import Api, Object
from visibility_api.pushing.paths import AUDIENCE

from . import kubernetes

SOURCES = ("exec", "logs", "push")
# What becomes of a job, in turn: half of them go on.
MANNERS = ("steady", "hung", "steady", "lost", "steady", "ended", "steady", "gone", "steady", "crashed")
NODES = 20
BEAT_S = float(os.environ.get("BENCHMARKS_BEAT_S", "5"))  # between two reports of a job that is steady
FIRST_STEP, TOTAL_STEPS = 100, 1000
OLD = timedelta(minutes=10)  # as old is the only report of a job that is not steady
RUNNING_FOR = timedelta(hours=1)
IMAGE = "registry.example/train:1"
TRAINER, JOBSETS = "/apis/trainer.kubeflow.org/v1alpha1", "/apis/jobset.x-k8s.io/v1alpha2"
GROUP = "visibility.trainer.kubeflow.org"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, or another object, that exists."""

    namespace: str
    name: str
    uid: str


def create_node(api: Api, name: str, kubelet_port: int) -> None:
    """A node whose kubelet listens on this machine."""
    api.create("/api/v1/nodes", {"metadata": {"name": name}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],  # of the ways of an exec the cheapest
    }
    api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def create_account(api: Api, namespace: str, name: str = "default") -> None:
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})


def create_pods(
    api: Api,
    number: int,
    train_job_uid: str,
    *,
    node: str,
    began: datetime,
    env: Mapping[str, str] = MappingProxyType({}),
    ranks: int = 1,
    group: str = "",
) -> list[Pod]:
    """The JobSet, the Job and the running pods, one for each rank, of a TrainJob that exists. Blocks.

    `group`: those of an initializer with this name instead, before the training."""
    name, namespace = kubernetes.job_name(number), kubernetes.namespace(number)
    made = kubernetes.job_set(number)["spec"]["replicatedJobs"]
    groups = [*_of(group, made), *made] if group else made
    job_set = _own(
        api, f"{JOBSETS}/namespaces/{namespace}/jobsets", "JobSet", name,
        {"spec": {"replicatedJobs": groups}}, ("TrainJob", name, train_job_uid),
    )  # fmt: skip
    labels = _of(group, kubernetes.batch_job(number))["metadata"]["labels"]
    of_job_set = {f"{kubernetes.JOBSET}jobset-uid": job_set.uid}
    container = {
        "name": group or "node",
        "image": IMAGE,
        "env": [{"name": n, "value": v} for n, v in env.items()],
    }
    template = {"containers": [container], "restartPolicy": "Never"}
    job = _own(
        api, f"/apis/batch/v1/namespaces/{namespace}/jobs", "Job", f"{name}-{group or 'node'}-0",
        {
            "metadata": {"labels": labels | of_job_set},
            "spec": {"completionMode": "Indexed", "completions": ranks, "template": {"spec": template}},
        },
        ("JobSet", name, job_set.uid),
    )  # fmt: skip
    of_job = {"batch.kubernetes.io/controller-uid": job.uid, "batch.kubernetes.io/job-name": job.name}
    spec = template | {
        "nodeName": node,
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 0,
    }
    found = []
    for rank in range(ranks):
        meta = _of(group, kubernetes.pod(number, rank))["metadata"]
        kept = {"labels": meta["labels"] | of_job_set | of_job, "annotations": meta["annotations"]}
        pod = _own(
            api, f"/api/v1/namespaces/{namespace}/pods", "Pod", meta["name"],
            {"metadata": kept, "spec": spec}, ("Job", job.name, job.uid),
        )  # fmt: skip
        running = {"running": {"startedAt": _rfc3339(began)}}
        show_pod(api, pod, running, began=began, name=group or "node")
        found.append(pod)
    return found


def _of(group: str, made: Any) -> Any:
    """The same of an initializer, if it is named."""
    if not group:
        return made
    text = json.dumps(made).replace('"node"', f'"{group}"').replace("-node-", f"-{group}-")
    return json.loads(text.replace('ancestor-step": "trainer"', f'ancestor-step": "{group}"'))


def _own(
    api: Api, path: str, kind: str, name: str, body: Object, owner: tuple[str, str, str] | None = None
) -> Pod:
    """Create it, controlled by the owner: kind, name and uid."""
    meta = {"name": name, **body.get("metadata", {})}
    if owner is not None:
        versions = {"TrainJob": "trainer.kubeflow.org/v1alpha1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
        reference = {"apiVersion": versions.get(owner[0], "batch/v1"), "kind": owner[0], "name": owner[1]}
        reference |= {"uid": owner[2], "controller": True, "blockOwnerDeletion": True}
        meta["ownerReferences"] = [reference]
    api_version = "/".join(path.removeprefix("/apis/").removeprefix("/api/").split("/")[:-3])
    made = api.create(path, body | {"apiVersion": api_version, "kind": kind, "metadata": meta})["metadata"]
    return Pod(made["namespace"], made["name"], made["uid"])


def show_pod(
    api: Api, pod: Pod, state: Object, *, began: datetime, phase: str = "Running", **more: Any
) -> None:
    """Its status, as a kubelet writes it; more of its container's."""
    api.patch(*status_of(pod, state, began=began, phase=phase, **more))


def status_of(
    pod: Pod, state: Object, *, began: datetime, phase: str = "Running", **more: Any
) -> tuple[str, Object]:
    """The path and the patch of it."""
    status = {
        "phase": phase,
        "startTime": _rfc3339(began),
        "containerStatuses": [
            {
                "name": "node",
                "image": IMAGE,
                "imageID": "",
                "restartCount": 0,
                "ready": phase == "Running",
                "state": state,
                **more,
            }
        ],
    }
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status", {"status": status}


def token_of(api: Api, pod: Pod) -> str:
    """A token for pushes that is bound to it."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [AUDIENCE],
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod.name, "uid": pod.uid},
        },
    }
    path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/default/token"
    token: str = api.create(path, body)["status"]["token"]
    return token


@dataclass(slots=True, kw_only=True)
class Job:
    """One job, and what it reports."""

    number: int
    source: str
    manner: str
    began: datetime  # of the first report
    pod: Pod | None = None
    token: str = ""  # of its pod, if it pushes
    quiet_from: datetime | None = None  # it reports nothing after that
    runs_since: datetime | None = None  # its container was started anew then: its process knows nothing older
    has_changed: bool = False  # what its manner says has happened to it

    @property
    def name(self) -> str:
        return kubernetes.job_name(self.number)

    @property
    def namespace(self) -> str:
        return kubernetes.namespace(self.number)

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

    def wrote(self, step: int) -> bool:
        """Whether the process that runs now has written the report with that step."""
        return self.runs_since is None or self.written_at(step) >= self.runs_since

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
        self,
        api: Api,
        jobs: int,
        *,
        manners: Sequence[str] = MANNERS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._now, self._manners = api, now, manners
        self.started = now().replace(microsecond=0)
        self.jobs = [self._job(number) for number in range(jobs)]
        self._by_name = {job.name: job for job in self.jobs}
        self.hanging: set[str] = set()  # nodes on which no exec ends

    def _job(self, number: int) -> Job:
        manner = self._manners[number // len(SOURCES) % len(self._manners)]
        spread = timedelta(milliseconds=number * 4999 % int(BEAT_S * 1000))
        began = self.started - (spread if manner == "steady" else OLD + spread)
        return Job(number=number, source=SOURCES[number % len(SOURCES)], manner=manner, began=began)

    # --- the cluster

    def create(self, kubelet_port: int) -> None:
        """Nodes, and for each job its TrainJob, JobSet, Job, and a pod that runs. Blocks."""
        for number in range(NODES):
            create_node(self._api, f"node-{number}", kubelet_port)
        for number in range(kubernetes.NAMESPACES):
            create_account(self._api, kubernetes.namespace(number))
        self._each(self._create, self.jobs)

    def change(self) -> None:
        """Let happen to each job what its manner says. Blocks."""
        self._each(self._change, [job for job in self.jobs if not job.is_steady])

    def _each(self, work: Callable[[Job], None], jobs: Iterable[Job]) -> None:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in pool.map(work, jobs):
                pass

    def _create(self, job: Job) -> None:
        made = kubernetes.train_job(job.number)
        labels = {"labels": made["metadata"]["labels"]}
        uid = _own(
            self._api, f"{TRAINER}/namespaces/{job.namespace}/trainjobs", "TrainJob", job.name,
            {"metadata": labels, "spec": made["spec"]},
        ).uid  # fmt: skip
        env = {"TRAINJOB_PROGRESS_FILE": "/tmp/progress.json"} if job.source == "exec" else {}
        (job.pod,) = create_pods(
            self._api, job.number, uid, node=f"node-{job.number % NODES}", env=env, began=self._began
        )
        if job.source == "push":
            job.token = token_of(self._api, job.pod)

    @property
    def _began(self) -> datetime:
        return self.started - RUNNING_FOR

    def _show_pod(self, job: Job, state: Object, *, phase: str = "Running", **more: Any) -> None:
        assert job.pod is not None
        show_pod(self._api, job.pod, state, began=self._began, phase=phase, **more)

    def restarted(self, job: Job) -> tuple[str, Object]:
        """The path and the patch by which its container has crashed, and runs again: its reports go on."""
        now = job.runs_since = self._now().replace(microsecond=0)
        left = {
            "exitCode": 1,
            "reason": "Error",
            "startedAt": _rfc3339(self._began),
            "finishedAt": _rfc3339(now),
        }
        running = {"running": {"startedAt": _rfc3339(now)}}
        assert job.pod is not None
        last = {"terminated": left}
        return status_of(job.pod, running, began=self._began, restartCount=1, lastState=last)

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
            assert job.pod is not None
            self._api.delete(f"/api/v1/namespaces/{job.namespace}/pods/{job.pod.name}", gracePeriodSeconds=0)

    # --- the node agent

    async def exec(
        self,
        namespace: str,  # noqa: ARG002 - a NodeAgent takes it
        pod: str,
        container: str,
        argv: Sequence[str],  # noqa: ARG002 - a NodeAgent takes it
    ) -> Output:
        job = self._by_name[pod.partition("-node-")[0]]
        while f"node-{job.number % NODES}" in self.hanging:  # noqa: ASYNC110 - what hangs is not in a hurry
            await asyncio.sleep(0.5)
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
        query: LogQuery,
    ) -> AsyncIterator[bytes]:
        job = self._by_name[pod.partition("-node-")[0]]
        has_log = not job.has_changed or job.manner not in ("lost", "crashed", "gone")
        if job.source == "logs" and has_log and not query.previous:
            last = job.last_step(self._now())
            for step in filter(job.wrote, range(max(FIRST_STEP, last - 20), last + 1)):
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
