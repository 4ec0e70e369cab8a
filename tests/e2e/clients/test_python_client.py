"""The official Python client: CustomObjectsApi and DynamicClient, as for any resource."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

from tests.e2e.processes import PATIENCE_S
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import User, Workspace

_VERSION = "v1alpha1"
_LABELS = {"bert": {"tier": "gold"}, "gpt": {}, "llama": {"tier": "gold"}}
_PATIENCE_S = int(PATIENCE_S)


@pytest.fixture(scope="module")
def team(shared: Workspace, jobs: QuietJobs) -> Workspace:
    for name, labels in _LABELS.items():
        jobs.create(name, labels)
    jobs.end("llama")
    jobs.wait_served(*_LABELS)
    jobs.wait_phase("llama", "Succeeded")
    return shared


def connect(user: User) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(user.kubeconfig)) as client:
        yield client


@pytest.fixture
def viewer(workspace: Workspace, team: Workspace) -> Iterator[Any]:
    """alice's connection."""
    yield from connect(team.alice)


@pytest.fixture
def custom(viewer: Any) -> Any:
    return kubernetes.client.CustomObjectsApi(viewer)


@pytest.fixture
def progresses(viewer: Any) -> Any:
    """The resource, found by its kind as the dynamic client finds any."""
    return DynamicClient(viewer).resources.get(api_version=f"{GROUP}/{_VERSION}", kind="TrainJobProgress")


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_custom_objects_are_got_and_listed(team: Workspace, custom: Any) -> None:
    place = (GROUP, _VERSION, team.name, "trainjobs")
    listed = custom.list_namespaced_custom_object(*place)
    assert listed["kind"] == "TrainJobProgressList"
    assert names(listed) == list(_LABELS)
    one = custom.get_namespaced_custom_object(*place, "llama")
    assert one == listed["items"][2]
    assert one["status"]["phase"] == "Succeeded"


def test_custom_objects_are_chosen_by_selectors(team: Workspace, custom: Any) -> None:
    place = (GROUP, _VERSION, team.name, "trainjobs")
    assert names(custom.list_namespaced_custom_object(*place, label_selector="tier=gold")) == [
        "bert",
        "llama",
    ]
    by_phase = custom.list_namespaced_custom_object(*place, field_selector="status.phase=Succeeded")
    assert names(by_phase) == ["llama"]


def test_custom_objects_are_listed_page_by_page(team: Workspace, custom: Any) -> None:
    pages, token = [], None
    while token != "":
        page = custom.list_namespaced_custom_object(
            GROUP, _VERSION, team.name, "trainjobs", limit=2, **({"_continue": token} if token else {})
        )
        pages.append(names(page))
        token = page["metadata"].get("continue", "")
    assert pages == [["bert", "gpt"], ["llama"]]


def test_an_administrator_lists_custom_objects_of_all_namespaces(team: Workspace) -> None:
    for client in connect(team.admin):
        listed = kubernetes.client.CustomObjectsApi(client).list_cluster_custom_object(
            GROUP, _VERSION, "trainjobs"
        )
        found = [item for item in listed["items"] if item["metadata"]["namespace"] == team.name]
        assert [item["metadata"]["name"] for item in found] == list(_LABELS)


def test_refusals_are_api_exceptions_with_a_status(team: Workspace, custom: Any) -> None:
    with pytest.raises(ApiException) as missing:
        custom.get_namespaced_custom_object(GROUP, _VERSION, team.name, "trainjobs", "nobody")
    assert missing.value.status == 404
    status = json.loads(missing.value.body)
    assert (status["reason"], status["details"]["name"]) == ("NotFound", "nobody")
    with pytest.raises(ApiException) as forbidden:
        custom.list_cluster_custom_object(GROUP, _VERSION, "trainjobs")
    assert forbidden.value.status == 403
    assert json.loads(forbidden.value.body)["reason"] == "Forbidden"


def test_a_watch_brings_changes_as_they_happen(bert: QuietJobs, custom: Any) -> None:
    steps = iter([bert.suspend, bert.end, bert.delete])
    watch, seen = kubernetes.watch.Watch(), []
    for event in watch.stream(
        custom.list_namespaced_custom_object,
        *(GROUP, _VERSION, bert.namespace, "trainjobs"),
        timeout_seconds=_PATIENCE_S,
    ):
        seen.append((event["type"], event["object"]["status"]["phase"]))
        if event["type"] == "DELETED":
            break
        next(steps)("bert")
    watch.stop()
    assert seen == [
        ("ADDED", "Pending"),
        ("MODIFIED", "Suspended"),
        ("MODIFIED", "Succeeded"),
        ("DELETED", "Succeeded"),
    ]


def test_a_watch_goes_on_from_a_lists_revision(
    workspace: Workspace, own_jobs: QuietJobs, custom: Any
) -> None:
    own_jobs.create("bert")
    own_jobs.wait_served("bert")
    place = (GROUP, _VERSION, workspace.name, "trainjobs")
    revision = custom.list_namespaced_custom_object(*place)["metadata"]["resourceVersion"]
    own_jobs.create("gpt")
    own_jobs.end("bert")
    events = kubernetes.watch.Watch().stream(
        custom.list_namespaced_custom_object, *place, resource_version=revision, timeout_seconds=_PATIENCE_S
    )
    assert [
        (event["type"], event["object"]["metadata"]["name"]) for event in (next(events), next(events))
    ] == [
        ("ADDED", "gpt"),
        ("MODIFIED", "bert"),
    ]
    events.close()


def test_a_watch_from_before_the_history_says_gone(bert: QuietJobs, custom: Any) -> None:
    with pytest.raises(ApiException) as gone:
        list(
            kubernetes.watch.Watch().stream(
                custom.list_namespaced_custom_object,
                *(GROUP, _VERSION, bert.namespace, "trainjobs"),
                resource_version="1",
                timeout_seconds=_PATIENCE_S,
            )
        )
    assert gone.value.status == 410


def test_a_watch_ends_by_itself_when_its_time_is_over(team: Workspace, custom: Any) -> None:
    events = kubernetes.watch.Watch().stream(
        custom.list_namespaced_custom_object, GROUP, _VERSION, team.name, "trainjobs", timeout_seconds=1
    )
    assert [event["type"] for event in events] == ["ADDED"] * len(_LABELS)


def test_the_dynamic_client_gets_lists_and_selects(team: Workspace, progresses: Any) -> None:
    assert (progresses.name, progresses.namespaced) == ("trainjobs", True)
    assert progresses.get(name="llama", namespace=team.name).status.phase == "Succeeded"
    listed = progresses.get(namespace=team.name, label_selector="tier=gold")
    assert [item.metadata.name for item in listed.items] == ["bert", "llama"]
    with pytest.raises(NotFoundError):
        progresses.get(name="nobody", namespace=team.name)


def test_the_dynamic_client_reads_the_subresource(team: Workspace, progresses: Any) -> None:
    document = progresses.progress.get(name="llama", namespace=team.name)
    assert (document.kind, document.status.phase) == ("TrainJobProgress", "Succeeded")


def test_the_dynamic_client_watches(bert: QuietJobs, progresses: Any) -> None:
    seen = []
    for event in progresses.watch(namespace=bert.namespace, timeout=_PATIENCE_S):
        seen.append((event["type"], event["object"].status.phase))
        if event["type"] == "MODIFIED":
            break
        bert.end("bert")
    assert seen == [("ADDED", "Pending"), ("MODIFIED", "Succeeded")]
