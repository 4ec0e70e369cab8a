"""Recorded trainings whose true split is known: what a job's account makes of them, beside what was so.

    python -m tests.trainings RECORDING [plain]     # prints both, in seconds by kind

A recording has two attempts of one training (tests/frameworks/test_goodput.py makes them): when each
process started and ended, its document each five seconds and its termination message, and what it has noted
itself of its steps and of all that it did beside them. `plain`: as if it had no marks.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.jobs import T0
from tests.unit.bench import Bench, at
from tests.unit.test_jobs_goodput import account, job
from visibility_api.jobs.job import Termination
from visibility_api.jobs.ledger import KINDS
from visibility_api.reports.document import Progress
from visibility_api.reports.report import parse_report

QUEUED_S, STARTING_S = 10.0, 30.0  # before the first process; not recorded, but made up
RECORDINGS = Path(__file__).parent / "recordings"
MARKS = ("timeSpent", "section", "checkpoint")


def find_truth(recording: dict[str, Any]) -> dict[str, float]:
    """Seconds by kind, as the training has noted them."""
    truth: dict[str, float] = defaultdict(float, {"Queued": QUEUED_S, "Starting": STARTING_S})
    highest, ended_at = 0, None
    for attempt in recording["attempts"]:
        noted = attempt["noted"]
        steps = [(began, ended, what["step"]) for began, ended, what in noted if "step" in what]
        marked = [(began, ended, what["kind"]) for began, ended, what in noted if "kind" in what]
        for began, ended, kind in marked:
            truth[kind] += ended - began

        def rest(since: float, until: float, marked: list[Any] = marked) -> float:
            """Seconds of that time in which nothing else was done."""
            inside = (max(0.0, min(ended, until) - max(began, since)) for began, ended, _ in marked)
            return max(0.0, until - since) - sum(inside)

        begun_at, last_at = steps[0][0], steps[-1][1]
        overtaken_at = next(began for began, _, step in steps if step > highest)
        startup = "ProgramStartup" if ended_at is None else "Recovery"
        truth[startup] += rest(attempt["started"] if ended_at is None else ended_at, begun_at)
        truth["LostProgress"] += rest(begun_at, overtaken_at)
        truth["Productive"] += rest(overtaken_at, last_at)
        truth["Other"] += rest(last_at, attempt["ended"])
        highest, ended_at = steps[-1][2], attempt["ended"]
    return dict(truth)


def replay(
    recording: dict[str, Any], *, has_marks: bool, every_s: float = 15, first_s: float = 5
) -> dict[str, float]:
    """Seconds by kind, as the server says, which reads the document so often."""
    attempts = recording["attempts"]
    made_at = attempts[0]["started"] - QUEUED_S - STARTING_S - T0.timestamp()
    made = Bench(now=at(0))
    made.job(job(run_s=None, node_s=None))

    def since(unix_s: float) -> float:
        return unix_s - T0.timestamp() - made_at

    def read(text: str) -> Progress:
        document = json.loads(_shift(text, made_at))
        for name in () if has_marks else MARKS:
            document.pop(name, None)
        found = parse_report(json.dumps(document).encode())
        assert isinstance(found, Progress), found
        return found

    pod: dict[str, Any] = {"is_running": True}
    for number, attempt in enumerate(attempts):
        run_s = since(attempt["started"])
        made.now = at(run_s)
        pod |= {"restart_count": number, "is_running": True}
        made.job(job(run_s=run_s, pod=pod))
        due_s = attempt["started"] + first_s
        for read_s, text in attempt["documents"]:
            if read_s < due_s - 1:
                continue
            due_s += every_s
            made.now = at(since(read_s))
            if text:
                made.observe(read(text), attempt=f"p1/{number}/0")
            made.review()
        made.now = at(since(attempt["ended"]))
        made.observe(
            read(attempt["message"]), attempt=f"p1/{number}/0", source="termination", is_final_read=True
        )
        ended = Termination(
            exit_code=attempt["exit"], signal=None, reason="Error" if attempt["exit"] else "Completed",
            finished_at=made.now,
        )  # fmt: skip
        pod |= {"is_running": False, "last_termination": ended}
        made.job(job(run_s=run_s, pod=pod))
        made.review()
    return dict(zip(KINDS, account(made).spent(), strict=True))


def _shift(text: str, by_s: float) -> str:
    """The document with all of its times so much earlier."""

    def shift(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {name: shift(each, name) for name, each in value.items()}
        if name in ("timestamp", "startTime"):
            return (datetime.fromisoformat(value) - timedelta(seconds=by_s)).isoformat()
        return value

    return json.dumps(shift(json.loads(text)))


def main(path: str, *how: str) -> None:
    recording = json.loads(Path(path).read_text())
    print(
        json.dumps(
            {"truth": find_truth(recording), "found": replay(recording, has_marks=how != ("plain",))},
            indent=1,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
