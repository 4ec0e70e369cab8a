"""Section W: watches over real sockets, at the server itself and through kube-apiserver."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.e2e.api import Object
from tests.e2e.conformance.fronts import Front
from tests.e2e.conformance.team import Team, names, revision
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import GROUP

_GV = f"{GROUP}/v1alpha1"
_END = "k8s.io/initial-events-end"
_INFORMER: dict[str, Any] = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def _short(events: list[Object]) -> list[tuple[str, str]]:
    """Type and name of each."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def test_W1_every_event_is_one_json_object_on_a_line_of_its_own(front: Front, team: Team) -> None:
    team.fill("a", "b")
    answer = front.alice.send(team.path, watch="1", timeoutSeconds=1)
    assert answer.status_code == 200
    assert answer.headers["transfer-encoding"] == "chunked"
    lines = answer.text.splitlines(keepends=True)
    assert len(lines) == 2
    assert all(line.endswith("\n") for line in lines)
    assert _short([json.loads(line) for line in lines]) == [("ADDED", "a"), ("ADDED", "b")]


@pytest.mark.parametrize("accept", ["application/json", "application/json;stream=watch", None])
def test_W2_content_type_is_plain_json_whatever_was_asked(
    front: Front, team: Team, accept: str | None
) -> None:
    with front.alice.watch(team.path, accept=accept) as events:
        assert events.answer.headers["content-type"] == "application/json"


def test_W3_headers_come_before_any_event_and_unzipped(front: Front, team: Team) -> None:
    # The namespace is empty: nothing but the header can have come.
    with front.alice.watch(team.path, resourceVersion=revision(team.list())) as events:
        assert events.answer.status_code == 200
        assert "content-encoding" not in events.answer.headers
        team.create("a")
        assert _short([events.next()]) == [("ADDED", "a")]


