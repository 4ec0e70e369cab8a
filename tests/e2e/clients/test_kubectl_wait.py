"""`kubectl wait` in scripts: it waits, ends and fails as with any resource (W7, W18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.clients.line_stream import LineStream
from tests.e2e.clients.open_watches import OpenWatches
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP, VisibilityServer
from tests.e2e.workspace import Workspace

Happening = Callable[[QuietJobs, str], None]


def wait(team: Workspace, *arguments: str) -> LineStream:
    """A `kubectl wait` under way."""
    argv = team.alice.kubectl_argv("wait", "-n", team.name, "--timeout=80s", *arguments)
    return LineStream(argv, team.alice.kubectl_env())


@pytest.mark.parametrize(
    ("name", "condition", "happens"),
    [
        ("complete", "condition=Complete", lambda jobs, name: jobs.end(name)),
        ("phase", "jsonpath={.status.phase}=Suspended", lambda jobs, name: jobs.suspend(name)),
        ("deleted", "delete", lambda jobs, name: jobs.delete(name)),
    ],
)
def test_wait_ends_when_what_it_waits_for_happens(
    shared: Workspace,
    jobs: QuietJobs,
    server: VisibilityServer,
    name: str,
    condition: str,
    happens: Happening,
) -> None:
    jobs.create(name)
    jobs.wait_served(name)
    watches = OpenWatches(server, shared.admin)
    with wait(shared, f"tjp/{name}", f"--for={condition}") as waiting:
        watches.wait_for()
        happens(jobs, name)
        assert waiting.wait_end() == 0, waiting.complaints
    assert waiting.lines == [f"trainjobprogress.{GROUP}/{name} condition met"]


def test_wait_for_all_that_a_selector_chooses(
    shared: Workspace, jobs: QuietJobs, server: VisibilityServer
) -> None:
    names = ["sweep-1", "sweep-2", "sweep-3"]
    for name in names:
        jobs.create(name, {"sweep": "lr"})
    jobs.wait_served(*names)
    watches = OpenWatches(server, shared.admin)
    with wait(shared, "tjp", "-l", "sweep=lr", "--for=condition=Complete") as waiting:
        for name in names:
            watches.wait_for()  # one after the other is waited for
            jobs.end(name)
        assert waiting.wait_end() == 0, waiting.complaints
    assert waiting.lines == [f"trainjobprogress.{GROUP}/{name} condition met" for name in names]
