"""The statuses of a job's replicas, read by the replica of this server that owns the jobs; others ask it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol
from urllib.parse import parse_qs

import aiohttp
import msgspec
from starlette.types import Scope, Send
from yarl import URL

from visibility_api.errors.status import RequestError, TooManyRequests, Unavailable
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.deadline import within
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.jobs.job import JobRef
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.kube.errors import ClusterError
from visibility_api.kube.responses import read_start
from visibility_api.workloads.pod_lists import TIMEOUT_S
from visibility_api.workloads.replicas import Replicas, ReplicaStatuses

from .addresses import Address
from .peer_client import PeerClient

PATH = "/replication/replicas"
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_NO_ANSWER = "the replica of this server that owns the jobs gave no answer; try again"
_CROWDED = "too many requests for all replicas wait; try again after the time in Retry-After"
_FIELDS = ("resource", "namespace", "name", "uid")


class Ownership(Protocol):
    """Who owns the jobs now."""

    @property
    def owner(self) -> Address | None: ...


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
        own, owner = self._own(), self._ownership.owner
        if own is not None:
            return await self._read(own, ref, client)
        if owner is None or self._client is None:
            raise Unavailable("no replica of this server owns the jobs now; try again later")
        query = {name: getattr(ref, name) for name in _FIELDS} | {"client": client}
        url = URL.build(scheme="https", host=owner.host, port=owner.port, path=PATH, query=query)
        timeout = aiohttp.ClientTimeout(total=2 * TIMEOUT_S)
        try:
            async with self._client.request("POST", url, data=b"", timeout=timeout) as response:
                answer = await read_start(response, MAX_ANSWER_BYTES + 1)
                if response.status == TooManyRequests.code:
                    raise TooManyRequests(_CROWDED)
                if response.status != 200 or len(answer) > MAX_ANSWER_BYTES:
                    raise Unavailable(_NO_ANSWER)
            return msgspec.json.decode(answer, type=ReplicaStatuses)
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
            raise Unavailable(_NO_ANSWER) from None

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
        query = parse_qs(scope["query_string"].decode("latin-1"))
        given = {name: query.get(name, [""])[0] for name in (*_FIELDS, "client")}
        own, status, body = self._own(), Unavailable.code, b""
        if own is not None:
            client = given.pop("client")
            try:
                reading = self._read(own, JobRef(**given), client)
                found = await within(2 * TIMEOUT_S, reading, partial(self._shares.charge, client))
                body, status = msgspec.json.encode(found), 200
            except RequestError as error:
                status = error.code
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
