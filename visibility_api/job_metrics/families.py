"""The table of per-job metrics: code, docs (`python -m monitoring`), rules and dashboards follow from it.

The rules are those of kube-state-metrics: facts as they are and no sums of them, `_info` for what is text,
one sample for each state of a set, times as `_timestamp_seconds`. No label has text that a run may choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Literal

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import Phase
from visibility_api.jobs.ledger import KINDS
from visibility_api.jobs.summary import JobProgress
from visibility_api.kubeapi.fleet import MAX_NAME_CHARACTERS, QUEUE
from visibility_api.models.condition_types import CONDITION_TYPES

JOB_LABELS = ("namespace", "kind", "trainjob")  # of every sample
MAX_ACCELERATORS, MAX_PODS = 8, 1024  # samples of one job

Pods = Sequence[tuple[str, str]]  # names, and their nodes
Sample = tuple[str, float]  # further labels as they are written, each after a comma; the value

_PLAIN = re.compile(r"[-\w./:]*", re.ASCII)


@dataclass(slots=True)
class Shown:
    """One job, as it is rendered."""

    document: JobProgress
    pods: Pods = ()
    seconds: Mapping[int, float] = field(default_factory=dict)  # by place in KINDS; they never shrink
    metrics: frozenset[str] = frozenset()  # reported metrics that may be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: one `value` of a job, or several `samples`. It `follows` from what the cluster shows, from
    each report, from its metrics, or from the account of the job's time."""

    name: str
    type: Literal["gauge", "counter"] = "gauge"
    help: str
    labels: tuple[str, ...] = ()  # beside JOB_LABELS
    absent: str = ""  # when there is no sample; for the docs
    follows: Literal["cluster", "report", "metrics", "account"] = "cluster"
    value: Callable[[JobProgress], float | None] | None = field(default=None, repr=False)
    samples: Callable[[Shown], Iterable[Sample]] = field(default=lambda _job: (), repr=False)


