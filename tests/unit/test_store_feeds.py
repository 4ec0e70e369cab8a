"""Feeds of the memory store: nothing missed, nothing doubled, nobody waits for another. W5, W6, W20."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from tests.jobs import document
from tests.unit.virtual_time import in_virtual_time
from visibility_api.store import MAX_BATCH_BYTES, Batch, RevisionExpired
from visibility_api.store.changelog import LogFeed, WakeUps
from visibility_api.store.memory import EPOCH_BITS, MemoryStore

BASE = 1000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(base_revision=BASE)


def steps(batch: Batch) -> list[int | None]:
    return [change.entry.document.step for change in batch.changes]


async def read(feed: LogFeed, number: int) -> list[int | None]:
    found: list[int | None] = []
    async with asyncio.timeout(90):
        while len(found) < number:
            found.extend(steps(await feed.next_batch()))
    return found


async def test_a_feed_replays_the_history_and_goes_on_live(store: MemoryStore) -> None:
    """W5: changes strictly after the revision."""
    for step in range(5):
        store.put(document("a", step=step))
    feed = store.watch("trainjobs", BASE + 2)
    assert await read(feed, 3) == [2, 3, 4]
    waiting = asyncio.create_task(feed.next_batch())
    await asyncio.sleep(0)
    store.put(document("a", step=5))
    assert steps(await waiting) == [5]
    assert feed.revision == store.revision


@pytest.mark.parametrize("since", [0, BASE - 1, BASE + 1, 2**64])
async def test_a_revision_that_is_not_ours_is_refused(store: MemoryStore, since: int) -> None:
    """W6, L9: foreign and future ones too, or changes up to them would be swallowed."""
    with pytest.raises(RevisionExpired, match="too old resource version"):
        store.watch("trainjobs", since)


async def test_feeds_at_the_same_place_are_given_the_same_batch(store: MemoryStore) -> None:
    """One encoding of an event for all its watchers."""
    feeds = [store.watch("trainjobs", BASE) for _ in range(200)]
    tasks = [asyncio.create_task(feed.next_batch()) for feed in feeds]
    await asyncio.sleep(0)
    for step in range(3):
        store.put(document("a", step=step))
    batches = await asyncio.gather(*tasks)
    assert steps(batches[0]) == [0, 1, 2]
    assert all(batch is batches[0] for batch in batches)


@in_virtual_time
async def test_changes_due_together_come_together() -> None:
    """After a wake-up the next one waits, the longer the more watchers there are."""
    store = MemoryStore(base_revision=BASE, wake_ups=WakeUps(max_gap_s=0.05, gap_per_client_s=0.05))
    feed = store.watch("trainjobs", BASE)
    store.put(document("a", step=0))
    assert await read(feed, 1) == [0]
    store.put(document("a", step=1))
    waiting = asyncio.create_task(feed.next_batch())
    await asyncio.sleep(0)
    store.put(document("a", step=2))
    assert steps(await waiting) == [1, 2]


async def test_one_batch_is_bounded(store: MemoryStore) -> None:
    for step in range(600):
        store.put(document("a", step=step))
    feed = store.watch("trainjobs", BASE)
    sizes = []
    while sum(sizes) < 600:
        sizes.append(len((await feed.next_batch()).changes))
    assert max(sizes) == MAX_BATCH_BYTES // 4096
    large = document("a", metrics=tuple((f"{number:03}" * 20, "9" * 60) for number in range(256)))
    for _ in range(10):
        store.put(large)
    assert len((await feed.next_batch()).changes) == 1


async def test_a_feed_behind_the_history_is_cut_and_the_others_go_on() -> None:
    """W20: never a gap in what a watcher is told."""
    store = MemoryStore(base_revision=BASE, max_changes=32)
    slow, quick = store.watch("trainjobs", BASE), store.watch("trainjobs", BASE)
    found: list[int | None] = []
    for step in range(100):
        store.put(document("a", step=step))
        found.extend(await read(quick, 1))
    assert found == list(range(100))
    async with asyncio.timeout(90):
        assert (await slow.next_batch()).changes == ()
    assert (slow.is_cut, slow.is_closed) == (True, True)
    assert (quick.is_cut, quick.is_closed) == (False, False)


async def test_closing_ends_a_wait_and_every_later_one(store: MemoryStore) -> None:
    feed = store.watch("trainjobs", BASE)
    waiting = asyncio.create_task(feed.next_batch())
    await asyncio.sleep(0)
    feed.close()
    feed.close()
    assert (await waiting).changes == ()
    store.put(document("a"))
    assert (await feed.next_batch()).changes == ()
    assert feed.is_closed
    assert not feed.is_cut
    assert not store._of("trainjobs").log._feeds


async def test_watchers_that_come_and_go_while_nothing_changes_leave_nothing(store: MemoryStore) -> None:
    """A quiet cluster may be watched for weeks."""
    log = store._of("trainjobs").log
    stays = store.watch("trainjobs", BASE)
    for _ in range(3):
        goes = store.watch("trainjobs", BASE)
        waiting = [asyncio.create_task(feed.next_batch()) for feed in (stays, goes)]
        await asyncio.sleep(0)
        stays.interrupt()  # a bookmark
        goes.close()
        await asyncio.gather(*waiting)
    assert len(log._waiting) == 0


async def test_an_interruption_ends_one_wait_and_loses_nothing(store: MemoryStore) -> None:
    feed = store.watch("trainjobs", BASE)
    waiting = asyncio.create_task(feed.next_batch())
    await asyncio.sleep(0)
    feed.interrupt()
    assert (await waiting).changes == ()
    feed.interrupt()  # nobody waits: the next one is told
    store.put(document("a", step=1))
    assert (await feed.next_batch()).changes == ()
    assert await read(feed, 1) == [1]


async def test_a_cancelled_watcher_leaves_the_others_alone(store: MemoryStore) -> None:
    gone, stays = store.watch("trainjobs", BASE), store.watch("trainjobs", BASE)
    cancelled = asyncio.create_task(gone.next_batch())
    waiting = asyncio.create_task(stays.next_batch())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    gone.close()
    store.put(document("a", step=1))
    assert steps(await waiting) == [1]


@in_virtual_time
async def test_what_the_watchers_of_a_client_take_delays_their_own_next_wake_up_alone() -> None:
    """The client with fewer watchers comes first."""
    wake_ups = WakeUps(gap_per_client_s=0, share_of_client=0.01, max_gap_of_client_s=10)
    store = MemoryStore(base_revision=BASE, wake_ups=wake_ups)
    loop, seen = asyncio.get_running_loop(), dict[str, list[float]]()
    order: list[str] = []

    async def watch(client: str) -> None:
        feed = store.watch("trainjobs", BASE, client)
        for _ in range(2):
            await read(feed, 1)
            feed.charge(0.001)
            seen.setdefault(client, []).append(loop.time())
            order.append(client)

    async with asyncio.TaskGroup() as group:
        for client in ("many",) * 30 + ("few",):
            group.create_task(watch(client))
        await asyncio.sleep(1)
        store.put(document("a", step=0))
        await asyncio.sleep(1)
        store.put(document("a", step=1))
    assert order[0] == "few"
    first, second = seen["many"][0], seen["many"][-1]
    assert second - first == pytest.approx(3.0, abs=0.1)
    assert seen["few"][1] - seen["few"][0] == pytest.approx(1.0, abs=0.15)


@in_virtual_time
async def test_however_many_watchers_one_client_has_others_wait_no_longer() -> None:
    """Clients make the wake-ups of all rarer, not their watchers: those wait by their client's share."""
    store = MemoryStore(base_revision=BASE, wake_ups=WakeUps(gap_per_client_s=0.001, max_gap_s=1.0))
    feeds = [store.watch("trainjobs", BASE, "many") for _ in range(1000)]
    other, clock = store.watch("trainjobs", BASE, "few"), asyncio.get_running_loop().time
    many = [asyncio.create_task(read(feed, 2)) for feed in feeds]
    took = []
    for step in range(2):
        waiting = asyncio.create_task(read(other, 1))
        await asyncio.sleep(0)
        store.put(document("a", step=step))
        began = clock()
        await waiting
        took.append(clock() - began)
    await asyncio.gather(*many)
    assert max(took) < 0.003


