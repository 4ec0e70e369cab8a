"""What a training loop calls: `report`, `track` and `report_metrics`."""

from __future__ import annotations

from typing import Generic, Iterable, Iterator, Mapping, Optional, Sequence, TypeVar

from .reporter import Reporter
from .sinks import Sink

T = TypeVar("T")
_current: Optional[Reporter] = None  # the newest, for code that has no handle on one


def report(
    total_steps: Optional[int] = None,
    *,
    total_epochs: Optional[float] = None,
    initial_step: int = 0,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
) -> Reporter:
    """A reporter that has started: `with report(total_steps=N) as r: r.step(loss=loss)`.

    `initial_step`: steps done before, when training resumes from a checkpoint. `rank`: which process this is
    (default: found); only rank 0 writes. `sinks`: where to (default: what the environment asks for). `bar`: a
    bar on the terminal as well.
    Never raises.
    """
    global _current
    if _current is not None:
        _current.abandon()  # two would take turns in one file
    reporter = Reporter()
    reporter.start(
        total_steps, total_epochs=total_epochs, initial_step=initial_step, rank=rank, sinks=sinks, bar=bar
    )
    _current = reporter
    return reporter


def report_metrics(metrics: Mapping[str, object], timeout: float = 3.0) -> None:
    """Report some numbers, as Katib's `report_metrics` does; but never raise.

    Uses the reporter that was made last, or makes one. `timeout`: seconds at most that this call may take;
    it waits for nothing, so it is there for the signature's sake.
    """
    del timeout
    (_current or report()).update(metrics=metrics)


class track(Generic[T]):  # read as a verb, like enumerate and reversed
    """Iterates over `iterable`, `epochs` times, and counts a step whenever the loop's body has run.

    The total is `len(iterable) * epochs`, or unknown where there is no len. Metrics: `report_metrics` in the
    loop, or `.reporter.update`. Leaving the loop early leaves the state to how the process ends.
    """

    def __init__(
        self,
        iterable: Iterable[T],
        *,
        epochs: int = 1,
        initial_step: int = 0,
        rank: Optional[int] = None,
        sinks: Optional[Sequence[Sink]] = None,
        bar: bool = False,
    ) -> None:
        self._iterable = iterable
        self._epochs = epochs
        try:
            steps: Optional[int] = len(iterable) * epochs  # type: ignore[arg-type]  # asked, not known
        except Exception:
            steps = None  # a stream; torch's IterableDataset raises its own kind of error here
        self.reporter = report(
            steps, total_epochs=epochs, initial_step=initial_step, rank=rank, sinks=sinks, bar=bar
        )

    def __iter__(self) -> Iterator[T]:
        reporter = self.reporter
        try:
            for epoch in range(self._epochs):
                for item in self._iterable:
                    yield item
                    reporter.step()
                reporter.epoch(epoch + 1)
        except GeneratorExit:  # `break`, or an exception in the body: which one, cannot be seen from here
            reporter.flush()
            raise
        except BaseException as error:
            reporter.__exit__(type(error), error, None)
            raise
        reporter.finish()
