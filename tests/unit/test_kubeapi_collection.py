"""GET and LIST: L1, L2, L5 to L14, L18, R3, R4, R7 to R13, and 304."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from tests.unit.resource_server import (
    ALL,
    BASE,
    BASE_REVISION,
    BERT,
    JSON,
    PARTIAL_LIST,
    TABLE,
    YAML,
    ResourceServer,
)
from visibility_api.jobs.job import Phase


@pytest.fixture
def server() -> ResourceServer:
    return ResourceServer()


def listed(body: dict[str, Any]) -> list[str]:
    return [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in body["items"]]


async def test_an_empty_list_is_a_list(server: ResourceServer) -> None:
    """L1, L2, L3, R4: an unknown namespace too."""
    for target in (ALL, f"{BASE}/namespaces/nowhere/trainjobs"):
        assert (await server.get(target)).json() == {
            "kind": "TrainJobProgressList",
            "apiVersion": "visibility.trainer.kubeflow.org/v1alpha1",
            "metadata": {"resourceVersion": str(BASE_REVISION)},
            "items": [],
        }


async def test_items_say_what_they_are_in_order(server: ResourceServer) -> None:
    """L1, L14: a list RV is at least every item's."""
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "b")):
        server.put(name, namespace=namespace)
    body = (await server.get(ALL)).json()
    assert listed(body) == ["a/b", "a/z", "b/x"]
    assert {(i["kind"], i["apiVersion"].partition("/")[2]) for i in body["items"]} == {
        ("TrainJobProgress", "v1alpha1")
    }
    revisions = [int(item["metadata"]["resourceVersion"]) for item in body["items"]]
    assert int(body["metadata"]["resourceVersion"]) == max(revisions) == server.store.revision
    assert listed((await server.get(f"{BASE}/namespaces/a/trainjobs")).json()) == ["a/b", "a/z"]


async def test_a_large_list_leaves_in_slices_and_gives_way_between_them(server: ResourceServer) -> None:
    """Issue 6: a list in the making holds nobody up."""
    for number in range(1000):
        server.put(f"job-{number:04}")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    answer = await server.get(ALL)
    task.cancel()
    assert len(answer.json()["items"]) == 1000
    assert max(map(len, answer.chunks)) < len(answer.body) / 5
    assert turns >= 10


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("labelSelector=app%3Dbert", ["team-a/bert"]),
        ("labelSelector=app", ["team-a/bert", "team-b/gpt"]),
        ("labelSelector=%21app", ["team-b/other"]),
        ("fieldSelector=metadata.name%3Dgpt", ["team-b/gpt"]),
        ("fieldSelector=metadata.name%3Dnone", []),  # L18: never a 404
        ("fieldSelector=metadata.namespace%3Dteam-b", ["team-b/gpt", "team-b/other"]),
        ("fieldSelector=metadata.namespace%3Dteam-b,metadata.name%3Dgpt", ["team-b/gpt"]),
        ("fieldSelector=metadata.namespace%3Dteam-a,metadata.name%3Dgpt", []),
        ("fieldSelector=metadata.name%3Dgpt,metadata.name%3Dbert", []),
        ("fieldSelector=metadata.name%3Dgpt&labelSelector=app%3Dbert", []),
        ("fieldSelector=status.phase%3DFailed", ["team-b/other"]),
        ("fieldSelector=status.phase!%3DFailed&labelSelector=app!%3Dbert", ["team-b/gpt"]),
    ],
)
async def test_selectors_choose(server: ResourceServer, query: str, expected: list[str]) -> None:
    """L15 to L18"""
    server.put("bert", namespace="team-a", labels={"app": "bert"})
    server.put("gpt", namespace="team-b", labels={"app": "gpt"})
    server.put("other", namespace="team-b", phase=Phase.FAILED)
    body = (await server.get(f"{ALL}?{query}")).json()
    assert listed(body) == expected
    assert body["metadata"]["resourceVersion"] == str(server.store.revision)
    for namespace in ("team-a", "team-b"):
        body = (await server.get(f"{BASE}/namespaces/{namespace}/trainjobs?{query}")).json()
        assert listed(body) == [name for name in expected if name.startswith(namespace)]


async def pages(server: ResourceServer, target: str) -> list[dict[str, Any]]:
    separator = "&" if "?" in target else "?"
    found = [(await server.get(target)).json()]
    while token := found[-1]["metadata"].get("continue"):
        found.append((await server.get(f"{target}{separator}continue={token}")).json())
    return found


@given(
    st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from("vwxyz")), max_size=12),
    st.integers(1, 5),
    st.sampled_from(["", "&labelSelector=app%3Dv", "&fieldSelector=metadata.namespace%3Db"]),
)
@settings(max_examples=60, deadline=None)
def test_pages_visit_each_item_once(keys: set[tuple[str, str]], limit: int, selector: str) -> None:
    """L10, L12: paged or not, the list is the same."""

    async def check() -> None:
        server = ResourceServer()
        for namespace, name in keys:
            server.put(name, namespace=namespace, labels={"app": name})
        whole = (await server.get(f"{ALL}?x=y{selector}")).json()
        paged = await pages(server, f"{ALL}?limit={limit}{selector}")
        assert [item for page in paged for item in page["items"]] == whole["items"]
        assert all(len(page["items"]) <= limit for page in paged)
        if selector:
            assert all("remainingItemCount" not in page["metadata"] for page in paged)  # L12

    asyncio.run(check())


