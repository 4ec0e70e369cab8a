"""What a resumed training shows, however it says what was done before: 2 of 4 epochs, of 10 steps each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.reporting import MemorySink
from trainjob_progress import current, report, report_metrics, track

EPOCHS, EACH = range(2, 4), 10
TOTAL = 4 * EACH


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> MemorySink:
    """Where every run of the test is written."""
    made = MemorySink()
    monkeypatch.setattr("trainjob_progress.settings.find_sinks", lambda **_: [made])
    return made


Train = Callable[[Iterable[int]], Iterable[int]]  # marks each item that is given as done once it is
PROGRAMS: dict[str, tuple[Callable[[Train, int], object], int]] = {}


def program(make: Callable[[Train, int], object]) -> None:
    """Its second argument: steps of the epoch in which it was interrupted."""
    PROGRAMS[make.__name__] = make, 0
    if make.__code__.co_varnames[1] == "at":
        PROGRAMS[f"{make.__name__}, in the middle of an epoch"] = make, 4


@program
def a_block_and_one_loop(train: Train, _: int) -> None:
    with report(TOTAL, initial_step=2 * EACH):
        for _ in train(track(range(2 * EACH))):
            pass


@program
def a_block_and_tracked_epochs(train: Train, at: int) -> None:
    with report(TOTAL, initial_step=2 * EACH + at):
        for epoch in track(EPOCHS):
            for _ in train(track(range(at * (epoch == 2), EACH))):
                pass


@program
def a_block_and_plain_epochs(train: Train, at: int) -> None:
    with report(TOTAL, initial_step=2 * EACH + at):
        for epoch in EPOCHS:
            for _ in train(track(range(at * (epoch == 2), EACH))):
                pass


@program
def a_block_that_restores_inside(train: Train, at: int) -> None:
    with report(TOTAL) as r:
        with r.restoring():
            r.update(step=2 * EACH + at)
        for epoch in track(EPOCHS):
            for _ in train(track(range(at * (epoch == 2), EACH))):
                pass


@program
def a_block_that_restores_inside_and_plain_epochs(train: Train, at: int) -> None:
    with report(TOTAL, total_epochs=4) as r:
        r.update(step=2 * EACH + at)
        for epoch in EPOCHS:
            for _ in train(track(range(at * (epoch == 2), EACH))):
                pass


@program
def a_block_with_epochs_and_plain_epochs(train: Train, at: int) -> None:
    with report(TOTAL, total_epochs=4, initial_step=2 * EACH + at):
        for epoch in EPOCHS:
            for _ in train(track(range(at * (epoch == 2), EACH))):
                pass


@program
def a_block_with_epochs_alone_and_plain_epochs(train: Train, _: int) -> None:
    with report(total_epochs=4, initial_step=2 * EACH) as r:
        for _ in EPOCHS:
            for _ in train(track(range(EACH))):
                pass
            r.epoch()


@program
def a_block_with_epochs_alone_and_tracked_epochs(train: Train, _: int) -> None:
    with report(total_epochs=4, initial_step=2 * EACH):
        for _ in track(EPOCHS):
            for _ in train(track(range(EACH))):
                pass


@program
def a_block_that_sets_its_epochs(train: Train, _: int) -> None:
    with report(total_epochs=4) as r:
        r.update(epoch=2)
        for _ in EPOCHS:
            for _ in train(track(range(EACH))):
                pass
            r.epoch()


@program
def a_block_without_a_plan(train: Train, _: int) -> None:
    with report(initial_step=2 * EACH):
        for _ in track(EPOCHS):
            for _ in train(track(range(EACH))):
                pass


@program
def a_block_with_epochs_alone_and_one_loop_of_the_rest(train: Train, _: int) -> None:
    with report(total_epochs=4, initial_step=2 * EACH):
        for _ in train(track(range(EACH), epochs=2)):
            pass


@program
def a_block_and_blocks_inside(train: Train, _: int) -> None:
    with report(TOTAL, initial_step=2 * EACH):
        for _ in EPOCHS:
            with report(EACH) as r:
                for _ in train(range(EACH)):
                    r.step()


@program
def a_block_and_epochs_that_both_say_it(train: Train, at: int) -> None:
    with report(TOTAL, initial_step=2 * EACH + at):
        for epoch in track(EPOCHS, initial_step=2):
            skipped = at * (epoch == 2)
            for _ in train(track(range(skipped, EACH), initial_step=skipped)):
                pass


@program
def a_block_and_batches_that_both_say_it(train: Train, _: int) -> None:
    with report(TOTAL, initial_step=2 * EACH):
        for epoch in track(EPOCHS):
            for _ in train(track(range(EACH), initial_step=epoch * EACH)):
                pass


@program
def epochs_and_batches_of_the_first(train: Train, at: int) -> None:
    for epoch in track(EPOCHS, initial_step=2):
        skipped = at * (epoch == 2)
        for _ in train(track(range(skipped, EACH), initial_step=skipped)):
            pass


@program
def epochs_and_batches_that_both_say_it(train: Train, _: int) -> None:
    for epoch in track(EPOCHS, initial_step=2):
        for _ in train(track(range(EACH), initial_step=epoch * EACH)):
            pass


@program
def epochs_with_a_total_as_in_tqdm(train: Train, _: int) -> None:
    for _ in track(EPOCHS, initial_step=2, total=4):
        for _ in train(track(range(EACH))):
            pass


@program
def a_stream_with_a_total_as_in_tqdm(train: Train, at: int) -> None:
    done = 2 * EACH + at
    for _ in train(track(iter(range(TOTAL - done)), initial_step=done, total=TOTAL)):
        pass


@program
def a_loop_of_the_rest(train: Train, at: int) -> None:
    done = 2 * EACH + at
    for _ in train(track(range(done, TOTAL), initial_step=done)):
        pass


@pytest.mark.parametrize(("make", "at"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_resumed_training_goes_on_where_it_was(
    make: Callable[[Train, int], object], at: int, sink: MemorySink
) -> None:
    done = 2 * EACH + at
    seen = []

    def train(items: Iterable[int]) -> Iterable[int]:
        nonlocal done
        for item in items:
            report_metrics(loss=1.0)
            current().flush(60)
            seen.append((sink.last.step, sink.last.total_steps, sink.last.percentage))
            assert seen[-1] == (done, TOTAL, done * 100 // TOTAL)
            done += 1
            yield item

    make(train, at)
    assert len(seen) == TOTAL - 2 * EACH - at
    assert (sink.last.ending, sink.last.step, sink.last.total_steps) == ("finished", TOTAL, TOTAL)
    for one in sink.written:
        assert one.percentage is None or one.percentage >= 50 or one is sink.written[0]
        if one.total_epochs == 4:
            assert one.epoch is None or one.epoch >= 2
    assert sink.last.total_epochs != 4 or sink.last.epoch == 4


def test_an_evaluation_between_steps_that_are_set_is_no_training(sink: MemorySink) -> None:
    with report(total_steps=20) as r:
        for epoch in range(2):
            r.update(step=10 * epoch + 10, loss=0.5)
            for _ in track(range(3)):
                r.flush(60)
                assert sink.last.step == 10 * epoch + 10


def test_a_step_counts_beside_metrics_that_have_no_truth(sink: MemorySink) -> None:
    """Seen: step 0 of a training that gave its metrics in a pandas Series."""

    class Series(dict[str, float]):
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    with report(10) as reporter:
        reporter.update(Series(loss=0.5), step=4)
        reporter.update(step=5, metrics=Series(loss=0.5))
    assert sink.last.step == 5
