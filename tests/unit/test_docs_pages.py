"""What readers of the documentation trip over: dead links, tables that do not fit, long sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from visibility_api.diagnosis.judging import NOT_READABLE
from visibility_api.diagnosis.places import NOWHERE
from visibility_api.diagnosis.words import HINTS, STATES

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "reporter/README.md")
    ),
]
# Measurements, tables of tests and decisions: for those who maintain this.
FOR_MAINTAINERS = {
    *("performance.md", "estimates.md", "security.md", "conformance.md", "kubernetes-api.md"),
    *("CHANGELOG.md", "extending.md", "architecture.md"),
}
MOST_WORDS = 25


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """Without blocks of code, whose lines may look like anything."""
    without_fences = re.sub(r"(?ms)^( *)```.*?^\1```$", "", text)
    return re.sub(r"(?m)(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", "", without_fences)


def anchors(text: str) -> set[str]:
    """As GitHub makes them from headings, and those that are written out."""
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"(?m)^#+ (.+)$", prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\s-]", "", plain.lower()).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text()), link


@pytest.mark.parametrize(
    "page", [each for each in PAGES if "docs" in each.parts and "decisions" not in each.parts], ids=name_of
)
def test_a_page_says_first_what_one_gets_and_shows_it_before_any_heading(page: Path) -> None:
    opening = page.read_text().split("\n## ")[0]
    first, _, rest = opening.partition("\n\n")[2].partition("\n")
    assert re.match(r"[A-Za-z`*\[](?!``)", first), "a sentence comes first"
    shown = r"(?m)^(```| {4}\S|\| |!\[|<picture>|- |\*\*.*\?\*\*)"
    assert re.search(shown, rest), "then a command, an output, a table, a picture or an answer"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    head = 0
    for line in prose(page.read_text()).splitlines():
        if not line.startswith("|"):
            head = 0
            continue
        cells = len(re.sub(r"`[^`]*`", "x", line).replace("\\|", "x").strip().split("|"))
        head = head or cells
        assert cells == head, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_module_and_test_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text()))
    text = page.read_text()
    if page.name != "CHANGELOG.md" and "decisions" not in page.parts:  # which tell of former ones
        assert set(re.findall(r"\bmake ([a-z][a-z0-9-]+)(?=[`\n. ]*[`\n])", text)) <= targets
        for module in re.findall(
            r"python3? -m ((?:benchmarks|tests|localcluster|visibility_api|release)[\w.]*)", text
        ):
            path = ROOT / module.rstrip(".").replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
        for file in re.findall(
            r"`((?:tests|visibility_api|deploy|apiservice|website|benchmarks)/[\w/.-]+)`", text
        ):
            is_readers_own = file == "deploy/mine" or file.endswith("NAME")
            assert is_readers_own or (ROOT / file).exists(), file


def sentences(text: str) -> Iterator[str]:
    """Cells, items and paragraphs, taken apart at stops."""
    text = re.sub(r"`[^`\n]*`", "X", prose(text))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?m)^\|[-| :]*\|$|^#.*$|^<.*>$", "", text)
    text = re.sub(r"(?m)^\|.*\|$", lambda row: "\n\n" + row[0].replace("|", "\n\n"), text)
    text = re.sub(r"(?m)^\s*(?:[-*]|\d+\.) ", "\n\n", text)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r'(?<=[.;:!?])"?\s+', " ".join(paragraph.split()))


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in FOR_MAINTAINERS and "decisions" not in page.parts],
    ids=name_of,
)
def test_sentences_are_short(page: Path) -> None:
    long = [each for each in sentences(page.read_text()) if len(each.split()) > MOST_WORDS]
    assert long == []


def _texts_of_the_program() -> Iterator[Path]:
    for room in ("visibility_api", "reporter", "deploy", "apiservice", "dashboard/src", "monitoring"):
        for file in (ROOT / room).rglob("*"):
            is_text = file.suffix in (".py", ".yaml", ".tpl", ".txt", ".ts", ".tsx")
            if is_text and "tests" not in file.parts and "node_modules" not in file.parts:
                yield file


def test_every_page_and_heading_that_the_program_names_is_there() -> None:
    named = set()
    for file in _texts_of_the_program():
        named |= set(
            re.findall(r'(?<![\w/.-])(docs/[\w/-]+\.md)(?:#([\w-]+)|, \\?"([^"\\]+)\\?")?', file.read_text())
        )
    assert len(named) > 20
    for page, anchor, heading in named:
        assert (ROOT / page).exists(), page
        text = (ROOT / page).read_text()
        assert not anchor or anchor in anchors(text), f"{page}#{anchor}"
        assert not heading or re.search(rf"(?m)^#+ {re.escape(heading)}$", text), f"{page}, {heading}"


GOOD_NEWS = {"Finite", "Finished", "Resumed"}  # which need no explanation


def test_every_reason_of_a_condition_is_told_in_the_documentation() -> None:
    told = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    reasons = set()
    for file in (ROOT / "visibility_api" / "jobs").glob("*.py"):
        reasons |= set(re.findall(r'"(?:True|False|Unknown)",\s+"([A-Z]\w+)"', file.read_text()))
    assert len(reasons) > 20
    assert {each for each in reasons - GOOD_NEWS if f"`{each}`" not in told} == set()


def test_every_reason_of_a_diagnosis_has_a_row_that_explains_it() -> None:
    page = Path("docs/diagnose.md").read_text()
    section = page.partition("### The reasons\n")[2].partition("\n## ")[0]
    first_cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    explained = set(re.findall(r"`(\w+)`", " ".join(first_cells)))
    assert {*HINTS, *(reason for reason, *_ in STATES.values()), NOT_READABLE, NOWHERE.reason} <= explained
