"""`kubectl trainjob-progress`: what is printed for which answers, and with which exit code."""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trainjob_cli import complete, following, main as commands, records as past, terminal as drawing, waiting
from trainjob_cli.api import UsageError
from trainjob_cli.listing import Lines
from trainjob_cli.reading import readable
from trainjob_cli.terminal import Terminal
from trainjob_client.ages import later
from trainjob_client.requests import PREFIX, Answer, Call
from trainjob_client.sending import Sender
from trainjob_client.words import CONDITION_TYPES, PHASES

HEADS = ("Name", "Kind", "Phase", "Progress", "Step", "Loss", "ETA", "Seen", "Age", "Reason", "Message")
TEAM = f"{PREFIX}/namespaces/team-a"
SCREEN = Terminal(is_terminal=True, has_colour=False, has_blocks=True, width=80)


def job(name: str = "bert", phase: str = "Running", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "team-a", "uid": "u", "resourceVersion": "1"}
    return {"kind": "TrainJobProgress", "metadata": meta, "status": {"phase": phase, **more}}


def table(*rows: tuple[str, ...]) -> dict[str, Any]:
    hidden = ("Reason", "Message")
    heads = [{"name": each, "priority": int(each in hidden)} for each in HEADS]
    meta = {"metadata": {"namespace": "team-a"}}
    found = [{"cells": [*row, *[None] * (len(HEADS) - len(row))], "object": meta} for row in rows]
    return {"columnDefinitions": heads, "rows": found, "metadata": {}}


def refusal(code: int, reason: str, message: str) -> Answer:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"name": "x"}}
    return Answer(code, json.dumps(status).encode())


class Cluster:
    """What each path answers; what is not there is not found."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[Call] = []
        self.streams: dict[str, list[bytes]] = {}  # lines of the first watch of each path

    def send(self, call: Call) -> Answer:
        self.asked.append(call)
        found = self.answers.get(call.path)
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            return refusal(404, "NotFound", f'"{call.path.rpartition("/")[2]}" not found')
        return found if isinstance(found, Answer) else Answer(200, json.dumps(found).encode())

    @contextmanager
    def stream(self, call: Call) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        self.asked.append(call)
        lines = self.streams.pop(call.path, None)
        if lines is None:
            threading.Event().wait()  # a watch without news
        yield Answer(200, b""), iter(lines or ())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    found = Cluster()
    monkeypatch.setattr(Sender, "send", lambda _, call: found.send(call))
    monkeypatch.setattr(Sender, "stream", lambda _, call: found.stream(call))
    monkeypatch.setattr("time.sleep", lambda _: None)
    config = {
        "current-context": "one",
        "clusters": [{"name": "a", "cluster": {"server": "https://example"}}],
        "contexts": [{"name": "one", "context": {"cluster": "a", "namespace": "team-a"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return found


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        code = commands.main(words)
        out, err = capsys.readouterr()
        return code, out, err

    return call


# --- what is typed


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", "get"),
        ("-A", "get -A"),
        ("bert -o json", "get bert -o json"),
        ("-n team-a logs bert", "logs -n team-a bert"),
        ("--context why history bert", "history --context why bert"),
        ("-w", "get -w"),
        ("get top", "get top"),
        ("-o=json -n=team-a logs bert", "logs -o json -n team-a bert"),
        ("run -- tool -o=x", "run -- tool -o=x"),
        ("--help", "--help"),
        ("run -- python train.py", "run -- python train.py"),
    ],
)
def test_flags_may_stand_before_the_command_and_the_command_may_be_left_out(typed: str, meant: str) -> None:
    assert commands.ordered(typed.split()) == meant.split()


RUNNING = job(
    progressPercentage=50,
    metrics=[{"name": "loss", "value": "0.25"}],
    steps={"current": 500},
    conditions=[{"type": "Stalled", "status": "True"}, {"type": "Fresh", "status": "False"}],
)


@pytest.mark.parametrize(
    ("until", "holds"),
    [
        ("50%", True),
        ("50.5%", False),
        ("loss<0.3", True),
        ("loss <= 0.25", True),
        ("loss>0.3", False),
        ("accuracy>0.3", False),
        ("step>=500", True),
        ("Stalled", True),
        ("fresh", False),
        ("running", True),
        ("done", False),
        ("ended", False),
    ],
)
def test_what_may_be_waited_for(until: str, holds: bool) -> None:
    assert waiting.read_until(until)(RUNNING) is holds


@pytest.mark.parametrize("until", ["", "finshed", "created", "loss<", "loss<low", "a b", "50 %"])
def test_what_cannot_be_waited_for_is_refused(until: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        waiting.read_until(until)


def test_each_phase_and_condition_may_be_waited_for() -> None:
    for word in (*PHASES, *CONDITION_TYPES):
        waiting.read_until(word)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("1h30m", 5400), ("1.5d", 129_600)]
)
def test_durations_are_as_kubectls_with_days(text: str, seconds: float) -> None:
    assert waiting.read_duration(text) == seconds
    with pytest.raises(UsageError):
        waiting.read_duration(text + "x")


@pytest.mark.parametrize(
    ("jobs", "code", "says"),
    [
        ([job(), job(phase="Succeeded")], 0, "bert condition met"),
        ([job(), job(phase="Failed", failure={"message": "\x1bOOM"})], 3, "has ended: Failed. \ufffdOOM"),
        ([job()], 4, "timed out waiting"),
        ([job(), *[Answer(503, b"")] * 8, job(phase="Succeeded")], 0, "bert condition met"),
        ([job(), refusal(404, "NotFound", "it is gone")], 1, "it is gone"),
    ],
)
def test_the_exit_code_of_a_wait_says_how_it_ended(
    cluster: Cluster, run: Run, jobs: list[Any], code: int, says: str
) -> None:
    cluster.answers[f"{TEAM}/trainjobs/bert"] = jobs
    found, out, err = run("wait", "bert", "--timeout", "0" if code == 4 else "1h")
    assert found == code
    assert says in out + err


class Clock:
    """Sleeping takes no time, but counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept = 0.0
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr("time.monotonic", lambda: self.slept)

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.mark.parametrize("before", [[], [job()]])
def test_a_wait_ends_in_time_whatever_the_server_says(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, before: list[Any]
) -> None:
    busy = Answer(429, refusal(429, "TooManyRequests", "later").body, {"retry-after": "60"})
    cluster.answers[f"{TEAM}/trainjobs/bert"] = [*before, busy]
    clock = Clock(monkeypatch)
    code, _, err = run("wait", "bert", "--timeout", "10s")
    assert (code, round(clock.slept)) == (4, 10)
    assert "The last answer was: later" in err
    assert all(each.timeout_s is not None and each.timeout_s <= 10.0 for each in cluster.asked)


