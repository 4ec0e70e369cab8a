"""The log in NATS when it is cut, lost, restored or foreign, and when owners end at the wrong moment."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.nats_servers import NatsServers
from tests.service.test_replication import ref
from tests.service.test_replication_nats import Lease, Replica, nats, place_of, same, until
from visibility_api.replication import nats_follower, nats_log
from visibility_api.replication.addresses import Address
from visibility_api.replication.nats_client import NatsClient, Stored, Unavailable as NatsUnavailable
from visibility_api.replication.nats_log import NatsLog
from visibility_api.replication.partitions import Report, Share, decode_report, decode_share, encode_message

__all__ = ["nats"]


async def test_a_stream_that_is_empty_is_read_from_the_bucket_alone(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with a limit of age is, when nobody has owned the jobs for so long."""
    monkeypatch.setattr(nats_log, "ENTRY_S", 0.1)
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as first:
        await first.owning()
        await first.report("bert", 7)
        await until(lambda: not first.place.touched)
        config = (await (await first.client._open()).stream_info(place.stream)).config
        assert not config.max_age
        await (await first.client._open()).purge_stream(place.stream)
    lease.holder = None
    async with Replica(place, lease).running() as second:
        await second.owning()
        assert second.steps() == {"bert": 7}
        async with Replica(place, lease).running() as third:
            await second.report("bert", 8)
            await until(same(second, third))


async def test_reading_anew_again_and_again_takes_pauses(nats: NatsServers) -> None:
    lease, place = Lease(), place_of(nats)
    replica, count = Replica(place, lease), 0

    async def follow() -> None:
        nonlocal count
        count += 1
        raise nats_follower.MustList("for ever")

    replica.follower._follow = follow  # type: ignore[method-assign]
    async with replica.running():
        await asyncio.sleep(0.5)
    assert 0 < count < 5


async def test_a_log_whose_owner_was_killed_before_it_was_whole_is_taken_as_it_is(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_follower, "LOST_S", 0.5)

    async def never(_self: NatsLog, _news: object) -> None:
        await asyncio.Event().wait()

    lease, place = Lease(), place_of(nats)
    with monkeypatch.context() as patch:
        patch.setattr(NatsLog, "_keep_entries", never)
        async with Replica(place, lease).running() as first:
            await first.owning()
            await first.report("bert", 7)
    lease.holder = None
    async with Replica(place, lease).running() as second:
        await second.owning()
        assert second.steps() == {"bert": 7}
        await until(lambda: second.place.is_whole)


