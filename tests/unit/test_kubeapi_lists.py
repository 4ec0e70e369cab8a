"""Lists of everything: made of kept parts, and never of an outdated one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tests.jobs import NOW, document
from tests.reviews import until
from tests.unit.resource_server import BASE_REVISION
from visibility_api.errors.status import TooManyRequests
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi import lists
from visibility_api.kubeapi.forms import Form, Forms
from visibility_api.kubeapi.list_layout import Layout, layout_of
from visibility_api.kubeapi.list_options import ListOptions
from visibility_api.kubeapi.lists import ITEMS_A_PART, MAX_WAITING_PER_USER, Lists
from visibility_api.kubeapi.metadata import MetadataForm
from visibility_api.kubeapi.negotiation import Representation
from visibility_api.kubeapi.rendering import render
from visibility_api.kubeapi.selectors.parsing import parse_label_selector
from visibility_api.kubeapi.selectors.selection import Selection
from visibility_api.kubeapi.table import MAX_AGE, TableForm
from visibility_api.kubeapi.v1alpha1 import Codec
from visibility_api.store import Entry
from visibility_api.store.memory import MemoryStore

YAML = Representation(media_type="application/yaml")
EVERYTHING = ListOptions(selection=Selection())


class Jobs:
    """Jobs that come, change and go, and the list of them all."""

    def __init__(
        self, number: int = 0, *, max_kept_bytes: int = 1024 * 1024, max_changes: int = 10_000
    ) -> None:
        self.store = MemoryStore(base_revision=BASE_REVISION, max_changes=max_changes)
        self.now = NOW
        self.lists = Lists(self.store, max_kept_bytes=max_kept_bytes)
        self.forms = Forms(Codec(TrainJobKind.served), lambda: self.now)
        self.form = self.forms.document
        self.written = 0  # items
        self.fault: Exception | None = None  # of the next item
        for each in range(number):
            self.put(each)

    def put(self, number: int, step: int = 0, message: str | None = None) -> None:
        self.store.put(document(f"job-{number:04d}", step=step, message=message))

    def delete(self, number: int) -> None:
        self.store.delete(document(f"job-{number:04d}").job.ref)

    async def body(self, namespace: str | None = None) -> list[bytes]:
        return await self.lists.body(
            layout_of(self.form, Representation()), "trainjobs", namespace, EVERYTHING
        )

    async def list(
        self,
        representation: Representation,
        namespace: str | None = None,
        *,
        client: str = "",
        selection: Selection = Selection(),  # noqa: B008 - immutable
        options: ListOptions | None = None,
    ) -> list[bytes]:
        layout = Counted(layout_of(self.chosen(representation), representation), self)
        options = options or ListOptions(selection=selection)
        return await self.lists.body(layout, "trainjobs", namespace, options, client=client)

    def chosen(self, representation: Representation) -> Form:
        if representation.transform == "Table":
            return TableForm(Codec(TrainJobKind.served), "v1", "Metadata", lambda: self.now)
        return (
            self.form if representation.transform is None else MetadataForm(Codec(TrainJobKind.served), "v1")
        )

    def put_of_team(self, number: int, team: str) -> None:
        self.store.put(document(f"job-{number:04d}", labels={"team": team}))

    def plain(self, namespace: str | None = None) -> bytes:
        """The same list, made of nothing that was made before."""
        entries = self.store.list("trainjobs", namespace).entries
        meta = b'{"resourceVersion":"%d"}' % self.store.revision
        return self.form.head(meta) + b",".join(map(self.form.items(), entries)) + b"]}\n"


class Counted:
    """A layout that counts the items which it writes."""

    def __init__(self, layout: Layout, jobs: Jobs) -> None:
        self._layout, self._jobs = layout, jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layout, name)

    def items(self) -> Callable[[Entry], bytes]:
        write = self._layout.items()

        def counted(entry: Entry) -> bytes:
            if self._jobs.fault is not None:
                raise self._jobs.fault
            self._jobs.written += 1
            return write(entry)

        return counted


def steps(body: Sequence[bytes]) -> list[int]:
    return [item["status"]["steps"]["current"] for item in msgspec.json.decode(b"".join(body))["items"]]


def kept(before: Sequence[bytes], after: Sequence[bytes]) -> list[bool]:
    """Which of the parts of the list after are of the one before."""
    return [any(new is old for old in before) for new in after[1:-1]]


async def test_only_the_part_of_a_changed_document_is_made_anew() -> None:
    jobs = Jobs(3 * ITEMS_A_PART)
    before = await jobs.body()
    jobs.put(ITEMS_A_PART + 1, step=7)
    after = await jobs.body()
    assert kept(before, after) == [True, False, True]
    assert steps(after)[ITEMS_A_PART + 1] == 7


async def test_a_list_larger_than_all_that_may_be_kept_leaves_room_for_others() -> None:
    jobs = Jobs(2, max_kept_bytes=100)
    jobs.store.put(document("other", namespace="team-b", step=0))
    everything, of_team = await jobs.body(), await jobs.body("team-b")
    assert steps(everything) == [0, 0, 0]
    assert kept(everything, await jobs.body()) == kept(of_team, await jobs.body("team-b")) == [True]
    jobs.put(1, step=1)
    assert steps(await jobs.body()) == [0, 1, 0]


async def test_a_list_says_of_which_state_it_is_whatever_happens_while_it_is_made() -> None:
    jobs = Jobs(3 * ITEMS_A_PART)
    await jobs.body()
    for number in range(0, 3 * ITEMS_A_PART, 10):
        jobs.put(number, step=1)
    expected = jobs.plain()
    making = asyncio.create_task(jobs.body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not making.done()
    for number in range(0, 3 * ITEMS_A_PART, 10):
        jobs.put(number, step=2)
    assert b"".join(await making) == expected
    assert b"".join(await jobs.body()) == jobs.plain()


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
    """With parts of few documents, so that there are some."""

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

    with mock.patch.object(lists, "ITEMS_A_PART", 3):
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
    assert len(jobs.lists._kept) == 0


TABLE = Representation(transform="Table")
REPRESENTATIONS = [
    Representation(),
    Representation(pretty=True),
    Representation(media_type="application/yaml"),
    Representation(transform="PartialObjectMetadataList"),
    TABLE,
    Representation(transform="Table", pretty=True),
]
OF_TEAM = Selection(labels=parse_label_selector("team=b"))


def rendered(jobs: Jobs, representation: Representation, selection: Selection = Selection()) -> bytes:  # noqa: B008
    """The list as one that is written as a whole, from nothing that is cached."""
    form = jobs.chosen(representation)
    entries = [e for e in jobs.store.list("trainjobs").entries if selection.matches(e.document)]
    meta = b'{"resourceVersion":"%d"}' % jobs.store.revision
    return render(form.head(meta) + b",".join(map(form.items(), entries)) + b"]}", representation)


@pytest.mark.parametrize("representation", REPRESENTATIONS, ids=str)
@pytest.mark.parametrize("selection", [Selection(), OF_TEAM], ids=["all", "selected"])
async def test_every_form_is_what_it_would_be_written_at_once(
    representation: Representation, selection: Selection
) -> None:
    jobs = Jobs()
    for number in range(0, 250, 2):
        jobs.put_of_team(number, "ab"[number % 4 // 2])
    for change in (lambda: None, lambda: jobs.put_of_team(7, "b"), lambda: jobs.delete(2)):
        change()
        body = await jobs.list(representation, selection=selection)
        assert b"".join(body) == rendered(jobs, representation, selection)
    jobs.put_of_team(4, "b")  # comes into the selection
    jobs.put_of_team(6, "a")  # and leaves it
    body = await jobs.list(representation, selection=selection)
    assert b"".join(body) == rendered(jobs, representation, selection)
    for number in range(250):
        with contextlib.suppress(AssertionError, KeyError):
            jobs.delete(number)
    assert b"".join(await jobs.list(representation)) == rendered(jobs, representation)


async def test_the_ages_of_a_table_are_of_the_last_seconds() -> None:
    jobs = Jobs(2 * ITEMS_A_PART)
    jobs.now = NOW - timedelta(seconds=NOW.timestamp() % MAX_AGE.total_seconds())
    before = await jobs.list(TABLE)
    jobs.now += MAX_AGE - timedelta(seconds=1)
    assert kept(before, await jobs.list(TABLE)) == [True, True]
    jobs.put(0, step=7)
    after = await jobs.list(TABLE)
    assert kept(before, after) == [False, True]
    assert b'"7/' in after[1] or b'"7"' in after[1]
    jobs.now += timedelta(seconds=1)
    assert kept(after, await jobs.list(TABLE)) == [False, False]


async def test_parallel_lists_are_written_once() -> None:
    jobs = Jobs(40)
    bodies = await asyncio.gather(*[jobs.list(YAML, client=f"user-{number}") for number in range(20)])
    assert jobs.written == 40
    assert all(body[1] is bodies[0][1] for body in bodies)
    await jobs.list(YAML)
    assert jobs.written == 40


async def test_in_one_turn_of_the_loop_so_many_bytes_of_a_list_are_written() -> None:
    """A document with 14 KB of labels takes 3 ms as YAML, an ordinary one a fifth of that."""
    jobs = Jobs(20)
    for number in range(20):
        jobs.put(number, message="x" * 5_000 if number % 2 else None)
    written = [0]
    listing = asyncio.create_task(jobs.list(YAML))
    while not listing.done():
        await asyncio.sleep(0)
        written.append(jobs.written)
    assert written[-1] == 20
    assert max(after - before for before, after in pairwise(written)) <= 2


async def test_a_list_whose_clients_have_gone_is_not_written_further() -> None:
    jobs = Jobs(40)
    crowd = [asyncio.create_task(jobs.list(YAML, client=f"user-{number}")) for number in range(100)]
    await until(lambda: jobs.written > 0)
    for task in crowd:
        task.cancel()
    await asyncio.wait(crowd)
    written = jobs.written
    for _ in range(20):
        await asyncio.sleep(0)
    assert jobs.written == written < 40
    assert b"".join(await jobs.list(YAML)) == rendered(jobs, YAML)


async def test_users_take_turns_with_costly_lists_and_do_not_hold_up_cheap_ones() -> None:
    jobs = Jobs()
    namespaces = [f"team-{number}" for number in range(6)]
    for namespace in namespaces:
        for number in range(60):
            jobs.store.put(document(f"job-{number}", namespace=namespace))
    order: list[str] = []

    async def ask(user: str, namespace: str, representation: Representation) -> None:
        await jobs.list(representation, namespace, client=user)
        order.append(f"{user} {namespace}")

    async with asyncio.TaskGroup() as group:
        for namespace in namespaces[:4]:
            group.create_task(ask("flood", namespace, YAML))
        await asyncio.sleep(0)
        group.create_task(ask("jane", namespaces[4], YAML))
        group.create_task(ask("joe", namespaces[5], Representation()))
    assert order.index("joe team-5") == 0
    assert order.index("jane team-4") < order.index("flood team-2")


async def test_too_many_waiting_lists_are_refused_with_what_to_do() -> None:
    jobs = Jobs()
    for number in range(MAX_WAITING_PER_USER + 2):
        for job in range(5):  # more than are written at once
            jobs.store.put(document(f"job-{job}", namespace=f"team-{number}"))
    asked = [
        asyncio.create_task(jobs.list(YAML, f"team-{number}", client="flood"))
        for number in range(MAX_WAITING_PER_USER + 2)
    ]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, TooManyRequests)]
    assert len(refused) == 1
    assert "compact JSON" in refused[0].message
    assert refused[0].retry_after_s >= 1


async def test_a_list_that_cannot_be_written_is_an_error_for_all_and_kept_by_nobody() -> None:
    jobs = Jobs(3)
    jobs.fault = KeyError("a fault")
    outcomes = await asyncio.gather(*[jobs.list(YAML) for _ in range(3)], return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [KeyError] * 3
    jobs.fault = None
    assert b"".join(await jobs.list(YAML)) == rendered(jobs, YAML)
