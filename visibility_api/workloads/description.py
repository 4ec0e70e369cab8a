"""The domain's view of one job, from what its kind says of its objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Phase, ProbeHints, Rank0, TrainingJob
from visibility_api.reports.fields import MAX_INTEGER

from .annotations import PREFIX, JobAnnotations, read_annotations
from .failures import Replica, job_failure, latest, pod_failure
from .kind import MAX_GROUPS, Group, JobKind, Parts, View
from .objects import MAX_NAMES, ObjectCondition
from .phase import QUEUE_NAME, job_phase, true_condition
from .rank0 import describe_initializer, describe_rank0
from .upstream_documents import Elsewhere

MAX_COLUMN_CHARACTERS = 64
MAX_REASON_CHARACTERS, MAX_MESSAGE_CHARACTERS = 256, 1024


def describe_job(
    kind: JobKind,
    job: Any,  # noqa: ANN401 - of the kind's own type
    parts: Parts,
    said: Mapping[str, str],
    elsewhere: Elsewhere | None = None,
) -> TrainingJob:
    """`said`: the progress that its initializers have printed, by their runs. `elsewhere`: what the cluster
    that runs it shows."""
    meta, conditions = job.metadata, kind.conditions(job)
    view = kind.view(job, parts)
    elsewhere = elsewhere if view.manager else None
    annotations = read_annotations(meta.annotations)
    led = [group for name in view.leaders for group in view.groups if group.name == name]
    found = [(group, rank0) for group in led if (rank0 := _rank0(group, annotations)) is not None]
    rank0 = found[0][1] if found else None
    rivals = next((group.claim.rivals for group, _ in found if group.claim and group.claim.rivals), ())
    # They end before rank 0 begins.
    preparing = [group for group in view.groups if group.is_initializer and group.claim is not None]
    if rank0 is not None and rank0.is_running:
        preparing = []
    at_work = [
        at_work
        for group in preparing
        if group.claim is not None and (at_work := describe_initializer(group.claim.pod, group.name))
    ]
    decision = job_phase(
        meta,
        conditions,
        view,
        kind.success,
        rank0,
        {i.name: said[i.attempt] for i in at_work if i.attempt in said},
    )
    if elsewhere is not None and not decision.phase.is_final:
        decision = decision if decision.phase is Phase.SUSPENDED else elsewhere.decision
    is_suspended = decision.phase is Phase.SUSPENDED
    suspension = next((each for each in conditions if each.type == "Suspended"), None)
    return TrainingJob(
        ref=JobRef(resource=kind.served.plural, namespace=meta.namespace, name=meta.name, uid=meta.uid),
        labels=meta.labels or {},
        created_at=meta.creation_timestamp,
        phase=decision.phase,
        reason=harmless(decision.reason[:MAX_REASON_CHARACTERS]),
        message=harmless(decision.message[:MAX_MESSAGE_CHARACTERS]),
        is_suspended=is_suspended or (False if suspension is not None else None),
        suspension_changed_at=suspension.last_transition_time
        if suspension is not None and (suspension.status == "True") == is_suspended
        else None,
        ended_at=decision.since if decision.phase.is_final else None,
        is_queued=is_suspended and bool(meta.label(QUEUE_NAME)),
        rank0=rank0,
        alternates=tuple([other for _, other in found[1:]]),
        initializers=tuple(at_work) if decision.phase is Phase.INITIALIZING else (),
        replicas=tuple([group.counts for group in islice(view.groups, MAX_GROUPS)]),
        hints=_with_faults(annotations, rank0, rivals, view.faults),
        accelerators=_accelerators(view.groups),
        failure=(elsewhere.failure if elsewhere is not None else None)
        or _failure(view, conditions, decision.phase, [*(group for group, _ in found), *preparing], rank0),
        unread=_unread(kind, job, view, led),
        runs_elsewhere=bool(view.manager),
        cluster=elsewhere.cluster if elsewhere is not None else "",
        diagnosis=elsewhere.diagnosis if elsewhere is not None else None,
        unreported=elsewhere.unreported if elsewhere is not None else None,
        columns=tuple([harmless(each[:MAX_COLUMN_CHARACTERS]) for each in view.columns]),
    )


def _rank0(group: Group, annotations: JobAnnotations) -> Rank0 | None:
    if group.claim is None:
        return None
    return describe_rank0(
        group.claim.pod, annotations, container=group.container, restart_attempt=group.restart_attempt
    )


def _unread(kind: JobKind, job: Any, view: View, led: Sequence[Group]) -> tuple[str, str] | None:  # noqa: ANN401
    """The first object on the way to rank 0 that could not be read, and why."""
    if job.metadata.unread:
        return f"{kind.name} {job.metadata.name}", job.metadata.unread
    if view.unread is not None:
        return view.unread
    for group in led:
        if group.unread is not None:
            return group.unread
        if group.claim is not None and (why := group.claim.pod.metadata.unread):
            return f"pod {group.claim.pod.metadata.name}", why
    return None


def _failure(
    view: View,
    conditions: Sequence[ObjectCondition],
    phase: Phase,
    groups: Sequence[Group],
    rank0: Rank0 | None,
) -> Failure | None:
    """The first failure of the last attempt, as far as the watched objects show it. `groups`: whose pods
    count."""
    if phase is Phase.SUCCEEDED:
        return None  # pods that end afterwards do not count
    found = [
        failure
        for group in groups
        if group.claim is not None and (failure := pod_failure(group.claim.pod, _replica(group))) is not None
    ]
    condition = true_condition(conditions, "Failed")
    if phase is Phase.FAILED and condition is not None:
        of_job = job_failure(condition)
        found += [of_job] if of_job is not None else []
        found += [failure for group in view.groups for failure in group.failures]
    return latest(found, started_at=rank0.started_at if rank0 is not None else None) if found else None


def _replica(group: Group) -> Replica:
    if group.is_initializer:
        return Replica(name=group.name, is_initializer=True)
    return Replica(name=f"{group.name}-0")


def _with_faults(
    annotations: JobAnnotations, rank0: Rank0 | None, rivals: Sequence[str], found: Sequence[str]
) -> ProbeHints:
    """With faults that need a pod: an annotated container that does not exist, a second pod of rank 0."""
    faults = list(found)
    if rank0 is not None and annotations.container not in (None, rank0.container_name):
        faults.append(
            f"Annotation {PREFIX}container is ignored: pod {rank0.pod_name} has no container of that name; "
            f"{rank0.container_name} is read."
        )
    if rivals:
        others = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
        faults.append(
            f"Pod {rivals[0]}{others} claims to be rank 0 as well and is not read. "
            "The Job controller makes no such pod: find out who created it (docs/security.md)."
        )
    hints = annotations.hints
    return msgspec.structs.replace(hints, faults=(*hints.faults, *faults)) if faults else hints


def _accelerators(groups: Sequence[Group]) -> tuple[tuple[str, int], ...]:
    """How many of each name the pods of the job request together. Initializers have ended before they run."""
    held: dict[str, int] = {}
    for group in groups:
        if group.is_initializer:
            continue
        for name, number in (group.held or {}).items():
            held[name] = min(held.get(name, 0) + number * (group.counts.desired or 0), MAX_INTEGER)
        for name in group.shared or ():
            held[name] = 1
    return tuple(sorted(held.items())[:MAX_NAMES])
