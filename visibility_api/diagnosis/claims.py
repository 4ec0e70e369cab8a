"""Which rank each process is that pods show, and how its work goes: no pod speaks for another's. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from statistics import median_low
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from visibility_api.reports.ranks import RankRow, Ranks, make_ranks

from .reading import MEASURED, Device, RankState
from .words import where_of

MAX_STATES = 8192  # of all pods together


class PodState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod of the job, and what it has said."""

    name: str
    container_name: str = ""
    node_name: str = ""
    index: int | None = None  # within its replica group
    not_running: str = ""  # CamelCase, why it cannot be asked: its phase, or what it waits for
    unread: str = ""  # why it has said nothing, as a clause; "" where it has
    ranks: tuple[RankState, ...] = ()  # none of one that does not train, such as a launcher


class Seen(NamedTuple):
    rank: int | None
    pod: PodState
    state: RankState

    @property
    def key(self) -> tuple[str, ...]:
        """What those of one group have in common: what is said of them, and their stack."""
        return (where_of(self.state), *self.state.frames)


def believe(pods: Sequence[PodState]) -> list[Seen]:
    """Each rank once: no pod speaks for another's.

    Where more than half of the pods have ranks by their index, a claim out of that order is not believed.
    Where there is no such order, a rank that two pods claim is neither's.
    """
    pods = _of_this_run(pods)
    claims = Counter(state.rank for pod in pods for state in pod.ranks if state.rank is not None)
    size = _ranks_of_a_pod(pods)
    found = []
    for pod in pods:
        for state in pod.ranks:
            rank = state.rank
            if rank is not None and (claims[rank] > 1 if size is None else pod.index != rank // size):
                rank = None
            found.append(Seen(rank, pod, state))
    return found[:MAX_STATES]


def _of_this_run(pods: Sequence[PodState]) -> Sequence[PodState]:
    """Without files that ranks wrote before this run began: fewer ranks, or others, have come since."""
    began = [
        state.began
        for pod in pods
        for state in pod.ranks
        if state.began is not None and state.state not in ("ended", "over")
    ]
    if not began:
        return pods
    since = median_low(began)
    return [
        msgspec.structs.replace(
            pod,
            ranks=tuple([state for state in pod.ranks if state.written is None or state.written >= since]),
        )
        for pod in pods
    ]


def _ranks_of_a_pod(pods: Sequence[PodState]) -> int | None:
    """How many, where more than half of the pods have those that their index says; else None."""
    having = [pod for pod in pods if any(state.rank is not None for state in pod.ranks)]
    sizes = Counter(
        len(pod.ranks)
        for pod in having
        if all(state.rank is not None and state.rank // len(pod.ranks) == pod.index for state in pod.ranks)
    )
    return next((size for size, number in sizes.items() if 2 * number > len(having)), None)


def is_complete(seen: Sequence[Seen], pods: int) -> bool:
    """Whether every rank of the job was seen, as far as ranks say how many there are.

    Where none says it, each pod has one: of several in a pod, the last may have written nothing yet.
    """
    ranks = {each.rank for each in seen}
    size = max([each.state.world_size or 0 for each in seen], default=0) or pods
    return len(seen) == size and ranks == set(range(size))


def work_of(pods: Sequence[PodState], at: datetime) -> Ranks:
    """How each rank works, as its own file says. `at`: when these were read."""
    rows = []
    devices: dict[tuple[str, str], Device] = {}  # ranks of one pod may name the same ones
    for rank, pod, state in believe(pods):
        if rank is None or state.work is None:
            continue
        devices.update({(pod.name, each.name): each for each in state.devices})
        work_s, whole_s, best_s, slowest = msgspec.structs.astuple(state.work)
        rows.append(RankRow(rank, pod.name, state.step, work_s, pod.node_name, whole_s, best_s, slowest))
    return replace(make_ranks(at, rows, is_median=True), accelerators=_summarize(list(devices.values())))


def _summarize(devices: Sequence[Device]) -> tuple[tuple[str, str], ...]:
    """Metrics of all of them, as rank 0's reporter names those of its own pod. One alone is in its report."""
    if len(devices) < 2:
        return ()
    kind = devices[0].name.partition("_")[0]
    found = [(f"system/{kind}_devices", str(len(devices)))]
    for place, name in enumerate(MEASURED.values()):
        values = [each.used[place] for each in devices]
        known = sorted(each for each in values if each is not None)
        if known:
            middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
            for which, value in (("min", known[0]), ("median", middle), ("max", known[-1])):
                found.append((f"system/{kind}_{which}_{name}", f"{value:.6g}"))
    return tuple(found)
