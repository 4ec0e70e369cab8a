"""Lists all pods of a job when it fails or restarts, to find which of them failed first, and why.

Only pods of index 0 are watched: memory and traffic grow with jobs, not with pods. The pods of one job are
listed when something shows that one of them has failed, and once more a little later: kubelets report late.
What those that failed have printed last says why, where logs may be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Phase, Replica as ReplicaCounts, TrainingJob
from visibility_api.kube.errors import ApiError, TooLarge, Unreachable

from .failures import latest, pod_failure
from .node_faults import NodeFaults, foremost
from .pod_lists import AT_A_TIME, NOT_LISTED, TIMEOUT_S, PodLists
from .replicas import Replicas, ReplicaStatus, status_of

log = structlog.get_logger("visibility.inspection")

PACE_S = 0.2  # between two jobs: a failing rack or network partition fails thousands at one time
SECOND_LOOK_S = 10.0  # a kubelet reports a status within that time
MAX_LOGS = 8  # of the pods of one job that have failed, the earliest first
# After the second look nodes are read again: what watches them reports a fault within a minute.
LATE_S, MAX_LATE = 60.0, 1000  # jobs
MAX_WAITING = 10_000  # jobs; of further ones only rank 0 is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    pace_s: float = PACE_S
    second_look_s: float = SECOND_LOOK_S
    late_s: float = LATE_S
    waiting: int = MAX_WAITING
    logs_s: float = TIMEOUT_S  # for the logs of one job, all together


# A failure of a job, with the cause that the end of its container's log shows; as it is where none is known.
# Raises ApiError, Unreachable, TooLarge.
Explain = Callable[[JobRef, Failure], Awaitable[Failure]]


class _Look(NamedTuple):
    """One list of a job's pods."""

    ref: JobRef
    is_second: bool


