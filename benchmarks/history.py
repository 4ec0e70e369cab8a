"""What keeping the history of jobs costs: memory, reporting beside none, downsampling, and the disk.

    python -m benchmarks.history [--jobs N]

Reporting: every job reports ten metrics once in 15 s, through the tracker, with its history and without, in
turns. Memory: a job whose history is full, by what Python allocates for it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from tests.jobs import rank0
from visibility_api.history.job_history import JobHistory
from visibility_api.history.thinning import downsample
from visibility_api.history.view import Selection, select
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.jobs.memory import save_history
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.reports.document import Point, Progress
from visibility_api.store.state_file import Bounds, StateFile
from visibility_api.store.state_writer import Rhythm

from .state import written_bytes

JOBS, METRICS, INTERVAL_S = 300, 10, 15
WEEK = 7 * 86400 // INTERVAL_S
FULL, SEVERAL = 1500, 20
REPORTS = 120  # of each job in one turn; half an hour
TURNS = 3
LINES, PRINTED = 10, ("loss", "grad_norm", "learning_rate")
POINTS, MOST = 5000, 500
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
REPORTS_A_SECOND = 10_000 / INTERVAL_S


async def show(jobs: int = JOBS) -> None:
    _show_memory()
    _show_log()
    _show_downsampling()
    _show_reporting(jobs)
    _show_disk()


def report(number: int, noise: random.Random) -> Progress:
    """Values as trainings print them: some rounded to four digits, some of 32 and some of 64 bits."""
    values = [
        f"{noise.gauss(1, 0.1):.4f}" if each % 2 else repr(noise.gauss(1, 0.1)) for each in range(METRICS)
    ]
    return Progress(
        timestamp=BEGIN + timedelta(seconds=INTERVAL_S * number + noise.random()),
        step=10 * number,
        total_steps=10 * WEEK,
        epoch=number / 1000,
        metrics=tuple([(f"train/metric_{each}", value) for each, value in enumerate(values)]),
    )


def _show_memory() -> None:
    """Of several that are full, each at another moment between two thinnings."""
    noise = random.Random(1)
    for number in range(FULL):
        _add(JobHistory(), number, noise)  # what modules keep for themselves
    tracemalloc.start()
    before = _traced()
    histories = [JobHistory() for _ in range(SEVERAL)]
    for each, history in enumerate(histories):
        for number in range(FULL + 7 * each):
            _add(history, number, noise)
    size = (_traced() - before) / SEVERAL
    tracemalloc.stop()
    points = [
        len(each.values) for history in histories for each in select(history, Selection(), now_s=1e12).series
    ]
    saved = statistics.fmean([len(history.save()) for history in histories])
    print(f"\nThe history of a job with {METRICS} metrics, after {FULL} reports and more, of {SEVERAL}")
    print(f"  memory                    {size / 1024:8.1f} KiB")
    print(f"  stored and given          {saved / 1024:8.1f} KiB")
    print(f"  points                    {min(points):5d} to {max(points)} of each metric")


def _show_log() -> None:
    """Ten lines between two probes, with three metrics, as Hugging Face's Trainer prints."""
    noise, history, at_s = random.Random(1), JobHistory(), 0.0
    for number in range(WEEK):
        points = []
        for line in range(LINES):
            at_s = INTERVAL_S * (number + line / LINES)
            points.append(
                Point(
                    timestamp=BEGIN + timedelta(seconds=at_s),
                    step=LINES * number + line,
                    metrics=tuple([(name, f"{noise.gauss(1, 0.1):.4f}") for name in PRINTED]),
                )
            )
        last = points[-1]
        given = Progress(timestamp=last.timestamp, step=last.step, metrics=last.metrics)
        history.add("pod/0/0", given, points[:-1], continues=True, reported_at=last.timestamp, ahead_s=0.0)
    series = select(history, Selection(), now_s=1e12).series
    points_of = [len(each.values) for each in series]
    print(f"\nThe history of a job that printed {WEEK * LINES:,} lines in a week, {LINES} between two probes")
    print(f"  stored and given          {len(history.save()) / 1024:8.1f} KiB")
    print(
        f"  points                    {min(points_of)} to {max(points_of)} of each of {len(series)} metrics"
    )


def _add(history: JobHistory, number: int, noise: random.Random) -> None:
    given = report(number, noise)
    assert given.timestamp is not None
    history.add("pod/0/0", given, continues=True, reported_at=given.timestamp, ahead_s=0.0)


