"""Stalled, Diverged and Plateaued: never of a healthy run, soon of one that is not."""

from __future__ import annotations

import functools
import random
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tests import verdicts
from tests.jobs import JOB, RANK0, T0
from visibility_api.jobs.estimate import Pace
from visibility_api.jobs.job import ProbeHints, Termination, Thresholds
from visibility_api.jobs.rhythm import longest_pause_s
from visibility_api.jobs.watched import (
    GRAD_NORMS_NOT_FINITE,
    NOTHING_WATCHED,
    SMOOTHING,
    WATCHED,
    Better,
    Course,
    Watched,
    is_higher_better,
)
from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.marks import Marks

from .bench import Bench

RUNS = 25  # of each sort here; python -m benchmarks.verdicts has 1,000


@functools.cache
def hanging(number: int, *, doing: str = "", is_read: bool = False) -> verdicts.Verdict:
    """Of a run that hangs; where its ranks are read, while they do that."""
    captured = random.Random(f"read {number}") if is_read else None
    return verdicts.judge(random.Random(f"hang {number}"), hangs=True, captured=captured, doing=doing)


@functools.cache
def healthy_and_read(number: int) -> verdicts.Verdict:
    captured = random.Random(f"read {number}")
    return verdicts.judge(random.Random(f"hang {number}"), captured=captured)


class TestSimulatedRuns:
    def test_no_healthy_run_is_said_to_stall_or_diverge(self) -> None:
        for number in range(RUNS):
            found = verdicts.judge(random.Random(f"healthy {number}"), reports=300)
            assert not found.was_stalled, number
            assert found.diverged_at is None, number

    def test_a_quick_run_that_hangs_is_found_sooner(self) -> None:
        healthy = [verdicts.judge(random.Random(f"quick {number}"), is_quick=True) for number in range(RUNS)]
        assert not any(each.was_stalled for each in healthy)
        some = [
            verdicts.judge(random.Random(f"quick hang {number}"), is_quick=True, hangs=True)
            for number in range(RUNS)
        ]
        assert not any(each.was_stalled for each in some)
        assert sum((each.stalled_after_s or 3600) < 300 for each in some) > RUNS / 3

    def test_a_run_that_hangs_is_found_within_an_hour(self) -> None:
        some = [hanging(number) for number in range(RUNS)]
        assert not any(each.was_stalled for each in some)
        assert sum(each.stalled_after_s is not None for each in some) >= 0.95 * RUNS

    @pytest.mark.parametrize(
        ("hang", "least"),
        [("collective", 0.5), ("SIGSTOP", 0.5), ("GIL", 0.5), ("loader", 0.5), ("GIL, spinning", 0.0)],
    )
    def test_what_ranks_show_tells_a_hang_sooner_and_no_healthy_run_stalls(
        self, hang: str, least: float
    ) -> None:
        sooner = 0
        for number in range(8):
            assert not healthy_and_read(number).was_stalled, number
            plain, read = hanging(number), hanging(number, doing=hang, is_read=True)
            assert not read.was_stalled
            assert (read.stalled_after_s or 3600) <= (plain.stalled_after_s or 3600)
            sooner += (read.stalled_after_s or 3600) < (plain.stalled_after_s or 3600)
        assert sooner >= least * 8

    def test_a_run_that_diverges_is_found_and_not_before(self) -> None:
        some = [verdicts.judge(random.Random(f"diverge {number}"), diverges=True) for number in range(RUNS)]
        found = [(each.diverged_at, each.breaks_at) for each in some if each.diverged_at is not None]
        assert len(found) >= 0.95 * RUNS
        assert all(breaks_at is not None and at is not None and at >= breaks_at for at, breaks_at in found)


def trained(
    seconds: int, total: int = 10**6, epoch: float | None = None, step: float = 1.0
) -> tuple[Pace, Progress]:
    """The pace of a run that did steps a second for so long, probed each 15 s, and its last report."""
    pace, report = Pace(), Progress()
    for at_s in range(15, seconds + 1, 15):
        at = T0 + timedelta(seconds=at_s)
        report = Progress(timestamp=at, step=int(step * at_s), total_steps=total, epoch=epoch)
        pace = pace.advance(report)
    return pace, report


