"""What the slow probes of one namespace cost another one on the same node."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from tests.jobs import REF
from visibility_api.jobs.job import JobRef
from visibility_api.probing.prober import PER_NODE
from visibility_api.probing.schedule import Schedule

VICTIM = JobRef(resource=REF.resource, namespace="team-a", name="bert", uid="v")
INTERVAL_S, FOR_S = 2.0, 120.0


def gaps_of_the_victim(*, neighbours: int, namespaces: int, takes_s: float) -> list[float]:
    """Seconds between the victim's probes, 0.1 s each, beside jobs whose interval is 1 s; in virtual time."""
    schedule = Schedule(per_node=PER_NODE, random_=random.Random(1))
    others = [
        JobRef(resource=REF.resource, namespace=f"team-x{n % namespaces}", name=f"job-{n}", uid=str(n))
        for n in range(neighbours)
    ]
    for ref, interval_s in [(VICTIM, INTERVAL_S), *((other, 1.0) for other in others)]:
        schedule.put(
            ref, attempt="1", node="gpu-1", interval_s=interval_s, is_declared=True, now=0.0, due=0.0
        )
    began: list[float] = []
    ends: list[tuple[float, int, object]] = []
    now = 0.0
    while now < FOR_S:
        while (turn := schedule.take(now)) is not None:
            if turn.ref == VICTIM:
                began.append(now)
            heapq.heappush(ends, (now + (0.1 if turn.ref == VICTIM else takes_s), id(turn), turn))
        due = schedule.next_due()
        now = min(ends[0][0] if ends else FOR_S, due if due is not None else FOR_S)
        while ends and ends[0][0] <= now:
            schedule.done(heapq.heappop(ends)[2], now=now, retry=None)  # type: ignore[arg-type]
    return [after - before for before, after in itertools.pairwise(began)]


@pytest.mark.parametrize("takes_s", [1.7, 10.0])
@pytest.mark.parametrize("namespaces", [1, 3])
def test_slow_probes_of_other_namespaces_delay_a_job_by_one_interval_at_most(
    takes_s: float, namespaces: int
) -> None:
    gaps = gaps_of_the_victim(neighbours=100, namespaces=namespaces, takes_s=takes_s)
    assert len(gaps) > 10
    assert max(gaps) <= 2 * INTERVAL_S
