"""Section R: what every answer has, and every refusal."""

from __future__ import annotations

import gzip
import re
import uuid
from typing import Any

import pytest
import yaml

from tests.e2e.api import Object
from tests.e2e.conformance.fronts import Client, Front, refusal
from tests.e2e.conformance.team import Team, names
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer

_PROTOBUF = "application/vnd.kubernetes.protobuf"
_META = "g=meta.k8s.io;v=v1"
_ACCEPTED = "only the following media types are accepted: application/json, application/yaml"


def _status(code: int, reason: str, message: str, details: Object | None = None) -> Object:
    status: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return status if details is None else status | {"details": details}


def _missing(name: str) -> Object:
    details = {"name": name, "group": GROUP, "kind": "trainjobs"}
    return _status(404, "NotFound", f'trainjobs.{GROUP} "{name}" not found', details)


_UNKNOWN = _status(404, "NotFound", "the server could not find the requested resource", {})
_NOT_ALLOWED = _status(
    405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
)


@pytest.mark.parametrize("path", ["/nobody", "/nobody/progress"])
def test_R1_R4_what_is_absent_is_named_as_the_object_itself(front: Front, crowd: Team, path: str) -> None:
    assert refusal(front.alice, crowd.path + path, 404) == _missing("nobody")


@pytest.mark.parametrize("path", ["/nothings", "/nothings/a", "/trainjobs/a/b/c", "/trainjobs/a/status"])
def test_R1_an_unknown_route_is_a_status_too(front: Front, crowd: Team, path: str) -> None:
    assert refusal(front.admin, f"{PREFIX}/namespaces/{crowd.namespace}{path}", 404) == _UNKNOWN


def test_R2_when_to_try_again_stands_in_the_header_too(front: Front, crowd: Team) -> None:
    answer = front.alice.send(crowd.path, resourceVersion=10**19)
    assert answer.headers["retry-after"] == str(answer.json()["details"]["retryAfterSeconds"])
    assert "retry-after" not in front.alice.send(f"{crowd.path}/nobody").headers


def test_R4_an_unknown_namespace_is_empty(front: Front) -> None:
    path = f"{PREFIX}/namespaces/no-such-namespace/trainjobs"
    assert front.admin.get(path)["items"] == []
    assert refusal(front.admin, f"{path}/a", 404) == _missing("a")


def test_R4_a_name_without_a_namespace_is_no_route(front: Front, crowd: Team) -> None:
    for path in ("/trainjobs/a", "/trainjobs/a/progress"):
        assert refusal(front.admin, PREFIX + path, 404) == _UNKNOWN


def test_R5_outside_our_group_there_is_nothing(direct: Front) -> None:
    for path in ("/nothing", "/apis/other.example.com/v1", "/docs", "/openapi.json", "/openapi/v3/apis/x"):
        answer = direct.admin.send(path)
        assert answer.status_code == 404
        assert "detail" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["", "/a", "/a/progress"])
def test_R6_a_resource_knows_get_and_nothing_else(front: Front, crowd: Team, method: str, path: str) -> None:
    answer = front.admin.send(crowd.path + path, method=method, headers={"Origin": "https://example.com"})
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers
    if method != "HEAD":
        assert answer.json() == _NOT_ALLOWED


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi/v2", "/openapi/v3"])
def test_R6_head_works_outside_resources(direct: Front, path: str) -> None:
    answer = direct.admin.send(path, method="HEAD")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "*/*",
        "application/*",
        "application/json",
        f"{_PROTOBUF},application/json",
        "application/yaml;q=0.5,application/json",
        "application/*,text/html",
        "application/json;stream=watch",
        "application/json;charset=utf-8;unknown=1",
        f"application/json;as=Unknown;{_META},application/json",
        "application/json;as=Table;g=meta.k8s.io;v=v9,application/json",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ],
)
def test_R7_R8_the_first_form_we_have_is_sent(front: Front, crowd: Team, accept: str | None) -> None:
    answer = front.alice.send(f"{crowd.path}/a", accept=accept)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["kind"] == "TrainJobProgress"


