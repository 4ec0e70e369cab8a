"""Lists of everything: made of kept slices, and never of an outdated one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings, strategies as st

from tests.unit.resource_server import BASE_REVISION, NOW, document
from visibility_api.api.documents.forms import DocumentForm, Forms
from visibility_api.api.documents.list_body import ITEMS_A_SLICE, SLICE_BYTES
from visibility_api.api.documents.v1alpha1 import Codec
from visibility_api.api.documents.whole_lists import WholeLists
from visibility_api.api.resources import TRAINJOBS
from visibility_api.store import Entry
from visibility_api.store.memory import MemoryStore

META = b"{}"


def form() -> DocumentForm:
    return Forms(Codec(TRAINJOBS), lambda: NOW).document


class Jobs:
    """Jobs that come, change and go, and the list of them all."""

    def __init__(self, number: int = 0, *, max_kept_bytes: int = 1024 * 1024) -> None:
        self.store = MemoryStore(base_revision=BASE_REVISION)
        self.lists = WholeLists(max_kept_bytes=max_kept_bytes)
        self.form = form()
        for each in range(number):
            self.put(each)

    def put(self, number: int, step: int = 0, message: str | None = None) -> None:
        self.store.put(document(f"job-{number:04d}", step=step, message=message))

    def delete(self, number: int) -> None:
        self.store.delete(document(f"job-{number:04d}").job.ref)

    async def body(self) -> list[bytes]:
        return await self.lists.body(self.form, None, META, self.store.list("trainjobs").entries)


def steps(body: Sequence[bytes]) -> list[int]:
    return [item["status"]["steps"]["current"] for item in msgspec.json.decode(b"".join(body))["items"]]


async def test_only_the_slice_of_a_changed_document_is_made_anew() -> None:
    jobs = Jobs(3 * ITEMS_A_SLICE)
    before = await jobs.body()
    jobs.put(ITEMS_A_SLICE + 1, step=7)
    after = await jobs.body()
    assert [old is new for old, new in zip(before, after, strict=True)][1:-1] == [True, False, True]
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


async def test_more_than_may_be_kept_is_served_all_the_same() -> None:
    jobs = Jobs(2, max_kept_bytes=100)
    assert steps(await jobs.body()) == [0, 0]
    jobs.put(1, step=1)
    assert steps(await jobs.body()) == [0, 1]


@given(st.lists(st.tuples(st.sampled_from(["put", "delete", "list"]), st.integers(0, 8), st.integers(0, 3))))
@settings(deadline=None)
def test_a_list_is_what_it_would_be_without_what_is_kept(
    happenings: list[tuple[str, int, int]],
) -> None:
    async def check() -> None:
        jobs = Jobs(4)
        for what, number, step in happenings:
            if what == "put":
                jobs.put(number, step)
            elif what == "delete":
                jobs.delete(number)
            else:
                fresh = await WholeLists().body(
                    jobs.form, None, META, sorted(jobs.store.list("trainjobs").entries, key=_name)
                )
                assert b"".join(await jobs.body()) == b"".join(fresh)

    asyncio.run(check())


def _name(entry: Entry) -> str:
    return entry.document.job.ref.name


async def test_lists_of_nothing_leave_nothing_behind() -> None:
    """Whoever may list everywhere may ask for namespaces that do not exist, without end."""
    lists = WholeLists()
    for number in range(3):
        assert steps(await lists.body(form(), f"made-up-{number}", META, [])) == []
    assert len(lists._kept) == 0
