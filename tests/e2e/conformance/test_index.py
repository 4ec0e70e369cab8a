"""docs/conformance.md and kubernetes-api.md: each item is stated, and has a test or a reason for none."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_PAGE = _ROOT / "docs/conformance.md"
_STATEMENTS = _ROOT / "docs/kubernetes-api.md"
_HERE = "conformance"
_LAST = {"D": 22, "O": 11, "A": 21, "Z": 16, "R": 19, "L": 19, "W": 24, "T": 12, "P": 19, "X": 15}
_ITEMS = [f"{section}{number}" for section, last in _LAST.items() for number in range(1, last + 1)]
_ROW = re.compile(
    r"^\| \[([A-Z]\d+)\]\(kubernetes-api\.md#([a-z]\d+)\) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
_STATEMENT = re.compile(r'^\| <a id="([a-z]\d+)"></a>([A-Z]\d+) \| ([^|]+\.) \| ([^|]+) \|$', re.MULTILINE)
_SOURCE = re.compile(r"\[[^\]]+\]\(https://github\.com/[\w-]+/[\w-]+/blob/v\d[\w.]+/[\w./-]+\.go\)")


@functools.cache
def _rows() -> dict[str, str]:
    """What each item is tested by."""
    found = _ROW.findall(_PAGE.read_text())
    assert len(found) == len({item for item, *_ in found}), "an item is listed twice"
    assert [item for item, anchor, *_ in found if anchor != item.lower()] == []
    return {item: tested_by for item, _, _, tested_by in found}


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


def test_every_item_is_stated_with_its_sources() -> None:
    found = _STATEMENT.findall(_STATEMENTS.read_text())
    assert [(anchor, item) for anchor, item, _, _ in found] == [(item.lower(), item) for item in _ITEMS]
    assert [item for _, item, _, sources in found if not _only_links(sources)] == []


def _only_links(text: str) -> bool:
    return all(_SOURCE.fullmatch(each) for each in text.split(", "))


def test_every_item_has_a_test_or_a_reason() -> None:
    assert [fault for item, tested_by in _rows().items() if (fault := _fault(item, tested_by))] == []


def _fault(item: str, tested_by: str) -> str:
    """What is wrong with the row; "" when nothing is."""
    tests = _items_of_tests().get(item)
    if tested_by == _HERE:
        return "" if tests else f"no test here is named after {item}"
    if tests:
        return f"{item} has a test here that the page does not know: {tests}"
    references = re.findall(r"`(tests/[^`]+)`", tested_by)
    for reference in references:
        path, _, name = reference.partition("::")
        if name not in _tests(path):
            return f"{item}: there is no {reference}"
    is_reason = len(tested_by.split()) > 3 or tested_by == "About the client."
    return "" if references or is_reason else f"{item}: {tested_by!r} is no reason"


def test_every_test_here_names_an_item() -> None:
    assert set(_items_of_tests()) <= set(_ITEMS)
