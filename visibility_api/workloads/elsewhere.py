"""Jobs that run in another cluster, as that cluster's own server shows them.

MultiKueue's manager cluster has such a job, but none of its pods. The worker cluster has a job of the same
kind, namespace and name, and there a server like this one. Its list of all kinds is followed, with the rights
of the kubeconfig that is given for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, Callable, Mapping
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from visibility_api.errors.text import harmless
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.kube.client import KubeClient
from visibility_api.kube.watch import Watch
from visibility_api.reports.document import Progress, Refusal, State
from visibility_api.reports.fields import MAX_INTEGER, MAX_MESSAGE_CHARACTERS, within_times
from visibility_api.reports.trainer_status import TrainerMetric, TrainerStatus, fit

from .kind import PhaseDecision
from .object_cache import Key
from .objects import KubernetesObject, Meta

PATH = "/apis/visibility.trainer.kubeflow.org/v1alpha1/trainingjobs"
DOWN_S = 60.0  # a cluster that has not answered for so long is named in the jobs' messages
CHECK_S = 5.0
FIRST_LISTS_S = 5.0  # jobs of this cluster are listed so long after the start, if another is not by then
MAX_JOBS = 50_000  # of one cluster: 75 MB
MAX_SAID_CHARACTERS = 700  # of a text that is kept: with the name of the cluster it fits in a document
_SEEN = re.compile(r"(.*?) ?(?:Seen|Last seen) in cluster (\S+?)(?:, which does not answer)?\.", re.DOTALL)
_PHASES = {str(phase): phase for phase in Phase}
_STATES: Mapping[Phase, State] = {Phase.SUCCEEDED: "completed", Phase.FAILED: "failed"}

Id = tuple[str, Key]  # resource; namespace and name


class Reference(KubernetesObject, frozen=True):
    resource: str = ""
    name: str = ""


class Counted(KubernetesObject, frozen=True):
    current: int | float | None = None
    total: int | float | None = None


class Shown(KubernetesObject, frozen=True):
    """What is used of the status of a document."""

    phase: str = ""
    phase_reason: str = ""
    phase_message: str = ""
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: tuple[TrainerMetric, ...] = ()
    last_updated_time: str | None = None
    end_time: datetime | None = None
    steps: Counted = Counted()
    epochs: Counted = Counted()
    message: str = ""


class ShownJob(KubernetesObject, frozen=True):
    """A document of another cluster's list of all kinds."""

    metadata: Meta
    job_ref: Reference = Reference()
    status: Shown = Shown()

    @property
    def id(self) -> Id:
        return self.job_ref.resource, (self.metadata.namespace, self.job_ref.name)


class Elsewhere(msgspec.Struct, frozen=True, gc=False):
    """A job of this cluster, as another one shows it."""

    decision: PhaseDecision
    report: Progress | None
    created_at: datetime | None


