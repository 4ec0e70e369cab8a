"""The objects of one collection, out of list pages and watch events.

One that cannot be read costs itself only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec
import structlog

from .decoding import UNDECODABLE, EventBody, EventHead, Identified, ListMeta, ListPage, Metadata, decode

log = structlog.get_logger("visibility.watch")

T = TypeVar("T", bound=msgspec.Struct)

# Reasons why an object is not read, as conditions of its job give them.
TOO_LARGE, UNREADABLE = "ObjectTooLarge", "ObjectUnreadable"
# Longer lines are read in a thread: 8,000 parts of one object take 27 ms, and the loop waits for 1 of them.
# 700 that hold accelerators take 5 ms, and 100 KB.
ASIDE_BYTES = 48 * 1024
# Of one object: 220,000 parts fit one that is stored, and take 54 ms, in which no other thread goes on.
MAX_COMMAS = 65_536


class Event(NamedTuple, Generic[T]):
    """A change, and the version and namespace of its object."""

    type: str
    object: T
    version: str
    namespace: str


def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """One that takes for no number many times what it takes for another: msgspec's own way takes 16 us for
    1e308, Python's a third of one."""
    return msgspec.json.Decoder(type_, float_hook=float)


class ObjectReader(Generic[T]):
    """Decodes objects of `kind`.

    mark: returns the object to pass on when only metadata could be read. Its arguments are that object and
    the reason, TOO_LARGE or UNREADABLE.
    count: is called with the reason for each object that is not read.
    """

    def __init__(
        self, path: str, kind: type[T], *, mark: Callable[[T, str], T], count: Callable[[str], None]
    ) -> None:
        self._unread: Counter[str] = Counter()  # objects since the start, by reason
        self._count = count
        self._path = path
        self._mark = mark
        self._object = _decoder(kind)
        self._raw_page = msgspec.json.Decoder(ListPage[msgspec.Raw])
        self._head = msgspec.json.Decoder(EventHead)
        self._kind = kind
        self._meta: type[msgspec.Struct] = get_type_hints(kind)["metadata"]
        self._event = _decoder(_versioned(kind, self._meta))
        self._body = _decoder(EventBody[kind])  # type: ignore[valid-type]  # known at run time
        self._raw_body = msgspec.json.Decoder(EventBody[msgspec.Raw])

    async def page(self, body: bytes) -> tuple[ListMeta, Iterable[T | None]]:
        """Its metadata and its objects, each read when it is its turn; None for one that has no name.

        Raises an error of UNDECODABLE when it is not a list.
        """
        raw = await decode(self._raw_page, body)
        return raw.metadata, (self._object_of(item) for item in raw.items or ())

    async def event(self, line: bytes) -> Event[T]:
        """A watch event, read in one pass: a line may have nine megabytes. Raises an error of UNDECODABLE,
        also for what `head` and `body` can still read, such as a bookmark."""
        if has_many_parts(line):
            raise msgspec.ValidationError(f"the object has more than {MAX_COMMAS} commas")
        is_long = len(line) > ASIDE_BYTES
        event = await asyncio.to_thread(self._event.decode, line) if is_long else self._event.decode(line)
        read, meta = event.object, event.object.metadata
        fields = {name: getattr(read, name) for name in self._kind.__struct_fields__}
        fields["metadata"] = self._meta(
            **{name: getattr(meta, name) for name in self._meta.__struct_fields__}
        )
        return Event(event.type, self._kind(**fields), meta.resourceVersion, meta.namespace)

    async def head(self, line: bytes) -> EventHead:
        """Type and version of a watch event. Raises an error of UNDECODABLE when it is not one."""
        return await decode(self._head, line)

    async def body(self, line: bytes) -> T | None:
        """The object of a watch event; None when not even its name can be read."""
        if not has_many_parts(line):
            with suppress(*UNDECODABLE):
                return (await decode(self._body, line)).object
        return self._object_of((await decode(self._raw_body, line)).object)

    def unread_of(self, raw: bytes | msgspec.Raw, reason: str) -> T | None:
        """The substitute of an object that is not read for this reason; None when it has no name."""
        self._count(reason)
        self._unread[reason] += 1
        is_news = (
            self._unread[reason].bit_count() == 1
        )  # else frequent changes of one object would fill the log
        for part in (Metadata, Identified):
            with suppress(*UNDECODABLE):
                named = msgspec.json.encode(msgspec.json.decode(raw, type=part))
                if has_many_parts(named):
                    continue
                known = self._object.decode(named)
                break
        else:
            known = None
        if is_news:
            log.warning("object not read", path=self._path, reason=reason, so_far=self._unread[reason])
        return None if known is None else self._mark(known, reason)

    def _object_of(self, raw: msgspec.Raw) -> T | None:
        if has_many_parts(raw):
            return self.unread_of(raw, TOO_LARGE)
        try:
            return self._object.decode(raw)
        except UNDECODABLE:
            return self.unread_of(raw, UNREADABLE)


def has_many_parts(json: bytes | msgspec.Raw) -> bool:
    """Whether decoding it would take long, by its commas. Those of texts count as well."""
    return len(memoryview(json)) > MAX_COMMAS and bytes(json).count(b",") > MAX_COMMAS


def _versioned(kind: type[msgspec.Struct], meta: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - made here
    """An event whose object has the fields of `kind`, and its version."""
    strings = [(name, str, "") for name in ("namespace", "resourceVersion")]
    metadata = msgspec.defstruct("Metadata", strings, bases=(meta,), kw_only=True)
    object_ = msgspec.defstruct("Object", [("metadata", metadata)], bases=(kind,), kw_only=True)
    return msgspec.defstruct("VersionedEvent", [("type", str), ("object", object_)])
