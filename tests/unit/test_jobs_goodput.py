"""Where the time of a job goes: by what the cluster shows, what it reports and what it marks."""

from __future__ import annotations

import random
import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tests.jobs import JOB, REF, rank0
from visibility_api.jobs.account import Account
from visibility_api.jobs.goodput import account_of, reckon_until
from visibility_api.jobs.job import Phase, Termination, TrainingJob
from visibility_api.jobs.ledger import DAY_S, HOUR_S, KINDS, Ledger, none
from visibility_api.jobs.saved_account import load_account, save_account
from visibility_api.reports.document import Point, Progress
from visibility_api.reports.marks import NO_MARKS, SECTIONS, Marks

from .bench import Bench, at


def job(*, uid: str = "p1", node_s: float | None = 10, run_s: float | None = 30, **more: Any) -> TrainingJob:
    """On its node since `node_s`, its container runs since `run_s`; None: not yet."""
    pod = rank0(
        pod_uid=uid,
        pod_started_at=at(node_s) if node_s is not None else None,
        node_name="gpu-1" if node_s is not None else None,
        started_at=at(run_s) if run_s is not None else None,
        **{"is_running": run_s is not None} | more.pop("pod", {}),
    )
    return replace(JOB, created_at=at(0), rank0=pod, **more)


def marked(section: str = "", since_s: float = 0, **spent: float) -> Marks:
    seconds = [spent.get(name, 0.0) for name in SECTIONS]
    return Marks(
        spent_s=tuple(seconds),  # type: ignore[arg-type]
        section=SECTIONS.index(section) if section else None,
        section_at=at(since_s) if section else None,
    )


def account(made: Bench) -> Account:
    """As it would be shown now."""
    record = made.tracker._records[REF]
    found = account_of(record, made.now)
    reckon_until(found, record, made.now)
    return found


def spent(made: Bench) -> dict[str, float]:
    """Seconds by kind, those that are 0 left out."""
    found = account(made).spent()
    return {name: round(some, 1) for name, some in zip(KINDS, found, strict=True) if round(some, 1)}


class Run:
    """A run that takes a second a step, and is read every 15 s."""

    def __init__(self, **more: Any) -> None:
        self.made = Bench()
        self.made.job(job(run_s=None, node_s=None))
        self.made.now = at(30)
        self.made.job(job(**more))
        self.now_s, self.step, self.attempt = 30.0, 0, "p1/0/0"

    def train(self, seconds: int, *, marks: Marks = NO_MARKS, rows: bool = True) -> None:
        for _ in range(seconds // 15):
            points = [
                Point(timestamp=at(self.now_s + second), step=self.step + second) for second in range(1, 15)
            ]
            self.now_s += 15
            self.step += 15
            self.tell(marks=marks, points=tuple(points) if rows else ())

    def tell(self, **more: Any) -> None:
        self.made.now = at(self.now_s)
        self.made.observe(Progress(timestamp=at(self.now_s), step=self.step, **more), attempt=self.attempt)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.made.now = at(self.now_s)
        self.made.review()

    def crash(self, *, down_s: float, back_to: int) -> None:
        ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=at(self.now_s))
        self.made.job(job(pod={"is_running": False, "last_termination": ended}))
        self.now_s += down_s
        self.made.now = at(self.now_s)
        self.made.job(
            job(run_s=self.now_s, pod={"restart_count": 1, "last_termination": ended}),
        )
        self.attempt, self.step = "p1/1/0", back_to


def test_a_run_waits_starts_compiles_and_trains() -> None:
    run = Run()
    run.wait(40)
    run.train(300)
    assert spent(run.made) == {"Queued": 10, "Starting": 20, "ProgramStartup": 40, "Productive": 300}


def test_a_run_that_is_first_seen_late_was_productive_before() -> None:
    run = Run()
    run.step, run.now_s = 600, 660
    run.train(60, rows=False)
    assert spent(run.made) == {"Queued": 10, "Starting": 20, "ProgramStartup": 30, "Productive": 660}


