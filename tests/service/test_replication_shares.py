"""Jobs that replicas share out, with their log in a real server of NATS."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from yarl import URL

from tests.jobs import RANK0, T0
from tests.nats_servers import NatsServers, running
from tests.service.test_replication import job, ref
from tests.service.test_replication_nats import Lease, Replica as PlainReplica, place_of, until as until_soon
from visibility_api.errors.status import Unavailable
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.replication import member as member_module, shares as shares_module
from visibility_api.replication.addresses import Address
from visibility_api.replication.member import Member
from visibility_api.replication.nats_client import Location
from visibility_api.replication.partitions import (
    PARTITIONS,
    decode_report,
    encode_message,
    partition_of_job,
    share_out,
)
from visibility_api.replication.role import Others, Role
from visibility_api.replication.shares import Shares
from visibility_api.reports.document import Progress
from visibility_api.store.job_log import JobLog


async def until(holds: Callable[[], bool]) -> None:
    await until_soon(holds, within_s=60.0)


JOBS = [f"job-{number}" for number in range(60)]


def test_who_comes_or_goes_moves_its_own_share_only() -> None:
    two, three = (share_out(frozenset(names)) for names in ("ab", "abc"))
    moved = [(before, after) for before, after in zip(two, three, strict=True) if before != after]
    assert {after for _, after in moved} == {"c"}
    assert all(number > PARTITIONS / 8 for number in Counter(three).values())


class Cluster:
    """The jobs that exist, who answers whom, and who acted on a job when."""

    def __init__(self) -> None:
        self.jobs = set(JOBS)
        self.replicas: dict[int, Replica] = {}  # by port
        self.cut: set[int] = set()  # ports of replicas that reach no other
        self.ports = itertools.count(1)

    def owners(self, name: str) -> list[Replica]:
        """Those that would take a push for the job at this moment, and record it."""
        return [each for each in self.replicas.values() if each.takes(name)]

    def check(self) -> None:
        for name in self.jobs:
            owners = self.owners(name)
            assert len(owners) < 2, (name, [each.port for each in owners])

    def is_settled(self, *replicas: Replica) -> bool:
        """Each of these has a share, and each job one of them."""
        self.check()
        owners = [owner for name in self.jobs for owner in self.owners(name)]
        return len(owners) == len(self.jobs) and set(owners) == set(replicas)


class Term:
    """The parts that work on a share."""

    is_ready = True

    def __init__(self, cluster: Cluster, log: JobLog, ledger: Any, holds: Callable[[JobRef], bool]) -> None:
        self.cluster, self.log, self.holds = cluster, log, holds
        self.pushes = cast(Any, self)
        self.loops = [("work", asyncio.Event().wait)]
        self.is_owner, self.itself = ledger is log, self  # its parts refer to each other
        self.owner = self.tracker = Tracker(
            publish=ledger.put,
            kept=ledger.kept,
            retract=ledger.delete,
            now=lambda: T0,
            interval_s=15.0,
            recall=ledger.recall,
        )

    async def adopt(self) -> None:
        for entry in self.log.store.list("trainjobs").entries:
            self.tracker.adopt(entry.document)
        self.log.is_complete, self.log.unlisted = True, frozenset()
        for name in self.cluster.jobs:
            self.tracker.job_changed(job(name))

    async def gain(self, partitions: Collection[int], holds: Callable[[JobRef], bool]) -> None:
        for entry in self.log.store.list("trainjobs").entries:
            if partition_of_job(entry.document.job.ref) in partitions and holds(entry.document.job.ref):
                self.tracker.adopt(entry.document)
        await asyncio.sleep(0)
        for name in self.cluster.jobs:
            if partition_of_job(ref(name)) in partitions and holds(ref(name)):
                self.tracker.job_changed(job(name))

    def lose(self, partitions: Collection[int]) -> None:
        for each in [each for each in self.tracker if partition_of_job(each) in partitions]:
            if self.is_owner:
                self.log.hand_back(each)
            self.tracker.forget(each)

    async def confirm(self, partitions: Collection[int]) -> bool:
        for each in [each for each in self.tracker if each.name not in self.cluster.jobs]:
            if partition_of_job(each) in partitions:
                self.tracker.job_gone(each)
        return True

    def taken(self, _document: object) -> None: ...

    def gone(self, _ref: object) -> None: ...


class Replica(PlainReplica):
    """Others are reached by their ports, through the encoded messages."""

    def __init__(self, cluster: Cluster, location: Location, lease: Lease) -> None:
        super().__init__(location, lease)
        self.cluster, self.port = cluster, next(cluster.ports)
        self.streams._port = self.port
        self.now = 0.0  # how far this replica's clock has gone on while it stood still
        cluster.replicas[self.port] = self
        self.shares = Shares(self.log, self.place.writer, written=self.streams, clock=self.clock)
        self.member: Member[Term] = Member(
            self.place.writer,
            self.log,
            cast(Any, self),
            lambda member: Term(cluster, self.log, member.outbox, member.holds),
            holder=lambda: self.follower.owner,
            own=lambda: Address(self.client.own_host, self.port),
            followed=lambda: self.follower.followed,
            clock=self.clock,
        )

        async def drained(_within_s: float) -> None: ...

        others = Others(
            lease=cast(Any, self.held),
            follower=self.follower,
            streams=self.streams,
            drained=drained,
            shares=self.shares,
            member=self.member,
        )
        self.role: Role[Any] = Role(
            self.log,
            lambda _may: Term(cluster, self.log, self.log, self.shares.holds),
            others=lambda _role: others,
        )

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.now

    @contextlib.asynccontextmanager
    async def request(self, _method: str, url: URL, *, data: bytes, timeout: Any) -> AsyncIterator[Any]:
        """As the client of other replicas: what this one asks."""
        asked = self.cluster.replicas.get(url.port or 0)
        if asked is None or self.port in self.cluster.cut or asked.port in self.cluster.cut:
            raise aiohttp.ClientError
        async with asyncio.timeout(timeout.total):
            share = await asked.shares.heard(decode_report(data))
        if self.port in self.cluster.cut:
            raise aiohttp.ClientError
        yield _Answer(409, b"") if share is None else _Answer(200, encode_message(share))

    def takes(self, name: str) -> bool:
        partition = partition_of_job(ref(name))
        term = self.role.works_on(partition)
        may_write = self.role.may_write() if self.role.term is not None else self.member.may_write()
        return term is not None and may_write and ref(name) in term.tracker

    async def push(self, name: str, step: int) -> bool:
        """Whether it was taken and stored here."""
        if not self.takes(name):
            return False
        term = self.role.works_on(partition_of_job(ref(name)))
        term.tracker.observed(report(name, step))
        try:
            await (self.streams if self.role.term is not None else self.member).replicated()
        except Unavailable:
            return False
        return True


def report(name: str, step: int) -> Observation:
    outcome = Progress(timestamp=T0, step=step, total_steps=10_000, metrics=(("loss", f"0.{step}"),))
    return Observation(ref=ref(name), attempt=RANK0.attempt, source="push", at=T0, outcome=outcome)


class _Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body

    @property
    def content(self) -> _Answer:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body


class Pods:
    """Each pushes a step after the other, to whichever replica has its job, and goes on when it is answered
    200."""

    def __init__(self, cluster: Cluster, names: Collection[str] = JOBS) -> None:
        self.cluster, self.names = cluster, names
        self.acknowledged: dict[str, int] = dict.fromkeys(names, 0)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in self.names:
                group.create_task(self._push(name))

    async def _push(self, name: str) -> None:
        while True:
            self.cluster.check()
            step = self.acknowledged[name] + 1
            for each in list(self.cluster.replicas.values()):
                if await each.push(name, step):
                    self.acknowledged[name] = step
                    break
            await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Pods]:
        task = asyncio.create_task(self.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def are_in(self, replica: Replica) -> bool:
        """Whether a replica shows all that was acknowledged, points and all."""
        shown = replica.steps()
        for name, step in self.acknowledged.items():
            history = replica.log.history(ref(name))
            steps = set() if history is None else {at for _, at, _ in history.attempts[-1].points("loss")}
            if (shown.get(name) or 0) < step or (step and step not in steps):
                return False
        return True


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServers]:
    with running(tmp_path / "nats") as servers:
        yield servers


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (shares_module, "BEAT_S", 0.1),
        (shares_module, "GONE_S", 3.0),
        (member_module, "BEAT_S", 0.1),
        (member_module, "HOLD_S", 2.0),
        (member_module, "CONFIRM_S", 0.3),
        (shares_module, "CONFIRM_S", 0.3),
    ):
        monkeypatch.setattr(module, name, value)


@contextlib.asynccontextmanager
async def three(nats: NatsServers) -> AsyncIterator[tuple[Cluster, Lease, list[Replica]]]:
    """The first owns the log."""
    cluster, lease, place = Cluster(), Lease(), place_of(nats)
    async with contextlib.AsyncExitStack() as stack:
        replicas = []
        for _ in range(3):
            replicas.append(await stack.enter_async_context(Replica(cluster, place, lease).running()))
            if len(replicas) == 1:
                await replicas[0].owning()
        await until(lambda: cluster.is_settled(*replicas))
        yield cluster, lease, replicas


async def test_each_job_has_one_owner_and_each_replica_shows_all(nats: NatsServers) -> None:
    async with three(nats) as (cluster, _, replicas), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 10)
        for each in replicas:
            await until(lambda each=each: pods.are_in(each))
        since = replicas[0].log.store.revision
        batches = []
        for each in replicas:  # a watch resumes at any of them
            await until(lambda each=each: each.log.store.revision > since + 20)
            batch = await each.log.store.watch("trainjobs", since).next_batch()
            batches.append([(change.revision, change.entry.document.step) for change in batch.changes][:20])
        assert batches[0] == batches[1] == batches[2]
        gone = next(name for name in JOBS if cluster.owners(name) == [replicas[1]])
        cluster.jobs.discard(gone)
        replicas[1].member.term.tracker.job_gone(ref(gone))
        for each in replicas:
            await until(lambda each=each: gone not in each.steps() and each.log.history(ref(gone)) is None)


async def test_each_change_that_a_member_makes_within_a_moment_is_an_event_at_every_replica(
    nats: NatsServers,
) -> None:
    async with three(nats) as (cluster, _, replicas):
        name, gone = [each for each in JOBS if cluster.owners(each) == [replicas[1]]][:2]
        since, term = replicas[0].log.store.revision, replicas[1].member.term
        assert term is not None
        for step in (1, 2, 3):
            for each in (name, gone):
                term.tracker.observed(report(each, step))
        cluster.jobs.discard(gone)
        term.tracker.job_gone(ref(gone))
        for replica in replicas:
            await until(lambda replica=replica: gone not in replica.steps())
            batch = await replica.log.store.watch("trainjobs", since).next_batch()
            seen = [
                (each.type, each.entry.document.job.ref.name, each.entry.document.step)
                for each in batch.changes
            ]
            assert [each for each in seen if each[1] == name] == [
                ("MODIFIED", name, step) for step in (1, 2, 3)
            ]
            assert [each for each in seen if each[1] == gone] == [
                *(("MODIFIED", gone, step) for step in (1, 2, 3)),
                ("DELETED", gone, 3),
            ]


async def test_what_a_dead_member_owned_is_taken_over_with_all_that_was_acknowledged(
    nats: NatsServers,
) -> None:
    async with three(nats) as (cluster, _, (owner, dead, other)), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        before = {name: cluster.owners(name) for name in JOBS}
        cluster.cut.add(dead.port)
        del cluster.replicas[dead.port]
        await until(lambda: cluster.is_settled(owner, other))
        assert all(
            cluster.owners(name) == owners for name, owners in before.items() if owners in ([owner], [other])
        )
        await until(lambda: pods.are_in(owner) and pods.are_in(other))


async def test_jobs_that_are_deleted_while_nobody_has_them_end_on_every_replica(nats: NatsServers) -> None:
    async with three(nats) as (cluster, _, (owner, dead, other)):
        deleted = {name for name in JOBS if cluster.owners(name) == [dead]}
        cluster.cut.add(dead.port)
        del cluster.replicas[dead.port]
        cluster.jobs -= deleted
        for each in (owner, other):
            await until(lambda each=each: not deleted & each.steps().keys())


async def test_a_member_works_on_no_job_before_it_has_followed_what_was_written_of_it(
    nats: NatsServers,
) -> None:
    async with three(nats) as (cluster, _, (owner, dead, late)):
        before = {name for name in JOBS if cluster.owners(name) == [late]}
        follows, late.member._followed = late.member._followed, lambda: (1, 1)
        cluster.cut.add(dead.port)
        del cluster.replicas[dead.port]
        own = share_out(frozenset((owner.place.writer, late.place.writer)))
        its = {name for name in JOBS if own[partition_of_job(ref(name))] == late.place.writer}
        await until(lambda: {partition_of_job(ref(name)) for name in its} <= late.member._held.keys())
        assert {name for name in JOBS if late.member.holds(ref(name))} == before != its
        late.member._followed = follows
        await until(lambda: cluster.is_settled(owner, late))


async def test_a_member_that_does_not_follow_the_log_leaves_the_jobs_to_others(nats: NatsServers) -> None:
    async with three(nats) as (cluster, _, (owner, dead, lost)):
        follows, lost.member._followed = lost.member._followed, lambda: (0, 0)
        cluster.cut.add(dead.port)
        del cluster.replicas[dead.port]
        await until(lambda: cluster.is_settled(owner))
        lost.member._followed = follows
        await until(lambda: cluster.is_settled(owner, lost))


@pytest.mark.parametrize("is_renewed", [True, False])
async def test_another_term_begins_when_no_member_holds_anything(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch, is_renewed: bool
) -> None:
    async with three(nats) as (cluster, lease, (owner, cut, _)), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 1)
        term = owner.role.term
        cluster.cut.add(cut.port)  # it goes on for a while
        if is_renewed:
            owner.role.renew()
        else:

            async def fails(*_: object) -> bool:
                return False

            monkeypatch.setattr(owner.streams, "_write", fails)
        await until(lambda: owner.role.term is not term and lease.holder is not None)
        assert not cut.member.may_write()
        cluster.cut.clear()
        monkeypatch.undo()


async def test_a_member_that_stood_still_writes_nothing_more_and_comes_back(nats: NatsServers) -> None:
    async with three(nats) as (cluster, _, (owner, still, other)), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        cluster.cut.add(still.port)
        await until(lambda: cluster.is_settled(owner, other))
        name = next(iter(JOBS))
        still.now += 100.0  # its clock went on
        assert not await still.push(name, 9999)
        cluster.cut.clear()
        await until(lambda: cluster.is_settled(owner, still, other))
        for each in (owner, still, other):
            await until(lambda each=each: pods.are_in(each))
            assert 9999 not in each.steps().values()


async def test_a_member_that_ends_in_order_hands_over_at_once(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares_module, "GONE_S", 60.0)  # nobody waits for that
    async with three(nats) as (cluster, _, (owner, ending, other)), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        await ending.role.leave()
        await until(lambda: cluster.is_settled(owner, other))
        await until(lambda: pods.are_in(owner) and pods.are_in(other))


# nats-py leaves a connection behind that is ended while a silent server has not greeted it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_known", [True, False])
async def test_an_owner_that_ends_while_nats_is_silent_lets_the_log_go_when_nobody_has_a_share(
    nats: NatsServers, is_known: bool
) -> None:
    """The next owner begins with all jobs."""
    async with three(nats) as (cluster, lease, (ending, *members)), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        with nats.paused():
            if is_known:
                await until(lambda: ending.streams.fault is not None)
            async with asyncio.timeout(15):
                await ending.role.leave()
                held = [each.port for each in members if each.member.may_write()]
                await ending.role.end()
            assert not held
            assert lease.holder is None
        ending.task.cancel()
        del cluster.replicas[ending.port]
        await until(lambda: cluster.is_settled(*members))
        for each in members:
            await until(lambda each=each: pods.are_in(each))
    gc.collect()  # or a later test is told


@pytest.mark.parametrize("in_order", [True, False])
async def test_the_owner_of_the_log_goes_and_members_go_on_with_the_next(
    nats: NatsServers, in_order: bool
) -> None:
    async with three(nats) as (cluster, lease, (gone, one, two)), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        if in_order:
            await gone.role.leave()
            del cluster.replicas[gone.port]
        else:
            del cluster.replicas[gone.port]
            gone.task.cancel()
            await until(lambda: not one.member.may_write() and not two.member.may_write())
            lease.holder = None  # it ends, later than their share
        await until(lambda: cluster.is_settled(one, two))
        await until(lambda: pods.are_in(one) and pods.are_in(two))


async def test_nothing_that_was_acknowledged_is_lost_with_nats(nats: NatsServers) -> None:
    async with three(nats) as (cluster, _, replicas), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        nats.kill()
        await until(lambda: replicas[0].streams.fault is not None)
        nats.start()
        reached = dict(pods.acknowledged)
        await until(lambda: all(pods.acknowledged[name] > step for name, step in reached.items()))
        for each in replicas:
            await until(lambda each=each: pods.are_in(each))


async def test_when_nats_has_lost_the_log_all_that_was_acknowledged_is_written_anew_while_pods_push(
    nats: NatsServers,
) -> None:
    async with three(nats) as (cluster, _, replicas), Pods(cluster).running() as pods:
        await until(lambda: min(pods.acknowledged.values()) > 3)
        nats.kill()
        nats.wipe()
        await until(lambda: any(each.streams.fault is not None for each in replicas))
        nats.start()
        reached = dict(pods.acknowledged)
        await until(lambda: all(pods.acknowledged[name] > step for name, step in reached.items()))
        for each in replicas:
            await until(lambda each=each: pods.are_in(each))
        await until(lambda: cluster.is_settled(*replicas))


async def test_what_a_members_terms_kept_is_given_back(nats: NatsServers) -> None:
    async with three(nats) as (cluster, lease, (gone, *members)):
        gc.disable()  # as good as: the server collects young objects alone
        gc.freeze()
        try:
            first = [weakref.ref(each.member.term) for each in members]
            for each in members:
                each.role.renew()
            await until(lambda: cluster.is_settled(gone, *members) and not any(each() for each in first))
            later = [(each, weakref.ref(each.member.term)) for each in members]
            del cluster.replicas[gone.port]
            gone.task.cancel()
            await until(lambda: not any(each.member.may_write() for each in members))
            lease.holder = None
            await until(lambda: cluster.is_settled(*members))
            assert [term() is None for each, term in later if each.role.term is not None] == [True]
        finally:
            gc.unfreeze()
            gc.enable()
