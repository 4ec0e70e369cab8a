"""`trainingjobs`: the jobs of all kinds, in one list and one watch. It holds no documents of its own.

A caller with a right to it sees the kinds that he may read in the same way, under their own resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from visibility_api.auth.access_review import AccessReviewer
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes
from visibility_api.errors.status import ObjectNotFound
from visibility_api.errors.text import harmless
from visibility_api.jobs.summary import JobProgress
from visibility_api.models import v1alpha1
from visibility_api.models.served import TRAINING_JOBS, Resource
from visibility_api.models.wire import struct_of
from visibility_api.store import Entry, Resources

from .columns import COLUMNS, KIND, Cell, leading_cells
from .message import ResourceRequest
from .v1alpha1 import Codec

_JobReference = struct_of(v1alpha1.JobReference)
READABLE = b"readable-resources"  # the header of a list or watch of all kinds: those that the caller may read
_NAME = b'{"name":"'  # how metadata begins
_encode = msgspec.json.Encoder().encode


def readable_header(resources: Resources) -> tuple[tuple[bytes, bytes], ...]:
    """Says which kinds an answer is of: a watch goes on with the rights of now, its list may be of others."""
    return () if isinstance(resources, str) else ((READABLE, ",".join(sorted(resources)).encode()),)


class AllKinds:
    """The view of all kinds: what a caller may read of it, and how it is encoded."""

    def __init__(self, resources: Sequence[Resource], authorizer: AccessReviewer) -> None:
        self.codec = TrainingJobCodec(resources)
        self._plurals = tuple(resource.plural for resource in resources)
        self._authorizer = authorizer

    async def readable(self, request: ResourceRequest) -> frozenset[str]:
        """The resources that the caller may list or watch, by one review each.

        Raises AccessDenied when he may read none; what `Authorizer.authorize` raises else.
        """
        wanted = request.attributes
        if wanted.name:
            plural, name = _split(wanted.name)
            plurals: Sequence[str] = [plural] if plural in self._plurals else []
        else:
            plurals, name = self._plurals, ""
        reviews = (self._review(request, plural, name) for plural in plurals)
        found = await asyncio.gather(*reviews, return_exceptions=True)
        faults = [each for each in found if each is not None]
        for fault in faults:
            if not isinstance(fault, AccessDenied) or len(faults) == len(found):
                raise fault
        return frozenset(plural for plural, fault in zip(plurals, found, strict=True) if fault is None)

    async def locate(self, request: ResourceRequest) -> tuple[str, str]:
        """Resource and name of a job. Raises ObjectNotFound, AccessDenied."""
        plural, name = _split(request.attributes.name)
        if plural not in self._plurals:
            raise ObjectNotFound(TRAINING_JOBS.plural, request.attributes.name)
        await self._review(request, plural, name)
        return plural, name

    async def _review(self, request: ResourceRequest, plural: str, name: str) -> None:
        """Returns if the caller may do the same with jobs of this resource. Raises AccessDenied."""
        wanted: Attributes = replace(
            request.attributes,
            resource=plural,
            name=name,
            path="",
            # Names differ here. A review of more than was requested is never one of less.
            field_requirements=tuple(
                each for each in request.attributes.field_requirements if each.key != "metadata.name"
            ),
        )
        await self._authorizer.authorize(request.identity, wanted)


class TrainingJobCodec(Codec):
    """Encodes entries of any kind: what differs from the document of the kind is put around its bytes."""

    form = "training-"
    columns = (COLUMNS[0], KIND, *COLUMNS[1:])

    def __init__(self, resources: Sequence[Resource]) -> None:
        super().__init__(TRAINING_JOBS)
        # By its name here, which no two kinds share: Volcano has a Job as well, which is a VolcanoJob.
        self.kinds = {resource.plural: resource.kind.removesuffix("Progress") for resource in resources}
        self._codecs = {resource.plural: Codec(resource) for resource in resources}

    def document(self, entry: Entry) -> bytes:
        ref = entry.document.job.ref
        codec = self._codecs[ref.resource]
        start = len(codec.head) + len(codec.metadata(entry))
        kind = self.kinds[ref.resource]
        job = _JobReference(kind=kind, resource=ref.resource, name=ref.name, uid=ref.uid)
        status = codec.document(entry)[start:]
        return b'%s%s,"jobRef":%s%s' % (self.head, self.metadata(entry), _encode(job), status)

    def metadata(self, entry: Entry) -> bytes:
        own = super().metadata(entry)
        return b"%s%s.%s" % (_NAME, entry.document.job.ref.resource.encode(), own[len(_NAME) :])

    def leading_cells(self, document: JobProgress) -> Sequence[Cell]:
        ref, (_, *others) = document.job.ref, leading_cells(document)
        return harmless(ref.qualified_name), self.kinds[ref.resource], *others


def _split(name: str) -> tuple[str, str]:
    """Resource and name of a job: plurals have no dot."""
    plural, _, rest = name.partition(".")
    return plural, rest