def test_steps_that_an_earlier_attempt_had_done_are_lost_and_the_way_there_is_recovery() -> None:
    run = Run()
    run.train(300)
    run.crash(down_s=50, back_to=200)
    run.wait(25)
    run.train(300)
    found = spent(run.made)
    # The first step seen, 201, is when its time is known: it counts as part of the recovery.
    assert found["Recovery"] == pytest.approx(75, abs=1.1)
    assert found["LostProgress"] == pytest.approx(100, abs=1.1)
    assert found["Productive"] == pytest.approx(300 + 200, abs=1.1)
    assert sum(found.values()) == pytest.approx(30 + 300 + 75 + 300)


def test_a_process_that_begins_again_in_the_same_container_recovers_and_marks_anew() -> None:
    """As torchrun's agent does it: the pod shows nothing of it."""
    run = Run()
    run.train(300)
    run.tell(marks=marked("evaluation", run.now_s))
    run.wait(60)
    run.train(150, marks=marked(evaluation=60))
    run.wait(40)
    run.step = 200
    run.train(300)
    run.tell(marks=marked("evaluation", run.now_s))
    run.wait(30)
    run.train(300, marks=marked(evaluation=30))
    found = spent(run.made)
    assert found["Evaluation"] == pytest.approx(90, abs=1)
    assert found["Recovery"] == pytest.approx(40, abs=2)
    assert found["LostProgress"] == pytest.approx(250, abs=2)
    assert found["Productive"] == pytest.approx(450 + 350, abs=2)


def test_usual_steps_wait_to_be_settled_and_are_when_anything_happens() -> None:
    run = Run()
    run.train(300, rows=False)
    settled = set()
    for _ in range(12):
        run.train(15, rows=False)
        settled.add(run.made.tracker._records[REF].account)
    assert 2 <= len(settled) <= 3
    assert spent(run.made)["Productive"] == 480
    run.wait(60)
    run.train(15, rows=False)
    found = spent(run.made)
    assert found["Productive"] == pytest.approx(495, abs=1)
    assert found["Other"] == pytest.approx(60, abs=1)


def test_what_follows_a_first_report_is_the_way_to_the_first_step_until_one_is_seen() -> None:
    """A run reports where it begins, and compiles for minutes."""
    run = Run()
    run.tell()
    run.wait(300)
    assert spent(run.made) == {"Queued": 10, "Starting": 20, "ProgramStartup": 300}
    run.train(300)
    run.crash(down_s=50, back_to=200)
    run.wait(20)
    run.tell()
    run.wait(100)
    run.crash(down_s=50, back_to=200)
    found = spent(run.made)
    assert found["Recovery"] == pytest.approx(50 + 20 + 100 + 50, abs=1.1)
    assert "LostProgress" not in found


def test_a_run_that_goes_on_in_another_unit_is_learned_anew() -> None:
    """An epoch is no step that was done before, nor one that took as long as a hundred."""
    run = Run()
    run.train(300)
    for number in range(1, 21):
        run.now_s += 15
        run.made.now = at(run.now_s)
        report = Progress(timestamp=run.made.now, epoch=number / 10)
        run.made.observe(report, attempt=run.attempt)
    found = spent(run.made)
    assert sum(found.values()) == pytest.approx(630)
    assert account(run.made).unit == 2
    assert "LostProgress" not in found


@pytest.mark.parametrize("rows", [True, False])
def test_a_pause_that_nothing_explains_is_other(rows: bool) -> None:
    run = Run()
    run.train(300, rows=rows)
    run.wait(60)
    run.train(300, rows=rows)
    found = spent(run.made)
    assert found["Other"] == pytest.approx(60, abs=2)
    assert found["Productive"] == pytest.approx(600, abs=2)


def test_what_is_marked_is_what_it_says_and_explains_pauses() -> None:
    run = Run()
    run.train(300)
    run.tell(marks=marked("evaluation", run.now_s))
    run.wait(60)
    assert spent(run.made)["Evaluation"] == 60
    run.wait(30)
    run.train(300, marks=marked(evaluation=80, checkpointSave=10))
    found = spent(run.made)
    assert (found["Evaluation"], found["CheckpointSave"]) == (80, 10)
    assert found["Productive"] == pytest.approx(600, abs=1)
    assert "Other" not in found


