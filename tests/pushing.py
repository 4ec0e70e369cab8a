"""A cluster with one training job in it, as the push endpoint sees it: tokens, pods, and their owners."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.jobs import T0, job_ref, rank0
from visibility_api.app import Parts, create_app
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.app.resource_routes import RouteKey
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.auth.review_admission import ReviewAdmission
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH, TokenReviewer
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.kinds import BUILT_IN, Kinds
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kube.errors import ApiError
from visibility_api.kubeapi.message import Handler, ResourceRequest, ResourceResponse, Scope
from visibility_api.pushing.admission import TIMEOUT_S, Admission
from visibility_api.pushing.body import Bodies
from visibility_api.pushing.endpoint import PushEndpoint
from visibility_api.pushing.ownership import Owners
from visibility_api.pushing.paths import AUDIENCE
from visibility_api.replication.addresses import Address
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.recognition import ReplicaKey
from visibility_api.reports.document import Progress

UPSTREAM = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status"
OURS = "/apis/visibility.trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status"
BODY = b'{"trainerStatus":{"progressPercentage":45,"lastUpdatedTime":"2026-01-23T10:30:45Z"}}'


def jwt(**claims: object) -> str:
    """A token with these claims; what it means is up to `Cluster.tokens`."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"head.{payload}.signature"


def pod_claims(pod: str, namespace: str = "team-a") -> dict[str, object]:
    """Those of a token that is bound to a pod."""
    return {"kubernetes.io": {"namespace": namespace, "pod": {"name": pod}}}


def upstream_audience(namespace: str, name: str) -> str:
    return f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


