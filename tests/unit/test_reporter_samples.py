"""An item that a program takes by hand, to look at it, is no loop: `batch = next(iter(track(loader)))`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reporting import MemorySink
from trainjob_progress import current, report, track

LOADER = range(6)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> MemorySink:
    made = MemorySink()
    made.close = lambda: None  # type: ignore[method-assign]
    monkeypatch.setattr("trainjob_progress.settings.find_sinks", lambda **_: [made])
    return made


def sample_before_epochs(loader: Any) -> None:
    next(iter(loader()))
    for _ in track(range(2)):
        for _ in loader():
            pass


def sample_before_epochs_that_are_not_tracked(loader: Any) -> None:
    next(iter(loader()))
    for _ in range(2):
        for _ in loader():
            pass


def sample_in_each_epoch(loader: Any) -> None:
    for _ in track(range(2)):
        next(iter(loader()))
        for _ in loader():
            pass


def sample_in_each_epoch_that_is_not_tracked(loader: Any) -> None:
    for _ in range(2):
        next(iter(loader()))
        for _ in loader():
            pass


def sample_in_a_block(loader: Any) -> None:
    with report(total_epochs=2):
        for _ in range(2):
            next(iter(loader()))
            for _ in loader():
                pass


def sample_of_a_resumed_training(loader: Any) -> None:
    for _ in track(range(1, 2), initial_step=1):
        next(iter(loader()))
        for _ in loader():
            pass


def sample_that_is_kept(loader: Any) -> None:
    kept = iter(loader())
    next(kept)
    for _ in track(range(2)):
        for _ in track(LOADER):
            pass
    del kept


def sample_that_is_kept_in_each_epoch(loader: Any) -> None:
    for _ in track(range(2)):
        kept = iter(track(LOADER))
        next(kept)
        for _ in loader():
            pass


def sample_that_is_kept_in_each_epoch_that_is_not_tracked(loader: Any) -> None:
    for _ in range(2):
        kept = iter(track(LOADER))
        next(kept)
        for _ in loader():
            pass


def sample_by_way_of_generators(loader: Any) -> None:
    def give() -> Any:
        for item in track(LOADER):
            yield item + 1

    def give_on() -> Any:
        yield from give()

    for _ in track(range(2)):
        next(give())
        next(give_on())
        for _ in loader():
            pass


def sample_in_a_property(loader: Any) -> None:
    class Data:
        @property
        def shape(self) -> Any:
            return next(iter(loader()))

    for _ in track(range(2)):
        assert Data().shape == 0
        for _ in loader():
            pass


def sample_in_a_generator(loader: Any) -> None:
    def give() -> Any:
        next(iter(loader()))
        yield from loader()

    for _ in track(range(2)):
        for _ in give():
            pass


def sample_of_another_loader(loader: Any) -> None:
    for _ in track(range(2)):
        next(iter(track(range(3))))
        for _ in loader():
            pass


@pytest.mark.parametrize("is_one", [True, False], ids=["one loader", "a loader each time"])
@pytest.mark.parametrize(
    "program",
    [
        sample_before_epochs,
        sample_before_epochs_that_are_not_tracked,
        sample_in_each_epoch,
        sample_in_each_epoch_that_is_not_tracked,
        sample_in_a_block,
        sample_of_a_resumed_training,
        sample_that_is_kept,
        sample_that_is_kept_in_each_epoch,
        sample_that_is_kept_in_each_epoch_that_is_not_tracked,
        sample_by_way_of_generators,
        sample_in_a_generator,
        sample_in_a_property,
        sample_of_another_loader,
    ],
)
def test_a_sample_counts_nothing_and_no_place(sink: MemorySink, program: Any, is_one: bool) -> None:
    """Seen: 6 of 6 of a training of 12 steps, or no steps at all."""
    one = track(LOADER)
    program(lambda: one if is_one else track(LOADER))
    current()._run.exit()
    last = sink.last
    assert (last.ending, last.step, last.epoch, last.message) == ("finished", 12, 2, None)


def test_a_sample_of_a_cell_is_no_attempt(sink: MemorySink) -> None:
    """In a notebook, whose cells are functions that have ended."""

    def run_cell() -> Any:
        kept = iter(track(LOADER))
        next(kept)
        return kept

    kept = run_cell()
    for _ in track(LOADER):
        pass
    assert next(kept) == 1
    assert (sink.last.ending, sink.last.step, sink.last.message) == ("finished", 6, None)


def test_a_sample_that_is_dropped_later_takes_nothing_back(sink: MemorySink) -> None:
    kept: Any = None
    for epoch in track(range(5)):
        if epoch == 0:
            kept = iter(track(LOADER))
            next(kept)
        if epoch == 3:
            kept = None
    assert kept is None
    assert (sink.last.ending, sink.last.step, sink.last.total_steps) == ("finished", 5, 5)


def test_a_loop_that_ends_with_break_is_no_sample(sink: MemorySink) -> None:
    """Seen: finished, 6 of 6, of the first epoch of two. Such a loop has no jump back."""
    for _ in track(range(2)):
        for _ in track(LOADER):
            pass
        break
    current()._run.exit()
    assert (sink.last.ending, sink.last.step, sink.last.total_steps) == ("stopped", 6, 12)


class Batches:
    """A program's own iterator, over one that is tracked."""

    def __init__(self, items: Any) -> None:
        self._items = iter(items)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return self._fetch()

    def _fetch(self) -> Any:
        return next(self._items)


def give_by_hand(items: Any) -> Any:
    asked = iter(items)
    while True:
        try:
            yield next(asked)
        except StopIteration:
            return


@pytest.mark.parametrize("over", [Batches, give_by_hand])
def test_a_loop_over_what_asks_by_hand_is_no_sample_though_it_is_left_at_its_first_item(
    sink: MemorySink, over: Any
) -> None:
    """Seen: finished, 3 of 3, epoch 1 of 1."""
    for epoch in track(range(3)):
        for _ in over(track(range(3))):
            if epoch == 1:
                break
    assert (sink.last.ending, sink.last.step, sink.last.epoch) == ("finished", 7, 3)


def test_a_sample_of_what_asks_by_hand_counts_nothing(sink: MemorySink) -> None:
    for _ in track(range(2)):
        next(Batches(track(LOADER)))
        for _ in Batches(track(LOADER)):
            pass
    assert (sink.last.ending, sink.last.step, sink.last.epoch) == ("finished", 12, 2)
