"""Loops that run at once and not inside of each other: the first counts, and one warning says so."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.reporting import MemorySink, ReopeningSink, wait_until
from trainjob_progress import beginning, current, report, report_metrics, track

WARNING = "two loops or reporters run at once"


def numbers(sink: MemorySink) -> tuple[Any, ...]:
    last = sink.last
    return last.state, last.ending, last.step, last.total_steps, last.epoch


async def loop(items: int, epochs: int = 1, **options: Any) -> None:
    for _ in track(range(items), epochs=epochs, **options):
        await asyncio.sleep(0)


def test_of_two_tasks_the_first_counts_steps_and_epochs(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    """Seen: the second task's loop was taken for one inside of the first's, whose steps became epochs."""
    seen = []

    async def watch() -> None:
        for _ in range(12):
            await asyncio.sleep(0)
            current().flush(60)
            seen.append(sink.last)

    async def train() -> None:
        await asyncio.gather(loop(10, sinks=[sink]), loop(3, epochs=2), watch())

    asyncio.run(train())
    assert numbers(sink) == ("completed", "finished", 10, 10, 1)
    assert {each.total_steps for each in seen} == {10}
    assert {each.epoch for each in seen} <= {None, 0, 1}
    assert [each.message for each in seen[:5]] == [f"another loop {n}/6" for n in range(1, 6)]
    assert capfd.readouterr().err.count(WARNING) == 1


def finished_before() -> None:
    with report(1, sinks=[MemorySink()]) as r:
        r.step()


def left_open_by_a_thread() -> None:
    thread = threading.Thread(target=lambda: report(10, sinks=[MemorySink()]).step())
    thread.start()
    thread.join()


def left_open_by_a_task() -> None:
    async def begin() -> None:
        report(10, sinks=[MemorySink()]).step()

    asyncio.run(begin())


@pytest.mark.parametrize("before", [finished_before, left_open_by_a_thread, left_open_by_a_task])
def test_what_was_begun_before_two_tasks_takes_nothing_of_theirs(
    sink: MemorySink, before: Callable[[], None]
) -> None:
    """Seen: what a task reported that runs beside the loops, or a second loop, went to the run before."""
    before()
    seen = []

    async def watch() -> None:
        for number in range(4):
            await asyncio.sleep(0)
            report_metrics(seen=number)
            current().flush(60)
            seen.append((sink.last.step, sink.last.message, sink.last.metrics))

    async def train() -> None:
        await asyncio.gather(loop(10, sinks=[sink]), loop(3, epochs=2), watch())

    asyncio.run(train())
    assert seen == [(n + 1, f"another loop {n + 1}/6", {"seen": n}) for n in range(4)]


def test_results_from_a_task_of_the_run_that_has_ended_are_its_while_others_go_on() -> None:
    own, other = ReopeningSink(), ReopeningSink()

    async def evaluate() -> None:
        report_metrics(score=1)

    async def train() -> None:
        with report(total_steps=1, sinks=[own]) as r:
            await asyncio.sleep(0)
            r.step()
        await asyncio.create_task(evaluate())

    async def both() -> None:
        await asyncio.gather(train(), loop(20, sinks=[other]))

    asyncio.run(both())
    wait_until(lambda: own.last.metrics)
    assert (own.last.metrics, other.last.metrics) == ({"score": 1}, {})


@pytest.mark.parametrize(("first", "second"), [(10, 3), (3, 10)])
def test_a_run_is_over_when_the_last_of_its_tasks_is(sink: MemorySink, first: int, second: int) -> None:
    async def train() -> None:
        ahead = asyncio.ensure_future(loop(first, sinks=[sink]))
        beside = asyncio.ensure_future(loop(second))
        for task in sorted((ahead, beside), key=lambda task: (first > second) == (task is ahead)):
            await task
            if not (ahead.done() and beside.done()):
                current().flush(60)
                assert sink.last.state == "running"

    asyncio.run(train())
    assert numbers(sink)[:4] == ("completed", "finished", first, first)


def test_tasks_inside_of_a_reporters_block_count_in_it(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    async def train() -> None:
        for _ in range(2):
            await asyncio.wait_for(loop(5), 60)

    with report(total_epochs=2, sinks=[sink]):
        asyncio.run(train())
    assert numbers(sink)[:3] == ("completed", "finished", 10)
    assert capfd.readouterr().err == ""


def test_a_task_inside_of_a_tracked_loop_counts_its_steps(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    async def train() -> None:
        for _ in track(range(3), sinks=[sink]):
            await asyncio.create_task(loop(4))

    asyncio.run(train())
    assert numbers(sink) == ("completed", "finished", 12, 12, 3)
    assert capfd.readouterr().err == ""


def test_awaiting_is_no_loop_around_what_is_awaited_or_comes_after(sink: MemorySink) -> None:
    """Seen: no total and no end, for fear that the loop would come again."""
    again = MemorySink()

    async def train() -> None:
        await loop(4, sinks=[sink])
        await loop(5, sinks=[again])
        await asyncio.sleep(0)

    asyncio.run(train())
    assert numbers(sink) == ("completed", "finished", 4, 4, 1)
    assert numbers(again) == ("completed", "finished", 5, 5, 1)


def test_a_task_from_outside_counts_nothing_of_a_loop_that_waits_in_its_body(sink: MemorySink) -> None:
    async def train() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def other() -> None:
            await begun.wait()
            await loop(7)
            await loop(7)
            ended.set()

        task = asyncio.ensure_future(other())
        for _ in track(range(3), sinks=[sink]):
            begun.set()
            await ended.wait()
        await task

    asyncio.run(train())
    assert numbers(sink) == ("completed", "finished", 3, 3, 1)


def test_handles_in_two_tasks_keep_their_counts_and_the_first_ones_metrics_stand(sink: MemorySink) -> None:
    async def train(items: int, loss: float, **options: Any) -> None:
        with track(range(items), **options) as t:
            for _ in t:
                t.update({"loss": loss, f"loss of {items}": loss})
                await asyncio.sleep(0)
                assert current() is t
                assert t._step < items

    async def both() -> None:
        await asyncio.gather(train(5, 0.5, sinks=[sink]), train(8, 0.25))

    asyncio.run(both())
    assert numbers(sink) == ("completed", "finished", 5, 5, 1)
    assert sink.last.metrics == {"loss": 0.5, "loss of 5": 0.5, "loss of 8": 0.25}


def test_a_loop_that_an_asynchronous_generator_tracks_is_its_consumers(sink: MemorySink) -> None:
    async def batches(epoch: int) -> AsyncIterator[int]:
        for batch in track(range(4), sinks=[sink] if epoch is None else None):
            await asyncio.sleep(0)
            yield batch

    async def train() -> None:
        for epoch in track(range(3), sinks=[sink]):
            async for _ in batches(epoch):
                report_metrics(loss=0.5)

    asyncio.run(train())
    assert numbers(sink) == ("completed", "finished", 12, 12, 3)
    assert sink.last.metrics == {"loss": 0.5}


def test_loops_in_a_pool_of_threads_leave_each_other_alone(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    meet = threading.Barrier(4)

    def train(number: int) -> None:
        for step in track(range(10 + number)):
            if not step:
                meet.wait(60)
            assert current()._step == step
            for _ in track(range(2)):
                pass

    def own() -> None:
        for step in track(range(10), sinks=[sink]):
            if not step:
                meet.wait(60)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(own)
        while not sink.written:
            pass
        for future in [first, *(pool.submit(train, number) for number in range(3))]:
            future.result(60)
    assert numbers(sink)[2:] == (10, 10, 1)
    assert capfd.readouterr().err.count(WARNING) == 1


def test_reporters_in_two_threads_do_not_replace_each_other(
    sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    r = report(total_steps=10, sinks=[sink])
    r.step(4)

    def other() -> None:
        with report(total_steps=5) as second:
            second.step(5, loss=0.5)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    r.step(6)
    r.finish()
    assert numbers(sink)[:4] == ("completed", "finished", 10, 10)
    assert sink.last.metrics == {"loss": 0.5}
    assert capfd.readouterr().err.count(WARNING) == 1


def test_a_thread_that_a_loop_hands_its_context_to_counts_its_steps(sink: MemorySink) -> None:
    async def train() -> None:
        for _ in track(range(2), sinks=[sink]):
            await asyncio.to_thread(lambda: [None for _ in track(range(3))])

    asyncio.run(train())
    assert numbers(sink) == ("completed", "finished", 6, 6, 2)


def _zipped(a: Any, b: Any) -> Iterator[Any]:
    return zip(a, b, strict=False)


def _by_generators(a: Any, b: Any) -> Iterator[Any]:
    return zip((x for x in a), (y for y in b), strict=False)


def _by_hand(a: Any, b: Any) -> Iterator[Any]:
    left, right = iter(a), iter(b)

    def advance() -> Iterator[Any]:
        while True:
            try:
                yield next(left), next(right)
            except StopIteration:
                return

    return advance()


@pytest.mark.parametrize("advance", [_zipped, _by_generators, _by_hand])
@pytest.mark.parametrize("items", [(5, 5), (4, 9), (9, 4)])
def test_of_loops_that_are_advanced_in_turns_the_first_counts(
    sink: MemorySink,
    capfd: pytest.CaptureFixture[str],
    advance: Callable[[Any, Any], Iterator[Any]],
    items: tuple[int, int],
) -> None:
    """Seen: 5 of 25 steps, and 5 epochs."""

    def train() -> None:
        for at, _ in enumerate(advance(track(range(items[0]), sinks=[sink]), track(range(items[1])))):
            if at > 1:
                current().flush(60)
                assert numbers(sink) == ("running", None, at, items[0], None)
            report_metrics(loss=at)

    train()
    current()._run.exit()  # what the end of the process does
    assert (sink.last.step, sink.last.total_steps) == (min(items), items[0])
    assert sink.last.metrics == {"loss": min(items) - 1}
    assert capfd.readouterr().err.count(WARNING) == 1


def test_handles_made_together_may_be_nested_or_take_turns(sink: MemorySink) -> None:
    with track(range(3), sinks=[sink]) as outer, track(range(4)) as inner:
        for _ in outer:
            for _ in inner:
                pass
    assert sink.last.step == 12
    again = MemorySink()
    with track(range(3), sinks=[again]) as first, track(range(4)) as second:
        for _ in zip(first, second, strict=False):
            pass
    assert (again.last.step, again.last.total_steps) == (3, 3)


def test_a_loop_over_what_another_tracked_loop_makes_owns_the_steps(sink: MemorySink) -> None:
    def batches() -> Iterator[int]:
        for file in track(range(3)):
            yield from (file, file)

    def train() -> None:
        for at, _ in enumerate(track(batches(), sinks=[sink])):
            report_metrics(loss=at)

    train()
    assert numbers(sink)[:3] == ("completed", "finished", 6)
    assert sink.last.metrics == {"loss": 5}


def test_phases_of_two_tasks_end_each_for_itself(sink: MemorySink) -> None:
    async def train() -> None:
        r = report(total_steps=4, sinks=[sink])
        r.message("training")
        first, second = r.phase("evaluating"), r.phase("saving")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        r.flush(60)
        assert sink.last.message == "saving"
        second.__exit__(None, None, None)
        r.flush(60)
        assert sink.last.message == "training"
        begun = asyncio.Event()

        async def evaluate() -> None:
            with r.phase("evaluating"):
                begun.set()
                await loop(3)

        async def go_on() -> None:
            await begun.wait()
            r.step(4)

        await asyncio.gather(evaluate(), go_on())
        r.finish()

    asyncio.run(train())
    assert numbers(sink)[:4] == ("completed", "finished", 4, 4)
    assert sink.last.message == "training"


def test_results_after_the_end_belong_to_the_tasks_own_run() -> None:
    sinks = [ReopeningSink(), ReopeningSink()]

    async def train(number: int) -> None:
        with report(total_steps=2, sinks=[sinks[number]]) as r:
            for _ in range(2 + 3 * number):
                await asyncio.sleep(0)
                r.step()
        report_metrics(score=number)

    async def both() -> None:
        await asyncio.gather(train(0), train(1))

    asyncio.run(both())
    wait_until(lambda: all(sink.last.metrics for sink in sinks))
    assert [sink.last.metrics for sink in sinks] == [{"score": 0}, {"score": 1}]


def test_what_ran_beside_keeps_nothing(sink: MemorySink) -> None:
    async def train() -> None:
        await asyncio.gather(loop(300, sinks=[sink]), *(several(number) for number in range(5)))

    async def several(number: int) -> None:
        for _ in range(20):
            await asyncio.create_task(loop(3))
            report_metrics({f"metric {number}": number})
        assert len(current()._run.beside) <= 12

    asyncio.run(train())
    assert numbers(sink)[2:] == (300, 300, 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_is_forked_while_another_thread_begins_a_run_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: it waited for as long as a wait may take, here for ever, each time that it began one."""
    monkeypatch.setattr(beginning, "TURN_S", -1)
    is_held, let_go = threading.Event(), threading.Event()

    def is_free() -> bool:
        return all(
            turn.acquire(blocking=False) for pid, turn in beginning._turns.items() if pid == os.getpid()
        )

    def hold() -> None:
        with beginning._turns[os.getpid()]:
            is_held.set()
            let_go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert is_held.wait(60)
        child = os.fork()
        if child == 0:
            report(total_steps=1, sinks=[])
            os._exit(0 if is_free() else 1)
        ended = (0, 0)

        def has_ended() -> bool:
            nonlocal ended
            ended = os.waitpid(child, os.WNOHANG)
            return ended[0] == child

        try:
            wait_until(has_ended)
        finally:
            if ended[0] != child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        assert ended == (child, 0)
    finally:
        let_go.set()
        holder.join()
