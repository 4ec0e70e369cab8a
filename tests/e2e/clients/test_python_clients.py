"""The official Python client, lightkube and kr8s, each as for any resource: get, list, select and watch."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import kr8s
import kubernetes
import lightkube
import pytest
import pytest_asyncio
from kr8s.asyncio.objects import new_class
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError
from lightkube.generic_resource import create_namespaced_resource

from tests.e2e.processes import PATIENCE_S
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import Workspace

# kr8s warns of clusters newer than those it was tried with.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning")

TIMEOUT_S = int(PATIENCE_S)
STORY = [("ADDED", "Pending"), ("MODIFIED", "Suspended"), ("MODIFIED", "Succeeded"), ("DELETED", "Succeeded")]
Lightkube: Any = create_namespaced_resource(GROUP, "v1alpha1", "TrainJobProgress", "trainjobs")
Kr8s: Any = new_class(
    kind="TrainJobProgress", version=f"{GROUP}/v1alpha1", plural="trainjobs", namespaced=True
)


@pytest.fixture
def two(bert: QuietJobs) -> QuietJobs:
    """bert, which is gold and pending, and gpt, which has succeeded."""
    bert.create("gpt")
    bert.end("gpt")
    bert.wait_served("gpt")
    bert.wait_phase("gpt", "Succeeded")
    return bert


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


# --- the official client


@pytest.fixture
def official(workspace: Workspace) -> Iterator[Any]:
    """alice's connection."""
    with kubernetes.config.new_client_from_config(str(workspace.alice.kubeconfig)) as client:
        yield client


def test_the_official_client_gets_lists_selects_and_pages(official: Any, two: QuietJobs) -> None:
    custom = kubernetes.client.CustomObjectsApi(official)
    place = (GROUP, "v1alpha1", two.namespace, "trainjobs")
    listed = custom.list_namespaced_custom_object(*place)
    assert (listed["kind"], names(listed)) == ("TrainJobProgressList", ["bert", "gpt"])
    assert custom.get_namespaced_custom_object(*place, "gpt")["status"]["phase"] == "Succeeded"
    assert names(custom.list_namespaced_custom_object(*place, label_selector="tier=gold")) == ["bert"]
    succeeded = custom.list_namespaced_custom_object(*place, field_selector="status.phase=Succeeded")
    assert names(succeeded) == ["gpt"]
    first = custom.list_namespaced_custom_object(*place, limit=1)
    rest = custom.list_namespaced_custom_object(*place, limit=1, _continue=first["metadata"]["continue"])
    assert names(first) + names(rest) == ["bert", "gpt"]
    for call, code, reason in (
        (lambda: custom.get_namespaced_custom_object(*place, "nobody"), 404, "NotFound"),
        (lambda: custom.list_cluster_custom_object(GROUP, "v1alpha1", "trainjobs"), 403, "Forbidden"),
    ):
        with pytest.raises(ApiException) as refused:
            call()
        assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (code, reason)


def test_the_official_client_watches(official: Any, bert: QuietJobs) -> None:
    custom, watch = kubernetes.client.CustomObjectsApi(official), kubernetes.watch.Watch()
    list_, place = custom.list_namespaced_custom_object, (GROUP, "v1alpha1", bert.namespace, "trainjobs")
    steps, seen = iter([bert.suspend, bert.end, bert.delete]), []
    for event in watch.stream(list_, *place, timeout_seconds=TIMEOUT_S):
        seen.append((event["type"], event["object"]["status"]["phase"]))
        if event["type"] == "DELETED":
            break
        next(steps)("bert")
    watch.stop()
    assert seen == STORY
    assert list(kubernetes.watch.Watch().stream(list_, *place, timeout_seconds=1)) == []
    with pytest.raises(ApiException) as gone:
        list(kubernetes.watch.Watch().stream(list_, *place, resource_version="1"))
    assert gone.value.status == 410