@pytest.mark.parametrize(
    "accept", [_PROTOBUF, "text/html", f"application/json;as=Unknown;{_META}", "application/json;q=0"]
)
def test_R7_what_we_do_not_have_is_not_acceptable(front: Front, crowd: Team, accept: str) -> None:
    for path in ("", "/a"):
        answer = front.alice.send(crowd.path + path, accept=accept)
        assert answer.status_code == 406
        assert answer.json() == _status(406, "NotAcceptable", _ACCEPTED)


def test_R9_a_transformation_must_fit_the_number(front: Front, crowd: Team) -> None:
    one, many = (f"application/json;as=PartialObjectMetadata{end};{_META}" for end in ("", "List"))
    assert front.alice.send(crowd.path, accept=one).status_code == 406
    assert front.alice.send(f"{crowd.path}/a", accept=many).status_code == 406
    assert front.alice.get(f"{crowd.path}/a", accept=one)["kind"] == "PartialObjectMetadata"
    listed = front.alice.get(crowd.path, accept=many, limit=2)
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["metadata"].keys() >= {"resourceVersion", "continue"}
    assert names(listed) == ["a", "b"]


@pytest.mark.parametrize("accept", [_PROTOBUF, "text/html", f"application/json;as=Table;{_META}"])
def test_R10_an_error_keeps_its_code_whatever_was_accepted(front: Front, crowd: Team, accept: str) -> None:
    answer = front.alice.send(f"{crowd.path}/nobody", accept=accept)
    if accept.startswith("application/json"):
        assert (answer.status_code, answer.json()) == (404, _missing("nobody"))
    else:  # the form is settled before the object is looked for
        assert answer.status_code == 406
    routeless = front.admin.send(f"{PREFIX}/nothings", accept=accept)
    assert (routeless.status_code, routeless.json()) == (404, _UNKNOWN)
    assert routeless.headers["content-type"] == "application/json"


def test_R10_an_error_comes_in_the_form_asked_for(front: Front, crowd: Team) -> None:
    answer = front.alice.send(f"{crowd.path}/nobody", accept="application/yaml")
    assert answer.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(answer.text) == _missing("nobody")


def test_R11_yaml_is_for_objects_and_lists_only(front: Front, crowd: Team) -> None:
    for path in ("", "/a"):

        def is_the_same(path: str = path) -> bool:
            """Unless something changes in between, of whatever namespace: a list has the newest revision."""
            answer = front.alice.send(crowd.path + path, accept="application/yaml")
            assert answer.headers["content-type"] == "application/yaml"
            return bool(yaml.safe_load(answer.text) == front.alice.get(crowd.path + path))

        wait_until(is_the_same, what="YAML and JSON say the same")
    refused = front.alice.send(crowd.path, accept="application/yaml", watch="1")
    assert refused.status_code == 406
    assert yaml.safe_load(refused.text)["message"].endswith(": application/json;stream=watch")


def test_R12_metadata_alone_is_all_of_it(front: Front, crowd: Team) -> None:
    form = f"as=PartialObjectMetadata;{_META}"
    accept = f"{_PROTOBUF};{form},application/json;{form},application/json"
    whole = front.alice.get(f"{crowd.path}/a")
    assert front.alice.get(f"{crowd.path}/a", accept=accept) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": whole["metadata"],
    }


