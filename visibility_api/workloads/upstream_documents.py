"""What another cluster's server says of a job, within the limits of what is said here.

That server may be hostile: each number has a range, each text a length, each list a number of entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from visibility_api.diagnosis.result import MAX_GROUPS, MAX_SUSPECTS, Diagnosis, Group, Suspect
from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Phase
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.reports.document import Progress, Refusal, State
from visibility_api.reports.fields import MAX_INTEGER, MAX_MESSAGE_CHARACTERS, within_times
from visibility_api.reports.trainer_status import TrainerMetric, TrainerStatus, fit

from .kind import PhaseDecision
from .object_cache import Key
from .objects import KubernetesObject

MAX_SAID_CHARACTERS = 700  # of a text that is kept: with the name of the cluster it fits in a document
MAX_NAME_CHARACTERS = 253  # of a pod; also of reasons and lists of ranks
MAX_LISTED_BYTES = 48 * 1024  # of metrics, conditions and a diagnosis, each; else they are not read
_INT32 = 2**31 - 1
_NONE = msgspec.Raw(b"null")
_PHASES = {str(phase): phase for phase in Phase}
_STATES: Mapping[Phase, State] = {Phase.SUCCEEDED: "completed", Phase.FAILED: "failed"}

T = TypeVar("T")
Id = tuple[str, Key]  # resource; namespace and name


class ShownMeta(KubernetesObject, frozen=True):
    name: str
    namespace: str = ""
    creation_timestamp: datetime | None = None


class Reference(KubernetesObject, frozen=True):
    resource: str = ""
    name: str = ""


class Counted(KubernetesObject, frozen=True):
    current: int | float | None = None
    total: int | float | None = None


class ShownCondition(KubernetesObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ShownFailure(KubernetesObject, frozen=True):
    time: datetime | None = None
    replica: str = ""
    pod_name: str = ""
    node_name: str = ""
    container_name: str = ""
    exit_code: int | float | None = None
    signal: int | float | None = None
    reason: str = ""
    message: str = ""
    retryable: bool | None = None
    class_: str = msgspec.field(name="class", default="")
    cause: str = ""
    hint: str = ""
    rank: int | float | None = None


class ShownGroup(KubernetesObject, frozen=True):
    count: int | float | None = None
    ranks: str = ""
    where: str = ""


class ShownSuspect(KubernetesObject, frozen=True):
    reason: str = ""
    rank: int | float | None = None
    pod_name: str = ""
    node_name: str = ""
    step: int | float | None = None


class ShownDiagnosis(KubernetesObject, frozen=True):
    time: datetime | None = None
    requested: bool | None = None
    reason: str = ""
    message: str = ""
    hint: str = ""
    ranks_read: int | float | None = None
    pods_unread: int | float | None = None
    groups: tuple[ShownGroup, ...] = ()
    other_ranks: int | float | None = None
    suspects: tuple[ShownSuspect, ...] = ()


class Shown(KubernetesObject, frozen=True):
    """What is used of the status of a document."""

    phase: str = ""
    phase_reason: str = ""
    phase_message: str = ""
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: msgspec.Raw = _NONE
    last_updated_time: str | None = None
    end_time: datetime | None = None
    steps: Counted = Counted()
    epochs: Counted = Counted()
    message: str = ""
    conditions: msgspec.Raw = _NONE
    failure: ShownFailure | None = None
    diagnosis: msgspec.Raw = _NONE


class ShownJob(KubernetesObject, frozen=True):
    """A document of another cluster's list of all kinds."""

    metadata: ShownMeta
    job_ref: Reference = Reference()
    status: Shown = Shown()

    @property
    def id(self) -> Id:
        return self.job_ref.resource, (self.metadata.namespace, self.job_ref.name)


class Elsewhere(msgspec.Struct, frozen=True, gc=False):
    """A job of this cluster, as another one shows it."""

    decision: PhaseDecision
    report: Progress | None = None
    created_at: datetime | None = None
    failure: Failure | None = None
    diagnosis: Diagnosis | None = None
    unreported: tuple[str, str] | None = None  # why there is no report: reason and sentence
    cluster: str = ""  # its name here
    size: int = 0  # bytes, about


_metrics = msgspec.json.Decoder(tuple[TrainerMetric, ...] | None, float_hook=float)
_conditions = msgspec.json.Decoder(tuple[ShownCondition, ...] | None)
_shown_diagnosis = msgspec.json.Decoder(ShownDiagnosis | None, float_hook=float)


