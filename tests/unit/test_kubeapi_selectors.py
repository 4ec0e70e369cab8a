"""Label and field selectors: L15, L16, L17, Z10. The texts are those kube-apiserver 1.36 answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, strategies as st

from tests.jobs import document
from visibility_api.auth.identity import Requirement
from visibility_api.errors.status import BadRequest
from visibility_api.jobs.job import Phase
from visibility_api.kubeapi.selectors.label_selectors import MAX_CHARACTERS, MAX_REQUIREMENTS
from visibility_api.kubeapi.selectors.parsing import parse_field_selector, parse_label_selector

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


_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_EXAMPLES = f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
_SIGNS = "consist of alphanumeric characters, '-', '_' or '.'"
_ENDS = "and must start and end with an alphanumeric character"
_INVALID = "unable to parse requirement: <nil>: Invalid value"
_INVALID_VALUE = "unable to parse requirement: values[0]"
_OR_EMPTY = "a valid label must be an empty string or"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a in x)", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        (
            "a>x",
            f"{_INVALID_VALUE}: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("-a", f'{_INVALID}: "-a": name part must {_SIGNS}, {_ENDS} {_EXAMPLES}'),
        ("/a", 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'),
        (
            "x" * 64,
            f'{_INVALID}: "{"x" * 64}": name part must be no more than 63 bytes',
        ),
        (
            "a=-x",
            (
                f'{_INVALID_VALUE}[a]: Invalid value: "-x": {_OR_EMPTY} {_SIGNS}, '
                f"{_ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345', "
                f"regex used for validation is '({_NAME})?')"
            ),
        ),
    ],
)
def test_a_label_selector_is_refused_in_the_parsers_words(text: str, message: str) -> None:
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
    ("text", "message"),
    [
        ("abc", "invalid selector: 'abc'; can't understand 'abc'"),
        ("metadata.name=a,b", "invalid selector: 'metadata.name=a,b'; can't understand 'b'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=a\\b", "invalid field selector: invalid escape sequence: \\b"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_a_field_selector_is_refused_in_the_parsers_words(text: str, message: str) -> None:
    """L16"""
    with pytest.raises(BadRequest) as refused:
        parse_field_selector(text)
    assert refused.value.message == message


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