@lru_cache(maxsize=65536)
def quote(value: str) -> str:
    """A label's value, in quotes."""
    if _PLAIN.fullmatch(value):
        return f'"{value}"'
    text = harmless(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{text}"'


def _time(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment is not None else None


def _info(job: Shown) -> Sequence[Sample]:
    rank0, seen = job.document.job.rank0, job.document.observation
    queue = job.document.job.labels.get(QUEUE, "")[:MAX_NAME_CHARACTERS]
    node_pool = rank0.node_pool[:MAX_NAME_CHARACTERS] if rank0 is not None else ""
    source = seen.source if seen is not None else ""
    plural = job.document.job.ref.resource
    labels = (
        f",plural={quote(plural)},queue={quote(queue)},node_pool={quote(node_pool)},source={quote(source)}"
    )
    return ((labels, 1),)


_PHASES = tuple((f',phase="{each}"', each) for each in Phase)
_CONDITIONS = {each.name: f',condition="{each.name}"' for each in CONDITION_TYPES}
_STATUSES = {"True": 1, "False": 0}
_ACTIVITIES = tuple(f',activity="{each}"' for each in KINDS)


def _conditions(job: Shown) -> Iterable[Sample]:
    for each in job.document.conditions:
        if (value := _STATUSES.get(each.status)) is not None and each.type in _CONDITIONS:
            yield _CONDITIONS[each.type], value


def _accelerators(job: Shown) -> Iterable[Sample]:
    counts: dict[str, int] = {}  # two long names may begin alike, and a series is there once
    for name, count in job.document.job.accelerators[:MAX_ACCELERATORS]:
        label = f",resource={quote(name[:MAX_NAME_CHARACTERS])}"
        counts[label] = counts.get(label, 0) + count
    return counts.items()


def _pods(job: Shown) -> Iterable[Sample]:
    rank0 = job.document.job.rank0
    found = dict(job.pods[:MAX_PODS])
    if rank0 is not None and job.document.phase is Phase.RUNNING:
        found[rank0.pod_name] = rank0.node_name or ""
    return [(f",pod={quote(pod)},node={quote(node)}", 1) for pod, node in found.items()]


def _reported(job: Shown) -> Iterable[Sample]:
    for name, text in job.document.metrics:
        if name in job.metrics:
            try:
                yield f",metric={quote(name)}", float(text)
            except ValueError:
                continue


FAMILIES = (
    Family(
        name="trainjob_info",
        help="The job, its resource here, its Kueue queue, rank 0's node pool, the source of its numbers.",
        labels=("plural", "queue", "node_pool", "source"),
        samples=_info,
    ),
    Family(
        name="trainjob_status_phase",
        help="1 for the phase that the job is in, 0 for each other.",
        labels=("phase",),
        samples=lambda job: [(text, int(each is job.document.phase)) for text, each in _PHASES],
    ),
    Family(
        name="trainjob_status_condition",
        help="1 for a condition that is True, 0 for one that is False.",
        labels=("condition",),
        absent="the condition is Unknown, or does not apply",
        samples=_conditions,
    ),
    Family(
        name="trainjob_accelerators",
        help="Accelerators that all pods of the job request together.",
        labels=("resource",),
        absent="it requests none",
        samples=_accelerators,
    ),
    Family(
        name="trainjob_pod_info",
        help="A pod of the job and its node, to join metrics of pods by.",
        labels=("pod", "node"),
        absent="it does not run",
        samples=_pods,
    ),
    Family(
        name="trainjob_attempts_total",
        type="counter",
        help="Attempts of the training process so far.",
        absent="none has begun",
        value=lambda document: document.attempts,
    ),
    Family(
        name="trainjob_start_timestamp_seconds",
        help="When the run began.",
        absent="none has begun",
        value=lambda document: _time(document.started_at),
    ),
    Family(
        name="trainjob_end_timestamp_seconds",
        help="When the job ended.",
        absent="it has not ended",
        value=lambda document: _time(document.ended_at),
    ),
    Family(
        name="trainjob_planned_steps",
        help="Steps that the run has in all.",
        absent="not reported",
        value=lambda document: document.total_steps,
    ),
    Family(
        name="trainjob_progress_ratio",
        help="How far the job is, from 0 to 1, in hundredths.",
        absent="not reported",
        follows="report",
        value=lambda document: done / 100 if (done := document.progress_percentage) is not None else None,
    ),
    Family(
        name="trainjob_step",
        help="The step that was reported last.",
        absent="not reported",
        follows="report",
        value=lambda document: document.step,
    ),
    Family(
        name="trainjob_steps_per_second",
        help="Steps a second, as the server measures them.",
        absent="the run does not advance",
        follows="report",
        value=lambda document: document.steps_per_s,
    ),
    Family(
        name="trainjob_estimated_completion_timestamp_seconds",
        help="When the run is estimated to end.",
        absent="the run does not advance, or has no planned end",
        follows="report",
        value=lambda document: _time(document.completion_at),
    ),
    Family(
        name="trainjob_last_report_timestamp_seconds",
        help="When the numbers that are shown were reported.",
        absent="nothing was reported",
        follows="report",
        value=lambda document: _time(document.seen_at or document.updated_at),
    ),
    Family(
        name="trainjob_checkpoint_timestamp_seconds",
        help="When the last checkpoint was complete.",
        absent="the run does not tell of its checkpoints",
        follows="report",
        value=lambda document: _time(document.checkpoint[1] if document.checkpoint is not None else None),
    ),
    Family(
        name="trainjob_time_seconds_total",
        type="counter",
        help="What the time of the job was spent on; the activities are those of docs/goodput.md.",
        labels=("activity",),
        absent="nothing was spent on the activity",
        follows="account",
        samples=lambda job: [
            (_ACTIVITIES[kind], int(some)) for kind, some in job.seconds.items() if some >= 1
        ],
    ),
    Family(
        name="trainjob_reported_value",
        help="A metric that the run reported, of those that --job-metric-names allows.",
        labels=("metric",),
        absent="not reported",
        follows="metrics",
        samples=_reported,
    ),
)

# Of namespaces, not of jobs.
LEFT_OUT = Family(
    name="trainjob_left_out_jobs",
    help="Jobs of the namespace that have no metrics, because of the limit in --job-metrics.",
    absent="all have metrics",
)
