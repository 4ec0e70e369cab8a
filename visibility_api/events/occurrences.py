"""What in a job's documents is worth an Event. Pure: documents in, occurrences out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from visibility_api.errors.text import harmless, join_sentences
from visibility_api.jobs.job import JobRef, Phase
from visibility_api.jobs.summary import Condition, JobProgress
from visibility_api.models.condition_types import CONDITION_TYPES

MAX_NOTE_BYTES = 1000  # events.k8s.io allows 1,024
MAX_JOB_CHARACTERS = 200  # of its name in the Event's, which may have 253

NORMAL, WARNING = "Normal", "Warning"
_OF_CONDITIONS = {each.name: each.event for each in CONDITION_TYPES if each.event}
RECOVERED = "TrainingRecovered"
PROBE_REFUSED = "ProbeRefused"
DIAGNOSED = "TrainingDiagnosed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One thing that happened to one job."""

    ref: JobRef
    reason: str  # of the Event
    type: str  # Normal or Warning
    note: str
    since: datetime
    is_witnessed: bool  # this process saw that it was not so before

    @property
    def event_name(self) -> str:
        """The same for every replica and after every restart: one Event for a job, reason and minute."""
        minute = int(self.since.timestamp() // 60)
        key = f"{self.ref.uid}/{self.reason}/{minute}".encode()
        return f"{self.ref.name[:MAX_JOB_CHARACTERS].rstrip('.-')}.{hashlib.sha256(key).hexdigest()[:16]}"


def occurrences(before: JobProgress | None, now: JobProgress) -> list[Occurrence]:
    """What `now` shows that `before` did not; `before` is None for the first document of a job."""
    ref = now.job.ref
    found = []

    def add(type_: str, reason: str, note: str, since: datetime, *, is_witnessed: bool) -> None:
        text = harmless(note).encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
        found.append(
            Occurrence(ref=ref, reason=reason, type=type_, note=text, since=since, is_witnessed=is_witnessed)
        )

    diagnosis = now.diagnosis
    is_new = diagnosis is not None and (before is None or before.diagnosis != diagnosis)
    if diagnosis is not None and is_new and (now.stall is not None or diagnosis.is_requested):
        note = join_sentences(diagnosis.message, diagnosis.hint)
        type_ = WARNING if now.stall is not None else NORMAL
        add(type_, DIAGNOSED, note, diagnosis.at, is_witnessed=before is not None)
    for condition in now.conditions:
        held = before.condition(condition.type) if before is not None else None
        if held is not None and held.status == condition.status and held.since == condition.since:
            continue
        type_, reason = _OF_CONDITIONS.get(condition.type, ("", ""))
        if condition.status == "True" and reason:
            was_otherwise = held is not None and held.status == "False"
            has_ended = condition.type in ("Complete", "Failed")
            add(
                type_,
                reason,
                _describe(condition, now) or f"{condition.type}.",
                condition.since,
                is_witnessed=was_otherwise or (has_ended and before is not None and _runs(before)),
            )
        elif condition.type == "Stalled" and condition.reason == "Advancing":
            if held is not None and held.status == "True":
                add(NORMAL, RECOVERED, "The run advances again.", condition.since, is_witnessed=True)
        elif condition.type == "Reporting" and condition.reason.endswith("Forbidden"):
            note, was_fine = condition.message or "Reporting.", held is not None and held.status != "False"
            add(WARNING, PROBE_REFUSED, note, condition.since, is_witnessed=was_fine)
    return found


def _runs(document: JobProgress) -> bool:
    return document.phase is Phase.RUNNING


def _describe(condition: Condition, document: JobProgress) -> str:
    """The condition's message, or more where that does not say it all."""
    if condition.type == "Complete":
        return _describe_end(document)
    if condition.type == "Failed":
        return _describe_failure(condition, document)
    return condition.message


def _describe_failure(condition: Condition, document: JobProgress) -> str:
    """What the controller says, and what failed first: a JobSet says no more than that something did."""
    failure = document.failure
    if failure is None or not failure.replica:
        return condition.message
    return join_sentences(condition.message, failure.message, failure.because)


def _describe_end(document: JobProgress) -> str:
    """Numbers only: what the run says of itself is for those who may read its progress."""
    step = f" at step {document.step}" if document.step is not None else ""
    if step and document.total_steps is not None:
        step += f" of {document.total_steps}"
    ran = f" after {document.ran_s} s" if document.ran_s is not None else ""
    return f"The run has finished{ran}{step}."
