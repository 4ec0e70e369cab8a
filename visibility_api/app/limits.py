"""Limits of requests: places in flight, times to send, and the rate of refusals on one connection.

Callers that are not authenticated yet have no place: they wait in the queues of `auth.review_admission`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from visibility_api.auth.authenticator import OWN_CERTIFICATE
from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.identity import MASTERS_GROUP, Identity
from visibility_api.errors.status import Overloaded, TooManyRequests
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.flowcontrol.token_bucket import Bucket
from visibility_api.kubeapi.message import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on concurrent requests, and on the time to send responses.

    `in_flight` and `watches` are of direct callers, of forwarded ones and of system:masters each.
    """

    in_flight: int = 400  # requests other than open watches
    in_flight_of_user: int = 100
    # Lists that kube-apiserver forwards: each keeps one of some twenty seats that it has for this API.
    forwarded_lists_of_user: int = 10
    watches: int = 2_000
    # Ten users with all of theirs take less than a tenth of a core and 100 MiB (decision 38).
    watches_of_user: int = 64
    # Of the event loop's time, what the requests of one user may take: a quarter, and half a second after a
    # rest. Further ones wait, 4 s at most for each of them: a list as YAML may take seconds (decision 56).
    share_of_user: float = 0.25
    burst_of_user_s: float = 0.5
    max_wait_of_user_s: float = 4.0
    wait_for_share_s: float = 10.0  # then the request is refused
    # Of responses on one connection to requests whose sender is not known, or is over a limit: further ones
    # wait, so that endless retries cost little. A kubelet sends one request on each connection.
    unknown_per_s: float = 1.0
    unknown_burst: float = 4.0
    send_timeout_s: float = 60.0  # for a whole response to a slow reader, as the Go server's request limit
    chunk_timeout_s: float = 10.0  # for a piece of a list or watch; a slower reader is disconnected


FEW_RESPONSES = 4  # of one user under way: each may be left unread for `chunk_timeout_s`
MIN_CHUNK_TIMEOUT_S = 1.0  # however many are under way
# What a request takes before and after its handler: TLS, parsing, headers.
REQUEST_S = 0.0001
OVER_SHARE = (
    "the requests of this user, or of the service accounts of its namespace, have used up their share of the "
    "server's time; send fewer of them, or lists in compact JSON, and try again after the time in Retry-After"
)
_MAX_WAITING, _MAX_WAITING_OF_USER = 1000, 100
_MAX_FORWARDED_WAITING_OF_USER = 8  # they keep seats of kube-apiserver's


def new_shares(limits: Limits) -> TimeShares:
    """What each user may use of the event loop's time."""
    return TimeShares(
        share=limits.share_of_user, burst_s=limits.burst_of_user_s, max_wait_s=limits.max_wait_of_user_s
    )


def over_share(shares: TimeShares, limits: Limits, *, is_forwarded: bool = False) -> ClientQueues:
    """Where the requests of users wait that have used up their share: one of each is served at a time."""
    return ClientQueues(
        crowded=OVER_SHARE,
        max_running=_MAX_WAITING,
        max_running_per_client=1,
        max_waiting=_MAX_WAITING,
        max_waiting_per_client=_MAX_FORWARDED_WAITING_OF_USER if is_forwarded else _MAX_WAITING_OF_USER,
        wait_s=limits.wait_for_share_s,
        shares=shares,
    )


class Places:
    """The places of one class of callers. A user takes one only while it holds fewer than are free (decision
    55), unless one may hold all: a tenant may be a user in each of many namespaces. Where none is left, the
    user with most watches, or most requests that wait, gives up the oldest."""

    __slots__ = ("_ends", "_most", "_most_of_user", "_of_user", "taken")

    def __init__(self, *, most: int, most_of_user: int) -> None:
        self.taken = 0
        self._most = most
        self._most_of_user = most_of_user
        self._of_user: dict[str, int] = {}
        self._ends: dict[str, dict[Hashable, Callable[[], None]]] = {}  # by user, the oldest first

    def enter(self, user: str) -> None:
        """Take a place, which must be given back by `leave`. Raises Overloaded or TooManyRequests."""
        free, of_user = self._most - self.taken, self._of_user.get(user, 0)
        has_room = free > 0 if self._most_of_user >= self._most else of_user < free
        if of_user < self._most_of_user and not has_room:
            has_room = self._make_room(of_user)
            if not has_room and free <= 0:
                raise Overloaded
        if of_user >= self._most_of_user or not has_room:
            raise TooManyRequests(
                f"this user, or the service accounts of its namespace, have reached the limit of {of_user} "
                "open requests or watches; try again when one of them has ended"
            )
        self._of_user[user] = of_user + 1
        self.taken += 1

    def taken_by(self, user: str) -> int:
        return self._of_user.get(user, 0)

    def _make_room(self, of_user: int) -> bool:
        """Whether the user with most gives up the oldest: it has two more than this one."""
        user = max(self._ends, key=lambda each: len(self._ends[each]), default="")
        ends = self._ends.get(user, {})
        if len(ends) < of_user + 2:
            return False
        ends.pop(next(iter(ends)))()
        return True

    def note(self, user: str, holder: Hashable, end: Callable[[], None]) -> None:
        """What has a place is a watch, or waits; `end` ends that."""
        self._ends.setdefault(user, {})[holder] = end

    def leave(self, user: str, holder: Hashable = None) -> None:
        """Give a place back."""
        if (ends := self._ends.get(user)) is not None:
            ends.pop(holder, None)
            if not ends:
                del self._ends[user]
        self.taken -= 1
        of_user = self._of_user[user] - 1
        if of_user:
            self._of_user[user] = of_user
        else:
            del self._of_user[user]  # callers choose their names: none may stay behind


class Shares:
    """Places of direct callers, of forwarded ones and of system:masters, which each class keeps."""

    def __init__(self, *, most: int, most_of_user: int, forwarded_lists_of_user: int = 0) -> None:
        self._direct = Places(most=most, most_of_user=most_of_user)
        self._forwarded = Places(most=most, most_of_user=most_of_user)
        self._forwarded_lists = Places(most=most, most_of_user=forwarded_lists_of_user)
        self._masters = Places(most=most, most_of_user=most)

    def count(self) -> int:
        """The number of places that are taken."""
        return sum(
            each.taken for each in (self._direct, self._forwarded, self._forwarded_lists, self._masters)
        )

    def of(self, identity: Identity, *, is_forwarded: bool, is_list: bool = False) -> Places:
        """The places that a caller may take; `is_forwarded`: by a verified front proxy."""
        if MASTERS_GROUP in identity.groups:
            return self._masters
        if is_forwarded:
            return self._forwarded_lists if is_list else self._forwarded
        return self._direct


async def hold_back(scope: Scope, limits: Limits, *, unless_known: bool = False) -> None:
    """Delay the response to a request of an unknown sender, or of one over a limit, when its connection had
    many.

    A connection with a certificate is delayed only if that is the caller's own: users share a proxy's.
    `unless_known`: neither is one that was authenticated before, such as a pod that pushes too often.
    """
    peer: Peer | None = scope["state"].get(PEER)
    if peer is None or (unless_known and peer.is_known):
        return
    if peer.chain and OWN_CERTIFICATE not in scope["state"]:
        return
    loop = asyncio.get_running_loop()
    bucket = peer.unknown
    if bucket is None:
        bucket = peer.unknown = Bucket(
            per_s=limits.unknown_per_s, burst=limits.unknown_burst, now=loop.time()
        )
    if not bucket.take(loop.time()):
        await asyncio.sleep(bucket.wait_s(loop.time()))
        bucket.take(loop.time())
