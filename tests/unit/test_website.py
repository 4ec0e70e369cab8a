"""The documentation as a website: what is made for it, without mkdocs. `make docs` builds it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("reference", ROOT / "website/reference.py")
assert _spec is not None
assert _spec.loader is not None
subject = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(subject)


@pytest.fixture(scope="module")
def page() -> str:
    made: str = subject.reference(json.loads((ROOT / "openapi/v3.json").read_text()))
    return made


def test_each_type_that_is_named_has_a_place_on_the_page(page: str) -> None:
    places = {name.lower() for name in re.findall(r"(?m)^### (\w+)$", page)}
    named = set(re.findall(r"\(#(\w+)\)", page))
    assert {"progressstatus", "goodput", "metric"} <= named <= places


def test_each_path_and_field_has_a_meaning(page: str) -> None:
    rows = re.findall(r"(?m)^\| `.*$", page)
    assert len(rows) > 100
    for row in rows:
        cells = [cell.strip() for cell in re.sub(r"`[^`]*`", "x", row).replace("\\|", "x").split("|")[1:-1]]
        assert cells[1], row
    for path in ("trainingjobs", "namespaces/{namespace}/trainjobs/{name}/history"):
        assert f"| `{path}` |" in page
    assert "maxPoints" in page


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "website/mkdocs.yml").read_text().split("\nnav:\n")[1]
    named = set(re.findall(r"([\w/.-]+\.md)$", navigation, re.MULTILINE))
    pages = {str(each.relative_to(ROOT / "docs")) for each in (ROOT / "docs").rglob("*.md")}
    made = {"api.md", "source/CONTRIBUTING.md", "source/CHANGELOG.md"}
    assert named - made == {each for each in pages if not each.startswith("decisions/")}
