"""Secrets of the suite, which nothing may ever say: looked for in all that tests print and servers log.

`plant` adds one that is made as the tests run; the others are found by their form.
"""

from __future__ import annotations

import re

import pytest

SECRETS = ("hunter2", "s3cr3t")  # stand for what a path, a port, a plugin or a token leads to
_FORMS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"  # a JWT
    rf"|{'|'.join(SECRETS)}"
)
_planted: set[str] = set()


def plant(secret: str) -> str:
    """Look for `secret` from now on; returns it."""
    assert len(secret) >= 16, "short enough to occur by chance"
    _planted.add(secret)
    return secret


def leak_in(text: str) -> str:
    """Where `text` repeats a secret, without it; "" where it does not."""
    found = _FORMS.search(text)
    places = [at for each in _planted if (at := text.find(each)) >= 0]
    if found is None and not places:
        return ""
    at = min([found.start(), *places] if found else places)
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return f"a secret follows {line[-200:]!r}"


def assert_untold(text: str, *, where: str) -> None:
    """Nothing in `text` is a secret."""
    leak = leak_in(text)
    assert not leak, f"{where}: {leak}"


def fail_on_leaks(report: pytest.TestReport) -> None:
    """Let a test that has passed fail if a secret is in what was printed or logged meanwhile."""
    if report.when != "teardown" or not report.passed:
        return
    for name, text in report.sections:
        if leak := leak_in(text):
            report.outcome, report.longrepr = "failed", f"{name}: {leak} (tests/canary.py)"
