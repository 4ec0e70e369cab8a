"""What probes bring is read in turns with pushes, and within the same budgets of the loop's time."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
from msgspec.structs import replace

from tests.jobs import RANK0, T0, job_ref
from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.report_shares import NAMESPACE, UNIT_MS, Budgets
from visibility_api.jobs.observation import Observation
from visibility_api.kube.client import KubeClient
from visibility_api.probing.logs_source import LogsSource
from visibility_api.probing.prober import Prober
from visibility_api.probing.readings import Readings

from .test_probing_tenants import Slow, running, with_loop
from .turns import busy_s
from .virtual_time import in_virtual_time

HOSTILE = "2026-01-23T10:00:00Z step=1 loss=0.5 " + "a=1.5 " * 1300
MINE, OTHERS = job_ref("gpt", "team-x"), job_ref("bert", "team-a")


class Kubelet:
    """Answers a log of hostile lines."""

    async def get(self, _path: str, **_limits: object) -> bytes:
        return f"{HOSTILE}\n".encode() * 8


async def test_a_hostile_log_keeps_the_loop_no_longer_at_a_time_than_one_of_its_lines() -> None:
    source = LogsSource(cast(KubeClient, Kubelet()), timeout_s=5.0)
    turns = await busy_s(source.probe(MINE, RANK0))
    assert max(turns) < sum(turns) / 3


async def test_a_reading_that_is_given_up_half_way_is_begun_anew() -> None:
    source = LogsSource(cast(KubeClient, Kubelet()), timeout_s=5.0)
    whole = await source.probe(MINE, RANK0)
    half = asyncio.create_task(source.probe(OTHERS, replace(RANK0, pod_uid="p2")))
    for _ in range(4):
        await asyncio.sleep(0)
    half.cancel()
    await asyncio.wait([half])
    assert half.cancelled()
    assert await source.probe(OTHERS, replace(RANK0, pod_uid="p2")) == whole


@in_virtual_time
async def test_a_namespace_that_has_used_its_budget_up_waits_and_no_other_does() -> None:
    loop = asyncio.get_running_loop()
    budgets = Budgets(clock=loop.time)
    readings = Readings(budgets)
    budgets.charge_probed(MINE.namespace, MINE.uid, NAMESPACE.burst * UNIT_MS + 240)
    assert await readings.read(OTHERS, 0, loop.time) == 0.0
    assert await readings.read(MINE, 0, loop.time) == pytest.approx(1.0, abs=0.01)


@in_virtual_time
async def test_what_recording_takes_is_charged_to_the_budgets_of_pushes() -> None:
    loop = asyncio.get_running_loop()
    budgets, source = Budgets(clock=loop.time), Slow(0.1)

    def record(_observation: Observation) -> bool:
        ends = time.perf_counter() + 0.002
        while time.perf_counter() < ends:
            pass
        return True

    probes = Prober(
        {"exec": source}, record=record, now=lambda: T0, interval_s=15.0, concurrency=4,
        readings=Readings(budgets),
    )  # fmt: skip

    async def one_probe() -> None:
        probes.job_changed(running(MINE, "gpu-1", declared=(("exec", "a variable"),)))
        await asyncio.sleep(0.5)

    # A millisecond would be left after half a second.
    budgets.charge_probed(MINE.namespace, MINE.uid, (NAMESPACE.burst + 0.5 * NAMESPACE.per_s) * UNIT_MS - 1)
    await with_loop(probes.run, one_probe)
    with pytest.raises(TooManyRequests, match="this namespace's 240 ms"):
        await budgets.enter(budgets.find(MINE.namespace, "another job", "its pod"), 0)
