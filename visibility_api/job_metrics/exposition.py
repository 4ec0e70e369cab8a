"""The metrics of all jobs as text, on the replica that owns them.

A scrape renders the jobs that have changed since the last one, so a push costs nothing more. The lines of a
job are kept between scrapes; other requests are served during one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.saved_account import UNREADABLE_ACCOUNT, read_sums
from visibility_api.jobs.summary import JobProgress
from visibility_api.store import Entry
from visibility_api.store.memory import MemoryStore

from .families import FAMILIES, LEFT_OUT, Family, Pods, Shown, quote

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AT_ONCE = 32  # jobs that are rendered, in a millisecond, before others have their turn
PIECE_JOBS = 512  # of one metric, in one piece of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetricsSource:
    """What is shown: `most` jobs at one time, and of what they report the `metrics`."""

    store: MemoryStore
    most: int
    metrics: frozenset[str]
    kinds: Callable[[], Mapping[str, str]]  # of jobs, by resource
    is_owner: Callable[[], bool]
    pods: Callable[[TrainingJob], Pods] = lambda _job: ()


class _Kept(NamedTuple):
    """Of one job, since it was rendered last."""

    document: JobProgress
    pods: Pods
    seconds: dict[int, float]
    lines: Sequence[str]  # in the order of FAMILIES


class JobMetrics:
    """Of one replica."""

    def __init__(self, source: JobMetricsSource) -> None:
        self._source = source
        self._kept: dict[JobRef, _Kept] = {}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The text. It is empty on a replica that does not own the jobs."""
        source = self._source
        if not source.is_owner():
            self._kept.clear()
            return
        kinds = source.kinds()
        chosen, left_out = choose(source.store.list(frozenset(kinds)).entries, source.most)
        shown: dict[JobRef, _Kept] = {}
        for place, entry in enumerate(chosen, start=1):
            ref = entry.document.job.ref
            shown[ref] = self._render(ref, entry.document, kinds[ref.resource])
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
        self._kept = shown
        columns = zip(*[each.lines for each in shown.values()], strict=True)
        for family, column in zip(FAMILIES, columns, strict=False):
            yield _describe(family)
            for start in range(0, len(column), PIECE_JOBS):
                yield "".join(column[start : start + PIECE_JOBS]).encode()
                await asyncio.sleep(0)
        yield _describe(LEFT_OUT)
        for namespace, number in left_out.items():
            yield f"{LEFT_OUT.name}{{namespace={quote(namespace)}}} {number}\n".encode()

    def _render(self, ref: JobRef, document: JobProgress, kind: str) -> _Kept:
        kept, pods = self._kept.get(ref), self._source.pods(document.job)
        if kept is not None and kept.document is document and kept.pods == pods:
            return kept
        seconds = grow(kept.seconds if kept is not None else {}, document)
        job = Shown(document, pods, seconds, self._source.metrics)
        labels = f"{{namespace={quote(ref.namespace)},kind={quote(kind)},trainjob={quote(ref.name)}"
        return _Kept(document, pods, seconds, [_lines(family, labels, job) for family in FAMILIES])


def grow(before: dict[int, float], document: JobProgress) -> dict[int, float]:
    """What is not settled yet may count as another activity later, but a counter must not shrink."""
    try:
        sums = read_sums(document.goodput)
    except UNREADABLE_ACCOUNT:
        return before
    for kind, some in before.items():
        if sums.get(kind, 0.0) < some:
            sums[kind] = some
    return sums


def _lines(family: Family, labels: str, job: Shown) -> str:
    if family.value is not None:
        value = family.value(job.document)
        return "" if value is None else f"{family.name}{labels}}} {value}\n"
    name = family.name
    return "".join([f"{name}{labels}{more}}} {value}\n" for more, value in family.samples(job)])


def _describe(family: Family) -> bytes:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n".encode()


def choose(entries: Sequence[Entry], most: int) -> tuple[Sequence[Entry], Mapping[str, int]]:
    """At most so many, and how many are left out by namespace. Each namespace has the same share, and what
    it does not need is the others'. Jobs that have not ended come first, then older ones: they stay."""
    if len(entries) <= most:
        return entries, {}
    number = Counter(each.document.job.ref.namespace for each in entries)
    room, share = most, 0
    for place, some in enumerate(sorted(number.values())):
        share = room // (len(number) - place)
        if some > share:
            break
        room -= some
    taken: Counter[str] = Counter()
    chosen = []
    for entry in sorted(entries, key=_rank):
        namespace = entry.document.job.ref.namespace
        if taken[namespace] < share:
            taken[namespace] += 1
            chosen.append(entry)
    return chosen, {each: some - taken[each] for each, some in number.items() if some > taken[each]}


def _rank(entry: Entry) -> tuple[bool, float]:
    job = entry.document.job
    return job.phase.is_final, job.created_at.timestamp() if job.created_at is not None else 0.0
