"""Decoding what kube-apiserver sends in short slices of time, also when an object is nested too deep for it.

kube-apiserver accepts objects that are nested up to ten thousand levels deep, for example in `managedFields`.
The decoder fails at a smaller depth, and the whole list page with it. Values that are too deep are then
replaced by null.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from visibility_api.flowcontrol.slices import in_slices

MAX_DEPTH = 100  # the fields of a pod lie some 15 levels deep
# Errors of msgspec for unexpected bytes; RecursionError for those that are nested too deep.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    cont: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[T]):
    """Of `msgspec.Raw`, or of a kind of objects."""

    metadata: ListMeta
    items: list[T] | None = None  # null in an empty list of metadata only


class Versioned(msgspec.Struct):
    """An object's resourceVersion and namespace; of the Status in an event of type ERROR the rest."""

    class Meta(msgspec.Struct):
        resourceVersion: str = ""
        namespace: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)
    code: object = 0
    reason: object = ""
    message: object = ""


class EventHead(msgspec.Struct):
    """A watch event without most of its object, which may have megabytes or be undecodable."""

    type: str
    object: Versioned


class EventBody(msgspec.Struct, Generic[T]):
    """The object of a watch event: `msgspec.Raw`, or of a kind of objects."""

    object: T


class Metadata(msgspec.Struct):
    """The usable part of an object if a field outside its metadata cannot be decoded."""

    metadata: msgspec.Raw


class Identified(msgspec.Struct):
    """The usable part of an object if a field of its metadata cannot be decoded either."""

    class Meta(msgspec.Struct):
        name: str
        namespace: str = ""
        uid: str = ""

    metadata: Meta


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)
_OPENING, _CLOSING = frozenset((b"[", b"{")), frozenset((b"]", b"}"))
_TOKENS_AT_ONCE = 256  # a tenth of a millisecond: to look at the clock after each one takes longer than it


async def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises what is in UNDECODABLE."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(await truncate_depth(body))


async def truncate_depth(body: bytes, *, max_depth: int = MAX_DEPTH) -> bytes:
    """The same valid JSON with null for every array or object below `max_depth` levels.

    Takes time in proportion to its length, and lets other tasks run meanwhile.
    """
    kept: list[bytes] = []
    start = depth = 0
    tokens = _TOKEN.finditer(body)
    async for some in in_slices(iter(lambda: tuple(islice(tokens, _TOKENS_AT_ONCE)), ())):
        for token in some:
            first = token[0]
            if first in _OPENING:
                depth += 1
                if depth == max_depth + 1:
                    kept += (body[start : token.start()], b"null")
                    start = len(body)
            elif first in _CLOSING:
                if depth == max_depth + 1:
                    start = token.end()
                depth -= 1
    return b"".join((*kept, body[start:]))
