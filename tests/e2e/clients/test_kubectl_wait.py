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


def wait(team: Workspace, *arguments: str, timeout: str = "80s") -> LineStream:
    """A `kubectl wait` under way."""
    argv = team.alice.kubectl_argv("wait", "-n", team.name, f"--timeout={timeout}", *arguments)
    return LineStream(argv, team.alice.kubectl_env())


@pytest.mark.parametrize(
    ("name", "condition", "happens"),
    [
        ("a-complete", "condition=Complete", lambda jobs, name: jobs.end(name)),
        ("b-succeeded", "jsonpath={.status.phase}=Succeeded", lambda jobs, name: jobs.end(name)),
        ("c-failed", "condition=Failed", lambda jobs, name: jobs.end(name, condition="Failed")),
        ("d-suspended", "condition=suspended=true", lambda jobs, name: jobs.suspend(name)),
        ("e-label", "jsonpath={.metadata.labels.round}=2", lambda jobs, name: jobs.label(name, round="2")),
        ("f-any-label", "jsonpath={.metadata.labels.round}", lambda jobs, name: jobs.label(name, round="2")),
        ("g-deleted", "delete", lambda jobs, name: jobs.delete(name)),
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


@pytest.mark.parametrize("condition", ["condition=Complete", "jsonpath={.status.phase}=Succeeded"])
def test_wait_ends_at_once_when_it_has_happened_already(
    shared: Workspace, jobs: QuietJobs, condition: str
) -> None:
    name = f"over-{condition[:4]}"
    jobs.create(name)
    jobs.end(name)
    jobs.wait_served(name)
    jobs.wait_phase(name, "Succeeded")
    with wait(shared, f"tjp/{name}", f"--for={condition}") as waiting:
        assert waiting.wait_end() == 0, waiting.complaints


def test_wait_for_the_creation_of_a_job(shared: Workspace, jobs: QuietJobs, server: VisibilityServer) -> None:
    with wait(shared, "tjp/to-come", "--for=create") as waiting:
        jobs.create("to-come")
        assert waiting.wait_end() == 0, waiting.complaints


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


def test_wait_gives_up_after_its_timeout(shared: Workspace, jobs: QuietJobs) -> None:
    jobs.create("endless")
    jobs.wait_served("endless")
    with wait(shared, "tjp/endless", "--for=condition=Complete", timeout="1s") as waiting:
        assert waiting.wait_end() == 1
    assert waiting.complaints == ("error: timed out waiting for the condition on trainjobs/endless\n"), (
        waiting.complaints
    )


def test_wait_for_nobody_fails_in_the_usual_words(shared: Workspace, jobs: QuietJobs) -> None:
    with wait(shared, "tjp/nobody", "--for=condition=Complete") as waiting:
        assert waiting.wait_end() == 1
    assert waiting.complaints == f'Error from server (NotFound): trainjobs.{GROUP} "nobody" not found\n'


def test_wait_for_a_job_that_is_deleted_meanwhile_fails(
    shared: Workspace, jobs: QuietJobs, server: VisibilityServer
) -> None:
    """kubectl looks once, up to 0.1 s after its watch began, whether the object is still there: if it is
    deleted later, it waits for another of that name, of any resource."""
    jobs.create("short-lived")
    jobs.wait_served("short-lived")
    watches = OpenWatches(server, shared.admin)
    with wait(shared, "tjp/short-lived", "--for=condition=Complete", timeout="10s") as waiting:
        watches.wait_for()
        jobs.delete("short-lived")
        assert waiting.wait_end() == 1
    assert waiting.complaints in (
        f'Error from server (NotFound): trainjobs.{GROUP} "short-lived" not found\n',
        "error: timed out waiting for the condition on trainjobs/short-lived\n",
    )
