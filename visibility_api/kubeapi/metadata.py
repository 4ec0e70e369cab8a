"""PartialObjectMetadata: objects and lists with their metadata only, for metadata informers."""

from __future__ import annotations

from collections.abc import Callable

from visibility_api.store import Entry

from .negotiation import TableVersion
from .v1alpha1 import Codec


class MetadataForm:
    """PartialObjectMetadata and its list."""

    is_timeless = True
    items_field = "items"

    def __init__(self, codec: Codec, version: TableVersion) -> None:
        self.key = f"{codec.form}metadata/{version}"
        self._codec = codec
        self._version = version.encode()

    def one(self, entry: Entry) -> bytes:
        return self._object(self._codec.metadata(entry))

    def items(self) -> Callable[[Entry], bytes]:
        return self.one

    def moment(self) -> int:
        return 0

    def head(self, list_meta: bytes) -> bytes:
        return (
            b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%s","metadata":%s,"items":['
            % (self._version, list_meta)
        )

    def event(self, entry: Entry, *, is_first: bool) -> bytes:  # noqa: ARG002 - Tables need it
        return self.one(entry)

    def bookmark(self, metadata: bytes) -> bytes:
        return self._object(metadata)

    def _object(self, metadata: bytes) -> bytes:
        return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":%s}' % (
            self._version,
            metadata,
        )