def started_after(seconds: int) -> tuple[Pace, Progress]:
    """The same of a run that reported at its start, and did its first step so late."""
    pace = Pace().advance(Progress(timestamp=T0, step=0, total_steps=10**6))
    report = Progress()
    for step in range(0, 301, 15):
        at = T0 + timedelta(seconds=seconds + step)
        report = Progress(timestamp=at, step=step + 1, total_steps=10**6)
        pace = pace.advance(report)
    return pace, report


class TestHowLongARunMayStandStill:
    def test_half_an_hour_while_its_rhythm_is_not_known(self) -> None:
        report = Progress(timestamp=T0, step=0, total_steps=100)
        assert longest_pause_s(Pace().advance(report), report) == 1800

    def test_three_minutes_at_least_where_the_rhythm_is_quick(self) -> None:
        assert longest_pause_s(*trained(330)) == 180

    def test_five_minutes_at_least_where_it_is_not(self) -> None:
        pace, report = trained(270)
        assert longest_pause_s(pace, report) == 300  # it has not kept it for long
        report = msgspec.structs.replace(report, timestamp=T0 + timedelta(seconds=335), step=280)
        assert longest_pause_s(pace.advance(report), report) == 325

    @pytest.mark.parametrize(
        ("run", "shown", "pause_s"),
        [
            pytest.param(started_after(100), {}, 500, id="what loads long may evaluate long"),
            pytest.param(started_after(100), {"total_steps": 500}, 150, id="but not when half of it is done"),
            pytest.param(trained(615), {}, 300, id="half of what it has run, before a first evaluation"),
            pytest.param(trained(2415), {}, 500, id="no more than so many steps"),
            pytest.param(trained(7050), {}, 1005, id="or a seventh of what it has run"),
            pytest.param(trained(7015, step=0.1), {}, 1800, id="but slow steps take their time"),
            pytest.param(trained(30_000), {}, 1800, id="half an hour at most"),
            pytest.param(trained(915, epoch=0.5), {"epoch": 3.4}, 450, id="few epochs show no pauses"),
            pytest.param(trained(915, epoch=0.5), {"epoch": 3.5}, 150, id="some show its pauses"),
            pytest.param(trained(915, epoch=0.5), {"epoch": 6.5}, 120, id="several show them well"),
            pytest.param(trained(30_000, epoch=0.5), {"epoch": 3.5}, 1200, id="some long epochs"),
            pytest.param(trained(30_000, epoch=0.5), {"epoch": 10.5}, 240, id="many long epochs"),
            pytest.param(trained(615, total=1300), {}, 300, id="less than half is done"),
            pytest.param(trained(615, total=1180), {}, 150, id="more than half is done"),
            pytest.param(trained(600, total=600), {}, 1800, id="after the last step"),
        ],
    )
    def test_so_long(self, run: tuple[Pace, Progress], shown: dict[str, float], pause_s: float) -> None:
        pace, report = run
        assert longest_pause_s(pace, msgspec.structs.replace(report, **shown)) == pause_s

    def test_several_times_the_longest_pause(self) -> None:
        pace, report = trained(600, total=1000)
        report = msgspec.structs.replace(report, timestamp=T0 + timedelta(seconds=700), step=615)
        assert longest_pause_s(pace.advance(report), report) == 500


