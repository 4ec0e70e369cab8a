"""The guide to an ingress, followed: its manifests are valid, and its nginx is believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.ingress import NGINX, ingress, manifests_of_guide
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.visibility_server import PREFIX, USER_HEADER, VisibilityServer
from tests.e2e.workspace import User, Workspace

_ISTIO = Path(__file__).with_name("istio")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
needs_nginx = pytest.mark.skipif(NGINX is None, reason="there is no nginx here")


@pytest.fixture(scope="module")
def address(server: VisibilityServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    certificate = server.issue_ingress()
    with ingress(server, tmp_path_factory.mktemp("nginx"), certificate=certificate) as found:
        yield found


def _get(url: str, login: str = "", **headers: str) -> httpx.Response:
    sent = {**headers, **({"Cookie": f"login={login}"} if login else {})}
    return httpx.get(url, headers=sent, timeout=PATIENCE_S, trust_env=False)


@needs_nginx
def test_behind_nginx_each_user_sees_what_they_may(address: str, shared: Workspace) -> None:
    page = f"{PREFIX}/namespaces/{shared.name}/dashboard"
    for path, expected in ((page, [200, 200, 401]), (shared.collection, [200, 403, 401])):
        found = [_get(address + path, login).status_code for login in ("alice", "bob", "")]
        assert found == expected, path
    refused = _get(address + shared.collection, "bob").json()["message"]
    assert 'User "bob" cannot list resource "trainjobs"' in refused


@needs_nginx
def test_nginx_takes_away_the_user_that_a_client_names(address: str, shared: Workspace) -> None:
    for name in (USER_HEADER, USER_HEADER.upper(), USER_HEADER.title()):
        assert _get(address + shared.collection, "bob", **{name: "alice"}).status_code == 403
    assert _get(address + shared.collection, **{USER_HEADER: "alice"}).status_code == 401
    assert _get(address + shared.collection, "system:admin").status_code == 401


@needs_nginx
def test_a_watch_comes_through_nginx_as_it_goes(address: str, shared: Workspace) -> None:
    headers = {"Cookie": "login=alice"}
    url = f"{address}{shared.collection}?watch=1&timeoutSeconds=60"
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S, trust_env=False) as watch:
        assert watch.status_code == 200
        shared.start_job("seen-through-nginx", "import time; time.sleep(3600)")
        for line in watch.iter_lines():
            if "seen-through-nginx" in line:
                break
        else:
            pytest.fail("the watch ended without the job")


@needs_nginx
def test_an_nginx_with_another_certificate_is_nobody(
    server: VisibilityServer, shared: Workspace, tmp_path: Path
) -> None:
    with ingress(server, tmp_path, certificate=server.issue_ingress("another")) as address:
        assert _get(address + shared.collection, "alice").status_code == 401


@pytest.fixture
def istio(cluster: Cluster) -> Iterator[None]:
    """What the API server must know of Istio, until the end of the test."""
    if cluster.kind != "real":
        pytest.skip("only kube-apiserver knows what it accepts; the stand-in takes anything")
    found = [yaml.safe_load(file.read_text()) for file in sorted(_ISTIO.glob("*.yaml"))]
    for crd in found:
        cluster.admin.create(_CRDS, crd)
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": "istio-system"}})
    try:
        yield
    finally:
        for crd in found:
            cluster.admin.delete(f"{_CRDS}/{crd['metadata']['name']}")
        cluster.admin.delete("/api/v1/namespaces/istio-system")


@pytest.mark.usefixtures("istio", "server")
def test_the_manifests_of_the_guide_are_valid(users: dict[str, User], tmp_path: Path) -> None:
    objects = manifests_of_guide()
    assert {thing["kind"] for thing in objects} == {"VirtualService", "DestinationRule", "Ingress"}
    file = tmp_path / "guide.yaml"
    file.write_text(yaml.safe_dump_all(objects))

    def told() -> str:
        done = users["admin"].kubectl(
            *("create", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", str(file))
        )
        return done.stdout + done.stderr

    # A kind that is new is served, and in kubectl's discovery, a moment later.
    wait_until(lambda: told().count("(server dry run)") == len(objects), what="all are accepted")
    file.write_text(file.read_text().replace("credentialName", "credentialsName"))
    assert "credentialsName" in told()
