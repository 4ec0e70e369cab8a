"""Section Z: what a user may, asked of kube-apiserver for each request again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.conformance.fronts import Client, Front, refusal
from tests.e2e.conformance.rights import allow_user
from tests.e2e.conformance.team import Team, names
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer

_IN_GROUP = f'in API group "{GROUP}"'


def _forbidden(client: Client, path: str, *, method: str = "GET", **query: Any) -> Object:
    answer = client.send(path, method=method, **query)
    assert answer.status_code == 403, (answer.status_code, answer.text[:300])
    status: Object = answer.json()
    assert (status["reason"], status["code"]) == ("Forbidden", 403)
    return status


def test_Z1_rights_in_one_namespace_show_one_namespace(front: Front, team: Team, crowd: Team) -> None:
    # alice may view both namespaces, bob one object, and neither may see the cluster.
    team.fill("a", "b")
    allow_user(team.workspace, "bob", "get", resource_names=["b"])
    assert names(front.alice.get(team.path)) == ["a", "b"]
    assert front.bob.get(f"{team.path}/b")["metadata"]["name"] == "b"
    for path in (f"{team.path}/a", f"{team.path}/b/progress", team.path, crowd.path):
        _forbidden(front.bob, path)
    for user in (front.alice, front.bob):
        _forbidden(user, f"{PREFIX}/trainjobs")


def test_Z2_masters_may_do_what_nobody_was_given(direct: Front, team: Team) -> None:
    assert direct.admin.send("/metrics").status_code == 200
    assert direct.admin.send(f"{PREFIX}/nothings").status_code == 404


def test_Z2_health_is_open_to_any_method_and_to_anybody(server: VisibilityServer, direct: Front) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert server.get(path).status_code == 200
        assert direct.bob.send(path, method="POST").status_code == 405


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/namespaces/NS/nothings", 404),
        ("GET", "/namespaces/NS/trainjobs/a/nothing", 404),
        ("GET", "/trainjobs/a", 404),
        ("DELETE", "/namespaces/NS/trainjobs/a", 405),
        ("POST", "/namespaces/NS/trainjobs", 405),
    ],
)
def test_Z2_who_may_not_does_not_learn_what_there_is(
    front: Front, team: Team, method: str, path: str, code: int
) -> None:
    url = PREFIX + path.replace("NS", team.namespace)
    assert front.bob.send(url, method=method).status_code == 403
    assert front.admin.send(url, method=method).status_code == code


def test_Z3_below_the_version_all_are_resources_and_above_it_none(direct: Front) -> None:
    dashboard = _forbidden(direct.bob, f"{PREFIX}/dashboard")
    assert f'cannot list resource "dashboard" {_IN_GROUP} at the cluster scope' in dashboard["message"]
    elsewhere = _forbidden(direct.bob, f"/elsewhere/{GROUP}/v1alpha1/trainjobs")
    assert f'cannot get path "/elsewhere/{GROUP}/v1alpha1/trainjobs"' in elsewhere["message"]


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", "", "list"),
        ("GET", "?watch=1", "watch"),
        ("GET", "/a", "get"),
        ("HEAD", "/a", "get"),
        ("POST", "", "create"),
        ("PUT", "/a", "update"),
        ("PATCH", "/a", "patch"),
        ("DELETE", "/a", "delete"),
        ("DELETE", "", "deletecollection"),
    ],
)
def test_Z4_the_verb_follows_from_the_method(
    front: Front, team: Team, method: str, path: str, verb: str
) -> None:
    answer = front.bob.send(team.path + path, method=method)
    assert answer.status_code == 403
    if method != "HEAD":
        assert f'User "bob" cannot {verb} resource "trainjobs" {_IN_GROUP}' in answer.json()["message"]


@pytest.mark.parametrize(
    ("query", "verb"),
    [
        ("watch", "watch"),
        ("watch=", "watch"),
        ("watch=no", "watch"),
        ("watch=true&limit=x", "watch"),
        ("watch=1&watch=0", "watch"),
        ("watch=0", "list"),
        ("watch=False", "list"),
        ("watch=0&watch=1", "list"),
        ("Watch=1", "list"),
    ],
)
def test_Z5_any_value_but_false_and_zero_makes_a_watch(
    front: Front, team: Team, query: str, verb: str
) -> None:
    assert f"cannot {verb} resource" in _forbidden(front.bob, f"{team.path}?{query}")["message"]


def test_Z6_only_the_three_health_paths_are_exempt(server: VisibilityServer) -> None:
    for path in ("/readyz/ping", "/readyz/", "/healthz/ping", "/livezz"):
        assert server.get(path).status_code == 403, path


def test_Z7_a_namespace_of_ours_is_a_resource_we_lack(front: Front, team: Team) -> None:
    path = f"{PREFIX}/namespaces/{team.namespace}"
    message = _forbidden(front.bob, path)["message"]
    assert f'cannot get resource "namespaces" {_IN_GROUP} in the namespace "{team.namespace}"' in message
    assert front.admin.send(path).status_code == 404


def test_Z7_the_old_watch_paths_are_unknown(front: Front, direct: Front, team: Team) -> None:
    path = f"{PREFIX}/watch/namespaces/{team.namespace}/trainjobs"
    assert 'cannot watch resource "trainjobs"' in _forbidden(direct.bob, path)["message"]
    _forbidden(front.bob, path)
    assert refusal(front.admin, path, 404)["reason"] == "NotFound"


def test_Z8_a_right_to_one_name_lets_list_and_watch_that_name(front: Front, team: Team) -> None:
    team.fill("a", "b")
    allow_user(team.workspace, "bob", "list", "watch", "get", resource_names=["a"])
    query = {"fieldSelector": "metadata.name=a"}
    assert names(front.bob.get(team.path, **query)) == ["a"]
    assert names(front.bob.get(team.path, fieldSelector="metadata.name=a,status.phase!=x")) == ["a"]
    with front.bob.watch(team.path, resourceVersion="0", **query) as events:
        assert events.next()["object"]["metadata"]["name"] == "a"
    for selector in ("metadata.name=b", "metadata.name!=b", "status.phase=Unknown", ""):
        _forbidden(front.bob, team.path, fieldSelector=selector)
        _forbidden(front.bob, team.path, fieldSelector=selector, watch="1")


def test_Z9_a_right_to_the_subresource_is_a_right_of_its_own(front: Front, team: Team) -> None:
    team.fill("a")
    allow_user(team.workspace, "bob", "get", resources=["trainjobs/progress"])
    assert front.bob.get(f"{team.path}/a/progress")["metadata"]["name"] == "a"
    _forbidden(front.bob, f"{team.path}/a")


def test_Z13_rights_that_cannot_be_reviewed_are_an_error_and_no_refusal(
    server: VisibilityServer, cluster: Cluster, team: Team
) -> None:
    pair = cluster.issue_front_proxy("front-proxy-client")
    # Nobody has asked for this user before, so nothing is remembered; afterwards nothing was.
    headers = [("X-Remote-User", f"unknown-to-{team.namespace}")]
    path = f"{team.path}?labelSelector=a%3Db"
    with server.out_of_reach():
        answer = server.get(path, cert=(pair.cert, pair.key), headers=headers)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith(f'Internal Server Error: "{path}": ')
    assert server.get(path, cert=(pair.cert, pair.key), headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("path", "subject", "what", "name"),
    [
        ("/a", f'trainjobs.{GROUP} "a"', 'get resource "trainjobs"', "a"),
        ("/a/progress", f'trainjobs.{GROUP} "a"', 'get resource "trainjobs/progress"', "a"),
        ("", f"trainjobs.{GROUP}", 'list resource "trainjobs"', None),
    ],
)
def test_Z14_a_refusal_names_user_verb_and_object(
    front: Front, team: Team, path: str, subject: str, what: str, name: str | None
) -> None:
    answer = front.bob.send(team.path + path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{subject} is forbidden: User "bob" cannot {what} {_IN_GROUP} '
        f'in the namespace "{team.namespace}"',
        "reason": "Forbidden",
        "details": {**({"name": name} if name else {}), "group": GROUP, "kind": "trainjobs"},
        "code": 403,
    }


def test_Z14_without_a_namespace_it_is_the_cluster_scope(front: Front) -> None:
    message = _forbidden(front.bob, f"{PREFIX}/trainjobs")["message"]
    assert message == (
        f'trainjobs.{GROUP} is forbidden: User "bob" cannot list resource "trainjobs" {_IN_GROUP} '
        "at the cluster scope"
    )


def test_Z15_a_path_is_refused_in_the_api_servers_words(direct: Front, aggregated: Front) -> None:
    for client in (direct.bob, aggregated.bob):
        status = _forbidden(client, "/metrics")
        assert status["message"] == 'forbidden: User "bob" cannot get path "/metrics"'
        assert status["details"] == {}


def test_Z15_markup_in_a_name_is_harmless(server: VisibilityServer, cluster: Cluster) -> None:
    pair = cluster.issue_front_proxy("front-proxy-client")
    headers = [("X-Remote-User", '<b>&"\\')]
    answer = server.get("/metrics", cert=(pair.cert, pair.key), headers=headers)
    assert r'User "&lt;b&gt;&amp;\"\\" cannot get path' in answer.json()["message"]


def test_Z16_a_watch_outlives_a_right_that_is_taken_away(direct: Front, team: Team) -> None:
    allow_user(team.workspace, "bob", "watch", "list")
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{team.namespace}/rolebindings"
    admin = team.workspace.cluster.admin
    with direct.bob.watch(team.path) as events:
        for binding in admin.items(bindings):
            if binding["subjects"][0]["name"] == "bob":
                admin.delete(f"{bindings}/{binding['metadata']['name']}")
        team.create("a")
        assert events.next()["object"]["metadata"]["name"] == "a"
