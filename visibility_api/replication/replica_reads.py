"""The statuses of a job's replicas, read by the replica of this server that owns the jobs; others ask it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from starlette.types import Scope, Send

from visibility_api.errors.status import RequestError, Unavailable
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.deadline import within
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.jobs.job import JobRef
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.kube.errors import ClusterError
from visibility_api.workloads.pod_lists import TIMEOUT_S
from visibility_api.workloads.replicas import Replicas, ReplicaStatuses

from .peer_client import PeerClient
from .questions import Ownership, ask, read_question, respond

PATH = "/replication/replicas"
_CROWDED = "too many requests for all replicas wait; try again after the time in Retry-After"


class ReplicaReads:
    """`own` returns this replica's, while it owns the jobs. `client` None: there are no others.

    What is read for another replica is charged to the client as well, in this one's `shares`.
    """

    def __init__(
        self,
        ownership: Ownership,
        own: Callable[[], Replicas | None],
        client: PeerClient | None,
        shares: TimeShares,
    ) -> None:
        self._ownership = ownership
        self._own = own
        self._client = client
        self._shares = shares
        self._queues = ClientQueues(
            crowded=_CROWDED,
            max_running=4,
            max_running_per_client=1,
            max_waiting=256,
            max_waiting_per_client=32,
            wait_s=10.0,
            shares=shares,
        )

    async def read(self, ref: JobRef, client: str) -> ReplicaStatuses:
        """`client`: whose turn it is. Raises TooManyRequests, Unavailable."""
        if (own := self._own()) is not None:
            return await self._read(own, ref, client)
        return await ask(
            self._client,
            self._ownership.owner,
            PATH,
            ref,
            ReplicaStatuses,
            asker=client,
            timeout_s=2 * TIMEOUT_S,
            crowded=_CROWDED,
        )

    async def _read(self, own: Replicas, ref: JobRef, client: str) -> ReplicaStatuses:
        if (fresh := own.fresh(ref)) is not None:
            return fresh
        async with self._queues.slot(client):
            try:
                return own.fresh(ref) or await own.read(ref)  # another request may have read them meanwhile
            except (ClusterError, TimeoutError, *UNDECODABLE):
                raise Unavailable("the pods could not be listed; try again") from None

    async def answer(self, scope: Scope, send: Send) -> None:
        """A request of another replica, which was recognised."""
        if (own := self._own()) is None:
            await respond(send, Unavailable.code)
            return
        ref, client = read_question(scope)
        try:
            reading = self._read(own, ref, client)
            found = await within(2 * TIMEOUT_S, reading, partial(self._shares.charge, client))
        except RequestError as error:
            await respond(send, error.code)
        else:
            await respond(send, 200, msgspec.json.encode(found))
