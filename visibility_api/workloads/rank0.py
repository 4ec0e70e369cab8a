"""Which pod and container hold rank 0 of a TrainJob.

By the labels of JobSet (github.com/kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go) and Kubeflow
Trainer (github.com/kubeflow/trainer, pkg/constants/constants.go). Trainer's ancestor label is on the
replicated jobs, not on their pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visibility_api.progress.job import Rank0, Termination

from .annotations import JobAnnotations
from .declarations import read_declarations
from .objects import Container, ContainerStatus, JobSet, Pod, ReplicatedJob, StateTerminated, SuccessPolicy

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
JOBSET = "jobset.sigs.k8s.io/"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
TRAINER_CONTAINER = "node"

# Limits a pod watch to about one pod per replicated job: the first pod of its first Job.
POD_SELECTOR = f"{JOBSET}jobset-name,{JOBSET}job-index=0,{COMPLETION_INDEX}=0"


def trainer_groups(jobset: JobSet) -> list[str]:
    """Names of the replicated jobs that may hold rank 0, the most likely one first.

    More than one only under MPI: the launcher, then the group that runs sshd (its index 0 may be MPI's
    rank 0, because the hostfile follows the order of replicated jobs).
    """
    groups = jobset.spec.replicated_jobs or ()
    by_name = {g.name: g for g in groups}
    targets = (jobset.spec.success_policy or _NO_POLICY).target_replicated_jobs or ()
    first = (
        next((g.name for g in groups if g.label(ANCESTOR) == "trainer"), None)
        or next((name for name in targets if name in by_name), None)
        or next((name for name in ("node", "launcher") if name in by_name), None)
        or (groups[0].name if len(groups) == 1 else None)
    )
    if first is None:
        return []
    if first == "launcher" and "node" in by_name and not is_initializer(by_name["node"]):
        return [first, "node"]
    return [first]


def is_initializer(group: ReplicatedJob) -> bool:
    return group.label(ANCESTOR) in ("dataset-initializer", "model-initializer")


def rank0_pod(pods: Iterable[Pod], jobset: JobSet, group: str) -> Pod | None:
    """The pod with index 0 of `group`: of the highest restart attempt, then not terminating, then the newest.

    Only pods of this very JobSet: by uid where its controller sets that label, and owned by the group's first
    Job. Anybody who may create pods may set the labels.
    """
    owner = f"{jobset.metadata.name}-{group}-0"
    mine = [
        pod
        for pod in pods
        if pod.metadata.label(f"{JOBSET}replicatedjob-name") == group
        and pod.metadata.label(f"{JOBSET}jobset-uid") in ("", jobset.metadata.uid)
        and (controller := pod.metadata.controller) is not None
        and (controller.kind, controller.name) == ("Job", owner)
    ]
    return max(mine, key=_precedence, default=None)


def _precedence(pod: Pod) -> tuple[int, bool, float, str]:
    created = pod.metadata.creation_timestamp
    return (
        restart_attempt(pod),
        pod.metadata.deletion_timestamp is None,
        created.timestamp() if created else 0.0,
        pod.metadata.name,
    )


def restart_attempt(pod: Pod) -> int:
    text = pod.metadata.label(f"{JOBSET}restart-attempt")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def describe_rank0(pod: Pod, annotations: JobAnnotations) -> Rank0 | None:
    """The domain's view of the chosen pod; None for a pod without containers."""
    container = _container(pod, annotations.container)
    if container is None:
        return None
    status = _status_of(container.name, pod.status.container_statuses or ())
    state, last = status.state, status.last_state
    terminated = state.terminated or last.terminated
    declared = read_declarations(container, annotations)
    return Rank0(
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        pod_ip=pod.status.pod_ip,
        host_network=pod.spec.host_network,
        node_name=pod.spec.node_name,
        container_name=container.name,
        progress_path=declared.path,
        http_port=declared.port,
        declared=declared.sources,
        is_running=state.running is not None,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        waiting_reason=_waiting_reason(pod, status),
        restart_count=status.restart_count,
        restart_attempt=restart_attempt(pod),
        started_at=state.running.started_at if state.running else None,
        last_termination=_termination(pod, terminated) if terminated else None,
        # Not of an earlier container run: that would be taken for a message of this attempt.
        termination_message=(state.terminated.message or "") if state.terminated else "",
    )


def _container(pod: Pod, wanted: str | None) -> Container | None:
    by_name = {c.name: c for c in pod.spec.containers}
    for name in (wanted, TRAINER_CONTAINER, pod.metadata.annotation(DEFAULT_CONTAINER)):
        if name and name in by_name:
            return by_name[name]
    return pod.spec.containers[0] if pod.spec.containers else None


def _status_of(name: str, statuses: Sequence[ContainerStatus]) -> ContainerStatus:
    return next((s for s in statuses if s.name == name), _NO_STATUS)


def _waiting_reason(pod: Pod, status: ContainerStatus) -> str:
    if status.state.waiting is not None:
        for init in pod.status.init_container_statuses or ():
            if init.state.waiting and init.state.waiting.reason not in ("", "PodInitializing"):
                return init.state.waiting.reason
        return status.state.waiting.reason or "Waiting"
    if status.state.running is None and status.state.terminated is None:
        return "ContainerCreating" if pod.spec.node_name else "Unscheduled"
    return ""


def _termination(pod: Pod, terminated: StateTerminated) -> Termination:
    code = terminated.exit_code
    return Termination(
        exit_code=code,
        # Container runtimes seldom set `signal`; by convention the exit code is 128 + signal instead.
        signal=terminated.signal or (code - 128 if 128 < code <= 192 else None),
        # The pod's reason (Evicted, NodeLost, Shutdown) says more than the container's reason Error.
        reason=(pod.status.reason if terminated.reason in (None, "", "Error") else None)
        or terminated.reason
        or "",
        finished_at=terminated.finished_at,
    )


_NO_STATUS = ContainerStatus()
_NO_POLICY = SuccessPolicy()