async def test_reflectors_first_list_is_whole(server: ResourceServer) -> None:
    """L11: with RV 0 the limit is ignored; kubectl's limit without it is not."""
    for number in range(3):
        server.put(f"job-{number}")
    whole = (await server.get(f"{ALL}?resourceVersion=0&limit=2")).json()
    assert len(whole["items"]) == 3
    assert "continue" not in whole["metadata"]
    assert len((await server.get(f"{ALL}?limit=2")).json()["items"]) == 2
    assert "continue" not in (await server.get(f"{ALL}?limit=3")).json()["metadata"]


async def test_a_revision_asks_for_a_state_at_least_as_new(server: ResourceServer) -> None:
    """L5, L6"""
    then = server.put(step=1)
    server.put(step=2)

    async def step(query: str) -> tuple[int, int]:
        body = (await server.get(f"{ALL}?{query}")).json()
        shown = body["items"][0]["status"]["steps"]["current"] if body["items"] else 0
        return shown, int(body["metadata"]["resourceVersion"]) - then

    assert await step("resourceVersion=") == (2, 1)
    assert await step("resourceVersion=0") == (2, 1)
    assert await step("resourceVersion=5") == (2, 1)  # of an earlier process, so older
    assert await step(f"resourceVersion={then}") == (2, 1)
    assert await step(f"resourceVersion={then}&resourceVersionMatch=NotOlderThan") == (2, 1)
    assert await step(f"resourceVersion={then}&resourceVersionMatch=NotOlderThan&limit=1") == (2, 1)
    assert await step(f"resourceVersion={then}&resourceVersionMatch=Exact") == (1, 0)
    assert await step(f"resourceVersion={then}&limit=1") == (1, 0)  # the legacy reading
    assert await step(f"resourceVersion={then - 1}&resourceVersionMatch=Exact") == (0, -1)


async def test_an_exact_state_that_is_no_longer_held_has_expired(server: ResourceServer) -> None:
    """L6, L9"""
    server.put()
    asked = f"{ALL}?resourceVersion=5&resourceVersionMatch=Exact"
    message = "The resourceVersion for the provided list is too old."
    assert await server.refused(asked) == (410, "Expired", message)


async def test_a_revision_ahead_of_ours_must_list_anew(server: ResourceServer) -> None:
    """L8: the cause is what a reflector acts on."""
    revision = server.put()
    for target in (ALL, BERT, f"{ALL}?resourceVersionMatch=Exact", f"{ALL}?limit=1"):
        answer = await server.get(f"{target}{'&' if '?' in target else '?'}resourceVersion={revision + 1}")
        status = answer.json()
        assert (answer.status, status["reason"]) == (504, "Timeout")
        assert (
            status["message"] == f"Timeout: Too large resource version: {revision + 1}, current: {revision}"
        )
        assert status["details"]["retryAfterSeconds"] == 1
        assert status["details"]["causes"] == [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        ]
        assert answer.header("retry-after") == "1"


async def test_a_token_that_has_expired_names_one_that_goes_on(server: ResourceServer) -> None:
    """L13"""
    server = ResourceServer(max_changes=16)
    for number in range(4):
        server.put(f"job-{number}")
    token = (await server.get(f"{ALL}?limit=2")).json()["metadata"]["continue"]
    for step in range(40):
        server.put("job-0", step=step)
    answer = await server.get(f"{ALL}?limit=2&continue={token}")
    status = answer.json()
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("The provided continue parameter is too old to display a consistent")
    rest = (await server.get(f"{ALL}?limit=2&continue={status['metadata']['continue']}")).json()
    assert listed(rest) == ["team-a/job-2", "team-a/job-3"]
    assert rest["metadata"] == {"resourceVersion": str(server.store.revision)}


def _token(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "xx",
        "%C3%A9",
        "!!!!",
        _token("{}"),
        _token("[1]"),
        _token('{"rv":"1","namespace":"a","name":"b"}'),
        _token('{"rv":1,"namespace":"a","name":"b","more":1}'),
        "A" * 4000,
        _token("[" * 1500),
    ],
)
async def test_a_malformed_token_is_a_bad_request(server: ResourceServer, token: str) -> None:
    """L13"""
    code, reason, message = await server.refused(f"{ALL}?limit=1&continue={token}")
    assert (code, reason) == (400, "BadRequest")
    assert message == "invalid continue token: continue key is not valid"


async def test_a_token_goes_with_no_other_revision(server: ResourceServer) -> None:
    """L13: 0 is allowed."""
    for number in range(3):
        server.put(f"job-{number}")
    token = (await server.get(f"{ALL}?limit=1")).json()["metadata"]["continue"]
    assert await server.refused(f"{ALL}?continue={token}&resourceVersion=5") == (
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    )
    page = (await server.get(f"{ALL}?continue={token}&resourceVersion=0&limit=1")).json()
    assert listed(page) == ["team-a/job-1"]


