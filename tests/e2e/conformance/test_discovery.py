"""Section D: what the aggregator, kubectl and kubelets ask before anything else."""

from __future__ import annotations

import hashlib

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.conformance.fronts import Front
from tests.e2e.manifests import APISERVICE_PATH
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer

_GV = f"{GROUP}/v1alpha1"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_OLD_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


def _resources(front: Front) -> list[Object]:
    found: list[Object] = front.bob.get(PREFIX)["resources"]
    return found


def test_D1_the_aggregator_finds_the_api_available(cluster: Cluster, direct: Front) -> None:
    conditions = cluster.admin.get(APISERVICE_PATH)["status"]["conditions"]
    (available,) = (each for each in conditions if each["type"] == "Available")
    assert (available["status"], available["reason"]) == ("True", "Passed")
    assert available["message"] == "all checks passed"
    answer = direct.admin.send(PREFIX)
    assert answer.status_code == 200


def test_D3_the_resource_list_has_every_field(front: Front) -> None:
    answer = front.bob.send(PREFIX)
    assert answer.headers["content-type"] == "application/json"
    listed = answer.json()
    assert (listed["kind"], listed["apiVersion"], listed["groupVersion"]) == ("APIResourceList", "v1", _GV)
    assert listed["resources"]
    for resource in listed["resources"]:
        assert {"name", "singularName", "namespaced", "kind", "verbs"} <= resource.keys()
        assert resource["verbs"] == sorted(resource["verbs"])
        assert "storageVersionHash" not in resource


def test_D4_subresources_have_their_parents_scope(front: Front) -> None:
    scopes = {resource["name"]: resource["namespaced"] for resource in _resources(front)}
    assert "trainjobs/progress" in scopes
    for name, namespaced in scopes.items():
        assert namespaced == scopes[name.partition("/")[0]]


def test_D5_only_reading_is_advertised(front: Front) -> None:
    for resource in _resources(front):
        wanted = ["get"] if "/" in resource["name"] else ["get", "list", "watch"]
        assert resource["verbs"] == wanted


def test_D6_each_resource_has_a_kind_of_its_own(front: Front) -> None:
    kinds = [resource["kind"] for resource in _resources(front) if "/" not in resource["name"]]
    assert len(set(kinds)) == len(kinds) > 0


def test_D7_no_name_is_one_of_the_crds(front: Front) -> None:
    for resource in _resources(front):
        assert resource["singularName"] != "trainjob"
        assert "all" not in resource.get("categories", [])
    (ours,) = (resource for resource in _resources(front) if resource["name"] == "trainjobs")
    assert (ours["singularName"], ours["shortNames"]) == ("trainjobprogress", ["tjp"])


def test_D8_the_group_is_described(front: Front) -> None:
    group = front.bob.get(f"/apis/{GROUP}")
    version = {"groupVersion": _GV, "version": "v1alpha1"}
    assert (group["kind"], group["apiVersion"], group["name"]) == ("APIGroup", "v1", GROUP)
    assert (group["versions"], group["preferredVersion"]) == ([version], version)
    listed = front.bob.get("/apis", accept="application/json")
    assert listed["kind"] == "APIGroupList"
    assert group | {"kind": "", "apiVersion": ""} in [
        each | {"kind": "", "apiVersion": ""} for each in listed["groups"]
    ]


def test_D8_there_is_no_legacy_api(direct: Front) -> None:
    assert direct.admin.send("/api").status_code == 404


