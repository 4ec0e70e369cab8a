"""Limits the reviews that callers cause before they are known, for the API and for pushes alike.

A token that was accepted within the last hour is reviewed in queues of its own. So a flood of unknown tokens
does not delay its user, not even one from the same address.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial

from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.token_bucket import Buckets

# Of unknown callers. Ten thousand pods that start within a minute need 167 a second. A token review costs
# kube-apiserver 0.7 ms of CPU and us as much: a fifth of a core.
STARTS_PER_S, START_BURST = 300.0, 100.0
MAX_RUNNING, MAX_RUNNING_PER_CLIENT = 8, 3  # slow reviews of one client leave slots for the others
MAX_WAITING, MAX_WAITING_PER_CLIENT = 512, 64
WAIT_S = 10.0  # then the caller is answered 429
# Of one address: a third of the rate of all. The burst is for the start of many pods behind one gateway.
REVIEWS_PER_S, REVIEW_BURST = 100.0, 2000.0
MAX_ADDRESSES = 16_384

# Of known ones. Their reviews were paid for once; these limits are for a kube-apiserver that is slow.
KNOWN_RUNNING, KNOWN_RUNNING_PER_CLIENT = 32, 16
KNOWN_WAITING, KNOWN_WAITING_PER_CLIENT = 2048, 1024

IPV6_SITE_BITS = 64  # a subscriber of an IPv6 network chooses the other half of the address

_CROWDED = "too many requests wait for the review of their token; try again after the time in Retry-After"
_FLOODED = "too many unknown tokens come from this address; try again after the time in Retry-After"


# The queues of unknown callers.
unknown_queues = partial(
    ClientQueues,
    crowded=_CROWDED,
    max_running=MAX_RUNNING,
    max_running_per_client=MAX_RUNNING_PER_CLIENT,
    max_waiting=MAX_WAITING,
    max_waiting_per_client=MAX_WAITING_PER_CLIENT,
    starts_per_s=STARTS_PER_S,
    start_burst=START_BURST,
    wait_s=WAIT_S,
)


class ReviewAdmission:
    """One for the whole server: all its parts send reviews to kube-apiserver."""

    def __init__(
        self, *, unknown: ClientQueues | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unknown = unknown_queues() if unknown is None else unknown
        self._known = ClientQueues(
            crowded=_CROWDED,
            max_running=KNOWN_RUNNING,
            max_running_per_client=KNOWN_RUNNING_PER_CLIENT,
            max_waiting=KNOWN_WAITING,
            max_waiting_per_client=KNOWN_WAITING_PER_CLIENT,
            wait_s=WAIT_S,
        )
        self._clock = clock
        # By `site_of` an address.
        self._buckets = Buckets(per_s=REVIEWS_PER_S, burst=REVIEW_BURST, most=MAX_ADDRESSES)

    @asynccontextmanager
    async def slot(self, address: str, queue: Hashable = None, *, is_known: bool) -> AsyncIterator[None]:
        """Waits until this caller may cause a review. Raises TooManyRequests.

        `queue` tells callers of one address apart: each has a queue of its own, so it must not be the
        caller's free choice. `is_known`: its token was accepted lately.
        """
        site = site_of(address)
        queues = self._known if is_known else self._unknown
        now = self._clock()
        if not is_known and not self._buckets.of(site, now).take(now):
            raise TooManyRequests(_FLOODED)
        async with queues.slot((site, queue)):
            yield


def site_of(address: str) -> str:
    """What identifies one client: an IPv4 address, or the first 64 bits of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return ""
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> IPV6_SITE_BITS << IPV6_SITE_BITS))
