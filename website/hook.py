"""Pages that are made from files outside docs/: the API's, and each file that a page links to."""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parent
API = "api.md"
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_file_of: dict[str, str] = {}  # by page: where in the repository it comes from

sys.path.insert(0, str(HERE))
from reference import reference  # noqa: E402 - mkdocs runs this file by its path


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    _file_of.clear()
    _file_of.update({each.src_uri: f"docs/{each.src_uri}" for each in files.documentation_pages()})
    document = json.loads((ROOT / "openapi/v3.json").read_text())
    files.append(File.generated(config, API, content=reference(document)))
    waiting = list(_file_of)
    while waiting:
        for path in _links(waiting.pop()):
            page = _page_of(path)
            if files.get_file_from_path(page) is None:
                _file_of[page] = path
                files.append(File.generated(config, page, content=_content(path)))
                waiting.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links to the pages of the files that they name."""
    uri = page.file.src_uri
    if uri == API:
        return markdown

    def led(link: re.Match[str]) -> str:
        target = posixpath.relpath(_page_of(_target(uri, link[1])), posixpath.dirname(uri) or ".")
        return f"]({target}{link[2] or ''})"

    return LINK.sub(led, markdown)


def _links(uri: str) -> Iterator[str]:
    """The files that this page links to. Raises FileNotFoundError."""
    if _file_of[uri].endswith(".md"):
        for link in LINK.finditer((ROOT / _file_of[uri]).read_text()):
            path = _target(uri, link[1])
            if not (ROOT / path).exists():
                raise FileNotFoundError(f"{_file_of[uri]} links to {path}")
            yield path


def _target(uri: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(_file_of[uri]), link))


def _page_of(path: str) -> str:
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return f"source/{path.lstrip('.')}" + ("" if path.endswith(".md") else ".md")


def _content(path: str) -> str:
    file = ROOT / path
    if file.suffix == ".md":
        return file.read_text()
    if file.is_dir():
        names = sorted(each.name for each in file.iterdir() if not each.name.startswith(("_", ".")))
        return f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    return f"# {path}\n\n```{file.suffix.lstrip('.')}\n{file.read_text()}\n```\n"
