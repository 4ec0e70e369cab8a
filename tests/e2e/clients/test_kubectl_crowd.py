"""A crowd of jobs that change, in one terminal: every change is a line, in order, and no line comes twice."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.clients.line_stream import LineStream
from tests.e2e.clients.open_watches import OpenWatches
from tests.e2e.cluster import Cluster
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User, Workspace

_JOBS = {"real": 1000, "local": 400}  # by the kind of cluster
_NAMESPACES = 4
_HANDS = 8  # people who change jobs at the same time, each their own
_LAST = "the-last"
_PHASE = 2  # its column, after namespace and name

_LIFE = [  # of each job: event, phase and labels of its lines
    ("ADDED", "Pending", "<none>"),
    ("MODIFIED", "Pending", "round=1"),
    ("MODIFIED", "Suspended", "round=1"),
    ("MODIFIED", "Pending", "round=1"),
    ("MODIFIED", "Succeeded", "round=1"),
    ("DELETED", "Succeeded", "round=1"),
]


@pytest.fixture
def teams(cluster: Cluster, server: VisibilityServer, users: dict[str, User]) -> Iterator[list[QuietJobs]]:
    spaces = [Workspace(cluster, users) for _ in range(_NAMESPACES)]
    yield [QuietJobs(cluster.admin, space.name) for space in spaces]
    for space in spaces:
        space.clean()


@pytest.mark.timeout(600)  # for a real cluster on a busy machine
def test_a_crowd_of_changing_jobs_is_followed_without_a_missed_or_doubled_line(
    cluster: Cluster, teams: list[QuietJobs], server: VisibilityServer, users: dict[str, User]
) -> None:
    admin = users["admin"]
    names = [f"job-{number:03}" for number in range(_JOBS[cluster.kind] // _NAMESPACES)]
    crowd = [(team, name) for team in teams for name in names]
    half = len(crowd) // 2
    last = teams[0]

    with ThreadPoolExecutor(_HANDS) as hands:
        list(hands.map(lambda job: job[0].create(job[1]), crowd[:half]))
        watches = OpenWatches(server, admin)
        with (
            LineStream(admin.kubectl_argv("get", "tjp", "-A", "-w"), admin.kubectl_env()) as plain,
            LineStream(
                admin.kubectl_argv("get", "tjp", "-A", "-w", "--output-watch-events", "--show-labels"),
                admin.kubectl_env(),
            ) as typed,
        ):
            # The other half comes while kubectl goes from its list to its watch.
            list(hands.map(lambda job: job[0].create(job[1]), crowd[half:]))
            watches.wait_for(2)
            list(hands.map(_live, crowd))
            last.create(_LAST)
            for stream in (plain, typed):
                stream.wait_for(
                    lambda lines: any(_LAST in line for line in lines[-1:]), what=_LAST, timeout_s=240
                )

    assert (plain.complaints, typed.complaints) == ("", "")
    for seen, life in (
        (_by_job(plain.lines, _PHASE), [(phase,) for _, phase, _ in _LIFE]),
        (_by_job(typed.lines, 0, _PHASE + 1, -1), _LIFE),
    ):
        assert seen.keys() == {(team.namespace, name) for team, name in crowd}
        assert {job: lines for job, lines in seen.items() if lines != life} == {}


def _live(job: tuple[QuietJobs, str]) -> None:
    """Goes through `_LIFE`, from its second line on."""
    team, name = job
    team.label(name, round="1")
    team.suspend(name)
    team.suspend(name, is_suspended=False)
    team.end(name)
    team.delete(name)


def _by_job(lines: list[str], *columns: int) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """These columns of each line, by the namespace and name of its job."""
    found = defaultdict(list)
    for line in lines:
        cells = re.split(r" {2,}", line.rstrip())
        namespace = next((at for at in (0, 1) if cells[at].startswith("team-")), None)
        if namespace is not None and cells[namespace + 1] != _LAST:
            found[cells[namespace], cells[namespace + 1]].append(tuple(cells[at] for at in columns))
    return dict(found)
