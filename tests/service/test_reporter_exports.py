"""The package's public face."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import trainjob_progress

PACKAGE = Path(trainjob_progress.__file__).parent
FOREIGN = ("integrations", "trackers")  # they import what they are for


def test_what_is_exported_is_what_is_listed_and_sorted() -> None:
    public = {
        name
        for name, value in vars(trainjob_progress).items()
        if getattr(value, "__module__", "").startswith("trainjob_progress.")
    }
    assert set(trainjob_progress.__all__) == public
    assert trainjob_progress.__all__ == sorted(trainjob_progress.__all__)


def test_a_tool_that_asks_for_type_hints_gets_no_error() -> None:
    """There are none: what they name is imported for type checkers alone."""
    for name in trainjob_progress.__all__:
        public = getattr(trainjob_progress, name)
        methods = [method for method in vars(public).values() if callable(method)]
        assert [get_type_hints(one) for one in (public, *methods)] == [{}] * (1 + len(methods))


def test_nothing_but_the_standard_library_is_imported_but_for_frameworks_and_trackers() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name in FOREIGN:
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


def test_no_integration_and_no_tracker_is_imported_before_it_is_asked_for() -> None:
    names = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
        if path.parent.name not in FOREIGN
    ]
    foreign = tuple(f"trainjob_progress.{name}" for name in FOREIGN)
    script = (
        f"import sys, {', '.join(names)}\n"
        f"assert not [name for name in sys.modules if name.startswith({foreign})]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
