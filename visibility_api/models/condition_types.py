"""Each type of condition, described once: for the published documents, the column REASON and Events.

What makes a condition true is a `Rule` in `reporting`, `training_health` or `conditions` of `jobs/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionType:
    """One type of condition of a job."""

    name: str
    meaning: str  # for the published documents
    fault: str = ""  # the status that the column REASON explains; "": none, or it has a rule of its own
    ages: bool = False  # its message states an age, so a change of its message alone is no news
    event: tuple[Literal["Normal", "Warning"], str] | None = None  # type and reason of the Event of "True"


# In the order in which the column REASON prefers them.
CONDITION_TYPES = (
    ConditionType(
        name="Diverged",
        meaning="a loss or gradient norm is not finite, or far above what was usual;"
        " Unknown while there is nothing to judge yet",
        fault="True",
        event=("Warning", "TrainingDiverged"),
    ),
    ConditionType(
        name="Stalled",
        meaning="no advance for far longer than is usual for the run",
        fault="True",
        ages=True,
        event=("Warning", "TrainingStalled"),
    ),
    ConditionType(
        name="NoProgress",
        meaning="three attempts in a row have ended without a new step; there once it was true",
        fault="True",
        event=("Warning", "TrainingNoProgress"),
    ),
    ConditionType(name="Reporting", meaning="progress can be read", fault="False"),
    ConditionType(name="Fresh", meaning="the numbers shown are current", fault="False", ages=True),
    ConditionType(
        name="Straggling",
        meaning="one rank is far slower than the others; there where ranks were compared",
        fault="True",
        event=("Warning", "TrainingStraggling"),
    ),
    ConditionType(
        name="Plateaued",
        meaning="no improvement for long; there once it was true",
        fault="True",
        event=("Normal", "TrainingPlateaued"),
    ),
    ConditionType(
        name="AtRisk",
        meaning="no checkpoint for a large share of the run; there where the run tells of its checkpoints",
        fault="True",
        ages=True,
        event=("Warning", "TrainingAtRisk"),
    ),
    ConditionType(
        name="LowGoodput",
        meaning="goodput is below the share that an annotation of the job says; absent without it",
        fault="True",
        ages=True,
        event=("Warning", "TrainingLowGoodput"),
    ),
    ConditionType(
        name="ShouldStop",
        meaning="the rules of an annotation of the job advise to stop it early; absent without them",
        fault="True",
        event=("Normal", "TrainingShouldStop"),
    ),
    ConditionType(
        name="AcceleratorsIdle",
        meaning="no accelerator was busy for 15 minutes, or as long as an annotation says; there once it was"
        " true",
        fault="True",
        ages=True,
        event=("Warning", "TrainingAcceleratorsIdle"),
    ),
    ConditionType(name="Suspended", meaning="as the job itself has it"),
    ConditionType(name="Complete", meaning="as the job itself has it", event=("Normal", "TrainingFinished")),
    ConditionType(name="Failed", meaning="as the job itself has it", event=("Warning", "TrainingFailed")),
)
MEANINGS = " ".join(f"{each.name}: {each.meaning}." for each in CONDITION_TYPES)
