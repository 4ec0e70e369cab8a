"""What a training loop calls: `report`, `track`, `current`, `report_metrics` and `adopt`."""

from __future__ import annotations

from . import beginning, live_run, marks, open_runs, run_state
from .beginning import begin
from .reporter import Reporter
from .tracked import Track

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, Optional, Sequence, TypeVar

    from .best import Extreme
    from .sections import Section
    from .sinks import Sink
    from .values import Metric

    T = TypeVar("T")


def report(
    total_steps: Optional[int] = None,
    *,
    total_epochs: Optional[float] = None,
    initial_step: Optional[int] = 0,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
    wait_s: Optional[float] = None,
    name: Optional[str] = None,
    best: Optional[Mapping[str, Extreme]] = None,
) -> Reporter:
    """A reporter that has started: `with report(total_steps=N) as r: r.step(loss=loss)`.

    `initial_step`: steps done before, when training resumes from a checkpoint; None where nobody knows yet.
    `rank`: which process this is (default: found); only rank 0 writes. `sinks`: where to (default: what the
    environment asks for; an empty list: nowhere, and what was not finished before is left as it stands).
    `bar`: a bar on the terminal too. `wait_s`: how long the end may wait for slow sinks (default: 0.12 s).
    `name`: of this run, where a process has several ("fold 2"); the message has it, and how those before it
    ended. `best`: metrics whose best value so far is shown too: `{"accuracy": "max", "loss": "min"}`.
    Inside a loop that is tracked, or another reporter's `with` block, it counts that one's steps. Beside one,
    in another thread or task, its steps are shown in the message only, and one warning says so. Never raises.
    """
    reporter = Reporter()
    reporter._wait_s = wait_s
    begin(
        reporter, total_steps, total_epochs=total_epochs, initial_step=initial_step, rank=rank, sinks=sinks,
        bar=bar, name=name, best=best,
    )  # fmt: skip
    return reporter


def current() -> Reporter:
    """The reporter in use, for functions that were not given one; without one, one that reports nowhere."""
    open_runs.prune()
    run = open_runs.find_around()
    if run is None:
        last, is_own = open_runs.find_last()
        if last is not None and last.takes_results and (is_own or not open_runs.is_any_begun_after(last)):
            return beginning.make_handle(last)
        run = open_runs.runs[-1] if open_runs.runs else None
    innermost = run.levels[-1] if run is not None and run.levels else None
    if isinstance(innermost, Reporter):
        return innermost
    return beginning.newest if beginning.newest is not None else Reporter()


def evaluating() -> Section:
    """`with evaluating():` as `current().evaluating()`, in the run that is open."""
    return current().evaluating()


def checkpointing(step: Optional[int] = None) -> Section:
    """`with checkpointing(step=1000):` as `current().checkpointing(step)`."""
    return current().checkpointing(step)


def restoring() -> Section:
    """`with restoring():` as `current().restoring()`."""
    return current().restoring()


def report_metrics(
    metrics: Optional[Mapping[str, Metric]] = None, timeout: float = 3.0, **named: Metric
) -> None:
    """Report some numbers, as Katib's `report_metrics` does; but never raise.

    Uses the reporter that is in use, or was last, or makes one. `timeout`: seconds at most that this call may
    take; it waits for nothing, so it is there for the signature's sake.
    """
    del timeout
    reporter = current() if beginning.newest is not None else report()
    reporter.update(metrics, metrics=named)
    try:
        reporter._run.sample()
    except Exception as error:
        reporter._run.warn(error)


def adopt() -> None:
    """Report what this program logs to TensorBoard, MLflow or Weights & Biases from now on. Never raises.

    It still goes there. Where nothing else reports steps, those of the tracker are the run's.
    """
    from .adopted import install

    install()


def track(
    iterable: Iterable[T],
    *,
    epochs: int = 1,
    total: Optional[int] = None,
    desc: Optional[str] = None,
    initial_step: int = 0,
    accumulate: int = 1,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
    wait_s: Optional[float] = None,
    best: Optional[Mapping[str, Extreme]] = None,
) -> Track[T]:
    """Iterates over `iterable`, `epochs` times, and counts a step whenever the loop's body has run.

    The total is `len(iterable) * epochs`, or unknown where there is no len; `total`: in place of that len,
    in one epoch with `initial_step`.
    `desc`: what the loop does; the message has it. `best`: as of `report`. With `epochs` of 0 or less there
    is no item, as in `range(0)`. `initial_step`: steps done before. `accumulate`: items for each optimizer
    step. Tracked loops may be nested: outer iterations are epochs, inner ones steps. Of loops that run at
    once and not inside of each other (threads, tasks, `zip`), the first counts steps; the others are shown in
    the message, and one warning says so. For metrics call `report_metrics` in the loop, or take the handle:
    `with track(loader) as t`, and `t.update(loss=…)`. No argument changes what the loop yields or raises.
    """
    made: Track[T] = Track(iterable, epochs, initial_step, accumulate)
    made._wait_s = wait_s
    made._total = total
    made._options = {"rank": rank, "sinks": sinks, "bar": bar, "name": desc, "best": best}
    return made


def abandon_all() -> None:
    """Leave every run as it stands: for tests, which share a process."""
    live_run.earlier = (0, ())
    run_state.lost.clear()
    marks.forget()
    open_runs.abandon(open_runs.runs)
    beginning.newest = None