# --- which job is meant


def test_a_bare_name_is_a_trainjob_or_the_only_job_of_that_name(cluster: Cluster, run: Run) -> None:
    def of(resource: str) -> dict[str, Any]:
        return {**job(f"{resource}.mlp"), "jobRef": {"resource": resource, "name": "mlp"}}

    cluster.answers[f"{TEAM}/trainingjobs"] = {"items": [of("pytorchjobs")]}
    cluster.answers[f"{TEAM}/pytorchjobs/mlp"] = job("mlp")
    assert run("mlp", "-o", "name")[:2] == (0, "pytorchjobprogress.visibility.trainer.kubeflow.org/mlp\n")
    cluster.answers[f"{TEAM}/trainingjobs"] = {"items": [of("pytorchjobs"), of("jobs")]}
    code, _, err = run("why", "mlp")
    assert (code, err) == (
        1,
        "error: mlp is the name of several jobs; say which one: pytorchjobs/mlp, jobs/mlp\n",
    )
    assert run("nobody")[::2] == (1, 'Error from server (NotFound): "nobody" not found\n')


# --- what is printed


def test_the_list_is_the_servers_table_with_what_may_be_typed_again(cluster: Cluster, run: Run) -> None:
    cluster.answers[f"{TEAM}/trainingjobs"] = table(
        ("trainjobs.bert", "TrainJob", "Running", "45%", "450/1000"),
        ("pytorchjobs.mlp", "PyTorchJob", "Failed"),
    )
    code, out, err = run("-l", "team=a")
    assert (code, err) == (0, "")
    assert [re.split(r"  +", line)[:4] for line in out.splitlines()] == [
        ["NAME", "KIND", "PHASE", "PROGRESS"],
        ["bert", "TrainJob", "Running", "45%"],
        ["pytorchjobs.mlp", "PyTorchJob", "Failed"],
    ]
    assert cluster.asked[-1].parameters == [("labelSelector", "team=a"), ("limit", "100")]
    assert (
        run("-o", "name")[1].splitlines()[0] == "trainingjob.visibility.trainer.kubeflow.org/trainjobs.bert"
    )
    assert "NAME" not in run("--no-headers")[1]
    assert "MESSAGE" in run("-o", "wide")[1]


