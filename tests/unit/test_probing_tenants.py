"""What slow answers of other namespaces cost a job: probes, final reads, initializers, inspections."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, T0, job_ref
from tests.workload_objects import TORCH, all_pods
from visibility_api.flowcontrol.report_shares import Budgets
from visibility_api.jobs.job import Initializer, JobRef, Phase, ProbeHints, Rank0, TrainingJob
from visibility_api.kube.client import KubeClient
from visibility_api.probing.initializers import InitializerReads
from visibility_api.probing.prober import Prober
from visibility_api.probing.readings import Readings
from visibility_api.reports.document import Outcome, Progress
from visibility_api.workloads.inspection import Inspector
from visibility_api.workloads.pod_lists import PodLists
from visibility_api.workloads.replicas import Replicas

from .virtual_time import NoTurns, in_virtual_time, readings_in_loop_time

INTERVAL_S, FOR_S = 2.0, 120.0  # of the victim
QUICK_S = 0.1
VICTIM = job_ref("bert", "team-a")
BEGIN_S = 5.0  # the others come one after the other within this time, which is best for them
Run = Callable[[], Any]


class Slow:
    """Answers the victim soon, and others after `takes_s`; when each of the victim's was begun."""

    def __init__(self, takes_s: float, name: str = "logs") -> None:
        self.name = name
        self.began: list[float] = []
        self._takes_s = takes_s

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome:
        return await self._answer(ref)

    async def final_read(self, ref: JobRef, rank0: Rank0) -> Outcome:
        return await self._answer(ref)

    async def tail(self, ref: JobRef, pod_name: str, container_name: str) -> bytes:
        await self._answer(ref)
        return b"1/12\n"

    async def get(self, path: str, **_limits: object) -> bytes:
        await self._answer(VICTIM if "/team-a/" in path else OTHERS[0])
        return b'{"metadata":{},"items":[]}'

    async def _answer(self, ref: JobRef) -> Outcome:
        if ref == VICTIM:
            self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(QUICK_S if ref == VICTIM else self._takes_s)
        return Progress(timestamp=T0, step=1)

    def gaps_s(self) -> list[float]:
        assert len(self.began) > 10
        return [after - before for before, after in itertools.pairwise(self.began)]


def others(namespaces: int) -> list[JobRef]:
    return [job_ref(f"job-{n}", f"team-x{n % namespaces}", f"x{n}") for n in range(1200)]


OTHERS = others(3)


def running(ref: JobRef, node: str, **rank0: Any) -> TrainingJob:
    interval_s = INTERVAL_S if ref == VICTIM else 1.0
    return replace(
        JOB,
        ref=ref,
        rank0=replace(RANK0, pod_uid=ref.uid, node_name=node, **rank0),
        hints=ProbeHints(interval_s=interval_s),
    )


def node_of(number: int) -> str:
    """A quarter of the jobs is on the victim's node; the others fill the server."""
    return "gpu-1" if number % 4 == 0 else f"gpu-{number}"


async def with_loop(run: Run, scene: Callable[[], Any]) -> None:
    loop = asyncio.create_task(run())
    await scene()
    loop.cancel()
    with suppress(asyncio.CancelledError):
        await loop


def prober(source: Slow) -> Prober:
    return Prober(
        {source.name: source},
        record=lambda _observation: True,
        now=lambda: datetime.now(UTC),
        interval_s=15.0,
        concurrency=256,
        readings=readings_in_loop_time(),
    )


@pytest.mark.parametrize(
    ("source", "namespaces", "takes_s"),
    [("exec", 1, 1.7), ("exec", 3, 10.0), ("http", 3, 10.0), ("logs", 3, 10.0)],
)
def test_slow_probes_of_other_namespaces_delay_a_job_by_one_interval_at_most(
    source: str, namespaces: int, takes_s: float
) -> None:
    slow = Slow(takes_s, source)

    @in_virtual_time
    async def scene() -> None:
        probes = prober(slow)

        async def jobs() -> None:
            declared = {"declared": ((source, "a variable"),), "http_port": 80, "pod_ip": "10.0.0.1"}
            probes.job_changed(running(VICTIM, "gpu-1", **declared))
            for number, ref in enumerate(others(namespaces)):
                probes.job_changed(running(ref, node_of(number), **declared))
                await asyncio.sleep(BEGIN_S / len(OTHERS))
            await asyncio.sleep(FOR_S)

        await with_loop(probes.run, jobs)

    scene()
    assert max(slow.gaps_s()) <= 2 * INTERVAL_S


