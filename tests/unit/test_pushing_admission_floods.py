"""Who pushes too much, or with tokens that do not hold, delays nobody else and costs little."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.pushing import Cluster, Endpoint
from visibility_api.auth.review_admission import (
    REVIEW_BURST,
    REVIEWS_PER_S,
    START_BURST,
    STARTS_PER_S,
    unknown_queues,
)
from visibility_api.errors.status import Forbidden, InternalError, NotFound, TooManyRequests
from visibility_api.pushing.admission import REFUSED_FOR_S

from .test_pushing_admission import POD1, admit
from .virtual_time import in_virtual_time


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add_job("bert")
    return found


@pytest.fixture
def endpoint(cluster: Cluster) -> Endpoint:
    return Endpoint(cluster)


async def test_a_flood_of_unknown_tokens_delays_nobody_who_is_known(cluster: Cluster) -> None:
    endpoint = Endpoint(
        cluster, queues=unknown_queues(max_running=2, max_running_per_client=1, max_waiting=8)
    )
    await admit(endpoint)
    cluster.held.clear()
    flood = [asyncio.create_task(admit(endpoint, f"made-up-{n}", client="10.9.9.9")) for n in range(50)]
    await asyncio.sleep(0)
    await admit(endpoint)  # known: nothing is asked
    newcomer = asyncio.create_task(admit(endpoint, POD1, client="10.0.0.8"))
    await asyncio.sleep(0)
    cluster.held.set()
    assert (await newcomer).pod_uid == POD1
    outcomes = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Forbidden, TooManyRequests}
    assert len(cluster.reviewed) <= 12


async def test_a_token_that_was_refused_is_not_reviewed_again_for_a_while(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    asked = []
    for endpoint.time in (0.0, 5.0, REFUSED_FOR_S - 1, REFUSED_FOR_S):
        with pytest.raises(Forbidden):
            await admit(endpoint, "made-up")
        asked.append(len(cluster.asked))
    assert asked == [1, 1, 1, 2]


async def test_a_refusal_ends_as_soon_as_more_is_known_of_the_job(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    job = cluster.jobs.pop(("team-a", "bert"))
    with pytest.raises(NotFound):
        await admit(endpoint)
    cluster.jobs["team-a", "bert"] = replace(job, ref=structs.replace(job.ref, uid="another"))
    with pytest.raises(Forbidden):
        await admit(endpoint)
    cluster.jobs["team-a", "bert"] = job
    await admit(endpoint)


async def test_one_address_sets_off_so_many_reviews_and_leaves_others_theirs(cluster: Cluster) -> None:
    endpoint = Endpoint(cluster, queues=unknown_queues(start_burst=1e6))

    async def flood(count: int) -> int:
        """How many of so many made-up tokens were asked about."""
        before = len(cluster.reviewed)
        for number in range(count):
            with pytest.raises((Forbidden, TooManyRequests)):
                await admit(endpoint, f"made-up-{endpoint.time}-{number}", client="10.9.9.9")
        return len(cluster.reviewed) - before

    assert await flood(int(REVIEW_BURST) + 50) == REVIEW_BURST
    await admit(endpoint, client="10.0.0.7")
    with pytest.raises(TooManyRequests):
        await admit(endpoint, POD1, client="10.9.9.9")
    endpoint.time = 2.0
    assert await flood(300) == 2 * REVIEWS_PER_S
    await admit(endpoint, client="10.9.9.9")  # known: nothing is asked


@in_virtual_time
async def test_pods_that_start_by_the_thousand_are_admitted_in_time_amid_a_flood() -> None:
    """At 333 a second, twice what ten thousand in a minute are; whoever is refused comes again in 5 s."""
    loop = asyncio.get_running_loop()
    cluster = Cluster()
    cluster.add_job("bert")
    endpoint = Endpoint(cluster, clock=loop.time)
    began = loop.time()

    async def start(number: int) -> float:
        """How long it took."""
        uid = f"pod-{number}"
        cluster.add_pod(f"bert-node-0-{number}-abcde", uid, "team-a-bert-job-batch", "bert-node-0")
        await asyncio.sleep(number * 0.003)
        came = loop.time()
        while True:
            try:
                await admit(endpoint, uid, client=f"10.1.{number // 250}.{number % 250}")
                return loop.time() - came
            except TooManyRequests:
                await asyncio.sleep(5.0)

    async def flood() -> None:
        async def try_one(number: int) -> None:
            with pytest.raises((Forbidden, TooManyRequests)):
                await admit(endpoint, f"made-up-{number}", client="10.9.9.9")

        async with asyncio.TaskGroup() as group:
            for number in range(1_000_000):
                group.create_task(try_one(number))
                await asyncio.sleep(0.002)

    flooding = asyncio.create_task(flood())
    took_s = await asyncio.gather(*(start(number) for number in range(2000)))
    lasted_s = loop.time() - began
    flooding.cancel()
    await asyncio.wait([flooding])
    assert max(took_s) < 10.0
    assert len(cluster.reviewed) <= START_BURST + STARTS_PER_S * lasted_s + 1


async def test_nobody_waits_longer_than_a_client_would(cluster: Cluster) -> None:
    queues = unknown_queues(max_running=1)
    patient = Endpoint(cluster, queues=queues)
    hurried = Endpoint(cluster, queues=queues, admission_timeout_s=0.01)
    cluster.held.clear()
    first = asyncio.create_task(admit(patient))
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):  # it waited for the first, and was never begun
        await admit(hurried, POD1)
    cluster.held.set()
    await first
    cluster.held.clear()
    with pytest.raises(InternalError):
        await admit(hurried, POD1)
