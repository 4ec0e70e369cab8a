"""Label and field selectors: L15, L16, L17, Z10."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, strategies as st

from tests.jobs import document
from visibility_api.auth.identity import Requirement
from visibility_api.errors.status import BadRequest
from visibility_api.jobs.job import Phase
from visibility_api.kubeapi.selectors.parsing import (
    MAX_CHARACTERS,
    MAX_REQUIREMENTS,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "bert", "gpus": "8", "empty": "", "team.example.com/name": "a"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  ", True),
        ("app", True),
        ("nope", False),
        ("!app", False),
        ("! nope", True),
        ("app=bert", True),
        ("app==bert", True),
        ("app = bert", True),
        ("app\t=\nbert", True),
        ("app=gpt", False),
        ("app!=gpt", True),
        ("app!=bert", False),
        ("nope!=x", True),  # also matches objects without the key
        ("nope notin (x)", True),
        ("app in (gpt,bert)", True),
        ("app in (gpt)", False),
        ("app notin (gpt, bert)", False),
        ("nope in (x)", False),
        ("empty=", True),
        ("empty", True),
        ("app=", False),
        ("empty in ()", True),  # one empty value
        ("empty in (,)", True),
        ("empty in (a,,b)", True),
        ("empty in (a,)", True),
        ("empty in (,a)", True),
        ("app in ()", False),
        ("nope=", False),
        ("gpus>7", True),
        ("gpus>8", False),
        ("gpus<9", True),
        ("gpus>-1", None),  # refused: a value does not begin with a sign
        ("app>1", False),
        ("nope>1", False),
        ("app=bert,gpus=8", True),
        ("app=bert,gpus=9", False),
        ("app=bert,", None),
        ("team.example.com/name=a", True),
        ("in in (in)", False),
        ("app notin (in,notin)", True),
        ("app=in", False),
    ],
)
def test_a_label_selector_matches_as_the_api_servers_does(text: str, expected: bool | None) -> None:
    """L15"""
    if expected is None:
        with pytest.raises(BadRequest):
            parse_label_selector(text)
    else:
        assert parse_label_selector(text).matches(LABELS) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a===b", 'cannot parse the selector from "a===b" on'),
        (",a", 'cannot parse the selector from ",a" on'),
        ("a=b,,c", 'cannot parse the selector from ",c" on'),
        ("a=b,", 'cannot parse the selector from "a=b," on'),
        ("a b", 'cannot parse the selector from "a b" on'),
        ("x,a=b c", 'cannot parse the selector from "a=b c" on'),
        ("!", 'cannot parse the selector from "!" on'),
        ("!a=b", 'cannot parse the selector from "!a=b" on'),
        ("a in x)", 'cannot parse the selector from "a in x)" on'),
        ("a in (x", 'cannot parse the selector from "a in (x" on'),
        ("a in (=)", 'cannot parse the selector from "a in (=)" on'),
        ("a=(b)", 'cannot parse the selector from "a=(b)" on'),
        ("a in (x y)", '"x y" in the selector is not the value of a label'),
        ("a>x", '"x" in the selector is not an integer'),
        ("-a", '"-a" in the selector is not the key of a label'),
        ("/a", '"/a" in the selector is not the key of a label'),
        ("a/b/c", '"a/b/c" in the selector is not the key of a label'),
        (f"{'p' * 254}/a", f'"{"p" * 64}" in the selector is not the key of a label'),
        ("x" * 64, f'"{"x" * 64}" in the selector is not the key of a label'),
        ("a=-x", '"-x" in the selector is not the value of a label'),
        (f"a={'x' * 64}", f'"{"x" * 64}" in the selector is not the value of a label'),
    ],
)
def test_of_a_wrong_label_selector_the_wrong_part_is_told(text: str, message: str) -> None:
    """L15"""
    with pytest.raises(BadRequest) as refused:
        parse_label_selector(text)
    assert refused.value.message == message


@given(st.text(alphabet=st.sampled_from("ab-_./=!<>(), in\t\\é1\x00"), max_size=40))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    for parse in (parse_label_selector, parse_field_selector):
        try:
            selector = parse(text)
        except BadRequest:
            continue
        list(selector.requirements())
    try:
        parse_label_selector(text).matches(LABELS)
        parse_field_selector(text).matches(document())
    except BadRequest:
        pass


_VALUES = st.sampled_from(["", "a", "b", "1", "10"])


@given(
    st.dictionaries(st.sampled_from(["k", "m"]), _VALUES),
    st.lists(st.tuples(st.sampled_from(["k", "m"]), st.sampled_from(["=", "==", "!="]), _VALUES), max_size=4),
)
def test_terms_are_joined_by_and(labels: Mapping[str, str], terms: list[tuple[str, str, str]]) -> None:
    """L15: the same answer as a plain reading of each term."""
    text = ",".join("".join(term) for term in terms)
    expected = all((labels.get(key) == value) is (operator != "!=") for key, operator, value in terms)
    assert parse_label_selector(text).matches(labels) is expected


def test_requirements_are_what_an_access_review_can_express() -> None:
    """Z10: comparisons are left out, which only widens the question."""
    selector = parse_label_selector("b in (z,y),a!=1,!c,d,e>5")
    assert list(selector.requirements()) == [
        Requirement(key="a", operator="NotIn", values=("1",)),
        Requirement(key="b", operator="In", values=("y", "z")),
        Requirement(key="c", operator="DoesNotExist"),
        Requirement(key="d", operator="Exists"),
    ]
    fields = parse_field_selector("metadata.name=x,status.phase!=Failed")
    assert list(fields.requirements()) == [
        Requirement(key="metadata.name", operator="In", values=("x",)),
        Requirement(key="status.phase", operator="NotIn", values=("Failed",)),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        (",,", True),
        ("metadata.name=bert", True),
        ("metadata.name==bert", True),
        ("metadata.name!=bert", False),
        ("metadata.name=gpt", False),
        ("metadata.namespace=team-a,metadata.name=bert", True),
        ("metadata.name=bert,metadata.name=gpt", False),
        ("status.phase=Running", True),
        ("status.phase!=Running", False),
        (r"metadata.name!=a\,b\=c\\d", True),
        ("!=", True),
        ("=", True),
    ],
)
def test_a_field_selector_matches_name_namespace_and_phase(text: str, expected: bool) -> None:
    """L16, L17, L18"""
    selector = parse_field_selector(text)
    selector.check_known()
    assert selector.matches(document("bert", namespace="team-a", phase=Phase.RUNNING)) is expected


def test_escaped_characters_belong_to_the_value() -> None:
    """L16"""
    assert parse_field_selector(r"metadata.name=a\,b\=c\\d").required("metadata.name") == "a,b=c\\d"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("abc", "abc"),
        ("metadata.name=a,b", "b"),
        ("metadata.name=a=b", "metadata.name=a=b"),
        ("metadata.name=a\\b", r"metadata.name=a\\b"),
        ("metadata.name=a\\", r"metadata.name=a\\"),
    ],
)
def test_of_a_wrong_field_selector_the_wrong_part_is_told(text: str, rest: str) -> None:
    """L16"""
    with pytest.raises(BadRequest) as refused:
        parse_field_selector(text)
    assert refused.value.message == f'cannot parse the selector from "{rest}" on'


@pytest.mark.parametrize("field", ["spec.x", "", "metadata.name "])
def test_a_field_that_cannot_be_selected_is_named_with_those_that_can(field: str) -> None:
    """L17"""
    selector = parse_field_selector(f"{field}=1")
    with pytest.raises(BadRequest) as refused:
        selector.check_known()
    assert refused.value.message == (
        f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace", "status.phase"'
    )


@pytest.mark.parametrize("parse", [parse_label_selector, parse_field_selector])
def test_a_selector_has_a_bound(parse: Callable[[str], object]) -> None:
    """Each requirement is compared with each object of a list."""
    terms = ",".join(f"metadata.name!=a{number}" for number in range(MAX_REQUIREMENTS))
    parse(terms)
    with pytest.raises(BadRequest, match=f"^the selector has more than {MAX_REQUIREMENTS} requirements$"):
        parse(terms + ",metadata.name!=b")
    with pytest.raises(BadRequest, match=f"^the selector is longer than {MAX_CHARACTERS} characters$"):
        parse("metadata.name=" + "a" * MAX_CHARACTERS)


def test_a_few_hundred_names_are_no_long_selector() -> None:
    names = ",".join(f"a-training-job-of-our-team-{number}" for number in range(400))
    (requirement,) = parse_label_selector(f"name in ({names})").requirements()
    assert len(requirement.values) == 400
