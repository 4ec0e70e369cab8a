"""The page that is served was built from the sources in dashboard/: found without Node, by their sums."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "dashboard"
BUILT = ROOT / "visibility_api" / "dashboard"
# What a build reads, as dashboard/sums.mjs has it.
READ = ("index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")
MOST_BYTES = 110_000  # gzipped, of all that the list and a job load
MOST_BYTES_OF_DOCS = 60_000  # gzipped, of what is loaded when the documentation is opened


def test_the_assets_are_those_that_were_built() -> None:
    names = ["index.html", *sorted(f"assets/{each.name}" for each in (BUILT / "assets").iterdir())]
    assert _listed(BUILT / "SHA256SUMS") == _sums(BUILT, names), "run: make dashboard"


def test_the_assets_were_built_from_these_sources() -> None:
    found = (each.relative_to(SOURCES).as_posix() for each in (SOURCES / "src").rglob("*") if each.is_file())
    names = [*READ, *(name for name in found if not name.endswith((".test.ts", "/schema.d.ts")))]
    assert _listed(SOURCES / "sources.sha256") == _sums(SOURCES, names), "run: make dashboard"


def test_the_page_loads_little_and_nothing_from_elsewhere() -> None:
    page = (BUILT / "index.html").read_text()
    assets = list((BUILT / "assets").iterdir())
    docs = [each for each in assets if each.name.startswith("doc")]
    assert _zipped_bytes(BUILT / "index.html", *(each for each in assets if each not in docs)) < MOST_BYTES
    assert 0 < _zipped_bytes(*docs) < MOST_BYTES_OF_DOCS
    assert not any(each.name in page for each in docs)
    assert "://" not in page
    assert "<style" not in page
    assert page.count("<script") == page.count('<script type="module" crossorigin src="./assets/') == 1


def _zipped_bytes(*files: Path) -> int:
    return sum(len(gzip.compress(each.read_bytes())) for each in files)


def _listed(file: Path) -> dict[str, str]:
    lines = (line.split("  ", 1) for line in file.read_text().splitlines())
    return {name: digest for digest, name in lines}


def _sums(root: Path, names: list[str]) -> dict[str, str]:
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}