@pytest.mark.parametrize("by", ["the owner", "the next owner"])
async def test_deleted_jobs_leave_the_bucket(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(nats_log, "ENTRY_S", 0.1)
    monkeypatch.setattr(nats_follower, "HISTORY_MESSAGES", 0)
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as first, Replica(place, lease).running() as second:
        await until(lambda: bool(first.role.term or second.role.term))
        if first.role.term is None:
            first, second = second, first
        await first.owning()
        for name in ("a", "b", "stay"):
            await first.report(name, 1)
        await until(lambda: not first.place.touched and first.place.is_whole)
        monkeypatch.setattr(nats_log, "ENTRY_S", 1.0)
        await first.report("stay", 2)  # the floor stays before what comes now
        if by == "the next owner":  # this one has no time for it
            first.streams._gone = _Nothing()
        for name in ("a", "b"):
            first.role.term.tracker.job_gone(ref(name))
        await until(same(first, second))
        if by == "the next owner":
            await first.role.leave()
            await second.owning()
        client = second.client

        async def left() -> int:
            return len(await client.keys())

        async with asyncio.timeout(10):  # there is no event
            while await left() != 1 or first.place.touched or second.place.touched:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await left() == 1
        async with Replica(place, lease).running() as third:
            await until(lambda: third.log.is_complete)
            assert third.steps() == {"stay": 2}


class _Nothing(dict[Any, Any]):
    def __setitem__(self, key: object, value: object) -> None:
        pass


@contextlib.asynccontextmanager
async def cut_off(replica: Replica) -> AsyncIterator[None]:
    """It does not reach NATS."""
    reach = replica.client.bounds

    async def bounds() -> Any:
        raise NatsUnavailable("cut off")

    replica.client.bounds = bounds  # type: ignore[method-assign]
    await replica.client.close()
    await until(lambda: replica.follower.fault is not None)
    try:
        yield
    finally:
        replica.client.bounds = reach  # type: ignore[method-assign]


async def test_one_that_was_cut_off_for_long_reads_the_log_once_and_follows_it(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: it took what it had just read for old, and read it again for minutes."""
    monkeypatch.setattr(nats_follower, "LOST_S", 0.3)
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner, Replica(place, lease).running() as other:
        await owner.owning()
        await owner.report("bert", 1)
        await until(same(owner, other))
        async with cut_off(other):
            await owner.report("bert", 2)
            await until(lambda: other.follower._is_behind)
        readings, list_anew = 0, other.follower._list

        async def counted(bounds: Any) -> None:
            nonlocal readings
            readings += 1
            await list_anew(bounds)

        other.follower._list = counted  # type: ignore[method-assign]
        await until(lambda: other.follower.owner is not None)
        for step in (3, 4, 5):
            await owner.report("bert", step)
            await until(same(owner, other))
        assert readings == 1


async def test_a_reading_that_breaks_off_is_begun_anew(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_log, "ENTRY_S", 0.0)
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner:
        await owner.owning()
        await owner.report("bert", 1)
        async with Replica(place, lease).running() as follower:
            await until(same(owner, follower))
            async with cut_off(follower):
                await owner.report("new", 1)
                owner.role.term.tracker.job_gone(ref("bert"))
                for step in range(1, 10):
                    await owner.report("gpt", step)
                await until(lambda: not owner.place.touched)
                connection = await owner.client._open()
                await connection.purge_stream(place.stream, keep=1)  # as its limits do
                monkeypatch.setattr(nats_log, "ENTRY_S", 120.0)
                for step in range(10, 20):
                    await owner.report("gpt", step)
                follower.client.read = breaks_off(follower.client, place.stream)  # type: ignore[method-assign]
            await until(same(owner, follower))


def breaks_off(client: NatsClient, stream: str) -> Callable[..., AsyncIterator[Stored | None]]:
    """Once, after some messages."""
    read, left = client.read, 5

    async def broken(which: str, start: int, *, headers_only: bool = False) -> AsyncIterator[Stored | None]:
        nonlocal left
        async for each in read(which, start, headers_only=headers_only):
            if which == stream and each is not None and left:
                left -= 1
                if not left:
                    raise NatsUnavailable("a message was lost on its way")
            yield each

    return broken


async def test_foreign_messages_and_entries_are_passed_by(nats: NatsServers) -> None:
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner, Replica(place, lease).running() as other:
        await until(lambda: bool(owner.role.term or other.role.term))
        if owner.role.term is None:
            owner, other = other, owner
        await owner.owning()
        await owner.report("bert", 7)
        connection = await other.client._open()
        for body in (b"hello", b"\x93\x01\x02\x03"):
            await connection.publish(place.subject, body)
            await connection.publish(place.key("x"), body)
        await until(lambda: bool(owner.role.term or other.role.term))
        await (owner if owner.role.term else other).report_until_taken("bert", 8)
        await until(same(owner, other))
        await connection.publish(place.subject, b"last")
    lease.holder = None
    async with Replica(place, lease).running() as third:
        await third.owning()
        assert third.steps() == {"bert": 8}


async def test_a_replica_takes_nothing_of_a_log_of_a_later_version(nats: NatsServers) -> None:
    """In a rolling update, or on the way back: it must not take it for lost, and write it anew."""
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as later:
        await later.owning()
        async with Replica(place, lease).running() as earlier:
            await later.report("bert", 1)
            await until(same(later, earlier))
            version = later.streams._version = nats_log.VERSION + 1
            await later.report("bert", 2)
            why = f"the log in NATS is of version {version}; this replica reads {nats_log.VERSION}"
            await until(lambda: why in (earlier.follower.fault or ""))
            async with Replica(place, lease).running() as empty:
                await until(lambda: why in (empty.follower.fault or ""))
                assert not empty.log.is_complete
                later.task.cancel()
                lease.holder = None
                await asyncio.sleep(0.5)
                assert earlier.role.term is empty.role.term is None
            assert earlier.steps() == {"bert": 1}


def test_what_a_replica_with_fewer_or_more_fields_writes_is_read() -> None:
    """Replicas of two versions share the jobs out."""
    message = nats_log.Message("w", 1, 2, Address("h", 3), 4, True, b"f", 5, 6)
    report = Report("m", 1, 2, Address("h", 3), [4], False, b"")
    share = Share(1, True, [2], 3, 4, [Address("h", 5)], b"\0")
    for each, decode in (
        (message, nats_log.decode_message),
        (report, decode_report),
        (share, decode_share),
    ):
        fields = msgspec.msgpack.decode(encode_message(each))
        assert decode(encode_message([*fields, "more"])) == each
    assert (
        nats_log.decode_message(encode_message(msgspec.msgpack.decode(encode_message(message))[:9]))
        == message
    )


async def test_a_log_that_was_written_anew_is_not_read_on_in_the_middle(nats: NatsServers) -> None:
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner:
        await owner.owning()
        await owner.report("bert", 1)
        async with Replica(place, lease).running() as follower:
            await until(same(owner, follower))
            async with cut_off(follower):
                until_then = follower.place.sequence
                connection = await owner.client._open()
                await connection.delete_stream(place.stream)
                await connection.delete_stream(place.bucket)
                owner.client._is_ready = False
                await owner.report_until_taken("new", 1)
                step = 0
                while owner.place.sequence < until_then + 5 or not owner.place.is_whole:
                    await owner.report_until_taken("gpt", step := step + 1)
            await until(same(owner, follower))


async def test_memory_that_is_ahead_of_a_restored_log_is_kept(nats: NatsServers, tmp_path: Path) -> None:
    """Of the same owner: its epoch is the same."""
    lease, place = Lease(), place_of(nats)
    async with Replica(place, lease).running() as owner:
        await owner.owning()
        await owner.report("bert", 1)
        await until(lambda: owner.place.is_whole)
        async with Replica(place, lease).running() as other:
            await until(same(owner, other))
            nats.kill()
            shutil.copytree(nats.store(0), tmp_path / "copy")
            nats.start()
            for step in range(2, 9):
                await owner.report_until_taken("bert", step)
            await until(same(owner, other))
            nats.kill()
            nats.wipe()
            shutil.copytree(tmp_path / "copy", nats.store(0))
            nats.start()
            await until(lambda: owner.role.term is None or other.role.term is not None)
            await until(lambda: bool(owner.role.term or other.role.term))
            now = owner if owner.role.term else other
            await now.owning()
            assert owner.steps() == other.steps() == {"bert": 8}
            await now.report_until_taken("gpt", 1)
            await until(same(owner, other))
            assert other.steps() == {"bert": 8, "gpt": 1}
