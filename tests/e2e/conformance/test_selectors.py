"""L15 to L18: label and field selectors of lists, at the server itself and through kube-apiserver."""

from __future__ import annotations

import pytest

from tests.e2e.conformance.fronts import Front, refusal
from tests.e2e.conformance.team import Team, names
from tests.e2e.visibility_server import PREFIX

_EVERYWHERE = f"{PREFIX}/trainjobs"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("model", "abcdfg"),
        ("!model", "e"),
        ("model=bert", "ab"),
        ("model==bert", "ab"),
        ("model!=bert", "cdefg"),
        ("model in (bert,gpt)", "abcf"),
        ("model notin (bert, gpt)", "deg"),
        ("size>7", "f"),
        ("size<8", "c"),
        ("model=gpt,size>7", "f"),
        ("model=", "d"),
        ("model in ()", "d"),
        ("model=gpt-neo", "g"),
        ("  model  =  bert  ", "ab"),
        ("model=nobody", ""),
        ("", "abcdefg"),
    ],
)
def test_L15_label_selectors_select(front: Front, crowd: Team, selector: str, expected: str) -> None:
    assert names(front.alice.get(crowd.path, labelSelector=selector)) == list(expected)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("size>big", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a=-b", "a valid label must be an empty string or consist of alphanumeric characters"),
        ("a/b/c=d", "a valid label key must consist of"),
    ],
)
def test_L15_a_label_selector_that_cannot_be_read_is_a_bad_request(
    front: Front, crowd: Team, selector: str, message: str
) -> None:
    status = refusal(front.alice, crowd.path, 400, labelSelector=selector)
    assert status["reason"] == "BadRequest"
    if "valid label key" in message:
        assert "a/b/c" in status["message"]
    else:
        assert message in status["message"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=c", "c"),
        ("metadata.name==c", "c"),
        ("metadata.name!=c", "abdefg"),
        ("metadata.name=c,metadata.name=d", ""),
        ("metadata.name!=c,status.phase!=Suspended", "abefg"),
        ("status.phase=Suspended", "d"),
        ("status.phase=suspended", ""),
        (",metadata.name=c,", "c"),
        (r"metadata.name=c\,d", ""),
        (r"metadata.name=c\=\\d", ""),
        ("metadata.name=", ""),
        ("", "abcdefg"),
    ],
)
def test_L16_field_selectors_select(front: Front, crowd: Team, selector: str, expected: str) -> None:
    assert names(front.alice.get(crowd.path, fieldSelector=selector)) == list(expected)


@pytest.mark.parametrize("selector", ["metadata.name", "metadata.name=a=b", "metadata.name=a\\x"])
def test_L16_a_field_selector_that_cannot_be_read_is_a_bad_request(
    front: Front, crowd: Team, selector: str
) -> None:
    assert refusal(front.alice, crowd.path, 400, fieldSelector=selector)["reason"] == "BadRequest"


def test_L17_the_known_fields_are_named_to_whoever_uses_another(front: Front, crowd: Team) -> None:
    for query in ({}, {"watch": "1"}):
        status = refusal(front.alice, crowd.path, 400, fieldSelector="spec.x=1", **query)
        assert status["message"] == (
            '"spec.x" is not a known field selector: '
            'only "metadata.name", "metadata.namespace", "status.phase"'
        )
    everywhere = front.admin.get(_EVERYWHERE, fieldSelector=f"metadata.namespace={crowd.namespace}")
    assert names(everywhere) == list("abcdefg")


def test_L18_a_list_of_one_name_is_a_list(front: Front, crowd: Team) -> None:
    assert names(front.alice.get(crowd.path, fieldSelector="metadata.name=a")) == ["a"]
    assert names(front.alice.get(crowd.path, fieldSelector="metadata.name=nobody")) == []
