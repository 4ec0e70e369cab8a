"""Section L but for selectors: lists, at the server itself and through kube-apiserver."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.api import Object
from tests.e2e.conformance.fronts import Client, Front, refusal
from tests.e2e.conformance.team import Team, names, revision
from tests.e2e.visibility_server import GROUP, PREFIX

_EVERYWHERE = f"{PREFIX}/trainjobs"
_ALL = ["a", "b", "c", "d", "e", "f", "g"]


def _pages(client: Client, path: str, **query: Any) -> Iterator[Object]:
    page = client.get(path, **query)
    yield page
    while token := page["metadata"].get("continue"):
        page = client.get(path, **(query | {"continue": token}))
        yield page


def test_L1_a_list_says_what_it_and_its_items_are(front: Front, crowd: Team) -> None:
    listed = front.alice.get(crowd.path)
    assert listed.keys() == {"kind", "apiVersion", "metadata", "items"}
    assert (listed["kind"], listed["apiVersion"]) == ("TrainJobProgressList", f"{GROUP}/v1alpha1")
    assert {(item["kind"], item["apiVersion"]) for item in listed["items"]} == {
        ("TrainJobProgress", f"{GROUP}/v1alpha1")
    }


def test_L1_an_empty_list_has_items_all_the_same(front: Front, team: Team) -> None:
    listed = front.alice.get(team.path)
    assert listed["items"] == []
    assert revision(listed) > 0


def test_L1_nothing_but_a_list_has_items(front: Front, crowd: Team) -> None:
    for path in (f"{crowd.path}/a", f"{crowd.path}/a/progress"):
        assert "items" not in front.alice.get(path)


def test_L2_the_revision_of_a_list_starts_a_watch_that_misses_nothing(front: Front, team: Team) -> None:
    team.fill("a", "b")
    listed = front.alice.get(team.path)
    assert revision(listed) >= max(map(revision, listed["items"]))
    team.delete("a")
    with front.alice.watch(team.path, resourceVersion=revision(listed)) as events:
        event = events.next()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "a")


def test_L3_revisions_are_plain_decimals_that_only_grow_with_changes(front: Front, team: Team) -> None:
    team.fill("a", "b")
    first = front.alice.get(team.path)
    written = [thing["metadata"]["resourceVersion"] for thing in (first, *first["items"])]
    assert all(text.isascii() and text.isdigit() and text[0] != "0" for text in written)
    team.label("a", x="1")
    second = front.alice.get(team.path)
    (a1, b1), (a2, b2) = (list(map(revision, listed["items"])) for listed in (first, second))
    assert (b2, a2 > a1) == (b1, True)
    assert revision(second) > revision(first)


_FORBIDDEN, _UNSUPPORTED = "FieldValueForbidden", "FieldValueNotSupported"
_MATCH, _INITIAL = "resourceVersionMatch", "sendInitialEvents"


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ({_MATCH: "Exact"}, [(_MATCH, _FORBIDDEN)]),
        ({_MATCH: "NotOlderThan"}, [(_MATCH, _FORBIDDEN)]),
        ({_MATCH: "Exact", "resourceVersion": "0"}, [(_MATCH, _FORBIDDEN)]),
        ({_MATCH: "Newest", "resourceVersion": "5"}, [(_MATCH, _UNSUPPORTED)]),
        ({_MATCH: "NotOlderThan", "resourceVersion": "5", "continue": "x"}, [(_MATCH, _FORBIDDEN)]),
        ({_INITIAL: "true"}, [(_INITIAL, _FORBIDDEN)]),
        ({_INITIAL: "false"}, [(_INITIAL, _FORBIDDEN)]),
        ({_INITIAL: "true", "watch": "1"}, [(_MATCH, _FORBIDDEN)]),
        ({_INITIAL: "false", "watch": "1"}, [(_MATCH, _FORBIDDEN)]),
        ({_INITIAL: "true", "watch": "1", _MATCH: "Exact"}, [(_MATCH, _FORBIDDEN), (_MATCH, _UNSUPPORTED)]),
        ({"watch": "1", _MATCH: "NotOlderThan", "resourceVersion": "5"}, [(_MATCH, _FORBIDDEN)]),
        (
            {"watch": "1", _INITIAL: "true", _MATCH: "NotOlderThan", "continue": "x"},
            [(_MATCH, _FORBIDDEN)],
        ),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_L4_options_that_exclude_each_other_are_invalid(
    front: Front, crowd: Team, query: dict[str, str], causes: list[tuple[str, str]]
) -> None:
    status = refusal(front.alice, crowd.path, 422, **query)
    assert status["reason"] == "Invalid"
    assert status["message"].startswith('ListOptions.meta.k8s.io "" is invalid: ')
    details = status["details"]
    assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions")
    assert [(cause["field"], cause["reason"]) for cause in details["causes"]] == causes


@pytest.mark.parametrize("match", ["", "NotOlderThan"])
def test_L5_a_list_is_never_older_than_asked(front: Front, team: Team, match: str) -> None:
    team.fill("a")
    start = revision(team.list())
    team.create("b")
    query = {_MATCH: match} if match else {}
    for asked in ("0", start, revision(team.list())):
        assert names(front.alice.get(team.path, resourceVersion=asked, **query)) == ["a", "b"]
        assert front.alice.get(f"{team.path}/a", resourceVersion=asked)["metadata"]["name"] == "a"


@pytest.mark.parametrize("query", [{_MATCH: "Exact"}, {"limit": 500}], ids=["Exact", "the legacy form"])
def test_L5_L6_an_exact_state_is_that_state_or_expired(
    front: Front, team: Team, query: dict[str, Any]
) -> None:
    team.fill("a")
    start = revision(team.list())
    team.create("b")
    held = front.alice.get(team.path, resourceVersion=start, **query)
    assert (names(held), revision(held)) == (["a"], start)
    status = refusal(front.alice, team.path, 410, resourceVersion=7, **query)
    assert status["reason"] == "Expired"


@pytest.mark.parametrize("version", ["abc", "-1", "1.5", "0x10", "99999999999999999999999"])
def test_L7_a_revision_that_is_no_number_is_a_bad_request(front: Front, crowd: Team, version: str) -> None:
    for path, query in ((crowd.path, {}), (crowd.path, {"watch": "1"}), (f"{crowd.path}/a", {})):
        status = refusal(front.alice, path, 400, resourceVersion=version, **query)
        assert status["reason"] == "BadRequest"
        assert status["message"].startswith("invalid resource version: ")


def test_L8_a_revision_from_the_future_is_refused_at_once_with_its_cause(front: Front, crowd: Team) -> None:
    asked = revision(crowd.list()) + 10**12
    cases: list[tuple[str, dict[str, Any]]] = [
        (crowd.path, {}),
        (crowd.path, {_MATCH: "NotOlderThan"}),
        (f"{crowd.path}/a", {}),
    ]
    for path, query in cases:
        answer = front.alice.send(path, resourceVersion=asked, **query)
        assert answer.status_code == 504
        assert answer.headers["retry-after"] == "1"
        status = answer.json()
        assert status["reason"] == "Timeout"
        assert re.fullmatch(rf"Timeout: Too large resource version: {asked}, current: \d+", status["message"])
        assert status["details"]["retryAfterSeconds"] == 1
        assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 500])
def test_L10_pages_make_up_the_list_of_the_first_one(front: Front, crowd: Team, limit: int) -> None:
    pages = list(_pages(front.alice, crowd.path, limit=limit))
    assert [name for page in pages for name in names(page)] == _ALL
    assert all(len(page["items"]) <= limit for page in pages)
    assert len(pages) == -(-len(_ALL) // limit)
    assert len({revision(page) for page in pages}) == 1


def test_L10_changes_between_two_pages_are_not_seen(front: Front, team: Team) -> None:
    team.fill("a", "b", "c")
    first = front.alice.get(team.path, limit=1)
    team.delete("b")
    team.label("c", late="yes")
    team.create("bb")
    rest = front.alice.get(team.path, **{"continue": first["metadata"]["continue"], "limit": 500})
    assert names(rest) == ["b", "c"]
    assert "labels" not in rest["items"][1]["metadata"]
    assert revision(rest) == revision(first)
    assert names(front.alice.get(team.path)) == ["a", "bb", "c"]


def test_L11_the_first_list_of_reflectors_and_of_kubectl(front: Front, crowd: Team) -> None:
    for query in (
        {"resourceVersion": "0", "limit": 500},
        {"limit": 500},
        {"resourceVersion": "0", "limit": 2},
    ):
        listed = front.alice.get(crowd.path, **query)
        assert names(listed) == _ALL
        assert "continue" not in listed["metadata"]


def test_L12_the_rest_is_counted_where_no_selector_hides_it(front: Front, crowd: Team) -> None:
    metas = [page["metadata"] for page in _pages(front.alice, crowd.path, limit=3)]
    assert [meta.get("remainingItemCount") for meta in metas] == [4, 1, None]
    for selector in ({"labelSelector": "!nothing"}, {"fieldSelector": "metadata.name!=nobody"}):
        meta = front.alice.get(crowd.path, limit=3, **selector)["metadata"]
        assert meta["continue"]
        assert "remainingItemCount" not in meta


@pytest.mark.parametrize("token", ["x", "%", "e30", "eyJydiI6MX0", "A" * 4000])
def test_L13_a_token_that_is_none_of_ours_is_a_bad_request(front: Front, crowd: Team, token: str) -> None:
    status = refusal(front.alice, crowd.path, 400, **{"continue": token})
    assert status["reason"] == "BadRequest"


def test_L13_a_token_comes_without_a_revision_but_zero(front: Front, crowd: Team) -> None:
    first = front.alice.get(crowd.path, limit=4)
    query = {"continue": first["metadata"]["continue"]}
    status = refusal(front.alice, crowd.path, 400, resourceVersion=revision(first), **query)
    assert status["reason"] == "BadRequest"
    assert names(front.alice.get(crowd.path, resourceVersion="0", **query)) == _ALL[4:]


def test_L13_an_expired_token_may_be_gone_on_with_inconsistently(front: Front, crowd: Team) -> None:
    first = front.alice.get(crowd.path, limit=4)
    token = _aged(first["metadata"]["continue"])
    status = refusal(front.alice, crowd.path, 410, **{"continue": token})
    assert status["reason"] == "Expired"
    rest = front.alice.get(crowd.path, **{"continue": status["metadata"]["continue"]})
    assert names(rest) == _ALL[4:]


def _aged(token: str) -> str:
    """The token as a server of long ago would have given it. Only here do we look into one."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert content["rv"] > 7
    return base64.urlsafe_b64encode(json.dumps(content | {"rv": 7}).encode()).rstrip(b"=").decode()


def test_L14_lists_are_in_the_order_of_namespace_and_name(front: Front, crowd: Team, team: Team) -> None:
    team.fill("b", "a")
    places = [
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in front.admin.get(_EVERYWHERE)["items"]
    ]
    assert places == sorted(places)
    assert {place[0] for place in places} >= {crowd.namespace, team.namespace}
    assert names(front.alice.get(crowd.path)) == _ALL


@pytest.mark.parametrize("parameter", ["limit", "timeoutSeconds"])
@pytest.mark.parametrize("value", ["x", "1.5", "1s"])
def test_L19_a_number_that_is_none_is_a_bad_request(
    front: Front, crowd: Team, parameter: str, value: str
) -> None:
    assert refusal(front.alice, crowd.path, 400, **{parameter: value})["reason"] == "BadRequest"
