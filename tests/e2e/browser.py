"""A page in headless Chromium, through dashboard/browser/driver.mjs; where there is none, why."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.processes import PATIENCE_S

_DASHBOARD = Path(__file__).parents[2] / "dashboard"
_CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
SWITCH = "TEST_DASHBOARD"  # set by `make test-dashboard`: a browser costs `make test` too much


def missing() -> str | None:
    """What a test in a browser lacks here, as a sentence; None when it has all."""
    if not os.environ.get(SWITCH):
        return "in a browser: make test-dashboard"
    if shutil.which("node") is None or not _CHROMIUM.exists():
        return f"in a browser: there is no Node, or no Chromium at {_CHROMIUM}"
    if not (_DASHBOARD / "node_modules" / "playwright-core").is_dir():
        return "in a browser: playwright-core is not installed (npm ci in dashboard/)"
    return None


class Browser:
    """One page at a time. `on` is a selector of Playwright; a wait that is not met is an AssertionError."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def open(self, url: str, **how: Any) -> None:
        """`dark`, `width`, `height`, `cookies` (a dictionary with `name`, `value` and `url` each)."""
        self._do("open", url=url, **how)

    def tab(self, url: str) -> None:
        """Opens one more page beside those that are open; what follows is of it."""
        self._do("tab", url=url)

    def front(self, number: int) -> None:
        """What follows is of the tab that was opened as this one, from 0."""
        self._do("front", number=number)

    def wait(self, on: str, state: str = "visible") -> None:
        self._do("wait", on=on, state=state)

    def scroll(self, on: str) -> None:
        """Until it is in view."""
        self._do("scroll", on=on)

    def click(self, on: str) -> None:
        self._do("click", on=on)

    def text(self, on: str) -> str:
        return str(self._do("text", on=on))

    def attribute(self, on: str, name: str) -> str | None:
        value = self._do("attribute", on=on, name=name)
        return None if value is None else str(value)

    def count(self, on: str) -> int:
        return int(self._do("count", on=on))

    def title(self) -> str:
        return str(self._do("title"))

    def faults(self) -> list[str]:
        """Errors of the page's scripts and of its Content-Security-Policy, of all pages so far."""
        return list(self._do("faults"))

    def _do(self, what: str, **how: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]


@contextlib.contextmanager
def browsing(home: Path) -> Iterator[Browser]:
    """A browser with `home` for its files, until the end of the block."""
    argv = ["node", "browser/driver.mjs", str(_CHROMIUM)]
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home)}
    with (
        (home / "chromium.log").open("w") as log,
        subprocess.Popen(
            argv,
            cwd=_DASHBOARD,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        try:
            yield Browser(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
