"""`trainingjobs`: jobs of all kinds in one list and one watch, as any other resource."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.resource_server import ALL, BASE, PARTIAL_LIST, TABLE, ResourceServer, names
from visibility_api.jobs.job import Phase
from visibility_api.kinds import RESOURCES
from visibility_api.kubeapi.columns import COLUMNS

EVERY = f"{BASE}/trainingjobs"
TEAM = f"{BASE}/namespaces/team-a/trainingjobs"
KIND_NAMES = [each.plural for each in RESOURCES]


def filled() -> ResourceServer:
    server = ResourceServer()
    server.put("bert", labels={"tier": "gold"})
    server.put("bert", resource="pytorchjobs", labels={"tier": "gold"}, phase=Phase.SUCCEEDED)
    server.put("a.b", resource="jobs", namespace="team-a-dev")
    server.put("gpt", resource="volcanojobs", namespace="team-b")
    server.put("llama", resource="pytorchjobs", namespace="team-b")
    return server


def shown(listing: dict[str, Any]) -> list[str]:
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in listing["items"]]


IN_ORDER = [
    "team-a-dev/jobs.a.b",
    "team-a/pytorchjobs.bert",
    "team-a/trainjobs.bert",
    "team-b/pytorchjobs.llama",
    "team-b/volcanojobs.gpt",
]


async def test_a_list_has_the_jobs_of_all_kinds_by_namespace_then_by_name() -> None:
    server = filled()
    listing = (await server.get(EVERY)).json()
    assert (listing["kind"], shown(listing)) == ("TrainingJobList", IN_ORDER)
    assert listing["metadata"] == {"resourceVersion": str(server.store.revision)}
    assert shown((await server.get(TEAM)).json()) == IN_ORDER[1:3]
    server.delete("bert", resource="pytorchjobs")
    server.put("zeta", resource="jobs")
    assert shown((await server.get(TEAM)).json()) == ["team-a/jobs.zeta", "team-a/trainjobs.bert"]
    assert len(shown((await server.get(EVERY)).json())) == 5


async def test_a_document_is_that_of_its_kind_but_for_its_name_and_its_job() -> None:
    server = filled()
    one = (await server.get(f"{TEAM}/trainjobs.bert")).json()
    own = (await server.get(f"{BASE}/namespaces/team-a/trainjobs/bert")).json()
    assert one == own | {
        "kind": "TrainingJob",
        "metadata": own["metadata"] | {"name": "trainjobs.bert"},
        "jobRef": {
            "kind": "TrainJob",
            "resource": "trainjobs",
            "name": "bert",
            "uid": own["metadata"]["uid"],
        },
    }
    listed = {each["metadata"]["name"]: each for each in (await server.get(EVERY)).json()["items"]}
    assert listed["trainjobs.bert"] == one
    jobs = {name: tuple(each["jobRef"].values())[:3] for name, each in listed.items()}
    assert jobs["jobs.a.b"] == ("Job", "jobs", "a.b")
    assert jobs["volcanojobs.gpt"] == ("VolcanoJob", "volcanojobs", "gpt")
    assert (await server.get(f"{BASE}/namespaces/team-a/trainjobs/bert")).json() == own


@pytest.mark.parametrize("name", ["trainjobs.gpt", "bert", "dogs.bert", "trainjobs", ".", "trainingjobs.x"])
async def test_a_name_of_no_job_is_not_found(name: str) -> None:
    code, reason, message = await filled().refused(f"{TEAM}/{name}")
    assert (code, reason) == (404, "NotFound")
    assert message == f'trainingjobs.visibility.trainer.kubeflow.org "{name}" not found'


async def test_a_table_has_qualified_names_and_kinds() -> None:
    server = filled()
    table = (await server.get(EVERY, TABLE)).json()
    assert [each["name"] for each in table["columnDefinitions"]][:3] == ["Name", "Kind", "Phase"]
    assert [row["cells"][:3] for row in table["rows"]][:2] == [
        ["jobs.a.b", "Job", "Running"],
        ["pytorchjobs.bert", "PyTorchJob", "Succeeded"],
    ]
    assert table["rows"][1]["object"]["metadata"]["name"] == "pytorchjobs.bert"
    assert len(table["columnDefinitions"]) == len(table["rows"][0]["cells"])
    own = (await server.get(ALL, TABLE)).json()
    assert own["rows"][0]["cells"][:2] == ["bert", "Running"]
    metadata = (await server.get(EVERY, PARTIAL_LIST)).json()
    assert shown(metadata) == IN_ORDER


async def test_pages_show_the_state_of_the_first_one() -> None:
    server = filled()
    first = (await server.get(f"{EVERY}?limit=2")).json()
    assert (shown(first), first["metadata"]["remainingItemCount"]) == (IN_ORDER[:2], 3)
    server.delete("llama", namespace="team-b", resource="pytorchjobs")
    server.put("new", resource="tfjobs", namespace="team-b")
    server.put("gpt", resource="volcanojobs", namespace="team-b", step=7)
    rest: list[str] = []
    token = first["metadata"]["continue"]
    while token:
        page = (await server.get(f"{EVERY}?limit=2&continue={token}")).json()
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        rest += shown(page)
        token = page["metadata"].get("continue", "")
    assert rest == IN_ORDER[2:]
    exact = f"resourceVersion={first['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    assert shown((await server.get(f"{EVERY}?{exact}")).json()) == IN_ORDER
    assert "team-b/tfjobs.new" in shown((await server.get(EVERY)).json())


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("labelSelector=tier=gold", IN_ORDER[1:3]),
        ("fieldSelector=metadata.name=pytorchjobs.bert", IN_ORDER[1:2]),
        ("fieldSelector=metadata.name=bert", []),
        ("fieldSelector=metadata.name!=pytorchjobs.bert,metadata.namespace=team-a", IN_ORDER[2:3]),
        ("fieldSelector=status.phase=Succeeded", IN_ORDER[1:2]),
    ],
)
async def test_selectors_apply_to_what_is_shown(selector: str, expected: list[str]) -> None:
    server = filled()
    key, _, value = selector.partition("=")
    target = f"{EVERY}?{key}={quote(value)}"
    assert shown((await server.get(target)).json()) == expected
    async with server.watch(f"{target}&watch=true&allowWatchBookmarks=true") as client:
        events = await client.events(len(expected) + 1)
    assert [f"team-a/{name}" for _, name in names(events)[:-1]] == expected
    assert events[-1]["type"] == "BOOKMARK"


async def test_a_watch_shows_the_changes_of_all_kinds_in_order() -> None:
    server = filled()
    start = (await server.get(TEAM)).json()["metadata"]["resourceVersion"]
    server.put("bert", step=1)
    async with server.watch(f"{TEAM}?watch=true&resourceVersion={start}") as client:
        server.put("bert", resource="pytorchjobs", step=2)
        server.put("bert", namespace="team-b")
        server.put("new", resource="jaxjobs")
        server.delete("new", resource="jaxjobs")
        events = await client.events(4)
    assert names(events) == [
        ("MODIFIED", "trainjobs.bert"),
        ("MODIFIED", "pytorchjobs.bert"),
        ("ADDED", "jaxjobs.new"),
        ("DELETED", "jaxjobs.new"),
    ]
    assert events[1]["object"]["kind"] == "TrainingJob"
    assert events[1]["object"]["jobRef"]["resource"] == "pytorchjobs"
    async with server.watch(f"{EVERY}?watch=true", TABLE) as client:
        first, second = await client.events(2)
    assert first["object"]["rows"][0]["cells"][:2] == ["jobs.a.b", "Job"]
    assert (len(first["object"]["columnDefinitions"]), second["object"]["columnDefinitions"]) == (
        len(COLUMNS) + 1,
        None,
    )


async def test_kinds_without_a_right_are_in_no_answer() -> None:
    server = filled()
    server.denied = {"pytorchjobs", ("volcanojobs", "team-b")}
    assert shown((await server.get(EVERY)).json()) == [IN_ORDER[0], IN_ORDER[2], IN_ORDER[4]]
    page = (await server.get(f"{EVERY}?limit=2")).json()
    assert page["metadata"]["remainingItemCount"] == 1
    assert shown((await server.get(f"{BASE}/namespaces/team-b/trainingjobs")).json()) == []
    code, reason, message = await server.refused(f"{TEAM}/pytorchjobs.bert")
    assert (code, reason) == (403, "Forbidden")
    assert 'cannot get resource "pytorchjobs"' in message
    # The same whether or not there is such a job.
    assert (await server.refused(f"{TEAM}/pytorchjobs.none"))[0] == 403
    named = f"{EVERY}?fieldSelector=metadata.name%3Dpytorchjobs.bert"
    assert (await server.refused(named))[0] == 403
    async with server.watch(f"{EVERY}?watch=true") as client:
        await client.events(3)
        server.put("bert", resource="pytorchjobs", step=3)
        server.put("bert", step=3)
        assert names([await client.event()]) == [("MODIFIED", "trainjobs.bert")]


async def test_lists_and_watches_say_which_kinds_the_caller_may_read() -> None:
    server = filled()
    every = ",".join(sorted(KIND_NAMES))
    assert (await server.get(f"{EVERY}?limit=1")).header("readable-resources") == every
    server.denied = {"pytorchjobs"}
    fewer = ",".join(sorted(set(KIND_NAMES) - {"pytorchjobs"}))
    assert (await server.get(EVERY)).header("readable-resources") == fewer
    async with server.watch(f"{EVERY}?watch=true") as client:
        await client.events(3)
        assert client.headers["readable-resources"] == fewer
    assert (await server.get(f"{BASE}/trainjobs")).header("readable-resources") is None


async def test_a_caller_with_a_right_to_no_kind_is_refused() -> None:
    server = filled()
    server.denied = set(KIND_NAMES)
    code, reason, message = await server.refused(EVERY)
    assert (code, reason) == (403, "Forbidden")
    assert 'cannot list resource "trainjobs"' in message


async def test_one_review_a_kind_of_what_is_asked() -> None:
    server = filled()
    await server.get(f"{TEAM}?labelSelector=tier%3Dgold&fieldSelector=status.phase%3DRunning")
    own, *others = server.asked
    assert own.resource == "trainingjobs"
    assert [each.resource for each in others] == KIND_NAMES
    for each in others:
        assert (each.verb, each.namespace, each.name) == ("list", "team-a", "")
        assert (each.label_requirements, each.field_requirements) == (
            own.label_requirements,
            own.field_requirements,
        )
    server.asked.clear()
    async with server.watch(f"{EVERY}?watch=true&fieldSelector=metadata.name%3Dpytorchjobs.bert"):
        pass
    own, named = server.asked
    assert (own.name, own.verb) == ("pytorchjobs.bert", "watch")
    assert (named.resource, named.name, named.verb) == ("pytorchjobs", "bert", "watch")
    assert named.field_requirements == ()


async def test_lists_are_made_again_only_where_something_changed() -> None:
    server = filled()
    first, second = await asyncio.gather(server.get(EVERY), server.get(EVERY))
    assert first.body == second.body
    server.denied = {"pytorchjobs"}
    assert shown((await server.get(EVERY)).json()) == [IN_ORDER[0], IN_ORDER[2], IN_ORDER[4]]
    server.denied = set()
    assert (await server.get(EVERY)).body == first.body


async def test_another_history_ends_a_watch_of_all_kinds() -> None:
    server = filled()
    async with server.watch(f"{EVERY}?watch=true") as client:
        await client.events(5)
        server.store.reset(server.store.revision + 1)
        assert await client.rest() == []
        assert client.is_ended
