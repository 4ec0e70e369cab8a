"""Which pod of a replica group is its first, and what its container shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from visibility_api.jobs.job import Initializer, Rank0, Termination, exit_signal

from .annotations import JobAnnotations
from .declarations import read_declarations
from .objects import (
    RESTART_ATTEMPT,
    UNEVENTFUL,
    Container,
    ContainerStatus,
    Meta,
    Pod,
    StateTerminated,
    StateWaiting,
)

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

MAX_GENERATED_NAME = 58  # a longer name is cut to make room for the suffix (apiserver/pkg/storage/names)
# A pod made after its job's end is not the job's: no controller makes any then. Between two machines' clocks.
CLOCK_TOLERANCE = timedelta(seconds=5)
MAX_QUOTED_CHARACTERS = 400  # of what the scheduler or a kubelet says, which may list thousands of nodes


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod that counts as index 0 of a Job, and others that claim the same index at the same time."""

    pod: Pod
    rivals: tuple[str, ...]  # names


def controls(owner: Meta, object_: Meta) -> bool:
    """Whether the live object `owner` is the one that `object_` names as its controller, by uid."""
    reference = object_.controller
    return reference is not None and bool(owner.uid) and reference.uid == owner.uid


def rank0_pod(pods: Iterable[Pod], job: Meta) -> Claim | None:
    """The pod that counts as index 0 of a Job, of those that name it as their controller.

    Every creator of pods may write labels and owner references, so neither is proof. A pod counts when it
    names the live Job's uid, and has the name that the Job controller gives to pods of index 0. A name cannot
    be changed later. Of several the oldest that stands counts, as the Job controller makes no second one
    beside it; when none stands, the newest. Creation times and uids are kube-apiserver's.
    """
    prefix = pod_prefix(job.name, 0)
    return choose([pod for pod in pods if is_generated(pod.metadata.name, prefix)])


def choose(pods: Sequence[Pod], *, are_equal: bool = False) -> Claim | None:
    """Of pods that claim the same place: the oldest that stands; when none stands, the newest.

    `are_equal`: their controller makes several at a time.
    """
    if not pods:
        return None
    if len(pods) == 1:
        return Claim(pod=pods[0], rivals=())
    first = max(pods, key=precedence)
    rivals = tuple(sorted(pod.metadata.name for pod in pods if pod is not first and _stands(pod)))
    return Claim(pod=first, rivals=rivals if _stands(first) and not are_equal else ())


def job_pod(pods: Iterable[Pod], job: Meta, *, are_equal: bool = False) -> Claim | None:
    """The pod of a Job that is not Indexed. `are_equal` as in `choose`."""
    prefix = job_prefix(job.name)
    return choose([pod for pod in pods if is_generated(pod.metadata.name, prefix)], are_equal=are_equal)


def named_pod(pods: Iterable[Pod], name: str, *, has_suffix: bool = False) -> Claim | None:
    """The pod of this name, of a controller that gives its pods fixed names. There is one at a time.

    `has_suffix`: it may have a random suffix.
    """

    def is_it(found: str) -> bool:
        return found == name or (has_suffix and is_generated(found, f"{name}-"))

    return choose([pod for pod in pods if is_it(pod.metadata.name)])


def is_made_before(pod: Pod, ended_at: datetime | None) -> bool:
    """Whether a controller may have made this pod before its job's end."""
    return ended_at is None or _created(pod) <= (ended_at + CLOCK_TOLERANCE).timestamp()


def replica_index(pod: Pod, job: Meta, index: str) -> int | None:
    """The index of a pod within its Job; None if it is not the Job's.

    `index` is from a label, which every creator of pods may write. Owner and name must agree with it.
    """
    if not (index.isascii() and index.isdigit()) or len(index) > 9:
        return None
    number = int(index)
    if not controls(job, pod.metadata) or not is_generated(pod.metadata.name, pod_prefix(job.name, number)):
        return None
    return number


def pod_prefix(job_name: str, index: int) -> str:
    """How the Job controller lets the names of the pods of one index begin (podGenerateNameWithIndex in
    https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/job/indexed_job_utils.go)."""
    tail = f"-{index}-"
    return job_name[: MAX_GENERATED_NAME - len(tail)] + tail


def job_prefix(job_name: str) -> str:
    """The same of the pods of a Job that is not Indexed."""
    return job_name[: MAX_GENERATED_NAME - 1] + "-"


def is_generated(pod_name: str, prefix: str) -> bool:
    """Whether the name is the prefix with a random suffix, which contains no dash."""
    return pod_name.startswith(prefix) and "-" not in pod_name[len(prefix) :]


def precedence(pod: Pod) -> tuple[bool, float, str]:
    """Of the pods of one index the highest counts."""
    stands, created = _stands(pod), _created(pod)
    return stands, -created if stands else created, pod.metadata.uid


def _stands(pod: Pod) -> bool:
    """Whether the Job controller makes no other pod of its index: it runs, is yet to, or has succeeded."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed"


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def restart_attempt(job: Meta) -> int:
    """The JobSet's, when it made this Job. A label of the pod is no proof."""
    text = job.label(RESTART_ATTEMPT)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def describe_rank0(
    pod: Pod, annotations: JobAnnotations, *, container: str, restart_attempt: int
) -> Rank0 | None:
    """The domain's view of the chosen pod; None for a pod without containers.

    `container`: the one that trains, unless the annotations name another.
    """
    found = _container(pod, annotations.container, container)
    if found is None:
        return None
    status = container_status(found.name, pod.status.container_statuses or ())
    state, last = status.state, status.last_state
    waiting = waiting_of(pod, found.name)
    terminated = state.terminated or last.terminated
    declared = read_declarations(found, annotations)
    return Rank0(
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        pod_ip=pod.status.pod_ip,
        host_network=pod.spec.host_network,
        node_name=pod.spec.node_name,
        node_pool=pod.spec.node_pool,
        container_name=found.name,
        progress_path=declared.path,
        http_port=declared.port,
        declared=declared.sources,
        is_running=state.running is not None,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        waiting_reason=waiting.reason,
        waiting_message=waiting.message,
        pod_created_at=pod.metadata.creation_timestamp,
        pod_started_at=pod.status.start_time,
        restart_count=status.restart_count,
        restart_attempt=restart_attempt,
        started_at=run.started_at if (run := state.running or state.terminated) else None,
        last_termination=termination_of(pod, terminated) if terminated else None,
        # Not of an earlier container run: that would be taken for a message of this attempt.
        termination_message=(state.terminated.message or "") if state.terminated else "",
    )


