"""How deeply JSON is nested, found without decoding it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from visibility_api.reports.depth import MAX_DEPTH, is_too_deep
from visibility_api.reports.limits import MAX_DOCUMENT_BYTES


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
def test_what_is_deeper_than_the_limit_is_too_deep(opening: str, closing: str) -> None:
    levels = sum(opening.count(bracket) for bracket in "[{")
    within, beyond = MAX_DEPTH // levels, MAX_DEPTH // levels + 1
    wide = "[]," * MAX_DEPTH  # many of them, none deep
    assert not is_too_deep(f"[{wide}0]".encode())
    assert not is_too_deep((opening * within + "0" + closing * within).encode())
    assert is_too_deep((opening * beyond + "0" + closing * beyond).encode())
    assert is_too_deep((opening * beyond).encode())  # it need not be valid


_VALUES = st.recursive(
    st.text(st.sampled_from('[]{}"\\a'), max_size=8) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\', max_size=2), inner, max_size=3)
    ),
)


@given(_VALUES, st.integers(0, MAX_DEPTH + 20))
def test_brackets_within_strings_do_not_count(value: object, around: int) -> None:
    text = "[" * around + json.dumps([value, *"[" * 2 * MAX_DEPTH]) + "]" * around
    assert is_too_deep(text.encode()) is (around + 1 + _depth(value) > MAX_DEPTH)


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


@pytest.mark.parametrize("text", ['"', '\\"', "\\", '"\\'])
def test_a_string_that_never_closes_is_read_once(text: str) -> None:
    """Were each of its quotes tried as the begin of another string, this would take minutes."""
    hostile = "[]" * MAX_DEPTH + '"' + text * (MAX_DOCUMENT_BYTES // len(text))
    assert not is_too_deep(hostile.encode())
