"""Pushes on their way between replicas: what was pushed, and the pod that one replica has authenticated.

The token itself is not sent. What says that the pod may push is the sender, which has proved to be a replica
of this server, and which could write any state of any job as well (`visibility_api/peers/`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from visibility_api.errors.status import BadRequest
from visibility_api.history.attempt import UNREADABLE

from .ownership import Membership

PATH = "/peers/pushes"
# Of one request: more than one push of the largest size.
MAX_BATCH_BYTES = 128 * 1024


class RelayedPush(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One push, as another replica has accepted it."""

    path: str  # of the request
    credential: bytes  # `Grant.credential`
    accepted_for_s: float  # so long the credential needs no review
    membership: Membership
    attempt: str  # of rank 0, that it was recorded for; Rank0.attempt
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[RelayedPush]).decode


def encode_pushes(pushes: Sequence[RelayedPush]) -> bytes:
    """The body of a request to PATH."""
    return _encode(pushes)


def decode_pushes(body: bytes) -> list[RelayedPush]:
    """The pushes of such a body. Raises BadRequest."""
    try:
        return _decode(body)
    except UNREADABLE:
        raise BadRequest("these are not pushes that a replica relays") from None
