"""Which form an Accept header gets: R7 to R13, D9, D11."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from visibility_api.errors.status import NotAcceptable
from visibility_api.kubeapi.negotiation import (
    JSON,
    MAX_PARAMETERS,
    YAML,
    Representation,
    Target,
    is_pretty,
    negotiate,
    negotiate_error,
    parse_accept,
)

KUBECTL_TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
METADATA_CLIENT = (
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("*", JSON),
        ("application/*", JSON),
        ("application/json", JSON),
        ("Application/JSON", JSON),
        ("application/yaml", YAML),
        ("application/vnd.kubernetes.protobuf,application/json", JSON),
        ("application/json;q=0.5,application/yaml", YAML),
        ("application/yaml;q=0.5,application/json;q=0.9", JSON),
        ("application/yaml;q=0,*/*", JSON),
        ("*/*,application/yaml", YAML),  # specific before wildcard
        ("application/*,application/yaml", YAML),
        ("application/yaml,application/json", YAML),  # as written
        ("application/json;charset=utf-8", JSON),  # unknown parameters are ignored (R8)
        ("application/json;profile=nopeer", JSON),
        (BROWSER, JSON),
        (", ,application/yaml,", YAML),
        ("nonsense,application/yaml", YAML),
        ("a/b/c,application/yaml", YAML),
        ("application/json;q=high,application/yaml;q=0.1", YAML),  # Go reads a broken weight as 0
    ],
)
def test_the_best_clause_we_serve_decides(accept: str | None, expected: str) -> None:
    """R7."""
    assert negotiate(accept, target=Target.OBJECT).media_type == expected


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;q=0",
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=other",
        "application/json;stream=other",
        "application/yaml;stream=watch",
    ],
)
def test_what_we_lack_is_refused_with_what_we_have(accept: str) -> None:
    """R7, R8."""
    with pytest.raises(NotAcceptable) as refused:
        negotiate(accept, target=Target.LIST)
    assert str(refused.value) == (
        "only the following media types are accepted: application/json, application/yaml"
    )


_TABLE = "application/json;as=Table;v={};g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "target", "expected"),
    [
        (KUBECTL_TABLE, Target.OBJECT, (JSON, "Table", "v1")),
        (KUBECTL_TABLE, Target.LIST, (JSON, "Table", "v1")),
        (KUBECTL_TABLE, Target.WATCH, (JSON, "Table", "v1")),
        (_TABLE.format("v1beta1"), Target.LIST, (JSON, "Table", "v1beta1")),  # an old kubectl
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Target.LIST, (YAML, "Table", "v1")),
        (METADATA_CLIENT, Target.OBJECT, (JSON, "PartialObjectMetadata", "v1")),
        (f"{_TABLE.format('v2')},application/yaml", Target.LIST, (YAML, None, "v1")),
        ("application/json;stream=watch", Target.WATCH, (JSON, None, "v1")),
        (None, Target.WATCH, (JSON, None, "v1")),
    ],
)
def test_the_form_is_that_of_the_first_clause_we_serve(
    accept: str | None, target: Target, expected: tuple[str, str | None, str]
) -> None:
    """T1, R8, R9, R12, W2: one we lack disqualifies its clause only."""
    chosen = negotiate(accept, target=target)
    assert (chosen.media_type, chosen.transform, chosen.version) == expected


@pytest.mark.parametrize(
    ("kind", "target", "message"),
    [
        (
            "PartialObjectMetadata",
            Target.LIST,
            "you requested PartialObjectMetadata, but the requested object is a list",
        ),
        (
            "PartialObjectMetadataList",
            Target.OBJECT,
            "you requested PartialObjectMetadataList, but the requested object is not a list",
        ),
        (
            "PartialObjectMetadataList",
            Target.WATCH,
            "you requested PartialObjectMetadataList, but the requested object is not a list",
        ),
    ],
)
def test_metadata_of_the_wrong_number_is_refused(kind: str, target: Target, message: str) -> None:
    """R9: even when a later clause could be served, as the Go server does."""
    accept = f"application/json;as={kind};g=meta.k8s.io;v=v1,application/json"
    with pytest.raises(NotAcceptable, match=message):
        negotiate(accept, target=target)


def test_a_watch_is_not_served_as_yaml() -> None:
    """R11."""
    with pytest.raises(NotAcceptable, match=r"accepted: application/json;stream=watch$"):
        negotiate("application/yaml", target=Target.WATCH)


def test_discovery_has_no_transformations() -> None:
    with pytest.raises(NotAcceptable):
        negotiate("application/json;as=Table;v=v1;g=meta.k8s.io", target=Target.PLAIN)


@pytest.mark.parametrize(
    ("parameter", "agent", "expected"),
    [
        (None, None, False),
        (None, "kubectl/v1.36.0", False),
        (None, "curl/8.5.0", True),
        (None, "Wget/1.21", True),
        (None, "Mozilla/5.0 (X11)", True),
        (None, "Mozilla/4.0", False),
        ("true", "kubectl/v1.36.0", True),
        ("1", None, True),
        ("false", "curl/8.5.0", False),
        ("0", "curl/8.5.0", False),
        ("", "curl/8.5.0", True),  # an empty value says nothing
        ("yes", "curl/8.5.0", False),  # Go's ParseBool fails, and that is false
    ],
)
def test_people_get_indented_json_unless_they_say_otherwise(
    parameter: str | None, agent: str | None, expected: bool
) -> None:
    """R13."""
    assert is_pretty(parameter, agent) is expected
    assert negotiate(None, target=Target.LIST, pretty=parameter, user_agent=agent).pretty is expected


def test_the_accept_header_itself_may_ask_for_indentation() -> None:
    """R8: `pretty=1`, and no other value."""
    assert negotiate("application/json;pretty=1", target=Target.LIST).pretty
    assert not negotiate("application/json;pretty=true", target=Target.LIST).pretty


def test_yaml_is_never_indented_twice() -> None:
    assert negotiate("application/yaml", target=Target.LIST, pretty="1") == Representation(media_type=YAML)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, JSON),
        ("application/yaml", YAML),
        ("text/html", JSON),  # R10: an error is not hidden behind a 406
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", YAML),
        (KUBECTL_TABLE, JSON),
    ],
)
def test_an_error_ignores_transformations_and_falls_back_to_json(accept: str | None, expected: str) -> None:
    """R10."""
    assert negotiate_error(accept, pretty=None, user_agent=None).media_type == expected


def test_a_header_too_long_to_keep_is_still_read() -> None:
    accept = "application/json;as=" + "x" * 5000 + ",application/yaml"
    assert negotiate(accept, target=Target.LIST).media_type == YAML


def test_clauses_beyond_the_bound_are_not_read() -> None:
    assert len(parse_accept(",".join(["application/yaml"] * 1000))) == 64


@given(st.text(max_size=200) | st.from_regex(r"([a-z*]+/[a-z*]+(;[a-z]+=[a-z0-9.]+)*,?)+", fullmatch=True))
def test_any_header_is_answered_or_refused(accept: str) -> None:
    for target in Target:
        try:
            chosen = negotiate(accept, target=target)
        except NotAcceptable:
            continue
        assert chosen.media_type in (JSON, YAML)


def test_parameters_beyond_the_bound_are_not_read() -> None:
    """A megabyte of them took a quarter of a second, also of who has no credentials."""
    (clause,) = parse_accept("application/json" + ";a=b" * 10_000)
    assert len(clause.parameters) == MAX_PARAMETERS