class TestStalled:
    @pytest.mark.parametrize(("marked_s", "most_s"), [(0.0, 600), (120.0, 300)], ids=["plain", "marked"])
    def test_a_steady_run_that_hangs_after_an_hour_is_found_soon(
        self, bench: Bench, marked_s: float, most_s: int
    ) -> None:
        """A step a second, probed each 15 s. `marked_s`: of each evaluation, one in 15 minutes."""
        at_s, step, spent_s = 0, 0, 0.0
        while at_s < 3600:
            pause_s = int(marked_s) if at_s % 900 == 885 else 0
            at_s, step, spent_s = at_s + 15 + pause_s, step + 15, spent_s + pause_s
            bench.advance(15 + pause_s)
            marks = Marks(spent_s=(0.0, 0.0, 0.0, spent_s))
            bench.observe(Progress(timestamp=bench.now, step=step, total_steps=100_000, marks=marks))
            assert bench.condition("Stalled") == ("False", "Advancing")
        bench.advance(most_s)
        bench.observe(Progress(timestamp=bench.now, step=step, total_steps=100_000, marks=marks))
        assert bench.condition("Stalled") == ("True", "NoAdvance")

    def test_an_annotation_says_after_how_long(self) -> None:
        bench = Bench()
        bench.job(replace(JOB, hints=ProbeHints(thresholds=Thresholds(stalled_after_s=40))))
        bench.report(10)
        bench.advance(40)
        bench.report(10)
        assert bench.condition("Stalled") == ("False", "Advancing")
        bench.advance(1)
        bench.report(10)
        assert bench.condition("Stalled") == ("True", "NoAdvance")

    def test_it_waits_for_two_probes_whatever_the_annotation_says(self) -> None:
        bench = Bench()
        bench.job(replace(JOB, hints=ProbeHints(interval_s=60, thresholds=Thresholds(stalled_after_s=10))))
        bench.report(10)
        bench.advance(110)
        bench.report(10)
        assert bench.condition("Stalled") == ("False", "Advancing")

    def test_a_job_that_cannot_be_probed_is_not_said_to_stall(self, bench: Bench) -> None:
        bench.report(10)
        bench.advance(2000)
        bench.observe(Refused(reason="PodUnreachable", message="no"))
        assert bench.condition("Stalled") == ("Unknown", "NotJudged")

    @pytest.mark.parametrize("ended", [True, False], ids=["ended", "waits for its restart"])
    def test_a_job_whose_rank_0_does_not_run_is_not_said_to_stall(self, bench: Bench, ended: bool) -> None:
        """Nothing is there that could advance: the others may go on, or it is restarted."""
        for step in range(0, 600, 10):
            bench.advance(15)
            bench.report(step)
        reason = "Completed" if ended else "Error"
        gone = Termination(exit_code=0 if ended else 1, signal=None, reason=reason, finished_at=bench.now)
        waits = "" if ended else "CrashLoopBackOff"
        rank0 = replace(RANK0, is_running=False, last_termination=gone, waiting_reason=waits)
        bench.job(replace(JOB, rank0=rank0))
        for _ in range(60):
            bench.advance(60)
            bench.tracker.review(1.0)
            assert bench.condition("Stalled") == ("Unknown", "NotJudged")

    def test_a_job_that_has_stalled_is_said_to_while_it_cannot_be_probed(self, bench: Bench) -> None:
        bench.report(10)
        bench.advance(2000)
        bench.report(10)
        bench.observe(Refused(reason="PodUnreachable", message="no"))
        assert bench.condition("Stalled") == ("True", "NoAdvance")


def losses(bench: Bench, *values: float | str, name: str = "loss", every_s: float = 15) -> None:
    for value in values:
        bench.advance(every_s)
        step = int((bench.now - T0).total_seconds())
        bench.report(step, metrics=((name, str(value)),), epoch=step / 100)


def wave(level: float, count: int) -> list[float]:
    return [round(level * (1 + 0.05 * (number % 5 - 2)), 6) for number in range(count)]


