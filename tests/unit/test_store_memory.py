"""The memory store: revisions, states and their order. L2, L3, L6, L9, L14, W13, W14."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tests.jobs import document
from visibility_api.jobs.job import JobRef
from visibility_api.store import Listing, RevisionExpired, memory as subject
from visibility_api.store.memory import EPOCH_BITS, MemoryStore

BASE = 1000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(base_revision=BASE)


def shown(listing: Listing) -> list[tuple[str, str, int | None]]:
    return [(e.document.job.ref.namespace, e.document.job.ref.name, e.document.step) for e in listing.entries]


def history(store: MemoryStore, since: int = BASE) -> list[tuple[str, str, int]]:
    """The changes after a revision, as type, uid and revision."""
    changes = store._of("trainjobs").log.after(since)
    return [(c.type, c.entry.document.job.ref.uid, c.revision) for c in changes]


def test_every_visible_change_is_one_revision_more(store: MemoryStore) -> None:
    """L3, W14"""
    store.put(document("a", step=1))
    store.put(document("b", step=1))
    store.put(document("a", step=2))
    assert store.revision == BASE + 3
    entry = store.get("trainjobs", "team-a", "a")
    assert entry is not None
    assert entry.revision == BASE + 3


def test_an_equal_document_keeps_its_revision_and_its_encoded_forms(store: MemoryStore) -> None:
    """L3"""
    store.put(document("a", step=1, labels={"x": "y"}))
    held, listing = store.get("trainjobs", "team-a", "a"), store.list("trainjobs")
    store.put(document("a", step=1, labels={"x": "y"}))
    assert store.revision == BASE + 1
    assert store.get("trainjobs", "team-a", "a") is held
    assert store.list("trainjobs") is listing


def test_revisions_begin_above_what_an_earlier_process_gave_out() -> None:
    """L9"""
    store = MemoryStore(base_revision=1_767_323_045_000_000)
    assert store.list("trainjobs").revision == store.revision == 1_767_323_045_000_000
    with pytest.raises(ValueError, match="base_revision must be at least 1"):
        MemoryStore(base_revision=0)


def test_another_uid_under_the_same_name_is_another_object(store: MemoryStore) -> None:
    store.put(document("a", uid="first"))
    store.put(document("a", uid="second"))
    assert history(store) == [
        ("ADDED", "first", BASE + 1),
        ("DELETED", "first", BASE + 2),
        ("ADDED", "second", BASE + 3),
    ]
    assert shown(store.list("trainjobs")) == [("team-a", "a", None)]


def test_a_late_delete_does_not_touch_the_next_job_of_that_name(store: MemoryStore) -> None:
    store.put(document("a", uid="second"))
    store.delete(JobRef(resource="trainjobs", namespace="team-a", name="a", uid="first"))
    store.delete(JobRef(resource="trainjobs", namespace="team-a", name="never", uid="x"))
    assert store.get("trainjobs", "team-a", "a") is not None
    assert store.revision == BASE + 1


def test_a_deletion_has_the_last_content_at_a_revision_of_its_own(store: MemoryStore) -> None:
    """W13"""
    store.put(document("a", step=7))
    last = store.get("trainjobs", "team-a", "a")
    store.delete(document("a").job.ref)
    change = store._of("trainjobs").log.after(BASE + 1)[0]
    assert (change.type, change.revision, change.entry.document.step) == ("DELETED", BASE + 2, 7)
    assert change.previous is last
    assert store.get("trainjobs", "team-a", "a") is None
    assert store.list("trainjobs").entries == []


def test_entries_are_in_the_order_of_etcd_s_keys(store: MemoryStore) -> None:
    """L14"""
    for namespace, name in (("b", "a"), ("a-b", "x"), ("a", "z"), ("a", "b"), ("a0", "c")):
        store.put(document(name, namespace=namespace))
    every = [(n, m) for n, m, _ in shown(store.list("trainjobs"))]
    assert every == [("a-b", "x"), ("a", "b"), ("a", "z"), ("a0", "c"), ("b", "a")]
    assert every == sorted(every, key="/".join)
    assert [m for _, m, _ in shown(store.list("trainjobs", "a"))] == ["b", "z"]
    assert shown(store.list("trainjobs", "nowhere")) == []
    store.put(document("y", namespace="a-b"))
    past = shown(store.list("trainjobs", at=store.revision - 1))
    assert [(n, m) for n, m, _ in past] == every


def test_resources_share_revisions_but_nothing_else(store: MemoryStore) -> None:
    store.put(document("a"))
    assert store.list("jobsets").revision == BASE + 1
    assert store.list("jobsets").entries == []
    assert store.get("jobsets", "team-a", "a") is None


def test_a_listing_stays_as_it_was(store: MemoryStore) -> None:
    store.put(document("a", step=1))
    before = store.list("trainjobs")
    store.put(document("a", step=2))
    store.put(document("b", step=1))
    assert shown(before) == [("team-a", "a", 1)]
    assert shown(store.list("trainjobs")) == [("team-a", "a", 2), ("team-a", "b", 1)]


def test_an_earlier_state_is_listed_as_it_was(store: MemoryStore) -> None:
    """L6, L10: every page of a list shows the first page's state."""
    store.put(document("a", step=1))
    store.put(document("b", step=1))
    then = store.revision
    store.put(document("a", step=2))
    store.put(document("a", step=3))
    store.delete(document("b").job.ref)
    store.put(document("c", step=1))
    store.put(document("d", step=1, namespace="other"))
    assert shown(store.list("trainjobs", at=then)) == [("team-a", "a", 1), ("team-a", "b", 1)]
    assert store.list("trainjobs", at=then).revision == then
    assert shown(store.list("trainjobs", "team-a", at=then + 2)) == [("team-a", "a", 3), ("team-a", "b", 1)]
    assert shown(store.list("trainjobs", at=BASE)) == []


