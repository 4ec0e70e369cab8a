"""Real kubectl against the local cluster, as the demo uses it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from localcluster import LocalCluster
from tests.service.waiting import DEADLINE_S, eventually

ENDING = """
import os
open(os.environ["TRAINJOB_TERMINATION_MESSAGE_PATH"], "w").write("the last word")
print("done")
"""
Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture
def kubectl(cluster: LocalCluster, tmp_path: Path) -> Kubectl:
    """What it prints as the administrator; it must not fail."""

    async def run(*arguments: str, stdin: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("kubectl")),
            f"--cache-dir={tmp_path / 'cache'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig("admin"))},
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()

    return run


async def test_applied_twice_an_object_is_created_then_configured(kubectl: Kubectl) -> None:
    first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: one}\n"
    for applied, word in (
        (first, "created"),
        (first, "unchanged"),
        (first.replace("one", "2"), "configured"),
    ):
        assert await kubectl("apply", "-f", "-", stdin=applied) == f"configmap/a {word}\n"
    assert await kubectl("get", "configmap", "a", "-o", "jsonpath={.data.k}") == "2"
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", stdin=first)


async def test_a_train_job_runs_to_its_end_and_wait_sees_it(kubectl: Kubectl, cluster: LocalCluster) -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "short", "namespace": "default"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"image": "python", "command": ["python", "-c", ENDING]},
        },
    }
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    waited = await kubectl("wait", "trainjob/short", "--for=condition=Complete", "--timeout=80s")
    assert "condition met" in waited
    pod = json.loads(await kubectl("get", "pods", "-o", "json"))["items"][0]
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "the last word")
    assert await kubectl("logs", pod["metadata"]["name"]) == "done\n"
    assert "the last word" in await kubectl("describe", "pod", pod["metadata"]["name"])
    await kubectl("delete", "trainjob", "short")

    async def none_is_left() -> bool:
        return await cluster.admin.list("pods", "default") == []

    await eventually(none_is_left)