@pytest.mark.parametrize(
    ("query", "agent", "is_indented"),
    [
        ({}, "kubectl/v1.36", False),
        ({}, "curl/8.0", True),
        ({}, "Mozilla/5.0 (X11)", True),
        ({"pretty": "true"}, "kubectl/v1.36", True),
        ({"pretty": "1"}, "kubectl/v1.36", True),
        ({"pretty": "false"}, "curl/8.0", False),
    ],
)
def test_R13_json_is_indented_for_people(
    front: Front, crowd: Team, query: dict[str, Any], agent: str, is_indented: bool
) -> None:
    for path in ("", "/a", "/nobody"):
        text = front.alice.send(crowd.path + path, headers={"User-Agent": agent}, **query).text
        assert text.endswith("\n")
        assert (text.count("\n") > 1) is is_indented


def _raw(client: Client, path: str, encoding: str) -> tuple[dict[str, str], bytes]:
    headers = {"Accept-Encoding": encoding}
    with client.http.stream("GET", path, headers=headers) as answer:
        return dict(answer.headers), b"".join(answer.iter_raw())


def test_R14_large_answers_are_zipped_for_those_who_can(front: Front, team: Team) -> None:
    labels: dict[str, Any] = {f"label-{number}": "x" * 63 for number in range(120)}
    for name in "abcdefghijklmno":
        team.create(name, **labels)
    revision = team.list()["metadata"]["resourceVersion"]
    at = f"{team.path}?resourceVersionMatch=Exact&resourceVersion={revision}"
    plain_headers, plain = _raw(front.alice, at, "identity")
    zipped_headers, zipped = _raw(front.alice, at, "gzip")
    assert len(plain) > 128 * 1024 > len(zipped)
    assert "content-encoding" not in plain_headers
    assert zipped_headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in zipped_headers["vary"]
    assert gzip.decompress(zipped) == plain
    small_headers, small = _raw(front.alice, f"{team.path}/a", "gzip")
    assert "content-encoding" not in small_headers
    assert small.startswith(b"{")


def test_R15_every_answer_can_be_found_again(direct: Front, crowd: Team) -> None:
    sent = str(uuid.uuid4())
    for path in (crowd.path, f"{crowd.path}/nobody", "/healthz", PREFIX, "/nothing"):
        echoed = direct.admin.send(path, headers={"Audit-ID": sent})
        assert echoed.headers.get_list("audit-id") == [sent]
        (made,) = direct.admin.send(path).headers.get_list("audit-id")
        assert str(uuid.UUID(made)) == made
        assert echoed.headers["cache-control"] == "no-cache, private"


def test_R16_remarks_come_as_warnings(server: VisibilityServer) -> None:
    answer = server.get("/version", headers=[("Authorization", "Bearer  two-blanks")])
    assert re.fullmatch(r'299 - "([^"\\]|\\.)+"', answer.headers.get("warning", ""))


@pytest.mark.parametrize("timeout", ["x", "5", "1d", "s"])
def test_R17_a_timeout_that_is_none_is_a_bad_request(front: Front, crowd: Team, timeout: str) -> None:
    status = refusal(front.alice, crowd.path, 400, timeout=timeout)
    assert status["message"].startswith("invalid timeout specified in the request URL")


@pytest.mark.parametrize("timeout", ["0", "5s", "1m0.5s", "1000h", ""])
def test_R17_a_timeout_never_lengthens_and_seldom_matters(front: Front, crowd: Team, timeout: str) -> None:
    assert names(front.alice.get(crowd.path, timeout=timeout))


def test_R18_times_are_whole_seconds_in_utc(front: Front, crowd: Team) -> None:
    moment = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    document = front.alice.get(f"{crowd.path}/a")
    moments = [document["metadata"]["creationTimestamp"]]
    moments += [condition["lastTransitionTime"] for condition in document["status"]["conditions"]]
    assert len(moments) > 1
    assert all(moment.fullmatch(each) for each in moments)


def test_R19_unknown_parameters_are_ignored_and_export_is_refused(front: Front, crowd: Team) -> None:
    assert names(front.alice.get(crowd.path, unknown="1", fieldManager="me"))
    for path in (crowd.path, f"{crowd.path}/a"):
        assert refusal(front.alice, path, 400, export="true")["reason"] == "BadRequest"
