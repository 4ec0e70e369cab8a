"""Section O: what `kubectl explain` and generators read."""

from __future__ import annotations

import re

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.conformance.fronts import Front
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer

_KEY = PREFIX.strip("/")
_V3 = f"/openapi/v3/{_KEY}"
_PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
_GVK = {"group": GROUP, "version": "v1alpha1", "kind": "TrainJobProgress"}


def _url(front: Front) -> str:
    url: str = front.bob.get("/openapi/v3")["paths"][_KEY]["serverRelativeURL"]
    return url


def test_O1_the_root_lists_our_own_group_version_only(direct: Front) -> None:
    answer = direct.bob.send("/openapi/v3", accept="application/json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["etag"]
    paths = answer.json()["paths"]
    assert paths.keys() == {_KEY}
    assert re.fullmatch(re.escape(_V3) + r"\?hash=[0-9A-F]+", paths[_KEY]["serverRelativeURL"])


def test_O1_the_cluster_shows_our_document_under_our_hash(aggregated: Front, direct: Front) -> None:
    assert _url(aggregated) == _url(direct)
    assert aggregated.bob.get(_url(aggregated)) == direct.bob.get(_V3)


@pytest.mark.parametrize("accept", ["application/json", None, f"{_PROTOBUF},application/json", "*/*"])
def test_O4_the_document_of_a_hash_may_be_kept_for_a_year(front: Front, accept: str | None) -> None:
    answer = front.bob.send(_url(front), accept=accept)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    # kube-apiserver puts a `no-cache, private` of its own in front, as it does with every server.
    assert answer.headers["cache-control"].endswith("public, immutable")
    assert answer.headers["expires"].endswith(" GMT")
    assert "Accept" in answer.headers["vary"]
    again = front.bob.send(_url(front), headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_O4_protobuf_alone_is_refused_without_a_body(front: Front) -> None:
    answer = front.bob.send(_V3, accept=_PROTOBUF)
    assert (answer.status_code, answer.content) == (406, b"")


@pytest.mark.parametrize("query", ["", "?hash=00", "?hash="])
def test_O5_a_stale_hash_gets_the_present_document_for_now(front: Front, query: str) -> None:
    answer = front.bob.send(_V3 + query)
    assert answer.status_code == 200
    assert "location" not in answer.headers
    assert "immutable" not in answer.headers["cache-control"]
    assert answer.json() == front.bob.get(_url(front))


def test_O6_any_user_may_read_it_and_nobody_else(server: VisibilityServer, front: Front) -> None:
    for path in ("/openapi/v3", _V3):
        assert front.bob.send(path).status_code == 200
        assert server.get(path).status_code == 403


def test_O7_the_swagger_document_holds_our_own_paths_only(direct: Front) -> None:
    document = direct.bob.get("/openapi/v2", accept="application/json")
    assert document["swagger"] == "2.0"
    assert document["paths"]
    assert all(path.startswith(f"{PREFIX}/") for path in document["paths"])


def test_O8_borrowed_definitions_are_the_clusters_own(
    cluster: Cluster, direct: Front, aggregated: Front
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in has no definitions of its own to compare with")
    ours = direct.bob.get("/openapi/v2")["definitions"]
    theirs = aggregated.bob.get("/openapi/v2")["definitions"]
    borrowed = {name for name in ours if name.startswith("io.k8s.")}
    assert borrowed
    assert {name: ours[name] for name in borrowed} == {name: theirs[name] for name in borrowed}


def test_O9_explain_finds_the_kind_by_path_and_by_schema(front: Front) -> None:
    document = front.bob.get(_url(front))
    for path in (f"{PREFIX}/trainjobs", f"{PREFIX}/namespaces/{{namespace}}/trainjobs/{{name}}"):
        assert document["paths"][path]["get"]["x-kubernetes-group-version-kind"] == _GVK
    owners = [
        name
        for name, schema in document["components"]["schemas"].items()
        if _GVK in schema.get("x-kubernetes-group-version-kind", [])
    ]
    assert len(owners) == 1


def test_O10_operations_name_their_action(front: Front) -> None:
    paths: Object = front.bob.get(_url(front))["paths"]
    actions = {
        path.removeprefix(PREFIX): item["get"].get("x-kubernetes-action")
        for path, item in paths.items()
        if "trainjobs" in path
    }
    one = "/namespaces/{namespace}/trainjobs/{name}"
    assert actions == {
        "/trainjobs": "list",
        "/namespaces/{namespace}/trainjobs": "list",
        one: "get",
        f"{one}/progress": "get",
        f"{one}/history": "get",
        f"{one}/log-tail": "get",
    }
