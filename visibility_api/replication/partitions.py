"""The partitions of the jobs, and what replicas that share them out say to one another.

A job's partition follows from its name, so that a push finds it before the job is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from zlib import crc32

import msgspec

from visibility_api.jobs.job import JobRef

from .addresses import Address

PARTITIONS = 64  # for ever: replicas of two versions share jobs out alike
NOBODY = 255


def partition_of(resource: str, namespace: str, name: str) -> int:
    return crc32(f"{resource}/{namespace}/{name}".encode()) % PARTITIONS


def partition_of_job(ref: JobRef) -> int:
    return partition_of(ref.resource, ref.namespace, ref.name)


@lru_cache(8)
def share_out(members: frozenset[str]) -> Sequence[str]:
    """Whom each partition belongs to, by rendezvous hashing: who comes or goes moves its own share."""

    def weight(member: str, number: int) -> bytes:
        return blake2b(f"{number}/{member}".encode(), digest_size=8).digest()

    return [max(members, key=partial(weight, number=number)) for number in range(PARTITIONS)]


class Report(msgspec.Struct, frozen=True, array_like=True):
    """Of a member, to the replica that holds the Lease."""

    member: str  # a process
    number: int  # rises; what comes twice counts once
    epoch: int  # of the holder of the Lease that has given what is held; 0: nothing is held
    address: Address  # where pushes are forwarded to
    held: Sequence[int]  # partitions
    is_leaving: bool
    frames: bytes  # compressed: what has become of jobs of these partitions, and of those that are given up


class Share(msgspec.Struct, frozen=True, array_like=True):
    """The answer."""

    epoch: int
    is_known: bool  # else all that is held is to be given up
    partitions: Sequence[int]  # that the member may hold; it gives up what is not among them
    after: int  # sequence of the log: what it holds newly it takes over when it has followed that
    stored: int  # the log has what this report and those before have brought
    addresses: Sequence[Address]
    owners: bytes  # of each partition the place in `addresses`


encode_message = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(Report).decode
decode_share = msgspec.msgpack.Decoder(Share).decode
