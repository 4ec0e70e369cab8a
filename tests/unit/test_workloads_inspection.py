"""When the pods of a job are listed, and what of them is believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import JOB
from tests.workload_objects import TORCH, all_pods, pod, reference
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Phase, Replica, TrainingJob
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.workloads.inspection import Inspector, Limits, shows_failure
from visibility_api.workloads.kind import AllPods
from visibility_api.workloads.node_faults import NodeFaults
from visibility_api.workloads.pod_lists import PodLists
from visibility_api.workloads.replicas import Replicas

from .test_jobs_failure import failure
from .test_workloads_failures import ended

SOON = Limits(pace_s=0, second_look_s=0)
FAILED = replace(JOB, phase=Phase.FAILED)


def replica(index: int, state: dict[str, Any], *, owner: str = "uid of bert-node-0") -> dict[str, Any]:
    """As kube-apiserver writes it, with the labels that are not kept of watched pods."""
    name = f"bert-node-0-{index}-abcde"
    job = reference("Job", "bert-node-0", owner)
    made: dict[str, Any] = msgspec.to_builtins(pod(name=name, uid=f"p{index}", state=state, owner=job))
    made["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(index)}
    return made


class Cluster:
    """Answers lists of pods; what else a client does is not asked of it."""

    def __init__(self, *pages: Sequence[dict[str, Any]] | Exception, is_paged: bool = False) -> None:
        self.pages = list(pages)
        self.is_paged = is_paged  # they are the pages of one list, else each is one
        self.queries: list[dict[str, str]] = []

    async def get(self, path: str, *, query: Sequence[tuple[str, str]], **_limits: object) -> bytes:
        assert path == "/api/v1/namespaces/team-a/pods"
        self.queries.append(dict(query))
        page = self.pages.pop(0) if self.pages else ()
        if isinstance(page, Exception):
            raise page
        more = "more" if self.pages and self.is_paged else ""
        return msgspec.json.encode({"metadata": {"continue": more}, "items": page})


class Logs:
    """Says why pods have failed, by the classes given; of those without one, nothing."""

    def __init__(self, **classes: str) -> None:
        self._classes = classes
        self.read: list[str] = []

    async def explain(self, ref: JobRef, found: Failure) -> Failure:
        assert ref == JOB.ref
        self.read.append(found.replica)
        known = self._classes.get(found.replica.replace("-", "_"), "")
        if known == "hangs":
            await asyncio.Event().wait()
        if known == "unreadable":
            raise ApiError(404, "the pod is gone")
        return replace(found, cause_class=known, is_cascade=known == "PeerLost")


class Nodes:
    """Whose faults explain something from the look of this number on."""

    def __init__(self, explains_at: int) -> None:
        self._explains_at = explains_at
        self.looks: list[list[str]] = []  # the replicas that had failed, of each

    async def explain(self, _ref: JobRef, failures: Sequence[Failure], _replicas: object) -> bool:
        self.looks.append([each.replica for each in failures])
        return len(self.looks) >= self._explains_at


class Bench:
    def __init__(
        self, cluster: Cluster, limits: Limits, logs: Logs | None, nodes: Nodes | None = None
    ) -> None:
        self.found: list[Failure] = []
        self.changed = asyncio.Event()
        lists = PodLists(cast(KubeClient, cluster), self._all_pods)
        self.replicas = Replicas(lists)
        self.inspector = Inspector(
            lists,
            replicas=self.replicas,
            found=self._found,
            explain=logs.explain if logs is not None else None,
            nodes=cast(NodeFaults | None, nodes),
            limits=limits,
        )

    def _all_pods(self, ref: JobRef) -> AllPods | None:
        assert ref == JOB.ref
        return all_pods(TORCH)

    def _found(self, ref: JobRef, found: Failure) -> None:
        assert ref == JOB.ref
        self.found.append(found)


@asynccontextmanager
async def inspecting(
    cluster: Cluster, limits: Limits = SOON, logs: Logs | None = None, nodes: Nodes | None = None
) -> AsyncIterator[Bench]:
    bench = Bench(cluster, limits, logs, nodes)
    task = asyncio.create_task(bench.inspector.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - all in memory: one of the next turns brings it
            await asyncio.sleep(0)


async def test_of_all_pods_the_first_to_fail_is_found() -> None:
    cluster = Cluster(
        [replica(0, ended(1)), replica(1, {"running": {}})],
        [replica(2, ended(137, "OOMKilled", at="2026-01-23T10:29:50Z"))],
        is_paged=True,
    )
    async with inspecting(cluster) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: len(bench.found) == 1)
    (found,) = bench.found
    assert (found.replica, found.reason) == ("node-2", "OOMKilled")
    selector = "jobset.sigs.k8s.io/jobset-name=bert"
    assert cluster.queries[:2] == [
        {"labelSelector": selector, "resourceVersion": "0"},
        {"labelSelector": selector, "continue": "more"},
    ]


@pytest.mark.parametrize(
    ("logs", "read", "causes"),
    [
        pytest.param(Logs(node_1="FileMissing"), ["node-1"], ["", "FileMissing"], id="of what failed first"),
        pytest.param(
            Logs(node_1="PeerLost", node_0="FileMissing"),
            ["node-1", "node-0"],
            ["", "PeerLost", "FileMissing"],
            id="of others after a sign of another's failure",
        ),
        pytest.param(
            Logs(node_1="unreadable"), ["node-1", "node-0"], [""], id="none is known, and one log is gone"
        ),
    ],
)
async def test_logs_are_read_until_a_cause_is_known(logs: Logs, read: list[str], causes: list[str]) -> None:
    killed = ended(137, "OOMKilled", at="2026-01-23T11:00:00Z")  # which the kubelet has explained
    early = ended(1, at="2026-01-23T10:29:00Z")
    cluster = Cluster([replica(0, ended(1)), replica(1, early), replica(2, killed)])
    async with inspecting(cluster, Limits(pace_s=0, second_look_s=3600), logs) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: logs.read == read and len(bench.found) == len(causes))
    assert [each.cause_class for each in bench.found] == causes


async def test_logs_that_hang_take_the_place_of_other_jobs_for_one_time_limit() -> None:
    logs = Logs(node_0="hangs", node_1="hangs")
    cluster = Cluster([replica(0, ended(1)), replica(1, ended(1))], [replica(0, {"running": {}})])
    async with inspecting(cluster, Limits(pace_s=0, second_look_s=0, logs_s=0.01), logs) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: len(cluster.queries) == 2)
    assert len(logs.read) == 1


async def test_a_pod_that_only_claims_to_be_the_job_s_is_not_believed() -> None:
    forged = replica(1, ended(137, "OOMKilled", at="2026-01-23T10:29:00Z"), owner="of another")
    async with inspecting(Cluster([forged, replica(0, ended(1))])) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: bool(bench.found))
    assert bench.found[0].replica == "node-0"


async def test_pods_are_listed_twice_for_kubelets_report_late() -> None:
    cluster = Cluster([replica(0, {"running": {}})], [replica(0, ended(1))])
    async with inspecting(cluster) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: bool(bench.found) and not bench.inspector.waiting)
    assert len(cluster.queries) == 2


@pytest.mark.parametrize(("explains_at", "looks"), [(1, 2), (2, 2), (3, 3)])
async def test_nodes_are_read_a_minute_later_too_where_they_have_shown_nothing(
    explains_at: int, looks: int
) -> None:
    """Also of pods that are gone by then."""
    nodes, logs, cluster = (
        Nodes(explains_at),
        Logs(),
        Cluster([replica(1, ended(1))], [replica(1, ended(1))], []),
    )
    async with inspecting(cluster, Limits(pace_s=0, second_look_s=0, late_s=0), logs, nodes) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: len(nodes.looks) >= looks and not bench.inspector.waiting)
        for _ in range(20):
            await asyncio.sleep(0)
    assert nodes.looks == [["node-1"]] * looks


async def test_a_job_that_fails_again_and_again_is_listed_no_more_often() -> None:
    cluster = Cluster()
    async with inspecting(cluster, Limits(pace_s=0, second_look_s=3600)) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: len(cluster.queries) == 1)
        for _ in range(10):
            bench.inspector.job_changed(JOB, FAILED)
        assert bench.inspector.waiting == 1
        bench.inspector.job_gone(JOB.ref)
        assert bench.inspector.waiting == 0
    assert len(cluster.queries) == 1


async def test_no_more_jobs_wait_than_there_is_room_for() -> None:
    bench = Bench(Cluster(), Limits(waiting=1), None)
    bench.inspector.job_changed(JOB, FAILED)
    other = replace(FAILED, ref=msgspec.structs.replace(JOB.ref, uid="u2"))
    bench.inspector.job_changed(None, replace(other, failure=failure()))
    assert bench.inspector.waiting == 1


@pytest.mark.parametrize("error", [ApiError(500, "", ""), ValueError("s3cr3t")])
async def test_a_list_that_fails_ends_nothing(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(error, [replica(0, ended(1))])
    async with inspecting(cluster) as bench:
        bench.inspector.job_changed(JOB, FAILED)
        await until(lambda: len(bench.found) == 1)
    said = capsys.readouterr()
    assert "s3cr3t" not in said.out + said.err


def counted(**counts: int) -> TrainingJob:
    return replace(JOB, replicas=(Replica(name="node", desired=4, **counts),))


@pytest.mark.parametrize(
    ("before", "job", "expected"),
    [
        (None, JOB, False),
        (None, replace(JOB, failure=failure()), True),
        (None, counted(ready=3, active=4, failed=1), True),
        (JOB, FAILED, True),
        (FAILED, FAILED, False),
        (JOB, replace(JOB, failure=failure()), True),
        (replace(JOB, failure=failure()), replace(JOB, failure=failure()), False),
        (replace(JOB, failure=failure(s=1)), replace(JOB, failure=failure(s=2)), True),
        (counted(ready=4, failed=0), counted(ready=4, failed=1), True),
        (counted(ready=2, failed=0), counted(ready=4, failed=0), False),
        (counted(ready=4, failed=0), counted(ready=3, failed=0), True),  # a container was restarted in place
        (counted(ready=4, succeeded=0), counted(ready=2, succeeded=2), False),
        (counted(ready=4), replace(counted(ready=0), phase=Phase.SUSPENDED), False),
        (counted(ready=4), replace(counted(ready=0, failed=1), phase=Phase.SUCCEEDED), False),
        (JOB, replace(FAILED, runs_elsewhere=True), False),
    ],
)  # fmt: skip
async def test_pods_are_listed_when_something_new_has_failed(
    before: TrainingJob | None, job: TrainingJob, expected: bool
) -> None:
    assert shows_failure(before, job) is expected
