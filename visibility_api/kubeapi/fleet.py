"""A list of `trainingjobs` with `?sumBy=`: the sums over its jobs instead of the jobs, in one short answer.

Access and selectors are those of the list. docs/goodput.md describes it, decision 67 says why it is a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nlargest
from typing import Any, Literal, cast, get_args

import msgspec

from visibility_api.errors.status import BadRequest
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.goodput import sums_until
from visibility_api.jobs.job import Phase
from visibility_api.jobs.ledger import Seconds, none
from visibility_api.jobs.summary import JobProgress
from visibility_api.models import v1alpha1
from visibility_api.models.served import GROUP_VERSION
from visibility_api.models.wire import struct_of
from visibility_api.store import Entry

from .goodput import encode_window, whole_second
from .message import ResourceRequest
from .paging import Page

PARAMETER, WINDOW = "sumBy", "window"
LABEL = "label:"
QUEUE = "kueue.x-k8s.io/queue-name"
MAX_GROUPS = 10  # an answer of so many is under 10 KiB
MAX_NAME_CHARACTERS = 63  # a label's value, or a namespace
SUM_S = 0.001  # so long jobs are summed before others have their turn

Window = Literal["whole", "hour", "day"]

_SumsOfJobs = struct_of(v1alpha1.SumsOfJobs)
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Sums:
    jobs: int = 0
    running: int = 0
    accelerators: int = 0  # of those that run
    seconds: Seconds = field(default_factory=none)
    of_accelerators: Seconds = field(default_factory=none)

    def add(self, document: JobProgress, seconds: Seconds | None) -> None:
        accelerators = sum([count for _, count in document.job.accelerators])
        self.jobs += 1
        if document.phase is Phase.RUNNING:
            self.running += 1
            self.accelerators += accelerators
        for kind, some in enumerate(seconds or ()):
            if some:
                self.seconds[kind] += some
                self.of_accelerators[kind] += some * accelerators

    def join(self, other: _Sums) -> None:
        self.jobs += other.jobs
        self.running += other.running
        self.accelerators += other.accelerators
        self.seconds = [one + some for one, some in zip(self.seconds, other.seconds, strict=True)]
        pairs = zip(self.of_accelerators, other.of_accelerators, strict=True)
        self.of_accelerators = [one + some for one, some in pairs]

    @property
    def weight(self) -> tuple[float, float, int]:
        """The groups with the most come first."""
        return sum(self.of_accelerators), sum(self.seconds), self.jobs


def read_sums(request: ResourceRequest) -> tuple[str, Window] | None:
    """What to sum by, and over which window; None for a list of jobs. Raises BadRequest."""
    by = request.parameter(PARAMETER)
    if by is None:
        return None
    if by not in ("namespace", "queue", "kind", "nodePool") and not (by.startswith(LABEL) and by != LABEL):
        raise BadRequest("sumBy must be namespace, queue, kind, nodePool, or label: and the key of a label")
    window = request.parameter(WINDOW) or "day"
    if window not in get_args(Window):
        raise BadRequest("window must be whole, day or hour")
    if request.parameter("limit") or request.parameter("continue"):
        raise BadRequest("limit and continue are not possible with sumBy")
    return by, cast(Window, window)


async def encode_sums(page: Page, by: str, window: Window, kinds: Mapping[str, str], now: datetime) -> bytes:
    """The answer. `kinds`: of jobs, by resource."""
    groups, total = dict[str, _Sums](), _Sums()
    name_of, until = _namer(by, kinds), now.timestamp()
    async for entry in in_slices(page.entries, SUM_S):
        document = entry.document
        is_over = document.phase.is_final
        seconds = sums_until(document.goodput, until, window, is_over=is_over)
        groups.setdefault(name_of(entry), _Sums()).add(document, seconds)
    weighed = list[tuple[tuple[float, float, int], str]]()
    async for name, sums in in_slices(groups.items(), SUM_S):
        total.join(sums)
        weighed.append((sums.weight, name))
    ranked = [(name, groups.pop(name)) for _, name in nlargest(MAX_GROUPS, weighed)]
    others = _Sums()
    async for sums in in_slices(groups.values(), SUM_S):
        others.join(sums)
    found: dict[str, Any] = {
        "kind": v1alpha1.TrainingJobSums.__name__,
        "apiVersion": GROUP_VERSION,
        "metadata": msgspec.Raw(page.list_meta()),
        "time": whole_second(until),
        "sumBy": by,
        "window": window,
        "total": _shown("", total),
        "groups": [_shown(name, sums) for name, sums in ranked],
    }
    if groups:
        found["others"] = _shown("", others)
    return _encode(found)


def _namer(by: str, kinds: Mapping[str, str]) -> Callable[[Entry], str]:
    if by == "namespace":
        return lambda entry: entry.document.job.ref.namespace
    if by == "kind":
        return lambda entry: kinds[entry.document.job.ref.resource]
    if by == "nodePool":
        return lambda entry: _node_pool(entry)[:MAX_NAME_CHARACTERS]
    label = QUEUE if by == "queue" else by.removeprefix(LABEL)
    return lambda entry: entry.document.job.labels.get(label, "")[:MAX_NAME_CHARACTERS]


def _node_pool(entry: Entry) -> str:
    """That of rank 0's pod, also of the last one."""
    rank0 = entry.document.job.rank0
    return rank0.node_pool if rank0 is not None else ""


def _shown(name: str, sums: _Sums) -> v1alpha1.SumsOfJobs:
    has_accelerators = any(sums.of_accelerators)
    return _SumsOfJobs(
        name=name or None,
        jobs=sums.jobs,
        running=sums.running,
        accelerators=sums.accelerators,
        goodput=encode_window(
            sums.seconds,
            sums.of_accelerators if has_accelerators else None,
            weights=sums.of_accelerators if has_accelerators else sums.seconds,
        ),
    )