def _traced() -> int:
    """Bytes that histories have allocated."""
    gc.collect()
    filters = [tracemalloc.Filter(True, "*/visibility_api/history/*.py")]
    snapshot = tracemalloc.take_snapshot().filter_traces(filters)
    return sum(each.size for each in snapshot.statistics("filename"))


def downsampling_ms() -> tuple[float, float]:
    """CPU milliseconds for MOST of POINTS: the least and the most of 20 times."""
    noise = random.Random(1)
    values = [noise.gauss(1, 0.1) for _ in range(POINTS)]
    took_s = []
    for _ in range(20):
        began = time.process_time()
        assert len(downsample(values, MOST)) <= MOST
        took_s.append(time.process_time() - began)
    return min(took_s) * 1e3, max(took_s) * 1e3


def _show_downsampling() -> None:
    least, most = downsampling_ms()
    print(f"\n{MOST} of {POINTS} points         {least:8.2f} ms, {most:.2f} at most of 20")


def reporting_s(jobs: int) -> tuple[float, float]:
    """CPU seconds of a report without a history and with one, the least of some turns."""
    costs: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(TURNS):
        costs["with"].append(_reporting_s(jobs, turn))
        with _no_history():
            costs["without"].append(_reporting_s(jobs, turn))
    return min(costs["without"]), min(costs["with"])


def _show_reporting(jobs: int) -> None:
    without_s, with_s = reporting_s(jobs)
    print(f"\nA report with {METRICS} metrics through the tracker, {jobs} jobs, least of {TURNS} turns")
    print(f"  without history           {without_s * 1e6:8.1f} us")
    print(f"  with                      {with_s * 1e6:8.1f} us")
    print(
        f"  10,000 jobs, one in {INTERVAL_S} s  {(with_s - without_s) * REPORTS_A_SECOND:8.2%} of a core more"
    )


def _show_disk() -> None:
    """Each history that is written seldom, as the data directory's writer does it."""
    noise, history = random.Random(1), JobHistory()
    for number in range(1000):
        _add(history, number, noise)
    refs = [
        JobRef(resource="trainjobs", namespace="team-a", name=f"job-{each}", uid=f"uid-{each}")
        for each in range(1000)
    ]
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        file = StateFile(Path(name), Bounds(max_bytes=256 * 1024 * 1024, max_age_s=1e9))
        for turn in range(2):  # the first creates the rows
            if turn:
                for number in range(1000, 1050):  # SQLite writes no page that is the same
                    _add(history, number, noise)
                before, began = written_bytes(), time.process_time()
            for start in range(0, len(refs), 8):
                file.write([], [], [save_history(ref, history) for ref in refs[start : start + 8]])
        volume = (written_bytes() - before) / len(refs)
        spent_s = (time.process_time() - began) / len(refs)
        file.close()
    a_second = 10_000 / (0.75 * Rhythm().history_s)
    print("\nThe histories of 10,000 jobs in the data directory")
    print(f"  written                   {volume / 1024:8.1f} KiB a history")
    rate = volume * a_second / 1e6
    print(f"                            {rate:8.2f} MB/s, {rate * 604.8:.0f} GB a week")
    print(f"  CPU                       {spent_s * a_second:8.2%} of a core")


@contextmanager
def _no_history() -> Iterator[None]:
    with patch.object(JobHistory, "add", lambda *_args, **_more: None):
        yield


def _reporting_s(jobs: int, turn: int) -> float:
    """CPU seconds of one report."""
    now = BEGIN
    tracker = Tracker(
        publish=lambda _document: None,
        retract=lambda _ref: None,
        now=lambda: now,
        interval_s=INTERVAL_S,
    )
    known = [
        TrainingJob(
            ref=JobRef(resource="trainjobs", namespace="team-a", name=f"job-{each}", uid=f"uid-{each}"),
            created_at=BEGIN,
            phase=Phase.RUNNING,
            rank0=rank0(pod_uid=f"pod-{each}"),
        )
        for each in range(jobs)
    ]
    for job in known:
        tracker.job_changed(job)
    noise, spent_s = random.Random(turn), 0.0
    for number in range(REPORTS):
        given = report(number, noise)
        assert given.timestamp is not None
        now = given.timestamp + timedelta(seconds=1)
        observations = []
        for job in known:
            assert job.rank0 is not None
            observations.append(
                Observation(ref=job.ref, attempt=job.rank0.attempt, source="exec", at=now, outcome=given)
            )
        began = time.process_time()
        for observation in observations:
            tracker.observed(observation)
        spent_s += time.process_time() - began
    return spent_s / jobs / REPORTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    asyncio.run(show(given.jobs))


if __name__ == "__main__":
    main()
