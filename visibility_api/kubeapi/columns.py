"""The columns of `kubectl get tjp`, and their cells; some are shown with `-o wide` only."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import Phase
from visibility_api.jobs.summary import Condition, JobProgress, Resources
from visibility_api.models.condition_types import CONDITION_TYPES

from .goodput import goodput_cell

MESSAGE_CHARACTERS = 100  # in a cell; `kubectl describe` shows all
WIDE = 1  # the priority of columns that are shown with `-o wide` only


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; clients show its description as help."""

    name: str
    description: str
    format: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """As in a Table, where all five fields are required.

        All are strings: kubectl prints numbers in Go's `%v` and dates as they are sent.
        """
        return {
            "name": self.name,
            "type": "string",
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


# Of lists of several kinds, after the name.
KIND = Column(name="Kind", description="Kind of the training job.")
# kubectl adds NAMESPACE itself. The columns are the same for every list, also an empty one.
COLUMNS = (
    Column(name="Name", format="name", description="Name of the training job."),
    Column(name="Phase", description="Phase of the job."),
    Column(name="Progress", description="Share of the run that is done."),
    Column(name="Step", description="Optimizer steps finished, of all planned ones."),
    Column(name="Loss", description="The training loss, or else the first metric with its name."),
    Column(name="ETA", description="Estimated time until the run ends."),
    Column(name="Seen", description="Time since rank 0 last reported something new."),
    Column(name="Age", description="Time since the job was created."),
    Column(name="Epoch", description="Epochs finished, of all planned ones.", priority=WIDE),
    Column(name="Rate", description="Optimizer steps in a second.", priority=WIDE),
    Column(name="Source", description="Where the numbers were read.", priority=WIDE),
    Column(name="Pod", description="The pod of rank 0.", priority=WIDE),
    Column(
        name="Accelerators",
        description="How many accelerators all pods request together.",
        priority=WIDE,
    ),
    Column(
        name="Goodput",
        description="Share of productive time, of all in which the job was not queued.",
        priority=WIDE,
    ),
    Column(
        name="Wasted",
        description="Accelerator-hours spent on starting, stalls, recovery and steps that were done before.",
        priority=WIDE,
    ),
    Column(name="Checkpoint", description="Step of the last complete checkpoint.", priority=WIDE),
    Column(
        name="Attempts",
        description="How often training was started, and why an attempt failed last.",
        priority=WIDE,
    ),
    Column(
        name="Reason", description="The condition or state that explains most about the job.", priority=WIDE
    ),
    Column(
        name="Message",
        description="What the run says of itself; before it runs what it waits for, or why it failed.",
        priority=WIDE,
    ),
)


def own_columns(names: Sequence[str]) -> tuple[Column, ...]:
    """Those of a kind's own."""
    return tuple(Column(name=each, description="Of this kind of job.", priority=WIDE) for each in names)


Cell = str | None  # None, a value that is not known, shows as blank

_LOSS_NAMES = ("loss", "train_loss", "train/loss", "training_loss", "train-loss")
_SEPARATORS = re.compile(r"[^a-z]+")


def leading_cells(document: JobProgress) -> tuple[Cell, ...]:
    """Name to Loss: they change only with the document."""
    return _harmless(
        document.job.ref.name,
        document.phase.value,
        f"{document.progress_percentage}%" if document.progress_percentage is not None else None,
        _of(document.step, document.total_steps),
        _loss(document.metrics),
    )


def clock_moments(document: JobProgress) -> tuple[datetime | None, datetime | None, datetime | None]:
    """What ETA is until, and what Seen and Age are since."""
    return document.completion_at, document.seen_at, document.job.created_at


def trailing_cells(document: JobProgress) -> tuple[Cell, ...]:
    """Epoch to Message."""
    rate, seen, rank0 = document.steps_per_s, document.observation, document.job.rank0
    held = document.resources
    return _harmless(
        _of(document.epoch, document.total_epochs),
        f"{short_number(rate, 2)}/s" if rate is not None and math.isfinite(rate) else None,
        seen.source if seen is not None else None,
        rank0.pod_name if rank0 is not None else None,
        str(held.accelerators) if held is not None else None,
        goodput_cell(document),
        _wasted(held),
        str(document.checkpoint[0]) if document.checkpoint is not None else None,
        _attempts(document),
        _reason(document),
        _message(document),
    )


def _harmless(*cells: Cell) -> tuple[Cell, ...]:
    """kubectl prints cells into a terminal as they are."""
    return tuple([cell if cell is None else harmless(cell) for cell in cells])


def short_number(value: float, digits: int = 4) -> str:
    """`value` with `digits` significant digits, never fewer than the integer part has."""
    if value != 0 and (abs(value) < 1e-4 or abs(value) >= 1e15):
        return f"{value:.{digits - 1}e}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def _of(done: float | None, planned: float | None) -> Cell:
    """`450/1000`, `450`; None when the finished number is not known."""
    if done is None:
        return None
    return f"{_count(done)}/{_count(planned)}" if planned is not None else _count(done)


def _count(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else short_number(value)


def _loss(metrics: Sequence[tuple[str, str]]) -> Cell:
    """The training loss, or the first metric with its name, so that accuracy is not mistaken for a loss."""
    if not metrics:
        return None
    held = {name.lower(): value for name, value in reversed(metrics)}
    for name in _LOSS_NAMES:
        if name in held:
            return _metric(held[name])
    for name, value in metrics:
        if "loss" in _SEPARATORS.split(name.lower()):
            return _metric(value)
    name, value = metrics[0]
    return f"{name}={_metric(value)}"


def _metric(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    return short_number(value) if math.isfinite(value) else text


def _why_failed(document: JobProgress, condition: Condition) -> str:
    """`OOMKilled (exit 137, node-3)`: where the reason is only Error, what the job's controller says."""
    failed, rank0 = document.failure, document.job.rank0
    if failed is None or failed.is_of_job:
        ended = rank0.last_termination if rank0 is not None else None
        return f"{condition.reason} (exit {ended.exit_code})" if ended is not None else condition.reason
    details = [f"exit {failed.exit_code}"] if failed.exit_code is not None else []
    if rank0 is None or failed.pod_name != rank0.pod_name:
        details.append(failed.replica)
    reason = failed.cause_class or (condition.reason if failed.reason == "Error" else failed.reason)
    return f"{reason} ({', '.join(details)})" if details else reason


def _message(document: JobProgress) -> Cell:
    """The words of the run; before it runs what it waits for; and why it failed, if it said nothing."""
    failed, condition = document.failure, document.condition("Failed")
    is_waiting = document.phase in (Phase.PENDING, Phase.INITIALIZING)
    text = (document.job.message if is_waiting else document.message) or ""
    if not text and condition is not None:
        text = (failed.cause or failed.message) if failed is not None else condition.message
    text = " ".join(text[: 2 * MESSAGE_CHARACTERS].split())
    return (text if len(text) <= MESSAGE_CHARACTERS else f"{text[: MESSAGE_CHARACTERS - 1]}…") or None


def _wasted(held: Resources | None) -> Cell:
    if held is None or held.wasted_s is None:
        return None
    return f"{short_number(held.wasted_s / 3600, 2)}h"


def _attempts(document: JobProgress) -> Cell:
    if document.attempts is None:
        return None
    failed = document.failure
    if failed is None:
        return str(document.attempts)
    return f"{document.attempts} ({failed.cause_class or failed.reason})"


def _reason(document: JobProgress) -> Cell:
    """The one reason that explains most: how the job ended, why it does not run, what is wrong with it."""
    job = document.job
    failed = document.condition("Failed")
    if failed is not None and failed.status == "True":
        return _why_failed(document, failed)
    reporting, diverged = document.condition("Reporting"), document.condition("Diverged")
    for type_ in ("Complete", "Suspended"):
        condition = document.condition(type_)
        if condition is not None and condition.status == "True":
            # PHASE shows that it completed, but neither that its loss was lost nor why it never reported.
            if type_ == "Complete" and diverged is not None and diverged.status == "True":
                return diverged.reason
            if type_ == "Complete" and reporting is not None and reporting.status == "False":
                return reporting.reason
            return condition.reason
    if document.phase is not Phase.RUNNING and job.reason:
        return job.reason
    if job.rank0 is not None and job.rank0.waiting_reason:
        return job.rank0.waiting_reason
    for known in CONDITION_TYPES:
        condition = document.condition(known.name) if known.fault else None
        if condition is not None and condition.status == known.fault:
            diagnosis = document.stall_diagnosis if known.name == "Stalled" else None
            return condition.reason if diagnosis is None else diagnosis.cell
    return None
