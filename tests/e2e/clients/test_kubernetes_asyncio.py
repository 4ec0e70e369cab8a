"""kubernetes_asyncio: the same calls as the official client's, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.dynamic import DynamicClient

from tests.e2e.processes import PATIENCE_S
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import Workspace

_VERSION = "v1alpha1"
_PATIENCE_S = int(PATIENCE_S)


@pytest_asyncio.fixture
async def viewer(workspace: Workspace) -> AsyncIterator[Any]:
    """alice's connection."""
    async with await config.new_client_from_config(str(workspace.alice.kubeconfig)) as connected:
        yield connected


async def test_custom_objects_are_got_and_listed(bert: QuietJobs, viewer: Any) -> None:
    custom = client.CustomObjectsApi(viewer)
    place = (GROUP, _VERSION, bert.namespace, "trainjobs")
    listed = await custom.list_namespaced_custom_object(*place, label_selector="tier=gold")
    assert listed["items"] == [await custom.get_namespaced_custom_object(*place, "bert")]
    with pytest.raises(ApiException) as missing:
        await custom.get_namespaced_custom_object(*place, "nobody")
    assert missing.value.status == 404


async def test_a_watch_brings_changes_as_they_happen(bert: QuietJobs, viewer: Any) -> None:
    custom = client.CustomObjectsApi(viewer)
    seen = []
    async with watch.Watch() as changes:
        async for event in changes.stream(
            custom.list_namespaced_custom_object,
            *(GROUP, _VERSION, bert.namespace, "trainjobs"),
            timeout_seconds=_PATIENCE_S,
        ):
            seen.append((event["type"], event["object"]["status"]["phase"]))
            if event["type"] == "MODIFIED":
                break
            await asyncio.to_thread(bert.end, "bert")
    assert seen == [("ADDED", "Pending"), ("MODIFIED", "Succeeded")]


async def test_the_dynamic_client_gets_and_watches(bert: QuietJobs, viewer: Any) -> None:
    dynamic = await DynamicClient(viewer)
    progresses = await dynamic.resources.get(api_version=f"{GROUP}/{_VERSION}", kind="TrainJobProgress")
    one = await progresses.get(name="bert", namespace=bert.namespace)
    assert one.status.phase == "Pending"
    seen = []
    async with watch.Watch() as changes:
        async for event in progresses.watch(namespace=bert.namespace, timeout=_PATIENCE_S, watcher=changes):
            seen.append((event["type"], event["object"].status.phase))
            if event["type"] == "MODIFIED":
                break
            await asyncio.to_thread(bert.end, "bert")
    assert seen == [("ADDED", "Pending"), ("MODIFIED", "Succeeded")]
