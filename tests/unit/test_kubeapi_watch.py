"""WATCH: W1 to W24, as far as the stream itself goes. Cutting by time: test_kubeapi_streams."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from tests.unit.resource_server import (
    ALL,
    BASE,
    BASE_REVISION,
    JSON,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    TEAM,
    YAML,
    ResourceServer,
    names,
)
from visibility_api.app.exchange import PIECE_BYTES
from visibility_api.kubeapi import v1alpha1
from visibility_api.kubeapi.columns import COLUMNS
from visibility_api.kubeapi.watch import WatchLimits
from visibility_api.store.memory import EPOCH_BITS

WATCH = f"{ALL}?watch=true"
WATCH_LIST = f"{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
SHORT = WatchLimits(timeout_s=(0.05, 0.05))  # a watch that asks for no end of its own ends soon
INITIAL_END = {"k8s.io/initial-events-end": "true"}


@pytest.fixture
def server() -> ResourceServer:
    return ResourceServer()


def revision(event: dict[str, Any]) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


async def test_events_are_lines_of_json_with_whole_objects(server: ResourceServer) -> None:
    """W1, W2, W4, W14"""
    async with server.watch(WATCH, ("Accept", "application/json;stream=watch")) as client:
        server.put(step=1)
        server.put(step=2)
        server.delete()
        events = await client.events(3)
    assert (client.status, client.headers["content-type"]) == (200, "application/json")
    assert "content-length" not in client.headers
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert all(set(event) == {"type", "object"} for event in events)
    for event in events:
        assert event["object"]["kind"] == "TrainJobProgress"
        assert event["object"]["apiVersion"] == "visibility.trainer.kubeflow.org/v1alpha1"
    assert [revision(event) for event in events] == [BASE_REVISION + n for n in (1, 2, 3)]
    assert [event["object"]["status"]["steps"]["current"] for event in events] == [1, 2, 2]  # W13
    assert server.registry.get_sample_value("apiserver_watch_events_total", {"resource": "trainjobs"}) == 3


@pytest.mark.parametrize("asked", ["", "&resourceVersion=", "&resourceVersion=0"])
async def test_without_a_revision_the_state_comes_first(server: ResourceServer, asked: str) -> None:
    """W5, W17: kubectl get NAME -w swallows the first event, so there has to be one."""
    server.put("a")
    server.put("b")
    server.put("a", step=2)
    async with server.watch(WATCH + asked) as client:
        assert names(await client.events(2)) == [("ADDED", "a"), ("ADDED", "b")]
        server.put("c")
        assert names([await client.event()]) == [("ADDED", "c")]


async def test_from_a_lists_revision_nothing_is_missed_or_repeated(server: ResourceServer) -> None:
    """L2, W5: changes strictly after it, no initial events."""
    server.put("a", step=1)
    listed = (await server.get(ALL)).json()["metadata"]["resourceVersion"]
    server.put("a", step=2)
    server.put("b")
    async with server.watch(f"{WATCH}&resourceVersion={listed}") as client:
        server.put("c")
        assert names(await client.events(3)) == [("MODIFIED", "a"), ("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize("asked", [5, BASE_REVISION - 1, BASE_REVISION + 2, 2**63])
async def test_a_revision_that_is_not_ours_has_expired(server: ResourceServer, asked: int) -> None:
    """W6, L9: of another process, older than the history, or of the future."""
    server.put("a")
    for accept in (JSON, TABLE):
        async with server.watch(f"{WATCH}&resourceVersion={asked}", accept) as client:
            events = await client.rest()
        assert client.status == 200
        assert client.is_ended
        assert events == [
            {
                "type": "ERROR",
                "object": {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Failure",
                    "message": f"too old resource version: {asked} ({BASE_REVISION})",
                    "reason": "Expired",
                    "code": 410,
                },
            }
        ]


async def test_a_replica_that_is_behind_ends_the_watch_and_the_client_resumes(
    server: ResourceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica has given the revision out. It must not list again for that."""
    server.put("a")
    server.store.is_follower = True
    server.store.advance(newest := (server.store.epoch + 1) << EPOCH_BITS)

    async def not_in_time(_revision: int) -> bool:
        return False

    monkeypatch.setattr(server.store, "reach", not_in_time)
    async with server.watch(f"{WATCH}&resourceVersion={newest + 2}") as client:
        assert await client.rest() == []
        assert (client.status, client.is_ended) == (200, True)
    branch = newest | 1 << (EPOCH_BITS - 1)  # of a replica that followed nobody: it never comes
    async with server.watch(f"{WATCH}&resourceVersion={branch}") as client:
        assert [each["object"]["code"] for each in await client.rest()] == [410]