def test_W4_every_object_says_what_it_is(front: Front, team: Team) -> None:
    team.fill("a")
    with front.alice.watch(team.path, **_INFORMER) as events:
        initial, bookmark = events.until_bookmark()
        team.label("a", x="1")
        team.delete("a")
        seen = [*initial, *events.take(2)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    for thing in [bookmark, *(event["object"] for event in seen)]:
        assert (thing["apiVersion"], thing["kind"]) == (_GV, "TrainJobProgress")
    for event in seen:
        assert event["object"]["metadata"]["namespace"] == team.namespace


@pytest.mark.parametrize("start", ["", "0", None])
def test_W5_a_watch_from_nowhere_begins_with_the_state(front: Front, team: Team, start: str | None) -> None:
    team.fill("a", "b")
    query: dict[str, Any] = {} if start is None else {"resourceVersion": start}
    with front.alice.watch(team.path, **query) as events:
        assert sorted(_short(events.take(2))) == [("ADDED", "a"), ("ADDED", "b")]
        team.label("b", x="1")
        assert _short([events.next()]) == [("MODIFIED", "b")]


def test_W5_a_watch_from_a_revision_tells_only_what_came_after(front: Front, team: Team) -> None:
    team.fill("a", "b")
    start = revision(team.list())
    team.label("a", x="1")
    with front.alice.watch(team.path, resourceVersion=start) as events:
        event = events.next()
        assert _short([event]) == [("MODIFIED", "a")]
        assert revision(event["object"]) > start


@pytest.mark.parametrize("where", ["of long ago", "of the future"])
def test_W6_a_revision_that_is_not_ours_ends_in_one_error_event(front: Front, team: Team, where: str) -> None:
    start = 7 if where == "of long ago" else revision(team.list()) + 10**12
    with front.alice.watch(team.path, resourceVersion=start) as events:
        assert events.answer.status_code == 200
        (event,) = events.rest()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert (status["reason"], status["code"]) == ("Expired", 410)
    assert status["message"].startswith(f"too old resource version: {start} (")


@pytest.mark.parametrize("count", [0, 3])
def test_W7_W8_initial_events_are_closed_by_exactly_one_bookmark(
    front: Front, team: Team, count: int
) -> None:
    expected = list("abc"[:count])
    team.fill(*expected)
    with front.alice.watch(team.path, **_INFORMER) as events:
        initial, bookmark = events.until_bookmark()
        assert sorted(_short(initial)) == [("ADDED", name) for name in expected]
        assert set(bookmark) == {"kind", "apiVersion", "metadata"}
        assert bookmark["metadata"]["annotations"] == {_END: "true"}
        assert revision(bookmark) >= max((revision(e["object"]) for e in initial), default=1)
        team.create("z")
        after = events.next()
        assert _short([after]) == [("ADDED", "z")]
        assert revision(after["object"]) > revision(bookmark)


def test_W8_no_bookmark_comes_unless_it_is_allowed(front: Front, team: Team) -> None:
    team.fill("a")
    query: dict[str, Any] = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    with front.alice.watch(team.path, **query) as events:
        assert _short([events.next()]) == [("ADDED", "a")]
        team.create("b")
        assert _short([events.next()]) == [("ADDED", "b")]


@pytest.mark.parametrize("start", ["", "0"])
def test_W8_initial_events_can_be_declined(front: Front, team: Team, start: str) -> None:
    team.fill("a")
    query: dict[str, Any] = {
        "sendInitialEvents": "false",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": start,
    }
    with front.alice.watch(team.path, **query) as events:
        team.create("b")
        assert _short([events.next()]) == [("ADDED", "b")]


def test_W8_initial_events_of_a_revision_yet_to_come_are_refused(front: Front, team: Team) -> None:
    start = revision(team.list()) + 10**12
    answer = front.alice.send(team.path, watch="true", resourceVersion=start, **_INFORMER)
    assert (answer.status_code, answer.json()["reason"]) == (504, "Timeout")


def test_W9_a_watch_ends_cleanly_after_timeout_seconds(front: Front, team: Team) -> None:
    with front.alice.watch(team.path, timeoutSeconds=1) as events:
        # A stream that is cut, not ended, raises here.
        assert events.rest() == []


def test_W10_a_last_bookmark_comes_shortly_before_the_end(front: Front, team: Team) -> None:
    team.fill("a")
    start = revision(team.list())
    query: dict[str, Any] = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": 3}
    with front.alice.watch(team.path, **query) as events:
        (event,) = events.rest()
    assert event["type"] == "BOOKMARK"
    bookmark = event["object"]
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("TrainJobProgress", _GV)
    assert bookmark["metadata"].keys() == {"resourceVersion"}
    assert revision(bookmark) >= start
    with front.alice.watch(team.path, resourceVersion=revision(bookmark)) as events:
        team.label("a", x="1")
        assert _short([events.next()]) == [("MODIFIED", "a")]


@pytest.mark.parametrize("start", ["", "0"])
def test_W11_the_legacy_form_gets_the_closing_bookmark_too(front: Front, team: Team, start: str) -> None:
    team.fill("a")
    with front.alice.watch(team.path, resourceVersion=start, allowWatchBookmarks="true") as events:
        initial, bookmark = events.until_bookmark()
    assert _short(initial) == [("ADDED", "a")]
    assert bookmark["metadata"]["annotations"] == {_END: "true"}


@pytest.mark.parametrize(
    ("selector", "enter", "leave"),
    [
        ({"labelSelector": "in=yes"}, {"in": "yes"}, {"in": None}),
        ({"labelSelector": "!out"}, {"out": None}, {"out": ""}),
    ],
    ids=["has", "has not"],
)
def test_W12_labels_that_change_make_objects_come_and_go(
    front: Front,
    team: Team,
    selector: dict[str, str],
    enter: dict[str, str | None],
    leave: dict[str, str | None],
) -> None:
    team.fill("a")
    team.label("a", **leave)
    team.label("a", unrelated="1")
    with front.alice.watch(team.path, **_INFORMER, **selector) as events:
        events.until_bookmark()
        team.label("a", unrelated="2")  # still out: nothing
        team.label("a", **enter)
        team.label("a", unrelated="3")
        team.label("a", **leave)
        team.label("a", unrelated="4")  # out again: nothing
        team.delete("a")  # nobody here has it
        labels: dict[str, Any] = {key: value for key, value in enter.items() if value is not None}
        team.create("b", **labels)
        seen = events.take(4)
    assert _short(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


def test_W12_phases_that_change_make_objects_come_and_go(front: Front, team: Team) -> None:
    team.fill("a")
    with front.alice.watch(team.path, **_INFORMER, fieldSelector="status.phase=Suspended") as events:
        assert events.until_bookmark()[0] == []
        team.suspend("a")
        team.label("a", x="1")
        team.suspend("a", False)
        team.suspend("a")
        assert [event["type"] for event in events.take(4)] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]


def test_W13_deleted_shows_the_last_state_at_a_new_revision(front: Front, team: Team) -> None:
    team.fill("a")
    team.label("a", last="words")
    before = team.document("a")
    with front.alice.watch(team.path, resourceVersion=revision(team.list())) as events:
        team.delete("a")
        (event,) = events.take(1)
    assert event["type"] == "DELETED"
    last = event["object"]
    assert revision(last) > revision(before)
    assert last["metadata"] | {"resourceVersion": ""} == before["metadata"] | {"resourceVersion": ""}
    assert last["status"] == before["status"]


def test_W13_leaving_a_selector_shows_what_was_last_seen_at_a_new_revision(front: Front, team: Team) -> None:
    team.create("a", here="yes")
    before = team.document("a")
    query: dict[str, Any] = {"labelSelector": "here=yes", "resourceVersion": revision(team.list())}
    with front.alice.watch(team.path, **query) as events:
        team.label("a", here="no")
        (event,) = events.take(1)
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"here": "yes"}
    assert revision(event["object"]) == revision(team.document("a")) > revision(before)


