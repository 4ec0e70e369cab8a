"""Questions about one job, which the replica of this server that works on it answers; others ask it."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar
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

from .partitions import partition_of_job
from .peer_client import PeerClient
from .role import Role

REPLICAS, DIAGNOSE = "/replication/replicas", "/replication/diagnose"
DIAGNOSE_S = 5.0
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_NO_ANSWER = "the replica of this server that owns the jobs gave no answer; try again"
_CROWDED = "too many requests for all replicas wait; try again after the time in Retry-After"
_FIELDS = ("resource", "namespace", "name", "uid")

T = TypeVar("T")


class Questions:
    """`client` None: there are no other replicas.

    What is read for another replica is charged to the client as well, in this one's `shares`.
    """

    def __init__(self, role: Role[Any], client: PeerClient | None, shares: TimeShares) -> None:
        self._role = role
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

    async def read_replicas(self, ref: JobRef, client: str) -> ReplicaStatuses:
        """The statuses of a job's replicas; `client`: whose turn it is.

        Raises TooManyRequests, Unavailable.
        """
        if (term := self._role.works_on(partition_of_job(ref))) is not None:
            return await self._read(term.replicas, ref, client)
        return await self._ask(REPLICAS, ref, client, ReplicaStatuses, within_s=2 * TIMEOUT_S)

    async def diagnose(self, ref: JobRef) -> float:
        """Have the ranks of a job read, as `Diagnoser.request`. Raises Unavailable."""
        if (term := self._role.works_on(partition_of_job(ref))) is not None:
            wait_s: float = term.diagnoser.request(ref)
            return wait_s
        return await self._ask(DIAGNOSE, ref, "", float, within_s=DIAGNOSE_S)

    async def answer(self, scope: Scope, send: Send) -> None:
        """A question of another replica, which was recognised."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        ref = JobRef(**{name: query.get(name, [""])[0] for name in _FIELDS})
        term, client = self._role.works_on(partition_of_job(ref)), query.get("client", [""])[0]
        if term is None:
            await respond(send, Unavailable.code)
        elif scope["path"] == DIAGNOSE:
            await respond(send, 200, msgspec.json.encode(term.diagnoser.request(ref)))
        else:
            try:
                reading = self._read(term.replicas, ref, client)
                found = await within(2 * TIMEOUT_S, reading, partial(self._shares.charge, client))
            except RequestError as error:
                await respond(send, error.code)
            else:
                await respond(send, 200, msgspec.json.encode(found))

    async def _read(self, own: Replicas, ref: JobRef, client: str) -> ReplicaStatuses:
        if (fresh := own.fresh(ref)) is not None:
            return fresh
        async with self._queues.slot(client):
            try:
                return own.fresh(ref) or await own.read(ref)  # another request may have read them meanwhile
            except (ClusterError, TimeoutError, *UNDECODABLE):
                raise Unavailable("the pods could not be listed; try again") from None

    async def _ask(self, path: str, ref: JobRef, client: str, answer_type: type[T], *, within_s: float) -> T:
        """The owner's answer. Raises TooManyRequests, Unavailable."""
        owner = self._role.address(partition_of_job(ref))
        if owner is None or self._client is None:
            raise Unavailable("no replica of this server owns the jobs now; try again later")
        query = {name: getattr(ref, name) for name in _FIELDS} | {"client": client}
        url = URL.build(scheme="https", host=owner.host, port=owner.port, path=path, query=query)
        timeout = aiohttp.ClientTimeout(total=within_s)
        try:
            async with self._client.request("POST", url, data=b"", timeout=timeout) as response:
                answer = await read_start(response, MAX_ANSWER_BYTES + 1)
                if response.status == TooManyRequests.code:
                    raise TooManyRequests(_CROWDED)
                if response.status != 200 or len(answer) > MAX_ANSWER_BYTES:
                    raise Unavailable(_NO_ANSWER)
            return msgspec.json.decode(answer, type=answer_type)
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
            raise Unavailable(_NO_ANSWER) from None


async def respond(send: Send, status: int, body: bytes = b"") -> None:
    """To another replica."""
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