async def test_the_initial_events_end_with_a_bookmark(server: ResourceServer) -> None:
    """W8: then changes after it."""
    server.put("a")
    server.put("b")
    async with server.watch(WATCH_LIST) as client:
        *added, bookmark = await client.events(3)
        assert names(added) == [("ADDED", "a"), ("ADDED", "b")]
        assert bookmark == {
            "type": "BOOKMARK",
            "object": {
                "kind": "TrainJobProgress",
                "apiVersion": "visibility.trainer.kubeflow.org/v1alpha1",
                "metadata": {"resourceVersion": str(server.store.revision), "annotations": INITIAL_END},
            },
        }
        server.put("c")
        assert names([await client.event()]) == [("ADDED", "c")]


@pytest.mark.parametrize("fields", ["", "&fieldSelector=metadata.name%3Dnone"])
async def test_the_bookmark_comes_for_an_empty_set_too_and_once(fields: str) -> None:
    """W8, W18: kubectl wait waits for it forever."""
    server = ResourceServer(watch_limits=SHORT)
    async with server.watch(WATCH_LIST + fields) as client:
        (bookmark,) = await client.rest()
    assert bookmark["object"]["metadata"]["annotations"] == INITIAL_END


async def test_the_bookmark_is_only_for_those_who_allow_it() -> None:
    """W8, W11: the legacy default has it as well."""
    server = ResourceServer(watch_limits=SHORT)
    server.put("a")
    asked = f"{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    async with server.watch(asked) as client:
        assert names(await client.rest()) == [("ADDED", "a")]
    async with server.watch(f"{WATCH}&allowWatchBookmarks=true") as client:
        assert [event["type"] for event in await client.rest()] == ["ADDED", "BOOKMARK"]


async def test_initial_events_may_be_of_any_newer_state(server: ResourceServer) -> None:
    """W8: at least as new as the revision; one ahead of ours is refused (L8)."""
    then = server.put("a")
    server.put("b")
    for asked in (5, then):
        async with server.watch(f"{WATCH_LIST}&resourceVersion={asked}") as client:
            assert names(await client.events(2)) == [("ADDED", "a"), ("ADDED", "b")]
    code, reason, _ = await server.refused(f"{WATCH_LIST}&resourceVersion={then + 2}")
    assert (code, reason) == (504, "Timeout")


@pytest.mark.parametrize("asked", ["", "&resourceVersion=0"])
async def test_initial_events_can_be_declined(server: ResourceServer, asked: str) -> None:
    """W8: starts from now."""
    server.put("a")
    declined = f"{WATCH}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan{asked}"
    async with server.watch(declined) as client:
        server.put("b")
        assert names([await client.event()]) == [("ADDED", "b")]


async def test_a_watch_ends_in_order_when_its_time_is_over(server: ResourceServer) -> None:
    """W9: a clean end, no event, and not early."""
    began = asyncio.get_running_loop().time()
    async with server.watch(f"{WATCH}&timeoutSeconds=1&resourceVersion={BASE_REVISION}") as client:
        assert await client.rest() == []
    assert client.is_ended
    assert asyncio.get_running_loop().time() - began >= 0.99
    assert len(server.watches) == 0


@pytest.mark.parametrize("asked", ["", "&timeoutSeconds=0"])
async def test_without_a_limit_the_server_has_its_own(asked: str) -> None:
    """W9"""
    server = ResourceServer(watch_limits=SHORT)
    async with server.watch(WATCH + asked) as client:
        assert await client.rest() == []


async def test_a_negative_limit_ends_a_watch_at_once(server: ResourceServer) -> None:
    """W9: kube-apiserver 1.36.2 answers 200 and ends the stream. Here it stayed open for half an hour."""
    server.put("a")
    async with server.watch(f"{WATCH}&timeoutSeconds=-5") as client:
        assert await client.rest() == []
    assert client.is_ended


async def test_a_busy_watch_ends_in_time_too() -> None:
    """W9"""
    server = ResourceServer(watch_limits=SHORT)
    async with server.watch(WATCH) as client:
        step = 0
        async with asyncio.timeout(90):
            while not client.is_ended:
                server.put(step=(step := step + 1))
                await asyncio.sleep(0)
    assert step > 0


