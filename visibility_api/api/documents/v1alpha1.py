"""The encoder of v1alpha1: one internal document becomes the JSON of one TrainJobProgress (design.md 3).

Absent is absent: no field is ever null, and none is 0 because nothing is known. Numbers are kept to what
every JSON reader holds (R18), times to whole seconds in UTC. Field names are the wire's.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec
import structlog

from visibility_api.api.resources import GROUP_VERSION, Resource
from visibility_api.faults import describe_fault
from visibility_api.progress.job import Rank0, Replica, Termination
from visibility_api.progress.summary import Condition, JobProgress, ObservationSummary
from visibility_api.store import Entry

log = structlog.get_logger(__name__)


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: str | None = None
    labels: dict[str, str] = {}


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    value: str


class Steps(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    current: int | None = None
    total: int | None = None
    perSecond: float | None = None


class Epochs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    current: float | None = None
    total: float | None = None


class MetaCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """metav1.Condition: all five are always there."""

    type: str
    status: str
    lastTransitionTime: str
    reason: str
    message: str


class LastTermination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    exitCode: int
    signal: int | None = None
    reason: str = ""
    retryable: bool | None = None
    finishedAt: str | None = None


class Rank0Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    podName: str
    nodeName: str | None = None
    containerName: str
    restartCount: int
    lastTermination: LastTermination | None = None


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    desired: int | None = None
    ready: int | None = None
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: str
    lastProbeTime: str | None = None
    nextProbeTime: str | None = None
    latencySeconds: float | None = None
    consecutiveFailures: int
    reason: str = ""
    message: str = ""


class ProgressStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    phase: str
    progressPercentage: int | None = None
    estimatedRemainingSeconds: int | None = None
    metrics: tuple[Metric, ...] = ()
    lastUpdatedTime: str | None = None
    estimatedCompletionTime: str | None = None
    startTime: str | None = None
    steps: Steps | None = None
    epochs: Epochs | None = None
    message: str = ""
    conditions: tuple[MetaCondition, ...] = ()
    rank0: Rank0Status | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    observation: Observation | None = None


_encoder = msgspec.json.Encoder()
_VERSION = GROUP_VERSION.encode()


class Codec:
    """Encodes the entries of one resource, each form of an entry once."""

    def __init__(self, resource: Resource) -> None:
        # `kind` first, as the API server writes them.
        self.head = b'{"kind":"%s","apiVersion":"%s","metadata":' % (resource.kind.encode(), _VERSION)
        self.list_head = b'{"kind":"%s","apiVersion":"%s","metadata":' % (
            resource.list_kind.encode(),
            _VERSION,
        )

    def document(self, entry: Entry) -> bytes:
        """The whole object as compact JSON, without a newline."""
        return entry.encoded("object", self._document)

    def metadata(self, entry: Entry) -> bytes:
        """Its `metadata` alone."""
        return entry.encoded("metadata", encode_metadata)

    def _document(self, entry: Entry) -> bytes:
        try:
            status = _encoder.encode(_status(entry.document))
        except Exception as error:  # one job must not take the list from everybody (decision 0005)
            log.error("document not encoded", job=str(entry.document.job.ref), **describe_fault(error))
            status = _encoder.encode(ProgressStatus(phase=entry.document.phase.value))
        return b'%s%s,"status":%s}' % (self.head, self.metadata(entry), status)


def encode_metadata(entry: Entry) -> bytes:
    """The TrainJob's own identity and labels, with our resourceVersion (design.md 3)."""
    job = entry.document.job
    return _encoder.encode(
        ObjectMeta(
            name=job.ref.name,
            namespace=job.ref.namespace,
            uid=job.ref.uid,
            resourceVersion=str(entry.revision),
            creationTimestamp=_time(job.created_at),
            labels=dict(job.labels),
        )
    )


def _status(document: JobProgress) -> ProgressStatus:
    return ProgressStatus(
        phase=document.phase.value,
        progressPercentage=document.progress_percentage,
        estimatedRemainingSeconds=document.remaining_s,
        metrics=tuple(Metric(name=name, value=value) for name, value in document.metrics),
        lastUpdatedTime=_time(document.updated_at),
        estimatedCompletionTime=_time(document.completion_at),
        startTime=_time(document.started_at),
        steps=_steps(document),
        epochs=_epochs(document),
        message=document.message or "",
        conditions=tuple(_condition(condition) for condition in document.conditions),
        rank0=_rank0(document.job.rank0) if document.job.rank0 is not None else None,
        replicas=tuple(_replica(replica) for replica in document.job.replicas),
        observation=_observation(document.observation) if document.observation is not None else None,
    )


def _steps(document: JobProgress) -> Steps | None:
    if document.step is None and document.total_steps is None and document.steps_per_s is None:
        return None
    return Steps(
        current=document.step, total=document.total_steps, perSecond=_significant(document.steps_per_s)
    )


def _epochs(document: JobProgress) -> Epochs | None:
    if document.epoch is None and document.total_epochs is None:
        return None
    return Epochs(current=_plain(document.epoch), total=_plain(document.total_epochs))


def _condition(condition: Condition) -> MetaCondition:
    return MetaCondition(
        type=condition.type,
        status=condition.status,
        lastTransitionTime=rfc3339(condition.since),
        reason=condition.reason,
        message=condition.message,
    )


def _rank0(rank0: Rank0) -> Rank0Status:
    return Rank0Status(
        podName=rank0.pod_name,
        nodeName=rank0.node_name,
        containerName=rank0.container_name,
        restartCount=rank0.restart_count,
        lastTermination=_termination(rank0.last_termination) if rank0.last_termination is not None else None,
    )


def _termination(ended: Termination) -> LastTermination:
    return LastTermination(
        exitCode=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
        retryable=ended.is_retryable,
        finishedAt=_time(ended.finished_at),
    )


def _replica(replica: Replica) -> ReplicaStatus:
    return ReplicaStatus(
        name=replica.name,
        desired=replica.desired,
        ready=replica.ready,
        active=replica.active,
        succeeded=replica.succeeded,
        failed=replica.failed,
    )


def _observation(seen: ObservationSummary) -> Observation:
    return Observation(
        source=seen.source,
        lastProbeTime=_time(seen.last_probe_at),
        nextProbeTime=_time(seen.next_probe_at),
        latencySeconds=_significant(seen.latency_s),
        consecutiveFailures=seen.consecutive_failures,
        reason=seen.reason,
        message=seen.message,
    )


def rfc3339(moment: datetime) -> str:
    """Whole seconds in UTC, as `metav1.Time` (R18)."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    text: str = msgspec.to_builtins(moment)  # as JSON has it: a tenth of what `isoformat` costs
    return text[:19] + "Z"


def _time(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment is not None else None


def _significant(value: float | None) -> float | None:
    """Four significant digits: more of a rate or a latency is noise."""
    return _plain(float(f"{value:.4g}")) if value is not None else None


def _plain(value: float | None) -> float | None:
    """The same number; a whole one as integer, so that three epochs read `3`. Not finite: absent."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value
