"""How a list is written: compact JSON, indented JSON or YAML, in any form.

A list is a head, the items with a separator between them, and an end. Items do not depend on their place, so
they can be cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from .negotiation import JSON, Representation
from .rendering import indent, to_yaml

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Listed(Protocol[T_contra]):
    """A form of what a list has: `Form` of documents, another one of records."""

    @property
    def key(self) -> str:
        """Identifies the form among those of one resource: the key of its cached bytes."""
        ...

    @property
    def items_field(self) -> str:
        """The name of a list's field with the items, which is its last one."""
        ...

    def items(self) -> Callable[[T_contra], bytes]:
        """Encodes items, with the ages of one time: that of this call."""
        ...

    def moment(self) -> int:
        """The present time in steps as long as ages may be old; always the same of a timeless form."""
        ...

    def head(self, list_meta: bytes) -> bytes:
        """A list up to its first item; `list_meta` is its encoded `metadata`. The list ends with `]}`."""
        ...


async def others_first() -> None:
    """Other tasks run."""
    await asyncio.sleep(0)


async def write_items(
    write: Callable[[T], bytes],
    items: Sequence[T],
    bytes_at_once: int,
    pause: Callable[[], Awaitable[None]] = others_first,
) -> list[bytes]:
    """Each of them. `pause` is awaited after every `bytes_at_once`, and at the end."""
    written, size = list[bytes](), 0
    for place, item in enumerate(items, start=1):
        written.append(write(item))
        size += len(written[-1])
        if size >= bytes_at_once or place == len(items):
            size = 0
            await pause()
    return written


class Layout(Generic[T]):
    """One form in one representation: compact JSON, unless a subclass says otherwise."""

    is_costly = False  # whether an item takes long to write
    bytes_at_once = 160 * 1024  # that are written before other tasks run, in a millisecond or two
    separator = b","
    _kind = ""

    def __init__(self, form: Listed[T]) -> None:
        self._form = form
        self.key = f"{form.key} {self._kind}"  # identifies the layout among those of one resource
        self.moment = form.moment

    def items(self) -> Callable[[T], bytes]:
        """What writes one item; the ages in all that it writes are of the time of this call."""
        return self._form.items()

    def around(self, list_meta: bytes, *, is_empty: bool) -> tuple[bytes, bytes]:  # noqa: ARG002 - of others
        """What comes before and after the items; `list_meta` is the list's encoded `metadata`."""
        return self._form.head(list_meta), b"]}\n"


def layout_of(form: Listed[T], representation: Representation) -> Layout[T]:
    """The layout of a list response."""
    if representation.media_type != JSON:
        return _Yaml(form)
    return _Indented(form) if representation.pretty else Layout(form)


class _Indented(Layout[T]):
    """Two spaces a level."""

    is_costly = True
    bytes_at_once = 64 * 1024
    _kind = "indented"

    def items(self) -> Callable[[T], bytes]:
        item = self._form.items()
        opening, closing = b'{\n  "": [', b"\n  ]\n}"  # around an item, indented as deeply as in a list
        return lambda entry: indent(b'{"":[%s]}' % item(entry))[len(opening) : -len(closing)]

    def around(self, list_meta: bytes, *, is_empty: bool) -> tuple[bytes, bytes]:
        """The items are the last of a list's fields."""
        before, _, after = indent(self._form.head(list_meta) + b"]}").rpartition(b"[]")
        return (before + b"[]", after + b"\n") if is_empty else (before + b"[", b"\n  ]" + after + b"\n")


class _Yaml(Layout[T]):
    """Keys are sorted, so the items come in the middle."""

    is_costly = True
    bytes_at_once = 4 * 1024
    separator = b""
    _kind = "yaml"

    def items(self) -> Callable[[T], bytes]:
        item = self._form.items()
        return lambda entry: to_yaml(b"[%s]" % item(entry))

    def around(self, list_meta: bytes, *, is_empty: bool) -> tuple[bytes, bytes]:
        name = self._form.items_field
        fields = msgspec.json.decode(self._form.head(list_meta) + b"]}", type=dict[str, msgspec.Raw])
        before = [_yaml_field(each, fields[each]) for each in sorted(fields) if each < name]
        after = [_yaml_field(each, fields[each]) for each in sorted(fields) if each > name]
        heading = b"%s: []\n" if is_empty else b"%s:\n"
        return b"".join((*before, heading % name.encode())), b"".join(after)


def _yaml_field(name: str, value: msgspec.Raw) -> bytes:
    return to_yaml(b'{"%s":%s}' % (name.encode(), bytes(value)))
