"""The log of the jobs in real servers of NATS, and replicas that own and follow it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from tests.certificates import Authority
from tests.jobs import RANK0, T0
from tests.nats_servers import NatsServers, running, running_as_deployed
from tests.service.test_replication import job, ref
from visibility_api.errors.status import Unavailable
from visibility_api.jobs.job import Phase
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.replication import nats_client, nats_follower, nats_log
from visibility_api.replication.follower import FollowLimits
from visibility_api.replication.frames import Changed, Complete, Hello, Listed
from visibility_api.replication.nats_client import (
    Location,
    NatsClient,
    Refused as NatsRefused,
    Unavailable as NatsUnavailable,
)
from visibility_api.replication.nats_follower import Listing, NatsFollower
from visibility_api.replication.nats_log import NatsLog, Place
from visibility_api.replication.role import Others, Role
from visibility_api.reports.document import Progress
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

NATS_PAGE = (Path(__file__).parents[2] / "docs/nats.md").read_text()
QUICK = FollowLimits(longest_pause_s=0.05, silence_s=3.0, behind_s=6.0)


class Lease:
    """One for all replicas of a test; the epochs rise."""

    def __init__(self) -> None:
        self.holder: object = None

    def of(self, who: object) -> Any:
        async def acquire(*, may: Callable[[], bool], after: Callable[[], int]) -> int:
            while self.holder not in (None, who) or not may():  # noqa: ASYNC110 - a double
                await asyncio.sleep(0.01)
            self.holder = who
            return after() + 1

        async def hold() -> None:
            while self.holder is who:  # noqa: ASYNC110 - a double
                await asyncio.sleep(0.01)

        async def release() -> None:
            if self.holder is who:
                self.holder = None

        return _Held(self, who, acquire, hold, release)


class _Held:
    def __init__(self, lease: Lease, who: object, acquire: Any, hold: Any, release: Any) -> None:
        self._lease, self._who = lease, who
        self.acquire, self.hold, self.release = acquire, hold, release
        self.failing_s = 0.0

    @property
    def is_held(self) -> bool:
        return self._lease.holder is self._who

    @property
    def is_anothers(self) -> bool:
        return self._lease.holder not in (None, self._who)


class Term:
    """What an owner does: it evaluates what is reported."""

    def __init__(self, log: JobLog) -> None:
        self.log, self.pushes = log, cast(Any, self)
        self.loops = [("work", asyncio.Event().wait)]
        self.owner = self.tracker = Tracker(
            publish=log.put,
            kept=log.kept,
            retract=log.delete,
            now=lambda: T0,
            interval_s=15.0,
            recall=log.recall,
        )

    async def adopt(self) -> None:
        for entry in self.log.store.list("trainjobs").entries:
            self.tracker.adopt(entry.document)
        self.log.is_complete, self.log.unlisted = True, frozenset()


class Replica:
    def __init__(self, location: Location, lease: Lease, *, max_changes: int = 10_000) -> None:
        self.log = JobLog(MemoryStore(base_revision=1, max_changes=max_changes))
        self.client = NatsClient(location)
        self.place = Place(f"{id(self):x}")
        self.held = held = lease.of(self)
        self.follower = NatsFollower(self.log, self.client, self.place, limits=QUICK)
        self.streams = NatsLog(self.log, self.client, self.place, port=4444)

        async def drained(_within_s: float) -> None:
            pass

        others = Others(lease=cast(Any, held), follower=self.follower, streams=self.streams, drained=drained)
        self.role = Role(self.log, lambda _may: Term(self.log), others=lambda _role: others)

    async def report(self, name: str, step: int) -> None:
        """As a push: returns when it is stored. Raises Unavailable."""
        assert self.role.term is not None
        tracker = self.role.term.tracker
        if ref(name) not in tracker:
            tracker.job_changed(job(name))
        report = Progress(timestamp=T0, step=step, total_steps=100, metrics=(("loss", f"0.{step}"),))
        tracker.observed(
            Observation(ref=ref(name), attempt=RANK0.attempt, source="push", at=T0, outcome=report)
        )
        await self.streams.replicated()

    async def report_until_taken(self, name: str, step: int) -> None:
        """As a pod that is answered 503 tries again."""
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(Unavailable, AssertionError):
                    return await self.report(name, step)
                await asyncio.sleep(0.05)

    def shown(self) -> dict[str, tuple[int, JobProgress]]:
        entries = self.log.store.list("trainjobs").entries
        return {each.document.job.ref.name: (each.revision, each.document) for each in entries}

    def steps(self) -> dict[str, int | None]:
        return {name: document.step for name, (_, document) in self.shown().items()}

    def curve(self, name: str) -> list[Any]:
        history = self.log.history(ref(name))
        return [] if history is None else [history.save()]

    async def owning(self) -> None:
        await until(lambda: self.role.term is not None and self.place.news is not None)
        await until(lambda: len(self.log._homes) == 2)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Replica]:
        task = self.task = asyncio.create_task(self.role.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self.client.close()


async def until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


async def until_every_server_has_it(replica: Replica) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NatsUnavailable, NatsRefused):
                infos = [
                    await replica.client._called((await replica.client._open()).stream_info(each))
                    for each in (replica.client.location.stream, replica.client.location.bucket)
                ]
                if all(each.current and not each.lag for info in infos for each in info.cluster.replicas):
                    return
            await asyncio.sleep(0.2)


def place_of(servers: NatsServers, *, replicas: int = 1, **more: Any) -> Location:
    return Location(servers=servers.urls, name="jobs", replicas=replicas, max_bytes=64 * 1024 * 1024, **more)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServers]:
    with running(tmp_path / "nats") as servers:
        yield servers


def same(one: Replica, another: Replica) -> Callable[[], bool]:
    return lambda: (
        one.shown() == another.shown()
        and all(
            one.log.state(ref(each)) == another.log.state(ref(each))
            and one.curve(each) == another.curve(each)
            for each in one.shown()
        )
    )


async def test_a_follower_has_what_the_owner_has_whenever_it_comes(nats: NatsServers) -> None:
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner:
        await owner.owning()
        for step in range(1, 20):
            await owner.report("bert", step)
        await owner.report("gpt", 3)
        since = owner.log.store.revision
        async with Replica(place, lease).running() as follower:
            await until(same(owner, follower))
            assert follower.log.is_complete
            await until(lambda: follower.follower.owner is not None)
            await owner.report("bert", 20)
            await owner.report("new", 1)
            owner.role.term.tracker.job_gone(ref("gpt"))
            await until(same(owner, follower))
            assert follower.shown().keys() == {"bert", "new"}
            feed = follower.log.store.watch("trainjobs", since)  # begun on the owner
            batch = await feed.next_batch()
            assert [change.type for change in batch.changes][:1] == ["MODIFIED"]


async def test_changes_that_memory_holds_no_more_reach_followers_and_the_owner_stays(
    nats: NatsServers,
) -> None:
    """As 30,000 jobs that become known at once."""
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease, max_changes=40).running() as owner:
        await owner.owning()
        await owner.report("leaves", 1)
        async with Replica(place, lease).running() as follower:
            await until(lambda: "leaves" in follower.shown())
            assert owner.role.term is not None
            term, tracker = owner.role.term, owner.role.term.tracker
            for number in range(700):
                tracker.job_changed(job(f"job-{number}"))
            tracker.job_gone(ref("leaves"))
            tracker.job_gone(ref("job-5"))
            for number in range(6, 60):
                tracker.job_changed(structs.replace(job(f"job-{number}"), phase=Phase.SUCCEEDED))
            await owner.report("last", 1)
            await until(same(owner, follower))
            assert len(follower.shown()) == 700
            assert owner.role.term is term


async def test_a_new_owner_with_an_empty_disk_goes_on_where_the_last_one_was_killed(
    nats: NatsServers,
) -> None:
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as first:
        await first.owning()
        for step in range(1, 10):
            await first.report("bert", step)
        before, curve = first.shown(), first.curve("bert")
    lease.holder = None  # it has ended
    async with Replica(place, lease).running() as second:
        await second.owning()
        assert second.steps() == {"bert": 9}
        assert second.curve("bert") == curve
        assert second.shown()["bert"][0] >= before["bert"][0]
        await second.report("bert", 10)
        assert second.shown()["bert"][0] > before["bert"][0]
        feed = second.log.store.watch("trainjobs", before["bert"][0])  # it resumes: no 410
        assert [each.entry.document.step for each in (await feed.next_batch()).changes][-1] == 10


async def test_entries_of_the_bucket_take_the_place_of_old_messages(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_log, "ENTRY_S", 0.1)
    monkeypatch.setattr(nats_follower, "HISTORY_MESSAGES", 0)
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner:
        await owner.owning()
        for step in range(1, 30):
            await owner.report("bert", step)
            await owner.report("gpt", step)
        await owner.report("gone", 1)
        await until(lambda: not owner.place.touched)
        owner.role.term.tracker.job_gone(ref("gone"))
        await until(lambda: owner.place.floor > owner.place.sequence)
        await until(lambda: not owner.streams._gone)
        connection = await owner.client._open()
        await connection.purge_stream(place.stream, keep=1)  # as its limits do
        assert len(await owner.client.keys()) == 2
        async with Replica(place, lease).running() as follower:
            await until(same(owner, follower))
            await owner.report("bert", 30)
            await until(same(owner, follower))


async def test_an_owner_of_an_older_epoch_writes_nothing_more(nats: NatsServers) -> None:
    """It was stopped, and goes on when another one owns the log."""
    lease, place = Lease(), place_of(nats)
    old = Replica(place, lease)
    old.held.hold = asyncio.Event().wait  # it does not notice that it has lost the Lease
    async with old.running():
        await old.owning()
        await old.report("bert", 1)
        term = old.role.term
        lease.holder = None
        async with Replica(place, lease).running() as new:
            await new.owning()
            await new.report("bert", 2)
            log = old.log
            log._may_write = lambda: True  # it has not noticed
            with pytest.raises(Unavailable):
                await old.report("bert", 99)
            assert new.steps() == {"bert": 2}
            await until(lambda: old.role.term is not term)
            await until(same(new, old))


async def test_what_was_acknowledged_survives_an_outage_and_the_rest_is_refused(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LOST_S", 1.0), ("STORED_S", 0.5)):
        monkeypatch.setattr(nats_log, name, value)
    monkeypatch.setattr(nats_follower, "LOST_S", 0.5)
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner, Replica(place, lease).running() as other:
        await until(lambda: owner.role.term is not None or other.role.term is not None)
        if owner.role.term is None:
            owner, other = other, owner
        await owner.owning()
        await owner.report("bert", 1)
        await until(lambda: other.steps() == {"bert": 1})
        nats.kill()
        with pytest.raises(Unavailable):
            await owner.report("bert", 2)
        assert owner.streams.fault is not None
        for each in (owner, other):  # shown, and marked
            await until(lambda each=each: "ReplicaBehind" in str(each.shown()["bert"][1].conditions))
            assert each.steps()["bert"] in (1, 2)
        await until(lambda: owner.role.out_of_sync_s == other.role.out_of_sync_s == 0)  # both stay ready
        nats.start()
        await until(lambda: owner.role.term is not None or other.role.term is not None)
        now = owner if owner.role.term is not None else other
        await now.owning()
        await now.report_until_taken("bert", 3)
        await until(same(owner, other))
        assert owner.steps() == {"bert": 3}
        assert owner.streams.fault is None


async def test_a_log_that_was_lost_is_written_anew_from_memory(nats: NatsServers) -> None:
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner:
        await owner.owning()
        await owner.report("bert", 1)
        revision = owner.log.store.revision
        nats.kill()
        nats.wipe()
        nats.start()
        await owner.report_until_taken("bert", 2)
        async with Replica(place, lease).running() as follower:
            await until(same(owner, follower))
            assert follower.steps() == {"bert": 2}
            assert follower.log.store.revision > revision


async def test_an_owner_that_ends_in_order_hands_over_at_once(nats: NatsServers) -> None:
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as first:
        await first.owning()
        await first.report("bert", 1)
        async with Replica(place, lease).running() as second:
            await until(lambda: second.follower.owner is not None)
            began = time.monotonic()
            await first.role.leave()
            await second.owning()
            assert time.monotonic() - began < 2
            await second.report("bert", 2)
            await until(same(first, second))


def test_of_a_listing_no_state_is_shown_that_is_not_known() -> None:
    """Entries may be newer than changes of the stream: what such a job was before its first is not known."""

    def document(name: str, step: int) -> JobProgress:
        return JobProgress(job=job(name), step=step, phase=Phase.RUNNING)

    def change(type_: Any, revision: int, name: str, step: int) -> Changed:
        return Changed(type=type_, revision=revision, document=document(name, step))

    listing = Listing()
    listing.add(document("old", 1), 5)  # before the stream
    listing.add(document("ahead", 9), 30)  # newer than its first change
    listing.add(document("new", 3), 14)  # added since
    for each in (
        change("ADDED", 11, "new", 1),
        change("MODIFIED", 12, "ahead", 7),
        change("MODIFIED", 14, "new", 3),
        change("MODIFIED", 30, "ahead", 9),
        change("DELETED", 31, "old", 1),
    ):
        listing.change(each)
    hello, *frames, complete = listing.frames(1, 31)
    assert (hello, complete) == (Hello(epoch=1, revision=12, is_resumed=False), Complete())
    shown = [each for each in frames if isinstance(each, Listed)]
    assert {(each.document.job.ref.name, each.document.step, each.revision) for each in shown} == {
        ("old", 1, 5),
        ("new", 1, 11),
        ("ahead", 7, 12),
    }
    assert [each.revision for each in frames if isinstance(each, Changed)] == [14, 30, 31]


@pytest.mark.parametrize("form", ["token", "password", "certificate"])
async def test_credentials_are_read_from_files_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(nats_client, "RELOAD_S", 0.05)
    secret, more = tmp_path / "secret", dict[str, Any]()
    authority = Authority("nats")
    cert, key = authority.issue("nats", usages=[], hosts=["127.0.0.1"]).write(tmp_path, "server")
    if form == "token":
        config, good = ['authorization { token: "t0ken" }'], "t0ken"
    elif form == "password":
        (granted,) = re.findall(
            r"^    (publish: .*?\n    subscribe: .*?)\n", NATS_PAGE, re.MULTILINE | re.DOTALL
        )
        granted = granted.replace("NAME", "jobs")
        config, good = (
            [f'authorization {{ user: "u", password: "pass", permissions {{ {granted} }} }}'],
            "u:pass",
        )
    else:
        ca = tmp_path / "ca.pem"
        ca.write_text(authority.pem)
        config, good = (
            [f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{ca}", verify: true }}'],
            "x",
        )
        more = {"ca_file": ca, "cert_file": cert, "key_file": key}
    secret.write_text("wr:ong")
    if form != "certificate":
        more["credentials_file"] = secret
    with running(tmp_path / "nats", config=config) as servers:
        client = NatsClient(place_of(servers, **more))
        if form != "certificate":
            with pytest.raises(NatsUnavailable):
                await client.append(b"", 0)
        secret.write_text(good)
        assert await client.append(b"", 0) == 1
        following = asyncio.create_task(client.follow_files())
        first = client._connection
        (cert if form == "certificate" else secret).write_text(
            cert.read_text() + "\n" if form == "certificate" else good + "\n"
        )
        await until(lambda: first.is_closed)
        assert await client.append(b"", 1) == 2
        assert await client.put("a", b"x", 0) == 1
        assert (await client.last(), await client.keys()) == (
            ("jobs.log", 2, b"", 0),
            {"$KV.jobs-jobs.a": 1},
        )
        await client.purge("a", 1)
        assert await client.keys() == {}
        following.cancel()
        await client.close()


async def test_the_servers_of_the_component_form_a_cluster_that_keeps_three_copies(tmp_path: Path) -> None:
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    secret.write_text("t0c0ffee")
    wrong.write_text("t0c0ffed")
    with running_as_deployed(tmp_path / "nats", secret.read_text()) as urls:
        place = Location(servers=urls[:1], name="jobs", replicas=3, max_bytes=2**30, credentials_file=secret)
        client, stranger = NatsClient(place), NatsClient(replace(place, credentials_file=wrong))
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(NatsUnavailable):  # until they have elected a leader
                    assert await client.append(b"", 0) == 1
                    break
                await asyncio.sleep(0.2)
        info = await client._called((await client._open()).stream_info(place.bucket))
        assert len(info.cluster.replicas) == 2
        with pytest.raises(NatsUnavailable, match="Authorization"):
            await stranger.append(b"", 1)
        await client.close()
        await stranger.close()


async def test_a_server_without_tls_is_told_nothing_where_tls_is_wanted(
    nats: NatsServers, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("u:pass")
    place = place_of(nats, credentials_file=secret)
    client = NatsClient(replace(place, servers=[each.replace("nats://", "tls://") for each in place.servers]))
    with pytest.raises(NatsUnavailable, match="offers no TLS"):
        await client.append(b"", 0)
    await client.close()


async def test_of_three_servers_each_may_be_killed_wiped_and_stopped(tmp_path: Path) -> None:
    """What was acknowledged is there at the end, in every replica, and no revision went back."""
    lease = Lease()
    with running(tmp_path / "nats", 3) as servers:
        place = place_of(servers, replicas=3)
        async with Replica(place, lease).running() as owner, Replica(place, lease).running() as other:
            await until(lambda: owner.role.term is not None or other.role.term is not None, 60)
            if owner.role.term is None:
                owner, other = other, owner
            await owner.owning()
            step, revisions = 1, [0]
            await owner.report_until_taken("bert", step)
            for number in range(3):
                servers.kill(number)
                for _ in range(5):
                    step += 1
                    await owner.report_until_taken("bert", step)
                    revisions.append(owner.shown()["bert"][0])
                servers.wipe(number)
                servers.start(number)
                await until(same(owner, other), 60)
                await until_every_server_has_it(owner)
            with servers.paused(0, 1), pytest.raises(Unavailable):  # no quorum
                await owner.report("bert", step + 1)
            await until(lambda: bool(owner.role.term or other.role.term), 60)
            await (owner if owner.role.term else other).report_until_taken("bert", step + 2)
            await until(same(owner, other), 60)
            assert owner.steps() == {"bert": step + 2}
            assert revisions == sorted(revisions)
