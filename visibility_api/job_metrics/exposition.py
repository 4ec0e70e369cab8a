"""The metrics of all jobs as text, on the replica that owns them.

The lines of a job are kept, and rendered again when it changes: a scrape joins them. Other requests are
served during one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Addition
from visibility_api.jobs.saved_account import UNREADABLE_ACCOUNT, load_account
from visibility_api.jobs.summary import JobProgress
from visibility_api.store import Entry
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

from .families import FAMILIES, LEFT_OUT, Family, Pods, Shown, quote

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RENDER_S = 0.001  # so long jobs are rendered before others have their turn
PIECE_JOBS = 512  # of one metric, in one piece of the answer

_encode = msgspec.json.Encoder().encode  # numbers, in a quarter of the time that str() takes

# By what they follow from.
_CLUSTER, _ACCOUNT, _METRICS, _REPORT = (
    tuple(each for each in FAMILIES if each.follows == source)
    for source in ("cluster", "account", "metrics", "report")
)
_ORDER = (*_CLUSTER, *_ACCOUNT, *_METRICS, *_REPORT)
_NAMES = tuple(each.name for each in _REPORT)
_VALUES = tuple(each.value for each in _REPORT if each.value is not None)  # all have one sample a job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetricsSource:
    """What is shown: `most` jobs at one time, and of what they report the `metrics`."""

    store: MemoryStore
    most: int
    metrics: frozenset[str]
    kinds: Callable[[], Mapping[str, str]]  # of jobs, by resource
    is_owner: Callable[[], bool]
    pods: Callable[[TrainingJob], Pods] = lambda _job: ()


@dataclass(slots=True, kw_only=True)
class _Kept:
    """Of one job, since it was rendered last."""

    job: Shown
    labels: str
    scraped: Mapping[int, float] = field(default_factory=dict)  # seconds that the last scrape had
    of_cluster: Sequence[str] = ()
    of_account: Sequence[str] = ()
    of_metrics: Sequence[str] = ()
    lines: Sequence[str] = ()  # in _ORDER


class JobMetrics:
    """Of one replica. As a home of the log it is told which jobs change."""

    def __init__(self, source: JobMetricsSource, log: JobLog) -> None:
        self._source = source
        self._kept: dict[JobRef, _Kept] = {}
        log.add_home(self)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The text. It is empty on a replica that does not own the jobs."""
        source = self._source
        if not source.is_owner():
            self._kept.clear()
            return
        kinds = source.kinds()
        chosen, left_out = choose(source.store.list(frozenset(kinds)).entries, source.most)
        shown: dict[JobRef, _Kept] = {}
        async for entry in in_slices(chosen, RENDER_S):
            ref = entry.document.job.ref
            pods = source.pods(entry.document.job)
            kept = self._kept.get(ref)
            if kept is None:
                kept = _begin(Shown(entry.document, pods, {}, source.metrics), kinds[ref.resource])
            _update(kept, entry.document, pods)
            shown[ref] = kept
        self._kept = shown
        for kept in shown.values():
            kept.scraped = kept.job.seconds
        columns = zip(*[each.lines for each in shown.values()], strict=True)
        for family, column in zip(_ORDER, columns, strict=False):
            yield _describe(family)
            for start in range(0, len(column), PIECE_JOBS):
                yield "".join(column[start : start + PIECE_JOBS]).encode()
                await asyncio.sleep(0)
        yield _describe(LEFT_OUT)
        for namespace, number in left_out.items():
            yield f"{LEFT_OUT.name}{{namespace={quote(namespace)}}} {number}\n".encode()

    def changed(self, ref: JobRef, _points: Sequence[Addition]) -> None:
        """Render its lines anew, if the last scrape had them: then the next one need not."""
        kept, entry = self._kept.get(ref), self._source.store.get(ref.resource, ref.namespace, ref.name)
        if kept is not None and entry is not None:
            with suppress(Exception):  # the next scrape meets it again, and says so
                _update(kept, entry.document, kept.job.pods)

    def gone(self, ref: JobRef) -> None:
        self._kept.pop(ref, None)


def _update(kept: _Kept, document: JobProgress, pods: Pods) -> None:
    """Render what has changed of a job, or all that is not rendered yet."""
    job, labels, is_new = kept.job, kept.labels, not kept.lines
    before, had_pods = job.document, job.pods
    if before is document and had_pods == pods and not is_new:
        return
    job.document, job.pods, kept.lines = document, pods, ()
    if is_new or before.goodput != document.goodput:
        job.seconds = grow(kept.scraped, document)
        kept.of_account = [_lines(each, labels, job) for each in _ACCOUNT]
    if is_new or had_pods != pods or not _is_same(before, document):
        kept.of_cluster = [_lines(each, labels, job) for each in _CLUSTER]
    if is_new or before.metrics != document.metrics:
        kept.of_metrics = [_lines(each, labels, job) for each in _METRICS]
    values = _encode([read(document) for read in _VALUES])[1:-1].decode().split(",")
    of_report = [
        "" if value == "null" else f"{name}{labels}}} {value}\n"
        for name, value in zip(_NAMES, values, strict=True)
    ]
    kept.lines = (*kept.of_cluster, *kept.of_account, *kept.of_metrics, *of_report)


def _begin(job: Shown, kind: str) -> _Kept:
    ref = job.document.job.ref
    labels = f"{{namespace={quote(ref.namespace)},kind={quote(kind)},trainjob={quote(ref.name)}"
    return _Kept(job=job, labels=labels)


def grow(before: Mapping[int, float], document: JobProgress) -> Mapping[int, float]:
    """What is not settled yet may count as another activity later, but a counter must not shrink."""
    try:
        spent = load_account(document.goodput).spent()
    except UNREADABLE_ACCOUNT:
        return before
    seconds = ((kind, max(some, before.get(kind, 0.0))) for kind, some in enumerate(spent))
    return {kind: some for kind, some in seconds if some}


def _lines(family: Family, labels: str, job: Shown) -> str:
    if family.value is not None:
        value = family.value(job.document)
        return "" if value is None else f"{family.name}{labels}}} {value}\n"
    head = family.name + labels
    return "".join([f"{head}{more}}} {value}\n" for more, value in family.samples(job)])


def _describe(family: Family) -> bytes:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n".encode()


def _is_same(before: JobProgress, after: JobProgress) -> bool:
    """As far as the metrics that seldom change show it."""
    return (
        before.job is after.job
        and before.attempts == after.attempts
        and before.started_at == after.started_at
        and before.ended_at == after.ended_at
        and before.total_steps == after.total_steps
        and _source(before) == _source(after)
        and (before.conditions == after.conditions or _statuses(before) == _statuses(after))
    )


def _source(document: JobProgress) -> str:
    return document.observation.source if document.observation is not None else ""


def _statuses(document: JobProgress) -> list[tuple[str, str]]:
    return [(each.type, each.status) for each in document.conditions]


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
