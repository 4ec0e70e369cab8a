"""The reporter: what a training says of itself, in verbs, with `step` for the hot loop.

It never raises into training and never blocks it. `step` counts, remembers and reads one flag: no clock, no
lock, no system call. The publishers' threads raise that flag when they are ready for news; only then are
numbers taken from devices, on the training thread, because reading a device from another thread can
break a CUDA graph that is being captured.
"""

from __future__ import annotations

from . import redaction, termination
from .document import MAX_MESSAGE, MAX_METRICS, now_s
from .flows import Flow, enter, find_numbers
from .levels import Level
from .live_run import LiveRun
from .marks import EVALUATION, RESTORE, SAVE
from .positions import find_position
from .sections import Section
from .values import Held, Latest, is_mapping, read_last, show, take, to_amount, to_count
from .waits import Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Iterable, Literal, Mapping, Optional, Type, TypeVar, overload

    from .ranks import PerRank
    from .values import Metric

    T = TypeVar("T")
    State = Literal["completed", "finished", "stopped", "preempted", "failed"]
else:

    def overload(function: object) -> object:
        return function


ENDINGS = {"completed": "finished", "finished": "finished", "stopped": "stopped", "preempted": "preempted",
           "failed": "failed"}  # fmt: skip
# Names that look like arguments and are none, where they are given by name.
INSTEAD = {
    "step": "update(step=…)", "steps": "update(step=…)", "total": "update(total_steps=…)",
    "total_steps": "update(total_steps=…)", "epoch": "epoch(…)", "epochs": "update(total_epochs=…)",
    "total_epochs": "update(total_epochs=…)", "percentage": "update(percentage=…)",
    "percent": "update(percentage=…)", "progress": "update(percentage=…)", "message": "message(…)",
}  # fmt: skip
ONE = 1  # the same object wherever a program writes 1
MAX_WAIT_S = 1e7  # a longer one is more than a queue can
NOWHERE = LiveRun()  # the run of reporters that report to nobody


