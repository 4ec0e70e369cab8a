"""The past of one job, behind the application that serves it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.asgi import Answer
from tests.jobs import T0, document
from tests.unit.api_shell import ONE, Shell
from visibility_api.app.dependencies import Found, HistorySource
from visibility_api.history.job_history import JobHistory
from visibility_api.reports.document import Progress
from visibility_api.store.memory import MemoryStore


def progress(at_s: float, step: int | None = None, **more: Any) -> Progress:
    """A report of so many seconds after T0."""
    metrics = tuple((name, str(value)) for name, value in more.pop("metrics", {}).items())
    return Progress(timestamp=T0 + timedelta(seconds=at_s), step=step, metrics=metrics, **more)


def add(history: JobHistory, report: Progress, attempt: str = "p1/0/0", **more: Any) -> None:
    """As the tracker adds a report that counts, of a clock that is right."""
    given: dict[str, Any] = {
        "continues": bool(history.attempts) and history.attempts[-1].key == attempt,
        "reported_at": report.timestamp,
        "ahead_s": 0.0,
    }
    history.add(attempt, report, **(given | more))


class Past:
    """team-a/bert has made two attempts, an hour apart; team-a/new has reported nothing. It is two hours
    after T0."""

    def __init__(self) -> None:
        self.history = JobHistory()
        for minute in range(10):
            add(
                self.history,
                progress(
                    60 * minute,
                    10 * minute,
                    epoch=minute / 10,
                    metrics={"loss": 2.5 - minute / 10, "lr": "1e-05"},
                ),
            )
        add(self.history, progress(599, metrics={"eval_loss": "nan"}))
        for minute in range(60, 65):
            add(self.history, progress(60 * minute, 10 * minute - 520, metrics={"loss": 2}), "p2/0/0")
        self.now = T0 + timedelta(hours=2)
        store = MemoryStore(base_revision=1000)
        for name in ("bert", "new"):
            store.put(document(name, labels={"team": "a"}))

        def find(resource: str, namespace: str, name: str) -> Found | None:
            entry = store.get(resource, namespace, name)
            return None if entry is None else (entry, self.history if name == "bert" else None)

        self.shell = Shell(histories=HistorySource(find=find, now=lambda: self.now))

    async def get(self, query: str = "", *headers: tuple[str, str], of: str = ONE, **more: Any) -> Answer:
        return await self.shell.get(f"{of}/history{query and '?'}{query}", *headers, **more)