def test_W14_every_change_is_one_event_at_a_higher_revision(front: Front, team: Team) -> None:
    team.fill("a", "b")
    with front.alice.watch(team.path, resourceVersion=revision(team.list())) as events:
        for number in range(10):
            team.label("a" if number % 2 else "b", n=str(number))
        seen = events.take(10)
    assert [event["object"]["metadata"]["labels"]["n"] for event in seen] == [str(n) for n in range(10)]
    revisions = [revision(event["object"]) for event in seen]
    assert all(one < next_ for one, next_ in itertools.pairwise(revisions))
    assert revisions[-1] == revision(team.document("a"))


_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def test_W15_table_events_name_their_columns_once(front: Front, team: Team) -> None:
    team.fill("a", "b")
    with front.alice.watch(team.path, accept=_TABLE, **_INFORMER) as events:
        assert events.answer.headers["content-type"] == "application/json"
        initial, bookmark = events.until_bookmark()
        team.label("a", x="1")
        team.delete("b")
        tables = [event["object"] for event in [*initial, *events.take(2)]]
    assert [(table["kind"], table["apiVersion"]) for table in tables] == [("Table", "meta.k8s.io/v1")] * 4
    assert bookmark["kind"] == "Table"
    assert bookmark["rows"] == []
    assert tables[0]["columnDefinitions"][0]["name"] == "Name"
    assert not any(table.get("columnDefinitions") for table in [*tables[1:], bookmark])
    for table in tables:
        (row,) = table["rows"]
        assert row["cells"][0] == row["object"]["metadata"]["name"]
        assert table["metadata"]["resourceVersion"] == row["object"]["metadata"]["resourceVersion"]


def test_W15_an_error_stays_a_status_in_a_table_watch(front: Front, team: Team) -> None:
    with front.alice.watch(team.path, accept=_TABLE, resourceVersion=7) as events:
        (event,) = events.rest()
    assert (event["type"], event["object"]["kind"]) == ("ERROR", "Status")


