"""The log of the jobs as its owners change."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, T0, job_ref
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.reports.document import Progress
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

from .turns import busy_s

REFS = [job_ref(f"job-{number}") for number in range(600)]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> JobLog:
    """That of an owner of jobs that have reported; slices are short."""
    monkeypatch.setattr("visibility_api.store.job_log.in_slices", partial(in_slices, slice_s=0.0002))
    found = JobLog(MemoryStore(base_revision=1))
    owner = Tracker(
        publish=found.put,
        kept=found.kept,
        retract=found.delete,
        now=now,
        interval_s=15.0,
        recall=found.recall,
    )
    found.own(owner, 1, lambda: True)
    for ref in REFS:
        owner.job_changed(replace(JOB, ref=ref))
        report = Progress(timestamp=T0, step=5, metrics=(("loss", "0.5"),))
        owner.observed(Observation(ref=ref, attempt=RANK0.attempt, source="exec", at=T0, outcome=report))
    return found


def now() -> datetime:
    return T0


def states(log: JobLog) -> dict[JobRef, bytes | None]:
    return {ref: log.state(ref) for ref in REFS}


async def test_an_owner_that_ends_keeps_the_loop_a_slice_at_a_time(log: JobLog) -> None:
    """With thousands of jobs it took 70 ms and more."""
    known = states(log)
    turns = await busy_s(log.disown())
    assert max(turns) < sum(turns) / 3
    assert states(log) == known


async def test_one_that_is_cancelled_meanwhile_keeps_all_the_same(log: JobLog) -> None:
    known = states(log)
    ending = asyncio.create_task(log.disown())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    assert states(log) == known
