"""The kinds come out as they were: of trainings whose true split is known, read every 15 s as a file is."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.trainings import RECORDINGS, find_truth, replay
from visibility_api.jobs.job import Termination
from visibility_api.jobs.ledger import KINDS
from visibility_api.reports.document import Point, Progress
from visibility_api.reports.marks import NO_MARKS, SECTIONS, Marks

from .bench import Bench, at
from .test_jobs_goodput import account, job

PROBE_S, ROWS_S, ROW_S = 15.0, 18.0, 0.5
NAMES = dict(zip(SECTIONS, ("DataLoading", "CheckpointSave", "CheckpointRestore", "Evaluation"), strict=True))


@dataclass
class Training:
    """A program that loads, trains, saves, evaluates, dies and resumes, and writes a document."""

    seed: int
    step_s: float
    load_s: float  # a step
    save_s: float  # every 100 steps
    evaluate_s: float  # every 250 steps
    has_marks: bool
    truth: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    now_s: float = 40.0
    step: int = 0
    highest: int = 0
    documents: list[tuple[float, Progress]] = field(default_factory=list)  # and since when they are there
    rows: list[tuple[float, int]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def write(self, section: str = "") -> None:
        marks = NO_MARKS
        if self.has_marks:
            marks = Marks(
                spent_s=tuple(self.spent.get(name, 0.0) for name in SECTIONS),  # type: ignore[arg-type]
                section=SECTIONS.index(section) if section else None,
                section_at=at(self.now_s) if section else None,
            )
        points, last_s = list[Point](), -1e9
        for row_s, step in self.rows:
            if row_s >= self.now_s - ROWS_S and row_s - last_s >= ROW_S:
                points.append(Point(timestamp=at(row_s), step=step))
                last_s = row_s
        report = Progress(timestamp=at(self.now_s), step=self.step, marks=marks, points=tuple(points))
        self.documents.append((self.now_s, report))

    def spend(self, kind: str, seconds: float, section: str = "") -> None:
        seconds *= self.random.uniform(0.9, 1.1)
        if section in ("checkpointSave", "checkpointRestore", "evaluation") and self.has_marks:
            self.write(section)
        self.now_s += seconds
        self.truth[kind] += seconds
        if section:
            self.spent[section] = self.spent.get(section, 0.0) + seconds
            if section != "dataLoading" and self.has_marks:
                self.write()

    def start(self, step: int) -> None:
        """Import, restore, and compile in the first step."""
        self.step, self.rows, self.spent = step, [], {}
        startup = "Recovery" if self.highest else "ProgramStartup"
        self.spend(startup, 30)
        if step:
            self.spend("CheckpointRestore", 12, "checkpointRestore")
        self.spend(startup, 15)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.spend("DataLoading", self.load_s, "dataLoading")
            self.spend("LostProgress" if self.step < self.highest else "Productive", self.step_s)
            self.step += 1
            self.rows.append((self.now_s, self.step))
            self.write()
            if self.step % 100 == 0:
                self.spend("CheckpointSave", self.save_s, "checkpointSave")
            if self.step % 250 == 0:
                self.spend("Evaluation", self.evaluate_s, "evaluation")
        self.highest = max(self.highest, self.step)


def watch(training: Training, made: Bench, began_s: float, attempt: int) -> None:
    """Read it until it ends; the last document is in the termination message."""
    probed_s, latest = began_s + 7.0, 0
    while probed_s < training.now_s:
        while latest < len(training.documents) and training.documents[latest][0] <= probed_s:
            latest += 1
        made.now = at(probed_s)
        if latest:
            made.observe(training.documents[latest - 1][1], attempt=f"p1/{attempt}/0")
        made.review()
        probed_s += PROBE_S
    made.now = at(training.now_s)
    made.observe(training.documents[-1][1], attempt=f"p1/{attempt}/0")
    training.documents = []


def live(training: Training) -> dict[str, float]:
    """Two deaths. Returns what is said of it."""
    made = Bench()
    made.job(job(run_s=None, node_s=None))
    made.now = at(40)
    made.job(job(node_s=10, run_s=40))
    training.truth |= {"Queued": 10.0, "Starting": 30.0}
    began_s = training.now_s
    for attempt, (resumed, steps) in enumerate(((0, 830), (800, 600), (1300, 900))):
        training.start(resumed)
        training.train(steps)
        watch(training, made, began_s, attempt)
        ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=at(training.now_s))
        pod = {"restart_count": attempt, "last_termination": ended}
        made.job(job(run_s=began_s, pod=pod | {"is_running": False}))
        if attempt < 2:
            training.spend("Recovery", 60)
            began_s = training.now_s
            made.now = at(began_s)
            made.job(job(run_s=began_s, pod=pod | {"restart_count": attempt + 1}))
    return dict(zip(KINDS, account(made).spent(), strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step_s", [0.05, 0.4, 3.0])
def test_with_marks_each_kind_is_within_2_percent_of_the_run(seed: int, step_s: float) -> None:
    training = Training(
        seed, step_s=step_s, load_s=step_s / 2, save_s=20 * step_s, evaluate_s=90 * step_s, has_marks=True
    )
    found = live(training)
    most_s = 0.02 * training.now_s
    assert sum(found.values()) == pytest.approx(training.now_s, abs=1)
    assert found == pytest.approx({kind: training.truth.get(kind, 0.0) for kind in KINDS}, abs=most_s)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step_s", [0.05, 0.4, 3.0])
def test_without_marks_productive_time_is_within_5_percent(seed: int, step_s: float) -> None:
    """Its loader is quick: of a slow one nothing tells it from the step."""
    training = Training(
        seed, step_s=step_s, load_s=0, save_s=20 * step_s, evaluate_s=90 * step_s, has_marks=False
    )
    found = live(training)
    assert found["Productive"] == pytest.approx(training.truth["Productive"], abs=0.05 * training.now_s)


@pytest.mark.parametrize("name", ["torch_loop", "transformers_trainer", "lightning_trainer"])
@pytest.mark.parametrize("first_s", [5, 10, 15])
def test_each_kind_of_a_recorded_training_is_within_2_percent_of_the_run(name: str, first_s: float) -> None:
    recording = json.loads((RECORDINGS / f"{name}.json").read_text())
    truth = find_truth(recording)
    found = replay(recording, has_marks=True, first_s=first_s)
    most_s = 0.02 * sum(truth.values())
    assert found == pytest.approx({kind: truth.get(kind, 0.0) for kind in KINDS}, abs=most_s)


@pytest.mark.parametrize("name", ["torch_loop", "transformers_trainer", "lightning_trainer", "unmarked_loop"])
@pytest.mark.parametrize("first_s", [5, 10, 15])
def test_its_productive_time_is_within_5_percent_without_marks(name: str, first_s: float) -> None:
    """As far as anything tells the wait for each batch from the step."""
    recording = json.loads((RECORDINGS / f"{name}.json").read_text())
    truth = find_truth(recording)
    found = replay(recording, has_marks=False, first_s=first_s)
    expected_s = truth["Productive"] + truth["DataLoading"]
    assert found["Productive"] == pytest.approx(expected_s, abs=0.05 * sum(truth.values()))
