"""What the archive keeps of a job: its record, and the end of its log, as they are served later."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from visibility_api.archive.backlog import Encoded
from visibility_api.history.best import best_value
from visibility_api.history.job_history import JobHistory
from visibility_api.history.view import HistoryView, Selection, select
from visibility_api.jobs.goodput import goodput, read_goodput
from visibility_api.jobs.summary import JobProgress
from visibility_api.models import job_records as models, meta_v1, v1alpha1
from visibility_api.models.served import GROUP_VERSION, JOB_RECORDS
from visibility_api.models.wire import struct_of
from visibility_api.probing.log_end import LogEnd
from visibility_api.store import Entry

from .history import encode_json
from .v1alpha1 import shown_time, status_of

MAX_LABEL_CHARACTERS = 4096  # of one record

_ObjectMeta = struct_of(meta_v1.ObjectMeta)
_JobReference = struct_of(v1alpha1.JobReference)
_Metric = struct_of(v1alpha1.Metric)
_Steps = struct_of(v1alpha1.Steps)
_Summary = struct_of(models.RecordSummary)
_encode = msgspec.json.Encoder().encode
_HEAD = b'{"kind":"JobRecord","apiVersion":"%s",' % GROUP_VERSION.encode()
_WHOLE = Selection()


def encode_record(document: JobProgress, history: JobHistory | None, is_deleted: bool, kind: str) -> Encoded:
    """What the archive keeps of a job; `is_deleted`: before it had ended. `kind`: such as PyTorchJob."""
    ref, failed, rank0 = document.job.ref, document.failure, document.job.rank0
    entry = Entry(revision=1, document=document)
    view = select(history, _WHOLE, now_s=datetime.now(UTC).timestamp())
    line = b'%s"metadata":%s,"jobRef":%s,"summary":%s}' % (
        _HEAD,
        _encode(
            _ObjectMeta(
                name=f"{ref.name}-{ref.uid[:8]}",
                namespace=ref.namespace,
                uid=ref.uid,
                resource_version="1",  # a record does not change
                creation_timestamp=shown_time(document.job.created_at),
                labels=_few(document.job.labels) or None,
            )
        ),
        _encode(_JobReference(kind=kind, resource=ref.resource, name=ref.name, uid=ref.uid)),
        _encode(_summarise(document, is_deleted, view)),
    )
    pods = (failed.pod_name if failed is not None else "", rank0.pod_name if rank0 is not None else "")
    return Encoded(
        line,
        b'%s,"progress":%s,"history":%s}'
        % (line[:-1], _encode(status_of(document)), encode_json(JOB_RECORDS, entry, view)),
        tuple(filter(None, dict.fromkeys(pods))),
    )


def encode_log(end: LogEnd, cause_line: str | None) -> bytes:
    """What the archive keeps of a log: `JobRecordLogTail` without kind and metadata."""
    place = end.place
    return _encode(
        {
            "podName": place.pod_name,
            **({"containerName": place.container_name} if place.container_name else {}),
            **({"replica": place.replica} if place.replica else {}),
            "previous": place.is_previous,
            "truncated": end.is_cut,
            **({"causeLine": cause_line} if cause_line is not None else {}),
            "lines": end.lines,
        }
    )


def _few(labels: Mapping[str, str]) -> dict[str, str]:
    """Of a job with very many labels the first: an index has a line for each job."""
    kept, size = {}, 0
    for key, value in labels.items():
        size += len(key) + len(value)
        if size > MAX_LABEL_CHARACTERS:
            break
        kept[key] = value
    return kept


def _summarise(document: JobProgress, is_deleted: bool, view: HistoryView) -> models.RecordSummary:
    last = document.metrics[: models.MAX_METRICS]
    earlier: dict[str, list[float]] = {}
    for each in view.series:
        earlier.setdefault(each.metric, []).extend(each.values)
    best = [(name, best_value(name, value, earlier.get(name, ()))) for name, value in last]
    account, failed, held = read_goodput(document.goodput), document.failure, document.resources
    share = None if account is None else goodput(account.ledger.whole)
    has_steps = document.step is not None or document.total_steps is not None
    return _Summary(
        phase=document.phase.value,
        deleted=is_deleted or None,
        start_time=shown_time(document.started_at),
        end_time=shown_time(document.ended_at or document.updated_at or document.job.created_at),
        duration_seconds=document.ran_s,
        attempts=document.attempts,
        progress_percentage=document.progress_percentage,
        steps=_Steps(current=document.step, total=document.total_steps) if has_steps else None,
        metrics=tuple(_Metric(name=name, value=value) for name, value in last) or None,
        best=tuple(_Metric(name=name, value=value) for name, value in best if value is not None) or None,
        accelerators=None if held is None else held.accelerators,
        accelerator_seconds=None if held is None else held.held_s,
        goodput_percentage=None if share is None else round(100 * share, 1),
        cause=None if failed is None else failed.cause_class or failed.reason or None,
    )
