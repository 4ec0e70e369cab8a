"""Following a list over connections that are cut anywhere: each change is told once."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from trainjob_client import ApiError, UnreachableError
from trainjob_client.requests import Answer
from trainjob_client.sending import lines_of
from trainjob_client.watching import Event, Watching, metadata_of


def item(name: str, version: int, uid: str = "") -> dict[str, Any]:
    meta = {"name": name, "namespace": "team-a", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "TrainJobProgress", "metadata": meta, "status": {"phase": "Running"}}


def line(type_: str, object_: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode()


def listed(version: int, *items: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps({"metadata": {"resourceVersion": str(version)}, "items": items}).encode())


def told(events: list[Event]) -> list[tuple[str, str, str]]:
    found = [(each.type, metadata_of(each.item)) for each in events]
    return [(type_, metadata["name"], metadata["resourceVersion"]) for type_, metadata in found]


def parameters(watching: Watching) -> dict[str, str]:
    return dict(watching.next_call().parameters)


def begun(*items: dict[str, Any], version: int = 10) -> Watching:
    watching = Watching("/x", [("labelSelector", "a=b")])
    watching.take_list(listed(version, *items))
    return watching


def test_a_watch_begins_with_the_list_and_goes_on_from_the_last_version() -> None:
    watching = Watching("/x", [("labelSelector", "a=b")])
    assert parameters(watching) == {"labelSelector": "a=b"}
    assert told(watching.take_list(listed(10, item("bert", 5)))) == [("ADDED", "bert", "5")]
    asked = parameters(watching)
    assert (asked["labelSelector"], asked["watch"], asked["allowWatchBookmarks"]) == ("a=b", "true", "true")
    assert asked["resourceVersion"] == "10"
    assert told(watching.take_line(line("MODIFIED", item("bert", 12)))) == [("MODIFIED", "bert", "12")]
    assert parameters(watching)["resourceVersion"] == "12"
    assert watching.take_line(line("BOOKMARK", {"metadata": {"resourceVersion": "20"}})) == []
    assert parameters(watching)["resourceVersion"] == "20"
    assert watching.take_line(b"") == []


def test_rows_of_tables_are_followed_as_documents_are() -> None:
    def table(version: int, *names: str, columns: list[dict[str, Any]] | None) -> dict[str, Any]:
        rows = [{"cells": [name, "Running"], "object": item(name, version)} for name in names]
        meta = {"resourceVersion": str(version)}
        return {"kind": "Table", "metadata": meta, "columnDefinitions": columns, "rows": rows}

    watching = Watching("/x", [], "application/json;as=Table")
    heads = [{"name": "Name"}]
    answer = Answer(200, json.dumps(table(10, "bert", "gpt", columns=heads)).encode())
    assert told(watching.take_list(answer)) == [("ADDED", "bert", "10"), ("ADDED", "gpt", "10")]
    for type_, version, names, expected in (
        ("MODIFIED", 11, ["bert"], [("MODIFIED", "bert", "11")]),
        ("BOOKMARK", 12, [], []),
        ("DELETED", 13, ["gpt"], [("DELETED", "gpt", "13")]),
    ):
        assert told(watching.take_line(line(type_, table(version, *names, columns=None)))) == expected
        assert parameters(watching)["resourceVersion"] == str(version)
    assert watching.columns == heads
    assert watching.next_call().accept == "application/json;as=Table"


@pytest.mark.parametrize("comes_as", ["an answer", "an event"])
def test_after_410_only_what_differs_is_told(comes_as: str) -> None:
    watching = begun(item("bert", 5), item("gpt", 6), item("llama", 7))
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    watching.next_call()
    if comes_as == "an answer":
        pause = watching.end(Answer(410, json.dumps(expired).encode()))
    else:
        with pytest.raises(ApiError) as raised:
            watching.take_line(line("ERROR", expired))
        pause = watching.refuse(raised.value)
    assert pause.seconds == 0.0
    assert watching.is_listing
    again = listed(30, item("bert", 5), item("llama", 20, uid="another"), item("new", 21))
    assert told(watching.take_list(again)) == [
        ("DELETED", "gpt", "6"),
        ("DELETED", "llama", "7"),
        ("ADDED", "llama", "20"),
        ("ADDED", "new", "21"),
    ]


def test_a_watch_from_a_known_version_lists_nothing() -> None:
    watching = Watching("/x", [], resource_version="10")
    assert not watching.is_listing
    assert told(watching.take_line(line("MODIFIED", item("bert", 12)))) == [("MODIFIED", "bert", "12")]
    assert told(watching.take_line(line("DELETED", item("gpt", 13)))) == [("DELETED", "gpt", "13")]


def test_a_later_watch_goes_on_where_nothing_is_lost_and_nothing_told_twice() -> None:
    def versions(events: list[Event]) -> list[str | None]:
        return [each.resource_version for each in events]

    watching = Watching("/x", [])
    # Before all of the list is told there is no such place: begin with a list again.
    assert versions(watching.take_list(listed(10, item("a", 5), item("b", 7), item("c", 3)))) == [
        None,
        None,
        "10",
    ]
    assert versions(watching.take_line(line("MODIFIED", item("a", 12)))) == ["12"]
    assert versions(watching.take_line(line("ADDED", item("a", 15, uid="another")))) == ["12", "15"]
    assert versions(watching.take_line(line("DELETED", item("b", 16)))) == ["16"]


def test_what_never_answered_is_given_up_and_what_did_is_not() -> None:
    watching = Watching("/x", [])
    for _ in range(5):
        watching.refuse(UnreachableError("no route"))
    with pytest.raises(UnreachableError):
        watching.refuse(UnreachableError("no route"))
    watching = begun()
    assert all(watching.refuse(UnreachableError("no route")).seconds <= 30.0 for _ in range(100))
    with pytest.raises(ApiError):
        watching.refuse(ApiError(403, "Forbidden", "no more"))


def test_a_server_that_ends_each_watch_at_once_is_not_asked_without_a_pause() -> None:
    watching = begun()
    watching.next_call()
    assert watching.end(Answer(200, b"")).seconds >= 0.5
    watching.next_call()
    watching.take_line(line("BOOKMARK", {"metadata": {"resourceVersion": "20"}}))
    assert watching.end(Answer(200, b"")).seconds == 0.0


@pytest.mark.parametrize("seed", range(50))
def test_a_stream_that_is_cut_at_any_byte_tells_each_change_once(seed: int) -> None:
    chance = random.Random(seed)
    # U+2028 ends a line for str.splitlines, and for httpx's iter_lines.
    changes = [("MODIFIED", item(chance.choice("ab") + "\u2028", 11 + number)) for number in range(6)]
    watching, seen, version = begun(version=10), [], 10
    while version < 16:
        rest = changes[version - 10 :]
        texts = [json.dumps({"type": type_, "object": found}, ensure_ascii=False) for type_, found in rest]
        stream = "".join(f"{text}\n" for text in texts).encode()
        cut, size = chance.randrange(len(stream) + 1), chance.randrange(1, 300)
        for each in lines_of(iter([stream[at : min(at + size, cut)] for at in range(0, cut, size)])):
            seen += watching.take_line(each)
        version = int(parameters(watching)["resourceVersion"])
    assert [each.resource_version for each in seen] == [str(11 + number) for number in range(6)]