def read(job: ShownJob) -> Elsewhere:
    """What another cluster's document says, within this one's limits."""
    shown = job.status
    phase = _PHASES.get(shown.phase, Phase.UNKNOWN)
    diagnosis = _listed(_shown_diagnosis, shown.diagnosis)
    found = Elsewhere(
        decision=PhaseDecision(
            phase,
            shown.phase_reason[:MAX_SAID_CHARACTERS] or "SeenElsewhere",
            shown.phase_message[:MAX_SAID_CHARACTERS],
            _moment(shown.end_time),
        ),
        report=_report(shown, phase),
        created_at=_moment(job.metadata.creation_timestamp),
        failure=_failure(shown.failure) if shown.failure is not None else None,
        diagnosis=_diagnosis(diagnosis) if diagnosis is not None else None,
        unreported=_unreported(_listed(_conditions, shown.conditions) or ()),
    )
    return replace(found, size=len(msgspec.msgpack.encode(found)))


def _listed(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    """None for what is too long, or cannot be read: it costs itself only."""
    with suppress(*UNDECODABLE):
        return decoder.decode(raw) if len(raw) <= MAX_LISTED_BYTES else None
    return None


def _report(shown: Shown, phase: Phase) -> Progress | None:
    """In Kubeflow's form first, which makes hostile numbers and texts fit."""
    counted = {
        "current_step": shown.steps.current,
        "total_steps": shown.steps.total,
        "current_epoch": shown.epochs.current,
        "total_epochs": shown.epochs.total,
    }
    position = [
        TrainerMetric(name, value)
        for name, value in counted.items()
        if value is not None and 0 <= value <= MAX_INTEGER
    ]
    status = TrainerStatus(
        progress_percentage=shown.progress_percentage,
        estimated_remaining_seconds=shown.estimated_remaining_seconds,
        metrics=(*position, *(_listed(_metrics, shown.metrics) or ())),
        last_updated_time=shown.last_updated_time,
    )
    try:
        _, report = fit(status)
    except Refusal:
        return None
    message = _text(shown.message, MAX_MESSAGE_CHARACTERS) or None
    return replace(report, message=message, state=_STATES.get(phase, "running"))


def _failure(said: ShownFailure) -> Failure | None:
    """None if it has no time: then it cannot be compared with others."""
    at = _moment(said.time)
    if at is None:
        return None
    cause_class = _name(said.class_)
    # The message repeats the cause, and what the run had reported: both are added again here.
    own = said.message.partition(f"Cause ({cause_class}): ")[0] if cause_class else said.message
    own = own.partition("It had reported ")[0].rstrip()
    return Failure(
        at=at,
        replica=_name(said.replica),
        pod_name=_name(said.pod_name),
        node_name=_name(said.node_name),
        container_name=_name(said.container_name),
        exit_code=_number(said.exit_code),
        signal=_number(said.signal, 1, 64),
        reason=_name(said.reason),
        message=_text(own, MAX_MESSAGE_CHARACTERS),
        is_retryable=said.retryable,
        is_of_job=not (said.replica or said.pod_name),
        cause_class=cause_class,
        cause=_text(said.cause),
        hint=_text(said.hint),
        rank=_number(said.rank),
    )


def _diagnosis(said: ShownDiagnosis) -> Diagnosis | None:
    """None if it has no time: then it may be of another stall."""
    at = _moment(said.time)
    if at is None:
        return None
    groups = [
        Group(count=count, ranks=_name(each.ranks), where=_name(each.where))
        for each in said.groups[:MAX_GROUPS]
        if (count := _number(each.count, 1)) is not None
    ]
    suspects = [
        Suspect(
            pod_name=_name(each.pod_name),
            reason=_name(each.reason),
            rank=_number(each.rank),
            node_name=_name(each.node_name),
            step=_number(each.step, most=MAX_INTEGER),
        )
        for each in said.suspects[:MAX_SUSPECTS]
    ]
    return Diagnosis(
        at=at,
        reason=_name(said.reason),
        message=_text(said.message, MAX_MESSAGE_CHARACTERS),
        hint=_text(said.hint),
        groups=tuple(groups),
        suspects=tuple(suspects),
        read=_number(said.ranks_read) or 0,
        others=_number(said.other_ranks) or 0,
        unread=_number(said.pods_unread) or 0,
        is_requested=bool(said.requested),
    )


def _unreported(conditions: Sequence[ShownCondition]) -> tuple[str, str] | None:
    for each in conditions:
        if each.type == "Reporting" and each.status != "True":
            return _name(each.reason), _text(each.message)
    return None


def _moment(said: datetime | None) -> datetime | None:
    return None if said is None else within_times(said)


def _number(said: float | None, least: int = 0, most: int = _INT32) -> int | None:
    """A whole number in this range; None for any other."""
    return int(said) if said is not None and least <= said <= most and said == int(said) else None


def _name(said: str) -> str:
    return _text(said, MAX_NAME_CHARACTERS)


def _text(said: str, most: int = MAX_SAID_CHARACTERS) -> str:
    return harmless(said[:most])