def test_what_the_first_report_marks_is_taken_from_the_steps_after_which_it_was() -> None:
    """A restore was before them. An evaluation of ten seconds was not, though it is first read together."""
    run = Run()
    run.train(300)
    run.crash(down_s=60, back_to=200)
    run.now_s += 40  # import and restore, until the first of the steps
    marks = marked(checkpointRestore=12, evaluation=10, dataLoading=4)
    points = [Point(timestamp=at(run.now_s + second), step=200 + second) for second in range(1, 20)]
    run.now_s += 30
    run.step = 220
    run.tell(marks=marks, points=tuple(points))
    found = spent(run.made)
    assert (found["CheckpointRestore"], found["Evaluation"]) == (12, 10)
    assert found["DataLoading"] == pytest.approx(4, abs=0.5)
    assert found["Recovery"] == pytest.approx(60 + 40 - 12, abs=2)


def test_a_loader_that_takes_a_third_of_each_step_is_seen_by_its_marks() -> None:
    run = Run()
    for each in range(1, 21):
        run.train(15, marks=marked(dataLoading=5 * each))
    assert spent(run.made)["DataLoading"] == 100
    assert spent(run.made)["Productive"] == 200


def test_a_run_that_hangs_is_stalled_from_its_last_step_until_the_next() -> None:
    run = Run()
    run.train(600)
    for _ in range(60):
        run.wait(60)
    assert spent(run.made)["Stalled"] == 3600
    run.train(300)
    found = spent(run.made)
    assert found["Stalled"] == pytest.approx(3600, abs=2)
    assert found["Productive"] == pytest.approx(900, abs=2)


def test_a_section_that_never_ends_counts_as_stalled_once_the_run_is() -> None:
    run = Run()
    run.train(600)
    run.tell(marks=marked("checkpointSave", run.now_s))
    for _ in range(180):
        run.wait(60)
    assert spent(run.made)["Stalled"] == 180 * 60
    assert "CheckpointSave" not in spent(run.made)


def test_a_suspended_job_is_queued_and_goes_on_where_it_was() -> None:
    run = Run()
    run.train(300)
    suspended = at(run.now_s)
    run.made.job(
        replace(job(), rank0=None, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=suspended)
    )
    run.now_s += 1000
    run.made.now = at(run.now_s)
    run.made.job(job(uid="p2", node_s=run.now_s, run_s=run.now_s + 5))
    run.attempt, run.now_s = "p2/0/0", run.now_s + 5
    run.train(60)
    found = spent(run.made)
    assert found["Queued"] == 1010
    assert found["Recovery"] == pytest.approx(5, abs=1.1)
    assert found["Productive"] == pytest.approx(360, abs=1.1)


def test_a_job_that_nothing_is_read_of_is_not_said_to_do_anything() -> None:
    made = Bench(now=at(30))
    made.job(replace(job(), accelerators=(("nvidia.com/gpu", 8),)))
    made.advance(600)
    made.review()
    assert spent(made) == {"Queued": 10, "Starting": 20, "Other": 600}


def test_an_ended_job_s_sums_stay() -> None:
    run = Run()
    run.train(300)
    run.made.job(job(phase=Phase.SUCCEEDED, ended_at=at(run.now_s)))
    found = spent(run.made)
    run.wait(9000)
    assert spent(run.made) == found
    assert sum(found.values()) == 330


# --- whatever happens


EVENTS = (
    "train",
    "train",
    "train",
    "rows",
    "mark",
    "open",
    "wait",
    "hang",
    "crash",
    "suspend",
    "skew",
    "back",
)