class TestDiverged:
    def test_a_loss_that_is_no_number_says_so_at_once(self, bench: Bench) -> None:
        losses(bench, 1.0, "nan")
        assert bench.condition("Diverged") == ("True", "NonFiniteMetric")
        losses(bench, 1.1)
        assert bench.condition("Diverged") == ("False", "Finite")

    def test_a_loss_that_is_too_large_is_not_said_to_be_no_number(self, bench: Bench) -> None:
        losses(bench, 1.0, 3e120)
        assert bench.condition("Diverged") == ("True", "FarAboveUsual")
        assert "loss is 3e+120, which is too large" in bench.shown("Diverged").message

    def test_gradients_may_overflow_now_and_then(self, bench: Bench) -> None:
        for number in range(GRAD_NORMS_NOT_FINITE):
            assert number == 0 or bench.condition("Diverged") == ("False", "Finite")
            bench.advance(15)
            bench.report(number + 1, metrics=(("loss", f"0.{number}5"), ("grad_norm", "inf")))
        assert bench.condition("Diverged") == ("True", "NonFiniteMetric")

    def test_a_loss_that_stays_far_above_what_was_usual(self, bench: Bench) -> None:
        losses(bench, *wave(2.5, 60), *wave(11, 39))
        assert bench.condition("Diverged") == ("False", "Finite")
        losses(bench, *wave(11, 10))
        assert bench.condition("Diverged") == ("True", "FarAboveUsual")
        shown = bench.shown("Diverged")
        assert "and was about 2.5" in shown.message

    def test_it_ends_when_the_loss_has_come_back(self, bench: Bench) -> None:
        losses(bench, *wave(2.5, 60), *wave(1e4, 4))  # the farther the sooner
        assert bench.condition("Diverged") == ("True", "FarAboveUsual")
        losses(bench, *wave(2.5, 1))
        assert bench.condition("Diverged") == ("False", "Finite")

    def test_a_spike_is_no_divergence(self, bench: Bench) -> None:
        for _ in range(5):
            losses(bench, *wave(2.5, 30), *wave(25, 15))
            assert bench.condition("Diverged") == ("False", "Finite")

    def test_a_loss_that_is_back_where_it_began(self, bench: Bench) -> None:
        losses(bench, *wave(10.8, 10), *wave(6, 30), *wave(2.5, 100), *wave(10.7, 70))
        assert bench.condition("Diverged") == ("True", "FarAboveUsual")

    def test_an_annotation_says_above_what(self) -> None:
        bench = Bench()
        bench.job(replace(JOB, hints=ProbeHints(thresholds=Thresholds(diverged_above=20))))
        losses(bench, 19.9)
        assert bench.condition("Diverged") == ("False", "Finite")
        losses(bench, 20.1)
        assert bench.condition("Diverged") == ("True", "AboveThreshold")

    def test_another_attempt_begins_anew(self, bench: Bench) -> None:
        losses(bench, "nan")
        assert JOB.rank0 is not None
        bench.job(replace(JOB, rank0=replace(JOB.rank0, restart_count=1)))
        assert JOB.rank0 is not None
        bench.report(1, attempt=replace(JOB.rank0, restart_count=1).attempt, metrics=(("loss", "1"),))
        assert bench.condition("Diverged") == ("False", "Finite")


