"""Pushes to this replica: taken while it owns the log, else passed on to the owner, whose answer is the
pod's.

The token goes along, to no one but a server that has presented this one's certificate. The owner
authenticates the push, and is told the pod's address. While nobody owns the log a push waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
import structlog
from pydantic import ValidationError
from yarl import URL

from visibility_api.errors.status import (
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
    RequestError,
    Timeout,
    TooManyRequests,
    Unavailable,
    encode_status,
)
from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.report_shares import Budgets
from visibility_api.kinds import BUILT_IN, Kinds
from visibility_api.kube.responses import read_start
from visibility_api.models.meta_v1 import Status
from visibility_api.pushing.admission import Grant
from visibility_api.pushing.body import Bodies, Headers, NoPlace, Receive, check_length
from visibility_api.pushing.endpoint import PushEndpoint
from visibility_api.pushing.paths import Target, find_push, find_target, is_push

from .addresses import Address
from .frames import Answered, Passed
from .partitions import partition_of
from .peer_client import PeerClient
from .push_streams import PushStreams, Respond, ServedStreams
from .recognition import ReplicaKeys, is_proof
from .role import Role

log = structlog.get_logger("visibility.replication")

CLIENT = b"x-visibility-client"  # the address of the pod, as the follower has seen it
TIMEOUT_S = 4.0  # clients wait 5 s
RETRY_S = 0.05
MAX_ANSWER_BYTES = 256 * 1024
_PASSED_ON = (b"authorization", b"content-type")
_UNREADABLE = "the replica that owns the jobs gave no answer that can be read"
_NO_OWNER = "no replica owns the jobs now; try again later"
_NO_ANSWER = "the replica that owns the jobs has not taken it in time; try again"
_REFUSALS: dict[str, type[RequestError]] = {
    each.reason: each
    for each in (
        *(BadRequest, Forbidden, InternalError, Invalid, NotFound, RequestEntityTooLarge),
        *(Timeout, TooManyRequests, Unavailable),
    )
}


class Push(NamedTuple):
    """One that may be read: admitted here, or to be passed on."""

    here: tuple[PushEndpoint, Grant] | None
    target: Target  # of the request
    partition: int  # of the job
    headers: Headers
    client: str


class Pushes:
    """The pushes to this replica. `replicated` returns when every follower has what was taken."""

    def __init__(
        self,
        role: Role[Any],
        client: PeerClient | None,
        *,
        keys: ReplicaKeys,
        replicated: Callable[[], Awaitable[bool]],
        kinds: Callable[[], Kinds] = lambda: BUILT_IN,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`replicated`: whether all followers have it by then. `kinds`: those that are served now."""
        self._role = role
        self._kinds = kinds
        self._client = client  # None: there are no other replicas
        self._keys = keys
        self._replicated = replicated
        self._streams = PushStreams(client) if client is not None else None
        self.served = ServedStreams(self._answer)  # on which other replicas pass theirs on
        self._timeout_s = timeout_s
        self._bodies = Bodies()  # that are passed on
        self._budgets = Budgets()  # of refusals
        self._taken = 0  # being taken here now

    def takes(self, method: str, path: str) -> bool:
        """Whether a request is a push."""
        return is_push(method, path, self._kinds())

    def resource(self, path: str) -> str:
        """Of the job that a push path names."""
        target = find_target(path, self._kinds())
        return "" if target is None else target.resource

    def is_forwarded(self, headers: Headers) -> bool:
        """Whether another replica passes it on."""
        return self._client is not None and is_proof(headers, self._keys)

    async def admit(self, method: str, path: str, headers: Headers, client: str) -> Push:
        """Authenticates a push, if it is taken here. Raises RequestError."""
        is_forwarded = self.is_forwarded(headers)
        if is_forwarded:
            client = next((value.decode("latin-1") for name, value in headers if name == CLIENT), client)
        return await self._admit(method, path, headers, client, is_forwarded=is_forwarded)

    async def _admit(
        self, method: str, path: str, headers: Headers, client: str, *, is_forwarded: bool
    ) -> Push:
        if is_forwarded and self._role.admits is None:
            raise Unavailable(_NO_OWNER)
        target = find_push(method, path, headers, self._kinds())
        grant, job = None, target
        if target.kind is None and (found := self._role.admits) is not None:
            grant = await found.admit(target, headers, client)  # the job is not known before
            job = grant.target
        partition = partition_of(job.resource, job.namespace, job.name)
        endpoint = self._role.endpoint(partition)
        if endpoint is None:
            if is_forwarded and self._role.term is None:
                raise Unavailable(_NO_OWNER)  # the owner of the log alone passes on what was passed on to it
            check_length(headers)
            return Push(None, target, partition, headers, client)
        grant = grant or await endpoint.admit(target, headers, client)
        return Push((endpoint, grant), target, partition, headers, client)

    async def take(self, push: Push, receive: Receive) -> bytes:
        """Reads and records an admitted push, or passes it on; returns the echo. Raises RequestError,
        ClientGone."""
        if push.here is not None:
            return await self._take(*push.here, push.partition, receive)
        target = push.target
        try:
            with self._bodies.place(target.namespace, f"{target.resource}/{target.name}"):
                return await self._pass_on(push, await self._bodies.read(receive))
        except NoPlace:
            await self._budgets.hold_refusal(self._budgets.refusals(target.namespace))
            raise

    async def renew(self, push: Push) -> None:
        """To be called when a push was answered. Only what is admitted here is reviewed here."""
        if push.here is not None:
            endpoint, grant = push.here
            await endpoint.renew(grant, push.target, push.headers, push.client)

    async def run(self) -> None:
        """For ever: pushes to another replica share a connection while this runs."""
        if self._streams is not None:
            await self._streams.run()
        await asyncio.Event().wait()

    async def _answer(self, passed: Passed, respond: Respond) -> None:
        push: Push | None = None
        try:
            headers = (*passed.headers, (b"content-length", b"%d" % len(passed.body)))
            push = await self._admit("POST", passed.path, headers, passed.client, is_forwarded=True)
            status, body = 200, await self.take(push, _receiving(passed.body))
        except RequestError as error:
            status, body = error.code, encode_status(error)
        except Exception as error:  # of one push; the others go on (decision 0005)
            log.error("push not answered", path=passed.path, **describe_fault(error))
            status, body = InternalError.code, encode_status(InternalError())
        respond(Answered(passed.number, status, body))
        try:
            if push is not None:
                await self.renew(push)
        except Exception as error:  # likewise
            log.error("token not reviewed again", path=passed.path, **describe_fault(error))

    async def drained(self, within_s: float) -> None:
        """Until no push is being taken here, or time is up."""
        for _ in range(round(within_s / RETRY_S)):
            if not self._taken:
                return
            await asyncio.sleep(RETRY_S)

    async def _take(self, endpoint: PushEndpoint, grant: Grant, partition: int, receive: Receive) -> bytes:
        self._taken += 1
        try:
            echo = await endpoint.take(grant, receive)
            if not await self._replicated() and self._role.endpoint(partition) is not endpoint:
                raise Unavailable(_NO_OWNER)  # nobody may have it but this replica, which writes no more
        finally:
            self._taken -= 1
        return echo

    async def _pass_on(self, push: Push, body: bytes) -> bytes:
        """To whoever owns the log within the time; that may be this replica by then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout_s
        while True:
            partition = push.partition
            endpoint, owner = self._role.endpoint(partition), self._role.address(partition)
            if endpoint is not None:
                grant = await endpoint.admit(push.target, push.headers, push.client)
                return await self._take(endpoint, grant, partition, _receiving(body))
            if owner is not None and self._client is not None:
                answer = await self._exchange(self._client, owner, push, body, until - loop.time())
                if answer is not None:
                    return answer
            if loop.time() + RETRY_S >= until:
                raise Unavailable(_NO_OWNER if owner is None else _NO_ANSWER)
            await asyncio.sleep(RETRY_S)

    async def _exchange(
        self, client: PeerClient, owner: Address, push: Push, body: bytes, left_s: float
    ) -> bytes | None:
        """The owner's echo; None if it has none to give now. Raises the RequestError that it answers."""
        headers = tuple(pair for pair in push.headers if pair[0] in _PASSED_ON)
        if self._streams is not None and (stream := self._streams.find(owner)) is not None:
            passed = Passed(0, push.target.path, push.client, headers, body)
            found = await stream.exchange(passed, max(RETRY_S, left_s))
            return None if found is None else _echo(found.status, found.body)
        # It is of a version that takes one push a request.
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        url = URL.build(scheme="https", host=owner.host, port=owner.port, path=push.target.path)
        try:
            async with client.request(
                "POST",
                url,
                data=body,
                headers={**texts, CLIENT.decode(): push.client},
                timeout=aiohttp.ClientTimeout(total=max(RETRY_S, left_s)),
            ) as response:
                answer = await read_start(response, MAX_ANSWER_BYTES + 1)
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return _echo(status, answer)


def _echo(status: int, answer: bytes) -> bytes | None:
    """The owner's echo; None if it has none to give now. Raises the RequestError that it answers."""
    if len(answer) > MAX_ANSWER_BYTES:
        raise InternalError(_UNREADABLE)
    if status == 200:
        return answer
    if status == Unavailable.code:
        return None
    try:
        found = Status.model_validate_json(answer)
    except ValidationError:
        raise InternalError(_UNREADABLE) from None
    kind = _REFUSALS.get(found.reason, InternalError)
    refusal = kind.__new__(kind)  # with the owner's details, whatever its own would be
    RequestError.__init__(refusal, found.message, details=found.details)
    raise refusal


def _receiving(body: bytes) -> Receive:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