@in_virtual_time
async def test_a_client_far_behind_is_served_by_its_share_too() -> None:
    """Else it would do best by never keeping up."""
    store = MemoryStore(base_revision=BASE, wake_ups=WakeUps(share_of_client=0.01, max_gap_of_client_s=10))
    feed = store.watch("trainjobs", BASE, "far behind")
    for step in range(600):
        store.put(document("a", step=step))
    loop, at = asyncio.get_running_loop(), list[float]()
    for expected in (256, 256, 88):
        assert len(await read(feed, expected)) == expected
        at.append(loop.time())
        feed.charge(0.02)
    assert [later - at[0] for later in at] == pytest.approx([0, 2, 4], abs=0.15)


def test_clients_whose_time_comes_at_once_are_woken_by_uvloop_too() -> None:
    """Its handle of a moment that is now has no `when`. Once no watch at all was woken any more."""

    faults: list[dict[str, Any]] = []

    async def read_all() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        store = MemoryStore(base_revision=BASE, wake_ups=WakeUps(gap_per_client_s=0, share_of_client=0.01))
        feeds = [store.watch("trainjobs", BASE, client) for client in ("one", "two", "three")]
        for step in range(50):
            waiting = [asyncio.create_task(read(feed, 1), name="watch") for feed in feeds]
            await asyncio.sleep(0)
            for feed in feeds:
                feed.charge(0.000_003)  # a third of a millisecond to wait
            store.put(document("a", step=step))
            assert await asyncio.gather(*waiting) == [[step]] * 3

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(read_all(), 60))
    assert not faults