class Reporter(Level):
    """Says how far this process's training has come. Make one with `report()`.

    Copies and pickles as one that reports nowhere: a model may hold one.
    """

    __slots__ = ("__weakref__", "_wait_s")
    _run: LiveRun

    def __init__(self) -> None:
        super().__init__()
        self._run = NOWHERE
        self._wait_s: Optional[float] = None  # None: termination.FLUSH_TIMEOUT_S

    def __reduce__(self) -> Any:
        return Reporter, ()

    @property
    def is_active(self) -> bool:
        """Whether this process writes documents: rank 0, with somewhere to write, and not finished."""
        return self._run.is_active

    @property
    def is_due(self) -> bool:
        """Whether a report is due: what costs something to find out is worth it only then, or at the end."""
        return self._run.due

    @overload
    def step(self, n: int = 1, metrics: Optional[Mapping[str, Metric]] = None, **named: Metric) -> None: ...
    @overload
    def step(self, metrics: Mapping[str, Metric], /, n: int = 1, **named: Metric) -> None: ...
    def step(self, n: Any = 1, metrics: Any = None, /, loss: Any = None, **named: Any) -> None:  # type: ignore[misc]  # n by name is in named
        """`n` more steps are done. Metrics, as a mapping or by name: numbers, text, tensors of one element.

        Numbers are read now; what is on a device is copied there now, and read when a report is due.
        """
        run = self._run
        try:
            # A float under a name that had a number before takes the short way, and `loss`, which nearly
            # everyone gives, one without a dictionary.
            if metrics is not None or (n is not ONE and (type(n) is not int or n < 0)):
                return self._step_as_meant(n, metrics, loss, named)
            values = run.values
            if values is not None:
                try:
                    if type(loss) is float:
                        latest = values["loss"]
                        if not (latest.low <= loss and loss <= latest.high):  # NaN too
                            run.note("loss", loss, self, n)
                        latest.last = loss
                    elif loss is not None:
                        return self._step_as_meant(n, metrics, loss, named)
                    if named:
                        for name in named:
                            value = named[name]
                            if type(value) is float:
                                latest = values[name]
                                if latest.low <= value and value <= latest.high:
                                    latest.last = value
                                    continue
                                run.note(name, value, self, n)
                                latest.last = value
                            else:
                                return self._step_as_meant(n, metrics, loss, named)
                except (KeyError, AttributeError) as error:  # it was no number before
                    termination.let_through(error)
                    return self._step_as_meant(n, metrics, loss, named)
            elif named:
                return self._step_as_meant(n, metrics, loss, named)
            self._step += n
            if run.due:
                run.collect()
        except Exception as error:
            termination.let_through(error)
            if self._step is None:  # nobody knew where this began: then it is here
                self._step = 0
                self.step(n, metrics, loss=loss, **named)
            else:
                run.warn(error)

    def update(
        self,
        given: Optional[Mapping[str, Metric]] = None,
        /,
        *,
        step: Optional[int] = None,
        total_steps: Optional[int] = None,
        epoch: Optional[float] = None,
        total_epochs: Optional[float] = None,
        percentage: Optional[float] = None,
        remaining_s: Optional[float] = None,
        message: Optional[str] = None,
        metrics: Optional[Mapping[str, Metric]] = None,
        **named: Metric,
    ) -> None:
        """Set what is given, leave the rest. Any other name is a metric.

        `step` is absolute. `percentage` (0 to 100) and `remaining_s` replace what would be worked out here.
        After the end of the run, metrics still belong to it.
        """
        run = self._run
        try:
            if given is not None and not is_mapping(given):
                what = show(given)
                self._say(
                    "update", f"update({what}) sets nothing: step({what}) counts, update(step={what}) sets"
                )
                given = None
            if step is not None:
                is_alone = not (run.values or named) and given is None and metrics is None
                is_first = is_alone and self._step == self._initial_step
                self._step = self._count("step", step, self._step)
                self._begins_at = self._step if is_first else None
            if total_steps is not None:
                self._total_steps = self._count("total_steps", total_steps, self._total_steps)
            if epoch is not None:
                self._epoch = self._amount("epoch", epoch, self._epoch)
            if total_epochs is not None:
                self._total_epochs = self._amount("total_epochs", total_epochs, self._total_epochs)
            if percentage is not None:
                self._percentage = self._amount("percentage", percentage, self._percentage, 100)
            if run.values is None:
                return
            if remaining_s is not None:
                run.remaining_s = self._amount("remaining_s", remaining_s, run.remaining_s)
            if message is not None and not run.is_over:
                run.message = str(message)[:MAX_MESSAGE]
            if named:
                self._check_names(named)
            for some in (given, metrics, named):
                if some:
                    self._remember(some)
            if run.due:
                run.collect()
            if run.takes_results and (given or metrics or named):
                run.note_results()
        except Exception as error:
            run.warn(error)

    @overload
    def epoch(
        self, epoch: Optional[float] = None, total: Optional[float] = None,
        metrics: Optional[Mapping[str, Metric]] = None, **named: Metric,
    ) -> None: ...  # fmt: skip
    @overload
    def epoch(self, metrics: Mapping[str, Metric], /, **named: Metric) -> None: ...
    def epoch(  # type: ignore[misc]
        self, first: Any = None, second: Any = None, /, *, epoch: Any = None, total: Any = None,
        metrics: Any = None, **named: Any,
    ) -> None:  # fmt: skip
        """`epoch` epochs are done (default: one more); `total` are planned."""
        try:
            if is_mapping(first):
                first, metrics = None, {**first, **(metrics or {})}
            done = epoch if first is None else first
            if done is None:
                before = self._epoch
                if before is None and self._initial_step and self._total_steps and self._total_epochs:
                    before = self._initial_step * self._total_epochs // self._total_steps
                done = (before or self._epochs_before) + 1
            self.update(metrics, epoch=done, total_epochs=total if second is None else second, metrics=named)
        except Exception as error:  # what was given is no mapping, though it looks like one
            self._run.warn(error)

    def message(self, text: str) -> None:
        """Say in a sentence what is being done: "evaluating", "saving checkpoint 12"."""
        self.update(message=text)

    def phase(self, text: str) -> Phase:
        """`with r.phase("evaluating"):` says so for as long as the block runs.

        Loops that are tracked in it count no steps.
        """
        return Phase(self, text)

    def track(self, iterable: Iterable[T]) -> Iterable[T]:
        """Goes over a loader and measures how long training waits for each of its items. Counts no steps."""
        return Waits(self, iterable)

    def evaluating(self) -> Section:
        """`with r.evaluating():` the block is an evaluation, for which training waits."""
        return Section(self, EVALUATION)

    def checkpointing(self, step: Optional[int] = None) -> Section:
        """`with r.checkpointing(step=1000):` the block saves a checkpoint, which is complete when it ends.

        `step`: from which a restart would go on; by default the one that is reached. Of an asynchronous save
        the block has the part for which training waits: `with r.checkpointing() as c: c.until(future)`.
        """
        return Section(self, SAVE, None if step is None else self._count("step", step, None))

    def restoring(self) -> Section:
        """`with r.restoring():` the block restores a checkpoint."""
        return Section(self, RESTORE)

    def checkpointed(self, step: Optional[int] = None) -> None:
        """A checkpoint of this step is complete: a restart could go on from it. For any thread."""
        run = self._run
        try:
            marks = run.marks
            if marks is None or run.is_over:
                return
            at = None if step is None else self._count("step", step, None)
            at = run.find_step() if at is None else at
            if at is not None:
                marks.complete(at)
        except Exception as error:
            run.warn(error)

    def ranks(
        self,
        *,
        step_seconds: Optional[PerRank] = None,
        steps: Optional[PerRank] = None,
        names: Optional[PerRank] = None,
    ) -> None:
        """How all ranks get on, for rank 0 to say once it has gathered it: a value for each rank, in order.

        `step_seconds`: each rank's own work for one step, without waiting for the others. `steps`: that each
        has finished, where ranks do not wait for each other. `names`: of their pods or hosts.
        """
        run = self._run
        try:
            if run.values is None:
                return
            from .ranks import make_columns

            try:
                run.ranks = make_columns(now_s(), step_seconds, steps, names) or run.ranks
            except (TypeError, ValueError) as error:
                termination.let_through(error)
                self._say("ranks", f"ranks are left out: {error}")
            if run.due:
                run.collect()
        except Exception as error:
            run.warn(error)

    def write(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        try:
            self._run.write_line(str(text))
        except Exception as error:
            self._run.warn(error)

    def finish(
        self, state: Optional[State] = None, message: Optional[str] = None, *, wait_s: Optional[float] = None
    ) -> None:
        """Write the last document. A second call does nothing.

        `state`: completed, stopped (early, on purpose), preempted or failed. By default what is known
        decides: preempted after a SIGTERM, stopped before the planned end, else completed. `wait_s`: how long
        to wait for sinks that are slow; 0.12 s by default.
        """
        run = self._run
        try:
            ending = None if state is None else ENDINGS.get(state)
            if state is not None and ending is None:
                self._say("state", f"finish({show(state)}): one of {', '.join(ENDINGS)} is needed")
            if message is not None and (run.is_unsaid or not run.is_over) and run.values is not None:
                run.message = str(message)[:MAX_MESSAGE]
            if self in run.levels[1:]:
                self._leave()
            elif self in run.levels or run.is_unsaid:
                run.finish(ending or run.ending or self._find_ending(), self._find_wait(wait_s))
        except Exception as error:
            run.warn(error)

    def restart(
        self, total_steps: Optional[int] = None, *, initial_step: Optional[int] = 0,
        total_epochs: Optional[float] = None,
    ) -> None:  # fmt: skip
        """This attempt has failed, and the next one begins: with other settings, from its first step."""
        run = self._run
        try:
            if run.is_over or self not in run.levels[:1]:
                self._say("restart", "restart() is for the reporter of a run that goes on: it is left out")
                return
            run.begin_again()
            for level in reversed(run.levels[1:]):
                level._leave()
            self._forget_counts()
            self.update(step=initial_step, total_steps=total_steps, total_epochs=total_epochs)
            self._initial_step = self._step
            run.hasten()
        except Exception as error:
            run.warn(error)

    def flush(self, timeout_s: Optional[float] = None) -> None:
        """Write what is known now and wait until every sink has tried, `timeout_s` at most."""
        try:
            self._run.flush(self._find_wait(timeout_s))
        except Exception as error:
            self._run.warn(error)

    def abandon(self) -> None:
        """Stop without a last document."""
        try:
            if self in self._run.levels[1:]:
                self._leave()
            elif self in self._run.levels:
                self._run.abandon()
        except Exception as error:
            self._run.warn(error)

    def __enter__(self) -> Reporter:  # noqa: PYI034 — typing.Self is younger than Python 3.9
        self._is_entered = True
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._is_entered = False
        try:
            self._end(error)
        except Exception as trouble:
            self._run.warn(trouble)

    def _end(self, error: Optional[BaseException]) -> None:
        if self._run.is_unsaid and isinstance(error, GeneratorExit):
            return  # Python clears up: nobody has said anything
        is_fault = not (error is None or isinstance(error, GeneratorExit))
        if isinstance(error, SystemExit):
            is_fault = bool(error.code)
            if termination.is_announced(error):
                self._run.is_terminated = True
        if not is_fault:
            self._conclude()
        elif self in self._run.levels[1:]:
            self._leave(has_failed=True)  # whoever is around it will see the exception, or not
        elif self._run.is_terminated:
            self.finish("preempted", None if termination.is_exit(error) else redaction.describe(error))
        else:
            self.finish("failed", redaction.describe(error))

    def _conclude(self) -> None:
        """The loop or the block is over; so is the run, unless another thread or task still works in it."""
        run = self._run
        if self in run.levels[:1] and run.is_busy:
            run.later = self._find_ending()
            run.hasten()
        else:
            self.finish()

    def _find_ending(self) -> str:
        position = find_position([level for level in self._run.levels if level._counts] or [self])
        has_no_plan = self._total_steps is None and self._total_epochs is None and not self._is_loop
        if position.is_at_end or (has_no_plan and self._inner is not None and self._inner.is_at_end):
            return "finished"
        if self._run.is_terminated:
            return "preempted"
        is_begun = position.total_steps if position.step is not None else None
        is_planned = is_begun or (position.total_epochs and position.epoch is not None)
        return "stopped" if is_planned else "finished"

    def _find_wait(self, wait_s: Optional[float]) -> float:
        if wait_s is not None:
            waits_s = to_amount(wait_s)
            if waits_s is not None:
                return min(waits_s, MAX_WAIT_S)
            self._say("wait", f"{show(wait_s)} is no number of seconds to wait: the default is used")
        return self._run.patience_s if self._wait_s is None else min(self._wait_s, MAX_WAIT_S)

    def _leave(self, *, has_failed: bool = False) -> None:
        """This level is over, the run is not: it goes on in the level around."""
        levels = self._run.levels
        place = levels.index(self)
        inner = find_position(levels[place:])
        inner.is_cut = self._is_cut and (inner.total_steps is None or (inner.step or 0) < inner.total_steps)
        inner.habits = self._habits
        del levels[place:]
        if self._counts:
            levels[-1]._absorb(inner, self._key, has_failed=has_failed)
        else:
            levels[-1]._absorb_extra(self._key, inner, has_failed=has_failed)

    def _step_as_meant(self, n: Any, metrics: Any, loss: Any, named: dict[str, Any]) -> None:
        if loss is not None:
            named = {"loss": loss, **named}
        n, named = self._understand(n, metrics, named)
        self._step += n
        self._remember(named)
        if self._run.due:
            self._run.collect()

    def _understand(self, n: Any, metrics: Any, named: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """What was meant by whatever `step` was given."""
        if is_mapping(n):
            n, metrics = (1 if metrics is None else metrics), n
        is_named = "n" in named
        if is_named:
            named = dict(named)
            n = named.pop("n")
        self._check_names(named)
        count = to_count(n)
        if count is None:
            self._say("step", f"step({show(n)}) counts nothing: a whole number of steps is needed")
        elif is_named and self._total_steps and self._step + count > self._total_steps:
            self._say("n", f'n={show(n)} counts steps, more than are planned: step({{"n": …}}) is a metric')
        if metrics is not None:
            if is_mapping(metrics):
                named = {**metrics, **named}
            else:
                self._say("metrics", f"metrics must be a mapping or named, not {type(metrics).__name__}")
        return count or 0, named

    def _check_names(self, named: Mapping[str, Any]) -> None:
        """A metric by the name of something else is reported as it was asked for, and so is the doubt."""
        for name in named:
            if name in INSTEAD and name not in (self._run.values or ()):
                meant = INSTEAD[name]
                self._say(f"name {name}", f"{name}= is reported as a metric; {meant} was perhaps meant")

    def _take_in(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What may be kept of `metrics`, with one warning for each name that gives nothing."""
        values = self._run.values or {}
        taken: dict[str, Any] = {}
        room = MAX_METRICS - len(values)
        is_full = False
        for name, value in metrics.items():
            if name not in values and room <= 0:
                is_full = True  # neither read nor copied: of thousands only what is kept costs anything
                continue
            if name == "metrics" and is_mapping(value):
                taken.update(self._take_in(value))
                continue
            try:
                kept = take(value)
            except TypeError as error:
                termination.let_through(error)
                self._say(f"metric {name}", f"metric {name} is left out: it {error}")
                continue
            except Exception as error:
                termination.let_through(error)
                self._say(f"metric {name}", f"metric {name} is left out: {type(error).__name__}")
                continue
            if kept is None:
                continue
            if type(kept) is Held:
                kept.before = read_last(values.get(name))
            taken[name] = kept
            room -= name not in values
        if is_full:
            self._say("names", f"only the first {MAX_METRICS} names of metrics are reported")
        return taken

    def _remember(self, metrics: Mapping[str, Any]) -> None:
        values = self._run.values
        if values is None:
            return
        if not is_mapping(metrics):
            self._say("metrics", f"metrics must be a mapping or named, not {type(metrics).__name__}")
            return
        taken = self._take_in(metrics)
        for name, value in taken.items():
            latest = values.get(name)
            if type(value) is not float and type(value) is not int:
                values[name] = value
            elif type(latest) is Latest:
                latest.last = value
            else:
                values[name] = Latest(value)
        if len(values) > MAX_METRICS:
            self._drop_newest(values)
        run = self._run
        for name, value in taken.items():
            if type(value) is float or type(value) is int:  # what is on a device is not asked for each step
                latest = values.get(name)
                if type(latest) is Latest and not latest.low <= value <= latest.high:
                    run.note(name, value, self)

    def _drop_newest(self, values: dict[str, Any]) -> None:
        """Names that change at every step must not push out those that were there first."""
        while len(values) > MAX_METRICS:
            values.popitem()
        self._say("names", f"only the first {MAX_METRICS} names of metrics are reported")

    def _count(self, name: str, value: object, before: Optional[int]) -> Optional[int]:
        count = to_count(value)
        if count is None:
            self._say(name, f"{name}={show(value)} is left out: a whole number from 0 to 2^53 is needed")
            return before
        return count

    def _amount(
        self, name: str, value: object, before: Optional[float], most: Optional[int] = None
    ) -> Optional[float]:
        amount = to_amount(value)
        if amount is None or (most is not None and amount > most):
            self._say(
                name, f"{name}={show(value)} is left out: a number from 0 to {most or '2^53'} is needed"
            )
            return before
        return amount

    def _say(self, about: str, text: str) -> None:
        self._run.say(about, text[:300])


class Phase:
    """Something that is done between steps, for as long as its block runs."""

    __slots__ = ("_flow", "_reporter", "_text")

    def __init__(self, reporter: Reporter, text: str) -> None:
        self._reporter = reporter
        self._text = text
        self._flow = Flow()

    def __reduce__(self) -> Any:
        return Phase, (self._reporter, self._text)

    def __enter__(self) -> Reporter:
        run = self._reporter._run
        self._flow = Flow()
        if run.values is not None and not run.is_over:
            if not run.phases:
                run.message_before = run.message
            run.phases = [*run.phases, (self._text, self._flow)]
            enter((*find_numbers(), self._flow.number))
        self._reporter.message(self._text)
        return self._reporter

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        run = self._reporter._run
        enter(tuple(number for number in find_numbers() if number != self._flow.number))
        others = [phase for phase in run.phases if phase[1] is not self._flow]
        if len(others) < len(run.phases):
            run.phases = others
            self._reporter.message(others[-1][0] if others else run.message_before or "")
