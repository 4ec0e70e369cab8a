"""Whatever holds a reporter can be copied and saved, and a reporter keeps nothing of the training alive."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reporting import MemorySink
from trainjob_progress import Reporter, current, report, track
from trainjob_progress.integrations.catboost import ReportProgress as CatBoostCallback
from trainjob_progress.integrations.lightgbm import ReportProgress as LightGBMCallback
from trainjob_progress.integrations.torchtune import ReportProgress as TorchtuneLogger
from trainjob_progress.sinks.bar import BarSink
from trainjob_progress.sinks.file import FileSink
from trainjob_progress.sinks.http import HTTPSink
from trainjob_progress.sinks.log import LogSink
from trainjob_progress.values import Held

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": lambda o, n=n: pickle.loads(pickle.dumps(o, n)) for n in (0, 2, 4, 5)},
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_reporter_reports_nowhere(how: str) -> None:
    sink = MemorySink()
    with report(total_steps=3, sinks=[sink]) as r:
        r.step(2)
        for original in (r, r.phase("evaluating"), current()):
            copied = COPIES[how](original)
            if isinstance(copied, Reporter):
                assert not copied.is_active
                copied.step(loss=0.5)
                copied.finish("failed")
        r.step()
    assert (sink.last.step, sink.last.state) == (3, "completed")


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_tracked_loop_still_loops_and_reports_nowhere(how: str) -> None:
    sink = MemorySink()
    with track([1, 2, 3], sinks=[sink]) as t:
        assert list(COPIES[how](t)) == [1, 2, 3]
        assert list(t) == [1, 2, 3]
    assert sink.last.step == 3


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_loops_iterator_reports_nowhere(how: str) -> None:
    """Seen: 5 of 5 steps in 5 epochs where one step was done."""
    sink = MemorySink()
    items = iter(track([1, 2, 3], sinks=[sink]))
    assert next(items) == 1
    assert list(COPIES[how](items)) == [2, 3]
    assert list(items) == [2, 3]
    assert sink.last.step == 3


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", [CatBoostCallback, LightGBMCallback, TorchtuneLogger])
def test_a_callback_that_reports_copies_as_one_that_has_not_begun(kind: Any, how: str) -> None:
    callback = kind()
    callback._begin(10, sinks=[MemorySink()])
    assert callback._reporter.is_active
    copied = COPIES[how](callback)
    assert copied._reporter is None
    assert callback._reporter.is_active


@pytest.mark.parametrize("how", COPIES)
def test_sinks_are_copied_too(how: str, tmp_path: Path) -> None:
    for sink in (FileSink(str(tmp_path / "p.json")), LogSink(), HTTPSink(0, "127.0.0.1"), BarSink()):
        assert type(COPIES[how](sink)) is type(sink)


class Tensor:
    """One number with everything behind it that a tensor of torch has."""

    def __init__(self, value: float, graph: object, kind: str = "cpu") -> None:
        self.value, self.graph = value, graph
        self.device = type("device", (), {"type": kind})()

    def numel(self) -> int:
        return 1

    def detach(self) -> Tensor:
        return Tensor(self.value, None, self.device.type)

    clone = detach

    def item(self) -> float:
        return self.value


class Graph:
    pass


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("is_active", [True, False])
def test_nothing_that_was_handed_over_is_kept_alive(kind: str, is_active: bool) -> None:
    sink = MemorySink(interval_s=60)
    r = report(sinks=[sink] if is_active else [])
    graph = Graph()
    tensor = Tensor(0.5, graph, kind)
    kept = weakref.ref(graph), weakref.ref(tensor)
    r.step(loss=tensor)
    r.update(metrics={"loss": tensor})
    r.step({"loss": tensor})
    del tensor, graph
    gc.collect()
    assert [one() for one in kept] == [None, None]
    r.finish()
    if is_active:
        assert sink.last.metrics == {"loss": 0.5}


def test_a_tensor_that_changes_afterwards_is_shown_as_it_was_given() -> None:
    sink = MemorySink()
    with report(sinks=[sink]) as r:
        for kind in ("cpu", "cuda"):
            tensor = Tensor(0.5, None, kind)
            r.step({kind: tensor})
            tensor.value = 0.0
    assert sink.last.metrics == {"cpu": 0.5, "cuda": 0.5}


def test_a_tensor_of_a_device_is_not_read_before_a_report_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    monkeypatch.setattr(Tensor, "item", lambda self: reads.append(self.value) or self.value)
    r = report(sinks=[MemorySink(interval_s=60)])
    while not r.is_due:
        pass
    r.step()
    before = len(reads)
    for _ in range(50):
        r.step(loss=Tensor(0.5, None, "cuda"))
    assert len(reads) - before <= 1
    assert r._run.values is not None
    assert type(r._run.values["loss"]) in (Held, float)


def test_a_loop_keeps_neither_its_last_item_nor_what_it_looped_over() -> None:
    class Loader:
        def __iter__(self) -> Iterator[Graph]:
            return (Graph() for _ in range(3))

        def __len__(self) -> int:
            return 3

    for item in track(Loader(), sinks=[MemorySink()]):
        one = weakref.ref(item)
        del item
        assert one() is None
    loader = Loader()
    gone = weakref.ref(loader)
    for _ in track(loader, sinks=[MemorySink()]):
        pass
    del loader
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("way", ["break", "return", "raise"])
def test_a_loop_that_is_left_lets_its_source_go_at_once(way: str) -> None:
    """A stream's `finally`, a DataLoader's workers and open files end where they would without us."""
    sink = MemorySink()
    closed = []

    def stream() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(way)

    def train() -> None:
        for item in track(stream(), total=5, sinks=[sink]):
            if item == 1:
                if way == "return":
                    return
                if way == "raise":
                    raise ValueError
                break

    with contextlib.suppress(ValueError):
        train()
    assert closed == [way]
    current()._run.exit()
    assert (sink.last.step, sink.last.total_steps) == (1 if way == "raise" else 2, 5)


def test_a_loop_that_is_left_can_be_told_how_it_ended_and_be_gone_over_again() -> None:
    sink = MemorySink()
    items = track([1, 2, 3], sinks=[sink])
    for _ in items:
        break
    assert list(items) == [1, 2, 3]
    assert (sink.last.step, sink.last.ending) == (4, "finished")
    sink = MemorySink()
    items = track([1, 2, 3], sinks=[sink])
    for _ in items:
        break
    items.finish("stopped", "enough")
    assert (sink.last.step, sink.last.ending, sink.last.message) == (1, "stopped", "enough")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (type("Batch", (), {"numel": lambda _: 32, "detach": None})(), "has 32 elements, one is needed"),
        (
            type(
                "Spread", (), {"numel": lambda _: 1, "placements": [type("P", (), {"is_replicate": bool})]}
            )(),
            "is spread over several ranks; reduce it first",
        ),
        (type("DynamicJaxprTracer", (), {"item": None})(), "is being traced; report outside of jit"),
    ],
)
def test_what_reading_would_hurt_is_not_read(
    given: object, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with report(sinks=[MemorySink()]) as r:
        r.step(loss=given)  # type: ignore[call-overload]
    assert f"metric loss is left out: it {reason}" in capfd.readouterr().err


def test_an_iterator_that_goes_on_after_its_end_is_asked_again() -> None:
    values = [1, 2]
    items = iter(track(iter(lambda: values.pop() if values else None, None), sinks=[MemorySink()]))
    assert list(items) == [2, 1]

    class Growing:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if not values:
                raise StopIteration
            return values.pop()

    items = iter(track(Growing(), sinks=[MemorySink()]))
    values += [1, 2]
    assert list(items) == [2, 1]
    values += [3]
    assert (list(items), list(items)) == ([3], [])