def test_W16_metadata_events_hold_metadata_only(front: Front, team: Team) -> None:
    team.create("a", model="bert")
    accept = (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    )
    with front.alice.watch(team.path, accept=accept, **_INFORMER) as events:
        (event,), bookmark = events.until_bookmark()
    assert event["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": team.document("a")["metadata"],
    }
    assert bookmark["kind"] == "PartialObjectMetadata"


def test_W17_the_watch_of_one_name_begins_with_it(front: Front, team: Team) -> None:
    # kubectl drops the first event, counting on this one.
    team.fill("a", "b")
    query: dict[str, Any] = {"fieldSelector": "metadata.name=a", "resourceVersion": "0"}
    with front.alice.watch(team.path, accept=_TABLE, **query) as events:
        first = events.next()
        team.label("b", x="1")
        team.label("a", x="1")
        second = events.next()
    assert [event["type"] for event in (first, second)] == ["ADDED", "MODIFIED"]
    assert [event["object"]["rows"][0]["cells"][0] for event in (first, second)] == ["a", "a"]


@pytest.mark.parametrize("accept", [None, _TABLE], ids=["document", "table"])
def test_W17_a_watch_goes_on_where_the_list_ended(front: Front, team: Team, accept: str | None) -> None:
    team.fill("a")
    listed = front.alice.get(team.path, accept=accept, limit=500)
    team.create("b")
    with front.alice.watch(team.path, resourceVersion=revision(listed)) as events:
        assert _short([events.next()]) == [("ADDED", "b")]


def test_W18_the_informer_of_one_name_is_synced_though_there_is_none(front: Front, team: Team) -> None:
    # `kubectl wait` takes a name that is not in the synced set for NotFound; without the bookmark it hangs.
    team.fill("a")
    with front.alice.watch(team.path, **_INFORMER, fieldSelector="metadata.name=nobody") as events:
        assert events.until_bookmark()[0] == []
    with front.alice.watch(team.path, **_INFORMER, fieldSelector="metadata.name=a") as events:
        (event,), _ = events.until_bookmark()
        team.complete("a")
        changed = events.next()
    assert [c["status"] for c in event["object"]["status"]["conditions"] if c["type"] == "Complete"] != [
        "True"
    ]
    assert changed["type"] == "MODIFIED"
    assert [c["status"] for c in changed["object"]["status"]["conditions"] if c["type"] == "Complete"] == [
        "True"
    ]


def test_W19_a_relist_by_the_last_revision_seen_works(front: Front, team: Team) -> None:
    team.fill("a")
    with front.alice.watch(team.path, **_INFORMER) as events:
        _, bookmark = events.until_bookmark()
    assert names(front.alice.get(team.path, resourceVersion=revision(bookmark))) == ["a"]
    refused = front.alice.send(team.path, resourceVersion=revision(bookmark) + 10**12).json()
    assert [cause["reason"] for cause in refused["details"]["causes"]] == ["ResourceVersionTooLarge"]
    assert names(front.alice.get(team.path, resourceVersion="")) == ["a"]


def test_W22_watchers_that_have_gone_are_forgotten(direct: Front, team: Team) -> None:
    def running() -> float:
        metrics = direct.admin.send("/metrics").text.splitlines()
        (line,) = (line for line in metrics if line.startswith("apiserver_longrunning_requests"))
        return float(line.split()[-1])

    wait_until(lambda: running() == 0, what="the watches of earlier tests are forgotten")
    with direct.alice.watch(team.path), direct.alice.watch(team.path):
        wait_until(lambda: running() == 2, what="both watches are known")
    wait_until(lambda: running() == 0, what="both watches are forgotten")


def test_W23_an_upgrade_is_answered_as_a_plain_watch_or_refused(direct: Front, team: Team) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = direct.alice.send(team.path, headers=headers, watch="true", timeoutSeconds=1)
    assert answer.status_code in (200, 400)
