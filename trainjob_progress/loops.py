"""What a training loop calls: `report`, `track` and `report_metrics`."""

from __future__ import annotations

from .reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, Mapping, Optional, Sequence, TypeVar

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
        total_steps,
        total_epochs=total_epochs,
        initial_step=initial_step,
        rank=rank,
        sinks=sinks,
        bar=bar,
        after=_current,
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


def track(
    iterable: Iterable[T],
    *,
    epochs: int = 1,
    initial_step: int = 0,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
) -> Iterator[T]:
    """Iterates over `iterable`, `epochs` times, and counts a step whenever the loop's body has run.

    The total is `len(iterable) * epochs`, or unknown where there is no len. For metrics call `report_metrics`
    in the loop. A loop that is left early is neither completed nor failed: how the process ends decides.
    """
    try:
        steps: Optional[int] = len(iterable) * epochs  # type: ignore[arg-type]  # asked, not known
    except Exception:
        steps = None  # a stream; torch's IterableDataset raises its own kind of error here
    reporter = report(steps, total_epochs=epochs, initial_step=initial_step, rank=rank, sinks=sinks, bar=bar)
    try:
        for epoch in range(epochs):
            for item in iterable:
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
