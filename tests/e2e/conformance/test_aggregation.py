"""What kube-aggregator and the cluster's discovery, OpenAPI and flow control make of the server."""

from __future__ import annotations

import contextlib

import pytest

from tests.canary import plant
from tests.e2e.api import Api, Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import APISERVICE, APISERVICE_PATH, NAMESPACE, SERVICE_ACCOUNT
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import User, Workspace
from visibility_api.assembly import LEASE
from visibility_api.serving.connections import KEEP_ALIVE_S

LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"

DISCOVERY = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
KEY = PREFIX.strip("/")


def direct(server: VisibilityServer, user: User, path: str, **headers: str) -> Object:
    """What the server itself answers that user."""
    answer = server.get(path, cert=user.pair, headers=list(headers.items()))
    assert answer.status_code == 200, answer.text
    found: Object = answer.json()
    return found


def test_D1_P1_P2_the_api_is_available_and_ranked_below_the_crds(
    cluster: Cluster, server: VisibilityServer
) -> None:
    found = cluster.admin.get(APISERVICE_PATH)
    (available,) = (each for each in found["status"]["conditions"] if each["type"] == "Available")
    assert (available["status"], available["reason"]) == ("True", "Passed")
    assert available["message"] == "all checks passed"
    spec = found["spec"]
    assert found["metadata"]["name"] == f"{spec['version']}.{spec['group']}" == APISERVICE
    assert 0 < spec["groupPriorityMinimum"] < 1000
    assert not spec.get("insecureSkipTLSVerify")


def test_D13_the_cluster_has_taken_the_discovery_document_over_as_current(
    server: VisibilityServer, users: dict[str, User]
) -> None:
    bob = users["bob"]
    groups = bob.api.raw("GET", "/apis", headers=DISCOVERY).json()["items"]
    (theirs,) = (group for group in groups if group["metadata"]["name"] == GROUP)
    (ours,) = direct(server, bob, "/apis", **DISCOVERY)["items"]
    assert theirs["versions"] == ours["versions"]
    assert ours["versions"][0]["freshness"] == "Current"


@pytest.mark.parametrize("path", [f"/apis/{GROUP}/", f"{PREFIX}/", f"{PREFIX}/trainjobs/"])
def test_D15_nothing_under_the_proxied_paths_redirects(
    server: VisibilityServer, users: dict[str, User], path: str
) -> None:
    assert users["admin"].api.raw("GET", path).status_code == 200  # a redirect would be a 502 here


def test_O1_O6_the_cluster_shows_our_document_under_our_hash_to_any_user(
    server: VisibilityServer, users: dict[str, User]
) -> None:
    bob = users["bob"]
    theirs, ours = bob.api.get("/openapi/v3"), direct(server, bob, "/openapi/v3")
    assert theirs["paths"][KEY] == ours["paths"][KEY]
    url = ours["paths"][KEY]["serverRelativeURL"]
    assert bob.api.get(url) == direct(server, bob, url)
    for path in ("/openapi/v3", url):
        assert server.get(path).status_code == 403


def test_O8_borrowed_definitions_are_the_clusters_own(
    cluster: Cluster, server: VisibilityServer, users: dict[str, User]
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in has no definitions of its own to compare with")
    mine, merged = direct(server, users["bob"], "/openapi/v2"), users["bob"].api.get("/openapi/v2")
    assert mine["parameters"].items() <= merged["parameters"].items()  # which our paths refer to
    ours, theirs = mine["definitions"], merged["definitions"]
    borrowed = {name for name in ours if name.startswith("io.k8s.")}
    assert borrowed
    assert {name: ours[name] for name in borrowed} == {name: theirs[name] for name in borrowed}


def test_P12_connections_are_kept_longer_than_the_aggregator_does() -> None:
    assert KEEP_ALIVE_S > 90


@pytest.mark.parametrize(
    ("account", "path", "schema"),
    [
        ("dashboard", f"{PREFIX}/trainjobs", "trainjob-visibility"),
        (SERVICE_ACCOUNT, "/api/v1/pods?limit=1", "trainjob-visibility-server"),
        (SERVICE_ACCOUNT, LEASE_PATH, "trainjob-visibility-lease"),
    ],
)
def test_P16_service_accounts_requests_of_our_group_the_server_s_own_and_its_lease_have_seats_apart(
    cluster: Cluster, shared: Workspace, account: str, path: str, schema: str
) -> None:
    """kube-apiserver's own FlowSchema for service accounts must match neither."""
    if cluster.kind == "local":
        pytest.skip("the stand-in has no priority and fairness")
    namespace = NAMESPACE if account == SERVICE_ACCOUNT else shared.name
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if account != SERVICE_ACCOUNT:
        cluster.admin.create(accounts, {"metadata": {"name": account}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plant(cluster.admin.create(f"{accounts}/{account}/token", request)["status"]["token"])
    with contextlib.closing(Api(cluster.url, ca_file=cluster.ca_file, token=token)) as api:
        answer = api.raw("GET", path)
    found = cluster.admin.get(f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}")
    assert answer.headers["x-kubernetes-pf-flowschema-uid"] == found["metadata"]["uid"]


def test_P16_requests_of_our_group_have_seats_of_their_own(cluster: Cluster, shared: Workspace) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in has no priority and fairness")
    schema = cluster.admin.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/trainjob-visibility")
    answer = shared.alice.api.raw("GET", shared.collection)
    assert answer.headers["x-kubernetes-pf-flowschema-uid"] == schema["metadata"]["uid"]
