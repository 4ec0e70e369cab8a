"""Jobs that run in another cluster, as that cluster's own server shows them.

MultiKueue's manager cluster has such a job, but none of its pods. The worker cluster has a job of the same
kind, namespace and name, and there a server like this one. Its list of all kinds is followed, with the rights
of the kubeconfig that is given for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, Callable, Mapping
from functools import partial

from msgspec.structs import replace

from visibility_api.errors.text import harmless
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ClusterError
from visibility_api.kube.watch import FOREIGN, Watch

from .kind import PhaseDecision
from .object_cache import Key
from .upstream_documents import MAX_NAME_CHARACTERS, Elsewhere, Id, Shown, ShownJob, read

PATH = "/apis/visibility.trainer.kubeflow.org/v1alpha1/trainingjobs"
DOWN_S = 60.0  # a cluster that has not answered for so long is named in the jobs' messages
CHECK_S = 5.0
FIRST_LISTS_S = 5.0  # jobs of this cluster are listed so long after the start, if another is not by then
# Of one cluster. Jobs as they mostly are take 75 MB.
MAX_JOBS, MAX_BYTES = 50_000, 128 * 1024 * 1024


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
        self._bytes = dict.fromkeys(clients, 0)  # of these
        self._full = set[str]()  # of which not all jobs are kept
        self._watches = {
            name: Watch(
                client,
                PATH,
                kind=ShownJob,
                on_list=partial(self._list, name),
                on_event=partial(self._change, name),
                mark=lambda job, _reason: replace(job, status=Shown()),
                limits=FOREIGN,
            )
            for name, client in clients.items()
        }
        self._down: dict[str, str] = {}  # why each does not answer

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
        message = " ".join(filter(None, (shown.decision.message, self._where(name))))
        return replace(shown, decision=replace(shown.decision, message=message), cluster=name)

    def _find_recalled(self, ref: JobRef) -> tuple[str, Elsewhere] | None:
        job = self._recall(ref) if self._recalled else None
        if job is None or job.cluster not in self._recalled:
            return None
        where = rf" ?(?:Last s|S)een in cluster {re.escape(job.cluster)}(?:, [^.]*)?\.$"
        message = re.sub(where, "", job.message)
        decision = PhaseDecision(job.phase, job.reason, message, job.ended_at)
        return job.cluster, Elsewhere(decision, unreported=job.unreported)

    @property
    def faults(self) -> list[str]:
        """Of each cluster that cannot be read at present, or not whole, why."""
        found = {name: self._fault(name, watch) for name, watch in self._watches.items()}
        return [f"{name}: {harmless(why)}" for name, why in found.items() if why]

    def _fault(self, name: str, watch: Watch[ShownJob]) -> str:
        if not watch.health.last_error and name in self._full:
            return f"only {len(self._shown[name])} of its jobs are read"
        return watch.health.last_error or ("" if watch.health.attempted else "its jobs are not listed yet")

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
                down = {
                    name: self._clause(name, each.health.clause)
                    for name, each in self._watches.items()
                    if each.health.is_down(DOWN_S)
                }
                changed, self._down = dict(down.items() ^ self._down.items()), down
                for name in changed:
                    async for id_ in in_slices((*self._shown[name], *self._recalled.get(name, ()))):
                        self._changed(*id_)

    def _clause(self, name: str, clause: str) -> str:
        """Why it does not answer. A reason that is known stays: each change writes all of its jobs anew."""
        return self._down.get(name, clause) if clause == ClusterError.clause else clause

    def _where(self, name: str) -> str:
        why = self._down.get(name)
        return f"Seen in cluster {name}." if why is None else f"Last seen in cluster {name}, {why}."

    async def _list(self, name: str, found: AsyncIterable[ShownJob]) -> None:
        jobs, listed = self._shown[name], set[Id]()
        self._full.discard(name)
        async for job in found:
            self._change(name, "MODIFIED", job)
            if job.id in jobs:
                listed.add(job.id)
        async for id_ in in_slices((*jobs, *self._recalled.pop(name, ()))):
            if id_ not in listed:
                self._drop(name, id_)
                self._changed(*id_)

    def _change(self, name: str, change: str, job: ShownJob) -> None:
        id_ = job.id
        was_shown = self._drop(name, id_)
        if change != "DELETED" and not self._keep(name, id_, job):
            self._full.add(name)
        if was_shown or id_ in self._shown[name]:
            self._changed(*id_)

    def _keep(self, name: str, id_: Id, job: ShownJob) -> bool:
        """Whether there is room for it."""
        jobs, shown = self._shown[name], read(job)
        resource, (namespace, own_name) = id_
        is_named = max(len(resource), len(namespace), len(own_name)) <= MAX_NAME_CHARACTERS
        if not is_named or len(jobs) >= MAX_JOBS or self._bytes[name] + shown.size > MAX_BYTES:
            return False
        jobs[id_] = shown
        self._bytes[name] += shown.size
        return True

    def _drop(self, name: str, id_: Id) -> bool:
        """Whether it was shown."""
        shown = self._shown[name].pop(id_, None)
        self._bytes[name] -= shown.size if shown is not None else 0
        return shown is not None
