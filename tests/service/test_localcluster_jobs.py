"""TrainJobs on the local cluster: which pods they become, and how those live, fail, restart and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcluster import LocalCluster
from localcluster.machinery.metadata import condition_is, labels_of
from localcluster.machinery.status import ApiError
from tests.service.waiting import DEADLINE_S, eventually

NAMESPACE = "default"
FOREVER = "import time; print('up', flush=True); time.sleep(600)"


async def start_job(cluster: LocalCluster, name: str, script: str, **spec: Any) -> None:
    trainer = {"image": "python", "command": ["python", "-c", script]} | spec.pop("trainer", {})
    wanted = {"runtimeRef": {"name": spec.pop("runtime", "torch-distributed")}, "trainer": trainer} | spec
    await cluster.admin.create(
        "trainjobs", {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": wanted}
    )


async def until(cluster: LocalCluster, plural: str, name: str, claim: Callable[[Any], bool]) -> Any:
    """The object once the claim holds; follows the API's own watch."""
    async with asyncio.timeout(DEADLINE_S):
        async for kind, thing in cluster.admin.watch(
            plural, NAMESPACE, fieldSelector=f"metadata.name={name}"
        ):
            if kind != "DELETED" and claim(thing):
                return thing
    raise AssertionError("the watch ended")


async def pods_of(cluster: LocalCluster, job: str, count: int = 1, phase: str = "Running") -> list[Any]:
    """That many pods of one TrainJob in that phase, by index."""
    found: list[Any] = []

    async def are_there() -> bool:
        selector = f"jobset.sigs.k8s.io/jobset-name={job}"
        pods = await cluster.admin.list("pods", NAMESPACE, labelSelector=selector)
        found[:] = [pod for pod in pods if pod["status"]["phase"] == phase]
        return len(found) == count

    await eventually(are_there)
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


async def _is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())  # noqa: ASYNC240 - a local directory, once


async def test_a_container_that_takes_more_memory_than_it_may_is_killed(cluster: LocalCluster) -> None:
    limit = {"resourcesPerNode": {"limits": {"memory": "64Mi"}}}
    # Not as fast as it can: a kubelet that is held up for seconds must not cost the machine its memory.
    script = "import time\nkept = []\nwhile True: kept.append(b'x' * 2**21); time.sleep(0.05)"
    await start_job(cluster, "leaks", script, trainer=limit)

    def has_ended(pod: Any) -> bool:
        return "terminated" in pod["status"].get("containerStatuses", [{}])[0].get("lastState", {})

    async with asyncio.timeout(DEADLINE_S):
        selector = "jobset.sigs.k8s.io/jobset-name=leaks"
        async for _, pod in cluster.admin.watch("pods", NAMESPACE, labelSelector=selector):
            if has_ended(pod):
                break
    ended = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


async def test_a_job_past_its_backoff_limit_fails_and_its_pod_is_deleted(cluster: LocalCluster) -> None:
    runtime = await cluster.admin.get("clustertrainingruntimes", "torch-distributed")
    spec = runtime["spec"]
    spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 1
    await cluster.admin.create("clustertrainingruntimes", {"metadata": {"name": "impatient"}, "spec": spec})
    await start_job(cluster, "bad", "raise SystemExit(3)", runtime="impatient")
    failed = await until(cluster, "trainjobs", "bad", lambda each: condition_is(each, "Failed"))
    assert failed["status"]["conditions"][-1]["reason"] == "FailedJobs"
    job = await cluster.admin.get("jobs", "bad-node-0", NAMESPACE)
    assert [found["reason"] for found in job["status"]["conditions"]] == ["BackoffLimitExceeded"] * 2
    assert await cluster.admin.list("pods", NAMESPACE) == []


async def test_a_jobset_starts_again_under_a_new_attempt(cluster: LocalCluster) -> None:
    runtime = await cluster.admin.get("clustertrainingruntimes", "torch-distributed")
    spec = runtime["spec"]
    template = spec["template"]["spec"]
    template["failurePolicy"] = {"maxRestarts": 1}
    template["replicatedJobs"][0]["template"]["spec"] |= {"backoffLimit": 0}
    template["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    await cluster.admin.create("clustertrainingruntimes", {"metadata": {"name": "stubborn"}, "spec": spec})
    await start_job(cluster, "again", "raise SystemExit(1)", runtime="stubborn")
    failed = await until(cluster, "trainjobs", "again", lambda each: condition_is(each, "Failed"))
    assert failed["status"]["conditions"][-1]["reason"] == "ReachedMaxRestarts"
    jobset = await cluster.admin.get("jobsets", "again", NAMESPACE)
    assert jobset["status"]["restarts"] == 1
    pods = await pods_of(cluster, "again", 1, "Failed")
    assert labels_of(pods[0])["jobset.sigs.k8s.io/restart-attempt"] == "1"


async def test_suspending_takes_the_pods_away_and_resuming_brings_new_ones(cluster: LocalCluster) -> None:
    await start_job(cluster, "pause", FOREVER)
    before = (await pods_of(cluster, "pause"))[0]
    await cluster.admin.patch("trainjobs", "pause", {"spec": {"suspend": True}}, NAMESPACE)
    await until(cluster, "trainjobs", "pause", lambda each: condition_is(each, "Suspended"))
    await pods_of(cluster, "pause", 0)
    await cluster.admin.patch("trainjobs", "pause", {"spec": {"suspend": False}}, NAMESPACE)
    await until(cluster, "trainjobs", "pause", lambda each: condition_is(each, "Suspended", "False"))
    after = (await pods_of(cluster, "pause"))[0]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def test_deleting_the_train_job_ends_its_processes_gracefully(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    farewell = tmp_path / "farewell"
    script = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(farewell)!r}, 'w').write('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True)\n"
        "while True: time.sleep(1)"
    )
    await start_job(cluster, "polite", script)
    pod = (await pods_of(cluster, "polite"))[0]
    await eventually(lambda: _says_up(cluster, pod["metadata"]["name"]))
    await cluster.admin.delete("trainjobs", "polite", NAMESPACE)
    await pods_of(cluster, "polite", 0)
    await eventually(lambda: _is_empty(cluster.directory / "pods"))
    assert farewell.read_text() == "saved"


async def _says_up(cluster: LocalCluster, pod: str, container: str = "node") -> bool:
    return b"up" in await cluster.kubelet.logs(NAMESPACE, pod, container)


@pytest.mark.parametrize(
    ("written", "shown"),
    [("'tail' * 2000", "tail" * 1024), ("'short'", "short"), ("''", None)],
)
async def test_the_last_4096_bytes_of_the_termination_message_are_kept(
    cluster: LocalCluster, written: str, shown: str | None
) -> None:
    await start_job(
        cluster,
        "t",
        f"import os; open(os.environ['TRAINJOB_TERMINATION_MESSAGE_PATH'], 'w').write({written})",
    )
    pod = (await pods_of(cluster, "t", 1, "Succeeded"))[0]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"].get("message") == shown


@pytest.mark.parametrize("field", ["runtimePatches", "podTemplateOverrides"])
async def test_what_would_not_be_applied_is_refused(cluster: LocalCluster, field: str) -> None:
    with pytest.raises(ApiError) as refused:
        await start_job(cluster, "patched", FOREVER, **{field: [{"manager": "example.com/me"}]})
    assert (refused.value.code, field in str(refused.value)) == (422, True)
