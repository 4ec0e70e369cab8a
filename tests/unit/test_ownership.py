"""What an owner does with the jobs that it has taken over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.jobs import JOB, document, job_ref
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.jobs.summary import JobProgress
from visibility_api.kinds import BUILT_IN
from visibility_api.kinds.replicated_jobs import PODS
from visibility_api.kube.errors import Unreachable
from visibility_api.kube.watch import WatchHealth
from visibility_api.ownership import OwnersTerm, are_pods_watched
from visibility_api.replication.partitions import PARTITIONS, partition_of_job
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.elsewhere import Upstreams
from visibility_api.workloads.kind import WatchedObjects

from .virtual_time import in_virtual_time


@dataclass
class Watched:
    """A collection's watch."""

    scope: str | None
    path: str = "/apis"
    health: WatchHealth = field(default_factory=WatchHealth)
    objects: WatchedObjects = PODS

    @property
    def is_awaited(self) -> bool:
        return not self.health.synced

    async def run(self) -> None:
        await asyncio.Event().wait()

    def down_scopes(self, for_s: float) -> list[str | None]:
        return [self.scope] if self.health.is_down(for_s) else []

    def is_down(self, _namespace: str) -> bool:
        return self.health.down_since is not None


class Taken:
    """A term that has taken these jobs over; `exist` are those that the cluster has shown."""

    def __init__(self, *watches: Watched, has_followed: bool = True, tracker: Any = None) -> None:
        self.jobs = {job_ref(name, namespace) for name in ("a", "b") for namespace in ("one", "two")}
        self.exist: set[JobRef] = set()
        self.late: set[JobRef] = set()  # that exist, and that no watch has shown
        self.is_away = False  # kube-apiserver
        self.log = JobLog(MemoryStore(base_revision=1))
        if has_followed:
            self.log.is_complete, self.log.unlisted = True, frozenset()
        self.term = OwnersTerm(
            kinds=BUILT_IN,
            jobs=self.log,
            owner=cast(Any, tracker or self.jobs),
            inventory=cast(Any, self.exist),
            prober=cast(Any, None),
            watches=cast(Any, watches),
            pushes=None,
            replicas=cast(Any, None),
            diagnoser=cast(Any, None),
            on_gone=self.jobs.discard,
            published=lambda _document: None,
            loops_of_parts=(),
            waiting_write_backs=lambda: 0,
            keeper=None,
            job_pods=None,
            upstreams=Upstreams({}, lambda _resource, _key: None),
            exists=self._exists,
        )

    async def _exists(self, ref: JobRef) -> bool:
        if self.is_away:
            raise Unreachable("no")
        return ref in self.late

    async def settle(self) -> None:
        """Let it look at the watches."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await dict(self.term.loops)["known jobs"]()


async def test_jobs_that_were_deleted_meanwhile_end_once_all_are_listed() -> None:
    watch = Watched(None)
    taken = Taken(watch)
    taken.exist.add(job_ref("a", "one"))
    watch.health.attempted = True  # it failed, and knows nothing yet
    await taken.settle()
    assert len(taken.jobs) == 4
    watch.health.synced = True
    await taken.settle()
    assert taken.jobs == taken.exist


async def test_of_a_namespace_that_cannot_be_listed_no_job_ends() -> None:
    listed, refused = Watched("one"), Watched("two")
    listed.health.synced = listed.health.attempted = refused.health.attempted = True
    taken = Taken(listed, refused)
    await taken.settle()
    assert {ref.namespace for ref in taken.jobs} == {"two"}


async def test_one_that_starts_anew_serves_what_is_listed_once_all_was_tried() -> None:
    listed, other = Watched("one"), Watched("two")
    taken = Taken(listed, other, has_followed=False)
    listed.health.synced = listed.health.attempted = True
    await taken.settle()
    assert (taken.log.is_complete, taken.log.is_listed("one")) == (False, True)
    other.health.attempted = True
    await taken.settle()
    assert taken.log.is_complete
    assert (taken.log.is_listed("one"), taken.log.is_listed("two"), taken.log.is_listed("")) == (
        True,
        False,
        False,
    )


async def test_jobs_of_a_watch_that_is_down_for_a_minute_are_not_known_to_be_fresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("visibility_api.ownership.EVALUATION_S", 0.01)
    monkeypatch.setattr("visibility_api.ownership.EVALUATION_PARTS", 1)
    seen: asyncio.Queue[frozenset[tuple[str, str | None]]] = asyncio.Queue(1)
    tracker = SimpleNamespace(unwatched=frozenset())
    tracker.review = lambda _share: seen.full() or seen.put_nowait(tracker.unwatched)
    down, works = Watched("one", path="/api/v1/namespaces/one/pods"), Watched("two")
    taken = Taken(down, works, tracker=tracker)
    down.health.last_error = "HTTP 500"
    evaluation = asyncio.create_task(dict(taken.term.loops)["evaluation"]())
    for since, expected in (
        (30, frozenset()),
        (61, {("trainjobs", "one"), ("jobsets", "one")}),
        (None, frozenset()),
    ):
        down.health.down_since = None if since is None else time.monotonic() - since
        for _ in range(2):  # the first one may be of before
            unwatched = await seen.get()
        assert unwatched == expected
        why = "/api/v1/namespaces/one/pods: HTTP 500" if expected else None
        assert taken.term.why_down("pods") == why
        assert taken.term.why_down("jobs") is None
    evaluation.cancel()


@pytest.mark.parametrize("scope", [None, "one"])
def test_pods_count_as_watched_while_their_watch_is_listed_and_works(scope: str | None) -> None:
    pods, others = Watched(scope, path="/api/v1/pods"), Watched("two", path="/api/v1/pods")
    watches = cast(Any, (pods, others))
    assert not are_pods_watched(watches, "one")  # after a take-over: what is shown is the former owner's
    pods.health.synced = True
    assert are_pods_watched(watches, "one")
    assert are_pods_watched(watches, "two") is (scope is None)
    others.health.down_since = time.monotonic()
    assert are_pods_watched(watches, "one")
    pods.health.down_since = time.monotonic()
    assert not are_pods_watched(watches, "one")


async def test_jobs_that_were_taken_over_end_once_it_is_known_that_they_do_not_exist() -> None:
    watch = Watched(None)
    taken = Taken(watch)
    one = job_ref("a", "one")

    async def confirm() -> bool:
        return await taken.term.confirm({partition_of_job(one)})

    assert not await confirm()
    watch.health.synced, watch.health.down_since = True, time.monotonic()
    assert not await confirm()
    assert len(taken.jobs) == 4  # some may be there that it has not shown
    watch.health.down_since, taken.is_away = None, True
    assert not await confirm()
    taken.is_away = False
    taken.late.add(one)  # the watch is dead, and nobody knows it yet
    assert not await confirm()
    assert len(taken.jobs) == 4
    taken.late.clear()
    assert await confirm()
    assert one not in taken.jobs
    assert all(partition_of_job(each) != partition_of_job(one) for each in taken.jobs)
    assert taken.jobs


@in_virtual_time
async def test_a_slow_kube_apiserver_does_not_keep_what_is_taken_over_waiting_for_long() -> None:
    """Seen: it was asked for each new job in turn, and pushes to a third of all jobs were answered 503."""
    found: set[JobRef] = set()
    new = [msgspec.structs.replace(JOB, ref=job_ref(f"new-{n}")) for n in range(100)]

    async def exists(_ref: JobRef) -> bool:
        await asyncio.sleep(1.0)
        return True

    term = replace(
        Taken().term,
        inventory=cast(Any, _Inventory({each.ref: (each, None) for each in new})),
        exists=exists,
        on_job=lambda job, _status: found.add(job.ref),
    )
    await term.gain(range(PARTITIONS), lambda _ref: True)
    assert found == {each.ref for each in new}
    assert asyncio.get_running_loop().time() < 5


async def taken_over(taken: Taken, held: Sequence[JobProgress], watched: JobProgress) -> set[JobRef]:
    """The jobs that a term has which takes over what the log holds, while a watch shows one job."""

    class Jobs(set[JobRef]):
        def adopt(self, document: JobProgress) -> None:
            self.add(document.job.ref)

    jobs = Jobs()
    for each in held:
        taken.log.store.put(each)
    term = replace(
        taken.term,
        owner=cast(Any, jobs),
        inventory=cast(Any, _Inventory({watched.job.ref: (watched.job, None)})),
        on_gone=jobs.discard,
        on_job=lambda job, _status: jobs.add(job.ref),
    )
    await term.gain({partition_of_job(watched.job.ref)}, lambda _ref: True)
    return jobs


async def test_of_a_job_that_was_made_anew_the_one_that_exists_is_taken_over() -> None:
    """A watch that is silently dead shows the former one."""
    former, present = document(uid="former"), document(uid="present")
    taken = Taken()
    taken.late.add(present.job.ref)
    assert await taken_over(taken, [former], watched=present) == {present.job.ref}
    assert await taken_over(Taken(), [present], watched=former) == {present.job.ref}


@pytest.mark.parametrize("exists", [True, False])
async def test_a_job_that_the_log_does_not_have_is_taken_over_if_it_exists(exists: bool) -> None:
    taken, job = Taken(), document()
    if exists:
        taken.late.add(job.job.ref)
    assert await taken_over(taken, [], watched=job) == ({job.job.ref} if exists else set())


async def test_jobs_that_kube_apiserver_did_not_list_at_first_are_taken_over_once_it_does() -> None:
    """They stayed away for good: of a kube-apiserver that has just started the first answer may be wrong."""
    late, other, gone, errs = (
        msgspec.structs.replace(JOB, ref=job_ref(name)) for name in ("late", "other", "gone", "errs")
    )
    watched, found = {each.ref: (each, None) for each in (late, other, gone, errs)}, set[JobRef]()
    taken, watch = Taken(), Watched(None)
    watch.health.synced = watch.health.attempted = True
    term = replace(
        taken.term,
        owner=cast(Any, found),
        inventory=cast(Any, _Inventory(watched)),
        watches=cast(Any, [watch]),
        on_job=lambda job, _status: found.add(job.ref),
    )
    taken.late.add(other.ref)
    everywhere = range(PARTITIONS)
    await term.gain(everywhere, lambda _ref: True)
    assert found == {other.ref}
    assert not await term.confirm(everywhere)
    assert found == {other.ref}
    taken.late.add(late.ref)
    assert not await term.confirm(everywhere)
    assert found == {other.ref, late.ref}
    del watched[gone.ref]  # its watch has listed it again
    taken.is_away = True
    assert await term.confirm(everywhere)
    assert found == {other.ref, late.ref, errs.ref}  # of which it does not say whether it exists


async def test_what_a_watch_shows_while_jobs_are_taken_over_is_what_counts() -> None:
    """One showed Running for good that had ended meanwhile."""
    first, ends, goes = (
        msgspec.structs.replace(JOB, ref=job_ref(name)) for name in ("first", "ends", "goes")
    )
    watched = {each.ref: (each, None) for each in (first, ends, goes)}
    shown = dict[JobRef, Phase]()

    async def exists(ref: JobRef) -> bool:
        if ref == first.ref:
            ended = msgspec.structs.replace(ends, phase=Phase.SUCCEEDED)
            watched[ends.ref] = (ended, None)
            shown[ends.ref] = ended.phase
            del watched[goes.ref]
        return True

    term = replace(
        Taken().term,
        inventory=cast(Any, _Inventory(watched)),
        exists=exists,
        on_job=lambda job, _status: shown.update({job.ref: job.phase}),
    )
    await term.gain(range(PARTITIONS), lambda _ref: True)
    assert shown == {first.ref: first.phase, ends.ref: Phase.SUCCEEDED}


async def test_what_was_given_up_is_not_asked_for_again() -> None:
    taken, watched = Taken(), {JOB.ref: (JOB, None)}
    watch = Watched(None)
    watch.health.synced = watch.health.attempted = True
    term = replace(
        taken.term,
        inventory=cast(Any, _Inventory(watched)),
        owner=cast(Any, set()),
        watches=cast(Any, [watch]),
    )
    await term.gain(range(PARTITIONS), lambda _ref: True)
    assert not await term.confirm(range(PARTITIONS))
    term.lose({partition_of_job(JOB.ref)})
    assert await term.confirm(range(PARTITIONS))


class _Inventory:
    """Of these jobs."""

    def __init__(self, jobs: dict[JobRef, tuple[TrainingJob, None]]) -> None:
        self.jobs, self.find = jobs, jobs.get

    def __iter__(self) -> Iterator[tuple[TrainingJob, None]]:
        return iter(list(self.jobs.values()))

    def __contains__(self, ref: object) -> bool:
        return ref in self.jobs
