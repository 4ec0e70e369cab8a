"""Pushes that one replica passes on to another, over one real TLS connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.service.test_replication import OTHER, OURS, Replica
from tests.service.tls_server import until
from visibility_api.errors.status import Forbidden, InternalError, TooManyRequests, Unavailable
from visibility_api.pushing.paths import UPSTREAM_PREFIX
from visibility_api.replication import push_streams
from visibility_api.replication.addresses import Address
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.peer_client import PeerClient
from visibility_api.replication.requests import LogRequests

CLIENT = "10.1.1.1"


class Endpoint:
    """Answers with what it is given. A body says what is to become of its push."""

    def __init__(self) -> None:
        self.admitted: list[tuple[str, dict[bytes, bytes], str]] = []
        self.renewed = 0
        self.taken: Counter[bytes] = Counter()
        self.release = asyncio.Event()

    async def admit(self, target: Any, headers: Any, client: str) -> Any:
        self.admitted.append((target.path, dict(headers), client))
        return target

    async def take(self, _grant: Any, receive: Any) -> bytes:
        body: bytes = (await receive())["body"]
        self.taken[body] += 1
        match body:
            case b"late":
                await self.release.wait()
            case b"forbidden":
                raise Forbidden("the token is not accepted")
            case b"often":
                raise TooManyRequests("too often", retry_after_s=7)
            case b"fault":
                raise RuntimeError
            case b"once" if self.taken[body] == 1:
                raise Unavailable("not now")
        return body

    async def renew(self, *_: Any) -> None:
        self.renewed += 1


class Role:
    """Of a replica that takes pushes with `endpoint`, or passes them on to `owner`."""

    def __init__(self, endpoint: Any, owner: Address | None) -> None:
        self.admits = self.term = endpoint
        self.owner = owner

    def endpoint(self, _partition: int) -> Any:
        return self.admits

    def address(self, _partition: int) -> Address | None:
        return self.owner


class Pair:
    def __init__(self, owner: Replica, endpoint: Endpoint, passing: Pushes, requests: list[str]) -> None:
        self.owner, self.endpoint, self.passing = owner, endpoint, passing
        self.requests = requests  # paths, of the passing replica

    async def push(self, body: bytes, name: str = "bert") -> bytes:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        path = f"{UPSTREAM_PREFIX}v1alpha1/namespaces/team-a/trainjobs/{name}/status"
        headers = [(b"authorization", b"Bearer t0ken"), (b"x-remote-user", b"admin")]
        return await self.passing.take(await self.passing.admit("POST", path, headers, CLIENT), receive)


async def confirmed() -> bool:
    return True


@contextlib.asynccontextmanager
async def two(directory: Path, *, known_by_owner: bool = True) -> AsyncIterator[Pair]:
    owner = Replica(certificate=OURS, directory=directory)
    asking = Replica(certificate=OURS if known_by_owner else OTHER, directory=directory, known=(OURS,))
    endpoint, requests = Endpoint(), list[str]()
    role = Role(endpoint, None)
    taking = Pushes(cast(Any, role), None, keys=owner.replica_keys, replicated=confirmed)
    owner.pushes = taking.served
    async with owner.serving():
        client = PeerClient(asking.replica_keys)
        request = client.request

        def counted(method: str, url: Any, **rest: Any) -> Any:
            requests.append(url.path)
            return request(method, url, **rest)

        cast(Any, client).request = counted
        address = Address("127.0.0.1", owner.port)
        passing = Pushes(
            cast(Any, Role(None, address)),
            client,
            keys=asking.replica_keys,
            replicated=confirmed,
            timeout_s=60.0,
        )
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(passing.run())
                await asyncio.sleep(0)
                yield Pair(owner, endpoint, passing, requests)
                running.cancel()
        finally:
            await client.close()


async def test_pushes_share_one_connection_and_a_late_one_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:
        late = asyncio.create_task(pair.push(b"late"))
        await until(lambda: pair.endpoint.taken[b"late"] == 1)
        bodies = [b"%d" % number for number in range(60)] + [b"x" * 60_000]
        assert await asyncio.gather(*map(pair.push, bodies)) == bodies
        assert not late.done()
        pair.endpoint.release.set()
        assert await late == b"late"
        assert pair.requests == [push_streams.PATH]
        assert pair.endpoint.admitted[0] == (
            f"{UPSTREAM_PREFIX}v1alpha1/namespaces/team-a/trainjobs/bert/status",
            {b"authorization": b"Bearer t0ken", b"content-length": b"4"},
            CLIENT,
        )
        await until(lambda: pair.endpoint.renewed == 62)


async def test_a_push_that_the_owner_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:
        with pytest.raises(Forbidden, match="the token is not accepted"):
            await pair.push(b"forbidden")
        with pytest.raises(TooManyRequests, match="too often") as caught:
            await pair.push(b"often")
        assert caught.value.retry_after_s == 7
        with pytest.raises(Exception, match="Internal error"):
            await pair.push(b"fault")
        assert await pair.push(b"once") == b"once"  # it is passed on again
        assert pair.requests == [push_streams.PATH]


async def test_pushes_go_on_after_the_connection_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_streams, "IDLE_S", 0.05)  # the other replica ends it
    async with two(tmp_path) as pair:
        for number in range(3):
            assert await pair.push(b"%d" % number) == b"%d" % number
            stream = next(iter(cast(Any, pair.passing)._streams._streams.values()))
            await until(lambda stream=stream: stream.is_over)
        assert pair.requests == [push_streams.PATH] * 3


async def test_a_push_that_is_not_answered_in_time_costs_no_other_its_connection(tmp_path: Path) -> None:
    """A namespace whose refusals wait had the pushes of all others sent anew, on another connection."""
    async with two(tmp_path) as pair:
        cast(Any, pair.passing)._timeout_s = 1.2
        late = asyncio.create_task(pair.push(b"late"))
        number = 0
        while not late.done():
            number += 1
            assert await pair.push(b"%d" % number) == b"%d" % number
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable):
            await late
        assert await pair.push(b"afterwards") == b"afterwards"
        assert set(pair.endpoint.taken.values()) == {1}
        assert pair.requests == [push_streams.PATH]


async def test_a_connection_on_which_nothing_is_answered_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_streams, "SILENT_S", 0.2)
    async with two(tmp_path) as pair:
        cast(Any, pair.passing)._timeout_s = 0.5
        with pytest.raises(Unavailable):
            await pair.push(b"late")
        assert await pair.push(b"other") == b"other"
        assert pair.requests == [push_streams.PATH] * 2


async def test_a_fault_after_the_answer_to_one_push_costs_no_other_its_connection(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:

        async def renew(*_: Any) -> None:
            raise RuntimeError

        cast(Any, pair.endpoint).renew = renew
        late = asyncio.create_task(pair.push(b"late"))
        await until(lambda: pair.endpoint.taken[b"late"] == 1)
        assert await pair.push(b"1") == b"1"
        assert await pair.push(b"2") == b"2"
        pair.endpoint.release.set()
        assert await late == b"late"
        assert pair.endpoint.taken[b"late"] == 1
        assert pair.requests == [push_streams.PATH]


async def test_what_was_added_before_the_end_is_sent_and_then_it_ends() -> None:
    frames = push_streams.Frames()
    frames.add(b"1")
    frames.end()
    async with asyncio.timeout(1):
        assert [piece async for piece in frames] == [b"1"]


async def test_a_replica_that_ends_answers_what_it_has_taken(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:
        late = asyncio.create_task(pair.push(b"late"))
        await until(lambda: pair.endpoint.taken[b"late"] == 1)
        stream = next(iter(cast(Any, pair.passing)._streams._streams.values()))
        pair.owner.pushes.end()
        await asyncio.sleep(0.05)
        pair.endpoint.release.set()
        assert await late == b"late"
        await until(lambda: stream.is_over)
        assert pair.endpoint.taken[b"late"] == 1


async def test_a_replica_of_an_earlier_version_is_given_each_push_as_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = LogRequests.takes
    monkeypatch.setattr(
        LogRequests,
        "takes",
        staticmethod(lambda method, path: path != push_streams.PATH and takes(method, path)),
    )
    async with two(tmp_path) as pair:
        for body in (b"1", b"2"):
            with contextlib.suppress(InternalError):  # it has no pushes at all
                await pair.push(body)
        assert pair.requests[0] == push_streams.PATH
        assert set(pair.requests[1:]) == {
            f"{UPSTREAM_PREFIX}v1alpha1/namespaces/team-a/trainjobs/bert/status"
        }
