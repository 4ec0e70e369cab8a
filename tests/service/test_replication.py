"""The owner's log and its followers, over real TLS connections between two replicas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from yarl import URL

from tests.certificates import Authority, Certificate
from tests.jobs import RANK0, T0, document
from tests.pushing import HANDLERS, Nobody
from tests.service.tls_server import serving_app, until
from visibility_api.app import Limits, Parts, create_app
from visibility_api.app.limits import new_shares
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.errors.status import Unavailable
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kube.errors import Unreachable
from visibility_api.replication.addresses import Address
from visibility_api.replication.follower import Follower, FollowLimits
from visibility_api.replication.peer_client import PeerClient
from visibility_api.replication.questions import Questions
from visibility_api.replication.recognition import ReplicaKey, derive_replica_key
from visibility_api.replication.requests import LogRequests
from visibility_api.replication.streams import PATH, LogStreams
from visibility_api.reports.document import Progress
from visibility_api.store import RevisionExpired
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.replicas import Replicas, ReplicaStatus, ReplicaStatuses

SERVING = Authority("serving")
OURS, OTHER = (SERVING.issue("visibility-api", usages=[], hosts=["127.0.0.1"]) for _ in range(2))
QUICK = FollowLimits(first_pause_s=0.01, longest_pause_s=0.05, silence_s=0.5)


def ref(name: str) -> JobRef:
    return JobRef(resource="trainjobs", namespace="team-a", name=name, uid=f"uid-of-{name}")


def job(name: str) -> TrainingJob:
    return TrainingJob(ref=ref(name), labels={"team": "a"}, created_at=T0, phase=Phase.RUNNING, rank0=RANK0)


@dataclass(slots=True)
class Owned:
    """The role of a replica that asks."""

    owner: Address | None = None

    def works_on(self, _partition: int) -> None:
        return None

    def address(self, _partition: int) -> Address | None:
        return self.owner


@dataclass(slots=True, kw_only=True)
class Replica:
    """A log, and either the tracker that owns it or the follower that fills it."""

    certificate: Certificate
    directory: Path
    known: tuple[Certificate, ...] = ()  # that other replicas serve soon, or have served until lately
    epoch: int | None = None  # of the owner
    log: JobLog = field(default_factory=lambda: JobLog(MemoryStore(base_revision=1)))
    tracker: Tracker = field(init=False)
    streams: LogStreams = field(init=False)
    replicas: Replicas | None = None  # of jobs
    owner: None = None
    has_term: bool = True
    questions: Questions = field(init=False)
    pushes: Any = None  # that other replicas pass on
    requested: list[JobRef] = field(default_factory=list)
    shares: TimeShares = field(default_factory=lambda: new_shares(Limits()))  # of users
    port: int = 0

    def __post_init__(self) -> None:
        self.streams = LogStreams(self.log, epoch=lambda: self.epoch)
        self.questions = Questions(cast(Any, self), None, self.shares)
        self.tracker = Tracker(
            publish=self.log.put,
            kept=self.log.kept,
            retract=self.log.delete,
            now=lambda: T0,
            interval_s=15.0,
            recall=self.log.recall,
        )

    def own(self, epoch: int) -> None:
        self.epoch = epoch
        self.log.own(self.tracker, epoch, lambda: self.epoch is not None)
        for entry in self.log.store.list("trainjobs").entries:
            self.tracker.adopt(entry.document)
        self.log.is_complete, self.log.unlisted = True, frozenset()

    def report(self, name: str, step: int) -> None:
        if ref(name) not in self.tracker:
            self.tracker.job_changed(job(name))
        report = Progress(timestamp=T0, step=step, total_steps=100, metrics=(("loss", f"0.{step}"),))
        self.tracker.observed(
            Observation(ref=ref(name), attempt=RANK0.attempt, source="push", at=T0, outcome=report)
        )

    def replica_keys(self) -> list[ReplicaKey]:
        """Of the certificate that it serves, and of others that it knows."""
        return [
            derive_replica_key(*(file.read_bytes() for file in each.write(self.directory, f"{id(each)}")))
            for each in (self.certificate, *self.known)
        ]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        registry = CollectorRegistry()
        app = create_app(
            Parts(
                authenticator=Nobody(),
                authorizer=Nobody(),
                handlers=HANDLERS,
                resources=(TrainJobKind.served,),
                registry=registry,
                metrics=RequestMetrics(registry),
                log_streams=LogRequests(
                    self.streams, self.log, self.replica_keys, self.questions, self.pushes
                ),
            )
        )
        async with serving_app(app, *self.certificate.write(self.directory, "serving")) as self.port:
            yield
            self.streams.close()

    def works_on(self, _partition: int) -> Replica | None:
        """As a Role has it."""
        return self if self.has_term else None

    @property
    def diagnoser(self) -> Replica:
        """As a term has it."""
        return self

    def request(self, ref: JobRef) -> float:
        """As a Diagnoser has it."""
        self.requested.append(ref)
        return 41.5

    @contextlib.asynccontextmanager
    async def following(self, *owners: Replica, limits: FollowLimits = QUICK) -> AsyncIterator[Follower]:
        client = PeerClient(self.replica_keys)
        names = [f"127.0.0.1:{owner.port}" for owner in owners]
        follower = Follower(self.log, names, client, port=1, limits=limits)
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(follower.run())
                try:
                    yield follower
                finally:
                    task.cancel()
        finally:
            await client.close()

    def shown(self) -> dict[str, tuple[int, JobProgress]]:
        entries = self.log.store.list("trainjobs").entries
        return {each.document.job.ref.name: (each.revision, each.document) for each in entries}

    def kept(self) -> dict[str, tuple[bytes | None, bytes | None]]:
        histories = {each.name: self.log.history(each) for each in self.log}
        return {
            each.name: (self.log.state(each), h.save() if (h := histories[each.name]) is not None else None)
            for each in self.log
        }


@pytest.fixture
def owner(tmp_path: Path) -> Replica:
    made = Replica(certificate=OURS, directory=tmp_path)
    made.own(100)
    for step in range(1, 20):
        made.report("bert", step)
    made.report("gpt", 7)
    return made


@pytest.fixture
def other(tmp_path: Path) -> Replica:
    return Replica(certificate=OURS, directory=tmp_path)


def same(one: Replica, another: Replica) -> Callable[[], bool]:
    return lambda: (
        one.shown() == another.shown()
        and one.kept() == another.kept()
        and one.log.store.revision == another.log.store.revision
    )


async def test_a_follower_has_what_the_owner_has_and_what_changes(owner: Replica, other: Replica) -> None:
    async with owner.serving(), other.following(owner):
        await until(lambda: other.log.is_complete)
        assert same(owner, other)()
        owner.report("bert", 20)
        owner.report("new", 1)
        owner.tracker.job_gone(ref("gpt"))
        await until(same(owner, other))
        assert other.shown().keys() == {"bert", "new"}
        assert other.log.is_listed("team-a")


class Listed(Replicas):
    """Of one job."""

    def __init__(self) -> None:
        self.asked: list[JobRef] = []
        self.fails = False

    def fresh(self, ref: JobRef) -> ReplicaStatuses | None:
        return None

    async def read(self, ref: JobRef) -> ReplicaStatuses:
        self.asked.append(ref)
        if self.fails:
            raise Unreachable("no")
        return ReplicaStatuses(
            at=T0, items=(ReplicaStatus(name="node-0", pod_name="bert-0", state="Running"),)
        )


async def test_a_follower_asks_the_owner_for_the_statuses_of_replicas(owner: Replica, other: Replica) -> None:
    owner.replicas = listed = Listed()
    made_up = [key._replace(proof="made up") for key in other.replica_keys()]
    client, stranger = (PeerClient(keys) for keys in (other.replica_keys, lambda: made_up))
    asked = Owned()
    questions = Questions(cast(Any, asked), client, other.shares)
    with pytest.raises(Unavailable):  # nobody owns the jobs
        await questions.read_replicas(ref("bert"), "user jane")
    try:
        async with owner.serving():
            asked.owner = Address("127.0.0.1", owner.port)
            found = await questions.read_replicas(ref("bert"), "user jane")
            assert found == await Listed().read(ref("bert"))
            assert listed.asked == [ref("bert")]
            assert owner.shares.due("user jane") > -math.inf  # she is charged there
            listed.fails = True
            with pytest.raises(Unavailable):
                await questions.read_replicas(ref("bert"), "user jane")
            owner.has_term = False
            with pytest.raises(Unavailable):
                await questions.read_replicas(ref("bert"), "user jane")
            owner.has_term = True
            unknown = Questions(cast(Any, asked), stranger, other.shares)
            with pytest.raises(Unavailable):
                await unknown.read_replicas(ref("bert"), "user jane")
            assert len(listed.asked) == 2
    finally:
        await stranger.close()
        await client.close()


async def test_a_follower_passes_requests_for_a_diagnosis_on(owner: Replica, other: Replica) -> None:
    asked, client = Owned(), PeerClient(other.replica_keys)
    follower = Questions(cast(Any, asked), client, other.shares)
    try:
        async with owner.serving():
            asked.owner = Address("127.0.0.1", owner.port)
            assert await follower.diagnose(ref("bert")) == 41.5
            assert owner.requested == [ref("bert")]
        with pytest.raises(Unavailable):
            await follower.diagnose(ref("bert"))
        asked.owner = None
        with pytest.raises(Unavailable):
            await follower.diagnose(ref("bert"))
    finally:
        await client.close()


async def test_a_job_as_large_as_etcd_takes_is_on_each_replica(owner: Replica, other: Replica) -> None:
    labels = {f"{number:0>60}": "x" * 60 for number in range(12_000)}
    owner.log.put(document("large", labels=labels))
    async with owner.serving(), other.following(owner):
        await until(same(owner, other))
    assert "large" in other.shown()


async def test_a_watch_on_a_follower_goes_on_when_the_jobs_change_hands(
    owner: Replica, other: Replica, tmp_path: Path
) -> None:
    third = Replica(certificate=OURS, directory=tmp_path)
    async with owner.serving(), other.serving(), third.following(owner, other):
        async with other.following(owner):
            await until(lambda: other.log.is_complete and third.log.is_complete)
            feed = third.log.store.watch("trainjobs", third.log.store.revision)
        owner.epoch = None
        await owner.log.disown()
        owner.streams.close()
        other.own(200)
        other.report("bert", 50)
        batch = await feed.next_batch()
        assert [(each.type, each.entry.document.step) for each in batch.changes] == [("MODIFIED", 50)]
        assert batch.changes[0].revision > 200 << 30
        assert not feed.is_cut
        await until(same(other, third))


async def test_a_client_of_the_owner_resumes_its_watch_at_a_follower(owner: Replica, other: Replica) -> None:
    """Changes of before the follower began are there as well."""
    began = owner.log.store.revision
    owner.report("bert", 30)
    async with owner.serving(), other.following(owner):
        await until(lambda: other.log.is_complete)
        batch = await other.log.store.watch("trainjobs", began).next_batch()
        assert [each.entry.document.step for each in batch.changes] == [30]


async def test_who_has_changes_that_the_owner_never_saw_begins_anew(owner: Replica, other: Replica) -> None:
    """As an owner whose last changes reached nobody."""
    async with owner.serving(), other.following(owner):
        await until(lambda: other.log.is_complete)
    other.own(101)
    other.report("lost", 1)
    watch = other.log.store.watch("trainjobs", other.log.store.revision)
    other.epoch = None
    await other.log.disown()
    await owner.log.disown()
    owner.own(102)
    async with owner.serving(), other.following(owner):
        await until(same(owner, other))
    assert "lost" not in other.shown()
    assert watch.is_cut


async def test_an_owner_of_an_older_epoch_is_not_followed(owner: Replica, other: Replica) -> None:
    other.own(500)
    other.report("bert", 99)
    other.epoch = None
    await other.log.disown()
    before = other.shown()
    async with owner.serving(), other.following(owner) as follower:
        await until(lambda: follower.has_searched)
        assert follower.owner is None
        assert other.shown() == before


async def test_a_push_is_answered_when_each_follower_has_it_and_one_that_confirms_nothing_is_cut(
    owner: Replica, other: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visibility_api.replication.streams.CONFIRM_S", 0.2)
    async with owner.serving(), other.following(owner) as follower:
        await until(lambda: owner.streams.followers == 1 and follower.owner is not None)
        owner.report("bert", 40)
        await owner.streams.replicated()
        assert other.shown() == owner.shown()
        async with confirming_nothing(other, owner):
            await until(lambda: owner.streams.followers == 2)
            owner.report("bert", 41)
            await owner.streams.replicated()
            assert owner.streams.followers == 1
        assert other.shown() == owner.shown()


@contextlib.asynccontextmanager
async def confirming_nothing(replica: Replica, owner: Replica) -> AsyncIterator[None]:
    """A follower that takes what it is sent and never says so."""

    async def nothing() -> AsyncIterator[bytes]:
        yield b"\0" * 8
        await asyncio.Event().wait()

    client = PeerClient(replica.replica_keys)
    url = URL.build(scheme="https", host="127.0.0.1", port=owner.port, path=PATH)
    try:
        async with client.request("POST", url, data=nothing(), timeout=aiohttp.ClientTimeout()) as answer:
            assert answer.status == 200
            yield
    finally:
        await client.close()


@pytest.mark.parametrize("is_owner_first", [True, False])
async def test_replicas_follow_one_another_while_they_change_the_certificate_one_by_one(
    owner: Replica, other: Replica, is_owner_first: bool
) -> None:
    renewed = SERVING.issue("visibility-api", hosts=["127.0.0.1"])
    first, second = (owner, other) if is_owner_first else (other, owner)
    first.certificate, first.known = renewed, (OURS,)
    second.known = (renewed,)
    async with owner.serving(), other.following(owner):
        await until(lambda: other.log.is_complete)
        owner.report("bert", 20)
        await until(same(owner, other))


async def test_a_replica_knows_since_when_it_follows_no_owner(owner: Replica, other: Replica) -> None:
    async with owner.serving(), other.following(owner) as follower:
        await until(lambda: follower.owner is not None)
        assert follower.lost_at is None
        owner.streams.close()
        owner.epoch = None
        await until(lambda: follower.owner is None)
        assert follower.lost_at is not None


async def test_a_replica_that_has_lost_the_owner_says_so_in_each_document(
    owner: Replica, other: Replica
) -> None:
    """Numbers that stand still look like a job that does. Watchers are told, and list again afterwards."""
    owner.tracker.job_changed(replace(job("ended"), phase=Phase.SUCCEEDED))
    behind = FollowLimits(first_pause_s=0.01, longest_pause_s=0.05, silence_s=0.5, behind_s=0.0)
    async with owner.serving(), other.following(owner, limits=behind) as follower:
        await until(same(owner, other))
        before, feed = other.shown(), other.log.store.watch("trainjobs", other.log.store.revision)
        owner.epoch = None
        owner.streams.close()
        await until(lambda: follower.owner is None and other.shown() != before)
        fresh = {each: document.condition("Fresh") for each, (_, document) in other.shown().items()}
        assert {each: (f.status, f.reason) for each, f in fresh.items()} == {
            "bert": ("False", "ReplicaBehind"),
            "gpt": ("False", "ReplicaBehind"),
            "ended": ("False", "NoReport"),
        }
        assert other.shown()["bert"][1].remaining_s is None
        told = (await feed.next_batch()).changes
        assert {each.entry.document.job.ref.name for each in told} == {"bert", "gpt"}
        branch = other.log.store.revision
        owner.epoch = 100
        await until(same(owner, other))
    for each in (owner, other):
        with pytest.raises(RevisionExpired):
            each.log.store.watch("trainjobs", branch)


async def test_a_replica_that_has_lost_the_owner_and_owns_the_jobs_shows_them_as_they_are(
    owner: Replica, other: Replica
) -> None:
    behind = FollowLimits(first_pause_s=0.01, longest_pause_s=0.05, silence_s=0.5, behind_s=0.0)
    async with owner.serving(), other.following(owner, limits=behind) as follower:
        await until(same(owner, other))
        before = other.shown()
        owner.epoch = None
        owner.streams.close()
        await until(lambda: follower.owner is None and other.shown() != before)
        branch = other.log.store.revision
    feed = other.log.store.watch("trainjobs", branch)
    other.own(101)
    other.tracker.job_changed(job("bert"))
    (told,) = (await feed.next_batch()).changes
    fresh = told.entry.document.condition("Fresh")
    assert fresh is not None
    assert (fresh.status, fresh.reason) == ("True", "RecentReport")


async def test_a_replica_that_does_not_own_the_jobs_says_whether_it_knows_them(
    owner: Replica, other: Replica
) -> None:
    owner.epoch = None
    async with owner.serving(), other.following(owner) as follower:
        await until(lambda: follower.has_searched)
        assert follower.others_have_log
        assert not other.log.is_complete


async def test_an_impostor_gets_no_byte_though_its_ca_and_names_are_ours(
    owner: Replica, other: Replica
) -> None:
    owner.certificate = OTHER
    reached = []
    owner.streams.serve = lambda *_: reached.append(1)  # type: ignore[method-assign, assignment, func-returns-value]
    async with owner.serving(), other.following(owner) as follower:
        await until(lambda: follower.has_searched)
    assert (reached, other.shown()) == ([], {})


@pytest.mark.parametrize("headers", [{}, {"x-visibility-peer": "0" * 64}])
async def test_whoever_has_not_our_key_is_given_no_log(owner: Replica, headers: dict[str, str]) -> None:
    async with owner.serving(), aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{owner.port}{PATH}"
        async with session.post(url, headers=headers, ssl=False, data=b"") as answer:
            assert (answer.status, json.loads(await answer.read())["reason"]) == (401, "Unauthorized")


async def test_an_owner_that_falls_silent_is_left(
    owner: Replica, other: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visibility_api.replication.streams.BEAT_S", 60.0)
    async with owner.serving(), other.following(owner) as follower:
        await until(lambda: follower.owner is not None)
        await until(lambda: follower.owner is None)
