"""Health endpoints: D17 to D19, P9, P10. Bodies compared with a kube-apiserver 1.36's own."""

from __future__ import annotations

import pytest

from tests.unit.api_shell import JANE, Shell
from visibility_api.app.health import Check, Health
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes


class State:
    """What the checks say; None is healthy."""

    def __init__(self) -> None:
        self.loops: str | None = None
        self.synced: str | None = None
        self.shutdown: str | None = None

    def shell(self) -> Shell:
        return Shell(
            checks=(
                Check(name="loops", run=lambda: self.loops),
                Check(name="informer-sync", run=lambda: self.synced, is_readiness_only=True),
                Check(name="shutdown", run=lambda: self.shutdown, is_readiness_only=True),
            )
        )


@pytest.fixture
def state() -> State:
    return State()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/informer-sync"])
async def test_health_is_two_letters_of_text(state: State, path: str) -> None:
    """D17, D19: no newline, and nothing a browser would take for a page."""
    answer = await state.shell().get(path)
    assert (answer.status, answer.body) == (200, b"ok")
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize("query", ["verbose", "verbose=", "verbose=false"])
async def test_verbose_lists_each_check(state: State, query: str) -> None:
    """D18: presence is enough."""
    answer = await state.shell().get(f"/readyz?{query}")
    assert answer.text == (
        "[+]ping ok\n[+]loops ok\n[+]informer-sync ok\n[+]shutdown ok\nreadyz check passed\n"
    )


async def test_a_failure_is_a_500_that_withholds_its_reason(state: State) -> None:
    """D17, D18: the root paths are public."""
    state.synced = "the watch of trainjobs was refused"
    answer = await state.shell().get("/readyz")
    assert answer.status == 500
    assert answer.text == (
        "[+]ping ok\n[+]loops ok\n[-]informer-sync failed: reason withheld\n[+]shutdown ok\n"
        "readyz check failed\n"
    )
    assert answer.header("x-content-type-options") == "nosniff"


async def test_a_checks_own_path_gives_the_reason(state: State) -> None:
    """D19."""
    state.synced = "the watch of trainjobs was refused"
    answer = await state.shell().get("/readyz/informer-sync")
    assert (answer.status, answer.text) == (
        500,
        "internal server error: the watch of trainjobs was refused\n",
    )


async def test_a_checks_own_path_is_under_authorisation(state: State) -> None:
    """Z6, D19."""
    shell = state.shell()
    shell.verdict = AccessDenied(JANE, Attributes(verb="get", path="/readyz/ping"))
    assert (await shell.get("/readyz/ping")).status == 403


async def test_checks_can_be_excluded(state: State) -> None:
    """D18."""
    state.synced = state.shutdown = "no"
    answer = await state.shell().get(
        "/readyz?verbose&exclude=informer-sync&exclude=shutdown&exclude=nope&exclude=a"
    )
    assert answer.status == 200
    assert answer.text == (
        "[+]ping ok\n[+]loops ok\n[+]informer-sync excluded: ok\n[+]shutdown excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","nope"\n'
        "readyz check passed\n"
    )


async def test_what_only_concerns_readiness_does_not_restart_us(state: State) -> None:
    """D2, P9: liveness is our own loops."""
    state.synced = "not yet"
    shell = state.shell()
    assert (await shell.get("/readyz")).status == 500
    assert (await shell.get("/livez")).status == (await shell.get("/healthz")).status == 200
    assert (await shell.get("/livez/informer-sync")).status == 404
    state.loops, state.synced = "the sweep is 90s late", None
    assert (await shell.get("/livez")).status == (await shell.get("/readyz")).status == 500


async def test_shutdown_fails_readiness_while_all_else_is_served(state: State) -> None:
    """P10."""
    shell = state.shell()
    assert (await shell.get("/readyz")).status == 200
    state.shutdown = "process is shutting down"
    assert (await shell.get("/readyz")).status == 500
    assert (await shell.get("/livez")).status == 200


async def test_a_check_that_raises_has_failed() -> None:
    def broken() -> str | None:
        raise RuntimeError("secret detail")

    shell = Shell(checks=(Check(name="broken", run=broken),))
    assert (await shell.get("/livez")).status == 500
    assert (await shell.get("/livez/broken")).text == "internal server error: the check itself failed\n"


def test_two_checks_of_one_name_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="share a name"):
        Health((Check(name="ping", run=lambda: None),))