@pytest.mark.parametrize("at", [1, BASE - 1, BASE + 2, 2**70])
def test_a_state_that_is_not_ours_is_not_told(store: MemoryStore, at: int) -> None:
    """L6, L9: older than this process, or ahead of it."""
    store.put(document("a"))
    with pytest.raises(RevisionExpired, match=f"too old resource version: {at} \\({BASE}\\)"):
        store.list("trainjobs", at=at)


async def test_the_history_is_bounded_in_number() -> None:
    """W6: what was dropped is noticed."""
    store = MemoryStore(base_revision=BASE, max_changes=32)
    for step in range(100):
        store.put(document("a", step=step))
    assert 30 <= len(history(store, since=store.base_revision)) <= 32
    oldest = store.base_revision
    assert history(store, since=oldest)[0][2] == oldest + 1
    store.watch("trainjobs", oldest).close()
    with pytest.raises(RevisionExpired, match=rf"too old resource version: {oldest - 1} \({oldest}\)"):
        store.watch("trainjobs", oldest - 1)


def test_the_history_is_bounded_in_bytes() -> None:
    store = MemoryStore(base_revision=BASE, max_history_bytes=1_000_000)
    metrics = tuple((f"metric-{i:03}", "9" * 64) for i in range(256))
    for step in range(100):
        store.put(document("a", step=step, metrics=metrics))
    assert 1 <= len(history(store, since=store.base_revision)) <= 10
    assert store.get("trainjobs", "team-a", "a") is not None


def test_one_change_larger_than_the_bound_is_still_told() -> None:
    store = MemoryStore(base_revision=BASE, max_history_bytes=1)
    store.put(document("a"))
    store.put(document("b"))
    assert history(store, since=store.base_revision) == [("ADDED", "uid-of-team-a-b", BASE + 2)]


def test_changes_after_a_revision_are_given_in_order_as_long_as_they_are_held() -> None:
    store = MemoryStore(base_revision=BASE, max_changes=16)
    for step in range(10):
        store.put(document("a", step=step))
    since = store.log_after(BASE + 7)
    assert since is not None
    assert [change.revision for change in since] == [BASE + 8, BASE + 9, BASE + 10]
    assert store.log_after(store.revision) == []
    for step in range(10, 20):
        store.put(document("a", step=step))
    assert store.log_after(BASE) is None


