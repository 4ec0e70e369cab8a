"""Pushes to a replica that does not own the jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import pytest
from yarl import URL

from tests.unit.virtual_time import in_virtual_time
from visibility_api.errors.status import (
    Forbidden,
    InternalError,
    RequestError,
    TooManyRequests,
    Unavailable,
    encode_status,
)
from visibility_api.flowcontrol.report_shares import REFUSALS
from visibility_api.pushing.body import Bodies
from visibility_api.pushing.paths import UPSTREAM_PREFIX
from visibility_api.replication.addresses import Address
from visibility_api.replication.forwarding import CLIENT, MAX_ANSWER_BYTES, Pushes
from visibility_api.replication.recognition import PROOF, ReplicaKey

PATH = f"{UPSTREAM_PREFIX}v1alpha1/namespaces/team-a/trainjobs/bert/status"
OWNER = Address("10.0.0.7", 10250)
HEADERS = [
    (b"authorization", b"Bearer t0ken"),
    (b"content-type", b"application/json"),
    (b"x-remote-user", b"admin"),
]
BODY = b'{"trainerStatus":{}}'


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def content(self) -> Answer:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        """As from a socket: in pieces."""
        for start in range(0, len(self.body), 16 * 1024):
            yield self.body[start : start + 16 * 1024]


@dataclass
class Others:
    """Where the owner is, and what it answers in turn; the last answer stays."""

    owner: Address | None = OWNER
    pushes: Any = None  # this replica's own endpoint
    is_confirmed: bool = True  # what it has taken
    answers: list[Answer | Exception] = field(default_factory=lambda: [Answer(200, b"echo")])
    seen: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)

    term: Any = None  # of the owner of the log

    @property
    def admits(self) -> Any:
        return self.pushes

    def endpoint(self, _partition: int) -> Any:
        return self.pushes

    def address(self, _partition: int) -> Address | None:
        return self.owner

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: URL, *, data: bytes, headers: Mapping[str, str], timeout: Any
    ) -> AsyncIterator[Answer]:
        self.seen.append((method, str(url), headers, data))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        yield answer

    def forwarder(self, *, timeout_s: float = 60.0) -> Pushes:
        async def everywhere() -> bool:
            return self.is_confirmed

        return Pushes(
            self,
            cast(Any, self),
            keys=lambda: [ReplicaKey(aiohttp.Fingerprint(bytes(32)), "proof")],
            replicated=everywhere,
            timeout_s=timeout_s,
        )


async def push(pushes: Pushes) -> bytes:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY}

    return await pushes.take(await pushes.admit("POST", PATH, HEADERS, "10.1.1.1"), receive)


def refused(error: RequestError) -> Answer:
    return Answer(error.code, encode_status(error))


async def test_the_owner_is_given_the_push_its_token_and_the_pod_s_address() -> None:
    others = Others()
    assert await push(others.forwarder()) == b"echo"
    ((method, url, headers, body),) = others.seen
    assert (method, url, body) == ("POST", f"https://10.0.0.7:10250{PATH}", BODY)
    assert headers == {
        "authorization": "Bearer t0ken",
        "content-type": "application/json",
        CLIENT.decode(): "10.1.1.1",
    }


@pytest.mark.parametrize("error", [Forbidden("the token is not accepted"), TooManyRequests("too often")])
async def test_what_the_owner_refuses_is_refused_in_its_words(error: RequestError) -> None:
    with pytest.raises(type(error), match=error.message) as caught:
        await push(Others(answers=[refused(error)]).forwarder())
    assert caught.value.retry_after_s == error.retry_after_s


async def test_a_long_answer_of_the_owner_is_passed_on_whole() -> None:
    echo = b"e" * 60_000
    assert await push(Others(answers=[Answer(200, echo)]).forwarder()) == echo


@pytest.mark.parametrize("answer", [Answer(200, b"e" * (MAX_ANSWER_BYTES + 1)), Answer(403, b"<html>")])
async def test_an_answer_of_the_owner_that_cannot_be_read_is_an_error(answer: Answer) -> None:
    with pytest.raises(InternalError, match="no answer that can be read"):
        await push(Others(answers=[answer]).forwarder())


@pytest.mark.parametrize("first", [OSError("reset"), TimeoutError(), refused(Unavailable("not the owner"))])
async def test_an_owner_that_goes_meanwhile_costs_no_push(first: Answer | Exception) -> None:
    others = Others(answers=[first, Answer(200, b"echo")])
    assert await push(others.forwarder()) == b"echo"
    assert len(others.seen) == 2


async def test_slow_bodies_that_are_passed_on_leave_room_for_those_of_another_namespace() -> None:
    pushes = Others().forwarder()
    pushes._bodies = Bodies(places=4)
    with pushes._bodies.place("team-a", "gpt"), pytest.raises(TooManyRequests, match="too many pushes"):
        await push(pushes)
    assert await push(pushes) == b"echo"


@in_virtual_time
async def test_refusals_of_pushes_that_would_be_passed_on_are_few_too() -> None:
    """As the owner's: a thousand pods of a namespace keep a follower no busier."""
    clock, pushes = asyncio.get_running_loop().time, Others().forwarder()
    pushes._bodies = Bodies(places=4)
    refused, ends = 0, clock() + 60.0

    async def go_on() -> None:
        nonlocal refused
        while clock() < ends:
            with contextlib.suppress(TooManyRequests):
                await push(pushes)
            refused += 1
            await asyncio.sleep(0.05)

    with pushes._bodies.place("team-a", "gpt"):
        await asyncio.gather(*(go_on() for _ in range(500)))
    assert refused / 60.0 < 1.5 * REFUSALS.per_s


