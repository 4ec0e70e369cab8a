"""What the cluster shows of one training job: identity, phase, rank 0, replicas.

Knows no Kubernetes object; `workloads` builds these values from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

import msgspec

from visibility_api.diagnosis.result import Diagnosis

from .failure import Failure

ANNOTATION = "annotation "  # begins the place where something is declared
ANNOTATED_PATH = ("exec", ANNOTATION + "visibility.trainer.kubeflow.org/path")
SEGMENTATION_FAULT, LOST_CONNECTION = 139, 255  # exit codes; 255: of ssh, mpirun and kubectl exec
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Phase(StrEnum):
    """Where a job stands; workloads/phase.py says how a TrainJob's conditions map to it."""

    PENDING = "Pending"
    INITIALIZING = "Initializing"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = (Phase.SUCCEEDED, Phase.FAILED)


class JobRef(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, gc=False):
    """Identity of one job: two jobs of the same name, one after the other, differ in uid."""

    resource: str  # plural of the workload's own resource, e.g. "trainjobs"
    namespace: str
    name: str
    uid: str

    @property
    def qualified_name(self) -> str:
        """Among jobs of all kinds: plurals have no dot, so the part before the first one is the resource."""
        return f"{self.resource}.{self.name}"

    def __str__(self) -> str:
        return f"{self.resource}/{self.namespace}/{self.name}"

    def __lt__(self, other: JobRef) -> bool:
        """In the order of lists."""
        return (*list_order(self.namespace, self.name), self.uid) < (
            *list_order(other.namespace, other.name),
            other.uid,
        )


def list_order(namespace: str, name: str) -> tuple[str, str]:
    """What lists are sorted by: etcd's keys, in which "team-a-dev/x" comes before "team-a/x"."""
    return f"{namespace}/", name


def exit_signal(exit_code: int, signal: int | None) -> int | None:
    """The signal that ended a process. Container runtimes seldom give it; by convention the exit code is
    128 + signal instead."""
    return signal or (exit_code - 128 if 128 < exit_code <= 192 else None)


def is_worth_retrying(exit_code: int, reason: str) -> bool | None:
    """Whether trying again may help; None after a success, and where that depends. Above 128 a signal ended
    the process, so the node or the scheduler may have: Kubeflow's `RestartPolicy: ExitCode` retries those."""
    if exit_code == 0 or exit_code == LOST_CONNECTION:
        return None
    if reason == "OOMKilled" or exit_code == SEGMENTATION_FAULT:
        return False  # tends to repeat
    return exit_code > 128


class Termination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a container last ended (`state.terminated`, else `lastState.terminated`)."""

    exit_code: int
    signal: int | None  # 1 to 64; None when it exited by itself
    reason: str  # OOMKilled, Error, Completed, …; "" when the kubelet gave none
    finished_at: datetime | None

    @property
    def is_retryable(self) -> bool | None:
        """As `is_worth_retrying`."""
        return is_worth_retrying(self.exit_code, self.reason)


class Rank0(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod and container that report for the whole job."""

    pod_name: str
    pod_uid: str
    pod_ip: str | None
    host_network: bool
    node_name: str | None  # None until scheduled
    container_name: str
    progress_path: str  # absolute, inside the container
    http_port: int | None = None  # where the pod declares that it answers; None = nowhere
    declared: tuple[tuple[str, str], ...] = ()  # sources the pod or the job names, each with where
    is_running: bool  # the container runs now
    is_terminating: bool  # the pod is being deleted
    waiting_reason: str  # why the container does not run yet, e.g. ImagePullBackOff; "" otherwise
    pod_created_at: datetime | None = None  # by kube-apiserver's clock
    pod_started_at: datetime | None = None  # when its node accepted the pod
    waiting_message: str = ""  # the same as a sentence
    restart_count: int
    restart_attempt: int  # JobSet's; 0 where there is none
    node_pool: str = ""  # of nodes, to which the pod is bound; "" where it names none
    started_at: datetime | None  # of the container run that is the present attempt, also when it has ended
    last_termination: Termination | None
    termination_message: str  # as the container left it; hostile, at most 12 KiB

    @property
    def is_path_annotated(self) -> bool:
        """Whether the path was chosen by whoever annotates the job, not by the author of the container."""
        return ANNOTATED_PATH in self.declared

    @property
    def is_port_annotated(self) -> bool:
        """The same of the port."""
        return any(source == "http" and where.startswith(ANNOTATION) for source, where in self.declared)

    @property
    def has_begun(self) -> bool:
        """Whether the container has run at all."""
        return self.is_running or self.started_at is not None or self.last_termination is not None

    @property
    def attempt(self) -> str:
        """Names one run of the training process; rates and numbers are never mixed across attempts."""
        return f"{self.pod_uid}/{self.restart_count}/{self.restart_attempt}"