def test_a_long_list_begins_with_a_small_page_and_its_columns_only_grow(cluster: Cluster, run: Run) -> None:
    first, second, third = (table(("a" * size, "TrainJob", "Running", "45%")) for size in (6, 3, 9))
    first["metadata"]["continue"] = second["metadata"]["continue"] = "there"
    cluster.answers[f"{TEAM}/trainingjobs"] = [first, second, third]
    out = run()[1].splitlines()
    assert [line.index("TrainJob") for line in out[1:]] == [9, 9, 12]
    assert [call.parameters for call in cluster.asked] == [[("limit", "100")], *[[("continue", "there")]] * 2]
    assert [line.split()[0] for line in out] == ["NAME", "aaaaaa", "aaa", "aaaaaaaaa"]


def test_a_server_and_a_token_need_no_kubeconfig(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cluster.answers[f"{TEAM}/trainjobs/bert"] = job()
    words = ("bert", "-o", "name", "-n", "team-a")
    assert run(*words, "-s", "https://example", "--token", "t")[0] == 0
    assert run(*words)[0] == 1
    assert run(*words, "-s", "https://example", "--context", "none")[0] == 1


def test_a_reader_that_goes_ends_a_command_as_a_signal_would(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers[f"{TEAM}/trainingjobs"] = {"items": []}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert commands.main(["-o", "json"]) == 141


def test_an_empty_list_says_so_as_kubectl_does(cluster: Cluster, run: Run) -> None:
    cluster.answers[f"{TEAM}/trainingjobs"] = table()
    assert run() == (0, "", "No resources found in team-a namespace.\n")
    first = table(("bert", "TrainJob", "Running"))
    first["metadata"]["continue"] = "there"
    cluster.answers[f"{TEAM}/trainingjobs"] = [first, table()]
    assert run()[2] == "", "the last page may be empty"
    cluster.answers[f"{TEAM}/trainingjobs"] = table()
    cluster.answers[f"{TEAM}/trainingjobs"] = refusal(403, "Forbidden", "no,\nand \x1b[2Jno")
    assert run() == (1, "", "Error from server (Forbidden): no,\nand \ufffd[2Jno\n")


ROWS = [
    dict(zip(("NAMESPACE", *map(str.upper, HEADS)), cells.split(","), strict=True))
    for cells in (
        "a,a-job-with-a-rather-long-name-1,PyTorchJob,Running,45%,450/1000,0.3,12m,5s,3h,Stalled,",
        "a,日本語の名前,TrainJob,Failed,,,,,9s,3h,OOMKilled,",
    )
]


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (200, "NAME KIND PHASE PROGRESS STEP LOSS ETA SEEN AGE REASON"),
        (100, "NAME KIND PHASE PROGRESS STEP LOSS ETA"),
        (80, "NAME PHASE PROGRESS STEP LOSS ETA"),
        (40, "NAME PHASE PROGRESS"),
    ],
)
def test_what_a_terminal_is_too_narrow_for_is_left_out(width: int, heads: str) -> None:
    shown = Terminal(is_terminal=True, has_blocks=True, width=width)
    lines = Lines(shown, {}, {"REASON", "MESSAGE"}, is_wide=False).of(ROWS)
    assert lines[0].split() == heads.split()
    assert max(map(drawing.cells_of, lines)) <= width


def test_jobs_without_a_percentage_are_listed_without_bars() -> None:
    rows = [{**row, "PROGRESS": ""} for row in ROWS]
    shown = Terminal(is_terminal=True, has_blocks=True, width=200)
    lines = Lines(shown, {}, {"REASON", "MESSAGE"}, is_wide=False).of(rows)
    assert "PROGRESS" not in lines[0]
    assert len(lines) == 3


