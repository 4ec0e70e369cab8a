"""What a run marks of its time: each second of it once, and as it was."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.reporting import MemorySink, wait_until
from trainjob_progress import (
    Reporter,
    checkpointing,
    document,
    evaluating,
    items,
    marks,
    published_run,
    report,
    restoring,
    track,
    waits,
)
from trainjob_progress.document import Snapshot

LOADING, SAVE, RESTORE, EVALUATION = range(4)


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.readings = 0

    def read(self) -> float:
        self.readings += 1
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (marks, waits, items):
        monkeypatch.setattr(module, "monotonic", made.read)
    monkeypatch.setattr(marks, "now_s", lambda: 1.7e9 + made.now_s)
    marks.forget()
    return made


def spent(r: Reporter) -> dict[str, float]:
    r.flush(5)
    assert r._run.snapshot is not None
    return {
        kind: round(some, 3)
        for kind, some in zip(document.TIMES, r._run.snapshot.spent_s, strict=True)
        if some
    }


def test_each_second_of_sections_in_each_other_is_of_the_innermost(clock: Clock, sink: MemorySink) -> None:
    with report(100, sinks=[sink]) as r:
        with r.restoring():
            clock.pass_s(5)
        with r.evaluating():
            clock.pass_s(10)
            with r.checkpointing():
                clock.pass_s(3)
            clock.pass_s(1)
        clock.pass_s(100)
    expected = {"checkpointSave": 3, "checkpointRestore": 5, "evaluation": 11}
    assert dict(zip(document.TIMES, sink.last.spent_s, strict=True)) == {"dataLoading": 0, **expected}


def test_the_open_section_is_shown_with_its_beginning_and_its_time_is_the_documents(
    clock: Clock, sink: MemorySink
) -> None:
    r = report(100, sinks=[sink])
    r.step()
    clock.pass_s(7)
    with r.evaluating():
        opened = 1.7e9 + clock.now_s
        clock.pass_s(60)
        wait_until(lambda: sink.last.section)
        assert (sink.last.section, sink.last.spent_s[EVALUATION]) == (("evaluation", opened), 0)
        with r.checkpointing():
            wait_until(lambda: sink.last.section == ("checkpointSave", opened + 60))
        wait_until(lambda: sink.last.section == ("evaluation", opened + 60))  # open anew
    wait_until(lambda: sink.last.section is None)
    assert sink.last.spent_s[EVALUATION] == 60


def test_opening_a_section_is_progress_and_nothing_later_in_it_is() -> None:
    """Also where the loop is asked for a document only later, so that another thread has to take it."""
    r = report(100, sinks=[MemorySink(interval_s=3600)])
    r.step()
    r.flush(5)
    run = r._run
    run.due = False  # the section begins before anybody asks
    with r.evaluating():
        run._latest()
        run._due_since_s -= 2 * published_run.PATIENCE_S
        shown = run._latest()
        assert shown is not None
        assert shown.section is not None
        assert shown.timestamp == shown.section[1]
        run._due_since_s -= 2 * published_run.PATIENCE_S
        assert run._latest() is shown


def test_sections_that_do_not_end_in_order_count_no_second_twice(clock: Clock, sink: MemorySink) -> None:
    r = report(100, sinks=[sink])
    first, second = r.evaluating(), r.checkpointing()
    first.__enter__()
    clock.pass_s(1)
    second.__enter__()
    clock.pass_s(2)
    first.__exit__(None, None, None)
    clock.pass_s(4)
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    clock.pass_s(8)
    assert spent(r) == {"checkpointSave": 6, "evaluation": 1}


def test_time_is_shown_though_nothing_else_has_moved_since_the_last_document(
    clock: Clock, sink: MemorySink
) -> None:
    """An evaluation that nobody asked for a document in, and a run that hangs after it."""
    r = report(100, sinks=[sink])
    r.flush(5)
    assert r._run.marks is not None
    r._run.marks.add(EVALUATION, 2)
    assert spent(r) == {"evaluation": 2}


def test_an_exception_passes_through_ends_the_section_and_completes_no_checkpoint(
    clock: Clock, sink: MemorySink
) -> None:
    r = report(100, sinks=[sink])

    def save() -> None:
        with r.checkpointing(step=5):
            clock.pass_s(2)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save()
    assert spent(r) == {"checkpointSave": 2}
    assert sink.last.checkpoint is None


def test_the_last_checkpoint_is_the_one_that_is_complete(clock: Clock, sink: MemorySink) -> None:
    r = report(100, sinks=[sink])
    r.step(40)
    with r.checkpointing():
        clock.pass_s(2)
    r.flush(5)
    assert sink.last.checkpoint == (40, 1.7e9 + clock.now_s)
    future: Future[None] = Future()
    r.step(10)
    with r.checkpointing(step=50) as saving:
        saving.until(future)
        clock.pass_s(1)
    clock.pass_s(30)
    r.flush(5)
    assert sink.last.checkpoint is not None
    assert sink.last.checkpoint[0] == 40
    future.set_result(None)
    r.flush(5)
    assert sink.last.checkpoint == (50, 1.7e9 + clock.now_s)
    assert spent(r) == {"checkpointSave": 3}


def test_an_asynchronous_save_that_fails_is_no_checkpoint(sink: MemorySink) -> None:
    r = report(100, sinks=[sink])
    broken, cancelled = Future[None](), Future[None]()
    for future in (broken, cancelled):
        with r.checkpointing(step=50) as saving:
            saving.until(future)
    broken.set_exception(OSError("full"))
    cancelled.cancel()
    r.flush(5)
    assert sink.last.checkpoint is None


def test_what_another_thread_does_meanwhile_costs_training_nothing(clock: Clock, sink: MemorySink) -> None:
    r = report(100, sinks=[sink])

    def save() -> None:
        with r.checkpointing(step=30):
            clock.pass_s(5)

    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert spent(r) == {}
    assert sink.last.checkpoint is not None
    assert sink.last.checkpoint[0] == 30


@pytest.mark.parametrize("makes", ["r.track", "track"])
def test_the_wait_for_each_item_is_measured_and_what_is_done_with_it_is_not(
    makes: str, clock: Clock, sink: MemorySink
) -> None:
    def load() -> Iterator[int]:
        for i in range(50):
            clock.pass_s(0.5)
            yield i
        clock.pass_s(2)

    def train(loader: Any) -> None:
        seen = []
        for item in loader:
            seen.append(item)
            clock.pass_s(1)
        assert seen == list(range(50))

    if makes == "track":
        train(track(load(), sinks=[sink]))
    else:
        with report(100, sinks=[sink]) as r:
            train(r.track(load()))
    assert sink.last.spent_s[LOADING] == pytest.approx(27)


@pytest.mark.parametrize("makes", ["r.track", "track"])
@pytest.mark.parametrize("pause_s", [0.0, 0.005, 2.0])
def test_of_quick_steps_some_are_measured_and_pauses_among_them_are_found(
    makes: str, pause_s: float, clock: Clock, sink: MemorySink
) -> None:
    """Steps of 0.1 ms, 0.04 ms of it in the loader, and a pause each 1,000."""
    steps = 100_000

    def load() -> Iterator[int]:
        for i in range(steps):
            clock.pass_s(0.00004 + (pause_s if i % 1000 == 999 else 0))
            yield i

    r = report(steps, sinks=[sink])
    clock.readings = 0
    began_s = clock.now_s
    loader = track(load()) if makes == "track" else r.track(load())
    for _ in loader:
        clock.pass_s(0.00006)
    whole_s = clock.now_s - began_s
    measured_s = r._run.marks.read()[0][LOADING]  # type: ignore[union-attr]
    expected_s = steps * 0.00004 + pause_s * steps / 1000
    assert measured_s == pytest.approx(expected_s, abs=0.02 * whole_s)
    if not pause_s:
        assert clock.readings < 0.3 * steps


def test_a_wait_inside_of_a_section_is_the_sections(clock: Clock, sink: MemorySink) -> None:
    def load() -> Iterator[int]:
        for i in range(5):
            clock.pass_s(1)
            yield i

    with report(100, sinks=[sink]) as r:
        r.step()
        with r.evaluating():
            for _ in r.track(load()):
                pass
            for _ in track(load()):
                pass
    assert tuple(sink.last.spent_s) == (0, 0, 0, 10)


def test_a_loop_whose_next_trains_is_no_loader(clock: Clock, sink: MemorySink) -> None:
    def train() -> Iterator[int]:
        for epoch in range(3):
            for _ in track(range(10)):
                clock.pass_s(1)
            yield epoch

    for _ in track(train(), sinks=[sink]):
        pass
    assert sink.last.spent_s[LOADING] == 0


def test_a_wait_of_more_than_a_second_is_shown_while_it_lasts(clock: Clock, sink: MemorySink) -> None:
    r = report(100, sinks=[sink])
    r.step()

    def load() -> Iterator[int]:
        clock.pass_s(3)
        wait_until(lambda: sink.last.section == ("dataLoading", 1.7e9 + clock.now_s - 3))
        yield 1

    for _ in r.track(load()):
        pass
    wait_until(lambda: sink.last.section is None)
    assert spent(r) == {"dataLoading": 3}


def test_the_next_run_of_a_process_goes_on_from_the_seconds_of_the_one_before(
    clock: Clock, sink: MemorySink
) -> None:
    for fold in range(2):
        sink = MemorySink()
        with report(10, sinks=[sink]) as r:
            r.step(10)
            with r.evaluating():
                clock.pass_s(4)
            if not fold:
                with checkpointing(step=10):
                    pass
    assert sink.last.spent_s[EVALUATION] == 8
    assert sink.last.checkpoint is None


@pytest.mark.parametrize("step", ["100", -1, 2**60, float("nan"), object()])
def test_a_step_that_is_none_is_one_warning_and_the_reached_one_is_taken(
    step: Any, sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    with report(100, sinks=[sink]) as r:
        r.step(30)
        for _ in range(2):
            with r.checkpointing(step=step):
                pass
    assert sink.last.checkpoint is not None
    assert sink.last.checkpoint[0] == 30
    assert capfd.readouterr().err.count("trainjob_progress: step=") == 1


def test_without_anybody_to_report_to_nothing_is_measured(clock: Clock) -> None:
    for r in (report(10, sinks=[]), Reporter()):
        with r.evaluating(), r.checkpointing(step=5) as saving, r.restoring():
            saving.until(Future())
        with evaluating(), checkpointing(), restoring():
            pass
        r.checkpointed(7)
        assert list(r.track([1, 2])) == [1, 2]
    assert list(track([1, 2])) == [1, 2]
    assert clock.readings == 0


def test_what_is_tracked_by_hand_gives_and_raises_as_it_would(sink: MemorySink) -> None:
    class Loader:
        """Raises once, and goes on."""

        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at == 2:
                raise ValueError("a bad sample")
            if self.at > 3:
                raise StopIteration
            return self.at

    r = report(10, sinks=[sink])
    items = iter(r.track(Loader()))
    assert next(items) == 1
    with pytest.raises(ValueError, match="a bad sample"):
        next(items)
    assert list(items) == [3]
    assert len(r.track([1, 2, 3])) == 3  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        len(r.track(Loader()))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        iter(r.track(None))  # type: ignore[arg-type]
    tracked = r.track([4, 5])
    assert [list(tracked), list(tracked)] == [[4, 5], [4, 5]]
    assert list(pickle.loads(pickle.dumps(tracked))) == [4, 5]
    with copy.deepcopy(r.evaluating()), pickle.loads(pickle.dumps(r.checkpointing())):
        pass


def test_the_last_document_has_the_marks_in_whatever_room_there_is() -> None:
    snapshot = Snapshot(
        state="running", timestamp=1.7e9, start_time=1.7e9, step=5,
        metrics={f"metric {i}": 0.123456789 for i in range(100)}, message="x" * 1000,
        spent_s=(812.3999, 0.0, 14.25, 0.0002), section=("evaluation", 1.7e9 + 0.25),
        checkpoint=(4000, 1.7e9),
    )  # fmt: skip
    for most in (1000, 4095, 65536):
        body = document.encode(snapshot, most)
        assert len(body) <= most
        assert b'"timeSpent":{"dataLoading":812.4,"checkpointRestore":14.25}' in body
        assert b'"section":{"kind":"evaluation","startTime":"2023-11-14T22:13:20.250000Z"}' in body
        assert b'"checkpoint":{"step":4000,"timestamp":"2023-11-14T22:13:20.000000Z"}' in body