class Life:
    """A random life of a job: restarts, suspensions, clocks that are wrong, reports that are missed, sections
    that never end, or overlap."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made = Bench()
        self.others: list[Bench] = []
        self.step, self.restarts, self.pods, self.ahead_s = 0, 0, 1, 0.0
        self.marks: dict[str, float] = {}
        self.seen = job(run_s=None, node_s=None)
        self.each(lambda made: made.job(self.seen))

    def each(self, act: Any) -> None:
        for made in (self.made, *self.others):
            made.now = self.made.now
            act(made)

    def live(self) -> None:
        event = self.random.choice(EVENTS)
        passes_s = self.random.choice((0.0, 1.0, 15.0, 15.0, 60.0, 700.0, 5000.0, 40_000.0))
        self.made.now += timedelta(seconds=passes_s * self.random.random() * 2)
        now_s = (self.made.now - at(0)).total_seconds()
        pod = self.seen.rank0
        if event == "crash" and pod is not None and pod.is_running:
            ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=self.made.now)
            self.show(replace(self.seen, rank0=replace(pod, is_running=False, last_termination=ended)))
        elif event == "suspend":
            self.show(
                replace(
                    self.seen,
                    rank0=None,
                    phase=Phase.SUSPENDED,
                    is_suspended=True,
                    suspension_changed_at=self.made.now,
                )
            )
        elif pod is None or not pod.is_running:
            self.restarts, self.pods = (
                (self.restarts + 1, self.pods) if pod is not None and pod.has_begun else (0, self.pods + 1)
            )
            skew_s = self.random.choice((0, 0, -300, 300))
            uid, run_s = f"p{self.pods}", now_s + skew_s
            self.show(job(uid=uid, node_s=run_s - 9, run_s=run_s, pod={"restart_count": self.restarts}))
            self.step = int(self.step * self.random.random())
            self.marks = {}
        elif event == "wait":
            self.each(lambda made: made.review())
        elif event == "skew":
            self.ahead_s = self.random.choice((0.0, 0.0, 3600.0, -3600.0, 86400.0 * 400))
        elif event == "back":
            self.made.now -= timedelta(seconds=self.random.choice((1, 100)))
            self.each(lambda made: made.review())
        else:
            self.report(event, pod.attempt)

    def report(self, event: str, attempt: str) -> None:
        told_at = self.made.now + timedelta(seconds=self.ahead_s)
        points: list[Point] = []
        for back_s in sorted((self.random.uniform(0, 400) for _ in range(5)), reverse=True):
            self.step += self.random.choice((0, 1, 30))
            if event == "rows":
                points.append(Point(timestamp=told_at - timedelta(seconds=back_s), step=self.step))
        name = self.random.choice(SECTIONS)
        if event == "mark":
            self.marks[name] = self.marks.get(name, 0.0) + self.random.choice((0.1, 30.0, 1e6))
        opened = marked(
            name if event == "open" else "",
            (told_at - at(0)).total_seconds() - self.random.choice((0, 50, 1e5, -50)),
            **self.marks,
        )
        report = Progress(timestamp=told_at, step=self.step, marks=opened, points=tuple(points))
        self.each(lambda made: made.observe(report, attempt=attempt))

    def show(self, seen: TrainingJob) -> None:
        self.seen = seen
        self.each(lambda made: made.job(seen))

    def restart(self) -> None:
        """Another process continues beside the first one from what that knows."""
        self.others = [self.made.heir()]
        self.others[0].job(self.seen)
        self.made.job(self.seen)


def dated(made: Bench) -> object:
    """What this process takes for the time of the last report, and for its clock."""
    record = made.tracker._records[REF]
    return record.reported_at, record.clock


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 60))
def test_the_kinds_sum_to_the_time_that_has_passed(seed: int, events: int, restarts_at: int) -> None:
    life = Life(seed)
    latest = life.made.now
    for number in range(events):
        life.live()
        if number == restarts_at:
            life.restart()
        latest = max(latest, life.made.now)
        found = account(life.made)
        assert load_account(save_account(found)).spent() == pytest.approx(found.spent(), abs=1e-2)
        ledger = found.ledger
        elapsed_s = ledger.until - ledger.began
        assert elapsed_s <= (latest - at(0)).total_seconds() + 1e-3
        assert sum(ledger.whole) == pytest.approx(elapsed_s, abs=1)
        assert min((*ledger.whole, *found.tail, 0.0)) == 0
        if found.tail and life.made.now == latest:
            assert sum(found.spent()) == pytest.approx((latest - at(0)).total_seconds(), abs=1)
        # Whoever has not read the report before knows less of when a wrong clock has dated one.
        life.others = [other for other in life.others if dated(other) == dated(life.made)]
        for other in life.others:
            other.now = life.made.now
            assert save_account(account(other)) == save_account(found)


def test_an_account_of_a_day_with_three_marked_kinds_takes_300_bytes_at_most() -> None:
    run = Run()
    for each in range(1, 27 * 60):
        marks = marked(dataLoading=each, checkpointSave=each / 2, evaluation=each / 4)
        run.train(60, marks=marks, rows=False)
    saved = run.made.tracker._records[REF].account
    assert sys.getsizeof(saved) <= 300


@given(
    st.floats(0, 2e9),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 20_000), st.integers(0, 11)), max_size=60),
)
def test_the_last_hour_and_day_are_as_they_were(began: float, spans: list[tuple[float, float, int]]) -> None:
    ledger, told = Ledger(began), []
    for share, span_s, kind in spans:
        seconds = none()
        seconds[kind] += share * span_s
        seconds[(kind + 5) % 12] += span_s - share * span_s
        told.append((ledger.until, ledger.until + span_s, seconds))
        ledger = Ledger.load(ledger.save())
        ledger.add(seconds, ledger.until + span_s)
    for found, window_s, interval_s in ((ledger.hour(), HOUR_S, 600), (ledger.day(), DAY_S, 14400)):
        assert sum(found) == pytest.approx(min(window_s, ledger.until - began), abs=1)
        true = none()
        for since, until, seconds in told:
            within = max(0.0, until - max(since, ledger.until - window_s)) / (until - since)
            true = [one + some * within for one, some in zip(true, seconds, strict=True)]
        assert found == pytest.approx(true, abs=interval_s)


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_an_account_that_cannot_be_read_begins_anew(noise: bytes, seed: int) -> None:
    life = Life(seed % 50)
    for _ in range(8):
        life.live()
    record = life.made.tracker._records[REF]
    saved = bytearray(record.account)
    for index, byte in enumerate(noise[:3]):
        saved[(byte * 7 + index * 31) % len(saved)] ^= noise[-1 - index]
    record.account = bytes(saved) if seed % 2 else noise
    life.made.advance(60)
    life.made.review()
    assert min(account(life.made).spent()) >= 0


@pytest.mark.parametrize(
    "epochs", [(0, 1e-320, 2e-320, 1e-300, 1e-290), (0, 2.0**52, 2.0**53), (0, 1, 1 + 1e-15)]
)
def test_no_position_is_too_small_or_too_large(epochs: tuple[float, ...]) -> None:
    made = Bench(now=at(30))
    made.job(job())
    for epoch in (*epochs, 2.0**53):
        made.advance(15)
        made.observe(Progress(timestamp=made.now, epoch=epoch))
    made.advance(60)
    made.review()
    assert sum(account(made).spent()) == pytest.approx(30 + 15 * (len(epochs) + 1) + 60)
    assert min(account(made).spent()) >= 0


@given(
    past=st.lists(st.tuples(st.sampled_from(range(len(KINDS))), st.floats(1, 90_000)), max_size=8),
    tail=st.tuples(st.sampled_from(range(len(KINDS))), st.floats(1, 900_000)),
)
def test_what_is_not_settled_is_read_as_if_it_were(
    past: list[tuple[int, float]], tail: tuple[int, float]
) -> None:
    shown, added = Ledger(1e9), Ledger(1e9)
    for number, (kind, some_s) in enumerate((*past, tail)):
        seconds = none()
        seconds[kind] = some_s
        added.add(seconds, added.until + some_s)
        if number == len(past):
            shown.show(seconds)
        else:
            shown.add(seconds, shown.until + some_s)
    assert shown.until == pytest.approx(added.until)
    assert shown.whole == pytest.approx(added.whole)
    # Intervals are kept in quarters of a second, and of the oldest one its share counts.
    assert shown.hour() == pytest.approx(added.hour(), abs=600)
    assert sum(shown.hour()) == pytest.approx(sum(added.hour()), abs=2)
    assert sum(shown.day()) == pytest.approx(sum(added.day()), abs=2)
