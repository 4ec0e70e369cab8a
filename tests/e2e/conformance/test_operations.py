"""Section P, and what a restart does to clients (L9, W24): whatever can be seen from outside."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.conformance.fronts import Front, client_context, open_front, refusal
from tests.e2e.conformance.team import Team, names, revision
from tests.e2e.manifests import APISERVICE, SERVICE_NAME, read_manifests
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.rbac import bind_in_namespace, wait_allowed
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import User
from visibility_api.serving.http_server import KEEP_ALIVE_S


def _handshake(server: VisibilityServer, **limits: ssl.TLSVersion) -> Iterator[ssl.SSLSocket]:
    context = client_context(server.authority.bundle)
    context.set_alpn_protocols(["h2", "http/1.1"])
    for name, value in limits.items():
        setattr(context, name, value)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as raw,
        context.wrap_socket(raw, server_hostname=SERVICE_NAME) as tls,
    ):
        yield tls


def test_P1_P2_the_apiservice_is_named_and_ranked_below_the_crds(cluster: Cluster, direct: Front) -> None:
    found = cluster.admin.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{APISERVICE}")
    assert found["metadata"]["name"] == f"{found['spec']['version']}.{found['spec']['group']}"
    assert 0 < found["spec"]["groupPriorityMinimum"] < 1000
    assert not found["spec"].get("insecureSkipTLSVerify")


@pytest.mark.parametrize("name", [f"trainjobs.{GROUP}", "trainjobs.visibility", "tjp", "trainjobprogress"])
def test_P3_the_resource_goes_by_four_names(crowd: Team, name: str) -> None:
    answer = crowd.workspace.alice.kubectl("get", name, "a", "-n", crowd.namespace, "-o", "name")
    assert answer.stdout == f"trainjobprogress.{GROUP}/a\n", answer.stderr


def test_P4_the_certificate_is_the_services(server: VisibilityServer) -> None:
    # The handshake itself verifies that name, as the aggregator does.
    for tls in _handshake(server):
        certificate: Any = tls.getpeercert()
        assert ("DNS", SERVICE_NAME) in certificate["subjectAltName"]


def test_P5_old_tls_is_refused(server: VisibilityServer) -> None:
    for tls in _handshake(server, minimum_version=ssl.TLSVersion.TLSv1_2):
        assert tls.version() == "TLSv1.3"
        assert tls.selected_alpn_protocol() in ("http/1.1", None)
    for tls in _handshake(server, maximum_version=ssl.TLSVersion.TLSv1_2):
        assert tls.version() == "TLSv1.2"


def test_P7_the_server_may_read_jobs_and_ask_about_identities_and_rights() -> None:
    # It runs with just these rights in every test here; this says that they are no more.
    things = read_manifests()
    bound = {thing["roleRef"]["name"] for thing in things if thing["kind"].endswith("RoleBinding")}
    assert {"system:auth-delegator", "extension-apiserver-authentication-reader"} <= bound
    (role,) = (
        thing
        for thing in things
        if (thing["kind"], thing["metadata"]["name"]) == ("ClusterRole", "trainjob-visibility:server")
    )
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"get", "list", "watch"}


def test_P8_viewing_a_namespace_includes_progress_and_its_subresource() -> None:
    (role,) = (
        thing
        for thing in read_manifests()
        if thing["kind"] == "ClusterRole"
        and thing["metadata"]["labels"].get("rbac.authorization.k8s.io/aggregate-to-view") == "true"
    )
    for name in ("edit", "admin"):
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{name}"] == "true"
    granted = {(r, verb) for rule in role["rules"] for r in rule["resources"] for verb in rule["verbs"]}
    assert granted >= {("trainjobs", "get"), ("trainjobs", "list"), ("trainjobs", "watch")}
    assert ("trainjobs/progress", "get") in granted


def test_P8_a_viewer_may_ask_for_both(front: Front, crowd: Team) -> None:
    for path in ("", "/a", "/a/progress"):
        assert front.alice.send(crowd.path + path).status_code == 200


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_P8_the_clusters_own_roles_include_progress(front: Front, team: Team, role: str) -> None:
    team.fill("a")
    admin = team.workspace.cluster.admin
    bind_in_namespace(admin, team.namespace, role, "bob")
    wait_allowed(admin, team.namespace, "get", user="bob", subresource="progress", name="a")
    for path in ("", "/a", "/a/progress"):
        assert front.bob.send(team.path + path).status_code == 200
    assert front.bob.send(f"{PREFIX}/trainjobs").status_code == 403


def test_P12_connections_are_kept_longer_than_the_aggregator_does(
    cluster: Cluster, server: VisibilityServer, users: dict[str, User]
) -> None:
    assert KEEP_ALIVE_S > 90
    with contextlib.closing(open_front("direct", cluster, server, users)) as fresh:
        ports = set()
        for _ in range(3):
            with fresh.admin.http.stream("GET", "/healthz") as answer:
                answer.read()
                ports.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
    assert len(ports) == 1


def test_P16_requests_of_our_group_have_seats_of_their_own(
    cluster: Cluster, aggregated: Front, crowd: Team
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in has no priority and fairness")
    schema = cluster.admin.get(
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/trainjob-visibility",
    )
    answer = aggregated.alice.send(crowd.path)
    assert answer.headers["x-kubernetes-pf-flowschema-uid"] == schema["metadata"]["uid"]


def test_P19_metrics_have_the_names_dashboards_know(direct: Front, crowd: Team) -> None:
    assert names(direct.alice.get(crowd.path))
    with direct.alice.watch(crowd.path) as events:
        events.next()
    text = direct.admin.send("/metrics").text
    for name in (
        "apiserver_request_total",
        "apiserver_request_duration_seconds_bucket",
        "apiserver_current_inflight_requests",
        "apiserver_watch_events_total",
        "apiserver_delegated_authz_request_total",
    ):
        assert re.search(rf"^{name}[{{ ]", text, re.MULTILINE), name
    assert re.search(r'^apiserver_request_total\{.*resource="trainjobs".*verb="LIST"', text, re.MULTILINE)


def test_L9_P10_W24_a_restart_ends_watches_cleanly_and_forgets_old_revisions(
    server: VisibilityServer, fronts: dict[str, Front], team: Team
) -> None:
    direct, aggregated = fronts["direct"], fronts["aggregated"]
    team.fill("a", "b")
    before = direct.alice.get(team.path, limit=1)
    with (
        direct.alice.watch(team.path, resourceVersion=revision(before)) as one,
        aggregated.alice.watch(team.path, resourceVersion=revision(before)) as other,
    ):
        server.restart()  # in order, though neither these streams nor the idle connections are read (P10)
        # A stream that is cut, not ended, raises here.
        assert (one.rest(), other.rest()) == ([], [])
    wait_until(lambda: aggregated.alice.send(team.path).status_code == 200, what="the aggregator is back")
    for front in fronts.values():
        with front.alice.watch(team.path, resourceVersion=revision(before)) as events:
            (event,) = events.rest()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        for query in (
            {"resourceVersionMatch": "Exact", "resourceVersion": revision(before)},
            {"continue": before["metadata"]["continue"]},
        ):
            assert refusal(front.alice, team.path, 410, **query)["reason"] == "Expired"
        after = front.alice.get(team.path, resourceVersion=revision(before))
        assert names(after) == ["a", "b"]
        assert revision(after) > revision(before)
        assert min(map(revision, after["items"])) > revision(before)