def test_the_dynamic_client_finds_the_resource_by_its_kind(official: Any, two: QuietJobs) -> None:
    found = DynamicClient(official).resources.get(api_version=f"{GROUP}/v1alpha1", kind="TrainJobProgress")
    assert (found.name, found.namespaced) == ("trainjobs", True)
    listed = found.get(namespace=two.namespace, label_selector="tier=gold")
    assert [item.metadata.name for item in listed.items] == ["bert"]
    below = found.progress.get(name="gpt", namespace=two.namespace)
    assert (below.kind, below.status.phase) == ("TrainJobProgress", "Succeeded")
    with pytest.raises(NotFoundError):
        found.get(name="nobody", namespace=two.namespace)


# --- lightkube, which is told group, kind and plural, and nothing else


@pytest.fixture
def config(workspace: Workspace) -> Any:
    return lightkube.KubeConfig.from_file(str(workspace.alice.kubeconfig))


def test_lightkube_gets_lists_selects_and_watches(config: Any, two: QuietJobs) -> None:
    with lightkube.Client(config=config, namespace=two.namespace, trust_env=False) as client:
        assert client.get(Lightkube, "gpt").status["phase"] == "Succeeded"
        for selection, expected in (
            ({"chunk_size": 1}, ["bert", "gpt"]),
            ({"labels": {"tier": "gold"}}, ["bert"]),
            ({"fields": {"status.phase": "Succeeded"}}, ["gpt"]),
        ):
            assert [item.metadata.name for item in client.list(Lightkube, **selection)] == expected
        with pytest.raises(lightkube.ApiError) as missing:
            client.get(Lightkube, "nobody")
        assert (missing.value.status.code, missing.value.status.reason) == (404, "NotFound")
        steps, seen = iter([two.suspend, two.end, two.delete]), []
        chosen = {"fields": {"metadata.name": "bert"}, "server_timeout": TIMEOUT_S}
        for type_, found in client.watch(Lightkube, **chosen):
            seen.append((type_, found.status["phase"]))
            if type_ == "DELETED":
                break
            next(steps)("bert")
    assert seen == STORY


# --- kr8s, by a class made for our kind, and by the resource's names


@pytest_asyncio.fixture
async def api(workspace: Workspace) -> AsyncIterator[Any]:
    """alice's connection."""
    found = await kr8s.asyncio.api(kubeconfig=str(workspace.alice.kubeconfig), namespace=workspace.name)
    yield found
    if found._session is not None:  # kr8s has no way to end it
        await found._session.aclose()


async def test_kr8s_gets_lists_selects_and_waits(api: Any, two: QuietJobs) -> None:
    for name in ("tjp", f"trainjobs.{GROUP}", f"trainjobs.{GROUP}/v1alpha1"):
        assert [item.name async for item in api.get(name, namespace=two.namespace)] == ["bert", "gpt"]
    gold = [item.name async for item in Kr8s.list(api=api, label_selector={"tier": "gold"})]
    named = [item.name async for item in Kr8s.list(api=api, field_selector={"metadata.name": "gpt"})]
    assert (gold, named) == (["bert"], ["gpt"])
    with pytest.raises(kr8s.NotFoundError):
        await Kr8s.get("nobody", api=api, timeout=0)
    found = await Kr8s.get("gpt", api=api)
    for condition in ("condition=Complete", "jsonpath='{.status.phase}'=Succeeded"):
        await found.wait(condition, timeout=TIMEOUT_S)


async def test_kr8s_watches_one_job_from_what_is_known_of_it(api: Any, two: QuietJobs) -> None:
    # An object's own watch() and wait() do this too, but look the bare plural up again, which is the
    # TrainJobs' (P2). Whoever waits with kr8s watches the class.
    found = await Kr8s.get("bert", api=api)
    two.end("bert")
    since = found.metadata.resourceVersion
    async for type_, changed in api.watch(Kr8s, field_selector="metadata.name=bert", since=since):
        assert (type_, changed.name, changed.status.phase) == ("MODIFIED", "bert", "Succeeded")
        break
