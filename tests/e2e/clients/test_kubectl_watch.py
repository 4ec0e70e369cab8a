"""`kubectl get -w`: every change is one line, none is missed, none is shown twice (W5, W12, W15, W17).

The changes of a job come in order. With `--store=nats` several replicas work on the jobs at the same time, so
between two jobs no order is promised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter

import pytest

from tests.e2e.clients.line_stream import LineStream
from tests.e2e.clients.open_watches import OpenWatches
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace

Watch = Callable[..., LineStream]


@pytest.fixture
def watch(workspace: Workspace, server: VisibilityServer) -> Watch:
    """Starts a `kubectl get tjp` with these arguments; its watch is under way when the call returns."""

    def start(*arguments: str) -> LineStream:
        watches = OpenWatches(server, workspace.admin)
        argv = workspace.alice.kubectl_argv("get", "tjp", "-n", workspace.name, *arguments)
        stream = LineStream(argv, workspace.alice.kubectl_env())
        watches.wait_for(1)
        return stream

    return start


@pytest.fixture
def pair(own_jobs: QuietJobs) -> QuietJobs:
    """bert, which is gold, and gpt, both pending."""
    own_jobs.create("bert", {"tier": "gold"})
    own_jobs.create("gpt")
    own_jobs.wait_served("bert", "gpt")
    return own_jobs


def columns(lines: list[str], number: int) -> list[list[str]]:
    return [re.split(r" {2,}", line)[:number] for line in lines]


def lines_until(stream: LineStream, word: str) -> list[str]:
    """All lines up to the first in which `word` stands."""
    return stream.wait_for(lambda lines: any(word in line for line in lines), what=f"a line with {word}")


def test_a_watch_prints_the_list_and_then_one_line_a_change(pair: QuietJobs, watch: Watch) -> None:
    with watch("-w", "--output-watch-events") as stream:
        pair.suspend("gpt")
        pair.create("llama")
        pair.end("bert")
        pair.delete("gpt")
        pair.create("the-last")
        lines = stream.wait_for(lambda lines: len(lines) > 7, what="the list and five changes")
    assert columns(lines, 3)[:3] == [
        ["EVENT", "NAME", "PHASE"],
        ["ADDED", "bert", "Pending"],
        ["ADDED", "gpt", "Pending"],
    ]
    assert sorted(columns(lines, 3)[3:], key=itemgetter(1)) == [  # stable: in each job's order
        ["MODIFIED", "bert", "Succeeded"],
        ["MODIFIED", "gpt", "Suspended"],
        ["DELETED", "gpt", "Suspended"],
        ["ADDED", "llama", "Pending"],
        ["ADDED", "the-last", "Pending"],
    ]
    assert stream.complaints == ""


def test_the_first_change_of_a_watched_job_is_not_swallowed(pair: QuietJobs, watch: Watch) -> None:
    # W17: kubectl takes the first event for the state it has printed already, and drops it.
    with watch("gpt", "-w", "--show-labels") as stream:
        pair.end("bert")
        pair.label("gpt", round="1")
        pair.label("gpt", round="2")
        pair.label("gpt", round="the-last")
        lines = lines_until(stream, "the-last")
    assert [line.split()[0] for line in lines] == ["NAME", *("gpt",) * 4]
    assert [line.split()[-1] for line in lines] == [
        "LABELS",
        "<none>",
        "round=1",
        "round=2",
        "round=the-last",
    ]