class Upstreams:
    """The other clusters, by name. `changed` is called with each job that one of them shows otherwise.

    `recall` returns a job as it was shown last, perhaps by an earlier owner. That counts until its cluster is
    listed.
    """

    def __init__(
        self,
        clients: Mapping[str, KubeClient],
        changed: Callable[[str, Key], None],
        recall: Callable[[JobRef], TrainingJob | None] = lambda _ref: None,
    ) -> None:
        self._changed, self._recall = changed, recall
        self._recalled: dict[str, set[Id]] = {name: set() for name in clients}  # of those not listed yet
        self._shown: dict[str, dict[Id, Elsewhere]] = {name: {} for name in clients}
        self._watches = {
            name: Watch(
                client,
                PATH,
                kind=ShownJob,
                on_list=partial(self._list, name),
                on_event=partial(self._change, name),
                mark=lambda job, _reason: replace(job, status=Shown()),
            )
            for name, client in clients.items()
        }
        self._down: frozenset[str] = frozenset()

    def find(self, ref: JobRef) -> Elsewhere | None:
        """What is shown of this job; the newest of that name, where several clusters have one."""
        id_ = ref.resource, (ref.namespace, ref.name)
        found = [
            (shown.created_at.timestamp() if shown.created_at else 0.0, name, shown)
            for name, jobs in self._shown.items()
            if (shown := jobs.get(id_)) is not None
        ]
        if found:
            _, name, shown = max(found, key=lambda each: each[:2])
        elif (recalled := self._find_recalled(ref)) is not None:
            name, shown = recalled
            self._recalled[name].add(id_)
        else:
            return None
        where = f"Seen in cluster {name}."
        if name in self._down:
            where = f"Last seen in cluster {name}, which does not answer."
        message = " ".join(filter(None, (shown.decision.message, where)))
        return replace(shown, decision=replace(shown.decision, message=message))

    def _find_recalled(self, ref: JobRef) -> tuple[str, Elsewhere] | None:
        job = self._recall(ref) if self._recalled else None
        seen = _SEEN.fullmatch(job.message) if job is not None and job.runs_elsewhere else None
        if job is None or seen is None or seen[2] not in self._recalled:
            return None
        decision = PhaseDecision(job.phase, job.reason, seen[1], job.ended_at)
        return seen[2], Elsewhere(decision, None, None)

    @property
    def faults(self) -> list[str]:
        """Of each cluster that cannot be read at present, or not whole, why."""
        full = f"only {MAX_JOBS} of its jobs are read"
        found = {
            name: watch.health.last_error or (full if len(self._shown[name]) >= MAX_JOBS else "")
            for name, watch in self._watches.items()
        }
        return [f"{name}: {harmless(why)}" for name, why in found.items() if why]

    async def listed(self) -> None:
        """Returns when each was listed or has refused, and after FIRST_LISTS_S at the latest: what runs
        elsewhere would else be shown as pending after each change of the owner."""
        until = asyncio.get_running_loop().time() + FIRST_LISTS_S
        while not all(watch.health.attempted for watch in self._watches.values()):
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(0.05)

    async def run(self) -> None:
        """Follow all of them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, watch in self._watches.items():
                group.create_task(watch.run(), name=f"upstream {name}")
            while True:
                await asyncio.sleep(CHECK_S)
                down = frozenset(name for name, each in self._watches.items() if each.health.is_down(DOWN_S))
                changed, self._down = down ^ self._down, down
                for name in changed:
                    async for id_ in in_slices({*self._shown[name], *self._recalled.get(name, ())}):
                        self._changed(*id_)

    async def _list(self, name: str, found: AsyncIterable[ShownJob]) -> None:
        listed = set[Id]()
        async for job in found:
            listed.add(job.id)
            self._change(name, "MODIFIED", job)
        async for id_ in in_slices(self._shown[name].keys() - listed):
            del self._shown[name][id_]
            self._changed(*id_)
        async for id_ in in_slices(self._recalled.pop(name, set()) - listed):
            self._changed(*id_)

    def _change(self, name: str, change: str, job: ShownJob) -> None:
        jobs, id_ = self._shown[name], job.id
        if change == "DELETED":
            jobs.pop(id_, None)
        elif id_ in jobs or len(jobs) < MAX_JOBS:
            jobs[id_] = read(job)
        else:
            return
        self._changed(*id_)


def read(job: ShownJob) -> Elsewhere:
    """What another cluster's document says, within this one's limits."""
    shown = job.status
    phase = _PHASES.get(shown.phase, Phase.UNKNOWN)
    return Elsewhere(
        PhaseDecision(
            phase,
            shown.phase_reason[:MAX_SAID_CHARACTERS] or "SeenElsewhere",
            shown.phase_message[:MAX_SAID_CHARACTERS],
            _moment(shown.end_time),
        ),
        _report(shown, phase),
        _moment(job.metadata.creation_timestamp),
    )


def _moment(said: datetime | None) -> datetime | None:
    return None if said is None else within_times(said)


def _report(shown: Shown, phase: Phase) -> Progress | None:
    """In Kubeflow's form first, which makes hostile numbers and texts fit."""
    counted = {
        "current_step": shown.steps.current,
        "total_steps": shown.steps.total,
        "current_epoch": shown.epochs.current,
        "total_epochs": shown.epochs.total,
    }
    position = [
        TrainerMetric(name, value)
        for name, value in counted.items()
        if value is not None and 0 <= value <= MAX_INTEGER
    ]
    status = TrainerStatus(
        progress_percentage=shown.progress_percentage,
        estimated_remaining_seconds=shown.estimated_remaining_seconds,
        metrics=(*position, *shown.metrics),
        last_updated_time=shown.last_updated_time,
    )
    try:
        _, report = fit(status)
    except Refusal:
        return None
    message = harmless(shown.message[:MAX_MESSAGE_CHARACTERS]) or None
    return replace(report, message=message, state=_STATES.get(phase, "running"))
