"""Who gets in, over real TLS and past the aggregator: a name in a header is nobody (A4, A5)."""

from __future__ import annotations

from tests.canary import plant
from tests.e2e.cluster import Cluster
from tests.e2e.rbac import wait_allowed
from tests.e2e.visibility_server import GROUP_HEADER, PREFIX, USER_HEADER, VisibilityServer
from tests.e2e.workspace import Workspace

_FORGED = [
    ("X-Remote-User", "kubernetes-admin"),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Extra-Scopes", "everything"),
]
_EVERYTHING = f"{PREFIX}/trainjobs"


def test_the_aggregators_own_certificate_may_name_the_user(
    cluster: Cluster, server: VisibilityServer
) -> None:
    # Without this, the refusals below would prove nothing.
    proxy = cluster.issue_front_proxy("front-proxy-client")
    answer = server.get(_EVERYTHING, cert=proxy, headers=_FORGED)
    assert answer.status_code == 200, answer.text


def test_a_forged_user_without_a_certificate_is_anonymous(server: VisibilityServer) -> None:
    answer = server.get(_EVERYTHING, headers=_FORGED)
    assert answer.status_code == 403
    assert 'User "system:anonymous" cannot list' in answer.json()["message"]


def test_the_api_server_does_not_pass_forged_headers_on(workspace: Workspace) -> None:
    answer = workspace.bob.api.raw("GET", _EVERYTHING, headers=_FORGED)
    assert answer.status_code == 403
    assert 'User "bob" cannot list' in answer.json()["message"]


def _token(cluster: Cluster, workspace: Workspace) -> str:
    """Of the ServiceAccount `robot` of the namespace."""
    accounts = f"/api/v1/namespaces/{workspace.name}/serviceaccounts"
    cluster.admin.create(accounts, {"metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return plant(cluster.admin.create(f"{accounts}/robot/token", request)["status"]["token"])


def test_a_good_token_is_its_owner_and_a_bad_one_nobody(
    cluster: Cluster, server: VisibilityServer, workspace: Workspace
) -> None:
    token = _token(cluster, workspace)
    known = server.get(_EVERYTHING, token=token)
    assert known.status_code == 403
    assert f'User "system:serviceaccount:{workspace.name}:robot" cannot list' in known.json()["message"]
    unknown = server.get(_EVERYTHING, token=token[:-4] + "AAAA")
    assert (unknown.status_code, unknown.json()["message"]) == (401, "Unauthorized")


def test_groups_of_certificates_and_of_service_accounts_count(
    cluster: Cluster, server: VisibilityServer, workspace: Workspace
) -> None:
    accounts = f"system:serviceaccounts:{workspace.name}"
    rbac = "rbac.authorization.k8s.io"
    for group in ("researchers", accounts):
        cluster.admin.create(
            f"/apis/{rbac}/v1/namespaces/{workspace.name}/rolebindings",
            {
                "metadata": {"generateName": "group-"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
                "subjects": [{"apiGroup": rbac, "kind": "Group", "name": group}],
            },
        )
        wait_allowed(cluster.admin, workspace.name, "list", groups=[group])
    member = cluster.issue_client("grace", "interns", "researchers")
    assert server.get(workspace.collection, cert=member).status_code == 200
    assert server.get(workspace.collection, token=_token(cluster, workspace)).status_code == 200
    proxy = cluster.issue_front_proxy("front-proxy-client")
    for groups, expected in ((["first", "researchers"], 200), (["first,researchers"], 403), ([], 403)):
        headers = [("x-remote-user", "erin"), *(("X-REMOTE-GROUP", group) for group in groups)]
        assert server.get(workspace.collection, cert=proxy, headers=headers).status_code == expected, groups


def test_impersonation_is_the_api_servers_business(
    cluster: Cluster, server: VisibilityServer, workspace: Workspace
) -> None:
    alice = {"Impersonate-User": "alice"}
    for path, expected in ((workspace.collection, 200), (_EVERYTHING, 403)):
        assert cluster.admin.raw("GET", path, headers=alice).status_code == expected
    proxy = cluster.issue_front_proxy("front-proxy-client")
    refused = server.get(workspace.collection, cert=proxy, headers=[*_FORGED, *alice.items()])
    assert (refused.status_code, "impersonate" in refused.json()["message"]) == (403, True)


def test_users_behind_an_ingress_have_the_rights_of_the_name_that_it_gives_them(
    server: VisibilityServer, workspace: Workspace
) -> None:
    cert = server.issue_ingress()
    page = f"{PREFIX}/namespaces/{workspace.name}/dashboard/none.js"
    for path, expected in ((workspace.collection, [200, 403]), (page, [404, 404])):
        found = [
            server.get(path, cert=cert, headers=[(USER_HEADER, name)]).status_code
            for name in ("alice", "bob")
        ]
        assert found == expected, path
    listed = server.get(_EVERYTHING, cert=cert, headers=[(USER_HEADER, "alice")])
    assert 'User "alice" cannot list' in listed.json()["message"]


def test_the_ingress_can_make_nobody_an_administrator_and_nobody_else_is_the_ingress(
    cluster: Cluster, server: VisibilityServer
) -> None:
    masters = (USER_HEADER, "mallory"), (GROUP_HEADER, "system:masters")
    for cert, headers, expected in (
        (server.issue_ingress(), masters, 401),
        (server.issue_ingress(), [(USER_HEADER, "system:admin")], 401),
        (server.issue_ingress(), _FORGED, 401),
        (server.issue_ingress(), [], 401),
        (server.issue_ingress("another"), [(USER_HEADER, "kubernetes-admin")], 401),
        (cluster.issue_client("ingress-gateway"), [(USER_HEADER, "kubernetes-admin")], 403),
        (cluster.issue_front_proxy("ingress-gateway"), [(USER_HEADER, "kubernetes-admin")], 401),
        (None, masters, 403),
    ):
        assert server.get(_EVERYTHING, cert=cert, headers=headers).status_code == expected, (cert, headers)


def test_metrics_are_not_for_everybody(cluster: Cluster, server: VisibilityServer) -> None:
    assert server.get("/metrics").status_code == 403
    monitor = cluster.issue_client("prometheus", "system:monitoring")
    answer = server.get("/metrics", cert=monitor)
    assert answer.status_code == 200
    assert "# HELP" in answer.text