@pytest.mark.parametrize("namespaces", [1, 3])
def test_slow_final_reads_of_other_namespaces_delay_a_job_by_one_interval_at_most(namespaces: int) -> None:
    slow = Slow(5.0)

    @in_virtual_time
    async def scene() -> None:
        probes = prober(slow)

        async def jobs() -> None:
            ended = [*enumerate(others(namespaces)), (0, VICTIM)]
            for number, ref in ended:
                if ref == VICTIM:
                    await asyncio.sleep(30.0)
                    slow.began.append(asyncio.get_running_loop().time())
                probes.job_found(
                    replace(
                        running(ref, node_of(number), is_running=False, started_at=T0), phase=Phase.FAILED
                    )
                )
            await asyncio.sleep(FOR_S)

        await with_loop(probes.run, jobs)

    scene()
    ended_at, read_at = slow.began
    assert read_at - ended_at <= INTERVAL_S


@pytest.mark.parametrize("namespaces", [1, 3])
def test_slow_initializers_of_other_namespaces_delay_a_job_by_one_interval_at_most(namespaces: int) -> None:
    slow = Slow(5.0)

    def preparing(ref: JobRef, node: str) -> TrainingJob:
        names = ("dataset", "model", "a", "b") if ref != VICTIM else ("dataset",)
        made = tuple(
            Initializer(
                name=name, pod_name=name, pod_uid=ref.uid + name, node_name=node, container_name=name,
                restart_count=0,
            )
            for name in names
        )  # fmt: skip
        return replace(running(ref, node), phase=Phase.INITIALIZING, rank0=None, initializers=made)

    @in_virtual_time
    async def scene() -> None:
        reads = InitializerReads(
            slow, said=lambda _ref, _said: None, interval_s=15.0, readings=readings_in_loop_time()
        )

        async def jobs() -> None:
            reads.job_changed(preparing(VICTIM, "cpu-1"))
            for number, ref in enumerate(others(namespaces)):
                reads.job_changed(preparing(ref, f"cpu-{1 + number % 20}"))
            await asyncio.sleep(FOR_S)

        await with_loop(reads.run, jobs)

    scene()
    assert max(slow.gaps_s()) <= 2 * INTERVAL_S


def test_initializers_of_namespaces_without_budget_keep_no_place_for_long() -> None:
    """Seen: four such namespaces had all places for as long as their pods pushed too much, and after it."""
    quick = Slow(QUICK_S)

    def preparing(ref: JobRef, node: str) -> TrainingJob:
        made = Initializer(
            name="dataset", pod_name="dataset", pod_uid=ref.uid, node_name=node, container_name="dataset",
            restart_count=0,
        )  # fmt: skip
        return replace(running(ref, node), phase=Phase.INITIALIZING, rank0=None, initializers=(made,))

    @in_virtual_time
    async def scene() -> None:
        budgets = Budgets(clock=asyncio.get_running_loop().time)
        reads = InitializerReads(
            quick, said=lambda _ref, _said: None, interval_s=15.0, readings=Readings(budgets, NoTurns())
        )

        async def jobs() -> None:
            for number, ref in enumerate(others(8)):
                budgets.charge_probed(ref.namespace, ref.uid, 10_000.0)
                reads.job_changed(preparing(ref, f"cpu-{1 + number % 20}"))
            await asyncio.sleep(30.0)
            reads.job_changed(preparing(VICTIM, "cpu-1"))
            await asyncio.sleep(60.0)

        await with_loop(reads.run, jobs)

    scene()
    assert quick.began
    assert quick.began[0] < 60.0


def test_failed_jobs_of_another_namespace_delay_an_inspection_by_one_interval_at_most() -> None:
    slow = Slow(10.0)

    @in_virtual_time
    async def scene() -> None:
        lists = PodLists(cast(KubeClient, slow), lambda _ref: _PODS)
        inspector = Inspector(lists, replicas=Replicas(lists), found=lambda _ref, _failure: None)

        async def jobs() -> None:
            for ref in (*others(1), VICTIM):
                if ref == VICTIM:
                    await asyncio.sleep(30.0)
                    slow.began.append(asyncio.get_running_loop().time())
                job = replace(JOB, ref=ref)
                inspector.job_changed(job, replace(job, phase=Phase.FAILED))
            await asyncio.sleep(5.0)

        await with_loop(inspector.run, jobs)

    scene()
    failed_at, *listed_at = slow.began
    assert listed_at
    assert listed_at[0] - failed_at <= INTERVAL_S


_PODS = all_pods(TORCH)
