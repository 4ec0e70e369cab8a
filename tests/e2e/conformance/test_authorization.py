"""Section Z: what a user may, as kube-apiserver's own RBAC decides for each request."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.e2e.api import Api
from tests.e2e.cluster import Cluster
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.rbac import bind_in_namespace, wait_allowed
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import TRAINER, Workspace

RBAC = "rbac.authorization.k8s.io"
ONE = "?fieldSelector=metadata.name%3Dbert"


def allow(team: Workspace, user: str, *verbs: str, resource: str = "trainjobs", name: str = "") -> None:
    """Rights of our group in the namespace; with `name` to that one only."""
    admin, base = team.cluster.admin, f"/apis/{RBAC}/v1/namespaces/{team.name}"
    meta = {"generateName": "conformance-"}
    rule = {"apiGroups": [GROUP], "resources": [resource], "verbs": list(verbs)}
    rule |= {"resourceNames": [name]} if name else {}
    role = admin.create(f"{base}/roles", {"metadata": meta, "rules": [rule]})["metadata"]["name"]
    reference = {"apiGroup": RBAC, "kind": "Role", "name": role}
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    admin.create(f"{base}/rolebindings", {"metadata": meta, "roleRef": reference, "subjects": [subject]})
    resource, _, subresource = resource.partition("/")
    wait_allowed(admin, team.name, verbs[0], user=user, resource=resource, subresource=subresource, name=name)


def codes(api: Api, paths: Sequence[str]) -> list[int]:
    return [api.raw("GET", path).status_code for path in paths]


def test_Z1_rights_in_one_namespace_show_one_namespace(
    bert: QuietJobs, workspace: Workspace, shared: Workspace
) -> None:
    bert.create("gpt")
    bert.wait_served("gpt")
    allow(workspace, "bob", "get", name="gpt")
    assert bert.served(workspace.alice.api).keys() == {"bert", "gpt"}
    own, others = f"{bert.collection}/gpt", [f"{bert.collection}/bert", bert.collection, shared.collection]
    assert codes(workspace.bob.api, [own, f"{own}/progress", *others]) == [200, 403, 403, 403, 403]
    for user in (workspace.alice, workspace.bob):
        assert codes(user.api, [f"{PREFIX}/trainjobs"]) == [403]


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_P8_the_clusters_own_roles_include_progress(bert: QuietJobs, workspace: Workspace, role: str) -> None:
    bind_in_namespace(workspace.cluster.admin, workspace.name, role, "bob")
    admin, one = workspace.cluster.admin, f"{bert.collection}/bert"
    wait_allowed(admin, workspace.name, "get", user="bob", subresource="progress", name="bert")
    assert codes(workspace.bob.api, [bert.collection, one, f"{one}/progress"]) == [200, 200, 200]
    assert codes(workspace.bob.api, [f"{PREFIX}/trainjobs"]) == [403]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothings", 404),
        ("GET", "/trainjobs/a/nothing", 404),
        ("DELETE", "/trainjobs/a", 405),
        ("POST", "/trainjobs", 405),
    ],
)
def test_Z2_who_may_not_does_not_learn_what_there_is(
    shared: Workspace, method: str, path: str, code: int
) -> None:
    url = f"{PREFIX}/namespaces/{shared.name}{path}"
    assert shared.bob.api.raw(method, url).status_code == 403
    assert shared.admin.api.raw(method, url).status_code == code


def test_Z8_a_right_to_one_name_lets_list_and_watch_that_name(bert: QuietJobs, workspace: Workspace) -> None:
    bert.create("gpt")
    bert.wait_served("gpt")
    allow(workspace, "bob", "list", "watch", name="bert")
    bob = workspace.bob.api
    assert [item["metadata"]["name"] for item in bob.items(bert.collection + ONE)] == ["bert"]
    with bob.watch(bert.collection, resourceVersion="0", fieldSelector="metadata.name=bert") as events:
        assert next(events)["object"]["metadata"]["name"] == "bert"
    for selector in ("metadata.name%3Dgpt", "metadata.name!%3Dgpt", "status.phase%3DPending", ""):
        path = f"{bert.collection}?fieldSelector={selector}"
        assert codes(bob, [path, f"{path}&watch=1"]) == [403, 403], selector


def test_Z9_a_right_to_the_subresource_is_a_right_of_its_own(bert: QuietJobs, workspace: Workspace) -> None:
    allow(workspace, "bob", "get", resource="trainjobs/progress")
    one = f"{bert.collection}/bert"
    assert codes(workspace.bob.api, [f"{one}/progress", one]) == [200, 403]


def test_Z13_rights_that_cannot_be_reviewed_are_an_error_and_no_refusal(
    server: VisibilityServer, cluster: Cluster, workspace: Workspace
) -> None:
    pair = cluster.issue_client(f"unknown-to-{workspace.name}")  # so nothing is remembered of them
    with server.out_of_reach():
        answer = server.get(workspace.collection, cert=pair)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "text/plain; charset=utf-8")
    assert server.get(workspace.collection, cert=pair).status_code == 403  # nothing was kept


@pytest.mark.parametrize("path", ["", "/bert", "/bert/status", "?watch=1"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_Z4_Z14_a_refusal_has_the_words_of_the_native_one(
    cluster: Cluster, shared: Workspace, method: str, path: str
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in's word proves nothing about kube-apiserver")
    native = f"{TRAINER}/namespaces/{shared.name}/trainjobs"
    ours, theirs = (shared.bob.api.raw(method, base + path) for base in (shared.collection, native))
    assert (ours.status_code, theirs.status_code) == (403, 403)
    assert ours.text == theirs.text.replace(TRAINER.split("/")[2], GROUP)


def test_Z16_a_watch_outlives_a_right_that_is_taken_away(own_jobs: QuietJobs, workspace: Workspace) -> None:
    allow(workspace, "bob", "watch")
    admin = workspace.cluster.admin
    bindings = f"/apis/{RBAC}/v1/namespaces/{workspace.name}/rolebindings"
    with workspace.bob.api.watch(own_jobs.collection) as events:
        for binding in admin.items(bindings):
            if binding["subjects"][0]["name"] == "bob":
                admin.delete(f"{bindings}/{binding['metadata']['name']}")
        own_jobs.create("bert")
        assert next(events)["object"]["metadata"]["name"] == "bert"
