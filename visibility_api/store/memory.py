"""The store of one process: everything in memory, gone with it.

No method awaits, so readers always find a whole state and no lock is needed.
"""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice

from cachetools import LRUCache, TTLCache

from visibility_api.jobs.job import JobRef, list_order
from visibility_api.jobs.summary import JobProgress

from . import Change, ChangeType, Entry, Listing, Resources, RevisionExpired
from .changelog import ChangeLog, LogFeed, WakeUps

# Revisions are an epoch, which rises with each owner of the log, and a count. Above 2^30 changes in an epoch
# the count runs on into the epochs, which are seconds: it never overtakes the next owner's.
EPOCH_BITS = 30
MAX_CHANGES = 10_000  # of one resource; with 50 changes a second some three minutes of history
MAX_HISTORY_BYTES = 64 * 1024 * 1024  # of one resource, as estimated by `_size_bytes`
REACH_S = 3.0  # as kube-apiserver waits for its cache to become as new as requested
MAX_REACHED = 1024  # revisions that readers wait for at one time
MAX_PAST, PAST_FOR_S = 8, 60.0  # earlier states that are kept
MAX_MIXED = 32  # lists of several resources that are kept until the next change
MAX_EPOCHS_AHEAD = 3600  # seconds: an owner's clock may be ahead
_BASE_SIZE_BYTES = 4096  # of a document with few metrics, as Python objects and as JSON together

_Key = tuple[str, str]  # namespace, name


class _State:
    """The state of one resource: its entries, in order, and their changes."""

    def __init__(self, log: ChangeLog) -> None:
        self.entries: dict[_Key, Entry] = {}
        self.is_ordered = True  # `entries`; put in order when a list is requested, not with each new job
        self.listings: dict[str | None, Listing] = {}  # present state by namespace, until it changes
        self.log = log

    def listing(self, namespace: str | None, revision: int) -> Listing:
        held = self.listings.get(namespace)
        if held is not None and held.revision == revision:
            return held
        entries = self.present(namespace)
        listing = Listing(revision=revision, entries=entries)
        if entries:  # a namespace that does not exist leaves nothing behind
            self.listings[namespace] = listing
        return listing

    def past_listing(self, namespace: str | None, revision: int) -> Listing:
        """The state at an earlier revision: the present one with every later change taken back."""
        changes = [
            change
            for change in self.log.after(revision)
            if namespace is None or change.entry.document.job.ref.namespace == namespace
        ]
        return Listing(revision=revision, entries=_take_back(changes, self.present(namespace), _key))

    def present(self, namespace: str | None) -> Sequence[Entry]:
        held = self.listings.get(namespace)
        if held is not None:
            return held.entries
        if not self.is_ordered:
            self.entries = dict(sorted(self.entries.items(), key=lambda item: list_order(*item[0])))
            self.is_ordered = True
        if namespace is None:
            return list(self.entries.values())
        keys = list(self.entries)
        first = bisect_left(keys, (f"{namespace}/", ""), key=_order)
        end = bisect_left(keys, (f"{namespace}0", ""), key=_order)  # the character after "/"
        return list(islice(self.entries.values(), first, end))


