"""Completes a report by the one held before, or removes from it what contradicts that one."""

from __future__ import annotations

from msgspec.structs import replace

from visibility_api.reports.document import Progress
from visibility_api.reports.fields import MAX_METRICS, total
from visibility_api.reports.marks import NO_MARKS

from .estimate import percentage


def complete(report: Progress, held: Progress) -> Progress:
    """`report` with what only earlier ones of this attempt contain: no field flickers between sources."""
    metrics = dict(held.metrics)
    metrics.update(report.metrics)
    if len(metrics) > MAX_METRICS:  # else names that change every step would leave no room for new ones
        new = dict(report.metrics)
        for name in [name for name in metrics if name not in new][: len(metrics) - MAX_METRICS]:
            del metrics[name]
    step = held.step if report.step is None else report.step
    epoch = held.epoch if report.epoch is None else report.epoch
    state, ending = report.state, report.ending if report.state else None
    if not state and (held.state or held.ending) and not _is_behind(report, held):
        state, ending = held.state, held.ending
    completed = replace(
        report,
        state=state,
        ending=ending,
        step=step,
        total_steps=total(report.total_steps or held.total_steps, step),
        epoch=epoch,
        total_epochs=total(report.total_epochs or held.total_epochs, epoch),
        metrics=tuple(metrics.items()),
        message=report.message or held.message,
        started_at=report.started_at or held.started_at,
        marks=report.marks if report.marks != NO_MARKS else held.marks,
    )
    if percentage(completed) is not None:
        return completed
    return replace(completed, progress_percentage=held.progress_percentage, remaining_s=held.remaining_s)


def _is_behind(report: Progress, held: Progress) -> bool:
    """A run that has ended does not go back: this is the next one of the same process or container."""
    return _is_less(report.step, held.step) or _is_less(percentage(report), percentage(held))


def has_position(report: Progress) -> bool:
    """Whether it shows how far the run has come, in any unit."""
    return (report.step, report.progress_percentage, report.epoch) != (None, None, None)


def without_contradiction(guess: Progress, held: Progress) -> Progress:
    """Without steps, or epochs, that lie behind those held or are of another plan. Such are those of a bar
    that begins anew with each epoch. A run that has ended contradicts nothing."""
    if guess.is_final:
        return guess
    done, before = percentage(guess), percentage(held)
    if (
        _is_less(guess.step, held.step)
        or _is_other(guess.total_steps, held.total_steps)
        or (done is not None and before is not None and done < before - 1)  # one of them may be rounded up
    ):
        guess = replace(guess, step=None, total_steps=None, progress_percentage=None, remaining_s=None)
    if _is_less(guess.epoch, held.epoch) or _is_other(guess.total_epochs, held.total_epochs):
        guess = replace(guess, epoch=None, total_epochs=None)
    return guess


def _is_less(now: float | None, before: float | None) -> bool:
    return now is not None and before is not None and now < before


def _is_other(plan: float | None, before: float | None) -> bool:
    return plan is not None and before is not None and plan != before
