"""The condition ShouldStop: advice to stop a trial early, by the rules that an annotation of the job names.

Rules and beginnings as in `reporting`. Absent without the annotation. The rules are Katib's: each holds once
its metric was reported so often, and all must hold. The median rule is Vizier's (Golovin and others, 2017):
the best value so far is worse than the median of the averages that completed trials had by the same step.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from statistics import median

from visibility_api.history.attempt import NO_STEP

from .job import Phase, StopRule
from .record import Record
from .reporting import PLAIN, Found, Rule
from .trials import Curve, Trials

LABELS = ("trainer.kubeflow.org/optimizationjob-name", "katib.kubeflow.org/experiment")
LEAST_TRIALS = 3  # completed, as Katib's min_trials_required
MAX_TRIALS = 100  # completed, of one group: the last
MAX_EMPTY = 100  # groups without a job: Katib deletes those of trials that have ended
_COMPARISONS = {
    "<": ("less than", float.__lt__),
    ">": ("greater than", float.__gt__),
    "=": ("equal to", float.__eq__),
}


class Groups:
    """All trials that are compared. In memory alone: of jobs that are gone the next owner knows nothing."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], Trials] = {}
        self._empty: dict[tuple[str, ...], None] = {}

    def follow(self, record: Record) -> None:
        """Before the conditions of a job are evaluated."""
        thresholds, ref = record.job.hints.thresholds, record.job.ref
        label = thresholds.stop_label or next((each for each in LABELS if each in record.job.labels), "")
        value = record.job.labels.get(label)
        key = (ref.resource, ref.namespace, label, value or "")
        is_compared = bool(thresholds.stop_rules) and value is not None
        if record.trials is not None and not (is_compared and record.trials.key == key):
            self.leave(record)
        if not is_compared:
            return
        trials = record.trials = self._groups.setdefault(key, Trials(key))
        trials.members.add(ref)
        self._empty.pop(key, None)
        if record.job.phase is Phase.SUCCEEDED and ref not in trials.completed:
            curve = read_curve(record, _find_goal(record))
            if curve is not None:
                trials.completed[ref] = curve.averages()
                if len(trials.completed) > MAX_TRIALS:
                    del trials.completed[next(iter(trials.completed))]

    def leave(self, record: Record) -> None:
        """The job is gone, or of another group. What it had reached counts on."""
        trials, record.trials = record.trials, None
        if trials is None:
            return
        trials.members.discard(record.job.ref)
        if not trials.members:
            if not trials.completed:
                del self._groups[trials.key]
                return
            self._empty[trials.key] = None
            if len(self._empty) > MAX_EMPTY:  # the oldest of the namespace that has most
                ((most, _),) = Counter(namespace for _, namespace, *_ in self._empty).most_common(1)
                oldest = next(key for key in self._empty if key[1] == most)
                del self._empty[oldest], self._groups[oldest]


def read_curve(record: Record, metric: str | None) -> Curve | None:
    """All that is kept of a metric of the job; None if that is nothing."""
    if metric is None or record.history is None:
        return None
    points = [(step, value) for each in record.history.attempts for _, step, value in each.points(metric)]
    points = [point for point in points if point[1] - point[1] == 0]  # finite
    if not points:
        return None
    has_steps = all(step != NO_STEP for step, _ in points) and points[-1][0] > 0
    if not has_steps:
        return Curve(metric, False, range(1, len(points) + 1), [value for _, value in points])
    points.sort(key=lambda point: point[0])
    return Curve(metric, True, [step for step, _ in points], [value for _, value in points])


def _find_goal(record: Record) -> str | None:
    goal = record.watched.goal
    return goal.name if goal is not None else record.job.hints.thresholds.plateau_metric


def _find_should_stop(record: Record, _now: datetime) -> Found | None:
    rules = record.job.hints.thresholds.stop_rules
    if not rules:
        return None
    if record.job.phase.is_final:  # perhaps because of it
        held = next((each for each in record.conditions if each.type == "ShouldStop"), None)
        return (held.status, held.reason, held.message) if held is not None else None
    found = [_judge(rule, record) for rule in rules]
    unknown = next((text for holds, text in found if holds is None), None)
    if unknown is not None:
        return "Unknown", "NotJudged", unknown
    if not all(holds for holds, _ in found):
        return "False", "Promising", PLAIN
    reason = "MedianStop" if any(not rule.metric for rule in rules) else "ThresholdReached"
    told = " ".join(text for _, text in found)
    return "True", reason, f"{told} This is advice: delete or suspend the job to stop it."


def _judge(rule: StopRule, record: Record) -> tuple[bool | None, str]:
    """Whether a rule holds, and in words what is compared; None: it cannot be told yet, and why."""
    goal = record.watched.goal
    metric = rule.metric or _find_goal(record)
    curve = read_curve(record, metric)
    if curve is None:
        return (
            None,
            f"The reports contain no {metric or 'metric to improve; name it with plateau-metric'} yet.",
        )
    if len(curve.values) < rule.least:
        return None, f"{metric} was reported fewer than {rule.least} times yet."
    value = curve.values[-1]
    is_goal = goal is not None and goal.name == metric
    if goal is not None and is_goal:
        value = max(curve.values) if goal.is_higher_better else min(curve.values)
    shown = f"{metric} is {value:.4g}{' at best' if is_goal else ''}"
    if rule.metric:
        words, compare = _COMPARISONS[rule.comparison]
        holds = compare(float(value), rule.value)
        return holds, f"{shown}, {words} the {rule.value:g} of the job's annotation should-stop."
    if goal is None or record.trials is None:
        label = record.job.hints.thresholds.stop_label or " or ".join(LABELS)
        return None, f"The job has no label {label}, so there is nothing to compare it with."
    position = curve.positions[-1]
    others = [
        average
        for ref, each in record.trials.completed.items()
        if ref != record.job.ref and (each.metric, each.has_steps) == (metric, curve.has_steps)
        if (average := each.at(position)) is not None
    ]
    if len(others) < LEAST_TRIALS:
        return None, f"Fewer than {LEAST_TRIALS} jobs with {record.trials.name} have completed with {metric}."
    middle = median(others)
    is_worse = value < middle if goal.is_higher_better else value > middle
    by = f"by step {position:.0f}" if curve.has_steps else f"in {position:.0f} values"
    told = (
        f"{shown}, worse than {middle:.4g}, the median of the averages that {len(others)} completed jobs with"
    )
    return is_worse, f"{told} {record.trials.name} had {by}."


PRUNING = (Rule("ShouldStop", _find_should_stop, lambda *_: None),)
