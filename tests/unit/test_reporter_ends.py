"""A tracked loop ends when the program leaves it, whatever keeps its iterator or its frame alive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.reporting import MemorySink
from trainjob_progress import Track, current, evaluating, report, track
from trainjob_progress.loops import abandon_all

ROOT = Path(__file__).parents[2]


def numbers(sink: MemorySink) -> tuple[Any, ...]:
    last = sink.last
    return last.state, last.ending, last.step, last.total_steps, last.epoch, last.percentage


DONE = ("completed", "finished", 100, 100, 1, 100)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> MemorySink:
    """Where every run of the test is written, one after the other, as to the file of a pod."""
    made = MemorySink()
    made.close = lambda: None  # type: ignore[method-assign]
    monkeypatch.setattr("trainjob_progress.settings.find_sinks", lambda **_: [made])
    return made


def train(items: int, fails_at: int | None = None) -> None:
    for item in track(range(items)):
        if item == fails_at:
            raise RuntimeError("out of memory")


def train_by_a_kept_iterator(items: int, fails_at: int | None = None) -> None:
    batches = enumerate(track(range(items)))
    for item, _ in batches:
        if item == fails_at:
            raise RuntimeError("out of memory")


def train_by_a_kept_generator(items: int, fails_at: int | None = None) -> None:
    batches = (item for item in track(range(items)))
    for item in batches:
        if item == fails_at:
            raise RuntimeError("out of memory")


def train_by_hand(items: int, fails_at: int | None = None) -> None:
    batches = iter(track(range(items)))
    while True:
        try:
            item = next(batches)
        except StopIteration:
            return
        if item == fails_at:
            raise RuntimeError("out of memory")


TRAININGS = [train, train_by_a_kept_iterator, train_by_a_kept_generator, train_by_hand]


@pytest.mark.parametrize("training", TRAININGS)
def test_a_retry_inside_of_except_is_a_run_of_its_own(sink: MemorySink, training: Any) -> None:
    """Seen: running, step 100 of 14,000, epoch 61 of 200, in the last document, too."""
    try:
        training(200, fails_at=60)
    except RuntimeError:
        training(100)
    assert numbers(sink) == DONE


@pytest.mark.parametrize("training", TRAININGS)
def test_a_retry_while_the_exception_is_kept_is_a_run_of_its_own(sink: MemorySink, training: Any) -> None:
    kept = None
    try:
        training(200, fails_at=60)
    except RuntimeError as error:
        kept = error
    training(100)
    assert kept is not None
    assert numbers(sink) == DONE


@pytest.mark.parametrize("training", TRAININGS)
def test_what_failed_before_a_retry_does_not_count(sink: MemorySink, training: Any) -> None:
    """Seen: 160 of 160, epoch 2."""
    with contextlib.suppress(RuntimeError):
        training(200, fails_at=60)
    training(100)
    assert numbers(sink) == DONE


@pytest.mark.parametrize("training", TRAININGS)
def test_a_loop_of_retries_counts_the_one_that_succeeds(sink: MemorySink, training: Any) -> None:
    items = 400
    while True:
        try:
            training(items, fails_at=60 if items > 100 else None)
            break
        except RuntimeError:
            items //= 2
    current()._run.exit()  # what the end of the process does
    assert numbers(sink) == DONE


def test_a_retry_in_the_same_function_ends_the_loop_above_it(sink: MemorySink) -> None:
    batches = enumerate(track(range(200)))
    try:
        for item, _ in batches:
            if item == 60:
                raise RuntimeError
    except RuntimeError:
        for _ in track(range(100)):
            pass
    assert numbers(sink) == DONE


def test_folds_count_each_its_own_steps_though_each_is_tried_twice(sink: MemorySink) -> None:
    for _ in range(3):
        try:
            train(200, fails_at=60)
        except RuntimeError:
            train(100)
    current()._run.exit()
    assert numbers(sink) == ("completed", "finished", 300, 300, 3, 100)


def test_an_epoch_that_is_tried_again_counts_once(sink: MemorySink) -> None:
    for epoch in track(range(3)):
        try:
            train(10, fails_at=5 if epoch else None)
        except RuntimeError:
            train(10)
    assert numbers(sink) == ("completed", "finished", 30, 30, 3, 100)


def test_steps_of_an_epoch_that_an_exception_cuts_short_stay_where_it_is_not_tried_again(
    sink: MemorySink,
) -> None:
    for _ in track(range(3)):
        with contextlib.suppress(RuntimeError):
            train(10, fails_at=5)
    last = sink.last
    assert (last.state, last.step, last.epoch) == ("completed", 15, 3)


def fail(nesting: str) -> None:
    """In the 11th of 30 steps of the second of three epochs."""
    if nesting == "block":
        with report():
            fail("tracked")
    elif nesting == "block of epochs":
        with report(total_epochs=3):
            fail("not tracked")
    for epoch in range(3) if nesting == "not tracked" else track(range(3)):
        for step in track(range(30)):
            if epoch == 1 and step == 10:
                raise KeyError


@pytest.mark.parametrize(
    ("nesting", "position"),
    [
        ("tracked", (40, 90, 1, 3, 44)),
        ("block", (40, 90, 1, 3, 44)),
        ("block of epochs", (40, 90, 1, 3, 44)),
        ("not tracked", (40, None, 1, None, None)),
    ],
)
def test_an_epoch_that_an_exception_has_ended_is_not_done(
    sink: MemorySink, nesting: str, position: tuple[Any, ...]
) -> None:
    """Seen: the usual training that fails in its second epoch was at epoch 2 of 3, 57 %."""
    with pytest.raises(KeyError):
        fail(nesting)
    current()._run.exit()
    last = sink.last
    assert (last.step, last.total_steps, last.epoch, last.total_epochs, last.percentage) == position


def test_a_block_around_a_retry_counts_the_one_that_succeeds(sink: MemorySink) -> None:
    with report():
        try:
            train(200, fails_at=60)
        except RuntimeError:
            train(100)
    assert numbers(sink)[:4] == DONE[:4]


def test_a_retry_in_a_thread_or_a_task_is_a_run_of_its_own(sink: MemorySink) -> None:
    async def train_in_a_task(items: int, fails_at: int | None = None) -> None:
        batches = enumerate(track(range(items)))
        for item, _ in batches:
            await asyncio.sleep(0)
            if item == fails_at:
                raise RuntimeError

    async def try_twice() -> None:
        try:
            await train_in_a_task(200, fails_at=60)
        except RuntimeError:
            await train_in_a_task(100)

    asyncio.run(try_twice())
    assert numbers(sink) == DONE
    sink.written.clear()

    def in_a_thread() -> None:
        try:
            train_by_a_kept_iterator(200, fails_at=60)
        except RuntimeError:
            train_by_a_kept_iterator(100)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert numbers(sink) == DONE


def test_a_loop_that_is_fed_by_helpers_goes_on_beneath_them(sink: MemorySink) -> None:
    """A wrapper's `__next__` or a helper that asks for an item and returns is no loop that ends."""

    class Wrapper:
        def __init__(self) -> None:
            self._items = iter(track(range(3)))

        def __iter__(self) -> Wrapper:
            return self

        def __next__(self) -> int:
            return next(self._items)

    def fetch(items: Any) -> Any:
        return next(items)

    for _ in Wrapper():
        train(10)
    assert numbers(sink) == ("completed", "finished", 30, 30, 3, 100)
    items = iter(track(range(3)))
    for _ in range(3):
        fetch(items)
        train(10)
    assert next(items, None) is None
    assert numbers(sink) == ("completed", "finished", 30, 30, 3, 100)