class MemoryStore:
    """What the API reads. The owner of the log calls `put` and `delete`, a follower `reset` and `apply`.

    Every visible change of any resource is one revision more. `base_revision` must be above any that an
    earlier process may have given out."""

    def __init__(
        self,
        *,
        base_revision: int,
        max_changes: int = MAX_CHANGES,
        max_history_bytes: int = MAX_HISTORY_BYTES,
        wake_ups: WakeUps = WakeUps(),  # noqa: B008 - immutable
    ) -> None:
        if base_revision < 1:
            raise ValueError(f"base_revision must be at least 1, not {base_revision}")
        self._started_at = self._revision = base_revision
        self._max_changes = max_changes
        self._max_history_bytes = max_history_bytes
        self._wake_ups = wake_ups
        self._resources: dict[str, _State] = {}
        self._all = self._new_log()
        # Of lists in pages: each further page is of the same past state.
        self._past: TTLCache[tuple[Resources, str | None, int], Listing] = TTLCache(MAX_PAST, PAST_FOR_S)
        # Of several resources: lists of the present state; the order of all jobs, until one comes or goes.
        self._mixed: LRUCache[tuple[Resources, str | None], Listing] = LRUCache(MAX_MIXED)
        self._order: list[tuple[str, _Key]] | None = None
        self.is_follower = False  # revisions come from another replica
        self._marks = {base_revision}  # revisions without a change: where an epoch began
        self._gap = -1, -1  # revisions that `branch` has left out, both ends held
        self._reached: dict[int, asyncio.Event] = {}  # revisions that readers wait for

    @property
    def revision(self) -> int:
        """The newest revision of all resources together."""
        return self._revision

    @property
    def epoch(self) -> int:
        """Of the owner that has assigned the newest revision."""
        return self._revision >> EPOCH_BITS

    @property
    def base_revision(self) -> int:
        """Changes after this revision are held; a watch may start at it or later."""
        return max((s.log.base_revision for s in self._resources.values()), default=self._started_at)

    def begin_epoch(self, epoch: int) -> None:
        """Assign revisions of this epoch from now on. One that is not later than the present is an error."""
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} is not after {self.epoch}")
        if self.epoch or any(state.entries for state in self._resources.values()):
            self._marks.add(epoch << EPOCH_BITS)
            self._advance(epoch << EPOCH_BITS)
        else:
            self.reset(epoch << EPOCH_BITS)

    def reset(self, revision: int, entries: Iterable[tuple[int, JobProgress]] = ()) -> None:
        """Begin anew with these entries, each at its revision, and nothing before `revision`. Watchers are
        cut:
        they list again."""
        for log in (self._all, *(state.log for state in self._resources.values())):
            log.close_feeds()
        self._started_at = revision
        self._gap = -1, -1
        self._advance(revision)
        self._marks = {revision}
        self._resources, self._all, self._order = {}, self._new_log(), None
        self._past.clear()
        self._mixed.clear()
        for at, document in entries:
            ref = document.job.ref
            state = self._of(ref.resource)
            state.entries[ref.namespace, ref.name] = Entry(document=document, revision=at)
            state.is_ordered = False

    def branch(self, shown: Callable[[JobProgress], JobProgress]) -> None:
        """A follower's that has lost the owner: show each document so from now on.

        The revisions are above all that the owner gives out in this epoch: who has seen one lists again when
        the owner is back. They begin anywhere, so that no other branch has the same."""
        own = self.epoch << EPOCH_BITS | 1 << (EPOCH_BITS - 1)
        first = max(self._revision, own + secrets.randbits(EPOCH_BITS - 2))
        left, _ = self._gap
        self._gap = left if left >> EPOCH_BITS == self.epoch else self._revision, first
        self._advance(first)
        for state in list(self._resources.values()):
            for entry in list(state.entries.values()):
                self.put(shown(entry.document))

    def apply(self, type_: ChangeType, revision: int, document: JobProgress) -> None:
        """A follower's: what the owner's log says next, which may leave changes of the job out. Raises
        ValueError for a revision out of order."""
        if revision <= self._revision:
            raise ValueError(f"revision {revision} is not after {self._revision}")
        ref = document.job.ref
        state, key = self._of(ref.resource), (ref.namespace, ref.name)
        held = state.entries.get(key)
        if type_ != "DELETED":
            type_ = "MODIFIED" if held is not None and held.document.job.ref.uid == ref.uid else "ADDED"
        elif held is None:
            self._advance(revision)
            return
        state.is_ordered &= held is not None
        self._step(state, type_, document, previous=held, revision=revision)
        if type_ == "DELETED":
            del state.entries[key]
            self._reorder(ref, is_new=False)

    def advance(self, revision: int, *, is_mark: bool = False) -> None:
        """Nothing has changed up to this revision."""
        if is_mark and not self._all.has(revision):
            self._marks = {each for each in self._marks if each >= self._all.base_revision} | {revision}
        if revision > self._revision:
            self._advance(revision)

    def knows(self, revision: int) -> bool:
        """Whether this revision is part of this history, and all changes after it are held."""
        if revision < self._all.base_revision:
            return False
        return revision in self._marks or self._all.has(revision)

    def includes(self, revision: int) -> bool:
        """Whether what is shown is no older than what any replica has shown at this revision. After `branch`
        the owner may have given out more, and so may the branch of another replica."""
        left, first = self._gap
        is_left_out = left < revision < first and self.epoch == first >> EPOCH_BITS
        return revision <= self._revision and not is_left_out

    def log_after(self, revision: int) -> Sequence[Change] | None:
        """Changes of all resources after `revision`, in order; None when not all are held any more."""
        return self._all.after(revision) if revision >= self._all.base_revision else None

    def log_base(self) -> tuple[int, Sequence[Entry]]:
        """The oldest revision from which `log_after` continues, and every entry as it was then."""
        base = self._all.base_revision
        return base, [
            entry for state in self._resources.values() for entry in state.past_listing(None, base).entries
        ]

    def entries(self) -> Iterator[Entry]:
        """Of every job now, in no order."""
        for state in self._resources.values():
            yield from state.entries.values()

    async def reach(self, revision: int, timeout_s: float = REACH_S) -> bool:
        """Wait until what is shown includes this revision: another replica may have given it out a moment
        ago."""
        if self.includes(revision):
            return True
        if not self.awaits(revision) or len(self._reached) >= MAX_REACHED:
            return False  # this process alone gives revisions out; it is made up, or of another cluster
        reached = self._reached.setdefault(revision, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await reached.wait()
        except TimeoutError:
            return False
        finally:
            if self._reached.get(revision) is reached and not self.includes(revision):
                del self._reached[revision]
        return True

    def awaits(self, revision: int) -> bool:
        """Whether another replica may have given out this revision, which is not held here yet."""
        is_branch = bool(revision >> (EPOCH_BITS - 1) & 1)  # `branch`
        is_ours = revision >> EPOCH_BITS <= self.epoch + MAX_EPOCHS_AHEAD
        return self.is_follower and not self.includes(revision) and is_ours and not is_branch

    def put(self, document: JobProgress) -> None:
        """Makes `document` the latest of its job. One that is equal to the latest changes nothing.

        A job of the same name with another uid is another object: the old one is deleted first.
        """
        ref = document.job.ref
        state, key = self._of(ref.resource), (ref.namespace, ref.name)
        held = state.entries.get(key)
        if held is not None and held.document.job.ref.uid != ref.uid:
            self._remove(state, key, held)
            held = None
        if held is None:
            state.is_ordered = False
            self._step(state, "ADDED", document, previous=None)
        elif held.document != document:
            self._step(state, "MODIFIED", document, previous=held)

    def delete(self, ref: JobRef) -> None:
        """Removes the document of exactly that job; another one of the same name stays."""
        state, key = self._of(ref.resource), (ref.namespace, ref.name)
        held = state.entries.get(key)
        if held is not None and held.document.job.ref.uid == ref.uid:
            self._remove(state, key, held)

    def count(self, resource: str) -> int:
        """How many jobs of this resource there are."""
        state = self._resources.get(resource)
        return len(state.entries) if state is not None else 0

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        state = self._resources.get(resource)
        return state.entries.get((namespace, name)) if state is not None else None

    def list(self, resources: Resources, namespace: str | None = None, *, at: int | None = None) -> Listing:
        """Every entry of the resources, or of one namespace of them, now or as it was at revision `at`.

        Raises RevisionExpired when that state is no longer held, or is of another process.
        """
        if at is None or at == self._revision:
            if isinstance(resources, str):
                return self._of(resources).listing(namespace, self._revision)
            return self._mixed_listing(resources, namespace)
        log = self._log_of(resources)
        if at < log.base_revision or not self.includes(at):
            raise RevisionExpired(at, log.base_revision)
        past = self._past.get((resources, namespace, at))
        if past is None:
            if isinstance(resources, str):
                past = self._of(resources).past_listing(namespace, at)
            else:
                past = self._mixed_past(resources, namespace, at)
            self._past[resources, namespace, at] = past
        return past

    def watch(self, resources: Resources, since: int, client: Hashable = None) -> LogFeed:
        """Changes after `since`, replayed from history, then live; of all resources when several are named.

        The watches of one client share its part of the wake-ups; None: one of its own. Raises RevisionExpired
        for a revision before the history, and for one that is not included, which is of another process.
        """
        log = self._log_of(resources)
        if not self.includes(since):
            raise RevisionExpired(since, log.base_revision)  # of another process
        return log.feed(since, client)

    def _log_of(self, resources: Resources) -> ChangeLog:
        return self._of(resources).log if isinstance(resources, str) else self._all

    def _mixed_listing(self, resources: frozenset[str], namespace: str | None) -> Listing:
        held = self._mixed.get((resources, namespace))
        if held is None or held.revision != self._revision:
            held = Listing(revision=self._revision, entries=self._mixed_entries(resources, namespace))
            if held.entries:
                self._mixed[resources, namespace] = held
        return held

    def _mixed_past(self, resources: frozenset[str], namespace: str | None, revision: int) -> Listing:
        changes = [
            change
            for change in self._all.after(revision)
            if (ref := change.entry.document.job.ref).resource in resources
            and (namespace is None or ref.namespace == namespace)
        ]
        present = self._mixed_entries(resources, namespace)
        return Listing(revision=revision, entries=_take_back(changes, present, _qualified_key))

    def _mixed_entries(self, resources: frozenset[str], namespace: str | None) -> Sequence[Entry]:
        states = {plural: state for plural, state in self._resources.items() if plural in resources}
        if namespace is not None:
            found = [entry for state in states.values() for entry in state.present(namespace)]
            return sorted(found, key=lambda entry: _order(_qualified_key(entry)))
        if self._order is None:
            self._order = sorted(
                ((plural, key) for plural, state in self._resources.items() for key in state.entries),
                key=_mixed_order,
            )
        return [states[plural].entries[key] for plural, key in self._order if plural in states]

    def _of(self, resource: str) -> _State:
        state = self._resources.get(resource)
        if state is None:
            state = self._resources[resource] = _State(self._new_log())
        return state

    def _new_log(self) -> ChangeLog:
        return ChangeLog(
            base_revision=self._started_at,
            max_changes=self._max_changes,
            max_bytes=self._max_history_bytes,
            wake_ups=self._wake_ups,
        )

    def _advance(self, revision: int) -> None:
        self._revision = revision
        if self._reached:
            for each in [each for each in self._reached if self.includes(each)]:
                self._reached.pop(each).set()

    def _remove(self, state: _State, key: _Key, held: Entry) -> None:
        self._step(state, "DELETED", held.document, previous=held)
        del state.entries[key]
        self._reorder(held.document.job.ref, is_new=False)

    def _reorder(self, ref: JobRef, *, is_new: bool) -> None:
        """This job has come, or it has gone. To sort all of 10,000 anew would take 15 ms."""
        if self._order is not None:
            job = ref.resource, (ref.namespace, ref.name)
            place = bisect_left(self._order, _mixed_order(job), key=_mixed_order)
            self._order[place : place + (not is_new)] = [job] if is_new else []

    def _step(
        self,
        state: _State,
        type_: ChangeType,
        document: JobProgress,
        *,
        previous: Entry | None,
        revision: int | None = None,
    ) -> None:
        self._advance(self._revision + 1 if revision is None else revision)
        entry = Entry(document=document, revision=self._revision)
        ref = document.job.ref
        state.entries[ref.namespace, ref.name] = entry
        state.listings.pop(None, None)
        state.listings.pop(ref.namespace, None)
        if self._mixed:
            self._mixed.clear()
        if previous is None:
            self._reorder(ref, is_new=True)
        change, size_bytes = Change(type=type_, entry=entry, previous=previous), _size_bytes(document)
        state.log.append(change, size_bytes=size_bytes)
        self._all.append(change, size_bytes=size_bytes)


def _order(key: _Key) -> tuple[str, str]:
    return list_order(*key)


def _mixed_order(job: tuple[str, _Key]) -> tuple[str, str]:
    """Of a job among those of several resources."""
    plural, (namespace, name) = job
    return list_order(namespace, f"{plural}.{name}")


def _key(entry: Entry) -> _Key:
    ref = entry.document.job.ref
    return ref.namespace, ref.name


def _qualified_key(entry: Entry) -> _Key:
    ref = entry.document.job.ref
    return ref.namespace, ref.qualified_name


def _take_back(
    changes: Sequence[Change], present: Iterable[Entry], key_of: Callable[[Entry], _Key]
) -> list[Entry]:
    """The entries before these changes, in order."""
    entries = {key_of(entry): entry for entry in present}
    for change in reversed(changes):
        key = key_of(change.entry)
        if change.previous is None:
            entries.pop(key, None)
        else:
            entries[key] = change.previous
    return [entries[key] for key in sorted(entries, key=_order)]


def _size_bytes(document: JobProgress) -> int:
    """About what one revision of the document keeps in memory, its encoded forms included."""
    texts = sum(map(len, chain(*document.metrics, *document.job.labels.items())))
    return _BASE_SIZE_BYTES + 4 * texts + 200 * len(document.metrics) + 150 * len(document.job.labels)
