"""ShouldStop: advice to stop a trial early, by thresholds and by what other trials had reached."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, REF
from visibility_api.jobs.job import JobRef, Phase, ProbeHints, StopRule, Thresholds
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.pruning import LABELS as LABELS_OF_TRIALS, MAX_EMPTY, MAX_TRIALS
from visibility_api.reports.document import Progress

from .bench import Bench

MEDIAN = Thresholds(stop_rules=(StopRule(least=2),))
LABELS = {"katib.kubeflow.org/experiment": "bert"}


class Sweep:
    """Trials of one tracker."""

    def __init__(self, thresholds: Thresholds = MEDIAN, labels: dict[str, str] = LABELS) -> None:
        self.made = Bench()
        self.thresholds, self.labels = thresholds, labels

    def show(self, name: str, phase: Phase = Phase.RUNNING, namespace: str = REF.namespace) -> JobRef:
        ref = replace(REF, namespace=namespace, name=name, uid=name)
        hints = ProbeHints(thresholds=self.thresholds)
        self.made.job(replace(JOB, ref=ref, phase=phase, hints=hints, labels=self.labels))
        return ref

    def report(
        self,
        name: str,
        values: Sequence[float | str],
        *,
        metric: str = "eval_loss",
        by: int = 10,
        namespace: str = REF.namespace,
    ) -> JobRef:
        """Values at each `by`th step."""
        ref = self.show(name, namespace=namespace)
        for at, value in enumerate(values, 1):
            self.made.advance(15)
            step = by * at if by else None
            outcome = Progress(timestamp=self.made.now, step=step, metrics=((metric, str(value)),))
            self.made.tracker.observed(
                Observation(ref=ref, attempt=RANK0.attempt, source="exec", at=self.made.now, outcome=outcome)
            )
        return ref

    def complete(
        self, name: str, values: Sequence[float], *, by: int = 10, namespace: str = REF.namespace
    ) -> JobRef:
        self.report(name, values, by=by, namespace=namespace)
        return self.show(name, Phase.SUCCEEDED, namespace)

    def found(self, name: str) -> tuple[str, str, str] | None:
        shown = next(each for each in reversed(self.made.published) if each.job.ref.name == name)
        condition = shown.condition("ShouldStop")
        return None if condition is None else (condition.status, condition.reason, condition.message)


@pytest.mark.parametrize("by", [10, 0], ids=["by steps", "by their number"])
def test_a_trial_should_stop_once_its_best_is_worse_than_the_median_of_averages_at_its_step(by: int) -> None:
    """Of 4, 2, 1 the average is 3 after two values, and 7/3 after three."""
    sweep = Sweep()
    for name, values in (("a", [4, 2, 1]), ("b", [8, 8, 8]), ("c", [2, 2, 2])):
        sweep.complete(name, values, by=by)
    sweep.report("later", [9, 2.9, 9], by=by)
    assert sweep.found("later")[0] == "True"  # type: ignore[index]
    sweep.report("bad", [9], by=by)
    assert sweep.found("bad") == ("Unknown", "NotJudged", "eval_loss was reported fewer than 2 times yet.")
    sweep.report("better", [9, 2.9], by=by)
    assert sweep.found("better") == ("False", "Promising", "")
    sweep.report("worse", [9, 3.1], by=by)
    status, reason, message = sweep.found("worse") or ("", "", "")
    where = "by step 20" if by else "in 2 values"
    assert (status, reason) == ("True", "MedianStop")
    assert message == (
        "eval_loss is 3.1 at best, worse than 3, the median of the averages that 3 completed jobs with"
        f" katib.kubeflow.org/experiment=bert had {where}."
        " This is advice: delete or suspend the job to stop it."
    )


def test_trials_that_another_replica_evaluates_are_compared_once_they_have_completed() -> None:
    sweep, elsewhere = Sweep(), Sweep()
    for name in ("a", "b", "c"):
        tracker, ref = elsewhere.made.tracker, elsewhere.complete(name, [2, 2, 2])
        document = next(each for each in reversed(elsewhere.made.published) if each.job.ref == ref)
        sweep.made.tracker.compare(document.job, tracker.state(ref), tracker.history(ref))
        assert ref not in sweep.made.tracker
    sweep.report("worse", [9, 3])
    assert (sweep.found("worse") or ())[:2] == ("True", "MedianStop")


def test_where_more_is_better_less_should_stop() -> None:
    sweep = Sweep(replace(MEDIAN, plateau_metric="accuracy"))
    for name, value in (("a", 0.5), ("b", 0.6), ("c", 0.9)):
        sweep.report(name, [value, value], metric="accuracy")
        sweep.show(name, Phase.SUCCEEDED)
    for value, status in ((0.59, "True"), (0.61, "False")):
        sweep.report(f"now-{value}", [0.1, value], metric="accuracy")
        assert sweep.found(f"now-{value}")[0] == status  # type: ignore[index]


@pytest.mark.parametrize(
    ("labels", "trials", "message"),
    [
        (
            LABELS,
            2,
            "Fewer than 3 jobs with katib.kubeflow.org/experiment=bert have completed with eval_loss.",
        ),
        ({}, 3, f"The job has no label {' or '.join(LABELS_OF_TRIALS)}, so there is nothing to compare"),
    ],
)
def test_a_trial_with_too_few_others_is_not_judged(labels: dict[str, str], trials: int, message: str) -> None:
    sweep = Sweep(labels=labels)
    for number in range(trials):
        sweep.complete(str(number), [1, 1])
    sweep.show("failed", Phase.FAILED)
    sweep.report("now", [9, 9])
    status, reason, told = sweep.found("now") or ("", "", "")
    assert (status, reason, told[: len(message)]) == ("Unknown", "NotJudged", message)


def test_a_label_of_ones_own_says_what_is_compared() -> None:
    sweep = Sweep(replace(MEDIAN, stop_label="sweep"), {**LABELS, "sweep": "1"})
    for number in range(3):
        sweep.complete(str(number), [1, 1])
    sweep.report("now", [9, 9])
    sweep.labels = {**LABELS, "sweep": "2"}
    sweep.report("other", [9, 9])
    assert (sweep.found("now")[0], sweep.found("other")[0]) == ("True", "Unknown")  # type: ignore[index]


@pytest.mark.parametrize(
    ("rules", "values", "found"),
    [
        ([("eval_loss", ">", 2.5, 1)], [3], ("True", "ThresholdReached")),
        ([("eval_loss", ">", 2.5, 1)], [2, 3], ("False", "Promising")),  # of the goal the best counts
        ([("eval_loss", ">", 2.5, 3)], [3, 3], ("Unknown", "NotJudged")),
        ([("eval_loss", "=", 3, 1)], [3], ("True", "ThresholdReached")),
        (
            [("eval_loss", ">", 2.5, 1), ("eval_loss", "<", 2.7, 1)],
            [3],
            ("False", "Promising"),
        ),  # all must hold
        ([("other", ">", 1, 1)], [3], ("Unknown", "NotJudged")),
        ([("eval_loss", ">", 1, 1)], ["nan"], ("Unknown", "NotJudged")),
    ],
)
def test_thresholds_are_compared_as_katib_does(
    rules: list[tuple[str, str, float, int]], values: list[float | str], found: tuple[str, str]
) -> None:
    made = tuple(
        StopRule(metric=metric, comparison=comparison, value=value, least=least)  # type: ignore[arg-type]
        for metric, comparison, value, least in rules
    )
    sweep = Sweep(Thresholds(stop_rules=made), {})
    sweep.report("now", values)
    assert sweep.found("now")[:2] == found  # type: ignore[index]


def test_the_advice_stays_when_the_trial_was_stopped_and_is_absent_without_the_annotation() -> None:
    sweep = Sweep(Thresholds(stop_rules=(StopRule(metric="eval_loss", comparison=">", value=1),)))
    sweep.report("now", [3])
    sweep.show("now", Phase.FAILED)
    assert sweep.found("now")[0] == "True"  # type: ignore[index]
    sweep.thresholds = Thresholds()
    sweep.report("now", [3])
    assert sweep.found("now") is None


def test_trials_that_were_deleted_count_on_and_what_is_kept_is_bounded() -> None:
    sweep = Sweep()
    for number in range(MAX_TRIALS + 1):
        sweep.made.tracker.job_gone(sweep.complete(str(number), [1, 1]))
    now = sweep.report("now", [9, 9])
    assert sweep.found("now")[0] == "True"  # type: ignore[index]
    groups = sweep.made.tracker._groups
    (trials,) = groups._groups.values()
    assert (len(trials.completed), trials.members) == (MAX_TRIALS, {now})
    sweep.made.tracker.job_gone(now)
    for number in range(MAX_EMPTY + 1):
        sweep.labels = {"katib.kubeflow.org/experiment": str(number)}
        sweep.made.tracker.job_gone(sweep.report("unfinished", [1, 1]))
        sweep.made.tracker.job_gone(sweep.complete("one", [1, 1]))
    assert len(groups._groups) == len(groups._empty) == MAX_EMPTY


def test_groups_of_one_namespace_put_those_of_another_out_of_memory_last() -> None:
    sweep = Sweep()
    for number in range(3):
        sweep.made.tracker.job_gone(sweep.complete(str(number), [1, 1], namespace="team-b"))
    for number in range(MAX_EMPTY + 1):
        sweep.labels = {"katib.kubeflow.org/experiment": str(number)}
        sweep.made.tracker.job_gone(sweep.complete("one", [1, 1]))
    sweep.labels = LABELS
    sweep.report("now", [9, 9], namespace="team-b")
    assert sweep.found("now")[0] == "True"  # type: ignore[index]
