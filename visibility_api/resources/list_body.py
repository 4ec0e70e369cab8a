"""The body of a list in slices, so that a large list does not delay other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from visibility_api.store import Entry

from .forms import Form
from .negotiation import JSON, Representation
from .rendering import indent, to_yaml

ITEMS_A_SLICE = 100  # two milliseconds when none of them is encoded yet
SLICE_BYTES = 116 * 1024
YAML_ITEMS_A_SLICE = 8  # an item takes half a millisecond to write as YAML


async def list_body(
    form: Form, list_meta: bytes, entries: Sequence[Entry], representation: Representation
) -> list[bytes]:
    """The whole list in the negotiated form, with a newline at the end."""
    parts = []
    for part in _parts(form, list_meta, entries, representation):
        parts.append(part)
        await asyncio.sleep(0)
    return parts


def _parts(
    form: Form, list_meta: bytes, entries: Sequence[Entry], representation: Representation
) -> Iterator[bytes]:
    head = form.head(list_meta)
    number = ITEMS_A_SLICE if representation.media_type == JSON else YAML_ITEMS_A_SLICE
    slices = map(b",".join, grouped(form, entries, most_items=number))
    if representation.media_type != JSON:
        return _yaml(head + b"]}", form.items_field, slices)
    if representation.pretty:
        return _indented(head + b"]}", slices)
    return _compact(head, slices)


def grouped(
    form: Form, entries: Sequence[Entry], *, most_items: int = ITEMS_A_SLICE
) -> Iterator[list[bytes]]:
    """The items in slices; an item larger than a slice is a slice of its own."""
    items: list[bytes] = []
    size = 0
    for entry in entries:
        item = form.item(entry)
        size += len(item) + 1
        if items and (size > SLICE_BYTES or len(items) == most_items):
            yield items
            items, size = [], len(item) + 1
        items.append(item)
    if items:
        yield items


def _compact(head: bytes, slices: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    separator = b""
    for items in slices:
        yield separator + items
        separator = b","
    yield b"]}\n"


def _indented(empty: bytes, slices: Iterator[bytes]) -> Iterator[bytes]:
    """Two spaces a level. `empty` is the list without its items, which are the last of its fields."""
    before, _, after = indent(empty).rpartition(b"[]")
    opening, closing = b'{\n  "": [', b"\n  ]\n}"  # around a slice, indented as deeply as in the list
    separator = b"["
    for items in slices:
        lines = indent(b'{"":[%s]}' % items)
        yield before + separator + lines[len(opening) : -len(closing)]
        before, separator = b"", b","
    yield before + b"[]" + after + b"\n" if before else b"\n  ]" + after + b"\n"


def _yaml(empty: bytes, field: str, slices: Iterator[bytes]) -> Iterator[bytes]:
    """Keys are sorted, so the items come in the middle."""
    fields = msgspec.json.decode(empty, type=dict[str, msgspec.Raw])
    names = sorted(fields)
    place = names.index(field)
    for name in names[:place]:
        yield _yaml_field(name, fields[name])
    heading = b"%s:\n" % field.encode()
    for items in slices:
        yield heading + to_yaml(b"[%s]" % items)
        heading = b""
    if heading:
        yield _yaml_field(field, b"[]")
    for name in names[place + 1 :]:
        yield _yaml_field(name, fields[name])


def _yaml_field(name: str, value: bytes | msgspec.Raw) -> bytes:
    return to_yaml(b'{"%s":%s}' % (name.encode(), bytes(value)))
