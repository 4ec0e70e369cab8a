"""Has the ranks of a job read when a stall begins, and at a request: once a minute a job at most."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from visibility_api.diagnosis.judging import PodState
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.kube.errors import ApiError, TooLarge, Unreachable

from .failures import Replica
from .objects import Pod
from .pod_lists import PodLists
from .rank0 import container_status, main_container, waiting_of
from .replicas import ReplicaStatus, precedes, status_of

log = structlog.get_logger("visibility.diagnosis")

MAX_PODS = 1024  # of one job
WITHIN_S = 60.0  # of one job, all together
APART_S = 60.0  # of one job
JOBS_AT_A_TIME = 4
TOO_MANY = "the job has too many pods"
MAX_WAITING = 10_000  # jobs; others are asked when their documents change next
_INDEX = re.compile(r"-(\d{1,9})$")


class Capture(Protocol):
    """What reads the ranks: `probing/rank_states.py`."""

    async def diagnose(
        self, namespace: str, pods: Sequence[PodState], path: str, *, within_s: float, is_requested: bool
    ) -> Diagnosis: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    within_s: float = WITHIN_S
    apart_s: float = APART_S
    pods: int = MAX_PODS


class Diagnoser:
    """Documents go to `changed`, requests to `request`; `run` has the ranks read, namespaces in turn.

    `find` returns the job's document now. `found` is called with each diagnosis. `capture` None: no source
    may exec.
    """

    def __init__(
        self,
        lists: PodLists,
        capture: Capture | None,
        *,
        find: Callable[[JobRef], JobProgress | None],
        found: Callable[[JobRef, Diagnosis], None],
        limits: Limits = Limits(),
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self._lists = lists
        self._capture = capture
        self._find = find
        self._found = found
        self._limits = limits
        self._clock = clock
        self._queue: FairQueue[JobRef] = FairQueue(at_a_time=JOBS_AT_A_TIME, per_node=JOBS_AT_A_TIME)
        self._begun: dict[JobRef, float] = {}  # when a job was read last, by the loop's clock
        self._requested: set[JobRef] = set()
        self._suspected: set[JobRef] = set()
        self._changed = asyncio.Event()

    def changed(self, document: JobProgress) -> None:
        """A job's document was published."""
        ref = document.job.ref
        may_wait = self._capture is not None and len(self._queue) < MAX_WAITING
        if is_due(document) and may_wait and self.wait_s(ref) <= 0:
            self._push(ref)

    def suspect(self, ref: JobRef, still_s: float) -> None:
        """The run has stood still for so long. What is found is told only if it is a hang."""
        begun = self._begun.get(ref)
        is_time = begun is None or self._clock() - begun >= max(self._limits.apart_s, still_s / 2)
        if is_time and self._capture is not None and len(self._queue) < MAX_WAITING:
            self._suspected.add(ref)
            self._push(ref)

    def request(self, ref: JobRef) -> float:
        """Read the ranks of this job now. Returns 0, or how long it has to wait: then nothing is done."""
        wait_s = self.wait_s(ref)
        if wait_s <= 0 and self._capture is not None:
            self._requested.add(ref)
            self._push(ref)
        return max(0.0, wait_s)

    def wait_s(self, ref: JobRef) -> float:
        """Until it may be read again."""
        begun = self._begun.get(ref)
        return 0.0 if begun is None else begun + self._limits.apart_s - self._clock()

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._queue.remove(ref)
        self._begun.pop(ref, None)
        self._requested.discard(ref)
        self._suspected.discard(ref)

    async def run(self) -> None:
        """Read what is due until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                ref = self._queue.pop()
                if ref is None:
                    await self._changed.wait()
                    continue
                self._begun[ref] = self._clock()
                group.create_task(self._diagnose(ref), name="diagnosis")

    def _push(self, ref: JobRef) -> None:
        # From now on: what waits is not asked for again.
        self._begun[ref] = self._clock()
        self._queue.push(ref, namespace=ref.namespace, node=None)
        self._changed.set()

    async def _diagnose(self, ref: JobRef) -> None:
        is_requested, is_suspected = ref in self._requested, ref in self._suspected
        self._requested.discard(ref)
        self._suspected.discard(ref)
        document = self._find(ref)
        try:
            if document is None or self._capture is None:
                return
            is_wanted = is_requested or is_due(document)
            if not (is_wanted or (is_suspected and may_read(document))):
                return
            async with asyncio.timeout(2 * self._limits.within_s):
                found = await self._capture.diagnose(
                    ref.namespace,
                    await self._pods(document),
                    progress_path(document),
                    within_s=self._limits.within_s,
                    is_requested=is_requested,
                )
            says_more = document.stall is not None and not found.is_vague
            if is_wanted or found.is_hang or says_more:
                self._found(ref, found)
        except (ApiError, Unreachable, TooLarge, TimeoutError, *UNDECODABLE) as error:
            log.debug("pods not listed for a diagnosis", job=str(ref), error=type(error).__name__)
        except Exception as error:  # of one job: docs/decisions/0005
            log.error("job not diagnosed", job=str(ref), **describe_fault(error))
        finally:
            self._queue.release(ref)
            self._changed.set()

    async def _pods(self, document: JobProgress) -> list[PodState]:
        """One for each replica that trains."""
        rank0 = document.job.rank0
        container = rank0.container_name if rank0 is not None else ""
        found: dict[str, tuple[ReplicaStatus, PodState]] = {}
        async with aclosing(self._lists.read(document.job.ref)) as pods:
            async for pod, replica in pods:
                if replica.is_initializer or is_done(pod, replica, container):
                    continue
                status = status_of(pod, replica)
                other = found.get(replica.name)
                if other is None or precedes(status, other[0]):
                    found[replica.name] = status, _pod_state(pod, replica, container)
        ordered = sorted(found.values(), key=lambda each: each[0].place)
        number = self._limits.pods
        return [
            pod if place < number or pod.not_running else msgspec.structs.replace(pod, unread=TOO_MANY)
            for place, (_, pod) in enumerate(ordered)
        ]


def is_due(document: JobProgress) -> bool:
    """Whether the job has stalled, and its ranks were not read since."""
    stalled, last = document.stall, document.diagnosis
    is_new = stalled is not None and (last is None or last.at < stalled.since)
    return is_new and may_read(document)


def may_read(document: JobProgress) -> bool:
    """Whether its pods are here, and its annotation does not switch probing off."""
    return not document.job.runs_elsewhere and document.job.hints.source != "none"


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
