"""Builders of training jobs, their rank 0 and their documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from visibility_api.jobs.account import Account
from visibility_api.jobs.job import JobRef, Phase, Rank0, Termination, TrainingJob
from visibility_api.jobs.ledger import KINDS, PRODUCTIVE, Ledger
from visibility_api.jobs.saved_account import save_account
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary

T0 = datetime(2026, 1, 23, 10, 0, tzinfo=UTC)
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def job_ref(
    name: str = "bert", namespace: str = "team-a", uid: str = "", resource: str = "trainjobs"
) -> JobRef:
    return JobRef(resource=resource, namespace=namespace, name=name, uid=uid or f"uid-of-{namespace}-{name}")


REF = job_ref(uid="u1")
RANK0 = Rank0(
    pod_name="bert-node-0-0-abcde",
    pod_uid="p1",
    pod_ip="10.0.0.7",
    host_network=False,
    node_name="gpu-1",
    container_name="node",
    progress_path="/tmp/trainjob-progress.json",
    is_running=True,
    is_terminating=False,
    waiting_reason="",
    restart_count=0,
    restart_attempt=0,
    started_at=T0,
    last_termination=None,
    termination_message="",
)
RESTARTED = replace(RANK0, restart_count=1, started_at=T0 + timedelta(seconds=60))
JOB = TrainingJob(ref=REF, created_at=T0, phase=Phase.RUNNING, reason="Rank0Running", rank0=RANK0)
KILLED = Termination(exit_code=137, signal=9, reason="OOMKilled", finished_at=T0)


def rank0(**changes: Any) -> Rank0:
    """RANK0 with other values."""
    return replace(RANK0, **changes)


def document(
    name: str = "bert",
    *,
    namespace: str = "team-a",
    uid: str = "",
    resource: str = "trainjobs",
    phase: Phase = Phase.RUNNING,
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> JobProgress:
    """What is shown of a job without a pod."""
    ref = job_ref(name, namespace, uid, resource)
    job = TrainingJob(ref=ref, labels=labels or {}, created_at=NOW - timedelta(minutes=9), phase=phase)
    return JobProgress(job=job, phase=phase, **more)


def spent(seconds: Mapping[str, float], until: datetime = NOW) -> bytes:
    """The account of a job that has spent these seconds by kind, evenly, and is productive now."""
    ledger = Ledger(until.timestamp() - sum(seconds.values()))
    ledger.add([seconds.get(kind, 0.0) for kind in KINDS], until.timestamp())
    account = Account(ledger)
    account.doing = PRODUCTIVE
    return save_account(account)


def reported(
    step: int,
    *,
    of: JobRef | None = None,
    phase: Phase = Phase.RUNNING,
    reporting: str = "True",
    source: str = "exec",
    at_s: float | None = None,
    **more: Any,
) -> JobProgress:
    """What is shown of a job at step `step` of 1000, reported at that second."""
    return JobProgress(
        job=TrainingJob(ref=of or job_ref(), created_at=T0, phase=phase),
        phase=phase,
        step=step,
        total_steps=1000,
        progress_percentage=step // 10,
        updated_at=T0 + timedelta(seconds=step if at_s is None else at_s),
        conditions=(
            Condition(type="Reporting", status=reporting, reason="DocumentRead", message="", since=T0),
        ),
        observation=ObservationSummary(
            source=source,
            last_probe_at=None,
            next_probe_at=None,
            latency_s=None,
            consecutive_failures=0,
            reason="",
            message="",
        ),
        **more,
    )