class Initializer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A container that runs and prepares data or model, before the training begins."""

    name: str  # of its replicated job
    pod_name: str
    pod_uid: str
    node_name: str | None
    container_name: str
    restart_count: int

    @property
    def attempt(self) -> str:
        """Names one run of it."""
        return f"{self.pod_uid}/{self.restart_count}"


class Replica(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts of one replica group; None where the controller gives none."""

    name: str
    desired: int | None = None
    ready: int | None = None
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class StopRule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a trial should be stopped early."""

    metric: str = ""  # "": worse than the median of other jobs
    comparison: Literal["<", ">", "="] = "="
    value: float = 0.0
    least: int = 1  # values of the metric, before it counts


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the job's annotations say about when its conditions hold; None: as is usual for the run itself."""

    stalled_after_s: float | None = None  # infinity: never
    diverged_above: float | None = None  # a loss; infinity: only what is not finite
    straggling_above: float | None = None  # times the median of the others; infinity: never
    plateau_metric: str | None = None
    plateau_better: Literal["min", "max"] | None = None
    plateau_after_s: float | None = None  # infinity: never
    plateau_values: int | None = None  # without an improvement, before it counts
    goodput_below: float | None = None  # a share of 1
    goodput_window_s: float = 3600.0  # of which goodput counts: an hour or a day
    at_risk_after_s: float | None = None  # without a checkpoint; infinity: never
    stop_rules: tuple[StopRule, ...] = ()  # all of them must hold
    stop_label: str | None = None  # whose value the jobs have in common that are compared
    idle_after_s: float | None = None  # of accelerators; infinity: never


class ProbeHints(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the job's annotations `visibility.trainer.kubeflow.org/…` request; None = nothing."""

    source: str | None = None
    interval_s: float | None = None
    thresholds: Thresholds = Thresholds()
    traceparent: str | None = None  # of the trace that made the job, as W3C has it
    faults: tuple[str, ...] = ()  # annotations that were refused, in our own words


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One training job as the cluster shows it at one moment."""

    ref: JobRef
    labels: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_LABELS)
    created_at: datetime | None
    phase: Phase
    reason: str = ""  # CamelCase, the controller's where it gives one
    message: str = ""
    is_suspended: bool | None = None  # None: it never was
    suspension_changed_at: datetime | None = None  # when it was suspended or resumed, by its condition
    ended_at: datetime | None = None  # when it completed or failed, by its condition
    is_queued: bool = False  # suspended because Kueue has not admitted it yet
    rank0: Rank0 | None = None
    alternates: tuple[Rank0, ...] = ()  # others that may hold rank 0 (MPI), probed when rank0 has no report
    initializers: tuple[Initializer, ...] = ()  # those that run now, and keep the training waiting
    replicas: tuple[Replica, ...] = ()
    hints: ProbeHints = ProbeHints()
    accelerators: tuple[tuple[str, int], ...] = ()  # names, and how many all pods request together
    failure: Failure | None = None  # as its objects show it now
    # An object of the job that could not be read, "pod NAME", and why.
    unread: tuple[str, str] | None = None
    runs_elsewhere: bool = False  # MultiKueue: the pods are in another cluster, all there is here is status
    columns: tuple[str, ...] = ()  # of its kind's own, in Tables
    # Of a job that runs elsewhere: the cluster that shows it, by its name here; what is found there.
    cluster: str = ""
    diagnosis: Diagnosis | None = None
    unreported: tuple[str, str] | None = None  # why it has no report: reason and sentence

    @property
    def place(self) -> str:
        """The cluster that runs it, for a sentence."""
        return f"cluster {self.cluster}" if self.cluster else "another cluster"