class Cluster:
    """A kube-apiserver's reviews and objects. `held` makes it wait before every answer; `away` fails them."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.jobs: dict[tuple[str, str], TrainingJob] = {}
        self.jobs_by_place: dict[tuple[str, str], TrainingJob] = {}  # by resource and namespace, of any name
        self.unserved: set[str] = set()  # uids of jobs that are there, and served not yet
        self.asked: list[str] = []  # paths, in order
        self.reviewed: list[dict[str, Any]] = []  # specs of token reviews
        self.away: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()

    def find_job(self, resource: str, namespace: str, name: str) -> TrainingJob | None:
        if self.jobs_by_place:
            return self.jobs_by_place.get((resource, namespace))
        found = self.jobs.get((namespace, name))
        return found if found is not None and found.ref.resource == resource else None

    def add_job(self, name: str, namespace: str = "team-a", *, attempt: int = 0) -> TrainingJob:
        """A running job with pods 0 and 1 there, each with a token that is its own uid."""
        uid, home = f"{namespace}-{name}-job", f"/namespaces/{namespace}"
        jobset = f"/apis/jobset.x-k8s.io/v1alpha2{home}/jobsets/{name}"
        self.add_object(jobset, f"{uid}-set", "TrainJob", uid, owner=name)
        self.objects[jobset]["spec"] = {"replicatedJobs": [{"name": "node", "replicas": 1}]}
        job_path = f"/apis/batch/v1{home}/jobs/{name}-node-0"
        self.add_object(job_path, f"{uid}-batch", "JobSet", f"{uid}-set", owner=name)
        self.objects[job_path]["spec"] = {"completionMode": "Indexed", "completions": 4096}
        labels = {"jobset.sigs.k8s.io/restart-attempt": str(attempt)}
        self.objects[job_path]["metadata"]["labels"] = labels
        for index in (0, 1):
            self.add_pod(
                f"{name}-node-0-{index}-abcde", f"{uid}-pod{index}", f"{uid}-batch", f"{name}-node-0",
                namespace=namespace,
            )  # fmt: skip
        first = rank0(pod_name=f"{name}-node-0-0-abcde", pod_uid=f"{uid}-pod0", restart_attempt=attempt)
        ref = job_ref(name, namespace, uid)
        job = TrainingJob(ref=ref, created_at=T0, phase=Phase.RUNNING, rank0=first)
        self.jobs[namespace, name] = job
        return job

    def add_pod(
        self,
        name: str,
        uid: str,
        batch_uid: str,
        batch_name: str,
        *,
        namespace: str = "team-a",
        index: str | None = None,
        audiences: Sequence[str] = (AUDIENCE,),
        kind: str = "Job",
    ) -> None:
        """`index`: what the pod's label says; by default what its name says."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.add_object(path, uid, kind, batch_uid, owner=batch_name)
        label = name.split("-")[-2] if index is None else index
        self.objects[path]["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": label}
        self.add_token(uid, pod=name, uid=uid, namespace=namespace, audiences=audiences)

    def add_object(self, path: str, uid: str, kind: str, owner_uid: str, *, owner: str = "") -> None:
        reference = {"kind": kind, "uid": owner_uid, "name": owner or "job", "controller": True}
        reference["blockOwnerDeletion"] = True
        name = path.rpartition("/")[2]
        self.objects[path] = {"metadata": {"name": name, "uid": uid, "ownerReferences": [reference]}}

    def add_token(
        self,
        token: str,
        *,
        pod: str | None,
        uid: str = "",
        namespace: str = "team-a",
        audiences: Sequence[str] = (AUDIENCE,),
    ) -> None:
        """`pod` None: bound to none."""
        extra = {} if pod is None else {
            "authentication.kubernetes.io/pod-name": [pod],
            "authentication.kubernetes.io/pod-uid": [uid],
        }  # fmt: skip
        user = {"username": f"system:serviceaccount:{namespace}:default", "uid": "sa", "extra": extra}
        self.tokens[token] = {"authenticated": True, "user": user, "audiences": list(audiences)}

    def restart(self, job: TrainingJob, **changes: Any) -> TrainingJob:
        """The job with another rank 0."""
        assert job.rank0 is not None
        job = replace(job, rank0=replace(job.rank0, **changes))
        self.jobs[job.ref.namespace, job.ref.name] = job
        return job

    async def exists(self, ref: JobRef) -> bool:
        """Of a job that is served not yet: whether kube-apiserver has it."""
        return ref.uid in self.unserved

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        spec = json.loads(body)["spec"]
        self.asked.append(path)
        self.reviewed.append(spec)
        await self._answer()
        status = dict(self.tokens.get(spec["token"], {"authenticated": False}))
        matching = [a for a in status.get("audiences", ()) if a in spec["audiences"]]
        status = status | {"audiences": matching} if matching else {"authenticated": False}
        return json.dumps({"status": status}).encode()

    async def get(self, path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        self.asked.append(path)
        await self._answer()
        if path not in self.objects:
            raise ApiError(404, "NotFound", "not found")
        return json.dumps(self.objects[path]).encode()

    async def _answer(self) -> None:
        await self.held.wait()
        if self.away is not None:
            raise self.away


async def _unserved(request: ResourceRequest) -> ResourceResponse:
    raise AssertionError("a push reached a resource")


HANDLERS: dict[RouteKey, Handler] = {
    **{("trainjobs", "", verb): _unserved for verb in ("get", "list", "watch")},
    ("trainjobs", "progress", "get"): _unserved,
}


class Nobody:
    """The API's own authentication and authorisation, which no push may come to."""

    async def authenticate(self, scope: Scope) -> Identity:
        raise AssertionError("a push was authenticated as a request of the API")

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        raise AssertionError("a push was authorised as a request of the API")


@dataclass(frozen=True)
class Here:
    """This replica owns the jobs."""

    admits: PushEndpoint
    term: Any = None

    def endpoint(self, _partition: int) -> PushEndpoint:
        return self.admits

    def address(self, _partition: int) -> Address | None:
        return None


async def _nothing() -> bool:
    """No other replica has to confirm."""
    return True


class Endpoint:
    """The endpoint on a cluster, and what it has handed on."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        bodies: Bodies | None = None,
        queues: ClientQueues | None = None,  # of unknown callers
        clock: Callable[[], float] | None = None,
        admission_timeout_s: float = TIMEOUT_S,
        proof: str = "",
        kinds: Kinds = BUILT_IN,
    ) -> None:
        """`clock` instead of `time`. `proof`: what other replicas have to present, if there are any."""
        clock = clock or (lambda: self.time)
        self.cluster = cluster
        self.time = 0.0
        self.seen: list[Observation] = []
        self.pushed: list[JobRef] = []
        self.noted: list[tuple[JobRef, str, Progress]] = []  # reports of other ranks
        self.outcomes: list[str] = []
        self.is_news = True  # what is handed on counts
        self.is_synced = True
        self.is_watched = True  # the watch of pods works
        self.is_counted = True

        async def no_sleep(_delay_s: float) -> None:
            await asyncio.sleep(0)

        self.admission = Admission(
            TokenReviewer(ReviewClient(cluster, PATH, sleep=no_sleep), clock=clock),
            Owners(cluster, clock=clock, now=lambda: T0 + timedelta(seconds=clock())),
            find_job=cluster.find_job,
            kinds=kinds,
            is_synced=lambda _namespace: self.is_synced,
            is_watched=lambda _ref: self.is_watched,
            exists=cluster.exists,
            reviews=ReviewAdmission(unknown=queues, clock=clock),
            clock=clock,
            timeout_s=admission_timeout_s,
        )
        self.endpoint = PushEndpoint(
            self.admission,
            record=self._record,
            counts=lambda _observation: self.is_counted,
            pushed=self.pushed.append,
            note_replica=lambda *noted: self.noted.append(noted),
            count=self.outcomes.append,
            now=lambda: T0,
            clock=clock,
            bodies=bodies or Bodies(places=10),
        )
        self.pushes = Pushes(
            Here(self.endpoint),
            None,
            keys=lambda: [ReplicaKey(aiohttp.Fingerprint(bytes(32)), proof)] if proof else [],
            replicated=_nothing,
            kinds=lambda: kinds,
        )
        registry = CollectorRegistry()
        self.app = create_app(
            Parts(
                authenticator=Nobody(),
                authorizer=Nobody(),
                handlers=HANDLERS,
                resources=(TrainJobKind.served,),
                registry=registry,
                metrics=RequestMetrics(registry),
                pushes=self.pushes,
            )
        )

    def _record(self, observation: Observation) -> bool:
        self.seen.append(observation)
        return self.is_news
