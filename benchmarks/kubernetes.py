"""As much of a kube-apiserver as the server under measurement asks: lists in pages, reviews, exec.

Access reviews say yes, token reviews know one user's token and one of each pod; exec answers with a progress
document. Objects are as large as real ones: most of a pod is what nobody here wants to know.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import math
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from visibility_api.pushing.paths import AUDIENCE

TOKEN = "benchmark"
NAMESPACES = 50
ALONE = 50_000  # a job with this number, or a higher one, has a namespace of its own
JOBSET = "jobset.sigs.k8s.io/"
POD_TOKEN = (
    "pod-"  # and the job's number and the rank, five digits each, and what makes it as long as real ones
)
CHANGES = "/benchmark/changes"
NO_FILE = b"cat: /tmp/trainjob-progress.json: No such file or directory\n"
EXIT_CODE_1 = (
    b'{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code",'
    b'"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"1"}]}}'
)


def job_name(number: int) -> str:
    return f"job-{number:05d}"


def namespace(number: int) -> str:
    return f"team-{number % NAMESPACES:02d}" if number < ALONE else f"alone-{number - ALONE}"


def document(earlier: int = 0) -> bytes:
    """A progress document as a training loop writes it, with so many earlier values of each metric."""
    recent = {"recent": _recent(earlier)} if earlier else {}
    return json.dumps(
        {
            "schemaVersion": 1,
            "state": "running",
            "step": int(time.time()) % 1000,  # every probe brings news
            "totalSteps": 1000,
            "epoch": 1,
            "totalEpochs": 3,
            "progressPercentage": 45,
            "metrics": {"loss": 0.2347, "accuracy": 0.91, "lr": 3e-4, "grad_norm": 1.2},
            "startTime": "2026-01-23T10:00:00Z",
            "timestamp": datetime.now(UTC).isoformat(),
            **recent,
        }
    ).encode()


def _recent(rows: int) -> dict[str, Any]:
    """A curve, ten seconds from point to point: docs/document.md, "Earlier values"."""
    curve = [round(0.2 + 2 * math.exp(-row / 20) + 0.1 * math.sin(row * row), 4) for row in range(rows)]
    metrics = dict.fromkeys(("loss", "accuracy", "lr", "grad_norm"), curve)
    return {"secondsBefore": [10.0 * (rows - row) for row in range(rows)], "metrics": metrics}


def train_job(number: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": job_name(number),
            "namespace": namespace(number),
            "uid": _uid("7", number),
            "resourceVersion": "1",
            "labels": {"team": namespace(number), "kueue.x-k8s.io/queue-name": "gpu"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": _filler(number, 1500)},
            "creationTimestamp": "2026-01-23T10:00:00Z",
            "managedFields": _MANAGED_FIELDS,
        },
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
        "status": {
            "conditions": [  # as Kueue leaves it, which admits jobs by resuming them
                {
                    "type": "Suspended",
                    "status": "False",
                    "reason": "Resumed",
                    "message": "TrainJob is resumed",
                    "lastTransitionTime": "2026-01-23T10:00:00Z",
                }
            ],
            "jobsStatus": [{"name": "node", "ready": 1, "active": 1}],
        },
    }


def job_set(number: int) -> dict[str, Any]:
    ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {
        "metadata": {
            "name": job_name(number),
            "namespace": namespace(number),
            "uid": _uid("5", number),
            "resourceVersion": "1",
            "ownerReferences": [controller("TrainJob", job_name(number), _uid("7", number))],
            "managedFields": _MANAGED_FIELDS,
        },
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "replicas": 1,
                    "template": {
                        "metadata": {"labels": ancestor},
                        "spec": {"template": {"spec": {"containers": [_container(number)]}}},
                    },
                }
            ]
        },
        "status": {"replicatedJobsStatus": [{"name": "node", "ready": 1, "active": 1}]},
    }


def pod_name(number: int, rank: int) -> str:
    return f"{job_name(number)}-node-0-{rank}-abcde"


def _pod_uid(number: int, rank: int) -> str:
    return _uid("9", number + (rank << 16))


def pod(number: int, rank: int = 0) -> dict[str, Any]:
    name, began = job_name(number), "2026-01-23T10:00:00Z"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": pod_name(number, rank),
            "generateName": f"{name}-node-0-{rank}-",
            "namespace": namespace(number),
            "uid": _pod_uid(number, rank),
            "resourceVersion": "1",
            "creationTimestamp": began,
            "labels": {
                f"{JOBSET}global-replicas": "1",
                f"{JOBSET}job-global-index": "0",
                f"{JOBSET}job-index": "0",
                f"{JOBSET}job-key": f"{number:040x}",
                f"{JOBSET}jobset-name": name,
                f"{JOBSET}jobset-uid": _uid("5", number),
                f"{JOBSET}replicatedjob-name": "node",
                f"{JOBSET}replicatedjob-replicas": "1",
                f"{JOBSET}restart-attempt": "0",
                "batch.kubernetes.io/controller-uid": _uid("3", number),
                "batch.kubernetes.io/job-completion-index": str(rank),
                "batch.kubernetes.io/job-name": f"{name}-node-0",
                "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
            },
            "annotations": {
                f"{JOBSET}job-key": f"{number:040x}",
                f"{JOBSET}jobset-name": name,
                f"{JOBSET}replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": "0",
            },
            "ownerReferences": [controller("Job", f"{name}-node-0", _uid("3", number))],
            "managedFields": _MANAGED_FIELDS,
        },
        "spec": {"nodeName": f"gpu-{number % 500}", "containers": [_container(number)]},
        "status": {
            "phase": "Running",
            "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "startTime": began,
            "conditions": [{"type": t, "status": "True", "lastTransitionTime": began} for t in conditions],
            "containerStatuses": [
                {
                    "name": "node",
                    "image": "registry.example/team/train@sha256:" + f"{number:064x}",
                    "containerID": "containerd://" + f"{number:064x}",
                    "restartCount": 0,
                    "ready": True,
                    "state": {"running": {"startedAt": began}},
                }
            ],
        },
    }


def controller(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}


def _uid(kind: str, number: int) -> str:
    return f"{number:08x}-{kind}c5e-4c1d-9b8f-{number:012x}"


def _container(number: int) -> dict[str, Any]:
    env = {f"SETTING_{n}": _filler(number, 40) for n in range(12)} | {"PET_NNODES": "1"}
    return {
        "name": "node",
        "image": "registry.example/team/train:1",
        "command": ["torchrun", "--nproc-per-node=8", "/workspace/train.py", _filler(number, 200)],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": [{"name": f"volume-{n}", "mountPath": f"/mnt/{n}"} for n in range(4)],
    }


_MANAGED_FIELDS = [  # as large as real ones; each object has the same
    {
        "manager": "controller",
        "operation": "Update",
        "fieldsV1": {f"f:field-{n}": {"f:value": {}} for n in range(80)},
    }
]


def _filler(number: int, characters: int) -> str:
    return (f"{number:x} " * characters)[:characters]


def batch_job(number: int) -> dict[str, Any]:
    """The Job between a pod and its JobSet: its metadata, and what is read of the rest."""
    name = job_name(number)
    return {
        "metadata": {
            "name": f"{name}-node-0",
            "namespace": namespace(number),
            "uid": _uid("3", number),
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-23T10:00:00Z",
            "labels": {
                f"{JOBSET}global-replicas": "1",
                f"{JOBSET}job-index": "0",
                f"{JOBSET}job-key": f"{number:040x}",
                f"{JOBSET}jobset-name": name,
                f"{JOBSET}jobset-uid": _uid("5", number),
                f"{JOBSET}replicatedjob-name": "node",
                f"{JOBSET}restart-attempt": "0",
                "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
            },
            "ownerReferences": [controller("JobSet", name, _uid("5", number))],
            "managedFields": _MANAGED_FIELDS,
        },
        "spec": {"completionMode": "Indexed", "completions": 1024},
    }


class _Token(msgspec.Struct):
    token: str


class _TokenReview(msgspec.Struct):
    spec: _Token


def reviewed(token: str) -> dict[str, Any]:
    """What a token review says of it."""
    if token == TOKEN:
        user = {"username": "alice", "uid": "1", "groups": ["researchers"]}
        return {"authenticated": True, "user": user}
    if token.startswith(f"{TOKEN}-"):
        other: dict[str, Any] = {"username": token, "uid": token, "groups": ["researchers"]}
        return {"authenticated": True, "user": other}
    if not token.startswith(POD_TOKEN):
        return {"authenticated": False}
    digits = token[len(POD_TOKEN) :]
    number, rank = int(digits[:5]), int(digits[5:10])
    extra = {
        "authentication.kubernetes.io/pod-name": [pod_name(number, rank)],
        "authentication.kubernetes.io/pod-uid": [_pod_uid(number, rank)],
    }
    name = f"system:serviceaccount:{namespace(number)}:default"
    user = {"username": name, "uid": "1", "groups": ["system:serviceaccounts"], "extra": extra}
    return {"authenticated": True, "user": user, "audiences": [AUDIENCE]}


KINDS = {"trainjobs": train_job, "jobsets": job_set, "jobs": batch_job, "pods": pod}
ONE_OF = {"jobs": batch_job, "jobsets": job_set}  # read one by one, as owners of pods


@dataclass(slots=True)
class Changes:
    """How often a job changes; may be set anew at any time."""

    per_s: float
    in_one_namespace: bool = False  # else in all of them, in turn
    _number: int = 0
    _turned: asyncio.Event = field(default_factory=asyncio.Event)

    def turn(self, per_s: float) -> None:
        self.per_s = per_s
        self._turned.set()

    async def write(self, stream: web.StreamResponse, jobs: int) -> None:
        """One job after the other gets another label, evenly; each change carries its own time."""
        loop = asyncio.get_running_loop()
        step = NAMESPACES if self.in_one_namespace else 1
        while True:
            self._turned.clear()
            due = loop.time()
            while not self._turned.is_set() and self.per_s:
                self._number += 1
                due += 1 / self.per_s
                await asyncio.sleep(max(0.0, due - loop.time()))
                changed = train_job(self._number * step % jobs)
                changed["metadata"]["resourceVersion"] = str(self._number + 1)
                changed["metadata"]["labels"]["changed-at"] = f"{time.time():.6f}"
                await stream.write(msgspec.json.encode({"type": "MODIFIED", "object": changed}) + b"\n")
            await self._turned.wait()


@functools.lru_cache(maxsize=512)  # those of 40,000 jobs
def _page(plural: str, start: int, end: int, jobs: int) -> bytes:
    """Made once: what one core does meanwhile slows the other, and so the server that starts there."""
    meta = {"resourceVersion": "1", "continue": str(end) if end < jobs else ""}
    return msgspec.json.encode({"metadata": meta, "items": [KINDS[plural](n) for n in range(start, end)]})


def application(
    jobs: int,
    changes: Changes,
    *,
    say: Callable[[], bytes] | None = document,  # None: no job has a progress file
    trust: Mapping[str, str] | None = None,  # data of ConfigMap extension-apiserver-authentication
    answer: Callable[[str, Mapping[str, str]], bytes | None] | None = None,  # by path and query; None: 404
) -> web.Application:
    app = web.Application(client_max_size=2**20)
    meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system", "resourceVersion": "1"}
    trusted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": trust} if trust else None

    async def collection(request: web.Request) -> web.StreamResponse:
        plural = request.path.rpartition("/")[2]
        if answer is not None:
            body = answer(request.path, request.query)
            if body is None:
                return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)
            if "watch" not in request.query:
                return web.Response(body=body, content_type="application/json")
        elif "watch" not in request.query:
            return web.Response(body=page(plural, request.query), content_type="application/json")
        stream = web.StreamResponse()
        await stream.prepare(request)
        if plural == "trainjobs":
            await changes.write(stream, jobs)
        await asyncio.Event().wait()
        return stream

    def page(plural: str, query: Mapping[str, str]) -> bytes:
        selector = query.get("labelSelector", "")
        if selector and not selector.startswith(f"{JOBSET}jobset-name"):
            return _page(plural, 0, 0, 0)  # all objects here are of JobSets
        start = int(query.get("continue") or 0)
        return _page(plural, start, min(jobs, start + int(query.get("limit") or jobs)), jobs)

    async def config_map(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            await asyncio.Event().wait()
        return web.json_response(
            {"metadata": {"resourceVersion": "1"}, "items": [trusted] if trusted else []}
        )

    async def one_config_map(_request: web.Request) -> web.Response:
        if trusted:
            return web.json_response(trusted)
        return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)

    async def token_review(request: web.Request) -> web.Response:
        token = msgspec.json.decode(await request.read(), type=_TokenReview).spec.token
        body = msgspec.json.encode({"kind": "TokenReview", "status": reviewed(token)})
        return web.Response(body=body, status=201, content_type="application/json")

    async def access_review(request: web.Request) -> web.Response:
        review = await request.json()
        review["status"] = {"allowed": True}
        return web.json_response(review, status=201)

    async def execute(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
        await socket.prepare(request)
        await socket.send_bytes(b"\x01")
        await socket.send_bytes(b"\x02" + NO_FILE if say is None else b"\x01" + say())
        await socket.send_bytes(
            b"\x03" + (EXIT_CODE_1 if say is None else b'{"metadata":{},"status":"Success"}')
        )
        await socket.close()
        return socket

    async def one(request: web.Request) -> web.Response:
        plural, parts = request.match_info["plural"], request.match_info["name"].split("-")
        number = int(parts[1])
        made = pod(number, int(parts[4])) if plural == "pods" else ONE_OF[plural](number)
        return web.Response(body=msgspec.json.encode(made), content_type="application/json")

    async def named(request: web.Request) -> web.Response:
        """Jobs of a namespace that have a name: one, or none. A replica asks so whether a job exists."""
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        made = KINDS[request.match_info["plural"]](number := int(name.removeprefix("job-")))
        is_there = number < jobs and made["metadata"]["namespace"] == request.match_info["namespace"]
        found = {"metadata": {"resourceVersion": "1"}, "items": [made] if is_there else []}
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    lease: dict[str, Any] = {}

    async def one_lease(request: web.Request) -> web.Response:
        """Of several replicas one owns the jobs; there is one Lease here, whatever it is called."""
        if request.method == "GET" and not lease:
            return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)
        if request.method != "GET":
            given = await request.json()
            version = lease.get("metadata", {}).get("resourceVersion", "0")
            if lease and given["metadata"].get("resourceVersion") != version:
                return web.json_response({"kind": "Status", "reason": "Conflict", "code": 409}, status=409)
            lease["spec"] = {**lease.get("spec", {}), **given["spec"]}
            lease["metadata"] = {"resourceVersion": str(int(version) + 1)}
        return web.json_response(lease)

    async def turn(request: web.Request) -> web.Response:
        changes.turn(float(request.query["per-s"]))
        return web.Response()

    app.router.add_get("/apis/trainer.kubeflow.org/v1alpha1/trainjobs", collection)
    app.router.add_get("/apis/jobset.x-k8s.io/v1alpha2/jobsets", collection)
    app.router.add_get("/apis/batch/v1/jobs", collection)
    app.router.add_get("/api/v1/pods", collection)
    if answer is not None:
        app.router.add_get("/apis/{group}/{version}", collection)
        app.router.add_get("/apis/{group}/{version}/{plural}", collection)
    app.router.add_get("/api/v1/namespaces/kube-system/configmaps", config_map)
    app.router.add_get("/api/v1/namespaces/kube-system/configmaps/{name}", one_config_map)
    app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", token_review)
    app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", access_review)
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", execute)
    for group, plural in (
        ("api/v1", "pods"),
        ("apis/batch/v1", "jobs"),
        ("apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    ):
        app.router.add_get(f"/{group}/namespaces/{{namespace}}/{{plural:{plural}}}/{{name}}", one)
    for path in ("trainer.kubeflow.org/v1alpha1", "jobset.x-k8s.io/v1alpha2"):
        app.router.add_get(f"/apis/{path}/namespaces/{{namespace}}/{{plural:trainjobs|jobsets}}", named)
    app.router.add_get(CHANGES, turn)
    leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    app.router.add_post(leases, one_lease)
    app.router.add_route("*", f"{leases}/{{name}}", one_lease)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--changes-per-s", type=float, default=0.0)
    parser.add_argument("--changes-in-one-namespace", action="store_true")
    parser.add_argument("--silent", action="store_true", help="no job has a progress file")
    parser.add_argument("--still", action="store_true", help="every probe brings the same document")
    parser.add_argument(
        "--earlier", type=int, default=0, help="values of each metric before the present ones"
    )
    parser.add_argument("--trust", type=Path, help="data of extension-apiserver-authentication, JSON")
    given = parser.parse_args()
    trust = json.loads(given.trust.read_text()) if given.trust else None
    new = functools.partial(document, given.earlier)
    same = new()
    say = None if given.silent else (lambda: same) if given.still else new
    changes = Changes(given.changes_per_s, given.changes_in_one_namespace)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(given.cert, given.key)
    web.run_app(
        application(given.jobs, changes, say=say, trust=trust),
        host="127.0.0.1",
        port=given.port,
        ssl_context=context,
        access_log=None,
        print=None,
        shutdown_timeout=0.1,
        loop=uvloop.new_event_loop(),
    )


if __name__ == "__main__":
    main()