async def test_bookmarks_say_how_far_the_watch_has_come() -> None:
    """W10: only type and revision; a watcher who sees nothing gets on as well."""
    server = ResourceServer(watch_limits=WatchLimits(bookmark_interval_s=0.02))
    asked = f"{WATCH}&resourceVersion={BASE_REVISION}&allowWatchBookmarks=true&labelSelector=app%3Dx"
    async with server.watch(asked) as client:
        first = await client.event()
        assert first == {
            "type": "BOOKMARK",
            "object": {
                "kind": "TrainJobProgress",
                "apiVersion": "visibility.trainer.kubeflow.org/v1alpha1",
                "metadata": {"resourceVersion": str(BASE_REVISION)},
            },
        }
        now = server.put("not-selected")
        while revision(event := await client.event()) < now:
            assert event["type"] == "BOOKMARK"
        assert (event["type"], revision(event)) == ("BOOKMARK", now)


@pytest.mark.parametrize("stands_still_s", [0.0, 0.25])
async def test_a_last_bookmark_comes_before_the_end(stands_still_s: float) -> None:
    """W10: so that the next watch starts where this one ended; also when the end is due at the same time."""
    server = ResourceServer(watch_limits=WatchLimits(timeout_s=(0.2, 0.2), bookmark_before_end_s=0.1))
    asked = f"{WATCH}&resourceVersion={BASE_REVISION}"
    async with server.watch(f"{asked}&allowWatchBookmarks=true") as client:
        time.sleep(stands_still_s)  # noqa: ASYNC251 - nothing here moves
        assert [event["type"] for event in await client.rest()] == ["BOOKMARK"]
    async with server.watch(asked) as client:
        assert await client.rest() == []  # not allowed, not sent


async def test_a_bookmark_is_never_ahead_of_an_event() -> None:
    """W10, W14"""
    server = ResourceServer(watch_limits=WatchLimits(bookmark_interval_s=0.0, timeout_s=(600.0, 600.0)))
    seen: list[tuple[str, int]] = []
    async with server.watch(f"{WATCH}&allowWatchBookmarks=true") as client:
        for step in range(300):
            server.put(f"job-{step % 7}", step=step)
            if step % 3 == 0:
                await asyncio.sleep(0)
        while sum(type_ != "BOOKMARK" for type_, _ in seen) < 300:
            event = await client.event()
            seen.append((event["type"], revision(event)))
    assert {type_ for type_, _ in seen} == {"ADDED", "MODIFIED", "BOOKMARK"}
    told = 0
    for type_, at in seen:
        if type_ == "BOOKMARK":
            assert at <= told or told == 0
        else:
            assert at > told
            told = at


async def test_selectors_turn_changes_into_comings_and_goings(server: ResourceServer) -> None:
    """W12, W13"""
    server.put("a", labels={"app": "x"}, step=1)
    async with server.watch(f"{TEAM}?watch=1&resourceVersion=0&labelSelector=app%3Dx") as client:
        assert names([await client.event()]) == [("ADDED", "a")]
        server.put("b", labels={"app": "y"})  # never seen
        server.put("a", labels={"app": "x"}, step=2)
        left_at = server.put("a", labels={"app": "y"}, step=3)
        server.put("a", labels={"app": "y"}, step=4)  # not seen
        server.put("a", labels={"app": "x"}, step=5)
        gone_at = server.delete("a")
        server.delete("b")
        server.put("c", labels={"app": "x"})
        events = await client.events(5)
    assert names(events) == [
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "c"),
    ]
    assert revision(events[1]) == left_at
    assert events[1]["object"]["status"]["steps"]["current"] == 2  # as it was last seen
    assert events[1]["object"]["metadata"]["labels"] == {"app": "x"}
    assert revision(events[3]) == gone_at


async def test_a_job_that_leaves_many_selectors_is_encoded_once(server: ResourceServer) -> None:
    """Labels of one's own jobs and a thousand selectors must not cost an encoding each."""
    server.put("a", labels={"app": "x"}, step=1)
    made = mock.Mock(wraps=v1alpha1.status_of)
    selectors = [f"app%3Dx,k{number}!%3Dv" for number in range(5)]
    with mock.patch.object(v1alpha1, "status_of", made):
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(server.watch(f"{WATCH}&labelSelector={selector}"))
                for selector in selectors
            ]
            for client in clients:
                await client.event()
            made.reset_mock()
            server.put("a", labels={"app": "y"}, step=2)
            for client in clients:
                assert names([await client.event()]) == [("DELETED", "a")]
    assert made.call_count == 1


