"""What a program calls, its document shows; or one warning says why not."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
from tqdm import tqdm

from tests.reporting import MemorySink, ReopeningSink, wait_until
from trainjob_progress import Reporter, current, report, report_metrics, track
from trainjob_progress.estimate import find_percentage
from trainjob_progress.loops import abandon_all


def numbers(sink: MemorySink) -> tuple[Any, ...]:
    last = sink.last
    return last.state, last.ending, last.step, last.total_steps, last.percentage


# Loops in loops


def test_nested_tracked_loops_are_epochs_and_steps(sink: MemorySink) -> None:
    seen = []
    for _ in track(range(3), sinks=[sink]):
        for _ in track(range(4)):
            report_metrics(loss=0.5)
        current().flush(60)
        seen.append((*numbers(sink), sink.last.epoch, sink.last.total_epochs))
    assert seen == [
        ("running", None, 4, 12, 33, 1, 3),
        ("running", None, 8, 12, 66, 2, 3),
        ("running", None, 12, 12, 100, 3, 3),
    ]
    assert numbers(sink) == ("completed", "finished", 12, 12, 100)
    assert sink.last.metrics == {"loss": 0.5}


def test_epochs_that_were_done_before_have_had_their_steps(sink: MemorySink) -> None:
    """Seen: "epoch 8 of 10, step 10 of 20, 50 %"."""
    seen = []
    for epoch in track(range(6, 10), initial_step=6, sinks=[sink]):
        for step in track(range(5)):
            if epoch == 6 and step == 2:
                current().flush(60)
                seen.append((*numbers(sink)[2:], sink.last.epoch, sink.last.total_epochs))
        current().flush(60)
        seen.append((*numbers(sink)[2:], sink.last.epoch, sink.last.total_epochs))
    assert seen[0] == (32, 50, 64, 6, 10)
    assert seen[1:] == [(35, 50, 70, 7, 10), (40, 50, 80, 8, 10), (45, 50, 90, 9, 10), (50, 50, 100, 10, 10)]


def test_a_run_is_never_said_to_be_over_between_its_loops(sink: MemorySink) -> None:
    for _ in track(range(5), sinks=[sink]):
        for _ in track(range(3)):
            current().flush(60)
        current().flush(60)
    assert {s.state for s in sink.written[:-1]} == {"running"}
    assert sink.last.state == "completed"


def test_a_loop_tracked_in_one_that_is_not_is_no_run_by_itself(sink: MemorySink) -> None:
    """`for epoch in range(3)`: for batch in track(loader)`: nobody has said how many epochs there are."""
    for epoch in range(3):
        for _ in track(range(4), sinks=[sink] if not epoch else None):
            current().flush(60)
            assert numbers(sink)[3:] == (None, None)
        current().flush(60)
        assert numbers(sink) == ("running", None, 4 * (epoch + 1), None, None)
        assert sink.last.epoch == epoch + 1
    current()._run.exit()  # what the end of the process does
    assert numbers(sink) == ("completed", "finished", 12, 12, 100)


@pytest.mark.parametrize("evaluates", [False, True])
def test_one_tracked_loop_may_run_once_for_each_epoch(sink: MemorySink, evaluates: bool) -> None:
    """Seen: only the first epoch counted, and that was called all of it. An evaluation was one epoch more."""
    batches = track(range(4), sinks=[sink])
    for epoch in range(1, 4):
        for _ in batches:
            batches._options = {}
        if evaluates:
            for _ in track(range(2)):
                pass
        current().flush(60)
        assert numbers(sink) == ("running", None, 4 * epoch, None, None)
        assert sink.last.epoch == epoch
    current()._run.exit()
    assert numbers(sink) == ("completed", "finished", 12, 12, 100)


def test_one_tracked_loop_once_more_after_its_run_is_the_next_run(sink: MemorySink) -> None:
    again = MemorySink()
    batches = track(range(4), sinks=[sink])
    assert list(batches) == [0, 1, 2, 3]
    batches._options = {"sinks": [again]}
    assert list(batches) == [0, 1, 2, 3]
    assert numbers(sink) == numbers(again) == ("completed", "finished", 4, 4, 100)


def test_a_handles_loop_once_more_has_no_percentage(sink: MemorySink) -> None:
    """Seen: 100 % for the whole of the second epoch."""
    with track(range(4), sinks=[sink]) as batches:
        assert list(batches) == [0, 1, 2, 3]
        for _ in batches:
            pass
        batches.flush(60)
        assert numbers(sink) == ("running", None, 8, None, None)
        assert sink.last.epoch == 2


def test_a_helper_that_tracks_is_told_apart_from_a_loop_around_it(sink: MemorySink) -> None:
    def train_one_epoch() -> None:
        for _ in track(range(4), sinks=[sink] if not sink.written else None):
            current().flush(60)

    train_one_epoch()
    assert numbers(sink) == ("completed", "finished", 4, 4, 100)
    abandon_all()
    sink.is_closed = False
    sink.written.clear()
    for _ in range(2):
        train_one_epoch()
    current().flush(60)
    assert numbers(sink)[:3] == ("running", None, 8)


def test_a_second_loop_in_an_epoch_counts_no_steps_but_shows_life(sink: MemorySink) -> None:
    for _ in track(range(2), sinks=[sink]):
        for _ in track(range(10)):
            pass
        for _ in track(range(5)):
            current().flush(60)
    messages = [s.message for s in sink.written if s.message]
    assert "another loop 3/5" in messages
    assert numbers(sink) == ("completed", "finished", 20, 20, 100)
    assert [s.step for s in sink.written] == sorted(s.step or 0 for s in sink.written)


@pytest.mark.parametrize("rounds", [[0], [9], [4, 9], [0, 3, 6, 9], [0, 2, 4, 6, 8]])
def test_an_evaluation_every_few_steps_counts_no_steps(sink: MemorySink, rounds: list[int]) -> None:
    """Seen: 20 of 20 steps and 10 of 10 epochs, for four evaluations of 5 in 10 steps."""
    for step in track(range(10), sinks=[sink]):
        if step in rounds:
            for _ in track(range(5)):
                pass
    assert numbers(sink) == ("completed", "finished", 10, 10, 100)
    assert sink.last.epoch == 1


def test_epochs_that_are_skipped_at_the_end_make_no_evaluations_of_those_before(sink: MemorySink) -> None:
    for epoch in track(range(10), sinks=[sink]):
        for _ in track(range(4)) if epoch < 6 else ():
            pass
    assert numbers(sink) == ("completed", "finished", 24, 24, 100)


@pytest.mark.parametrize(
    "rounds",
    [range(1, 10), range(3, 10), range(8, 10), [0, *range(2, 10)], [*range(4), *range(6, 10)], range(3)],
)
@pytest.mark.parametrize("evaluates", [False, True])
def test_epochs_that_are_skipped_make_no_evaluations_of_the_others(
    sink: MemorySink, rounds: Sequence[int], evaluates: bool
) -> None:
    """Seen: after one, the outer loop counted steps for ever, though only a resumed run skips epochs."""
    for epoch in track(range(10), sinks=[sink]):
        if epoch not in rounds:
            continue
        for _ in track(range(5), desc=f"epoch {epoch}"):
            pass
        for _ in track(range(2)) if evaluates else ():
            pass
    done = 5 * len(rounds)
    assert numbers(sink) == ("completed", "finished", done, done, 100)
    assert (sink.last.epoch, sink.last.total_epochs) == (10, 10)


@pytest.mark.parametrize(
    "shape", ["every fifth", "first", "one helper", "named epochs", "phases", "data sets"]
)
def test_of_several_loops_in_one_that_is_not_tracked_the_one_that_comes_most_counts(
    sink: MemorySink, shape: str
) -> None:
    """Seen: a baseline's evaluation or a helper's second use counted, and the training did not."""

    def run(items: int, name: str | None = None) -> None:
        for _ in track(range(items), desc=name):
            pass

    with report(sinks=[sink]) as r:
        for epoch in range(10):
            if (shape == "every fifth" and epoch % 5 == 0) or (shape == "first" and epoch == 0):
                for _ in track(range(7), desc="val"):
                    pass
            if shape in ("every fifth", "first"):
                for _ in track(range(5), desc="train"):
                    pass
            elif shape == "phases":
                for phase, items in ("train", 5), ("val", 4):
                    for _ in track(range(items), desc=phase):
                        pass
            elif shape == "data sets":
                run(5, "abcdefghij"[epoch])
            else:
                name = "Epoch {} " if shape == "named epochs" else ""
                run(5, f"{name.format(epoch)}train")
                run(4, f"{name.format(epoch)}val")
        r.flush(60)
        assert (sink.last.step, sink.last.epoch) == (50, 10)


@pytest.mark.parametrize("bars", ["none", "inner", "both"])
def test_a_librarys_bar_around_a_loop_hides_no_loop_around_it(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch, bars: str
) -> None:
    """Seen: `tqdm(track(loader))` in a loop of epochs that is not tracked showed the last epoch alone."""
    monkeypatch.setattr("trainjob_progress.settings.find_sinks", lambda **_: [sink])
    for _ in tqdm(range(3), disable=True) if bars == "both" else range(3):
        for _ in track(range(5)) if bars == "none" else tqdm(track(range(5)), disable=True):
            pass
    current()._run.exit()
    assert (*numbers(sink), sink.last.epoch) == ("completed", "finished", 15, 15, 100, 3)


@pytest.mark.parametrize("plan", [{"total_epochs": 3}, {"total_steps": 15}])
@pytest.mark.parametrize("inner", [lambda: report(total_steps=5), lambda: track(range(5))])
def test_epochs_of_a_block_that_counts_none_are_what_ran_inside(
    sink: MemorySink, plan: dict[str, int], inner: Callable[[], Any]
) -> None:
    """Seen: "stopped", step 15 of 25; or epoch 1 of 1 after three."""
    seen = []
    with report(sinks=[sink], **plan) as r:
        for _ in range(3):
            with inner() as i:
                if isinstance(i, Iterable):
                    list(i)
                else:
                    i.step(5)
            r.flush(60)
            seen.append((sink.last.step, sink.last.total_steps, sink.last.epoch))
    is_known = "total_epochs" in plan or isinstance(i, Iterable)
    assert seen == [(5 * at, 15, at if is_known else None) for at in (1, 2, 3)]
    assert numbers(sink) == ("completed", "finished", 15, 15, 100)
    assert sink.last.total_epochs == plan.get("total_epochs")


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("is_tracked", [False, True])
def test_steps_done_before_count_once(sink: MemorySink, grows: bool, is_tracked: bool) -> None:
    """Seen: once in each epoch of a loop that is tracked."""
    plans = set()
    with report(sinks=[sink]) as r:
        done = 15
        for _ in track(range(3, 5)) if is_tracked else range(3, 5):
            for _ in track(range(5), initial_step=done if grows else 15):
                done += 1
                r.flush(60)
                plans.add(sink.last.total_steps)
    assert numbers(sink)[2:] == (25, 25, 100)
    assert plans <= {25, None}


def test_a_loop_in_a_phase_counts_no_steps(sink: MemorySink) -> None:
    with report(total_steps=2, sinks=[sink]) as r:
        r.step()
        with r.phase("evaluating"):
            for i in track(range(4)):
                r.flush(60)
                assert (sink.last.message, sink.last.step) == (f"evaluating {i}/4", 1)
        r.step()
    assert numbers(sink) == ("completed", "finished", 2, 2, 100)
    assert not sink.last.message


def test_three_levels_count_epochs_through(sink: MemorySink) -> None:
    for _ in track(range(2), sinks=[sink]):
        for _ in track(range(3)):
            for _ in track(range(5)):
                current().flush(60)
    steps = [s.step or 0 for s in sink.written]
    assert (steps, {s.total_steps for s in sink.written if s.step}) == (sorted(steps), {30})
    assert (sink.last.epoch, sink.last.total_epochs) == (6, 6)
    assert numbers(sink) == ("completed", "finished", 30, 30, 100)


def test_a_reporter_in_another_ones_block_counts_its_steps(sink: MemorySink) -> None:
    with report(total_epochs=2, sinks=[sink]) as outer:
        for _ in range(2):
            with report(total_steps=5) as inner:
                inner.step(5, loss=0.5)
            outer.flush(60)
            assert sink.last.state == "running"
            outer.epoch()
    assert numbers(sink) == ("completed", "finished", 10, 10, 100)
    assert (sink.last.epoch, sink.last.metrics) == (2, {"loss": 0.5})


def test_a_framework_inside_a_block_of_the_users_is_what_the_document_shows(sink: MemorySink) -> None:
    with report(sinks=[sink]) as r:
        inner = report(total_steps=100)
        inner.update(step=40, epoch=1, total_epochs=3)
        r.flush(60)
        assert (*numbers(sink), sink.last.epoch) == ("running", None, 40, 100, 40, 1)
        inner.update(step=100, epoch=3)
        inner.finish()
        r.update(accuracy=0.9)
    assert (*numbers(sink), sink.last.epoch) == ("completed", "finished", 100, 100, 100, 3)
    assert sink.last.metrics == {"accuracy": 0.9}


def test_a_loop_inside_a_run_that_counts_itself_is_a_message_only(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    r = report(total_steps=2, sinks=[sink])
    for _ in range(2):
        for _ in track(range(3)):
            r.flush(60)
        r.step()
    r.finish()
    assert numbers(sink) == ("completed", "finished", 2, 2, 100)
    assert "another loop 1/3" in {s.message for s in sink.written}
    assert capfd.readouterr().err.count("shown as a message only") == 1


def test_another_threads_loop_does_not_count_for_this_ones(sink: MemorySink) -> None:
    def prepare() -> None:
        for _ in track(range(50)):
            pass

    with report(sinks=[sink]) as r:
        thread = threading.Thread(target=prepare)
        thread.start()
        thread.join()
        r.step(2)
    assert sink.last.step == 2


# Ways to end


@pytest.mark.parametrize(
    ("steps", "total", "ending", "percentage"),
    [
        (10, 10, "finished", 100),
        (4, 10, "stopped", 40),
        (4, None, "finished", None),
        (0, None, "finished", None),
        (4, 3, "finished", None),
    ],
)
def test_the_end_of_a_block_says_whether_the_plan_was_kept(
    sink: MemorySink, steps: int, total: int | None, ending: str, percentage: int | None
) -> None:
    with report(total_steps=total, sinks=[sink]) as r:
        r.step(steps)
    shown = None if percentage is None else total  # a total that was too small is no plan
    assert numbers(sink) == ("completed", ending, steps, shown, percentage)


def test_a_block_after_sigterm_was_preempted_unless_its_plan_was_kept(sink: MemorySink) -> None:
    for steps, ending, state in ((3, "preempted", "running"), (10, "finished", "completed")):
        with report(total_steps=10, sinks=[sink]) as r:
            r.step(steps)
            r._run._terminate(False)
        assert (sink.last.ending, sink.last.state, sink.last.step) == (ending, state, steps)
        sink.is_closed = False


@pytest.mark.parametrize("state", ["completed", "stopped", "preempted", "failed"])
def test_what_a_program_says_of_its_end_stands(sink: MemorySink, state: str) -> None:
    r = report(total_steps=10, sinks=[sink])
    r.step(5)
    r.finish(state, "because")
    assert (sink.last.ending, sink.last.message) == (state.replace("completed", "finished"), "because")
    assert (sink.last.step, sink.last.percentage) == (5, 50)


def test_an_end_that_nobody_knows_is_refused_with_a_warning(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    report(sinks=[sink]).finish("done")
    assert "finish('done'): one of completed, finished, stopped, preempted, failed" in capfd.readouterr().err
    assert sink.last.ending == "finished"


def test_a_hung_run_that_is_terminated_still_looks_old(sink: MemorySink) -> None:
    r = report(total_steps=10, sinks=[sink])
    r.step(3)
    r.flush(60)
    before = sink.last
    time.sleep(0.05)
    r._run._terminate(True)
    assert (sink.last.ending, sink.last.step) == ("preempted", 3)
    assert sink.last.timestamp == before.timestamp


def test_a_sink_that_asks_seldom_does_not_make_a_hung_run_look_fresh() -> None:
    sink = MemorySink(interval_s=3600)
    r = report(total_steps=10, sinks=[sink])
    wait_until(lambda: r.is_due)
    r.step(3)
    r.step(3)
    wait_until(lambda: r._run.snapshot is not None and r._run.snapshot.step == 6)
    seen = time.time()
    r.flush(60)
    assert sink.last.step == 6
    assert sink.last.timestamp <= seen


# Results after the end


def test_results_that_come_after_the_end_belong_to_the_run() -> None:
    sink = ReopeningSink()
    with report(total_steps=2, sinks=[sink]) as r:
        r.step(2, loss=0.5)
    r.update({"eval_loss": 0.25})
    report_metrics(test_accuracy=0.9)
    wait_until(lambda: len(sink.last.metrics) == 3)
    assert sink.last.metrics == {"loss": 0.5, "eval_loss": 0.25, "test_accuracy": 0.9}
    assert numbers(sink) == ("completed", "finished", 2, 2, 100)


# What is called, and what is shown


@pytest.mark.parametrize(
    ("call", "step", "metrics"),
    [
        (lambda r: r.step({"loss": 0.5}), 1, {"loss": 0.5}),
        (lambda r: r.step({"loss": 0.5}, n=4), 4, {"loss": 0.5}),
        (lambda r: r.step({"loss": 0.5}, 4), 4, {"loss": 0.5}),
        (lambda r: r.step(4, {"loss": 0.5}, lr=1), 4, {"loss": 0.5, "lr": 1}),
        (lambda r: r.step(n=4), 4, {}),
        (lambda r: r.step(n=4, loss=0.5), 4, {"loss": 0.5}),
        (lambda r: r.step(metrics={"loss": 0.5}), 1, {"loss": 0.5}),
        (lambda r: r.step(n=4.0, loss=0.5), 4, {"loss": 0.5}),
        (lambda r: r.step(Fraction(8, 2)), 4, {}),
        (lambda r: r.step(True), 1, {}),
        (lambda r: r.step(0), 0, {}),
        (lambda r: r.update({"loss": 0.5}, step=3), 3, {"loss": 0.5}),
        (lambda r: r.update(step=3, loss=0.5), 3, {"loss": 0.5}),
        (lambda r: r.update(metrics={"loss": 0.5}, lr=1), 0, {"loss": 0.5, "lr": 1}),
        (lambda r: r.update(step=Fraction(3), loss=Fraction(1, 2)), 3, {"loss": 0.5}),
        (lambda _: report_metrics({"loss": 0.5}), 0, {"loss": 0.5}),
        (lambda _: report_metrics(loss=0.5, lr=1), 0, {"loss": 0.5, "lr": 1}),
        (lambda _: report_metrics(metrics={"loss": "0.25"}, timeout=1), 0, {"loss": "0.25"}),  # Katib's
        (lambda _: current().step(2), 2, {}),
        (lambda r: r.epoch({"accuracy": 0.5}), None, {"accuracy": 0.5}),
    ],
)
def test_however_it_is_called_it_is_shown(
    sink: MemorySink,
    capfd: pytest.CaptureFixture[str],
    call: Callable[[Reporter], None],
    step: int | None,
    metrics: Any,
) -> None:
    r = report(sinks=[sink])
    call(r)
    r.flush(60)
    assert (sink.last.step, sink.last.metrics) == (step, metrics)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("call", "epoch", "total"),
    [
        (lambda r: r.epoch(), 1, None),
        (lambda r: r.epoch(2, 3), 2, 3),
        (lambda r: r.epoch(epoch=2, total=3), 2, 3),
        (lambda r: r.epoch(2, total=3), 2, 3),
        (lambda r: r.epoch(total=3), 1, 3),
        (lambda r: r.epoch(0.5), 0.5, None),
    ],
)
def test_epochs_are_counted_however_they_are_given(
    sink: MemorySink, call: Callable[[Reporter], None], epoch: float, total: int | None
) -> None:
    r = report(sinks=[sink])
    call(r)
    r.flush(60)
    assert (sink.last.epoch, sink.last.total_epochs, sink.last.metrics) == (epoch, total, {})


@pytest.mark.parametrize(
    ("call", "warning"),
    [
        (lambda r: r.step("two"), "step('two') counts nothing"),
        (lambda r: r.step(-1), "step(-1) counts nothing"),
        (lambda r: r.step(0.5), "step(0.5) counts nothing"),
        (lambda r: r.update(step=10**5000), "step=a int is left out"),
        (lambda r: r.step(1, [0.5]), "metrics must be a mapping or named, not list"),
        (lambda r: r.step(loss=[0.5]), "metric loss is left out: it gives no number: TypeError"),
        (lambda r: r.update(loss=object()), "metric loss is left out: it gives no number: TypeError"),
        (lambda r: r.update(5), "update(5) sets nothing: step(5) counts, update(step=5) sets"),
        (lambda r: r.update(step="many"), "step='many' is left out"),
        (lambda r: r.update(total_steps=1.5), "total_steps=1.5 is left out"),
        (lambda r: r.update(percentage=math.nan), "percentage=nan is left out"),
        (lambda r: r.epoch("three"), "epoch='three' is left out"),
    ],
)
def test_what_cannot_be_shown_is_one_warning(
    sink: MemorySink, capfd: pytest.CaptureFixture[str], call: Callable[[Reporter], None], warning: str
) -> None:
    r = report(sinks=[sink])
    for _ in range(3):
        call(r)
    r.step()
    r.flush(60)
    errors = capfd.readouterr().err
    assert (errors.count("\n"), warning in errors) == (1, True), errors
    assert (sink.last.step or 0) >= 1


@pytest.mark.parametrize("wrong", ["many", [], -1])
def test_a_plan_that_makes_no_sense_is_one_warning(
    sink: MemorySink, capfd: pytest.CaptureFixture[str], wrong: Any
) -> None:
    with report(total_steps=wrong, sinks=[sink]) as r:
        r.step(2)
    assert f"total_steps={wrong!r} is left out" in capfd.readouterr().err
    assert numbers(sink) == ("completed", "finished", 2, None, None)


def test_a_percentage_is_exact_and_never_says_more_than_the_steps() -> None:
    def share(**fields: Any) -> int | None:
        nothing: Any = dict.fromkeys(("step", "total_steps", "epoch", "total_epochs", "percentage"))
        return find_percentage(**{**nothing, **fields})

    assert [share(step=i, total_steps=100) for i in range(101)] == list(range(101))
    assert [share(epoch=i, total_epochs=100) for i in range(101)] == list(range(101))
    assert [share(percentage=i) for i in (0, 29.9, 99.99, 250)] == [0, 29, 99, 100]
    assert [share(step=a, total_steps=b) for a, b in ((999, 1000), (1, 3), (2, 3))] == [99, 33, 66]


def test_where_epochs_alone_are_counted_no_step_is_said(sink: MemorySink) -> None:
    """Seen: step 0 beside epoch 5 of 5."""
    with report(total_epochs=5, sinks=[sink]) as r:
        for _ in range(5):
            r.epoch()
    assert (sink.last.step, sink.last.epoch, sink.last.ending) == (None, 5, "finished")


def test_names_that_were_there_first_stay_when_there_are_too_many(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    with report(sinks=[sink]) as r:
        r.step(loss=0.5, lr=0.1)
        for i in range(1000):
            r.step(**{f"layer{i}": float(i)})
            assert r._run.values is not None
            assert len(r._run.values) <= 256
        r.step(loss=0.25)
    assert list(sink.last.metrics)[:3] == ["loss", "lr", "layer0"]
    assert (sink.last.metrics["loss"], len(sink.last.metrics)) == (0.25, 256)
    assert capfd.readouterr().err.count("\n") == 1


# Tracked loops


def test_a_break_does_not_lose_the_batch_that_ran_and_an_exception_does_not_count_its_own(
    sink: MemorySink,
) -> None:
    def leave(how: str) -> int:
        with report(sinks=[sink]) as r:
            try:
                for i in track(range(10)):
                    if i == 4 and how == "break":
                        break
                    if i == 4 and how == "return":
                        return sink.last.step or 0
                    if i == 4:
                        raise ValueError
            except ValueError:
                pass
            r.flush(60)
            return sink.last.step or 0

    assert leave("break") == 5
    sink.is_closed = False
    leave("return")
    assert sink.last.step == 5
    sink.is_closed = False
    assert leave("raise") == 4


def test_a_tracked_loop_has_a_length_and_gives_a_handle(sink: MemorySink) -> None:
    assert len(track(range(7), epochs=2)) == 14
    with pytest.raises(TypeError):
        len(track(iter("ab")))
    with track(range(4), sinks=[sink]) as t:
        for _ in t:
            t.update(loss=0.5)
            t.message("training")
        t.flush(60)
        assert sink.last.state == "running"  # the block is not over
        t.update(accuracy=0.9)
    assert numbers(sink) == ("completed", "finished", 4, 4, 100)
    assert sink.last.metrics == {"loss": 0.5, "accuracy": 0.9}


@pytest.mark.parametrize(("batches", "steps"), [(12, 3), (10, 3), (9, 3), (8, 2)])
def test_optimizer_steps_are_counted_when_gradients_are_accumulated(
    sink: MemorySink, batches: int, steps: int
) -> None:
    for _ in track(range(batches), epochs=2, accumulate=4, sinks=[sink]):
        pass
    assert numbers(sink) == ("completed", "finished", 2 * steps, 2 * steps, 100)


def test_a_step_in_a_tracked_loop_is_metrics_only_and_says_so(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    with track(range(4), sinks=[sink]) as t:
        for _ in t:
            t.step(loss=0.5)
    assert (sink.last.step, sink.last.metrics) == (4, {"loss": 0.5})
    assert capfd.readouterr().err.count("a tracked loop counts by itself") == 1


def test_a_helper_needs_no_handle(sink: MemorySink) -> None:
    def train() -> None:
        current().step(loss=0.5)

    train()  # and without a run it harms nobody
    with report(total_steps=1, sinks=[sink]):
        train()
    assert (sink.last.step, sink.last.metrics) == (1, {"loss": 0.5})


def test_a_phase_ends_by_itself_and_gives_back_what_was_said_before(sink: MemorySink) -> None:
    with report(sinks=[sink]) as r:
        r.message("training")
        with contextlib.suppress(KeyError), r.phase("evaluating"):
            with r.phase("loading"):
                r.flush(60)
                assert sink.last.message == "loading"
            r.flush(60)
            assert sink.last.message == "evaluating"
            raise KeyError
        r.flush(60)
        assert sink.last.message == "training"


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda r: r.step(step=5, loss=0.5), "update(step=…)"),
        (lambda r: r.step(epoch=2), "epoch(…)"),
        (lambda r: r.update(total=100), "update(total_steps=…)"),
        (lambda r: r.update(progress=0.5), "update(percentage=…)"),
    ],
)
def test_a_metric_by_the_name_of_something_else_is_doubted_once(
    sink: MemorySink, capfd: pytest.CaptureFixture[str], call: Callable[[Reporter], None], meant: str
) -> None:
    with report(total_steps=9, sinks=[sink]) as r:
        call(r)
        call(r)
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.endswith(f"{meant} was perhaps meant")
    assert sink.last.metrics


def test_metrics_in_a_mapping_may_have_any_name(sink: MemorySink, capfd: pytest.CaptureFixture[str]) -> None:
    with report(total_steps=9, sinks=[sink]) as r:
        r.step({"loss": 0.5, "epoch": 0.25, "step": 3})
        r.update(metrics={"total": 7})
    assert capfd.readouterr().err == ""
    assert sink.last.metrics == {"loss": 0.5, "epoch": 0.25, "step": 3, "total": 7}


class Guess:
    """A stream whose `len` is a guess, as that of an IterableDataset may be."""

    def __init__(self, length: int, items: int) -> None:
        self._length, self._items = length, items

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._items))


@pytest.mark.parametrize("items", [4, 10, 16])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_loop_that_comes_to_its_end_is_finished_whatever_len_said(items: int, epochs: int) -> None:
    """Seen: a stream with fewer items than its len was stopped, at 40 %."""
    sink = MemorySink()

    def train() -> None:  # no loop around it
        for _ in track(Guess(10, items), epochs=epochs, sinks=[sink]):
            pass

    train()
    last = sink.last
    assert (last.state, last.ending, last.percentage) == ("completed", "finished", 100)
    assert (last.step, last.total_steps) == (items * epochs, items * epochs)