async def test_without_an_owner_the_pod_is_told_to_try_again() -> None:
    with pytest.raises(Unavailable, match="no replica owns the jobs now") as caught:
        await push(Others(owner=None).forwarder(timeout_s=0.0))
    assert caught.value.retry_after_s > 0


@in_virtual_time
@pytest.mark.parametrize("answer", [TimeoutError(), refused(Unavailable("not listed"))])
async def test_of_an_owner_that_does_not_take_it_in_time_it_is_not_said_that_there_is_none(
    answer: Answer | Exception,
) -> None:
    with pytest.raises(Unavailable, match="the replica that owns the jobs has not taken it in time"):
        await push(Others(answers=[answer]).forwarder(timeout_s=4.0))


async def test_a_push_that_no_follower_has_is_not_answered_as_taken_by_a_former_owner() -> None:
    """The next owner has not got it, so the pod has to send it again."""

    class Endpoint:
        async def admit(self, *_: Any) -> None:
            pass

        async def take(self, *_: Any) -> bytes:
            return b"echo"

    for is_confirmed, is_owner in ((True, False), (False, True)):
        others = Others(pushes=Endpoint(), is_confirmed=is_confirmed)
        pushes = others.forwarder()
        admitted = await pushes.admit("POST", PATH, HEADERS, "10.1.1.1")
        others.pushes = others.pushes if is_owner else None
        assert await pushes.take(admitted, cast(Any, None)) == b"echo"
    others = Others(pushes=Endpoint(), is_confirmed=False)
    pushes = others.forwarder()
    admitted = await pushes.admit("POST", PATH, HEADERS, "10.1.1.1")
    others.pushes = None
    with pytest.raises(Unavailable, match="try again"):
        await pushes.take(admitted, cast(Any, None))


async def test_a_push_that_was_passed_on_is_not_passed_on_again() -> None:
    others = Others()
    with pytest.raises(Unavailable):
        await others.forwarder().admit("POST", PATH, [*HEADERS, (PROOF, b"proof")], "10.0.0.8")
    assert others.seen == []


async def test_only_a_replica_is_believed_about_the_address_of_a_pod() -> None:
    clients = []

    class Endpoint:
        async def admit(self, _target: object, _headers: object, client: str) -> None:
            clients.append(client)

    pushes = Others(pushes=Endpoint()).forwarder()
    for proof in (b"proof", b"another"):
        await pushes.admit("POST", PATH, [(CLIENT, b"10.9.9.9"), (PROOF, proof)], "10.0.0.8")
    assert clients == ["10.9.9.9", "10.0.0.8"]
