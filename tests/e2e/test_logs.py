"""The end of a container's log, through the API server and the kubelet."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.api import Object
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.workspace import User, Workspace
from tests.jobs import job_ref, rank0
from visibility_api.kube.client import KubeClient
from visibility_api.probing.logs_source import LogsSource
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

# Draws as tqdm does and prints as Hugging Face does. Dies at step 70 of its first life, stays in the next.
TRAINING = r"""
import os, sys, time
second = os.path.exists("once")
open("once", "w").close()
for step in range(0, 31 if second else 71, 10):
    sys.stderr.write(f"\r {step}%|{'█' * (step // 10)}| {step}/100 [00:{step:02d}<01:00,  1.00it/s]")
    print({"loss": str(round(1 - step / 200, 4)), "epoch": str(step / 100)}, flush=True)
sys.stderr.write("\n")
sys.stderr.flush()
time.sleep(600 if second else 0)
sys.exit(1)
"""


def start_pod(workspace: Workspace, name: str, **spec: Any) -> None:
    container = {
        "name": "c",
        "image": "python:3",
        "command": ["python", "-c", TRAINING],
        "workingDir": "/data",
    }
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    volumes = [{"name": "data", "emptyDir": {}}]
    workspace.cluster.admin.create(
        f"/api/v1/namespaces/{workspace.name}/pods",
        {"metadata": {"name": name}, "spec": {"containers": [container], "volumes": volumes, **spec}},
    )


def wait_life(workspace: Workspace, name: str, restarts: int) -> None:
    path = f"/api/v1/namespaces/{workspace.name}/pods/{name}"

    def runs() -> Object | None:
        (status,) = workspace.cluster.admin.get(path)["status"]["containerStatuses"]
        assert status["restartCount"] == restarts
        assert "running" in status["state"]
        return status

    wait_until(runs, what=f"{name} runs after {restarts} restarts")


def look(user: User, workspace: Workspace, pod: str, *, back: bool = False) -> Outcome:
    ref = job_ref(namespace=workspace.name)
    probed = rank0(pod_name=pod, container_name="c", progress_path="/tmp/none", restart_count=1)

    async def ask() -> Outcome:
        async with await KubeClient.connect(user.kubeconfig) as client:
            source = LogsSource(client, timeout_s=PATIENCE_S)
            return await (source.final_read if back else source.probe)(ref, probed)

    return asyncio.run(ask())


def test_a_restarted_process_and_the_one_before_it_are_both_read(bare: Workspace) -> None:
    start_pod(bare, "printing")
    wait_life(bare, "printing", restarts=1)

    def has_said_all() -> Progress | None:
        found = look(bare.admin, bare, "printing")
        return found if isinstance(found, Progress) and found.step == 30 else None

    now = wait_until(has_said_all, what="the second life is at step 30")
    assert now is not None
    assert (now.total_steps, now.epoch, now.metrics) == (100, 0.3, (("loss", "0.85"),))
    before = look(bare.admin, bare, "printing", back=True)
    assert isinstance(before, Progress)
    assert (before.step, before.epoch, before.metrics) == (70, 0.7, (("loss", "0.65"),))
    assert before.timestamp is not None
    assert now.timestamp is not None
    assert before.timestamp < now.timestamp


def test_what_cannot_be_read_says_why(bare: Workspace) -> None:
    start_pod(bare, "first")
    wait_life(bare, "first", restarts=1)
    assert reason(look(bare.bob, bare, "first")) == ("LogsForbidden", RetryClass.FORBIDDEN)
    assert reason(look(bare.admin, bare, "gone")) == ("PodGone", RetryClass.SOON)


def reason(outcome: Outcome) -> tuple[str, RetryClass]:
    assert isinstance(outcome, Refused)
    return outcome.reason, outcome.retry
