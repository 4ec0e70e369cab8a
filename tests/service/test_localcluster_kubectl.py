"""Real kubectl against the local cluster: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from localcluster import LocalCluster
from tests.service.waiting import DEADLINE_S, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
KUBECTL = Path(sys.executable).with_name("kubectl")

COUNTING = """
import json, os, time
step = 0
while True:
    step += 1
    path = os.environ["TRAINJOB_PROGRESS_FILE"]
    open(path + ".new", "w").write(json.dumps({"step": step}))
    os.replace(path + ".new", path)
    print("step", step, flush=True)
    time.sleep(0.05)
"""
ENDING = """
import os
open(os.environ["TRAINJOB_TERMINATION_MESSAGE_PATH"], "w").write("the last word")
print("done")
"""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Shell:
    """kubectl for one user of the cluster."""

    cluster: LocalCluster
    cache: Path

    def command(self, user: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig(user))}
        return [str(KUBECTL), f"--cache-dir={self.cache}", *arguments], environment

    async def __call__(self, *arguments: str, user: str = "admin", stdin: str = "") -> Ran:
        argv, environment = self.command(user, *arguments)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    async def output(self, *arguments: str, user: str = "admin", stdin: str = "") -> str:
        ran = await self(*arguments, user=user, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran.out


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with LocalCluster.start(tmp_path_factory.mktemp("cluster")) as running:
        running.add_user("alice")
        running.add_user("bob")
        running.add_token_user("carol", ["system:masters"])
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def kubectl(cluster: LocalCluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path / "cache")


@pytest_asyncio.fixture(loop_scope="module")
async def namespace(cluster: LocalCluster) -> AsyncIterator[str]:
    name = f"t-{secrets.token_hex(4)}"
    await cluster.admin.create("namespaces", {"metadata": {"name": name}})
    yield name
    await cluster.admin.delete("namespaces", name)


def train_job(namespace: str, name: str, script: str, **spec: object) -> str:
    trainer = {"image": "python", "command": ["python", "-c", script]}
    wanted = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer} | spec
    meta = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return yaml.safe_dump(kind | {"metadata": meta, "spec": wanted})


async def running_pod(cluster: LocalCluster, namespace: str, index: int = 0) -> str:
    found: list[str] = []

    async def runs() -> bool:
        pods = await cluster.admin.list(
            "pods",
            namespace,
            labelSelector=f"batch.kubernetes.io/job-completion-index={index}",
            fieldSelector="status.phase=Running",
        )
        found[:] = [pod["metadata"]["name"] for pod in pods]
        return bool(found)

    await eventually(runs)
    return found[0]


async def test_applied_twice_an_object_is_created_then_configured(kubectl: Shell, namespace: str) -> None:
    first = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {namespace}}}\ndata: {{k: one}}\n"
    )
    assert "configmap/a created" in await kubectl.output("apply", "-f", "-", stdin=first)
    assert "configmap/a unchanged" in await kubectl.output("apply", "-f", "-", stdin=first)
    assert "configmap/a configured" in await kubectl.output(
        "apply", "-f", "-", stdin=first.replace("one", "two")
    )
    shown = await kubectl.output("get", "configmap", "a", "-n", namespace, "-o", "jsonpath={.data.k}")
    assert shown == "two"
    applied = await kubectl.output("apply", "--server-side", "-f", "-", stdin=first)
    assert "serverside-applied" in applied


async def test_a_train_job_runs_to_its_end_and_wait_sees_it(
    kubectl: Shell, cluster: LocalCluster, namespace: str
) -> None:
    manifest = train_job(namespace, "short", ENDING)
    await kubectl.output("create", "-f", "-", stdin=manifest)
    waited = await kubectl.output(
        "wait", "trainjob/short", "-n", namespace, "--for=condition=Complete", "--timeout=80s"
    )
    assert "condition met" in waited
    pod = json.loads(await kubectl.output("get", "pods", "-n", namespace, "-o", "json"))["items"][0]
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "the last word")
    assert await kubectl.output("logs", pod["metadata"]["name"], "-n", namespace) == "done\n"
    described = await kubectl.output("describe", "pod", pod["metadata"]["name"], "-n", namespace)
    assert "the last word" in described
    await kubectl.output("delete", "trainjob", "short", "-n", namespace)
    await eventually(lambda: _none_left(cluster, "pods", namespace))


async def _none_left(cluster: LocalCluster, plural: str, namespace: str) -> bool:
    return await cluster.admin.list(plural, namespace) == []


async def test_exec_and_logs_reach_the_running_process(
    kubectl: Shell, cluster: LocalCluster, namespace: str
) -> None:
    await kubectl.output("create", "-f", "-", stdin=train_job(namespace, "long", COUNTING))
    pod = await running_pod(cluster, namespace)

    async def has_reported() -> bool:
        return (
            await kubectl("exec", pod, "-n", namespace, "--", "cat", "--", "/tmp/trainjob-progress.json")
        ).code == 0

    await eventually(has_reported)
    read = await kubectl.output(
        "exec", pod, "-n", namespace, "--", "cat", "--", "/tmp/trainjob-progress.json"
    )
    assert json.loads(read)["step"] >= 1
    failed = await kubectl("exec", pod, "-n", namespace, "--", "cat", "--", "/no/such/file")
    assert failed.code == 1
    assert "No such file" in failed.err
    assert "exit code 1" in failed.err
    missing = await kubectl("exec", pod, "-n", namespace, "--", "no-such-program")
    assert missing.code != 0
    assert "executable file not found" in missing.err
    newest = await kubectl.output("logs", pod, "-n", namespace, "--tail=1")
    assert newest.startswith("step ")
    assert newest.count("\n") == 1
    again = await kubectl("logs", pod, "-n", namespace, "--previous")
    assert "previous terminated container" in again.err


async def test_get_watch_prints_each_change(kubectl: Shell, cluster: LocalCluster, namespace: str) -> None:
    argv, environment = kubectl.command(
        "admin", "get", "configmap", "-n", namespace, "-w", "-o", "jsonpath={.metadata.name}={.data.k}{'\\n'}"
    )
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, env=environment)
    assert process.stdout
    try:
        before = cluster.apiserver.store.watcher_count()

        async def watches() -> bool:
            return cluster.apiserver.store.watcher_count() > before

        await eventually(watches)
        await cluster.admin.create(
            "configmaps", {"metadata": {"name": "w", "namespace": namespace}, "data": {"k": "1"}}
        )
        await cluster.admin.patch("configmaps", "w", {"data": {"k": "2"}}, namespace)
        async with asyncio.timeout(DEADLINE_S):
            lines = [await process.stdout.readline() for _ in range(2)]
        assert lines == [b"w=1\n", b"w=2\n"]
    finally:
        process.kill()
        await process.communicate()


async def test_a_user_without_rights_is_refused_in_the_servers_words(kubectl: Shell, namespace: str) -> None:
    ran = await kubectl("get", "pods", "-n", namespace, user="bob")
    refusal = 'pods is forbidden: User "bob" cannot list resource "pods" in API group ""'
    assert f'Error from server (Forbidden): {refusal} in the namespace "{namespace}"' in ran.err


async def test_rights_in_one_namespace_end_there(kubectl: Shell, namespace: str) -> None:
    await kubectl.output(
        "create", "rolebinding", "alice", "-n", namespace, "--clusterrole=edit", "--user=alice"
    )
    await eventually(lambda: _can_create(kubectl, namespace))
    assert (await kubectl("get", "pods", "-n", namespace, user="alice")).code == 0
    everywhere = await kubectl("get", "pods", "-A", user="alice")
    assert "at the cluster scope" in everywhere.err


async def _can_create(kubectl: Shell, namespace: str) -> bool:
    answered = await kubectl(
        "auth", "can-i", "create", "trainjobs.trainer.kubeflow.org", "-n", namespace, user="alice"
    )
    return answered.out.strip() == "yes"