async def test_one_namespace_sees_one_namespace(server: ResourceServer) -> None:
    server.put("a", namespace="team-a")
    server.put("b", namespace="team-b")
    async with server.watch(f"{BASE}/namespaces/team-b/trainjobs?watch=1") as client:
        server.put("c", namespace="team-a")
        server.delete("a", namespace="team-a")
        server.put("d", namespace="team-b")
        assert names(await client.events(2)) == [("ADDED", "b"), ("ADDED", "d")]


async def test_a_recreated_job_is_deleted_first(server: ResourceServer) -> None:
    server.put("a", uid="first")
    async with server.watch(WATCH) as client:
        await client.event()
        server.put("a", uid="second")
        events = await client.events(2)
    assert [(e["type"], e["object"]["metadata"]["uid"]) for e in events] == [
        ("DELETED", "first"),
        ("ADDED", "second"),
    ]


async def test_a_namespace_called_none_is_not_all_of_them(server: ResourceServer) -> None:
    """Watchers share bytes by what they asked for, and `None` may be asked for."""
    async with server.watch(f"{BASE}/namespaces/None/trainjobs?watch=1") as one, server.watch(WATCH) as every:
        server.put("a")
        assert names([await every.event()]) == [("ADDED", "a")]
        assert one.chunks == []


async def test_a_table_watch_sends_a_row_an_event(server: ResourceServer) -> None:
    """W15: the columns in the first event only."""
    server.put("a", step=1)
    server.put("b", step=1)
    async with server.watch(WATCH, TABLE) as client:
        first, second = await client.events(2)
        changed_at = server.put("b", step=2)
        third = await client.event()
    assert [len(e["object"]["columnDefinitions"] or ()) for e in (first, second, third)] == [
        len(COLUMNS),
        0,
        0,
    ]
    for event in (first, second, third):
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert len(event["object"]["rows"]) == 1
    assert [e["object"]["rows"][0]["cells"][0] for e in (first, second, third)] == ["a", "b", "b"]
    assert (third["type"], revision(third)) == ("MODIFIED", changed_at)


async def test_the_initial_events_of_table_watches_are_made_once(server: ResourceServer) -> None:
    """W15: each has the columns first, and ages as old as in a list at most."""
    for name in ("a", "b"):
        server.put(name)
    seen: list[list[Any]] = []
    for later_s in (0, 1, 10):
        server.now += timedelta(seconds=later_s)
        async with server.watch(WATCH, TABLE) as client:
            events = await client.events(2)
            changed_at = server.put("c") if later_s == 10 else None
            if changed_at is not None:
                assert (await client.event())["object"]["columnDefinitions"] is None
        assert [len(e["object"]["columnDefinitions"] or ()) for e in events] == [len(COLUMNS), 0]
        seen.append(events)
    assert seen[0] == seen[1]
    assert seen[1] != seen[2]  # ages
    async with server.watch(f"{WATCH}&labelSelector=x", TABLE) as client:
        server.put("d", labels={"x": ""})
        assert len((await client.event())["object"]["columnDefinitions"]) == len(COLUMNS)


async def test_a_table_watch_from_a_list_says_the_columns_first(server: ResourceServer) -> None:
    """W15: also when there are no initial events, and for each watcher of a shared batch."""
    asked = f"{WATCH}&resourceVersion={BASE_REVISION}"
    async with server.watch(asked, TABLE) as one, server.watch(asked, TABLE) as two:
        server.put("a")
        server.put("b")
        for client in (one, two):
            events = await client.events(2)
            assert [len(e["object"]["columnDefinitions"] or ()) for e in events] == [len(COLUMNS), 0]
        # One that joins here is due the same change as the two, but not the same bytes.
        async with server.watch(f"{WATCH}&resourceVersion={server.store.revision}", TABLE) as late:
            server.put("c")
            columns = [(await c.event())["object"]["columnDefinitions"] for c in (one, late, two)]
    assert [len(shown or ()) for shown in columns] == [0, len(COLUMNS), 0]


async def test_a_bookmark_of_a_table_watch_is_a_table() -> None:
    server = ResourceServer(watch_limits=SHORT)
    async with server.watch(WATCH_LIST, TABLE) as client:
        (bookmark,) = await client.rest()
    assert bookmark["object"]["kind"] == "Table"
    assert bookmark["object"]["rows"] == []
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(BASE_REVISION)