class Inspector:
    """Lists the pods of jobs, namespaces in turn, each job twice in `second_look_s` at most.

    `found` is called with what failed first; `replicas` are told what all pods show. `explain`: None where no
    logs are read. `nodes`: None where no nodes are read.
    """

    def __init__(
        self,
        lists: PodLists,
        *,
        replicas: Replicas,
        found: Callable[[JobRef, Failure], None],
        explain: Explain | None = None,
        nodes: NodeFaults | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self._explain = explain
        self._nodes = nodes
        self._lists = lists
        self._replicas = replicas
        self._found = found
        self._limits = limits
        self._queue: FairQueue[_Look] = FairQueue(at_a_time=AT_A_TIME, per_node=AT_A_TIME)
        self._again: dict[
            JobRef, float
        ] = {}  # when the second look is due, by the loop's clock; in that order
        self._late: set[JobRef] = set()  # whose nodes are read again
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Jobs whose pods are to be listed."""
        return len(self._queue) + len(self._again)

    def job_changed(self, before: TrainingJob | None, job: TrainingJob) -> None:
        """The cluster shows this job; `before`: as it was shown last, None if it is new here."""
        has_ended = job.phase.is_final and before is not None and not before.phase.is_final
        is_wanted = shows_failure(before, job) or (has_ended and self._replicas.has_asked_for(job))
        if not is_wanted or self.waiting >= self._limits.waiting:
            return
        # One that is to be listed again is listed soon enough, however often its pods come and go.
        if job.ref not in self._again and _Look(job.ref, is_second=True) not in self._queue:
            self._push(job.ref, is_second=False)

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._queue.remove(_Look(ref, is_second=False))
        self._queue.remove(_Look(ref, is_second=True))
        self._again.pop(ref, None)

    async def run(self) -> None:
        """List pods as they become due, until cancelled."""
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as looks:
            while True:
                self._changed.clear()
                due = self._push_second(clock())
                look = self._queue.pop()
                if look is None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(due):
                            await self._changed.wait()
                    continue
                if not look.is_second:
                    self._again[look.ref] = clock() + self._limits.second_look_s
                looks.create_task(self._inspect(look, looks), name="inspection")
                await asyncio.sleep(self._limits.pace_s)

    def _push(self, ref: JobRef, *, is_second: bool) -> None:
        self._queue.push(_Look(ref, is_second), namespace=ref.namespace, node=None)
        self._changed.set()

    def _push_second(self, now: float) -> float | None:
        """Queue the second looks that are due; returns when the next one is."""
        for ref, due in list(self._again.items()):
            if due > now:
                return due
            del self._again[ref]
            self._push(ref, is_second=True)
        return None

    async def _inspect(self, look: _Look, looks: asyncio.TaskGroup) -> None:
        ref = look.ref
        try:
            async with asyncio.timeout(TIMEOUT_S):
                failures, replicas = await self._read(ref)
            failure = latest(failures, started_at=None)
            if failure is not None:
                self._found(ref, failure)
                known = await self._look_for_cause(ref, failure, failures)
                failures = [known.get(each, each) for each in failures]
                is_found = await self._look_at_nodes(ref, failures, replicas)
                if look.is_second and not is_found and ref not in self._late and len(self._late) < MAX_LATE:
                    self._late.add(ref)
                    looks.create_task(self._look_late(ref, *foremost(failures, replicas)), name="late look")
        except NOT_LISTED as error:
            # What rank 0 shows is known without; the next failure is another chance.
            log.debug("pods or logs not read", job=str(ref), error=type(error).__name__)
        except Exception as error:  # of one job: docs/decisions/0005
            log.error("job not inspected", job=str(ref), **describe_fault(error))
        finally:
            self._queue.release(look)
            self._changed.set()

    async def _look_for_cause(
        self, ref: JobRef, first: Failure, failures: Sequence[Failure]
    ) -> dict[Failure, Failure]:
        """Read the log of what failed first; of others, too, until one is no sign of another's failure.

        Returns those with a cause, by the failures that they explain.
        """
        known = dict[Failure, Failure]()
        others = sorted((each for each in failures if each != first), key=lambda each: each.came_at)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.logs_s):  # other jobs wait for this one's place
                for failure in [first, *others][:MAX_LOGS]:
                    if failure.reason not in ("", "Error") or not failure.pod_name:
                        continue  # the kubelet or the scheduler has said why
                    found = await self._explained(ref, failure)
                    if found.cause_class:
                        known[failure] = found
                        self._found(ref, found)
                        if not found.is_cascade:
                            break
        return known

    async def _explained(self, ref: JobRef, failure: Failure) -> Failure:
        if self._explain is not None:
            try:
                return await self._explain(ref, failure)
            except (ApiError, Unreachable, TooLarge) as error:
                log.debug("log of a failure not read", job=str(ref), error=type(error).__name__)
        return failure

    async def _look_at_nodes(
        self, ref: JobRef, failures: Sequence[Failure], replicas: Sequence[ReplicaStatus]
    ) -> bool:
        """Where no log has said why. Returns whether it is known now, or not to be known."""
        is_known = any(each.cause_class and not each.is_cascade for each in failures)
        if self._nodes is None or is_known:
            return True
        async with asyncio.timeout(self._limits.logs_s):
            return await self._nodes.explain(ref, failures, replicas)

    async def _look_late(
        self, ref: JobRef, failures: Sequence[Failure], replicas: Sequence[ReplicaStatus]
    ) -> None:
        """Of a fault of a node that was reported since, whatever became of the pods."""
        try:
            await asyncio.sleep(self._limits.late_s)
            await self._look_at_nodes(ref, failures, replicas)
        except TimeoutError:
            log.debug("nodes not read", job=str(ref))
        except Exception as error:  # of one job: docs/decisions/0005
            log.error("job not inspected", job=str(ref), **describe_fault(error))
        finally:
            self._late.discard(ref)

    async def _read(self, ref: JobRef) -> tuple[list[Failure], list[ReplicaStatus]]:
        failures, seen = list[Failure](), list[ReplicaStatus]()
        async with aclosing(self._lists.read(ref)) as pods:
            async for pod, replica in pods:
                seen.append(status_of(pod, replica))
                if (failure := pod_failure(pod, replica)) is not None:
                    failures.append(failure)
        self._replicas.note(ref, seen)
        return failures, seen


def shows_failure(before: TrainingJob | None, job: TrainingJob) -> bool:
    """Whether something has failed that was not shown before: then another pod may have failed first."""
    if job.phase in (Phase.SUCCEEDED, Phase.SUSPENDED) or job.runs_elsewhere:
        return False
    if before is None or before.ref.uid != job.ref.uid:
        return job.failure is not None or any(each.failed for each in job.replicas)
    if job.failure is not None and job.failure != before.failure:
        return True
    if job.phase is Phase.FAILED:
        return before.phase is not Phase.FAILED
    earlier = {each.name: each for each in before.replicas}
    return any(
        (each.failed or 0) > (was.failed or 0) or (each.ready or 0) < _still_ready(was, each.succeeded)
        for each in job.replicas
        if (was := earlier.get(each.name)) is not None
    )


def _still_ready(before: ReplicaCounts, succeeded: int | None) -> int:
    """How many of those that were ready must be if none has failed."""
    return (before.ready or 0) - max(0, (succeeded or 0) - (before.succeeded or 0))