class TestPlateaued:
    def test_it_is_not_there_while_the_run_improves(self, bench: Bench) -> None:
        losses(bench, *[5 - 0.1 * number for number in range(40)], name="eval_loss")
        assert bench.last.condition("Plateaued") is None

    def test_an_evaluation_that_has_not_improved_for_long(self, bench: Bench) -> None:
        losses(bench, *[5 - 0.1 * number for number in range(20)], name="eval_loss")
        best_at = bench.now
        losses(bench, *wave(4, 20), name="eval_loss")
        assert bench.condition("Plateaued") == ("True", "NoImprovement")
        shown = bench.shown("Plateaued")
        assert shown.since == best_at
        assert (
            "eval_loss has not improved for long, except by chance: it was 3.1 at steps 300" in shown.message
        )

    @pytest.mark.parametrize("names", [("eval_loss",), ("eval_loss", "loss"), ("loss", "val_loss")], ids=str)
    def test_an_evaluation_that_stands_still_but_for_noise(
        self, bench: Bench, names: tuple[str, ...]
    ) -> None:
        """For 60 % of the run; a record by chance is no improvement, and a loss beside it changes nothing."""
        rng, value = random.Random(3), 0.0
        for number in range(600):
            level = 1 + 0.5 * max(0.0, 1 - number / 240) ** 2
            if number % 10 == 0:
                value = level * (1 + rng.gauss(0, 0.002))
            values = {"loss": level * (1 + rng.gauss(0, 0.02))}
            bench.advance(15)
            bench.report(number, metrics=tuple([(name, f"{values.get(name, value):.4f}") for name in names]))
            if number < 240:
                assert bench.last.condition("Plateaued") is None
        assert bench.condition("Plateaued") == ("True", "NoImprovement")

    @pytest.mark.parametrize("power", [0.3, 1.0])
    def test_a_noisy_evaluation_that_still_improves(self, bench: Bench, power: float) -> None:
        for seed in range(5):
            rng = random.Random(seed)
            falling = [1 + 1.5 * ((number + 1) / 20 + 0.3) ** -power for number in range(200)]
            watched = NOTHING_WATCHED
            for number, level in enumerate(falling):
                value = level * (1 + rng.gauss(0, 0.005))
                report = Progress(timestamp=T0, metrics=(("eval_loss", f"{value:.4f}"),))
                watched = watched.advance(report, None, float(number))
                assert watched.since_best < max(10, 0.3 * number)

    def test_it_is_false_once_the_run_improves_again(self) -> None:
        bench = Bench()
        bench.job(replace(JOB, hints=ProbeHints(thresholds=Thresholds(plateau_values=3))))
        losses(bench, 3, 3.1, 3.2, 3.3, name="eval_loss")
        assert bench.condition("Plateaued") == ("True", "NoImprovement")
        losses(bench, 1, name="eval_loss")
        assert bench.condition("Plateaued") == ("False", "Improving")

    def test_an_annotation_names_the_metric_of_which_more_is_better(self) -> None:
        bench = Bench()
        thresholds = Thresholds(plateau_metric="eval_accuracy", plateau_after_s=120)
        bench.job(replace(JOB, hints=ProbeHints(thresholds=thresholds)))
        losses(bench, *[0.1 * number for number in range(10)], name="eval_accuracy")
        assert bench.last.condition("Plateaued") is None
        losses(bench, *[0.9 - 0.01 * number for number in range(1, 9)], name="eval_accuracy")
        assert bench.condition("Plateaued") == ("True", "NoImprovement")

    @pytest.mark.parametrize(
        ("name", "is_better"),
        [
            ("eval_accuracy", True), ("accuracy", True), ("val/f1", True), ("mean_reward", True),
            ("rougeL", True), ("mAP", True), ("eval_loss", False), ("perplexity", False), ("wer", False),
            ("top1", True), ("exact_match", True), ("eval_mcc", True),
            ("pass@1", True), ("hit_rate", True), ("psnr", True), ("stop_time", False),
            ("error_score", False), ("mapping_time", False), ("score_loss", False),
        ],
    )  # fmt: skip
    def test_a_metric_of_which_more_is_better_is_known_by_its_name(self, name: str, is_better: bool) -> None:
        assert is_higher_better(name) is is_better


@pytest.mark.parametrize(
    ("name", "better", "best"), [("wer", "max", 2.1), ("accuracy", "min", 1.0), ("wer", None, 1.0)]
)
def test_a_job_may_say_which_values_of_its_metric_are_better(
    name: str, better: Better | None, best: float
) -> None:
    watched = NOTHING_WATCHED
    for number, value in enumerate((2.0, 2.1, 1.0, 2.0)):
        report = Progress(timestamp=T0, metrics=((name, str(value)),))
        watched = watched.advance(report, None, float(number), name, better)
    assert watched.goal is not None
    assert (watched.goal.is_higher_better, watched.goal.best) == (best == 2.1, best)