def test_a_loop_that_goes_on_after_all_is_counted_on(sink: MemorySink) -> None:
    """Taken up by one loop and finished by another: between the two nobody can know."""
    items = enumerate(track(range(10)))
    for at, _ in items:
        if at == 3:
            break
    for _ in track(range(2)):
        pass
    for _ in items:
        current().flush(60)
    assert numbers(sink) == ("completed", "finished", 10, 10, 1, 100)


# Random programs, against what is true of them


@dataclass
class Loop:
    """`for … in track(range(items))`, in some form; at item `at` the body is left `how`."""

    form: str
    items: int
    at: int
    how: str | None
    body: list[Any]


@dataclass
class Plain:
    """A loop that is not tracked."""

    items: int
    body: list[Any]


@dataclass
class Try:
    body: list[Any]
    handler: list[Any]
    keeps: bool


@dataclass
class Call:
    body: list[Any]


class Probe:
    """Here the open loops are compared."""


class Boom(Exception):
    pass


FORMS = {
    "for": "for _ in track(range({n})):",
    "name": "{it} = track(range({n}))\n{pad}for _ in {it}:",
    "enumerate": "{it} = enumerate(track(range({n})))\n{pad}for _ in {it}:",
    "chain": "{it} = chain(track(range({n})), ())\n{pad}for _ in {it}:",
    "generator": "{it} = (x for x in track(range({n})))\n{pad}for _ in {it}:",
    "function": "{it} = wrap(track(range({n})))\n{pad}for _ in {it}:",
    "by hand": (
        "{it} = iter(track(range({n})))\n{pad}while True:\n{pad}    if next({it}, None) is None:"
        "\n{pad}        break"
    ),
}


