"""Several trainings in one process: what the document shows of each, and of those before it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.reporting import MemorySink
from trainjob_progress import current, report, report_metrics, track


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> MemorySink:
    """Where every run of the test is written, one after the other."""
    made = MemorySink()
    made.close = lambda: None  # type: ignore[method-assign]
    monkeypatch.setattr("trainjob_progress.settings.find_sinks", lambda **_: [made])
    return made


def test_the_runs_of_a_sweep_have_names_and_show_how_those_before_ended(sink: MemorySink) -> None:
    for rate in (0.1, 0.2, 0.3):
        with report(total_steps=10, name=f"lr {rate}") as r:
            r.step(10 if rate < 0.2 else 4)
            if rate == 0.2:
                r.finish("stopped")
    assert (sink.last.step, sink.last.total_steps, sink.last.ending) == (4, 10, "stopped")
    assert sink.last.message == "lr 0.3; earlier: lr 0.1 finished at 10/10, lr 0.2 stopped at 4/10"


def test_a_run_that_counts_epochs_alone_is_shown_by_them(sink: MemorySink) -> None:
    for fold in range(3):
        with report(total_epochs=4, name=f"fold {fold}") as r:
            for _ in range(4 - fold):
                r.epoch(accuracy=0.5)
    with report(name="search") as r:
        r.update(percentage=40)
    assert (sink.last.step, sink.last.percentage) == (None, 40)
    with report(total_steps=10) as r:
        r.update(percentage=90)
        r.step(10)
    assert (sink.last.ending, sink.last.step, sink.last.percentage) == ("finished", 10, 100)
    assert sink.last.message == (
        "earlier: fold 1 stopped at epoch 3/4, fold 2 stopped at epoch 2/4, search finished and 1 more"
    )


def test_folds_of_other_names_in_a_plain_loop_are_one_run_without_a_name(sink: MemorySink) -> None:
    for data in ("train", "test"):
        for _ in track(range(8), desc=data):
            pass
    for _ in track(range(3), desc="last"):
        pass
    assert (sink.last.step, sink.last.message) == (3, "last")


def test_of_many_earlier_runs_the_last_three_are_shown(sink: MemorySink) -> None:
    for fold in range(6):
        with report(total_steps=1, name=f"fold {fold}") as r:
            r.step()
    assert sink.last.message == (
        "fold 5; earlier: fold 2 finished at 1/1, fold 3 finished at 1/1, fold 4 finished at 1/1 and 2 more"
    )


def test_a_name_stands_before_what_is_said(sink: MemorySink) -> None:
    with report(total_steps=1, name="fold 1") as r:
        r.message("evaluating")
        r.step()
    assert sink.last.message == "fold 1: evaluating"


def test_a_retry_shows_the_attempt_that_failed(sink: MemorySink) -> None:
    def train(items: int) -> None:
        for item in track(range(items)):
            if item == 60:
                raise RuntimeError

    try:
        train(200)
    except RuntimeError:
        train(50)
    assert (sink.last.step, sink.last.total_steps, sink.last.state) == (50, 50, "completed")
    assert sink.last.message == "earlier: an attempt failed at 60/200"


def test_an_evaluation_after_a_training_that_was_preempted_says_so(sink: MemorySink) -> None:
    def train() -> None:
        for item in track(range(50)):
            if item == 11:
                current()._run._terminate(is_end=False)  # the program's own handler of SIGTERM sets a flag
                break

    train()
    for _ in track(range(3), desc="eval"):
        pass
    assert sink.last.message == "eval; earlier: an attempt preempted at 12/50"


def test_retries_in_a_loop_show_the_attempts_that_failed(sink: MemorySink) -> None:
    """Seen: no message at all from Python 3.11 on."""

    def train(size: int) -> None:
        for at in track(range(10), desc=f"size {size}", sinks=[sink] if size == 32 else None):
            if size > 8 and at == 4:
                raise RuntimeError

    size = 32
    while True:
        try:
            train(size)
            break
        except RuntimeError:
            size //= 2
    current().flush(60)
    assert sink.last.message == "size 8; earlier: size 32 failed at 4/10, size 16 failed at 4/10"


def test_a_restart_begins_the_next_attempt_of_the_same_reporter(sink: MemorySink) -> None:
    with report(total_steps=100, total_epochs=2) as r:
        r.step(30, loss=0.5)
        r.epoch(1)
        started_s = r._run._start_time
        r.restart(total_steps=200)
        r.flush(60)
        last = sink.last
        assert (last.state, last.step, last.total_steps, last.epoch) == ("running", 0, 200, None)
        assert (last.metrics, last.message) == ({}, "earlier: an attempt failed at 30/100")
        assert last.start_time > started_s
        r.step(200)
    assert (sink.last.state, sink.last.step, sink.last.percentage) == ("completed", 200, 100)


def test_a_restart_leaves_all_loops_inside(sink: MemorySink, capfd: pytest.CaptureFixture[str]) -> None:
    """Seen: "a report was lost", and the steps of the attempt that had failed counted."""
    with report(total_steps=100) as r:
        for attempt in range(2):
            for _ in track(range(100)):
                if attempt == 0:
                    r.restart(total_steps=100)
                    break
    assert (sink.last.step, sink.last.total_steps) == (100, 100)
    assert capfd.readouterr().err == ""


def test_a_restart_after_the_end_or_of_an_inner_reporter_is_a_warning(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    with report(total_steps=3) as r:
        r.step(3)
    r.restart()
    assert sink.last.step == 3
    assert "restart() is for the reporter of a run that goes on" in capfd.readouterr().err


def test_two_runs_at_once_are_told_apart_by_their_names(sink: MemorySink) -> None:
    with track(range(5), desc="generator") as first, track(range(9), desc="discriminator") as second:
        for _ in zip(first, second, strict=False):
            pass
        first.flush(60)
        assert sink.last.message == "generator; discriminator 4/9"


def test_a_loop_has_the_total_and_the_description_that_it_is_given(sink: MemorySink) -> None:
    """As those who come from tqdm type it."""
    with track((x for x in range(4)), total=4, desc="training") as t:
        for _ in t:
            t.flush(60)
    assert {each.total_steps for each in sink.written} == {4}
    assert sink.last.message == "training"


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, math.nan])
def test_a_total_that_is_none_is_a_warning(
    sink: MemorySink, capfd: pytest.CaptureFixture[str], wrong: Any
) -> None:
    for _ in track(range(4), total=wrong):
        pass
    assert f"total={wrong!r} is no number of items: the length is used" in capfd.readouterr().err
    assert sink.last.step == 4


def test_the_best_value_so_far_is_shown_whenever_it_was(sink: MemorySink) -> None:
    sink.interval_s = 3600  # no sample has it
    with report(best={"loss": "min", "accuracy": "max"}) as r:
        for loss in (0.5, 0.125, math.nan, 0.25):
            r.step(loss=loss, accuracy=1 - loss)
    assert sink.last.metrics == {"loss": 0.25, "accuracy": 0.75, "best_loss": 0.125, "best_accuracy": 0.875}


def test_the_best_value_is_that_of_all_rounds_of_a_loop_that_names_it(sink: MemorySink) -> None:
    for epoch in range(3):
        for _ in (batches := track(range(2), best={"loss": "min"})):
            report_metrics(loss=[0.1, 0.5, 0.6][epoch])
            batches.flush(60)
    assert sink.last.metrics == {"loss": 0.6, "best_loss": 0.1}


def test_the_best_value_of_an_attempt_that_failed_is_forgotten(sink: MemorySink) -> None:
    with report(total_steps=4, best={"loss": "min"}) as r:
        r.step(loss=1.0)
        r.flush(60)
        r.restart(total_steps=2)
        for loss in (8.0, 9.0):
            r.step(loss=loss)
    assert sink.last.metrics == {"loss": 9.0, "best_loss": 8.0}


def test_a_loop_that_does_not_count_is_shown_by_its_own_name(sink: MemorySink) -> None:
    said = set()
    with track(range(3), desc="training") as steps:
        for step in steps:
            if step == 2:
                for _ in (inner := track(range(3), desc="eval")):
                    inner.flush(60)
                    said.add(sink.last.message)
    assert said == {f"training: eval {count}/3" for count in range(3)}


@pytest.mark.parametrize("wrong", ["loss", {"loss": "least"}, {1: "min"}, 5])
def test_what_is_no_way_to_be_best_is_a_warning(
    sink: MemorySink, capfd: pytest.CaptureFixture[str], wrong: Any
) -> None:
    with report(best=wrong) as r:
        r.step(loss=1.0)
    assert sink.last.metrics == {"loss": 1.0}
    assert capfd.readouterr().err.startswith(f"trainjob_progress: best={wrong!r}")
