"""Section A: who is asking. Mostly at the server itself; forged headers are in tests/e2e/test_identity.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.conformance.fronts import Front
from tests.e2e.conformance.rights import allow_group
from tests.e2e.conformance.team import Team, names
from tests.e2e.visibility_server import PREFIX, VisibilityServer

_EVERYWHERE = f"{PREFIX}/trainjobs"
_UNAUTHORIZED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> tuple[Path, Path]:
    pair = cluster.issue_front_proxy("front-proxy-client")
    return pair.cert, pair.key


@pytest.fixture
def token(cluster: Cluster, team: Team) -> str:
    """Of the ServiceAccount `robot` in the team's namespace."""
    accounts = f"/api/v1/namespaces/{team.namespace}/serviceaccounts"
    cluster.admin.create(accounts, {"metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued: str = cluster.admin.create(f"{accounts}/robot/token", request)["status"]["token"]
    return issued


def _refused_user(answer: httpx.Response) -> str:
    """Whom the server took the caller for, as its 403 says."""
    assert answer.status_code == 403, (answer.status_code, answer.text[:300])
    message: str = answer.json()["message"]
    return message.partition('User "')[2].partition('" cannot ')[0]


def test_A1_A2_the_first_method_that_knows_the_user_wins(
    cluster: Cluster, server: VisibilityServer, proxy: tuple[Path, Path], token: str
) -> None:
    known = cluster.issue_client("carol")
    carol = (known.cert, known.key)
    dave = [("X-Remote-User", "dave")]
    assert _refused_user(server.get(_EVERYWHERE, cert=proxy, headers=dave, token=token)) == "dave"
    assert _refused_user(server.get(_EVERYWHERE, cert=proxy, headers=dave, token="wrong")) == "dave"
    assert _refused_user(server.get(_EVERYWHERE, cert=carol, headers=dave, token=token)) == "carol"
    # A certificate that says nobody does not stand in the way of a token that does.
    assert _refused_user(server.get(_EVERYWHERE, cert=proxy, token=token)).endswith(":robot")


def test_A2_wrong_credentials_are_refused_and_none_are_anonymous(server: VisibilityServer) -> None:
    wrong = server.get(_EVERYWHERE, token="wrong")
    assert (wrong.status_code, wrong.json()) == (401, _UNAUTHORIZED)
    assert _refused_user(server.get(_EVERYWHERE)) == "system:anonymous"


def test_A6_the_proxys_certificate_alone_is_nobody(
    server: VisibilityServer, proxy: tuple[Path, Path]
) -> None:
    for headers in ([], [("X-Remote-User", "")], [("X-Remote-Group", "system:masters")]):
        assert server.get(_EVERYWHERE, cert=proxy, headers=headers).status_code == 401


def _list_as(
    server: VisibilityServer, proxy: tuple[Path, Path], team: Team, groups: Sequence[str]
) -> httpx.Response:
    headers = [("X-Remote-User", "erin"), *(("X-Remote-Group", group) for group in groups)]
    return server.get(team.path, cert=proxy, headers=headers)


def test_A7_every_group_counts_and_none_is_split(
    server: VisibilityServer, proxy: tuple[Path, Path], team: Team
) -> None:
    team.fill("a")
    allow_group(team.workspace, "second")
    allow_group(team.workspace, "one,two")
    for groups in (["second"], ["first", "second"], ["", "second"], ["one,two", "other"]):
        answer = _list_as(server, proxy, team, groups)
        assert answer.status_code == 200, groups
        assert names(answer.json()) == ["a"]
    for groups in (["first,second"], ["one", "two"], ["Second"], []):
        assert _list_as(server, proxy, team, groups).status_code == 403, groups


def test_A10_header_names_have_no_case(
    server: VisibilityServer, proxy: tuple[Path, Path], team: Team
) -> None:
    allow_group(team.workspace, "second")
    headers = [("x-remote-user", "frank"), ("X-REMOTE-GROUP", "second")]
    assert server.get(team.path, cert=proxy, headers=headers).status_code == 200


def test_A13_a_client_certificate_names_the_user_and_the_groups(
    cluster: Cluster, server: VisibilityServer, team: Team
) -> None:
    allow_group(team.workspace, "researchers")
    member = cluster.issue_client("grace", "interns", "researchers")
    assert server.get(team.path, cert=(member.cert, member.key)).status_code == 200
    assert _refused_user(server.get(_EVERYWHERE, cert=(member.cert, member.key))) == "grace"


@pytest.mark.parametrize(
    ("user", "path"),
    [
        ("system:kube-aggregator", PREFIX),
        ("system:kube-aggregator", "/apis"),
        ("system:aggregator", "/openapi/v2"),
        ("system:aggregator", "/openapi/v3"),
    ],
)
def test_A14_the_aggregators_own_calls_without_groups_are_allowed(
    server: VisibilityServer, proxy: tuple[Path, Path], user: str, path: str
) -> None:
    answer = server.get(path, cert=proxy, headers=[("X-Remote-User", user)])
    assert answer.status_code == 200, answer.text


def test_A14_anonymous_forwarded_by_the_proxy_stays_anonymous(
    server: VisibilityServer, proxy: tuple[Path, Path]
) -> None:
    headers = [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")]
    assert server.get(PREFIX, cert=proxy, headers=headers).status_code == 403


def test_A15_how_a_bearer_is_written(server: VisibilityServer, token: str) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = server.get(_EVERYWHERE, headers=[("Authorization", f"{scheme} {token}")])
        assert _refused_user(answer).endswith(":robot")
    blanks = server.get(_EVERYWHERE, headers=[("Authorization", f"Bearer  {token}")])
    assert _refused_user(blanks) == "system:anonymous"
    assert blanks.headers["warning"].startswith('299 - "')
    assert token not in blanks.headers["warning"]


def test_A16_a_service_account_has_its_groups(server: VisibilityServer, team: Team, token: str) -> None:
    allow_group(team.workspace, f"system:serviceaccounts:{team.namespace}")
    assert server.get(team.path, token=token).status_code == 200


def test_A19_nobody_is_an_anonymous_user_without_rights(server: VisibilityServer) -> None:
    assert server.get("/livez").status_code == 200
    assert _refused_user(server.get("/metrics")) == "system:anonymous"


@pytest.mark.parametrize("accept", ["application/json", "application/vnd.kubernetes.protobuf", None])
def test_A20_401_says_no_more_than_that(server: VisibilityServer, accept: str | None) -> None:
    headers = [("Accept", accept)] if accept else []
    answer = server.get(_EVERYWHERE, token="wrong", headers=headers)
    assert (answer.status_code, answer.json()) == (401, _UNAUTHORIZED)
    assert "www-authenticate" not in answer.headers


def test_A21_impersonation_is_the_api_servers_business(
    server: VisibilityServer, proxy: tuple[Path, Path], aggregated: Front, team: Team
) -> None:
    alice = {"Impersonate-User": "alice"}
    through = aggregated.admin.send(team.path, headers=alice)
    assert through.status_code == 200
    assert aggregated.admin.send(_EVERYWHERE, headers=alice).status_code == 403
    root = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters"), *alice.items()]
    refused = server.get(team.path, cert=proxy, headers=root)
    assert refused.status_code == 403
    status: Object = refused.json()
    assert (status["reason"], "impersonate" in status["message"]) == ("Forbidden", True)