def programs() -> st.SearchStrategy[list[Any]]:
    return st.recursive(
        st.builds(Probe),
        lambda inner: st.one_of(
            st.builds(
                Loop,
                st.sampled_from(sorted(FORMS)),
                st.integers(1, 3),
                st.integers(0, 3),
                st.sampled_from([None, None, "break", "raise", "raise", "return"]),
                st.lists(inner, max_size=3),
            ),
            st.builds(Plain, st.integers(1, 2), st.lists(inner, max_size=2)),
            st.builds(Try, st.lists(inner, max_size=3), st.lists(inner, max_size=2), st.booleans()),
            st.builds(Call, st.lists(inner, max_size=3)),
        ),
        max_leaves=12,
    ).map(lambda statement: [statement])


@dataclass
class Writer:
    """Makes a program's text."""

    lines: list[str] = field(default_factory=list)
    made: int = 0

    def write(self, block: list[Any], pad: str) -> None:
        self.lines.append(f"{pad}pass")
        for one in block:
            self.made += 1
            number = self.made
            if isinstance(one, Probe):
                self.lines.append(f"{pad}probe()")
            elif isinstance(one, Loop):
                head = FORMS[one.form].format(n=one.items, it=f"it{number}", pad=pad)
                self.lines += [f"{pad}at{number} = -1", *f"{pad}{head}".split("\n")]
                self.lines += [f"{pad}    at{number} += 1", f"{pad}    probe()"]
                self.write(one.body, pad + "    ")
                if one.how is not None:
                    words = {"raise": "raise Boom"}.get(one.how, one.how)
                    self.lines.append(f"{pad}    if at{number} == {one.at}: {words}")
            elif isinstance(one, Plain):
                self.lines.append(f"{pad}for _ in range({one.items}):")
                self.write(one.body, pad + "    ")
            elif isinstance(one, Try):
                self.lines.append(f"{pad}try:")
                self.write(one.body, pad + "    ")
                self.lines.append(f"{pad}except Boom as error:")
                if one.keeps:
                    self.lines.append(f"{pad}    kept.append(error)")
                self.write(one.handler, pad + "    ")
            elif isinstance(one, Call):
                self.lines.append(f"{pad}def call{number}():")
                self.write(one.body, pad + "    ")
                self.lines.append(f"{pad}call{number}()")


class Return(Exception):
    pass


