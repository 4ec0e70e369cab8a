"""A term that begins anew because other kinds are watched."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.service.tls_server import until
from visibility_api.jobs.job import JobRef
from visibility_api.replication import moving
from visibility_api.replication.addresses import Address
from visibility_api.replication.role import Others, Role
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore


class Term:
    """Runs until it is cancelled."""

    pushes = None

    def __init__(self, started: asyncio.Queue[Term]) -> None:
        self.owner: Any = self
        self.started = started
        self.is_running = False
        self.loops = [("work", self.work)]

    def __iter__(self) -> Iterator[JobRef]:
        return iter(())

    async def adopt(self) -> None:
        pass

    async def work(self) -> None:
        self.is_running = True
        self.started.put_nowait(self)
        try:
            await asyncio.Event().wait()
        finally:
            self.is_running = False


class Lease:
    """Held from the first attempt on; notes when it is given up."""

    is_held = True

    def __init__(self) -> None:
        self.released = 0

    async def acquire(self, *, may: Callable[[], bool], after: Callable[[], int]) -> int:
        assert may()
        return after() + 1

    async def hold(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        self.released += 1


async def begun(_epoch: int) -> bool:
    return True


async def renewed(role: Role[Any], terms: asyncio.Queue[Term], jobs: JobLog) -> None:
    running = asyncio.create_task(role.run())
    first = await terms.get()
    epoch = jobs.store.epoch
    role.renew()
    second = await terms.get()
    assert (first.is_running, second.is_running) == (False, True)
    assert role.term is second
    assert role.may_write()
    assert jobs.store.epoch > epoch
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_single_replicas_term_begins_anew() -> None:
    jobs, terms = JobLog(MemoryStore(base_revision=1)), asyncio.Queue[Term]()
    role: Role[Any] = Role(jobs, lambda _may: Term(terms), others=None)
    await renewed(role, terms, jobs)


async def test_what_a_term_kept_is_given_back_when_it_has_ended() -> None:
    """Each lost Lease left all jobs in memory for good: two replicas of 15,000 jobs had 1.6 GiB after ten."""
    jobs, terms = JobLog(MemoryStore(base_revision=1)), asyncio.Queue[Term]()

    def build(_may: object) -> Term:
        term = Term(terms)
        term.itself = term  # type: ignore[attr-defined]
        return term

    role: Role[Any] = Role(jobs, build, others=None)
    gc.disable()  # as good as: the server collects young objects alone
    gc.freeze()
    try:
        running = asyncio.create_task(role.run())
        first = weakref.ref(await terms.get())
        role.renew()
        await terms.get()
        assert first() is None
    finally:
        gc.unfreeze()
        gc.enable()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_owner_with_followers_keeps_its_lease_and_its_log() -> None:
    jobs, terms, lease = JobLog(MemoryStore(base_revision=1)), asyncio.Queue[Term](), Lease()
    jobs.is_complete = True
    follower = SimpleNamespace(run=asyncio.Event().wait, must_list=False, owner=None, fault=None)
    streams = SimpleNamespace(close=lambda: None, begin=begun, keep=asyncio.Event().wait)
    others = Others(
        lease=cast(Any, lease),
        follower=cast(Any, follower),
        streams=cast(Any, streams),
        drained=cast(Any, None),
    )
    role: Role[Any] = Role(jobs, lambda _may: Term(terms), others=lambda _role: others)
    await renewed(role, terms, jobs)
    assert (lease.released, follower.must_list) == (0, False)


def test_a_replica_leaves_the_lease_to_an_owner_that_still_sends_though_it_was_given_up() -> None:
    """An owner releases it, and then sends what is left: without that the next one would go back in time."""
    jobs = JobLog(MemoryStore(base_revision=1))
    jobs.is_complete = True
    follower = SimpleNamespace(owner=Address("10.0.0.7", 10250), has_searched=True, lost_at=None, fault=None)
    others = cast(Others, SimpleNamespace(follower=follower))
    role: Role[Any] = Role(jobs, lambda _may: Term(asyncio.Queue()), others=lambda _role: others)
    assert not role._may_own(cast(Any, follower))
    follower.owner = None
    assert role._may_own(cast(Any, follower))


async def test_an_owner_that_ends_waits_for_a_follower_that_was_cut_a_moment_ago() -> None:
    jobs, terms, lease = JobLog(MemoryStore(base_revision=1)), asyncio.Queue[Term](), Lease()
    jobs.is_complete = True
    follower = SimpleNamespace(run=asyncio.Event().wait, must_list=False, owner=None, fault=None)
    done: list[str] = []

    async def followed(within_s: float) -> bool:
        done.append(f"waited {within_s > 1}")
        return True

    async def finish(release: Callable[[], Awaitable[None]]) -> None:
        await release()
        done.append("finished")

    async def drained(_within_s: float) -> None:
        pass

    streams = SimpleNamespace(
        close=lambda: None, followed=followed, finish=finish, begin=begun, keep=asyncio.Event().wait
    )
    others = Others(
        lease=cast(Any, lease), follower=cast(Any, follower), streams=cast(Any, streams), drained=drained
    )
    role: Role[Any] = Role(jobs, lambda _may: Term(terms), others=lambda _role: others)
    running = asyncio.create_task(role.run())
    await terms.get()
    await role.leave()
    assert (done, lease.released) == (["waited True", "finished"], 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_replica_is_out_of_sync_only_while_another_one_owns_the_jobs_and_is_not_followed() -> None:
    jobs = JobLog(MemoryStore(base_revision=1))
    follower = SimpleNamespace(lost_at=None, fault=None)
    lease = SimpleNamespace(failing_s=0.0, is_anothers=False)
    others = cast(Others, SimpleNamespace(follower=follower, lease=lease))
    role: Role[Any] = Role(jobs, lambda _may: Term(asyncio.Queue()), others=lambda _role: others)
    assert role.out_of_sync_s == 0
    follower.lost_at = time.monotonic() - 90
    assert 90 <= role.out_of_sync_s < 100
    lease.failing_s = 5.0  # one read was too slow: it is held all the same
    assert role.out_of_sync_s >= 90
    follower.fault = "NATS is away"  # nobody may own them
    assert role.out_of_sync_s == 0
    lease.is_anothers = True  # it is away from this replica alone
    assert role.out_of_sync_s > 0
    lease.failing_s = 20.0  # kube-apiserver is away: nobody may own them
    assert role.out_of_sync_s == 0
    assert Role(jobs, lambda _may: Term(asyncio.Queue()), others=None).out_of_sync_s == 0


async def test_who_has_followed_a_stream_owns_nothing_until_it_has_read_nats_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the bucket would keep what it had before."""
    monkeypatch.setattr(moving, "NOBODY_WRITES_S", 0.0)
    monkeypatch.setattr(moving, "LOOK_S", 0.001)
    wait, reads, forgotten = asyncio.Event().wait, 0, asyncio.Event()

    async def read() -> None:
        nonlocal reads
        reads += 1
        await wait()

    nats = SimpleNamespace(run=read, owner=None, fault=None, lost_at=None, forget=forgotten.set)
    peers = SimpleNamespace(run=wait, owner=None, fault=None, lost_at=None, must_list=False)
    follower = moving.MovingFollower(cast(Any, nats), cast(Any, peers), is_owned=lambda: True)
    task = asyncio.create_task(follower.run())
    peers.owner = Address("10.0.0.7", 10250)
    await until(lambda: follower.owner is not None)
    peers.owner = None
    assert follower.fault is not None
    await forgotten.wait()
    await until(lambda: reads == 2)
    assert follower.fault is None
    task.cancel()