@given(
    happenings=st.lists(
        st.tuples(
            st.sampled_from(["jobs", "jobsets", "trainjobs"]),
            st.sampled_from(["team-a", "team-a-dev"]),
            st.sampled_from(["a", "a.b", "b"]),
            st.booleans(),
        ),
        max_size=40,
    ),
    resources=st.frozensets(st.sampled_from(["jobs", "jobsets", "trainjobs", "tfjobs"])),
)
def test_a_list_of_several_resources_is_that_of_each_together_at_every_revision(
    happenings: list[tuple[str, str, str, bool]], resources: frozenset[str]
) -> None:
    store = MemoryStore(base_revision=BASE)
    states: dict[tuple[int, str | None], list[tuple[str, str, int | None]]] = {}

    def together(namespace: str | None) -> list[tuple[str, str, int | None]]:
        found = [entry for each in resources for entry in store.list(each, namespace).entries]
        rows = [(e.document.job.ref, e.document.step) for e in found]
        rows.sort(key=lambda row: (f"{row[0].namespace}/", row[0].qualified_name))
        return [(ref.namespace, ref.qualified_name, step) for ref, step in rows]

    def mixed(namespace: str | None, at: int | None = None) -> list[tuple[str, str, int | None]]:
        entries = store.list(resources, namespace, at=at).entries
        rows = [(e.document.job.ref, e.document.step) for e in entries]
        return [(ref.namespace, ref.qualified_name, step) for ref, step in rows]

    for number, (resource, namespace, name, is_deleted) in enumerate(happenings):
        entry = store.get(resource, namespace, name)
        if is_deleted and entry is not None:
            store.delete(entry.document.job.ref)
        else:
            store.put(document(name, resource=resource, namespace=namespace, step=number))
        for scope in (None, "team-a"):
            states[store.revision, scope] = together(scope)
            assert mixed(scope) == states[store.revision, scope]
    for (revision, scope), expected in states.items():
        assert mixed(scope, revision) == expected
    feed = store.watch(resources, BASE)
    assert feed.revision == BASE


def test_a_job_that_comes_or_goes_is_put_in_its_place_among_those_of_all_kinds(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's jobs, made and deleted without end, would have all others' sorted anew for each list."""
    kinds, sorted_ = frozenset(("trainjobs", "jobs")), 0
    for number in range(500):
        store.put(document(f"job-{number}"))
    store.list(kinds)
    order = subject.list_order

    def counted(namespace: str, name: str) -> tuple[str, str]:
        nonlocal sorted_
        sorted_ += 1
        return order(namespace, name)

    monkeypatch.setattr(subject, "list_order", counted)
    store.put(document("new", resource="jobs"))
    assert len(store.list(kinds).entries) == 501
    store.delete(store.list(kinds).entries[0].document.job.ref)
    assert len(store.list(kinds).entries) == 500
    assert sorted_ < 50


async def test_a_replica_that_has_lost_the_owner_answers_for_no_revision_that_it_may_not_have_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own are above all others, and what it shows may be older than theirs: the owner's that came after,
    and those of another replica that has lost the owner as well."""
    epoch = 5 << EPOCH_BITS
    follower, other = MemoryStore(base_revision=epoch), MemoryStore(base_revision=epoch)
    for each in (follower, other):
        each.is_follower = True
        each.apply("ADDED", epoch + 10, document("a", step=1))
    other.apply("MODIFIED", epoch + 20, document("a", step=2))
    for each, begins in ((other, 1000), (follower, 2000)):
        monkeypatch.setattr(subject.secrets, "randbits", lambda _bits, begins=begins: begins)
        each.branch(lambda shown: replace(shown, message="old"))
    assert other.revision < follower.revision
    for unseen in (epoch + 20, other.revision):
        assert not follower.includes(unseen)
        assert not await follower.reach(unseen, timeout_s=0.01)
        with pytest.raises(RevisionExpired):
            follower.watch("trainjobs", unseen)
        with pytest.raises(RevisionExpired):
            follower.list("trainjobs", at=unseen)
    assert follower.awaits(epoch + 20)  # at another replica
    assert not follower.awaits(other.revision)  # it never comes
    for seen in (epoch, epoch + 10, follower.revision):
        assert await follower.reach(seen)
    follower.begin_epoch(6)  # the next owner's have all that is left
    assert follower.includes(epoch + 20)