class Truth:
    """Runs a program without running it: which tracked loops are open at each probe, and how far."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[tuple[int, int]], bool]] = []  # and whether a loop has just begun
        self._open: list[list[int]] = []

    def run(self, block: list[Any]) -> None:
        for one in block:
            if isinstance(one, Probe):
                self._probe()
            elif isinstance(one, Loop):
                self._loop(one)
            elif isinstance(one, Plain):
                for _ in range(one.items):
                    self.run(one.body)
            elif isinstance(one, Try):
                try:
                    self.run(one.body)
                except Boom:
                    self.run(one.handler)
            elif isinstance(one, Call):
                with contextlib.suppress(Return):
                    self.run(one.body)

    def _probe(self, *, is_begun: bool = False) -> None:
        self.seen.append(([(done, items) for done, items in self._open], is_begun))

    def _loop(self, loop: Loop) -> None:
        depth = len(self._open)
        self._open.append([0, loop.items])
        try:
            for at in range(loop.items):
                self._open[-1][0] = at
                self._probe(is_begun=at == 0)
                self.run(loop.body)
                if at == loop.at and loop.how == "break":
                    return
                if at == loop.at and loop.how is not None:
                    raise Boom if loop.how == "raise" else Return
        finally:
            del self._open[depth:]


def wrap(items: Any) -> Any:
    yield from items


def check(program: list[Any]) -> None:
    abandon_all()
    writer = Writer()
    writer.write([Call(program)], "")
    truth = Truth()
    with contextlib.suppress(Boom):
        truth.run([Call(program)])
    seen: list[list[tuple[int, int]]] = []

    def probe() -> None:
        levels = current()._run.levels
        seen.append(
            [
                (level._step, len(level._iterable))  # type: ignore[arg-type]
                for level in levels
                if isinstance(level, Track) and level._is_iterating
            ]
        )

    scope: dict[str, Any] = {"track": track, "probe": probe, "Boom": Boom, "kept": [], "wrap": wrap}
    scope["chain"] = chain
    text = "\n".join(writer.lines)
    with contextlib.suppress(Boom):
        exec(compile(text, "program.py", "exec"), scope)
    for (true, is_begun), mine in zip(truth.seen, seen, strict=True):
        # What is over and kept is noticed when another loop begins: until then it is inside of the others.
        assert (mine if is_begun else mine[: len(true)]) == true, text


@settings(max_examples=300, deadline=None)
@given(programs())
def test_in_every_body_the_open_loops_are_those_whose_bodies_run(program: list[Any]) -> None:
    places: list[MemorySink] = []

    def find_sinks(**_: Any) -> list[MemorySink]:
        places.append(MemorySink(3600))
        return places[-1:]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainjob_progress.settings.find_sinks", find_sinks)
        check(program)
        abandon_all()


EPOCHS = (
    "for epoch in track(range({n})):",
    "for _, epoch in enumerate(track(range({n}))):",
    "with track(range({n})) as epochs:\n  for epoch in epochs:",
    "with report(total_epochs={n}):\n  for epoch in range({n}):",
)
BATCHES = (
    "for item in track(range({n})):",
    "for item in chain(track(range({n})), ()):",
    "for item in wrap(track(range({n}), desc='training')):",
    "with track(range({n})) as items:\n     for item in items:",
)
VALIDATIONS = (
    "pass",
    "for _ in track(range(2)): pass",
    "for _ in track(range(3), desc='validation'): pass",
    "with evaluating(): list(track(range(2)))",
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(EPOCHS), st.sampled_from(BATCHES),
    st.sampled_from(VALIDATIONS), st.sampled_from(VALIDATIONS), st.integers(2, 4),
    st.integers(2, 6), st.none() | st.tuples(st.integers(0, 3), st.integers(0, 4)),
)  # fmt: skip
def test_documents_of_a_training_say_how_far_it_is(
    epochs: str, batches: str, before: str, after: str, n: int, items: int, leaves: tuple[int, int] | None
) -> None:
    sink = MemorySink(3600)
    before = before if "evaluating" in before else "pass"  # another loop there would be the first that counts
    program = f"""
def train():
 {epochs.format(n=n)}
    {before}
    {batches.format(n=items)}
      check(epoch, item)
      if (epoch, item) == leaves: return
    {after}
train()
"""

    def check(epoch: int, item: int) -> None:
        current().flush(60)
        last = sink.last
        done = items * epoch + item
        assert (last.step, last.total_steps, last.epoch) == (done, items * n, epoch), program

    scope = {"leaves": leaves, "track": track, "report": report, "evaluating": evaluating, "chain": chain}
    scope |= {"check": check, "wrap": wrap}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainjob_progress.settings.find_sinks", lambda **_: [sink])
        abandon_all()
        exec(compile(program, "program.py", "exec"), scope)
        current()._run.exit()
        abandon_all()
    last = sink.last
    shown = last.ending, last.step, last.total_steps, last.epoch
    if leaves is None or leaves[0] >= n or leaves[1] >= items:
        assert shown == ("finished", items * n, items * n, n), program
    elif leaves[1] < items - 1:
        assert shown == ("stopped", items * leaves[0] + leaves[1] + 1, items * n, leaves[0]), program


def test_a_notebooks_cell_that_is_run_again_is_a_run_of_its_own(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPython does it: each cell is a module of its own, and the last exception is kept."""
    cell = compile(
        "batches = enumerate(track(range(200)))\n"
        "for i, _ in batches:\n"
        "    if FAILS and i == 60:\n"
        "        raise RuntimeError",
        "cell.py",
        "exec",
    )
    names: dict[str, Any] = {"track": track, "FAILS": True}

    def run() -> None:
        try:
            exec(cell, names)
        except RuntimeError as error:
            monkeypatch.setattr("sys.last_value", error, raising=False)

    monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
    run()
    run()
    names["FAILS"] = False
    run()
    run()
    assert numbers(sink) == ("completed", "finished", 200, 200, 1, 100)


