"""kr8s, by a class made for our kind, and by the resource's names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import kr8s
import pytest
import pytest_asyncio
from kr8s.asyncio.objects import new_class

from tests.e2e.processes import PATIENCE_S
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import Workspace

# It warns of clusters newer than those it was tried with.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning")

Progress: Any = new_class(
    kind="TrainJobProgress", version=f"{GROUP}/v1alpha1", plural="trainjobs", namespaced=True
)


@pytest_asyncio.fixture
async def api(workspace: Workspace, bert: QuietJobs) -> AsyncIterator[Any]:
    """alice's connection."""
    found = await kr8s.asyncio.api(kubeconfig=str(workspace.alice.kubeconfig), namespace=bert.namespace)
    yield found
    if found._session is not None:  # kr8s has no way to end it
        await found._session.aclose()


@pytest.mark.parametrize("name", ["tjp", f"trainjobs.{GROUP}", f"trainjobs.{GROUP}/v1alpha1"])
async def test_every_name_of_the_resource_lists_it(api: Any, bert: QuietJobs, name: str) -> None:
    found = [item async for item in api.get(name, namespace=bert.namespace)]
    assert [(item.kind, item.name, item.status.phase) for item in found] == [
        ("TrainJobProgress", "bert", "Pending")
    ]


async def test_selectors_choose(api: Any, bert: QuietJobs) -> None:
    bert.create("gpt")
    bert.wait_served("gpt")
    gold = [item.name async for item in Progress.list(api=api, label_selector={"tier": "gold"})]
    named = [item.name async for item in Progress.list(api=api, field_selector={"metadata.name": "gpt"})]
    assert (gold, named) == (["bert"], ["gpt"])


async def test_one_job_is_got_refreshed_and_missed(api: Any, bert: QuietJobs) -> None:
    found = await Progress.get("bert", api=api)
    assert (found.labels, found.status.phase) == ({"tier": "gold"}, "Pending")
    bert.end("bert")
    bert.wait_phase("bert", "Succeeded")
    await found.refresh()
    assert found.status.phase == "Succeeded"
    bert.delete("bert")
    with pytest.raises(kr8s.NotFoundError):
        await Progress.get("nobody", api=api, timeout=0)


async def test_a_watch_brings_changes_as_they_happen(api: Any, bert: QuietJobs) -> None:
    steps = iter([bert.suspend, bert.end, bert.delete])
    seen = []
    async for type_, found in api.watch(f"trainjobs.{GROUP}", namespace=bert.namespace):
        seen.append((type_, found.status.phase))
        if type_ == "DELETED":
            break
        await asyncio.to_thread(next(steps), "bert")
    assert seen == [
        ("ADDED", "Pending"),
        ("MODIFIED", "Suspended"),
        ("MODIFIED", "Succeeded"),
        ("DELETED", "Succeeded"),
    ]


async def test_one_job_is_watched_from_what_is_known_of_it(api: Any, bert: QuietJobs) -> None:
    # An object's own watch() and wait() do this too, but look the bare plural up again, which is the
    # TrainJobs' (P2). Whoever waits with kr8s watches the class.
    found = await Progress.get("bert", api=api)
    bert.create("gpt")
    bert.end("bert")
    async for type_, changed in api.watch(
        Progress, field_selector="metadata.name=bert", since=found.metadata.resourceVersion
    ):
        assert (type_, changed.name, changed.status.phase) == ("MODIFIED", "bert", "Succeeded")
        break


@pytest.mark.parametrize("condition", ["condition=Complete", "jsonpath='{.status.phase}'=Succeeded"])
async def test_wait_understands_our_conditions(api: Any, bert: QuietJobs, condition: str) -> None:
    bert.end("bert")
    bert.wait_phase("bert", "Succeeded")
    found = await Progress.get("bert", api=api)
    await found.wait(condition, timeout=int(PATIENCE_S))