def describe_initializer(pod: Pod, group: str) -> Initializer | None:
    """The domain's view of the pod of this replicated job; None unless its container runs."""
    container = _container(pod, group)
    if container is None or pod.metadata.deletion_timestamp is not None:
        return None
    status = container_status(container.name, pod.status.container_statuses or ())
    if status.state.running is None:
        return None
    return Initializer(
        name=group,
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        node_name=pod.spec.node_name,
        container_name=container.name,
        restart_count=status.restart_count,
    )


def _container(pod: Pod, *wanted: str | None) -> Container | None:
    by_name = {c.name: c for c in pod.spec.containers}
    for name in (*wanted, pod.metadata.annotation(DEFAULT_CONTAINER)):
        if name and name in by_name:
            return by_name[name]
    return pod.spec.containers[0] if pod.spec.containers else None


def main_container(pod: Pod, wanted: str = "") -> str:
    """Name of the container that does the work of this pod: `wanted` if it has one of that name."""
    container = _container(pod, wanted)
    return "" if container is None else container.name


def container_status(name: str, statuses: Sequence[ContainerStatus]) -> ContainerStatus:
    """That of the container of this name; an empty one where there is none."""
    return next((s for s in statuses if s.name == name), _NO_STATUS)


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """Why a container does not run yet; all "" when it does, or has."""

    reason: str  # CamelCase
    message: str


def waiting_of(pod: Pod, container_name: str) -> Waiting:
    """Why this container of the pod does not run yet, by the scheduler and the kubelet."""
    name, status = pod.metadata.name, container_status(container_name, pod.status.container_statuses or ())
    state = status.state
    if pod.status.phase == "Failed" and state.running is None and state.terminated is None:
        says = f": {_cut(pod.status.message)}" if pod.status.message else "."
        message = f"Pod {name} failed before container {container_name} began{says}"
        return Waiting(pod.status.reason or "PodFailed", message)
    if state.waiting is not None:
        return _container_waiting(pod, container_name, state.waiting)
    if state.running is not None or state.terminated is not None:
        return _NOT_WAITING
    if pod.spec.node_name:
        return Waiting("ContainerCreating", f"Node {pod.spec.node_name} has yet to start pod {name}.")
    why = pod.status.condition("PodScheduled")
    if why is not None and why.reason == "SchedulingGated":
        message = f"Pod {name} has scheduling gates: it waits until their owner removes them."
        return Waiting("SchedulingGated", message)
    says = f": {_cut(why.message)}" if why is not None and why.message else " yet."
    return Waiting("Unscheduled", f"Pod {name} is not scheduled{says}")


def _container_waiting(pod: Pod, container_name: str, waiting: StateWaiting) -> Waiting:
    name, node = pod.metadata.name, pod.spec.node_name
    for init in pod.status.init_container_statuses or ():
        if (says := init.state.waiting) is not None and says.reason not in ("", *UNEVENTFUL):
            what = f"Init container {init.name} of pod {name} waits"
            return Waiting(says.reason, _ended_with(what, says.message))
    if waiting.reason == "PodInitializing":
        running = [i.name for i in pod.status.init_container_statuses or () if i.state.running is not None]
        # Those before the last one that runs are sidecars, which never end.
        message = f"Init container {running[-1]} of pod {name} is running." if running else ""
        return Waiting(waiting.reason, message or f"Pod {name} is being initialised.")
    if waiting.reason == "ContainerCreating":
        # Volumes and network are there, so what takes time is the image (PodReadyToStartContainers,
        # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-has-network).
        if pod.status.condition("PodReadyToStartContainers") is not None:
            message = (
                f"Node {node} pulls the image of container {container_name} of pod {name}, or starts it."
            )
            return Waiting("PullingImage", message)
        message = f"Node {node} prepares volumes and network of pod {name}."
        return Waiting(waiting.reason, message)
    what = f"Container {container_name} of pod {name} waits"
    return Waiting(waiting.reason or "Waiting", _ended_with(what, waiting.message))


def _ended_with(what: str, says: str | None) -> str:
    return f"{what}: {_cut(says)}" if says else f"{what}."


def _cut(says: str) -> str:
    """Text of another component, shortened for our message."""
    return says if len(says) <= MAX_QUOTED_CHARACTERS else f"{says[: MAX_QUOTED_CHARACTERS - 1]}…"


def termination_of(pod: Pod, terminated: StateTerminated) -> Termination:
    """How a container of this pod ended."""
    return Termination(
        exit_code=terminated.exit_code,
        signal=exit_signal(terminated.exit_code, terminated.signal),
        # The pod's reason (Evicted, NodeLost, Shutdown) says more than the container's reason Error.
        reason=(pod.status.reason if terminated.reason in (None, "", "Error") else None)
        or terminated.reason
        or "",
        finished_at=terminated.finished_at,
    )


_NO_STATUS = ContainerStatus()
_NOT_WAITING = Waiting("", "")
