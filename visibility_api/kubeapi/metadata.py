"""PartialObjectMetadata: objects and lists with their metadata only, for metadata informers."""

from __future__ import annotations

from collections.abc import Callable

from visibility_api.store import Entry

from .v1alpha1 import Codec

LIST_HEAD = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":'


def only_metadata(metadata: bytes) -> bytes:
    """A PartialObjectMetadata with this encoded `metadata`."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}' % metadata


class MetadataForm:
    """PartialObjectMetadata and its list."""

    is_timeless = True
    items_field = "items"

    def __init__(self, codec: Codec) -> None:
        self.key = f"{codec.form}metadata"
        self._codec = codec

    def one(self, entry: Entry) -> bytes:
        return only_metadata(self._codec.metadata(entry))

    item = one

    def items(self) -> Callable[[Entry], bytes]:
        return self.one

    def moment(self) -> int:
        return 0

    def head(self, list_meta: bytes) -> bytes:
        return b'%s%s,"items":[' % (LIST_HEAD, list_meta)

    def event(self, entry: Entry, *, is_first: bool) -> bytes:  # noqa: ARG002 - Tables need it
        return self.one(entry)

    def bookmark(self, metadata: bytes) -> bytes:
        return only_metadata(metadata)