async def test_a_client_whose_watches_have_ended_leaves_nothing_behind() -> None:
    store = MemoryStore(base_revision=BASE)
    store.put(document("a", step=0))
    for number in range(3):
        feed = store.watch("trainjobs", BASE, f"user-{number}")
        assert await read(feed, 1) == [0]
        feed.charge(0.001)
        waiting = asyncio.create_task(feed.next_batch())
        await asyncio.sleep(0)
        feed.close()
        feed.close()
        feed.charge(0.001)
        assert steps(await waiting) == []
    log = store._resources["trainjobs"].log
    assert not log._of_client
    assert not log._waiting


@in_virtual_time
async def test_watchers_that_have_everything_are_left_alone() -> None:
    """Also when others of their client, or other clients, are woken later."""
    store, woken = MemoryStore(base_revision=BASE), list[str]()  # for nothing

    async def watch(client: str) -> None:
        feed = store.watch("trainjobs", BASE, client)
        while True:
            if not (await feed.next_batch()).changes:
                woken.append(client)

    clients = ("many",) * 50 + ("few",) * 2 + ("one",)
    tasks = [asyncio.create_task(watch(client), name=client) for client in clients]
    await asyncio.sleep(1)
    for step in range(3):
        store.put(document("a", step=step))
        await asyncio.sleep(0.01)
    await asyncio.sleep(60)
    assert not woken
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("jobs", [0, 1])
async def test_another_owner_cuts_no_watch_whether_there_are_jobs_or_not(jobs: int) -> None:
    store = MemoryStore(base_revision=1)
    store.begin_epoch(1)
    for number in range(jobs):
        store.put(document(f"job-{number}", step=1))
    feed = store.watch("trainjobs", since=store.revision)
    store.begin_epoch(2)
    assert not feed.is_closed
    store.put(document("a", step=1))
    (change,) = (await feed.next_batch(10)).changes
    assert change.entry.document.job.ref.name == "a"
    assert store.watch("trainjobs", since=1 << EPOCH_BITS) is not None
