"""lightkube, by a generic resource: it is told the group, kind and plural, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from lightkube import ApiError, AsyncClient, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource

from tests.e2e.processes import PATIENCE_S
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import Workspace

Progress: Any = create_namespaced_resource(GROUP, "v1alpha1", "TrainJobProgress", "trainjobs")


@pytest.fixture
def config(workspace: Workspace) -> Any:
    return KubeConfig.from_file(str(workspace.alice.kubeconfig))


@pytest.fixture
def client(config: Any, bert: QuietJobs) -> Iterator[Any]:
    with Client(config=config, namespace=bert.namespace, trust_env=False) as found:
        yield found


def test_get_and_list_with_selectors(client: Any, bert: QuietJobs) -> None:
    bert.create("gpt")
    bert.end("gpt")
    bert.wait_served("gpt")
    bert.wait_phase("gpt", "Succeeded")
    found = client.get(Progress, "bert")
    assert (found.kind, found.metadata.labels, found.status["phase"]) == (
        "TrainJobProgress",
        {"tier": "gold"},
        "Pending",
    )
    assert [item.metadata.name for item in client.list(Progress)] == ["bert", "gpt"]
    assert [item.metadata.name for item in client.list(Progress, chunk_size=1)] == ["bert", "gpt"]
    assert [item.metadata.name for item in client.list(Progress, labels={"tier": "gold"})] == ["bert"]
    assert [item.metadata.name for item in client.list(Progress, fields={"status.phase": "Succeeded"})] == [
        "gpt"
    ]
    with pytest.raises(ApiError) as missing:
        client.get(Progress, "nobody")
    assert (missing.value.status.code, missing.value.status.reason) == (404, "NotFound")


def test_a_watch_brings_changes_as_they_happen(client: Any, bert: QuietJobs) -> None:
    steps = iter([bert.suspend, bert.end, bert.delete])
    seen = []
    for type_, found in client.watch(Progress, server_timeout=int(PATIENCE_S)):
        seen.append((type_, found.status["phase"]))
        if type_ == "DELETED":
            break
        next(steps)("bert")
    assert seen == [
        ("ADDED", "Pending"),
        ("MODIFIED", "Suspended"),
        ("MODIFIED", "Succeeded"),
        ("DELETED", "Succeeded"),
    ]


async def test_wait_for_a_condition(config: Any, bert: QuietJobs) -> None:
    async with (
        AsyncClient(config=config, namespace=bert.namespace, trust_env=False) as client,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(
            client.wait(Progress, "bert", for_conditions=["Complete"], raise_for_conditions=["Failed"])
        )
        await asyncio.to_thread(bert.end, "bert")
    assert waiting.result().status["phase"] == "Succeeded"
