"""Encodes the internal document as the JSON of a v1alpha1 TrainJobProgress.

A field without a value is absent: none is null, and none is 0 because nothing is known. Numbers are those
that every JSON reader can represent, times are whole seconds in UTC. The fields: `models/v1alpha1.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec
import structlog

from visibility_api.diagnosis.result import Diagnosis
from visibility_api.errors.text import describe_fault, join_sentences
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Rank0, Replica, Termination
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary, Resources
from visibility_api.models import meta_v1, v1alpha1
from visibility_api.models.served import GROUP_VERSION, Resource
from visibility_api.models.wire import struct_of
from visibility_api.store import Entry

from .columns import COLUMNS, Cell, Column, leading_cells, own_columns, trailing_cells
from .goodput import encode_goodput

log = structlog.get_logger(__name__)

_ObjectMeta = struct_of(meta_v1.ObjectMeta)
_Condition = struct_of(meta_v1.Condition)
_Metric = struct_of(v1alpha1.Metric)
_TimeRange = struct_of(v1alpha1.TimeRange)
_Steps = struct_of(v1alpha1.Steps)
_Epochs = struct_of(v1alpha1.Epochs)
_Checkpoint = struct_of(v1alpha1.Checkpoint)
_Failure = struct_of(v1alpha1.Failure)
_DiagnosisGroup = struct_of(v1alpha1.DiagnosisGroup)
_DiagnosisSuspect = struct_of(v1alpha1.DiagnosisSuspect)
_Diagnosis = struct_of(v1alpha1.Diagnosis)
_AcceleratorCount = struct_of(v1alpha1.AcceleratorCount)
_Resources = struct_of(v1alpha1.Resources)
_Rank0 = struct_of(v1alpha1.Rank0)
_Termination = struct_of(v1alpha1.Termination)
_Replica = struct_of(v1alpha1.Replica)
_Observation = struct_of(v1alpha1.Observation)
_ProgressStatus = struct_of(v1alpha1.ProgressStatus)

_encoder = msgspec.json.Encoder()
_VERSION = GROUP_VERSION.encode()


class Codec:
    """Encodes the entries of one resource; the bytes are cached in the entry."""

    form = ""  # in the names of what is kept of an entry, where another codec would encode it otherwise
    columns: Sequence[Column] = COLUMNS

    def __init__(self, resource: Resource) -> None:
        # `kind` first, as the API server writes it.
        self.head = b'{"kind":"%s","apiVersion":"%s","metadata":' % (resource.kind.encode(), _VERSION)
        self.list_head = b'{"kind":"%s","apiVersion":"%s","metadata":' % (
            resource.list_kind.encode(),
            _VERSION,
        )
        self._own = len(resource.columns)
        if resource.columns:
            self.columns = (*COLUMNS, *own_columns(resource.columns))

    def document(self, entry: Entry) -> bytes:
        """The whole object as compact JSON, without a newline."""
        return entry.encoded("object", self._document)

    def metadata(self, entry: Entry) -> bytes:
        """The object's `metadata` as compact JSON."""
        return entry.encoded("metadata", encode_metadata)

    def leading_cells(self, document: JobProgress) -> Sequence[Cell]:
        """Those of a Table before the ages."""
        return leading_cells(document)

    def trailing_cells(self, document: JobProgress) -> Sequence[Cell]:
        """Those after the ages."""
        own = document.job.columns[: self._own]  # another replica may know more, or fewer
        return (*trailing_cells(document), *(each or None for each in own), *[None] * (self._own - len(own)))

    def _document(self, entry: Entry) -> bytes:
        try:
            status = _encoder.encode(status_of(entry.document))
        except Exception as error:  # docs/decisions/0005: one job must not break the list
            log.error("document not encoded", job=str(entry.document.job.ref), **describe_fault(error))
            status = _encoder.encode(_ProgressStatus(phase=entry.document.phase.value))
        return b'%s%s,"status":%s}' % (self.head, self.metadata(entry), status)


def encode_metadata(entry: Entry) -> bytes:
    """`metadata` as compact JSON."""
    return _encoder.encode(metadata_of(entry))


def metadata_of(entry: Entry) -> meta_v1.ObjectMeta:
    """The TrainJob's own identity and labels, with our resourceVersion."""
    job = entry.document.job
    return _ObjectMeta(
        name=job.ref.name,
        namespace=job.ref.namespace,
        uid=job.ref.uid,
        resource_version=str(entry.revision),
        creation_timestamp=shown_time(job.created_at),
        labels=dict(job.labels) or None,
    )


def status_of(document: JobProgress, **more: Any) -> v1alpha1.ProgressStatus:  # noqa: ANN401 - of any field
    """The document's `status`, with `more` fields."""
    return _ProgressStatus(
        phase=document.phase.value,
        phase_reason=document.job.reason or None,
        phase_message=document.job.message or None,
        attempts=document.attempts,
        progress_percentage=document.progress_percentage,
        estimated_remaining_seconds=document.remaining_s,
        metrics=tuple([_Metric(name=name, value=value) for name, value in document.metrics]) or None,
        last_updated_time=shown_time(document.updated_at),
        estimated_completion_time=shown_time(document.completion_at),
        estimated_completion_range=_range(document.completion_range),
        start_time=shown_time(document.started_at),
        end_time=shown_time(document.ended_at),
        duration_seconds=document.ran_s,
        steps=_steps(document),
        epochs=_epochs(document),
        message=document.message or None,
        failure=_failure(document.failure) if document.failure is not None else None,
        diagnosis=shown_diagnosis(document.diagnosis) if document.diagnosis is not None else None,
        conditions=tuple([_condition(condition) for condition in document.conditions]) or None,
        rank0=_rank0(document.job.rank0) if document.job.rank0 is not None else None,
        replicas=tuple([_replica(replica) for replica in document.job.replicas]) or None,
        resources=_resources(document.resources) if document.resources is not None else None,
        checkpoint=_checkpoint(document.checkpoint),
        goodput=encode_goodput(document),
        observation=_observation(document.observation) if document.observation is not None else None,
        **more,
    )


