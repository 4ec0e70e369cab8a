"""The search for secrets in what tests print finds some, or its silence would say nothing."""

from __future__ import annotations

import secrets

import pytest

from tests.canary import assert_untold, fail_on_leaks, leak_in, plant

JWT = "eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5l.c2lnbmF0dXJlLWJ5dGVz"


@pytest.mark.parametrize("secret", ["hunter2-do-not-echo", "s3cr3t", JWT, "-----BEGIN EC PRIVATE KEY-----"])
def test_a_secret_is_found_and_not_repeated(secret: str) -> None:
    found = leak_in(f"first line\npath: {secret} and more")
    assert found == "a secret follows 'path: '"
    with pytest.raises(AssertionError, match=r"^log: a secret follows"):
        assert_untold(secret, where="log")


def test_what_is_planted_is_found() -> None:
    secret = secrets.token_hex(16)
    assert leak_in(secret) == ""
    plant(secret)
    assert leak_in(f"token {secret}") != ""


def report_of(text: str) -> pytest.TestReport:
    sections = [("Captured stdout call", "fine"), ("Captured log teardown", text)]
    return pytest.TestReport("x", ("x", 1, "x"), {}, "passed", None, "teardown", sections)


def test_a_test_that_prints_a_secret_fails() -> None:
    quiet, leaking = report_of("fine"), report_of("told hunter2")
    fail_on_leaks(quiet)
    fail_on_leaks(leaking)
    assert (quiet.passed, leaking.passed) == (True, False)
    assert leaking.longrepr == "Captured log teardown: a secret follows 'told ' (tests/canary.py)"