async def test_a_token_shows_nothing_of_another_namespace(server: ResourceServer) -> None:
    for namespace in ("a", "b", "c"):
        server.put("x", namespace=namespace)
    token = (await server.get(f"{ALL}?limit=1")).json()["metadata"]["continue"]
    page = (await server.get(f"{BASE}/namespaces/b/trainjobs?continue={token}")).json()
    assert listed(page) == ["b/x"]


async def test_a_missing_object_is_named_behind_a_subresource_too(server: ResourceServer) -> None:
    """R1, R4"""
    for target in (BERT, f"{BERT}/progress", f"{BASE}/namespaces/nowhere/trainjobs/bert"):
        answer = await server.get(target)
        assert answer.status == 404
        assert answer.json()["message"] == 'trainjobs.visibility.trainer.kubeflow.org "bert" not found'
        assert answer.json()["details"] == {
            "name": "bert",
            "group": "visibility.trainer.kubeflow.org",
            "kind": "trainjobs",
        }


async def test_the_subresource_is_the_same_document(server: ResourceServer) -> None:
    server.put(step=3)
    one, progress = await server.get(BERT), await server.get(f"{BERT}/progress")
    assert one.body == progress.body
    assert one.body.endswith(b"}\n")  # R13
    assert one.body.count(b"\n") == 1


async def test_a_document_the_client_holds_is_not_sent_again(server: ResourceServer) -> None:
    """Issue 3: If-None-Match on GET of a document."""
    revision = server.put(step=1)
    tag = (await server.get(BERT, JSON)).header("etag")
    assert tag == f'"{revision}"'
    for held in (tag, f"W/{tag}", f'"1", {tag}', "*"):
        answer = await server.get(BERT, JSON, ("If-None-Match", held))
        assert (answer.status, answer.body) == (304, b"")
        assert answer.header("etag") == tag
    assert (await server.get(BERT, JSON, ("If-None-Match", '"1"'))).status == 200
    server.put(step=2)
    assert (await server.get(BERT, JSON, ("If-None-Match", tag))).status == 200


@pytest.mark.parametrize("accept", [YAML, JSON])
async def test_a_document_is_written_once_in_each_form(
    server: ResourceServer, accept: tuple[str, str]
) -> None:
    """As YAML it takes a thousand times as long as to send it."""
    server.put(step=1)
    first, second = await server.get(f"{BERT}?pretty=1", accept), await server.get(f"{BERT}?pretty=1", accept)
    assert first.chunks[0] is second.chunks[0]
    server.put(step=2)
    assert (await server.get(f"{BERT}?pretty=1", accept)).body != first.body


async def test_a_tag_after_a_thousand_others_is_not_looked_for(server: ResourceServer) -> None:
    tag = f'"{server.put(step=1)}"'
    for others, status in ((10, 304), (1000, 200)):
        held = '"x",' * others + tag
        assert (await server.get(BERT, JSON, ("If-None-Match", held))).status == status


async def test_other_bytes_have_another_tag(server: ResourceServer) -> None:
    """A Table has none: it goes on with the clock (T6)."""
    server.put(step=1)
    tags = [
        (await server.get(f"{BERT}?pretty={pretty}", accept)).header("etag")
        for pretty in ("0", "1")
        for accept in (JSON, YAML)
    ]
    assert len({tag for tag in tags if tag}) == 3  # YAML has no pretty form
    assert (await server.get(BERT, TABLE)).header("etag") is None
    assert (await server.get(BERT)).header("vary") == "Accept"


async def test_a_list_is_the_same_in_every_form(server: ResourceServer) -> None:
    """R9, R11, R13: more than one slice, and none."""
    for number in range(250):
        server.put(f"job-{number:03}", labels={"n": str(number)}, message="äöü\u2028: # [x]", step=number)
    for target in (ALL, f"{BASE}/namespaces/nowhere/trainjobs"):
        plain = (await server.get(target)).json()
        as_yaml = await server.get(target, YAML)
        assert as_yaml.header("content-type") == "application/yaml"
        assert yaml.load(as_yaml.body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) == plain
        pretty = await server.get(f"{target}?pretty=1")
        assert pretty.json() == plain
        assert pretty.text.startswith('{\n  "kind": "TrainJobProgressList",\n')
        assert pretty.text.endswith("\n}\n")
        curl = await server.get(target, ("User-Agent", "curl/8"))
        assert curl.body == pretty.body


async def test_partial_metadata_has_nothing_but_metadata(server: ResourceServer) -> None:
    """R9, R12"""
    server.put(labels={"a": "b"}, step=1)
    body = (await server.get(ALL, PARTIAL_LIST)).json()
    full = (await server.get(ALL)).json()
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert body["metadata"] == full["metadata"]
    assert body["items"] == [
        {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": full["items"][0]["metadata"],
        }
    ]
