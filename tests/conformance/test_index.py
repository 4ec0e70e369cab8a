"""docs/conformance.md against the tests: every item has one that exists, or says why it has none."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs/conformance.md"
_HERE = "conformance"
_LAST = {"D": 22, "O": 11, "A": 21, "Z": 16, "R": 19, "L": 19, "W": 24, "T": 12, "P": 19, "X": 15}
_ITEMS = [f"{section}{number}" for section, last in _LAST.items() for number in range(1, last + 1)]
_ROW = re.compile(r"^\| ([A-Z]\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@functools.cache
def _rows() -> dict[str, str]:
    """What each item is tested by."""
    found = _ROW.findall(_PAGE.read_text())
    assert len(found) == len({item for item, _, _ in found}), "an item is listed twice"
    return {item: tested_by for item, _, tested_by in found}


@functools.cache
def _tests(path: str) -> frozenset[str]:
    file = _ROOT / path
    if not file.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions))


@functools.cache
def _items_of_tests() -> dict[str, list[str]]:
    """The tests of this directory by the items in their names."""
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in _tests(str(file.relative_to(_ROOT))):
            if name.startswith("test_"):
                for item in re.findall(r"(?<=_)[A-Z]\d+(?=_)", name):
                    found.setdefault(item, []).append(name)
    return found


def test_the_page_lists_every_item_in_order() -> None:
    assert list(_rows()) == _ITEMS


@pytest.mark.parametrize("item", _ITEMS)
def test_an_item_has_a_test_or_a_reason(item: str) -> None:
    tested_by = _rows()[item]
    if tested_by == _HERE:
        assert _items_of_tests().get(item), f"no test here is named after {item}"
        return
    assert item not in _items_of_tests(), f"{item} has a test here that the page does not know"
    references = re.findall(r"`(tests/[^`]+)`", tested_by)
    for reference in references:
        path, _, name = reference.partition("::")
        assert name in _tests(path), f"there is no {reference}"
    assert references or len(tested_by.split()) > 3 or tested_by == "About the client.", "that is no reason"


def test_every_test_here_names_an_item() -> None:
    assert set(_items_of_tests()) <= set(_ITEMS)
