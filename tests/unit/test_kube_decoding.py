"""Hostile JSON is cut at a depth, and nothing else of it changes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from visibility_api.kube.decoding import truncate_depth

JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def cut(value: Any, depth: int) -> Any:
    """The same by plain recursion."""
    if isinstance(value, (dict, list)) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key: cut(inner, depth - 1) for key, inner in value.items()}
    return [cut(inner, depth - 1) for inner in value] if isinstance(value, list) else value


@given(JSON, st.integers(1, 5), st.booleans())
async def test_what_lies_deeper_is_null_and_the_rest_is_as_it_was(
    value: Any, depth: int, is_ascii: bool
) -> None:
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert json.loads(await truncate_depth(body, max_depth=depth)) == cut(value, depth)


@given(st.binary())
async def test_bytes_that_are_no_json_do_no_harm(body: bytes) -> None:
    assert len(await truncate_depth(body, max_depth=1)) <= len(body) + 4 * (
        body.count(b"{") + body.count(b"[")
    )


async def test_nesting_costs_no_recursion() -> None:
    assert await truncate_depth(b"[" * 100_000 + b"]" * 100_000, max_depth=2) == b"[[null]]"
