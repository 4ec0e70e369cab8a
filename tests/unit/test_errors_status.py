"""What each refusal looks like on the wire: R1, R2, R10, A20, Z13 to Z15, L4, L8.

The expected bodies were compared with a kube-apiserver 1.36's own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from visibility_api.app.refusal import error_response as refuse, to_request_error
from visibility_api.auth.errors import AccessDenied, ReviewFailed, Unauthenticated
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.errors.status import (
    BadRequest,
    Expired,
    MethodNotAllowed,
    NotAcceptable,
    ObjectNotFound,
    Overloaded,
    RequestError,
    Timeout,
    TooLargeResourceVersion,
    Unavailable,
    UnknownRoute,
    encode_status,
)
from visibility_api.errors.text import quote
from visibility_api.kubeapi.message import ResourceResponse

GROUP = "visibility.trainer.kubeflow.org"


def body_of(error: Exception, uri: str = "/x") -> dict[str, Any]:
    return dict(json.loads(encode_status(to_request_error(error, uri=uri))))


def answer_to(error: Exception, *headers: tuple[bytes, bytes], uri: str = "/x") -> ResourceResponse:
    return refuse(to_request_error(error, uri=uri), headers=headers, query=())


def status(code: int, reason: str, message: str, **more: object) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        **more,
    }


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadRequest("unable to parse x"), status(400, "BadRequest", "unable to parse x")),
        (Unauthenticated("the token is wrong"), status(401, "Unauthorized", "Unauthorized")),
        (
            ObjectNotFound("trainjobs", "bert"),
            status(
                404,
                "NotFound",
                f'trainjobs.{GROUP} "bert" not found',
                details={"name": "bert", "group": GROUP, "kind": "trainjobs"},
            ),
        ),
        (
            UnknownRoute(),
            status(404, "NotFound", "the server could not find the requested resource", details={}),
        ),
        (
            MethodNotAllowed(),
            status(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
                details={},
            ),
        ),
        (
            NotAcceptable(("application/json", "application/yaml")),
            status(
                406,
                "NotAcceptable",
                "only the following media types are accepted: application/json, application/yaml",
            ),
        ),
        (
            Expired("too old", continue_token="abc"),
            status(410, "Expired", "too old", metadata={"continue": "abc"}),
        ),
        (
            Unavailable("apiserver is shutting down"),
            status(503, "ServiceUnavailable", "apiserver is shutting down", details={"retryAfterSeconds": 1}),
        ),
        (
            Timeout("request did not complete within the allotted timeout"),
            status(
                504, "Timeout", "Timeout: request did not complete within the allotted timeout", details={}
            ),
        ),
        (
            TooLargeResourceVersion(99999999, 313),
            status(
                504,
                "Timeout",
                "Timeout: Too large resource version: 99999999, current: 313",
                details={
                    "causes": [
                        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                    ],
                    "retryAfterSeconds": 1,
                },
            ),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_refusal_is_the_status_kubernetes_clients_know(
    error: Exception, expected: dict[str, Any]
) -> None:
    """R1, A20, L8, W24."""
    assert body_of(error) == expected


def test_the_fields_come_in_the_api_servers_own_order() -> None:
    assert encode_status(ObjectNotFound("trainjobs", "x")).startswith(
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
    )


def denied(user: str = "jane", reason: str = "", **attributes: object) -> AccessDenied:
    values: dict[str, Any] = {
        "verb": "get",
        "path": "/apis/…",
        "is_resource": True,
        "group": GROUP,
        "version": "v1alpha1",
        "resource": "trainjobs",
        **attributes,
    }
    return AccessDenied(Identity(user=user), Attributes(**values), reason)


@pytest.mark.parametrize(
    ("error", "message", "details"),
    [
        (
            denied(namespace="team-a", name="bert"),
            (
                f'trainjobs.{GROUP} "bert" is forbidden: User "jane" cannot get resource "trainjobs" '
                f'in API group "{GROUP}" in the namespace "team-a"'
            ),
            {"name": "bert", "group": GROUP, "kind": "trainjobs"},
        ),
        (
            denied(namespace="team-a", name="bert", subresource="progress"),
            (
                f'trainjobs.{GROUP} "bert" is forbidden: '
                'User "jane" cannot get resource "trainjobs/progress" '
                f'in API group "{GROUP}" in the namespace "team-a"'
            ),
            {"name": "bert", "group": GROUP, "kind": "trainjobs"},
        ),
        (
            denied(namespace="team-a", group="", version="v1", resource="pods", subresource="log"),
            (
                'pods is forbidden: User "jane" cannot get resource "pods/log" in API group "" '
                'in the namespace "team-a"'
            ),
            {"kind": "pods"},
        ),
        (
            denied(verb="list"),
            (
                f'trainjobs.{GROUP} is forbidden: User "jane" cannot list resource "trainjobs" '
                f'in API group "{GROUP}" at the cluster scope'
            ),
            {"group": GROUP, "kind": "trainjobs"},
        ),
        (
            denied(verb="list", reason="quota of patience exceeded"),
            (
                f'trainjobs.{GROUP} is forbidden: User "jane" cannot list resource "trainjobs" '
                f'in API group "{GROUP}" at the cluster scope: quota of patience exceeded'
            ),
            {"group": GROUP, "kind": "trainjobs"},
        ),
        (
            denied(is_resource=False, path="/metrics"),
            'forbidden: User "jane" cannot get path "/metrics"',
            {},
        ),
        (
            denied(is_resource=False, path='/nope/<x>"\n'),
            'forbidden: User "jane" cannot get path "/nope/&lt;x&gt;\\" "',
            {},
        ),
        (
            denied(is_resource=False, path="/x", user="<b>&"),
            'forbidden: User "&lt;b&gt;&amp;" cannot get path "/x"',
            {},
        ),
        (
            denied(verb="list", name="a&b"),  # the name is not made safe for HTML, as in Go
            (
                f'trainjobs.{GROUP} "a&b" is forbidden: User "jane" cannot list resource "trainjobs" '
                f'in API group "{GROUP}" at the cluster scope'
            ),
            {"name": "a&b", "group": GROUP, "kind": "trainjobs"},
        ),
    ],
)
def test_a_denial_has_the_api_servers_own_wording(
    error: AccessDenied, message: str, details: dict[str, Any]
) -> None:
    """Z14, Z15."""
    assert body_of(error) == status(403, "Forbidden", message, details=details)


def test_a_denial_forbids_sniffing() -> None:
    """Z15."""
    assert (b"x-content-type-options", b"nosniff") in answer_to(denied()).headers


def test_a_failed_review_is_a_500_in_text_that_hides_its_cause() -> None:
    """Z13: never a 403, never a Status."""
    answer = answer_to(ReviewFailed("dial tcp 10.0.0.1: secret detail"), uri="/apis/x?a=<b>")
    assert (answer.status, answer.content_type) == (500, "text/plain; charset=utf-8")
    assert answer.body == (
        b'Internal Server Error: "/apis/x?a=&lt;b&gt;": the access review could not be made\n'
    )


def test_the_unforeseen_is_a_500_that_hides_its_cause() -> None:
    body = body_of(ZeroDivisionError("secret detail"))
    assert (body["code"], body["reason"]) == (500, "InternalError")
    assert body["message"].startswith("Internal error occurred: ")
    assert body["details"]["causes"][0]["message"] in body["message"]
    assert "secret" not in json.dumps(body)


def test_too_many_requests_are_answered_in_text() -> None:
    """R1, P11."""
    answer = answer_to(Overloaded())
    assert (answer.status, answer.content_type) == (429, "text/plain; charset=utf-8")
    assert answer.body == b"Too many requests, please try again later.\n"
    assert (b"retry-after", b"1") in answer.headers


@pytest.mark.parametrize("error", [Unavailable("x", retry_after_s=7), TooLargeResourceVersion(2, 1)])
def test_retry_after_mirrors_the_details(error: RequestError) -> None:
    """R2: without the header clients do not retry."""
    assert (b"retry-after", b"%d" % error.retry_after_s) in answer_to(error).headers


@pytest.mark.parametrize("error", [BadRequest("x"), UnknownRoute(), Timeout("x"), Unauthenticated()])
def test_nothing_asks_for_a_retry_that_cannot_help(error: Exception) -> None:
    assert all(name != b"retry-after" for name, _ in answer_to(error).headers)


def test_an_error_is_yaml_for_whoever_accepts_yaml() -> None:
    """R10."""
    answer = answer_to(ObjectNotFound("trainjobs", "x"), (b"accept", b"application/yaml"))
    assert isinstance(answer.body, bytes)
    assert (answer.status, answer.content_type) == (404, "application/yaml")
    assert yaml.safe_load(answer.body) == body_of(ObjectNotFound("trainjobs", "x"))


def test_an_error_keeps_its_code_when_nothing_can_be_negotiated() -> None:
    """R10."""
    answer = answer_to(ObjectNotFound("trainjobs", "x"), (b"accept", b"text/html"))
    assert (answer.status, answer.content_type) == (404, "application/json")


@pytest.mark.parametrize("agent", [b"kubectl/v1", b"curl/8.5"])
def test_a_json_body_ends_with_a_newline(agent: bytes) -> None:
    """R13."""
    answer = answer_to(UnknownRoute(), (b"user-agent", agent))
    assert isinstance(answer.body, bytes)
    assert answer.body.endswith(b"}\n")
    assert (answer.body.count(b"\n") > 1) is agent.startswith(b"curl")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("bert", '"bert"'),
        ("", '""'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("größe 日本 \U0001f600", '"größe 日本 \U0001f600"'),
        ("a\nb\x1b[2J", '"a b\N{REPLACEMENT CHARACTER}[2J"'),
        (b"\xff".decode("utf-8", "surrogateescape"), '"\N{REPLACEMENT CHARACTER}"'),
    ],
)
def test_quoted_text_can_be_read_and_does_no_harm(text: str, quoted: str) -> None:
    """Z15."""
    assert quote(text) == quoted


@given(st.text())
def test_quoted_text_is_one_printable_line(text: str) -> None:
    assert quote(text).isprintable()
    json.dumps(quote(text)).encode()  # no lone surrogate is left
