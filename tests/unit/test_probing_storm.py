"""The probing loop in a storm: jobs come, change, restart and go in any order while they are probed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import UTC, datetime

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, REF, T0
from visibility_api.jobs.job import JobRef, Phase, ProbeHints, Rank0, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.probing.prober import Prober
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

from .virtual_time import in_virtual_time

JOBS = [structs.replace(REF, name=f"job-{n}", uid=str(n), namespace=f"team-{n % 3}") for n in range(8)]
DEADLINE_S = 20.0


class Moody:
    """Answers anything, late, or not at all; never two probes of one job at a time."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.probed: set[JobRef] = set()

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome:
        assert ref not in self.probed
        self.probed.add(ref)
        try:
            return await self._answer()
        finally:
            self.probed.remove(ref)

    async def final_read(self, ref: JobRef, rank0: Rank0) -> Outcome:
        return await self._answer()

    async def _answer(self) -> Outcome:
        if self.chance.random() < 0.7:
            await asyncio.sleep(self.chance.choice([0, 0, 0.01, 1, 5, 2 * DEADLINE_S]))
        if self.chance.random() < 0.1:
            raise ValueError
        if self.chance.random() < 0.4:
            return Progress(timestamp=T0, step=1)
        reason = self.chance.choice(["NoProgressFile", "ExecForbidden", "ProbeTimeout"])
        return Refused(reason=reason, message="", retry=self.chance.choice(list(RetryClass)))


def any_job(ref: JobRef, chance: random.Random) -> TrainingJob:
    rank0 = replace(
        RANK0,
        pod_uid=f"{ref.uid}-{chance.choice('ab')}",
        restart_count=chance.randrange(2),
        is_running=chance.random() < 0.85,
        is_terminating=chance.random() < 0.1,
        http_port=chance.choice([None, 80]),
        declared=chance.choice([(), (("http", "a port"),), (("exec", "a file"), ("logs", "a log"))]),
        node_name=chance.choice([None, "gpu-1", "gpu-2"]),
    )
    other = replace(rank0, pod_uid=f"{ref.uid}-c", is_running=chance.random() < 0.8)
    sources = [None, None, None, "exec", "logs", "push", "none", "status", "http"]
    return replace(
        JOB,
        ref=ref,
        rank0=rank0 if chance.random() < 0.9 else None,
        alternates=(other,) if chance.random() < 0.3 else (),
        phase=chance.choice([*[Phase.RUNNING] * 5, Phase.SUCCEEDED, Phase.SUSPENDED]),
        hints=ProbeHints(source=chance.choice(sources), interval_s=chance.choice([None, 1, 60])),
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_jobs_the_loop_goes_on_and_keeps_none_that_has_gone(seed: int) -> None:
    @in_virtual_time
    async def storm() -> None:
        chance = random.Random(seed)

        def record(_seen: Observation) -> None:
            if chance.random() < 0.05:
                raise RuntimeError

        def count(*_look: object) -> None:
            if chance.random() < 0.05:
                raise RuntimeError

        prober = Prober(
            {name: Moody(name, chance) for name in ("exec", "logs", "http")},
            record=record,
            now=lambda: datetime.now(UTC),
            interval_s=15.0,
            concurrency=3,
            passive=["push"],
            deadline_s=DEADLINE_S,
            on_probe=count,
        )
        running = asyncio.create_task(prober.run())
        for _ in range(200):
            ref, move = chance.choice(JOBS), chance.random()
            if move < 0.6:
                prober.job_changed(any_job(ref, chance))
            elif move < 0.8:
                prober.job_gone(ref)
            else:
                prober.postpone(ref)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(chance.choice([0, 0, 0, 0.02, 0.3, 3, 40]))
            assert not running.done(), running.exception()
        for ref in JOBS:
            prober.job_gone(ref)
        await asyncio.sleep(5 * DEADLINE_S)
        assert (len(prober), prober.waiting) == (0, 0)
        prober.job_changed(replace(JOB, ref=JOBS[0]))
        turned = prober.last_turn
        await asyncio.sleep(30)
        assert prober.last_turn > turned
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    storm()
