"""What a request line asks for: Z3 to Z10, R17, and what is too much to read."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from visibility_api.app.request_info import (
    DEFAULT_TIMEOUT_S as LIMIT,
    RequestInfo,
    parse_query,
    read_request,
)
from visibility_api.auth.identity import Attributes, Requirement
from visibility_api.errors.status import BadRequest

BASE = "/apis/visibility.trainer.kubeflow.org/v1alpha1"


def read(target: str, method: str = "GET") -> RequestInfo:
    path, _, query = target.partition("?")
    return read_request(method, path, query.encode())


def asked(target: str, method: str = "GET") -> tuple[str, str, str, str, str]:
    """verb, namespace, resource, subresource, name"""
    a = read(target, method).attributes
    assert a.is_resource
    return a.verb, a.namespace, a.resource, a.subresource, a.name


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/apis",
        "/apis/g",
        "/apis/g/v1",
        "/apis/g/v1/",
        "/healthz",
        "/readyz/ping",
        "/openapi/v3/apis/g/v1",
        "/api/v1/x/y/z",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PURGE"])
def test_short_paths_and_paths_outside_apis_are_no_resources(path: str, method: str) -> None:
    """Z3: the verb is the method in lower case, the path stays as it was sent."""
    assert read(path, method).attributes == Attributes(verb=method.lower(), path=path)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"{BASE}/trainjobs", ("list", "", "trainjobs", "", "")),
        (f"{BASE}/trainjobs/", ("list", "", "trainjobs", "", "")),
        (f"{BASE}/trainjobs?watch=true", ("watch", "", "trainjobs", "", "")),
        (f"{BASE}/namespaces/a/trainjobs", ("list", "a", "trainjobs", "", "")),
        (f"{BASE}/namespaces/a/trainjobs?watch", ("watch", "a", "trainjobs", "", "")),
        (f"{BASE}/namespaces/a/trainjobs/x", ("get", "a", "trainjobs", "", "x")),
        (f"{BASE}/namespaces/a/trainjobs/x?watch=1", ("get", "a", "trainjobs", "", "x")),
        (f"{BASE}/namespaces/a/trainjobs/x/progress", ("get", "a", "trainjobs", "progress", "x")),
        (f"{BASE}/trainjobs/x", ("get", "", "trainjobs", "", "x")),
        (f"{BASE}/dashboard", ("list", "", "dashboard", "", "")),
        (f"{BASE}/namespaces/a/dashboard", ("list", "a", "dashboard", "", "")),
        (f"{BASE}/namespaces", ("list", "", "namespaces", "", "")),
        (f"{BASE}/namespaces/a", ("get", "a", "namespaces", "", "a")),
        (f"{BASE}/namespaces/a/status", ("get", "a", "namespaces", "status", "a")),
        (f"{BASE}/namespaces/a/finalize", ("get", "a", "namespaces", "finalize", "a")),
        (f"{BASE}/watch/trainjobs", ("watch", "", "trainjobs", "", "")),
        (f"{BASE}/watch/namespaces/a/trainjobs/x", ("watch", "a", "trainjobs", "", "x")),
        (f"{BASE}/watch", ("list", "", "watch", "", "")),
    ],
)
def test_the_path_says_what_is_asked_for(target: str, expected: tuple[str, ...]) -> None:
    """Z3, Z4, Z7; compared with requestinfo.go."""
    assert asked(target) == expected


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        ("POST", "", "create"), ("PUT", "x", "update"), ("PATCH", "x", "patch"), ("GET", "x", "get"),
        ("HEAD", "x", "get"), ("HEAD", "", "list"), ("DELETE", "x", "delete"),
        ("DELETE", "", "deletecollection"), ("OPTIONS", "x", ""), ("PURGE", "", ""),
    ],
)  # fmt: skip
def test_the_method_says_what_is_done(method: str, name: str, expected: str) -> None:
    """Z4."""
    assert asked(f"{BASE}/namespaces/a/trainjobs/{name}", method)[0] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("watch", True), ("watch=", True), ("watch=1", True), ("watch=true", True), ("watch=yes", True),
        ("watch=0", False), ("watch=false", False), ("watch=FALSE", False), ("", False), ("watches=1", False),
        ("watch=0&watch=1", False), ("watch=1&watch=0", True),  # only the first counts
        ("watch=1&limit=abc", True), ("limit=abc&watch=true&timeoutSeconds=x", True),
    ],
)  # fmt: skip
def test_watch_is_set_by_anything_but_0_and_false(query: str, expected: bool) -> None:
    """Z5."""
    assert read(f"{BASE}/trainjobs?{query}").is_watch is expected


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("metadata.name%3Dbert", "bert"),
        ("metadata.name==bert", "bert"),
        ("status.phase=Running,metadata.name=bert", "bert"),
        ("metadata.name!=bert", ""),
        ("metadata.name=..", ""),  # no path segment
        ("metadata.name=.", ""),
        ("metadata.name=a/b", ""),
        ("metadata.name=a%2525", ""),
        ("metadata.namespace=bert", ""),
        ("metadata.name", ""),  # cannot be parsed
    ],
)
@pytest.mark.parametrize("watch", ["", "&watch=1"])
def test_the_one_name_a_field_selector_allows_is_the_name_in_the_review(
    selector: str, name: str, watch: str
) -> None:
    """Z8: RBAC `resourceNames` then works for list and watch."""
    assert asked(f"{BASE}/namespaces/a/trainjobs?fieldSelector={selector}{watch}")[4] == name


def test_selectors_are_part_of_the_question() -> None:
    """Z10."""
    attributes = read(f"{BASE}/trainjobs?fieldSelector=metadata.name=x&labelSelector=a=1,b").attributes
    assert attributes.field_requirements == (Requirement(key="metadata.name", operator="In", values=("x",)),)
    assert attributes.label_requirements == (
        Requirement(key="a", operator="In", values=("1",)),
        Requirement(key="b", operator="Exists"),
    )


@pytest.mark.parametrize("query", ["labelSelector=a+in+(", "fieldSelector=nonsense"])
def test_a_selector_that_cannot_be_parsed_only_widens_the_question(query: str) -> None:
    """Z10."""
    attributes = read(f"{BASE}/trainjobs?{query}").attributes
    assert (attributes.field_requirements, attributes.label_requirements) == ((), ())


def test_selectors_do_not_narrow_a_request_for_one_object() -> None:
    """Z10: a get ignores them, so its review must too."""
    target = f"{BASE}/namespaces/a/trainjobs/x?labelSelector=a=1&fieldSelector=metadata.name=y"
    attributes = read(target).attributes
    assert (attributes.name, attributes.field_requirements, attributes.label_requirements) == ("x", (), ())


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/namespaces/a/trainjobs/x/progress/more",
        f"{BASE}/namespaces//trainjobs",
        f"{BASE}//trainjobs",
        f"{BASE}/watch/trainjobs",
        f"{BASE}/watch/namespaces/a/trainjobs/x",
    ],
)
def test_paths_that_lead_nowhere_are_known_as_such(path: str) -> None:
    """Z7."""
    assert not read(path).is_routable


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("5s", 5.0), ("1500ms", 1.5), ("1m", LIMIT), ("2h", LIMIT), ("0", LIMIT),
        ("0s", LIMIT), ("", LIMIT), ("59s", 59.0),
    ],
)  # fmt: skip
def test_timeout_shortens_the_limit_and_never_lengthens_it(timeout: str, seconds: float) -> None:
    """R17."""
    info = read(f"{BASE}/trainjobs?timeout={timeout}")
    assert info.timeout_s == pytest.approx(seconds)
    info.check_timeout()


@pytest.mark.parametrize("timeout", ["5", "1m5", "-5s", "abc", "s", ".s", "5x", "1e3s", "1m2 s"])
def test_a_timeout_that_is_no_duration_is_a_fault(timeout: str) -> None:
    """R17."""
    with pytest.raises(BadRequest, match=f'invalid timeout .* "{timeout}" is not a duration'):
        read(f"{BASE}/trainjobs?timeout={timeout}").check_timeout()


def test_a_watch_has_no_timeout_parameter() -> None:
    """R17, W9: `timeoutSeconds` ends a watch."""
    info = read(f"{BASE}/trainjobs?watch=1&timeout=abc")
    assert (info.timeout_s, info.bad_timeout) == (LIMIT, "")


def test_a_query_is_decoded_once_and_keeps_blanks_and_order() -> None:
    assert parse_query(b"a=%2526&b&a=2&c=x+y&d=%C3%A9") == (
        ("a", "%26"), ("b", ""), ("a", "2"), ("c", "x y"), ("d", "é"),
    )  # fmt: skip


@given(
    st.sampled_from(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "X"]),
    st.lists(st.sampled_from(["apis", "g", "v1", "namespaces", "watch", "trainjobs", "status", "x", ""])),
    st.binary(max_size=60),
)
def test_any_request_line_is_read_or_refused(method: str, segments: list[str], query: bytes) -> None:
    try:
        info = read_request(method, "/" + "/".join(segments), query)
    except BadRequest:
        return
    parts = "/".join(segments).strip("/").split("/")
    assert info.attributes.is_resource is (len(parts) >= 4 and parts[0] == "apis")
    if info.attributes.is_resource and info.is_routable:
        # What is authorised is what is routed: it can be put together to the very path that was asked for.
        a = info.attributes
        scope = ["namespaces", a.namespace] if a.namespace and a.resource != "namespaces" else []
        named = [a.name] if a.name and a.verb not in ("list", "watch", "deletecollection") else []
        rest = [*scope, a.resource, *named, *([a.subresource] if a.subresource else [])]
        assert ["apis", a.group, a.version, *rest] == parts