def _steps(document: JobProgress) -> v1alpha1.Steps | None:
    if document.step is None and document.total_steps is None and document.steps_per_s is None:
        return None
    return _Steps(
        current=document.step, total=document.total_steps, per_second=_significant(document.steps_per_s)
    )


def _checkpoint(last: tuple[int, datetime] | None) -> v1alpha1.Checkpoint | None:
    return None if last is None else _Checkpoint(step=last[0], time=_whole_seconds(last[1]))


def _epochs(document: JobProgress) -> v1alpha1.Epochs | None:
    if document.epoch is None and document.total_epochs is None:
        return None
    return _Epochs(current=_plain(document.epoch), total=_plain(document.total_epochs))


def _condition(condition: Condition) -> meta_v1.Condition:
    return _Condition(
        type=condition.type,
        status=cast(Literal["True", "False", "Unknown"], condition.status),
        last_transition_time=_whole_seconds(condition.since),
        reason=condition.reason,
        message=condition.message,
    )


def _rank0(rank0: Rank0) -> v1alpha1.Rank0:
    return _Rank0(
        pod_name=rank0.pod_name,
        node_name=rank0.node_name,
        container_name=rank0.container_name,
        restart_count=rank0.restart_count,
        last_termination=shown_termination(rank0.last_termination),
    )


def shown_termination(ended: Termination | None) -> v1alpha1.Termination | None:
    """How a container ended."""
    if ended is None:
        return None
    return _Termination(
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason or None,
        retryable=ended.is_retryable,
        finished_at=shown_time(ended.finished_at),
    )


def _failure(failure: Failure) -> v1alpha1.Failure:
    return _Failure(
        time=_whole_seconds(failure.at),
        replica=failure.replica or None,
        pod_name=failure.pod_name or None,
        node_name=failure.node_name or None,
        container_name=failure.container_name or None,
        exit_code=failure.exit_code,
        signal=failure.signal,
        reason=failure.reason or None,
        message=join_sentences(failure.message, failure.because, failure.reached) or None,
        retryable=failure.is_retryable,
        class_=failure.cause_class or None,
        cause=failure.cause or None,
        hint=failure.hint or None,
        rank=failure.rank,
    )


def shown_diagnosis(diagnosis: Diagnosis, *, has_frames: bool = False) -> v1alpha1.Diagnosis:
    """`has_frames`: for a reader who may read the logs of the pods."""
    return _Diagnosis(
        time=_whole_seconds(diagnosis.at),
        requested=diagnosis.is_requested or None,
        reason=diagnosis.reason,
        message=diagnosis.message,
        hint=diagnosis.hint or None,
        ranks_read=diagnosis.read,
        pods_unread=diagnosis.unread or None,
        groups=tuple(
            [
                _DiagnosisGroup(
                    count=each.count,
                    ranks=each.ranks or None,
                    where=each.where,
                    frames=(each.frames or None) if has_frames else None,
                )
                for each in diagnosis.groups
            ]
        )
        or None,
        other_ranks=diagnosis.others or None,
        suspects=tuple(
            [
                _DiagnosisSuspect(
                    reason=each.reason,
                    rank=each.rank,
                    pod_name=each.pod_name,
                    node_name=each.node_name or None,
                    step=each.step,
                )
                for each in diagnosis.suspects
            ]
        )
        or None,
    )


def _replica(replica: Replica) -> v1alpha1.Replica:
    return _Replica(
        name=replica.name,
        desired=replica.desired,
        ready=replica.ready,
        active=replica.active,
        succeeded=replica.succeeded,
        failed=replica.failed,
    )


def _resources(held: Resources) -> v1alpha1.Resources:
    return _Resources(
        accelerators=held.accelerators,
        by_name=tuple([_AcceleratorCount(name=name, count=count) for name, count in held.by_name]),
        accelerator_seconds=held.held_s,
        wasted_accelerator_seconds=held.wasted_s,
    )


def _observation(seen: ObservationSummary) -> v1alpha1.Observation:
    return _Observation(
        source=seen.source,
        last_probe_time=shown_time(seen.last_probe_at),
        next_probe_time=shown_time(seen.next_probe_at),
        latency_seconds=_significant(seen.latency_s),
        consecutive_failures=seen.consecutive_failures,
        reason=seen.reason or None,
        message=seen.message or None,
    )


def _whole_seconds(moment: datetime) -> datetime:
    """In UTC, as `metav1.Time`. In fact the encoded text: `datetime.replace` costs three times as much."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    text: str = msgspec.to_builtins(moment)  # as in JSON: a tenth of the cost of `isoformat`
    return cast(datetime, text[:19] + "Z")


def shown_time(moment: datetime | None) -> datetime | None:
    """As Kubernetes writes it."""
    return _whole_seconds(moment) if moment is not None else None


def _range(moments: tuple[datetime, datetime] | None) -> v1alpha1.TimeRange | None:
    if moments is None:
        return None
    return _TimeRange(earliest=_whole_seconds(moments[0]), latest=_whole_seconds(moments[1]))


def _significant(value: float | None) -> float | None:
    """Four significant digits; further ones of a rate or a latency are noise."""
    return _plain(float(f"{value:.4g}")) if value is not None else None


def _plain(value: float | None) -> float | None:
    """The same number, as an integer if it is whole: three epochs are `3`. None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value
