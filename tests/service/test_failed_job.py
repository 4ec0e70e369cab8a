"""A job of two nodes of which the second fails: from kube-apiserver's objects to what a user is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.asgi import Answer, call
from tests.service.fake_apiserver import fake_apiserver
from visibility_api.app import Application
from visibility_api.assembly import Clients, assemble
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.models.served import GROUP_VERSION
from visibility_api.settings.reading import read_settings

JOB = f"/apis/{GROUP_VERSION}/namespaces/team-a/trainjobs/bert"
AT = "2026-01-23T10:30:00Z"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def owned(kind: str, name: str, uid: str) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}]


def meta(name: str, uid: str, **more: Any) -> dict[str, Any]:
    created = {"creationTimestamp": "2026-01-23T10:00:00Z", "resourceVersion": "1"}
    return {"name": name, "namespace": "team-a", "uid": uid, **created, **more}


def node(index: int, state: dict[str, Any]) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "bert",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return {
        "metadata": meta(
            f"bert-node-0-{index}-abcde",
            f"pod-{index}",
            labels=labels,
            ownerReferences=owned("Job", "bert-node-0", "job-1"),
        ),
        "spec": {"nodeName": f"gpu-{index}", "containers": [{"name": "node"}]},
        "status": {
            "phase": "Failed" if "terminated" in state else "Running",
            "startTime": "2026-01-23T10:00:05Z",
            "containerStatuses": [{"name": "node", "restartCount": 0, "state": state}],
        },
    }


OOM = {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-23T10:00:09Z", "finishedAt": AT}
LATER = {
    "exitCode": 1,
    "reason": "Error",
    "startedAt": OOM["startedAt"],
    "finishedAt": "2026-01-23T10:30:20Z",
}
NODES = [node(0, {"terminated": LATER}), node(1, {"terminated": OOM})]
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "FailedJobs",
    "message": "jobset failed due to one or more job failures (first failed job: bert-node-0)",
    "lastTransitionTime": "2026-01-23T10:30:30Z",
}
CONTAINER = {"name": "node", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
JOBSET = {
    "metadata": meta("bert", "jobset-1", ownerReferences=owned("TrainJob", "bert", "trainjob-1")),
    "spec": {
        "replicatedJobs": [
            {
                "name": "node",
                "replicas": 1,
                "template": {
                    "metadata": {"labels": {ANCESTOR: "trainer"}},
                    "spec": {
                        "parallelism": 2,
                        "completions": 2,
                        "template": {"spec": {"containers": [CONTAINER]}},
                    },
                },
            }
        ]
    },
}
OBJECTS = {
    "trainjobs": [{"metadata": meta("bert", "trainjob-1"), "spec": {}, "status": {"conditions": [FAILED]}}],
    "jobsets": [JOBSET],
    "jobs": [
        {
            "metadata": meta("bert-node-0", "job-1", ownerReferences=owned("JobSet", "bert", "jobset-1")),
            "status": {"ready": 0, "failed": 2},
        }
    ],
    "pods": NODES,
}


class Cluster:
    """As much of kube-apiserver as is asked; jane may read logs, bob everything else."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, query = request.path, request.query
        if path.endswith("/log"):
            assert path == "/api/v1/namespaces/team-a/pods/bert-node-0-1-abcde/log"
            return web.Response(body=b"loading\nCUDA out of memory\n")
        if path.endswith("tokenreviews"):
            review = await request.json()
            user = {"username": review["spec"]["token"], "groups": ["system:authenticated"]}
            return web.json_response({"status": {"authenticated": True, "user": user}}, status=201)
        if path.endswith("subjectaccessreviews"):
            spec = (await request.json())["spec"]
            asked = spec["resourceAttributes"]
            allowed = spec["user"] == "jane" or asked["resource"] != "pods"
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        if "watch" in query:
            await self.done.wait()
            return web.json_response({})
        plural = path.rpartition("/")[2]
        items = OBJECTS.get(plural, [])
        if "job-index=0" in query.get("labelSelector", ""):
            items = [i for i in items if plural != "pods" or i["metadata"]["uid"] == "pod-0"]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


@asynccontextmanager
async def running(sources: str) -> AsyncIterator[Application]:
    cluster = Cluster()
    async with fake_apiserver(cluster.handle) as client:
        made = assemble(
            read_settings([f"--sources={sources}"]),
            Clients(cluster=client, authentication=client, authorization=client),
            RequestHeaderConfig(),
            asyncio.Event(),
            certificate=lambda: b"",
            proof=lambda: "",
        )
        await made.load()
        tasks = [asyncio.create_task(loop()) for name, loop in made.loops if name == "role"]
        try:
            yield made.app
        finally:
            cluster.done.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def ask(app: Application, target: str, user: str = "jane") -> Answer:
    return await call(app, target, headers=[("Authorization", f"Bearer {user}")])


async def until(app: Application, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The job's status, once it is so."""
    async with asyncio.timeout(60):
        while True:
            answer = await ask(app, JOB)
            if answer.status == 200 and holds(status := answer.json()["status"]):
                return dict(status)
            await asyncio.sleep(0.02)


async def test_the_second_node_is_named_and_its_log_is_for_whoever_may_read_it() -> None:
    async with running("logs") as app:
        status = await until(app, lambda seen: seen.get("failure", {}).get("replica") == "node-1")
        assert status["phaseReason"] == "FailedJobs"
        assert (status["failure"]["reason"], status["failure"]["exitCode"]) == ("OOMKilled", 137)
        assert status["failure"]["nodeName"] == "gpu-1"
        assert status["replicas"] == [
            {"name": "node", "desired": 2, "ready": 0, "active": 0, "succeeded": 0, "failed": 2}
        ]
        assert status["resources"]["accelerators"] == 16
        tail = await ask(app, f"{JOB}/log-tail")
        assert (tail.status, tail.json()["lines"]) == (200, ["loading", "CUDA out of memory"])
        assert tail.json()["previous"] is False
        refused = await ask(app, f"{JOB}/log-tail", "bob")
        assert refused.status == 403
        assert 'User "bob" cannot get resource "pods/log"' in refused.json()["message"]


async def test_without_the_source_logs_no_log_is_read() -> None:
    async with running("exec") as app:
        await until(app, lambda _seen: True)
        answer = await ask(app, f"{JOB}/log-tail")
        assert answer.status == 403
        assert "switch on its source logs" in json.loads(answer.body)["message"]
