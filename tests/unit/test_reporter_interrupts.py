"""What a signal's handler of the program raises goes where it would go without us, wherever it finds us.

Each test raises the signal at every line of ours that a call comes by, one after the other.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import trainjob_progress
from tests.reporting import MemorySink
from trainjob_progress import Reporter, report, track
from trainjob_progress.loops import abandon_all
from trainjob_progress.publisher import Publisher

PACKAGE = str(Path(trainjob_progress.__file__).parent)


class TimeIsUpError(TimeoutError, RuntimeError):
    """As a handler of SIGALRM raises it, or one of another kind."""


def raise_it(number: int, frame: FrameType | None) -> None:
    raise TimeIsUpError


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise TimeIsUpError

    def handle(self, number: int, frame: FrameType | None) -> None:
        raise TimeIsUpError


HANDLERS = {
    "function": raise_it,
    "method": Handler().handle,
    "object": Handler(),
    "partial": functools.partial(raise_it),
}


Place = tuple[str, int]


def is_collected(frame: FrameType | None) -> bool:
    """Whether a `__del__` has led there from this test."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Interrupter:
    """Notes the lines of ours that are reached. Raises SIGUSR1 at one of them, the first time."""

    def __init__(self, at: Place | None = None) -> None:
        self.at = at
        self.reached: set[Place] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        # Python itself lets nothing out of a `__del__`.
        if not frame.f_code.co_filename.startswith(PACKAGE) or is_collected(frame):
            return None
        return self._note

    def _note(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self.reached.add(place)
            if place == self.at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
        return self._note

    def run(self, begin: Callable[[], Any], call: Callable[[Any], object]) -> bool:
        """Whether the call has come to its end."""
        about = begin()
        try:
            sys.settrace(self)
            call(about)
        except TimeIsUpError:
            return False
        finally:
            sys.settrace(None)
            abandon_all()
        return True


def find_lost(begin: Callable[[], Any], call: Callable[[Any], object]) -> list[Place]:
    """The lines at which what is raised does not come out."""
    every = Interrupter()
    assert every.run(begin, call)
    assert every.reached
    interrupters = [Interrupter(at) for at in sorted(every.reached)]
    return [each.at for each in interrupters if each.run(begin, call) and each.at in each.reached and each.at]


@pytest.fixture(autouse=True)
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = signal.signal(signal.SIGUSR1, HANDLERS[getattr(request, "param", "function")])
    yield
    signal.pthread_sigmask(
        signal.SIG_SETMASK, mask
    )  # it may have come just before what is blocked is given back
    signal.signal(signal.SIGUSR1, before)


class Device:
    """A number that has to be waited for."""

    device = "tpu"

    def item(self) -> float:
        for _ in range(3):
            pass
        return 0.5


def make() -> Reporter:
    made = report(total_steps=10, sinks=[MemorySink()])
    made.step(loss=0.5)
    made._run.due = True
    return made


def in_sections(made: Reporter) -> None:
    with made.restoring(), made.evaluating(), made.checkpointing(step="x"):  # type: ignore[arg-type]
        pass


def over(made: Reporter) -> None:
    made.finish()


CALLS: dict[str, Callable[[Reporter], object]] = {
    "step": lambda r: r.step(),
    "step with metrics": lambda r: r.step(loss=0.6, accuracy=0.5),
    "step with a device's number": lambda r: r.step(loss=Device()),
    "step with nonsense": lambda r: r.step("x", [], loss=object()),
    "update": lambda r: r.update(step=5, total_steps=7, loss=0.1, message="x"),
    "restart": lambda r: r.restart(5),
    "ranks": lambda r: r.ranks(step_seconds=[0.1, 0.2]),
    "write": lambda r: r.write("x"),
    "finish": over,
    "flush": lambda r: r.flush(5),
    "sections": in_sections,
    "a loader's loop": lambda r: list(r.track([1, 2])),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_verb_keeps_it(call: str) -> None:
    assert find_lost(make, CALLS[call]) == []


def test_no_loop_keeps_it() -> None:
    def train(sink: MemorySink) -> None:
        batches = track(range(2), sinks=[sink], total="x", best={"loss": "min"})  # type: ignore[arg-type]
        for _ in batches:
            for _ in track(range(1)):
                pass

    assert find_lost(MemorySink, train) == []


def test_no_block_keeps_it() -> None:
    def train(sink: MemorySink) -> None:
        with report(3, sinks=[sink]) as r, r.phase("evaluating"):
            r.step()

    assert find_lost(MemorySink, train) == []


@pytest.mark.parametrize("handler", HANDLERS, indirect=True)
def test_whatever_handles_a_signal_may_raise(handler: None) -> None:
    assert find_lost(make, CALLS["step"]) == []


def test_it_comes_out_where_leaving_a_lock_fails_on_top_of_it() -> None:
    """Seen with `threading`: the handler had interrupted taking the lock."""

    class Lock:
        def item(self) -> float:
            try:
                signal.raise_signal(signal.SIGUSR1)
            except TimeIsUpError:
                raise RuntimeError("release unlocked lock")  # noqa: B904 — as `with lock:` has it
            return 0.5

    with pytest.raises(TimeIsUpError):
        make().update(metrics={"loss": Lock()})


def test_a_thread_of_ours_begins_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: the interpreter had forgotten the thread before it ran, and the run wrote nothing any more."""

    class Thread(threading.Thread):
        def start(self) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().start()

    monkeypatch.setattr(threading, "Thread", Thread)
    publisher = Publisher(MemorySink(), lambda: None)
    with pytest.raises(TimeIsUpError):
        publisher.start()
    assert publisher.is_running
    assert publisher.end().get(timeout=60)
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
