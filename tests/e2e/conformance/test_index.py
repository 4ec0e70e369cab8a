"""docs/conformance.md and kubernetes-api.md: each item is stated, and has a test or a reason for none."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_PAGE = _ROOT / "docs/conformance.md"
_STATEMENTS = _ROOT / "docs/kubernetes-api.md"
_LAST = {"D": 22, "O": 11, "A": 21, "Z": 16, "R": 19, "L": 19, "W": 24, "T": 12, "P": 19, "X": 15}
_ITEMS = [f"{section}{number}" for section, last in _LAST.items() for number in range(1, last + 1)]
_ROW = re.compile(
    r"^\| \[([A-Z]\d+)\]\(kubernetes-api\.md#([a-z]\d+)\) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
_STATEMENT = re.compile(r'^\| <a id="([a-z]\d+)"></a>([A-Z]\d+) \| ([^|]+\.) \| ([^|]+) \|$', re.MULTILINE)
_SOURCE = re.compile(r"\[[^\]]+\]\(https://github\.com/[\w-]+/[\w-]+/blob/v\d[\w.]+/[\w./-]+\.go\)")
_NAMED = re.compile(r"\b([A-Z])(\d+)\b(?: to \1(\d+)\b)?")  # in a docstring: "R15", "Z3 to Z8"


@functools.cache
def _rows() -> dict[str, str]:
    """What each item is tested by."""
    found = _ROW.findall(_PAGE.read_text())
    assert len(found) == len({item for item, *_ in found}), "an item is listed twice"
    assert [item for item, anchor, *_ in found if anchor != item.lower()] == []
    return {item: tested_by for item, _, _, tested_by in found}


def _tests(path: str) -> Iterator[tuple[str, str]]:
    """Name and docstring of each."""
    file = _ROOT / path
    if file.is_file():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name, ast.get_docstring(node) or ""


@functools.cache
def _by_name() -> set[str]:
    """The items in the names of tests of this directory."""
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    names = [name for file in files for name, _ in _tests(str(file.relative_to(_ROOT)))]
    return {item for name in names for item in re.findall(r"(?<=_)[A-Z]\d+(?=_)", name)}


@functools.cache
def _by_docstring() -> set[str]:
    """The items in the docstrings of tests in tests/unit and tests/service."""
    found: set[str] = set()
    for directory in ("unit", "service"):
        for file in (_ROOT / "tests" / directory).glob("test_*.py"):
            for _, text in _tests(str(file.relative_to(_ROOT))):
                for section, first, last in _NAMED.findall(text):
                    found |= {f"{section}{n}" for n in range(int(first), int(last or first) + 1)}
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
    words = set(tested_by.split(", "))
    if ("conformance" in words) is not (item in _by_name()):
        return f"{item}: the page and the names of tests here disagree"
    if "unit" in words and item not in _by_docstring():
        return f"no docstring of a test in tests/unit or tests/service names {item}"
    references = re.findall(r"`(tests/[^`]+)`", tested_by)
    for reference in references:
        path, _, name = reference.partition("::")
        if name not in dict(_tests(path)):
            return f"{item}: there is no {reference}"
    is_reason = len(tested_by.split()) > 3 or tested_by == "About the client."
    return "" if references or is_reason or words <= {"conformance", "unit"} else f"{item}: {tested_by!r}"


def test_every_test_here_names_an_item() -> None:
    assert _by_name() <= set(_ITEMS)
