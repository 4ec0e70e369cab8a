"""What clients discover: D3 to D13. Shapes compared with a kube-apiserver 1.36's own."""

from __future__ import annotations

import pytest
import yaml

from tests.asgi import Answer
from tests.unit.api_shell import Shell
from visibility_api.app.discovery import AGGREGATED_TYPE, Discovery, aggregated, resource_list
from visibility_api.kinds import ALL_RESOURCES
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.models.served import Resource, Subresource

GROUP = "visibility.trainer.kubeflow.org"
BASE = f"/apis/{GROUP}/v1alpha1"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
BELOW = (
    ("progress", "TrainJobProgress", ["get"]),
    ("history", "TrainJobProgressHistory", ["get"]),
    ("log-tail", "TrainJobLogTail", ["get"]),
    ("diagnose", "TrainJobDiagnosis", ["create", "get"]),
)
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


async def get(target: str, *headers: tuple[str, str]) -> Answer:
    return await Shell(resources=(TrainJobKind.served,)).get(target, *headers)


@pytest.mark.parametrize("path", [BASE, BASE + "/"])
async def test_the_resource_list_promises_what_is_served_and_no_more(path: str) -> None:
    """D1, D3, D4, D5, D7, D15."""
    answer = await get(path)
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    below = [
        {"name": f"trainjobs/{name}", "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
        for name, kind, verbs in BELOW
    ]
    assert answer.json() == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/v1alpha1",
        "resources": [
            {
                "name": "trainjobs",
                "singularName": "trainjobprogress",
                "namespaced": True,
                "kind": "TrainJobProgress",
                "verbs": ["get", "list", "watch"],
                "shortNames": ["tjp"],
                "categories": ["training"],
            },
            *below,
        ],
    }


async def test_the_group_names_its_version() -> None:
    """D8."""
    version = {"groupVersion": f"{GROUP}/v1alpha1", "version": "v1alpha1"}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    assert (await get(f"/apis/{GROUP}")).json() == {"kind": "APIGroup", "apiVersion": "v1", **group}
    assert (await get("/apis")).json() == {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}


async def test_there_is_no_core_api() -> None:
    """D8."""
    assert (await get("/api")).status == 404


@pytest.mark.parametrize(
    "accept",
    [
        V2,
        f"{V2},{V2BETA1},application/json",
        f"{V2BETA1},{V2}",
        "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
        f"{V2};profile=nopeer,{V2BETA1},application/json",
        f"application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{V2}",
    ],
)
async def test_the_aggregated_document_names_itself_in_its_content_type(accept: str) -> None:
    """D9, D11: with bare application/json it would be read as the legacy list."""
    answer = await get("/apis", ("Accept", accept))
    assert answer.header("content-type") == AGGREGATED_TYPE
    assert answer.json()["kind"] == "APIGroupDiscoveryList"


async def test_the_aggregated_document_has_a_kind_for_everything() -> None:
    """D10."""
    kind = {"group": GROUP, "version": "v1alpha1", "kind": "TrainJobProgress"}
    served = {
        "resource": "trainjobs",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "trainjobprogress",
        "verbs": ["get", "list", "watch"],
        "shortNames": ["tjp"],
        "categories": ["training"],
        "subresources": [
            {"subresource": name, "responseKind": kind | {"kind": of}, "verbs": verbs}
            for name, of, verbs in BELOW
        ],
    }
    version = {"version": "v1alpha1", "freshness": "Current", "resources": [served]}
    assert (await get("/apis", ("Accept", V2))).json() == {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": [version]}],
    }


@pytest.mark.parametrize(
    "accept", ["application/json", "*/*", f"application/json,{V2};q=0.5", f"{V2BETA1},*/*"]
)
async def test_without_v2_the_legacy_list_is_given(accept: str) -> None:
    """D11."""
    answer = await get("/apis", ("Accept", accept))
    assert (answer.header("content-type"), answer.json()["kind"]) == ("application/json", "APIGroupList")


@pytest.mark.parametrize("accept", [V2BETA1, "text/html"])
async def test_what_we_cannot_serve_is_406(accept: str) -> None:
    """D11."""
    assert (await get("/apis", ("Accept", accept))).status == 406


async def test_the_aggregated_document_is_sent_once_to_whoever_keeps_it() -> None:
    """D12."""
    first = await get("/apis", ("Accept", V2))
    etag = first.header("etag")
    assert etag is not None
    assert etag.startswith('"')
    assert (first.header("vary"), first.header("cache-control")) == ("Accept", "public")
    second = await get("/apis", ("Accept", V2), ("If-None-Match", etag))
    assert (second.status, second.body, second.header("etag")) == (304, b"", etag)
    assert second.header("content-length") is None
    other = await get("/apis", ("Accept", V2), ("If-None-Match", etag.strip('"')))
    assert other.status == 200  # byte for byte


async def test_the_tag_changes_with_the_document() -> None:
    """D12: or the cluster keeps the old list. A kind's CRD may come and go."""

    async def tag(resources: tuple[Resource, ...]) -> str | None:
        shell = Shell()
        shell.app.state.discovery = Discovery(lambda: resources)
        return (await shell.get("/apis", ("Accept", V2))).header("etag")

    more = Resource(plural="others", kind="OtherProgress", short_names=())
    assert await tag(ALL_RESOURCES) != await tag((*ALL_RESOURCES, more))
    assert await tag(ALL_RESOURCES) == await tag(ALL_RESOURCES)


async def test_discovery_is_yaml_for_whoever_wants_it() -> None:
    answer = await get(BASE, ("Accept", "application/yaml"))
    assert answer.header("content-type") == "application/yaml"
    assert yaml.safe_load(answer.body) == (await get(BASE)).json()


def test_every_resource_has_a_kind_of_its_own() -> None:
    """D6: kubectl would list some other plural."""
    kinds = [resource.kind for resource in ALL_RESOURCES]
    assert len(set(kinds)) == len(kinds)


def test_nothing_is_promised_that_controllers_would_act_on() -> None:
    """D5, D7: an untrue `delete` makes every namespace deletion call us; `all` breaks `kubectl get all`."""
    for entry in resource_list(ALL_RESOURCES)["resources"]:
        is_request = entry["name"].endswith("/diagnose")
        assert set(entry["verbs"]) <= {"get", "list", "watch", *(["create"] if is_request else [])}
        assert entry["verbs"] == sorted(entry["verbs"])
        assert "all" not in entry.get("categories", ())
        assert "storageVersionHash" not in entry


def test_names_of_the_crd_are_left_alone() -> None:
    """D7."""
    for resource in ALL_RESOURCES:
        assert resource.singular == resource.kind.lower() != "trainjob"
        assert not {"tj", "trainjob"} & set(resource.short_names)


def test_a_new_resource_needs_one_entry_of_the_table() -> None:
    """D4, D6."""
    new = Resource(
        plural="jobsets",
        kind="JobSetProgress",
        short_names=(),
        namespaced=False,
        subresources=(Subresource(name="history", kind="JobSetProgressHistory"),),
    )
    names = [entry["name"] for entry in resource_list((TrainJobKind.served, new))["resources"]]
    below = ["trainjobs/progress", "trainjobs/history", "trainjobs/log-tail", "trainjobs/diagnose"]
    assert names == ["trainjobs", *below, "jobsets", "jobsets/history"]
    entry = aggregated((TrainJobKind.served, new))["items"][0]["versions"][0]["resources"][1]
    assert entry["scope"] == "Cluster"
    assert entry["subresources"][0]["responseKind"]["kind"] == "JobSetProgressHistory"
    assert "shortNames" not in entry
