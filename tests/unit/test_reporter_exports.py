"""The package's public face."""

from __future__ import annotations

import ast
from pathlib import Path

import trainjob_progress

PACKAGE = Path(trainjob_progress.__file__).parent


def test_what_is_exported_is_what_is_listed_and_sorted() -> None:
    public = {
        name
        for name, value in vars(trainjob_progress).items()
        if getattr(value, "__module__", "").startswith("trainjob_progress.")
    }
    assert set(trainjob_progress.__all__) == public
    assert trainjob_progress.__all__ == sorted(trainjob_progress.__all__)


def test_nothing_but_the_standard_library_is_imported_outside_of_integrations() -> None:
    import sys

    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "integrations":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            else:
                continue
            for name in names:
                root = name.split(".")[0]
                assert root in sys.stdlib_module_names or root == "trainjob_progress", f"{path.name}: {name}"


def test_no_integration_is_imported_by_the_package_itself() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "integrations":
            assert "integrations" not in path.read_text().replace("`integrations", ""), path.name
