"""Lists of everything: made of kept slices, and never of an outdated one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tests.jobs import NOW, document
from tests.unit.resource_server import BASE_REVISION
from visibility_api.models.served import TRAINJOBS
from visibility_api.resources import cached_lists as whole_lists, list_body
from visibility_api.resources.cached_lists import ListCache
from visibility_api.resources.forms import Forms
from visibility_api.resources.list_body import ITEMS_A_SLICE, SLICE_BYTES
from visibility_api.resources.v1alpha1 import Codec
from visibility_api.store.memory import MemoryStore


class Jobs:
    """Jobs that come, change and go, and the list of them all."""

    def __init__(
        self, number: int = 0, *, max_cached_bytes: int = 1024 * 1024, max_changes: int = 10_000
    ) -> None:
        self.store = MemoryStore(base_revision=BASE_REVISION, max_changes=max_changes)
        self.lists = ListCache(self.store, "trainjobs", max_cached_bytes=max_cached_bytes)
        self.form = Forms(Codec(TRAINJOBS), lambda: NOW).document
        for each in range(number):
            self.put(each)

    def put(self, number: int, step: int = 0, message: str | None = None) -> None:
        self.store.put(document(f"job-{number:04d}", step=step, message=message))

    def delete(self, number: int) -> None:
        self.store.delete(document(f"job-{number:04d}").job.ref)

    async def body(self, namespace: str | None = None) -> list[bytes]:
        return await self.lists.body(self.form, namespace)

    def plain(self, namespace: str | None = None) -> bytes:
        """The same list, made of nothing that was made before."""
        entries = self.store.list("trainjobs", namespace).entries
        meta = b'{"resourceVersion":"%d"}' % self.store.revision
        return self.form.head(meta) + b",".join(map(self.form.item, entries)) + b"]}\n"


def steps(body: Sequence[bytes]) -> list[int]:
    return [item["status"]["steps"]["current"] for item in msgspec.json.decode(b"".join(body))["items"]]


def kept(before: Sequence[bytes], after: Sequence[bytes]) -> list[bool]:
    """Which of the slices of the list after are of the one before."""
    return [any(new is old for old in before) for new in after[1:-1]]


async def test_only_the_slice_of_a_changed_document_is_made_anew() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    before = await jobs.body()
    jobs.put(ITEMS_A_SLICE + 1, step=7)
    after = await jobs.body()
    assert kept(before, after) == [True, False, True]
    assert steps(after)[ITEMS_A_SLICE + 1] == 7


async def test_a_slice_whose_documents_have_grown_is_halved_and_the_others_stay() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    before = await jobs.body()
    for number in range(ITEMS_A_SLICE, 2 * ITEMS_A_SLICE):
        jobs.put(number, step=number, message="x" * (3 * SLICE_BYTES // ITEMS_A_SLICE))
    after = await jobs.body()
    assert len(after) == len(before) + 3
    assert max(map(len, after)) <= SLICE_BYTES
    assert after[1] is before[1]
    assert after[-2] is before[-2]
    assert steps(after) == [number if 100 <= number < 200 else 0 for number in range(300)]


async def test_a_document_larger_than_a_slice_is_one_of_its_own() -> None:
    jobs = Jobs(2)
    await jobs.body()
    jobs.put(1, step=1, message="x" * 2 * SLICE_BYTES)
    assert steps(await jobs.body()) == [0, 1]


async def test_a_list_larger_than_all_that_may_be_kept_leaves_room_for_others() -> None:
    jobs = Jobs(2, max_cached_bytes=100)
    jobs.store.put(document("other", namespace="team-b", step=0))
    everything, of_team = await jobs.body(), await jobs.body("team-b")
    assert steps(everything) == [0, 0, 0]
    assert kept(everything, await jobs.body()) == kept(of_team, await jobs.body("team-b")) == [True]
    jobs.put(1, step=1)
    assert steps(await jobs.body()) == [0, 1, 0]


@pytest.mark.parametrize("number", [0, 150, 299])
async def test_a_job_that_comes_or_goes_changes_its_slice_alone(number: int) -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    before = await jobs.body()
    jobs.delete(number)
    gone = await jobs.body()
    assert sorted(kept(before, gone)) == [False, True, True]
    assert b"".join(gone) == jobs.plain()
    jobs.put(number)
    back = await jobs.body()
    assert sorted(kept(gone, back)) == [False, True, True]
    assert b"".join(back) == jobs.plain()


async def test_the_first_slice_that_is_left_begins_the_list() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    before = await jobs.body()
    for number in range(ITEMS_A_SLICE):
        jobs.delete(number)
    after = await jobs.body()
    assert kept(before, after) == [False, True]
    assert b"".join(after) == jobs.plain()


async def test_slices_of_which_little_is_left_are_joined_again() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    await jobs.body()
    for number in range(3 * ITEMS_A_SLICE):
        if number % 10:
            jobs.delete(number)
    after = await jobs.body()
    assert len(after) == len([b"head", b"slice", b"end"])
    assert b"".join(after) == jobs.plain()


async def test_changes_elsewhere_leave_the_list_of_a_namespace_as_it_was() -> None:
    jobs = Jobs(2)
    before = await jobs.body("team-a")
    for number in range(10):
        jobs.store.put(document(f"other-{number}", namespace="team-b"))
    after = await jobs.body("team-a")
    assert kept(before, after) == [True]
    assert b"".join(after) == jobs.plain("team-a")


@pytest.mark.parametrize("max_changes", [20, 10_000])
async def test_a_list_that_nobody_asked_for_during_many_changes_is_of_now(max_changes: int) -> None:
    """Also when not all of them are held any more."""
    jobs = Jobs(40, max_changes=max_changes)
    await jobs.body()
    for number in range(30):
        jobs.put(number, step=number + 1)
    jobs.delete(39)
    assert b"".join(await jobs.body()) == jobs.plain()


async def test_a_list_says_of_which_state_it_is_whatever_happens_while_it_is_made() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    await jobs.body()
    for number in range(0, 3 * ITEMS_A_SLICE, 10):
        jobs.put(number, step=1)
    expected = jobs.plain()
    making = asyncio.create_task(jobs.body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not making.done()
    for number in range(0, 3 * ITEMS_A_SLICE, 10):
        jobs.put(number, step=2)
    assert b"".join(await making) == expected
    assert b"".join(await jobs.body()) == jobs.plain()


async def test_many_jobs_that_come_into_one_slice_hold_nobody_up() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    await jobs.body()
    for number in range(1000, 1200):
        jobs.put(number)
    making, turns = asyncio.create_task(jobs.body()), 0
    while not making.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 200 / 8
    assert b"".join(await making) == jobs.plain()


async def test_who_waits_for_a_list_is_served_what_was_made_meanwhile() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    making = asyncio.create_task(jobs.body())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(jobs.body())
    await asyncio.sleep(0)
    jobs.put(0, step=7)  # after both had asked
    first, second = await making, await waiting
    assert all(mine is yours for mine, yours in zip(first[1:-1], second[1:-1], strict=True))
    assert steps(await jobs.body())[0] == 7


NAMES = st.tuples(st.sampled_from(["team-a", "team-b"]), st.integers(0, 8))
HAPPENINGS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(0, 3), st.sampled_from(["", "x" * 900])),
    st.tuples(st.just("replace"), NAMES, st.sampled_from(["a", "z"])),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("list"), st.sampled_from([None, "team-a", "team-b"])),
)


@given(happenings=st.lists(HAPPENINGS, min_size=30, max_size=60), max_changes=st.sampled_from([3, 10_000]))
@settings(deadline=None)
def test_a_list_is_what_it_would_be_without_what_is_kept(
    happenings: list[tuple[str, tuple[str, int], int | str, str]], max_changes: int
) -> None:
    """With slices of few documents, so that there are some."""

    async def check() -> None:
        jobs = Jobs(max_changes=max_changes)
        for each in happenings:
            match each:
                case ("put", (namespace, number), int(step), message):
                    jobs.store.put(document(f"job-{number}", namespace=namespace, step=step, message=message))
                case ("replace", (namespace, number), str(uid)):
                    jobs.store.put(document(f"job-{number}", namespace=namespace, uid=uid))
                case ("delete", (namespace, number)):
                    entry = jobs.store.get("trainjobs", namespace, f"job-{number}")
                    if entry is not None:
                        jobs.store.delete(entry.document.job.ref)
                case ("list", namespace):
                    assert b"".join(await jobs.body(namespace)) == jobs.plain(namespace)

    with (
        mock.patch.multiple(list_body, SLICE_BYTES=3000),
        mock.patch.multiple(whole_lists, _TOO_LARGE_BYTES=3200),
    ):
        asyncio.run(check())


async def test_lists_of_nothing_leave_nothing_behind() -> None:
    """Whoever may list everywhere may ask for namespaces that do not exist, without end."""
    jobs = Jobs()
    for number in range(3):
        assert steps(await jobs.body(f"made-up-{number}")) == []
    jobs.put(0)
    await jobs.body()
    jobs.delete(0)
    assert steps(await jobs.body()) == []
    assert len(jobs.lists._cache) == 0
