"""The pods of a job that train, as they are asked for what their ranks do; and where none may be asked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import aclosing

from msgspec.structs import replace

from visibility_api.diagnosis.claims import PodState
from visibility_api.jobs.summary import JobProgress

from .failures import Replica
from .objects import Pod
from .pod_lists import PodLists
from .rank0 import container_status, main_container, waiting_of
from .replicas import ReplicaStatus, precedes, status_of

MAX_PODS = 1024  # of one job
TOO_MANY = "the job has too many pods"
REFUSED_S = 600.0  # after which a namespace that grants no exec is tried again
MAX_REFUSED = 10_000  # namespaces that are remembered, the last ones
_INDEX = re.compile(r"-(\d{1,9})$")


class Refusals:
    """Which namespaces have granted no exec lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}  # the oldest first

    def __contains__(self, namespace: str) -> bool:
        return self._clock() - self._at.get(namespace, -math.inf) < REFUSED_S

    def note(self, namespace: str, *, is_refused: bool) -> None:
        self._at.pop(namespace, None)
        if is_refused:
            self._at[namespace] = self._clock()
        while self._at and (len(self._at) > MAX_REFUSED or next(iter(self._at)) not in self):
            del self._at[next(iter(self._at))]


async def find_pods(lists: PodLists, document: JobProgress) -> list[PodState]:
    """One for each replica that trains; of more than MAX_PODS it is said that nothing was read.

    Raises what `PodLists.read` does.
    """
    rank0 = document.job.rank0
    container = rank0.container_name if rank0 is not None else ""
    found: dict[str, tuple[ReplicaStatus, PodState]] = {}
    async with aclosing(lists.read(document.job.ref)) as pods:
        async for pod, replica in pods:
            if replica.is_initializer or is_done(pod, replica, container):
                continue
            status = status_of(pod, replica)
            other = found.get(replica.name)
            if other is None or precedes(status, other[0]):
                found[replica.name] = status, _pod_state(pod, replica, container)
    ordered = sorted(found.values(), key=lambda each: each[0].place)
    return [
        pod if place < MAX_PODS or pod.not_running else replace(pod, unread=TOO_MANY)
        for place, (_, pod) in enumerate(ordered)
    ]


def may_read(document: JobProgress) -> bool:
    """Whether its pods are here, and its annotation does not switch probing off.

    A replica that has just taken over knows the record of a job before its pods: no path of a file yet.
    """
    job = document.job
    return job.rank0 is not None and not job.runs_elsewhere and job.hints.source != "none"


def progress_path(document: JobProgress) -> str:
    rank0 = document.job.rank0
    return rank0.progress_path if rank0 is not None else ""


def is_done(pod: Pod, replica: Replica, container: str) -> bool:
    """Whether it has done its work, or its Job, which is not Indexed, makes another one in its place."""
    name = main_container(pod, container)
    ended = container_status(name, pod.status.container_statuses or ()).state.terminated
    owner = pod.metadata.controller
    is_of_no_index = owner is not None and owner.kind == "Job" and replica.name == pod.metadata.name
    is_replaced = pod.status.phase == "Failed" and is_of_no_index
    return pod.status.phase == "Succeeded" or is_replaced or (ended is not None and ended.exit_code == 0)


def _pod_state(pod: Pod, replica: Replica, container: str) -> PodState:
    name = main_container(pod, container)
    is_running = container_status(name, pod.status.container_statuses or ()).state.running is not None
    index = _INDEX.search(replica.name)
    phase = pod.status.phase if pod.status.phase != "Running" else "ContainerEnded"
    why = "" if is_running else waiting_of(pod, name).reason or phase or "Pending"
    return PodState(
        name=pod.metadata.name,
        container_name=name,
        node_name=pod.spec.node_name or "",
        index=int(index[1]) if index is not None else None,
        not_running=why,
    )