def row(name: str, version: int, *cells: str) -> dict[str, Any]:
    """A Table of one job, as an event of a watch has it; the first of a list has columns as well."""
    found = table((name, "TrainJob", *cells))
    found["metadata"]["resourceVersion"] = str(version)
    for each in found["rows"]:
        each["object"] = job(name)
        each["object"]["metadata"]["resourceVersion"] = str(version)
    return found


def event(type_: str, object_: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": {**object_, "columnDefinitions": None}}).encode()


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C once all of the stream is shown: a drawing after it finds nothing new."""
    real = following.Feed.news
    quiet = []

    def news(feed: following.Feed, timeout_s: float = 1.0) -> list[Any]:
        found = real(feed, timeout_s=0.05)
        quiet.append(not found)
        if quiet[-3:] == [True] * 3:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(following.Feed, "news", news)


def test_a_pipe_gets_a_line_for_each_job_that_has_changed_by_more_than_its_ages(
    cluster: Cluster, run: Run, stop: None
) -> None:
    cluster.answers[f"{TEAM}/trainingjobs"] = row("bert", 10, "Running", "45%", "", "", "9m", "1s", "3m")
    cluster.streams[f"{TEAM}/trainingjobs"] = [
        event("MODIFIED", row("bert", 11, "Running", "45%", "", "", "8m", "2s", "4m")),
        event("MODIFIED", row("bert", 12, "Running", "46%", "", "", "7m", "0s", "4m")),
        event("ADDED", row("gpt", 13, "Pending", "", "", "", "", "", "0s")),
        event("DELETED", row("gpt", 14, "Pending", "", "", "", "", "", "1s")),
    ]
    code, out, _ = run("-w")
    assert code == 130
    assert [line.split()[:4] for line in out.splitlines()] == [
        ["NAME", "KIND", "PHASE", "PROGRESS"],
        ["bert", "TrainJob", "Running", "45%"],
        ["bert", "TrainJob", "Running", "46%"],
        ["gpt", "TrainJob", "Pending", "0s"],
    ]
    assert [dict(call.parameters).get("watch") for call in cluster.asked[:2]] == [None, "true"]


def test_a_live_list_is_drawn_anew_with_ages_that_go_on_and_fits_two_rows(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, stop: None
) -> None:
    cluster.answers[f"{TEAM}/trainingjobs"] = row("bert", 10, "Running", "45%", "", "", "9m", "1s", "3m")
    cluster.streams[f"{TEAM}/trainingjobs"] = [event("ADDED", row("a", 11, "Running"))]
    shown = Terminal(is_terminal=True, width=80, height=2)
    monkeypatch.setattr(following, "terminal", lambda: shown)
    ticks = itertools.count(0.0, 60.0)
    monkeypatch.setattr(following.time, "monotonic", lambda: next(ticks))
    code, out, _ = run("-w")
    screens = out.split("\x1b[H")[1:]
    assert code == 130
    assert all(screen.count("\n") <= 1 for screen in screens)
    assert "and 2 more" in screens[-1]
    monkeypatch.setattr(following, "terminal", lambda: Terminal(is_terminal=True, width=80, height=24))
    cluster.streams[f"{TEAM}/trainingjobs"] = []
    line = run("-w")[1].split("\x1b[H")[-1].splitlines()[1]
    assert re.match(r"bert +TrainJob +Running .*\b[1-8]m.*\b[1-9]m", line)


def test_one_job_is_followed_to_its_end(cluster: Cluster, run: Run) -> None:
    place = f"{TEAM}/trainjobs"
    cluster.answers[f"{place}/bert"] = job()
    cluster.answers[f"{place}/bert/history"] = {"series": []}
    cluster.answers[place] = {"metadata": {"resourceVersion": "10"}, "items": [job()]}
    ended = job(phase="Succeeded")
    ended["metadata"]["resourceVersion"] = "11"
    cluster.streams[place] = [event("MODIFIED", ended)]
    code, out, _ = run("bert", "-w")
    assert code == 0
    assert out.splitlines()[-1] == "team-a/bert  Succeeded"
    assert ("fieldSelector", "metadata.name=bert") in cluster.asked[1].parameters
    cluster.streams[place] = [event("DELETED", ended)]
    deleted = (1, 'Error from server (NotFound): trainjobs "bert" was deleted\n')
    assert run("bert", "-w")[::2] == deleted
    cluster.answers[place] = {"metadata": {"resourceVersion": "12"}, "items": []}
    assert run("bert", "-w")[::2] == deleted, "between the document and the list"


@pytest.mark.parametrize("words", [("jrec/bert-1",), ("-k", "jobrecords")])
def test_records_are_not_watched(cluster: Cluster, run: Run, words: tuple[str, ...]) -> None:
    record = {**job("bert-1"), "summary": {"phase": "Failed"}, "progress": {"phase": "Running"}}
    cluster.answers[f"{TEAM}/jobrecords/bert-1"] = record
    said = "error: Records do not change, so they cannot be watched: leave out -w.\n"
    assert run("get", *words, "-w") == (1, "", said)


@pytest.mark.parametrize(
    ("cell", "seconds", "then"),
    [
        ("1s", 4, "5s"),
        ("3h20m", 61, "3h21m"),
        ("47s", -50, ""),
        ("47s", -7, "40s"),
        ("<unknown>", 9, "<unknown>"),
    ],
)
def test_an_age_goes_on_between_two_words_of_the_server(cell: str, seconds: float, then: str) -> None:
    assert later(cell, seconds) == then


def test_colour_is_there_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    def of(**environment: str) -> Terminal:
        for name in ("NO_COLOR", "TERM"):
            monkeypatch.setenv(name, environment.get(name, ""))
        return Terminal.of(Screen())  # type: ignore[arg-type]

    assert of(TERM="xterm").has_colour
    assert not of(TERM="xterm", NO_COLOR="1").has_colour
    assert of(TERM="xterm", NO_COLOR="1").has_blocks
    for term in ("dumb", ""):
        dumb = of(TERM=term)
        assert (dumb.has_colour, dumb.has_blocks, dumb.is_terminal) == (False, False, False)
        assert dumb.bar(0.5, 4) == "##.."
    assert SCREEN.bar(0.55, 4) == "██▎░"


def test_a_curve_fits_and_names_its_ends() -> None:
    points = [(float(step), 1 / (step + 1)) for step in range(100)]
    for shown in (SCREEN, Terminal()):
        lines = drawing.curve(points, 40, 6, shown)
        assert len(lines) == 7
        assert max(map(len, lines)) <= 40
        assert lines[0].startswith("   1 ")
        assert lines[5].startswith("0.01 ")
        assert lines[6].split() == ["0", "99"]


def test_a_curve_may_go_from_one_end_of_the_doubles_to_the_other() -> None:
    lines = drawing.curve([(0.0, 1e308), (1.0, -1e308)], 40, 6, SCREEN)
    assert (lines[0].split()[0], lines[5].split()[0]) == ("1e+308", "-1e+308")


DESCRIBED = job(
    phase="Failed",
    progressPercentage=23,
    steps={"current": 14, "total": 60},
    metrics=[{"name": "loss", "value": "1.461328"}, {"name": "evil\x1b[2J", "value": "\x1b]0;title\x07"}],
    failure={
        "message": "OOMKilled on node-0. Cause: no room.",
        "cause": "no room.",
        "hint": "Raise its limit.",
        "retryable": False,
    },
    conditions=[
        {"type": "Stalled", "status": "True", "reason": "NoAdvance", "message": "No advance for 6m."}
    ],
    goodput={"whole": {"percentage": 77.4, "seconds": {"productive": 60, "starting": 20, "stalled": 20}}},
    message="working \x1b[31mhard",
)


def test_one_job_is_told_in_words_and_drives_no_terminal(cluster: Cluster, run: Run) -> None:
    cluster.answers[f"{TEAM}/trainjobs/bert"] = DESCRIBED
    series = {"metric": "loss", "steps": [1, 2], "times": [1, 2], "values": ["2", "1"]}
    cluster.answers[f"{TEAM}/trainjobs/bert/history"] = {"series": [series]}
    code, out, _ = run("bert")
    assert code == 0
    assert "\x1b" not in out
    for part in (
        "team-a/bert  Failed",
        "23%",
        "14 of 60",
        "loss 1.461",
        "OOMKilled on node-0.",
        "Stalled (NoAdvance):",
        "Goodput 77% of 100s",
        "Productive 60%, Starting 20%, Stalled 20%",
        "loss: 2 -> 1",
    ):
        assert part in out, part
    out = run("why", "bert")[1]
    for part in ("Raise its limit.", "Another attempt will fail in the same way.", "logs bert -n team-a"):
        assert part in out
    assert out.count("no room.") == 1


def test_two_jobs_are_compared_at_the_same_steps(cluster: Cluster, run: Run) -> None:
    for name, end, value in (("bert", 100, "0.5"), ("gpt", 400, "0.7")):
        cluster.answers[f"{TEAM}/trainjobs/{name}"] = job(name, metrics=[{"name": "loss", "value": value}])
        steps = list(range(0, end + 1, 10))
        series = {"metric": "loss", "steps": steps, "times": steps, "values": [value] * len(steps)}
        cluster.answers[f"{TEAM}/trainjobs/{name}/history"] = {"series": [series]}
    rows = [re.split(r"  +", line) for line in run("compare", "bert", "gpt")[1].splitlines()]
    assert ["loss", "0.5", "0.7"] in rows
    assert ["loss at 25", "0.5", "0.7"] in rows
    assert ["loss at 100", "0.5", "0.7"] in rows


def test_runs_of_the_past_are_shown_side_by_side_with_their_best_and_the_cause_of_their_end(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(uid: str, name: str, phase: str, **more: Any) -> dict[str, Any]:
        metadata = {"name": f"{name}-{uid}", "namespace": "team-a", "uid": uid, "resourceVersion": "1"}
        series = {"metric": "loss", "steps": [1, 2, 3], "times": [1, 2, 3], "values": ["3", uid, "NaN"]}
        cluster.answers[f"{TEAM}/jobrecords/{name}-{uid}/history"] = {"series": [series]}
        ref = {"kind": "TrainJob", "resource": "trainjobs", "name": name, "uid": uid}
        return {"metadata": metadata, "jobRef": ref, "summary": {"phase": phase, **more}}

    failed = record("1", "bert", "Failed", cause="OOMKilled", durationSeconds=7500, goodputPercentage=88.2)
    best = [{"name": "loss", "value": "1.5"}]  # of a newer record: its history is not read
    done = record("2", "bert", "Succeeded", progressPercentage=100, attempts=2, best=best)
    pages = [
        {"items": [failed, record("9", "gpt", "Failed")], "metadata": {"continue": "more"}},
        {"items": [done], "metadata": {}},
    ]
    cluster.answers[f"{TEAM}/jobrecords"] = [*pages, *pages]
    code, out, _ = run("records", "bert", "--since", "720h", "-l", "team=a")
    assert code == 0
    heads, *rows = [re.split(r"  +", line) for line in out.splitlines()]
    assert heads == ["NAME", "PHASE", "PROGRESS", "BEST LOSS", *heads[4:]]
    assert heads[4:] == ["STEP", "DURATION", "GOODPUT", "ATTEMPTS", "CAUSE", "ENDED"]
    assert rows == [
        ["bert-1", "Failed", "1", "125m", "88%", "OOMKilled"],
        ["bert-2", "Succeeded", "100%", "1.5", "2"],
    ]
    assert cluster.asked[0].parameters == [("labelSelector", "team=a"), ("since", "720h")]
    shown = Terminal(is_terminal=True, has_blocks=True, width=60)
    with monkeypatch.context() as narrow:
        narrow.setattr(past, "terminal", lambda: shown)
        cluster.answers[f"{TEAM}/jobrecords"] = [*pages, *pages]
        out = run("records", "bert")[1]
    assert out.split("\n")[0].split() == ["NAME", "PHASE", "BEST", "LOSS", "DURATION", "CAUSE"]
    assert max(map(drawing.cells_of, out.splitlines())) <= 60
    cluster.answers[f"{TEAM}/jobrecords"] = [*pages]
    assert json.loads(run("records", "bert", "-o", "json")[1])["items"] == [failed, done]
    cluster.answers[f"{TEAM}/jobrecords"] = table(("bert-1", "TrainJob", "Failed", "45%"))
    name = "jobrecord.visibility.trainer.kubeflow.org/bert-1\n"
    assert run("records", "-o", "name", "--until", "1h")[1] == name
    assert cluster.asked[-1].parameters == [("until", "1h"), ("limit", "100")]
    whole = {**failed, "progress": {"phase": "Failed", "failure": {"class": "AcceleratorOutOfMemory"}}}
    cluster.answers[f"{TEAM}/jobrecords/bert-1"] = whole
    cluster.answers[f"{TEAM}/jobrecords/bert-2"] = {**done, "progress": {"phase": "Succeeded"}}
    rows = [re.split(r"  +", line) for line in run("compare", "jrec/bert-1", "jrec/bert-2")[1].splitlines()]
    assert ["Phase", "Failed", "Succeeded"] in rows
    assert ["Least loss", "1", "2"] in rows
    assert ["Cause", "AcceleratorOutOfMemory"] in rows
    assert run("wait", "jrec/bert-1", "--until", "ended")[0] == 0


def test_the_best_of_a_metric_is_told_as_the_page_tells_it() -> None:
    cases = json.loads(Path(__file__).with_name("best_values.json").read_text())
    means = {"lowest": min, "highest": max, None: None}
    assert {name: past.best_of(name) for name, _ in cases} == {name: means[best] for name, best in cases}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("plain text", "plain text"),
        ("{not json", "{not json"),
        ("[1]", "[1]"),
        ("{}", "{}"),
        (
            '{"time": "12:00", "level": "info", "message": "epoch ended", "epoch": 2, "note": "a b"}',
            '12:00 INFO epoch ended epoch=2 note="a b"',
        ),
        ('{"step": 5, "loss": 0.25}', "step=5 loss=0.25"),
        ('{"msg": "\\u001b[2J"}', "\ufffd[2J"),
        ('{"time": "\\u001b[2J", "level": "\\u009b", "m": 1}', "\ufffd[2J \ufffd m=1"),
        ('{"note": "a \\u009b2J"}', 'note="a \ufffd2J"'),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("\x1b[1;32mgreen\x1b[0m\tcell", "green\tcell"),
    ],
)
def test_json_lines_of_a_log_are_made_readable(line: str, text: str) -> None:
    assert readable(line) == text


def test_a_cell_drives_no_terminal(cluster: Cluster, run: Run) -> None:
    nothing = ("",) * 6
    cluster.answers[f"{TEAM}/trainingjobs"] = table(
        ("bert", "TrainJob", "Running", *nothing, "", "\x1b]0;title\x07")
    )
    assert "\ufffd]0;title\ufffd" in run("-o", "wide")[1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_raw_lines_are_as_they_are_but_drive_no_terminal(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    cluster.answers[f"{TEAM}/trainjobs/bert"] = job()
    cluster.answers[f"{TEAM}/trainjobs/bert/log-tail"] = {"podName": "p", "lines": ['{"a": "\x1b[2J"}']}
    monkeypatch.setattr("trainjob_cli.reading.terminal", lambda: Terminal(is_terminal=is_terminal))
    assert ("\x1b" in run("logs", "bert", "--raw")[1]) is not is_terminal


@pytest.mark.parametrize("has_colour", [True, False])
def test_a_job_that_stands_still_is_not_one_with_which_nothing_is_wrong(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, has_colour: bool
) -> None:
    monkeypatch.setattr("trainjob_cli.reading.terminal", lambda: Terminal(True, has_colour))
    stalled = {"type": "Stalled", "status": "True", "reason": "NoAdvance", "message": "No advance for 38s."}
    for conditions, is_well in (([stalled], False), ([], True)):
        cluster.answers[f"{TEAM}/trainjobs/bert"] = job(conditions=conditions)
        out = run("why", "bert")[1]
        assert ("No advance for 38s." in out, "Nothing is wrong" in out) == (not is_well, is_well)


def test_a_log_without_a_line_says_so(cluster: Cluster, run: Run) -> None:
    cluster.answers[f"{TEAM}/trainjobs/bert"] = job()
    cluster.answers[f"{TEAM}/trainjobs/bert/log-tail"] = {"podName": "p", "lines": []}
    assert run("logs", "bert")[1:] == ("", "# p\nIt has printed nothing.\n")


def test_where_no_archive_is_records_say_which_flag_is_missing(cluster: Cluster, run: Run) -> None:
    cluster.answers[f"{TEAM}/jobrecords"] = Answer(
        404, b'{"kind": "Status", "message": "the server could not find the requested resource"}'
    )
    code, _, err = run("records")
    assert code == 1
    assert "--archive" in err


def test_bars_fit_into_80_columns_and_a_narrower_terminal_has_shorter_ones() -> None:
    heads = ("NAMESPACE", "NAME", "KIND", "PHASE", "PROGRESS", "STEP", "LOSS", "ETA", "SEEN", "AGE")
    cells = (
        "team-a",
        "pytorchjobs.mlps",
        "PyTorchJob",
        "Succeeded",
        "100%",
        "120/120",
        "0.4042",
        "",
        "",
        "2m",
    )
    rows = [{**dict(zip(heads, cells, strict=True)), "REASON": ""}]
    for width, bar in ((80, 12), (79, 6), (60, 0)):
        shown = Terminal(is_terminal=True, has_blocks=True, width=width)
        (_, line) = Lines(shown, {}, {"REASON"}, is_wide=False).of(rows)
        assert line.count("█") == bar, width
        assert len(line) <= width


def test_the_fleet_is_sorted_by_what_it_wastes(cluster: Cluster, run: Run) -> None:
    def group(name: str | None, stalled: int) -> dict[str, Any]:
        goodput = {"percentage": 50.0, "acceleratorSeconds": {"productive": 10**6, "stalled": stalled}}
        return {"name": name, "jobs": 2, "running": 1, "accelerators": 8, "goodput": goodput}

    groups = [group("team-a", 3600), group("team-b", 36_000), group(None, 60)]
    cluster.answers[f"{PREFIX}/trainingjobs"] = {"groups": groups, "total": group(None, 39_660)}
    lines = run("top", "-A", "--by", "label:team", "--window", "hour")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["LABEL:TEAM", "team-b", "team-a", "(none)", "(all)"]
    assert lines[1].split()[-1] == "10.0h"
    assert cluster.asked[-1].parameters == [("sumBy", "label:team"), ("window", "hour")]


def test_a_check_ends_at_the_first_broken_link(cluster: Cluster, run: Run) -> None:
    code, out, _ = run("check")
    assert (code, out.splitlines()[-1]) == (1, 'FAULT "v1alpha1" not found')
    cluster.answers[PREFIX] = {"resources": [{"name": "trainjobs"}, {"name": "trainjobs/history"}]}
    silent = job(conditions=[{"type": "Reporting", "status": "False"}], observation={"message": "no file"})
    cluster.answers[f"{TEAM}/trainingjobs"] = {"items": [silent, job("fine")]}
    code, out, _ = run("check")
    assert code == 1
    assert out.splitlines()[1:] == [
        "ok    the API is served, with trainjobs",
        "ok    2 jobs may be read in namespace team-a",
        "FAULT bert does not report: no file",
    ]


# --- completion


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["lo"], ["logs"]),
        (["logs", ""], ["bert", "pytorchjobs.mlp"]),
        (["-n", "team-a", "why", "be"], ["bert"]),
        (["get", "-o", "j"], ["json"]),
        (["wait", "bert", "--until", "d"], ["done", "diverged"]),
        (["get", "--context", ""], ["one"]),
        (["top", "--win"], ["--window"]),
        (["logs", "-n", ""], []),
        (["--help", "-"], []),
        (["-h", ""], []),
    ],
)
def test_kubectl_is_told_what_may_come_next(cluster: Cluster, typed: list[str], found: list[str]) -> None:
    rows = (("trainjobs.bert", "TrainJob", "Running"), ("pytorchjobs.mlp", "PyTorchJob", "Failed"))
    cluster.answers[f"{TEAM}/trainingjobs"] = table(*rows)
    assert complete.candidates(typed) == found


def test_completion_asks_a_silent_server_once(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers[f"{TEAM}/trainingjobs"] = refusal(503, "ServiceUnavailable", "later")
    clock = Clock(monkeypatch)
    assert complete.candidates(["logs", ""]) == []
    assert clock.slept == 0.0
    assert [each.timeout_s for each in cluster.asked] == [2.0]