@pytest.mark.parametrize(
    ("values", "since_best"),
    [
        pytest.param([1.0, 0.997], 0, id="by 0.3 %"),
        pytest.param([1.0, 0.999], 1, id="by 0.1 %, which may be chance"),
        pytest.param([1.0, 1.01, 1.0, 1.01, 0.99], 4, id="by 1 %, as it changes by chance"),
        pytest.param([1.0, 1.01, 1.0, 1.01, 0.9], 0, id="by much more"),
        pytest.param([1.0, 0.9, 0.8, 0.7, 0.6], 0, id="always"),
    ],
)
def test_a_best_value_is_clearly_better(values: list[float], since_best: int) -> None:
    watched = NOTHING_WATCHED
    for number, value in enumerate(values):
        report = Progress(timestamp=T0, metrics=(("eval_loss", str(value)),))
        watched = watched.advance(report, None, float(number))
    assert watched.since_best == since_best


@pytest.mark.parametrize(("times", "is_far"), [(2.9, False), (3.1, True)])
def test_a_loss_is_far_from_three_times_the_usual_one_on(times: float, is_far: bool) -> None:
    course = Course("loss", count=100, usual=1.0, noise=0.1, first=1.0, best=1.0)
    assert course.is_far(times) is is_far
    noisy = replace(course, noise=0.19)
    assert noisy.is_far(2.13) is False  # 6 times the noise, but not far
    assert replace(course, noise=0.6).is_far(4.5) is False  # not even 6 times the noise


@pytest.mark.parametrize(
    ("count", "far", "has_diverged"),
    [(100, 40, True), (100, 39, False), (450, 44, False), (450, 45, True), (9000, 50, True)],
)
def test_a_divergence_needs_so_many_far_values_as_the_run_is_long(
    count: int, far: int, has_diverged: bool
) -> None:
    course = Course("loss", count=count, usual=1.0, noise=0.1, first=1.0, best=1.0, far=far, far_at=T0)
    assert course.has_diverged(4.0, T0 + timedelta(seconds=119)) is False
    assert course.has_diverged(4.0, T0 + timedelta(seconds=120)) is has_diverged


def test_an_alarm_stays_while_its_value_is_shown_again() -> None:
    first = Progress(timestamp=T0, metrics=(("loss", "nan"), ("grad_norm", "1")))
    watched = NOTHING_WATCHED.advance(first, None, 1.0)
    assert watched.alarm is not None
    again = watched.advance(first, first, 2.0)
    assert again.alarm is not None
    mended = replace(first, metrics=(("loss", "0.5"), ("grad_norm", "1")))
    assert again.advance(mended, first, 3.0).alarm is None


def test_one_value_moves_what_is_usual_by_a_fifth_of_the_noise_at_most() -> None:
    course = Course("accuracy")
    for number in range(200):
        course = course.follow(1.0 + (number % 2) / 10, T0)
    after = course.follow(1e9, T0)
    assert after.usual - course.usual == pytest.approx(SMOOTHING * 4 * course.noise)
    assert after.noise - course.noise == pytest.approx(SMOOTHING * 3 * course.noise)


_VALUES = st.floats() | st.sampled_from(["nan", "inf", "-inf", "", "text", "1e308", "-0"])


@given(st.lists(st.tuples(st.sampled_from([*WATCHED, "accuracy"]), _VALUES), max_size=60))
def test_whatever_is_reported_the_statistics_stay_finite_and_small(said: list[tuple[str, object]]) -> None:
    watched, at = NOTHING_WATCHED, T0
    for number, (name, value) in enumerate(said):
        at += timedelta(seconds=15)
        watched = watched.advance(Progress(timestamp=at, metrics=((name, str(value)),)), None, float(number))
        assert remembered(watched) == watched
    assert len(watched.courses) <= len(WATCHED)
    assert len(msgspec.msgpack.encode(watched)) < 700


def remembered(watched: Watched) -> Watched:
    return msgspec.json.decode(msgspec.json.encode(watched), type=Watched)


def test_what_is_remembered_of_a_goal_keeps_its_time() -> None:
    watched = NOTHING_WATCHED.advance(Progress(timestamp=T0, metrics=(("eval_loss", "1"),)), None, 1.0)
    goal = remembered(watched).goal
    assert goal is not None
    assert goal.at == datetime.fromisoformat(T0.isoformat())
