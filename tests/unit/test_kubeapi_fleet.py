"""`trainingjobs?sumBy=`: the sums over the jobs of a list, instead of the jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobs import NOW, RANK0, document, spent
from tests.unit.resource_server import BASE, TABLE, ResourceServer
from visibility_api.jobs.job import Phase
from visibility_api.jobs.ledger import KINDS
from visibility_api.kubeapi.fleet import MAX_GROUPS, QUEUE
from visibility_api.models.v1alpha1 import TrainingJobSums

EVERY = f"{BASE}/trainingjobs"
TEAM = f"{BASE}/namespaces/team-a/trainingjobs"


def put(server: ResourceServer, name: str, *, accelerators: int = 0, ago_s: float = 0, **more: Any) -> None:
    """A job whose account was brought up to date so long ago."""
    seconds, pod = more.pop("seconds", {"Productive": 1000.0}), more.pop("rank0", None)
    shown = document(name, goodput=spent(seconds, NOW - timedelta(seconds=ago_s)), **more)
    requested = (("nvidia.com/gpu", accelerators),) if accelerators else ()
    server.store.put(replace(shown, job=replace(shown.job, accelerators=requested, rank0=pod)))


async def sums(server: ResourceServer, query: str = "sumBy=namespace&window=whole", of: str = EVERY) -> Any:
    answer = await server.get(f"{of}?{query}")
    found = answer.json()
    TrainingJobSums.model_validate(found, strict=False, extra="forbid")
    return found


def filled() -> ResourceServer:
    server = ResourceServer()
    on_pool = replace(RANK0, node_pool="h100")
    put(server, "bert", rank0=on_pool, accelerators=8, seconds={"Productive": 600.0, "Stalled": 400.0})
    put(server, "gpt", accelerators=2, resource="pytorchjobs", labels={QUEUE: "q1", "pool": "a100"})
    put(server, "llama", namespace="team-b", phase=Phase.SUCCEEDED, labels={"pool": "a100"})
    return server


async def test_time_is_summed_by_namespace_and_the_percentage_is_of_the_accelerators() -> None:
    found = await sums(filled())
    assert (found["kind"], found["sumBy"], found["window"]) == ("TrainingJobSums", "namespace", "whole")
    assert [(each["name"], each["jobs"], each["running"]) for each in found["groups"]] == [
        ("team-a", 2, 2),
        ("team-b", 1, 0),
    ]
    total = found["total"]
    assert (total["jobs"], total["running"], total["accelerators"]) == (3, 2, 10)
    assert total["goodput"]["seconds"] == {"productive": 2600, "stalled": 400}
    assert total["goodput"]["acceleratorSeconds"] == {"productive": 600 * 8 + 1000 * 2, "stalled": 400 * 8}
    assert total["goodput"]["percentage"] == 68
    assert found["groups"][1]["goodput"]["percentage"] == 100
    assert "others" not in found


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("kind", ["TrainJob", "PyTorchJob"]),
        ("queue", [None, "q1"]),
        ("label:pool", [None, "a100"]),
        ("nodePool", ["h100", None]),
    ],
)
async def test_groups_are_those_that_are_requested_the_largest_first(by: str, names: list[str]) -> None:
    found = await sums(filled(), f"sumBy={by}&window=whole")
    assert [each.get("name") for each in found["groups"]] == names


async def test_selectors_namespaces_and_rights_are_those_of_the_list() -> None:
    server = filled()
    assert (await sums(server, of=TEAM))["total"]["jobs"] == 2
    selected = await sums(server, "sumBy=kind&labelSelector=pool%3Da100")
    assert selected["total"]["jobs"] == 2
    server.denied = {"pytorchjobs"}
    assert (await sums(server))["total"]["jobs"] == 2
    server.denied = {"trainjobs", "trainingjobs"}
    assert (await server.refused(f"{EVERY}?sumBy=kind"))[0] == 403


async def test_a_window_ends_now_whenever_a_job_was_last_evaluated() -> None:
    """What a job did last it does still, until it has ended."""
    server = ResourceServer()
    put(server, "waits", ago_s=1800, seconds={"Productive": 100.0})
    put(server, "over", ago_s=1800, phase=Phase.SUCCEEDED, seconds={"Other": 5000.0})
    put(server, "long-over", ago_s=90_000, phase=Phase.SUCCEEDED, seconds={"Other": 5000.0})
    hour = (await sums(server, "sumBy=namespace&window=hour"))["total"]["goodput"]["seconds"]
    assert hour == {"productive": 1900, "other": 1800}
    day = (await sums(server, "sumBy=namespace"))["total"]["goodput"]["seconds"]
    assert day == {"productive": 1900, "other": 5000}


async def test_an_answer_is_under_10_kib_however_many_groups_there_are() -> None:
    server = ResourceServer()
    seconds = {kind: 1e9 + number for number, kind in enumerate(KINDS)}
    for number in range(MAX_GROUPS + 90):
        put(server, f"job-{number}", namespace=f"{number:x<63}", accelerators=100_000, seconds=seconds)
    answer = await server.get(f"{EVERY}?sumBy=namespace&window=whole")
    found = answer.json()
    assert len(answer.body) < 10 * 1024
    assert (len(found["groups"]), found["others"]["jobs"], found["total"]["jobs"]) == (10, 90, 100)


@pytest.mark.parametrize(
    "query",
    ["sumBy=", "sumBy=pod", "sumBy=label:", "sumBy=kind&window=week", "sumBy=kind&limit=5"],
)
async def test_what_cannot_be_summed_is_refused(query: str) -> None:
    assert (await filled().refused(f"{EVERY}?{query}"))[0] == 400


async def test_it_is_no_table_and_may_be_yaml() -> None:
    server = filled()
    text = (await server.get(f"{EVERY}?sumBy=kind", ("accept", "application/yaml"))).body.decode()
    assert "kind: TrainingJobSums" in text
    assert (await server.get(f"{EVERY}?sumBy=kind", TABLE)).json()["kind"] == "TrainingJobSums"