def _take_30_of_islice() -> None:
    for _ in islice(track(range(100)), 30):
        pass


def _take_30_of_a_kept_islice() -> None:
    kept = islice(track(range(100)), 30)
    for _ in kept:
        pass


def _take_30_by_zip() -> None:
    for _ in zip(range(30), track(range(100)), strict=False):
        pass


def _take_30_and_break() -> None:
    kept = enumerate(track(range(100)))
    for i, _ in kept:
        if i == 29:
            break


TAKING = [_take_30_of_islice, _take_30_of_a_kept_islice, _take_30_by_zip, _take_30_and_break]


@pytest.mark.parametrize("take", TAKING, ids=lambda take: take.__name__)
def test_a_loop_that_something_around_it_cuts_short_has_not_failed(
    take: Callable[[], None], sink: MemorySink
) -> None:
    """Seen: 29 steps in one epoch, running, when all three were over; "an attempt failed"."""
    for _ in range(3):
        take()
    current()._run.exit()
    last = sink.last
    # Whether the last body has run nobody can tell: zip may have found the other one empty before.
    assert (last.ending, last.step, last.epoch, last.message) == ("stopped", 3 * 29, 3, None)


def test_a_kept_loop_that_is_left_in_its_own_function_has_not_failed(sink: MemorySink) -> None:
    for _ in range(3):
        kept = enumerate(track(range(100)))
        for i, _ in kept:
            if i == 29:
                break
    current()._run.exit()
    assert (sink.last.ending, sink.last.step) == ("stopped", 3 * 29)


def test_a_look_at_the_first_item_is_no_failed_attempt(sink: MemorySink) -> None:
    loader = list(range(100))
    first = next(iter(track(loader)))
    assert first == 0
    for _ in track(loader):
        pass
    assert numbers(sink) == DONE
    assert sink.last.message is None


def test_a_loop_in_a_recursion_costs_little_more_the_deeper_it_is(sink: MemorySink) -> None:
    """Seen: 16 seconds of CPU, a thousand deep; eight times as deep took 70 times as long."""

    def descend(depth: int) -> None:
        for _ in track(range(depth > 0)):
            descend(depth - 1)

    def measure_s(depth: int) -> float:
        begun_s = time.thread_time()
        descend(depth)
        return time.thread_time() - begun_s

    sink.interval_s = 10  # a report is of all levels
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        short_s = min(measure_s(50) for _ in range(3))
        assert measure_s(400) < 25 * short_s
    finally:
        sys.setrecursionlimit(limit)
    assert sink.last.state == "completed"


def test_a_subinterpreter_which_gets_no_signals_reports_without_a_word(tmp_path: Path) -> None:
    """As mod_wsgi has them. One that may have no threads has its report written at its end only."""
    pytest.importorskip("_xxsubinterpreters")
    inner = (
        "import threading\nfrom trainjob_progress import report\nwith report(total_steps=3) as r: r.step(3)\n"
        "for each in threading.enumerate():\n  if each is not threading.current_thread(): each.join()"
    )  # Python ends no interpreter that has threads
    script = f"import _xxsubinterpreters as s; s.run_string(s.create(isolated=False), {inner!r})"
    path = tmp_path / "progress.json"
    environ = {"PYTHONPATH": str(ROOT / "reporter"), "TRAINJOB_PROGRESS_FILE": str(path)}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, check=True)
    assert (done.stderr, json.loads(path.read_bytes())["step"]) == (b"", 3)