async def test_a_metadata_watch_sends_metadata(server: ResourceServer) -> None:
    """W16"""
    server.put("a", step=1)
    async with server.watch(WATCH_LIST, PARTIAL) as client:
        added, bookmark = await client.events(2)
    assert set(added["object"]) == {"kind", "apiVersion", "metadata"}
    assert (added["object"]["kind"], added["object"]["apiVersion"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
    )
    assert bookmark["object"]["kind"] == "PartialObjectMetadata"


async def test_a_watch_is_json_of_single_objects(server: ResourceServer) -> None:
    """R9, R11, W16"""
    answer = await server.get(WATCH, YAML)
    assert answer.status == 406
    assert b"only the following media types are accepted: application/json;stream=watch" in answer.body
    assert (await server.refused(WATCH, PARTIAL_LIST))[0] == 406


async def test_a_watcher_that_does_not_read_its_initial_events_is_left() -> None:
    """They keep a state that may long be gone. The stream has no end, so that it knows."""
    server = ResourceServer(watch_limits=WatchLimits(initial_s=0.05))
    for number in range(300):
        server.put(f"job-{number:03}")
    async with server.watch(WATCH_LIST) as client:
        client.reads.clear()
        async with asyncio.timeout(60):
            while len(server.watches):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
    assert not client.is_ended


async def test_a_slow_watcher_is_cut_and_holds_nobody_up() -> None:
    """W20: it resumes from its last revision, or lists anew."""
    server = ResourceServer(max_changes=32)
    async with server.watch(WATCH) as slow, server.watch(WATCH) as quick:
        server.put(step=0)
        await slow.event()
        slow.reads.clear()
        server.put(step=1)
        for step in range(1, 200):
            server.put(step=step + 1)
            if step == 1:
                assert (await quick.event())["type"] == "ADDED"
            event = await quick.event()
            assert event["object"]["status"]["steps"]["current"] == step
        slow.reads.set()
        events = await slow.rest()
        assert slow.is_ended
        assert not quick.is_ended
        told = [event["object"]["status"]["steps"]["current"] for event in events]
        assert told == list(range(1, len(told) + 1))  # no gap before the cut
        assert len(told) < 200


async def test_draining_ends_watches_in_order(server: ResourceServer) -> None:
    """W24"""
    async with server.watch(WATCH) as client, server.watch(WATCH, TABLE) as other:
        server.put("a")
        await client.event()
        await other.event()
        server.watches.drain()
        assert await client.rest() == []
        assert await other.rest() == []
    assert client.is_ended
    async with server.watch(WATCH) as late:  # past the check for draining, before its first event
        assert await late.rest() == []


async def test_no_piece_of_a_stream_is_large_however_large_documents_are(server: ResourceServer) -> None:
    """Each watcher that does not read may hold one, beside what its connection holds."""
    metrics = tuple((f"{number:03}" + "x" * 40, "9" * 60) for number in range(256))
    for number in range(30):
        server.put(f"job-{number:03}", metrics=metrics)
    async with server.watch(WATCH_LIST) as client:
        await client.events(31)
        for number in range(30):
            server.put(f"job-{number:03}", step=1, metrics=metrics)
        await client.events(30)
    assert max(map(len, client.chunks)) <= PIECE_BYTES


async def test_slices_of_earlier_states_are_kept_by_no_watch(server: ResourceServer) -> None:
    """A slow reader may stay for a minute in a state that has gone."""
    for number in range(300):
        server.put(f"job-{number:03}")
    held = []
    for step in range(10):
        server.put("job-000", step=step)
        held.append(server.store.list("trainjobs", None))
        async with server.watch(WATCH_LIST) as client:
            await client.events(301)
    assert sum(bool(slices) for listing in held for slices in listing.kept.values()) <= 4


async def test_many_initial_events_come_in_slices(server: ResourceServer) -> None:
    """W5: nothing is lost when changes come meanwhile."""
    for number in range(450):
        server.put(f"job-{number:03}")
    async with server.watch(WATCH_LIST) as client:
        await client.event()
        server.put("job-000", step=1)
        server.put("new")
        events = [await client.event() for _ in range(452)]
    assert len(client.chunks) >= 5
    assert [e["type"] for e in events[449:]] == ["BOOKMARK", "MODIFIED", "ADDED"]
    assert {name for _, name in names(events[:449])} == {f"job-{n:03}" for n in range(1, 450)}