@pytest.mark.parametrize(
    "accept",
    [
        _AGGREGATED,
        f"{_AGGREGATED},{_OLD_AGGREGATED},application/json",
        f"{_AGGREGATED};profile=nopeer,{_OLD_AGGREGATED};profile=nopeer",
        f"{_OLD_AGGREGATED},{_AGGREGATED}",
    ],
)
def test_D9_D11_the_aggregated_document_names_its_type(direct: Front, accept: str) -> None:
    answer = direct.bob.send("/apis", accept=accept)
    media_type, *parameters = answer.headers["content-type"].split(";")
    assert media_type == "application/json"
    assert {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= set(parameters)
    found = answer.json()
    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")


def test_D10_both_documents_say_the_same(direct: Front) -> None:
    (group,) = direct.bob.get("/apis", accept=_AGGREGATED)["items"]
    (version,) = group["versions"]
    assert group["metadata"]["name"] == GROUP
    assert (version["version"], version["freshness"]) == ("v1alpha1", "Current")
    found = {}
    for resource in version["resources"]:
        kind = {"group": GROUP, "version": "v1alpha1", "kind": resource["responseKind"]["kind"]}
        assert resource["responseKind"] == kind
        scope = resource["scope"] == "Namespaced"
        found[resource["resource"]] = (kind["kind"], scope, resource["verbs"])
        for sub in resource.get("subresources", []):
            name = f"{resource['resource']}/{sub['subresource']}"
            found[name] = (sub["responseKind"]["kind"], scope, sub["verbs"])
    assert found == {
        each["name"]: (each["kind"], each["namespaced"], each["verbs"]) for each in _resources(direct)
    }


def test_D11_whoever_wants_only_the_old_document_may_have_the_legacy_one(direct: Front) -> None:
    assert direct.bob.send("/apis", accept=_OLD_AGGREGATED).status_code == 406
    both = direct.bob.get("/apis", accept=f"{_OLD_AGGREGATED},application/json")
    assert both["kind"] == "APIGroupList"


def test_D12_the_aggregated_document_is_not_sent_twice(direct: Front) -> None:
    first = direct.bob.send("/apis", accept=_AGGREGATED)
    tag = first.headers["etag"]
    assert tag == f'"{hashlib.sha512(first.content.rstrip()).hexdigest().upper()}"'
    assert (first.headers["vary"], first.headers["cache-control"]) == ("Accept", "public")
    second = direct.bob.send("/apis", accept=_AGGREGATED, headers={"If-None-Match": tag})
    assert (second.status_code, second.content) == (304, b"")
    assert second.headers["etag"] == tag
    other = direct.bob.send("/apis", accept=_AGGREGATED, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


def test_D13_the_cluster_has_taken_the_document_over_as_current(aggregated: Front, direct: Front) -> None:
    groups = aggregated.bob.get("/apis", accept=_AGGREGATED)["items"]
    (theirs,) = (group for group in groups if group["metadata"]["name"] == GROUP)
    (ours,) = direct.bob.get("/apis", accept=_AGGREGATED)["items"]
    assert theirs["versions"] == ours["versions"]


@pytest.mark.parametrize(
    "path", ["/apis/", f"/apis/{GROUP}/", f"{PREFIX}/", f"{PREFIX}/trainjobs/", f"{PREFIX}//trainjobs"]
)
def test_D15_nothing_under_the_proxied_paths_redirects(front: Front, path: str) -> None:
    answer = front.admin.send(path)
    assert "location" not in answer.headers
    assert answer.status_code == 200 or "//" in path
    assert not 300 <= answer.status_code < 400


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_D17_health_is_two_letters_for_anybody(server: VisibilityServer, path: str) -> None:
    answer = server.get(path)
    assert (answer.status_code, answer.content) == (200, b"ok")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_D18_health_can_be_told_at_length(server: VisibilityServer) -> None:
    for query in ("?verbose", "?verbose="):
        lines = server.get(f"/readyz{query}").text.splitlines()
        assert "[+]ping ok" in lines
        assert lines[-1] == "readyz check passed"
    lines = server.get("/readyz?verbose&exclude=ping&exclude=shutdown&exclude=nothing").text.splitlines()
    assert {"[+]ping excluded: ok", "[+]shutdown excluded: ok"} <= set(lines)
    assert 'warn: some health checks cannot be excluded: no matches for "nothing"' in lines


def test_D19_each_check_has_a_path_that_needs_a_right(server: VisibilityServer, direct: Front) -> None:
    for name in ("ping", "informer-sync", "shutdown"):
        assert server.get(f"/readyz/{name}").status_code == 403
        answer = direct.admin.send(f"/readyz/{name}")
        assert (answer.status_code, answer.text[:300]) == (200, "ok")
    assert direct.admin.send("/livez/shutdown").status_code == 404


def test_D20_metrics_and_version_are_for_those_who_may(
    cluster: Cluster, server: VisibilityServer, direct: Front
) -> None:
    pair = cluster.issue_client("prometheus", "system:monitoring")
    monitor = (pair.cert, pair.key)
    answer = server.get("/metrics", cert=monitor)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert server.get("/livez/ping", cert=monitor).status_code == 200
    assert {direct.bob.send("/metrics").status_code, server.get("/metrics").status_code} == {403}
    version = direct.bob.get("/version")  # system:public-info-viewer
    assert {"major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion"} <= set(
        version
    )
    assert {"compiler", "platform"} <= set(version)
