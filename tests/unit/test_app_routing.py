"""Where a request line leads, and what is refused on the way: R4 to R6, D15, Z2, Z7, Z13."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.api_shell import BASE, JANE, ONE, Shell
from visibility_api.app.chain import MAX_ANONYMOUS_TARGET_BYTES
from visibility_api.app.resource_routes import ResourceRoutes
from visibility_api.auth.errors import AccessDenied, ReviewFailed, Unauthenticated
from visibility_api.auth.identity import ANONYMOUS, Attributes
from visibility_api.kinds import RESOURCES

UNKNOWN_ROUTE = "the server could not find the requested resource"
WRONG_METHOD = "the server does not allow this method on the requested resource"


def denial() -> AccessDenied:
    return AccessDenied(JANE, Attributes(verb="get", path="/x"))


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/trainjobs",
        f"{BASE}/trainjobs/",
        f"{BASE}/trainjobs?watch=1",
        f"{BASE}/namespaces/a/trainjobs",
        f"{BASE}/namespaces/a/trainjobs/x",
        f"{BASE}/namespaces/a/trainjobs/x/",
        f"{BASE}/namespaces/a/trainjobs/x/progress",
    ],
)
async def test_what_is_served_is_found_in_both_spellings(path: str) -> None:
    """D15: never by a redirect."""
    shell = Shell()
    assert (await shell.get(path)).status == 200
    assert len(shell.requests) == 1


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/trainjobs/x",  # R4: a namespace is missing
        f"{BASE}/trainjobs/x/progress",
        f"{BASE}/namespaces/a/trainjobs/x/status",
        f"{BASE}/namespaces/a/trainjobs/x/progress/more",
        f"{BASE}/namespaces/a/trainjobs//progress",
        f"{BASE}/namespaces//trainjobs",
        f"{BASE}/namespaces/a",
        f"{BASE}/nonsense",
        f"{BASE}/watch/trainjobs",  # Z7
        f"{BASE}/watch/namespaces/a/trainjobs",
        "/apis/visibility.trainer.kubeflow.org/v1/trainjobs",
        "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_what_is_not_served_is_an_unknown_route(path: str, method: str) -> None:
    """R1, R4, Z7."""
    shell = Shell()
    answer = await shell.get(path, method=method)
    body = answer.json()
    assert (answer.status, body["message"], body["reason"]) == (404, UNKNOWN_ROUTE, "NotFound")
    assert shell.requests == []


@pytest.mark.parametrize(
    "path", [f"{BASE}/trainjobs", f"{BASE}/namespaces/a/trainjobs", ONE, ONE + "/progress"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "PURGE"])
async def test_resources_are_only_got(path: str, method: str) -> None:
    """R6: HEAD too is authorised, and then refused."""
    shell = Shell()
    answer = await shell.get(path, method=method)
    assert (answer.status, answer.json()["message"]) == (405, WRONG_METHOD)
    assert shell.requests == []
    assert len(shell.asked) == 1


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz/ping", "/metrics", "/version", "/openapi/v3", "/apis", BASE]
)
async def test_documents_of_the_server_itself_answer_get_and_head_only(path: str) -> None:
    """R6."""
    shell = Shell()
    got, head = await shell.get(path), await shell.get(path, method="HEAD")
    assert got.status == head.status == 200
    assert (await shell.get(path, method="POST")).status == 405
    if path != "/metrics":  # it counts the requests in between
        assert got.header("content-length") == head.header("content-length")


@pytest.mark.parametrize("path", ["/", "/nonsense", "/api", "/api/v1/pods", "/livez/nonsense", "/apis/other"])
async def test_other_paths_are_not_found_in_the_api_servers_words(path: str) -> None:
    """R5, D8."""
    answer = await Shell().get(path)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize("below", ["", "/bert", "/bert/progress", "/bert/history"])
async def test_a_kind_without_its_crd_is_an_unknown_route(below: str) -> None:
    """As kube-apiserver answers; other kinds are not affected, and rights come first."""
    shell = Shell()
    path = f"{BASE}/namespaces/a/{{}}{below}"
    assert (await shell.get(path.format("pytorchjobs"))).status in (200, 404)
    shell.absent = {"pytorchjobs"}
    answer = await shell.get(path.format("pytorchjobs"))
    assert (answer.status, answer.json()["message"]) == (404, UNKNOWN_ROUTE)
    assert UNKNOWN_ROUTE not in (await shell.get(path.format("trainjobs"))).text
    shell.verdict = denial()
    assert (await shell.get(path.format("pytorchjobs"))).status == 403


@pytest.mark.parametrize(("query", "is_warned"), [("", True), ("?watch=1", True), ("/bert", False)])
async def test_a_list_that_must_be_empty_says_why(query: str, is_warned: bool) -> None:
    """kubectl prints it; else it says `No resources found`, as where there are no jobs."""
    shell = Shell()
    shell.why_empty = {"trainjobs": "no such CRD"}
    answer = await shell.get(f"{BASE}/namespaces/a/trainjobs{query}")
    assert answer.header("warning") == ('299 - "no such CRD"' if is_warned else None)


def test_a_promise_without_a_handler_is_found_at_the_start() -> None:
    """D5."""
    with pytest.raises(ValueError, match="differ in"):
        ResourceRoutes(resources=RESOURCES, handlers={})


@pytest.mark.parametrize(
    ("target", "method"),
    [(ONE, "GET"), (f"{BASE}/nonsense", "GET"), (ONE, "DELETE"), ("/nonsense", "GET"), ("/metrics", "POST")],
)
async def test_whoever_has_no_right_learns_nothing_of_what_exists(target: str, method: str) -> None:
    """Z2: authorisation comes before routing."""
    shell = Shell(verdict=denial())
    shell.is_synced = False
    assert (await shell.get(target, method=method)).status == 403
    assert shell.requests == []


@pytest.mark.parametrize(("identity", "code"), [(Unauthenticated("x"), 401), (JANE, 200), (ANONYMOUS, 200)])
async def test_nobody_is_authorised_before_they_are_known(identity: Any, code: int) -> None:
    """A1, A20."""
    shell = Shell(identity=identity)
    assert (await shell.get(ONE)).status == code
    assert len(shell.asked) == (code == 200)


async def test_the_review_asks_what_the_request_asks() -> None:
    """Z3 to Z8: one reading serves both."""
    shell = Shell()
    await shell.get(f"{ONE}/progress")
    await shell.get("/metrics/")
    assert shell.asked[0] == shell.requests[0].attributes
    assert (shell.asked[0].subresource, shell.asked[0].name, shell.asked[0].verb) == (
        "progress",
        "bert",
        "get",
    )
    assert shell.asked[1] == Attributes(verb="get", path="/metrics/")


async def test_an_escaped_slash_cannot_lead_elsewhere_than_what_was_authorised() -> None:
    """Z7: both see the decoded path, as in Go."""
    shell = Shell()
    await shell.get(f"{BASE}/namespaces/team-a%2Ftrainjobs%2Fbert")
    assert (shell.asked[0].namespace, shell.asked[0].resource, shell.asked[0].name) == (
        "team-a",
        "trainjobs",
        "bert",
    )


async def test_a_failed_review_is_no_decision() -> None:
    """Z13: fails closed, as a 500 in text."""
    shell = Shell(verdict=ReviewFailed("connection refused"))
    answer = await shell.get(f"{ONE}?pretty=1")
    assert (answer.status, answer.header("content-type")) == (500, "text/plain; charset=utf-8")
    assert answer.text.startswith(f'Internal Server Error: "{ONE}?pretty=1": ')
    assert "refused" not in answer.text
    assert shell.requests == []


async def test_one_users_answer_is_never_anothers() -> None:
    shell = Shell()
    assert (await shell.get(ONE)).status == 200
    shell.verdict = denial()
    assert (await shell.get(ONE)).status == 403


async def test_a_handler_sees_the_request_as_it_was_sent() -> None:
    shell = Shell()
    await shell.get(f"{ONE}?pretty=&a=1&a=2", ("Accept", "application/json"))
    (request,) = shell.requests
    assert (request.attributes.verb, request.attributes.path) == ("get", ONE)
    assert request.query == (("pretty", ""), ("a", "1"), ("a", "2"))
    assert (request.parameter("a"), request.parameter("pretty"), request.parameter("b")) == ("1", "", None)
    assert (b"accept", b"application/json") in request.headers


async def test_a_long_request_line_of_nobody_is_not_parsed() -> None:
    """The longest selectors take milliseconds, and nobody has paid for them."""
    target = f"{BASE}/trainjobs?labelSelector=" + "a," * MAX_ANONYMOUS_TARGET_BYTES
    for identity, message in ((ANONYMOUS, "without credentials"), (Unauthenticated("x"), "Unauthorized")):
        shell = Shell(identity=identity)
        answer = await shell.get(target)
        assert message in json.loads(answer.body)["message"]
        assert shell.asked == []
    assert (await Shell().get(target)).status == 200


async def test_a_request_line_without_measure_is_refused() -> None:
    answer = await Shell().get("/x?" + "a" * 100_000)
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, "BadRequest")
