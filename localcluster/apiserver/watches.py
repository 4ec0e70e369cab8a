"""GET with `watch`: where a stream starts, what goes into it, how it ends (W1-W16)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import msgspec

from localcluster.apiserver.negotiation import Form
from localcluster.apiserver.request_info import integer, is_true
from localcluster.apiserver.store import Change, Entry, Expired, Store, Subscription
from localcluster.apiserver.tables import partial, table
from localcluster.machinery.metadata import Object
from localcluster.machinery.resources import Resource
from localcluster.machinery.selectors import Predicate
from localcluster.machinery.status import ApiError, bad_request, expired, invalid_list_options

BOOKMARK_INTERVAL_S = 60.0
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The query of a watch, checked (L4, W5-W11)."""

    start_revision: int | None  # changes after this one; None = from now
    initial_events: bool
    bookmarks: bool
    timeout_s: float

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> WatchOptions:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        wanted = query.get("sendInitialEvents")
        if wanted is not None and not match:
            problem = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid_list_options("resourceVersionMatch", problem)
        if match and wanted is None:
            problem = (
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            raise invalid_list_options("resourceVersionMatch", problem)
        if match not in ("", "NotOlderThan"):
            problem = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
            raise invalid_list_options("resourceVersionMatch", problem)
        if not version.isdecimal() and version:
            raise bad_request(f"invalid resource version: {version}")
        legacy = version in ("", "0")  # W11: behaves as if initial events had been requested
        initial = legacy if wanted is None else is_true(wanted)
        timeout_s = integer(query.get("timeoutSeconds") or "0")
        return cls(
            start_revision=None if legacy or initial else int(version),
            initial_events=initial,
            bookmarks=is_true(query.get("allowWatchBookmarks")),
            timeout_s=float(timeout_s) or random.uniform(1800, 3600),
        )


class EventEncoder:
    """Turns changes into event lines in the form the client negotiated."""

    def __init__(self, resource: Resource, form: Form, include_object: str) -> None:
        self._resource, self._form, self._include = resource, form, include_object
        self._first = True

    def event(self, kind: str, entry: Entry) -> bytes:
        if not self._form.kind:
            return b'{"type":"%b","object":%b}\n' % (kind.encode(), entry.encoded)
        return _encode({"type": kind, "object": self._shaped(entry.object)}) + b"\n"

    def bookmark(self, revision: int, *, ends_initial_events: bool = False) -> bytes:
        meta: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if ends_initial_events:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        bare = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": meta}
        shaped = {"": bare, "Table": table(self._resource, [], str(revision))}.get(
            self._form.kind, partial(bare)
        )
        return _encode({"type": "BOOKMARK", "object": shaped}) + b"\n"

    def error(self, error: ApiError) -> bytes:
        return _encode({"type": "ERROR", "object": error.body()}) + b"\n"

    def _shaped(self, thing: Object) -> Object:
        if self._form.kind != "Table":
            return partial(thing)
        version = thing["metadata"]["resourceVersion"]
        shaped = table(self._resource, [thing], version, self._include, columns=self._first)
        self._first = False
        return shaped


async def stream(
    store: Store,
    resource: Resource,
    namespace: str,
    matches: Predicate,
    options: WatchOptions,
    encoder: EventEncoder,
) -> AsyncIterator[bytes]:
    """Event lines until the timeout, a cut, or a compaction. The first is b"": headers go out at once."""
    head = store.revision
    try:
        subscription = store.subscribe(
            resource, head if options.start_revision is None else options.start_revision
        )
    except Expired as error:
        yield encoder.error(expired(str(error)))
        return
    # Taken in the same turn as the subscription: nothing is missed and nothing comes twice.
    snapshot = store.entries(resource, namespace) if options.initial_events else []
    try:
        yield b""
        if options.initial_events:
            for entry in snapshot:
                if matches(entry.object):
                    yield encoder.event("ADDED", entry)
            if options.bookmarks:
                yield encoder.bookmark(head, ends_initial_events=True)
        async for line in _changes(store, subscription, namespace, matches, options, encoder):
            yield line
    finally:
        store.unsubscribe(resource, subscription)


async def _changes(
    store: Store,
    subscription: Subscription,
    namespace: str,
    matches: Predicate,
    options: WatchOptions,
    encoder: EventEncoder,
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + options.timeout_s
    while (left_s := ends_at - loop.time()) > 0:
        try:
            async with asyncio.timeout(min(left_s, BOOKMARK_INTERVAL_S)):
                change = await subscription.queue.get()
        except TimeoutError:
            if options.bookmarks and subscription.queue.empty():  # never ahead of events still to be sent
                yield encoder.bookmark(store.revision)
            continue
        if change is None:
            if subscription.expired:
                yield encoder.error(expired("The resourceVersion for the provided watch is too old."))
            return
        kind = _transition(change, namespace, matches)
        if kind == "DELETED" and change.type != "DELETED" and change.previous:
            # The last matching content under the revision at which it left the selector (W13).
            meta = change.previous.object["metadata"] | {"resourceVersion": str(change.revision)}
            left = change.previous.object | {"metadata": meta}
            yield encoder.event(kind, Entry(left, _encode(left)))
        elif kind:
            yield encoder.event(kind, change.entry)


def _transition(change: Change, namespace: str, matches: Predicate) -> str:
    """W12: what this change means to a watcher with a selector; "" = nothing."""
    if namespace and change.entry.object["metadata"].get("namespace") != namespace:
        return ""
    before = change.previous is not None and matches(change.previous.object)
    after = change.type != "DELETED" and matches(change.entry.object)
    if before and after:
        return "MODIFIED"
    if after:
        return "ADDED"
    return "DELETED" if before else ""
