"""A replica that starts takes the state from peers over real TLS, however they behave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.certificates import Certificate
from tests.relaying import IMPOSTOR, OURS, OWN_PORT, der
from tests.service.tls_server import DEADLINE_S, until
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.saved import SavedJob
from visibility_api.peers.addresses import Address
from visibility_api.peers.frames import END, MAX_FRAME_BYTES, frame
from visibility_api.peers.taking import StateTaker, TakeLimits

PROOF = "s3cr3t-proof"
PATIENT = TakeLimits(total_s=DEADLINE_S, again_s=(3600.0,))


def saved(name: str) -> SavedJob:
    ref = JobRef(resource="trainjobs", namespace="team-a", name=name, uid=f"uid-of-{name}")
    return SavedJob(ref=ref, format=1, state=b"state")


A, B = saved("a"), saved("b")
OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"


@dataclass(slots=True, kw_only=True)
class Peer:
    """Answers every connection with the same bytes; None: with none, for ever."""

    answer: bytes | None
    certificate: Certificate = OURS
    requests: list[bytes] = field(default_factory=list)
    port: int = 0

    @contextlib.asynccontextmanager
    async def serving(self, directory: Path) -> AsyncIterator[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate.write(directory, f"peer-{id(self)}"))
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"127.0.0.1:{self.port}"
        finally:
            server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            if self.answer is None:
                await reader.read()
            else:
                writer.write(self.answer)
                await writer.drain()
                writer.write_eof() if writer.can_write_eof() else writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@dataclass(slots=True, kw_only=True)
class Taken:
    jobs: list[SavedJob]
    log: list[structlog.typing.EventDict]

    @property
    def reason(self) -> str:
        (event,) = [each for each in self.log if each["event"] == "state not taken"]
        return str(event.get("reason") or event["error"])


def taker_of(*names: str, **options: Any) -> StateTaker:
    return StateTaker(names, port=OWN_PORT, certificate=lambda: der(OURS), proof=lambda: PROOF, **options)


async def take(*names: str, limits: TakeLimits = PATIENT) -> Taken:
    """What comes of the first time, when it is over."""
    jobs: list[SavedJob] = []
    taker = taker_of(*names, take=jobs.append, limits=limits)
    with structlog.testing.capture_logs() as logged:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(taker.run())
            await taker.done.wait()
            task.cancel()
    assert PROOF not in str(logged)
    return Taken(jobs=jobs, log=list(logged))


@contextlib.asynccontextmanager
async def running(taker: StateTaker, is_synced: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(taker.run(is_synced))
        yield
        task.cancel()


async def test_every_job_of_every_peer_is_taken(tmp_path: Path) -> None:
    one, other = Peer(answer=OK + frame(A) + END), Peer(answer=OK + frame(B) + frame(A) + END)
    async with one.serving(tmp_path) as first, other.serving(tmp_path) as second:
        taken = await take(first, second)
    assert sorted(each.ref.name for each in taken.jobs) == ["a", "a", "b"]
    assert [each["event"] for each in taken.log] == ["state taken"] * 2
    (request,) = one.requests
    assert request.startswith(b"GET /peers/state HTTP/1.1\r\n")
    assert f"x-visibility-peer: {PROOF}\r\n".encode() in request
    assert f"x-visibility-peer-port: {OWN_PORT}\r\n".encode() in request


async def test_an_impostor_is_sent_nothing_though_its_ca_and_names_are_ours(tmp_path: Path) -> None:
    impostor = Peer(answer=OK + frame(A) + END, certificate=IMPOSTOR)
    async with impostor.serving(tmp_path) as name:
        taken = await take(name)
    assert (taken.jobs, impostor.requests) == ([], [])
    assert taken.reason == "it presents another certificate"


@pytest.mark.parametrize(
    ("answer", "jobs", "reason"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", [], "it answers 401"),
        (
            b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
            [],
            "it answers 302",
        ),
        (OK + frame(A) + frame(B)[:-1], [A], "it broke off"),
        (OK + frame(A), [A], "it broke off"),
        (OK + frame(A) + (MAX_FRAME_BYTES + 1).to_bytes(4, "big"), [A], "a frame is too long"),
        (OK + b"\0\0\0\x03abc", [], "a frame cannot be read"),
        (b"hello\r\n\r\n", [], "ClientResponseError"),
        (b"", [], "ServerDisconnectedError"),
    ],
)
async def test_what_came_before_a_peer_went_wrong_counts(
    answer: bytes, jobs: list[SavedJob], reason: str, tmp_path: Path
) -> None:
    async with Peer(answer=answer).serving(tmp_path) as name:
        taken = await take(name)
    assert (taken.jobs, taken.reason) == (jobs, reason)


async def test_a_peer_that_never_answers_is_waited_for_no_longer_than_the_limit(tmp_path: Path) -> None:
    silent, good = Peer(answer=None), Peer(answer=OK + frame(A) + END)
    async with silent.serving(tmp_path) as one, good.serving(tmp_path) as other:
        taken = await take(one, other, limits=replace(PATIENT, total_s=0.5))
    assert taken.jobs in ([A], [])  # a slow machine may not get so far
    assert "state not taken from every peer in time" in [each["event"] for each in taken.log]


async def test_more_than_the_limit_is_not_taken(tmp_path: Path) -> None:
    async with Peer(answer=OK + frame(A) * 100 + END).serving(tmp_path) as name:
        taken = await take(name, limits=replace(PATIENT, bytes=1000, chunk_bytes=100))
    assert 0 < len(taken.jobs) < 20
    assert taken.reason == "it is too much"


async def test_nobody_there_is_no_reason_to_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert (await take(f"127.0.0.1:{port}")).jobs == []
    assert (await take(f"127.0.0.1:{OWN_PORT}")).log == []  # itself


async def test_it_takes_again_a_little_later_and_histories_when_the_jobs_are_known(tmp_path: Path) -> None:
    peer, jobs, histories = Peer(answer=OK + frame(A) + END), list[SavedJob](), list[SavedJob]()
    async with peer.serving(tmp_path) as name:
        taker = taker_of(
            name,
            take=jobs.append,
            take_history=histories.append,
            limits=replace(PATIENT, again_s=(0.0, 0.0), resolve_again_s=0.001),
        )
        async with running(taker, is_synced=iter((False, False, True)).__next__):
            await until(lambda: len(histories) == 2)
    assert (jobs, histories) == ([A] * 4, [A, A])
    asked = [request.split()[1].decode().rpartition("/")[2] for request in peer.requests]
    assert asked == ["state", "state", "history", "state", "state", "history"]


async def test_it_has_caught_up_when_it_took_again_what_came_until_jobs_were_known(tmp_path: Path) -> None:
    """Seen: a replica was ready that lacked the last push of three jobs for half a second."""
    peer, asked, is_known = Peer(answer=OK + frame(A) + END), 0, False

    def is_synced() -> bool:
        nonlocal asked
        asked += 1
        return is_known

    async with peer.serving(tmp_path) as name:
        taker = taker_of(name, take=lambda _saved: None, limits=replace(PATIENT, resolve_again_s=0.001))
        async with running(taker, is_synced=is_synced):
            await until(lambda: asked >= 2)
            assert not taker.caught_up.is_set()
            peer.answer, is_known = None, True  # from now on nobody hears from it
            await until(lambda: len(peer.requests) == 2)
            assert not taker.caught_up.is_set()
    taker = taker_of(name, take=lambda _saved: None, limits=replace(PATIENT, resolve_again_s=0.001))
    async with running(taker):
        await taker.caught_up.wait()  # that one has gone


@pytest.mark.parametrize("answers", [True, False])
async def test_a_peer_that_does_not_answer_again_keeps_nobody_from_being_ready(
    tmp_path: Path, *, answers: bool
) -> None:
    peer = Peer(answer=OK + frame(A) + END if answers else None)
    async with peer.serving(tmp_path) as name:
        taker = taker_of(
            name, take=lambda _saved: None, limits=replace(PATIENT, total_s=0.2, again_total_s=DEADLINE_S)
        )
        async with running(taker):
            await taker.done.wait()
            peer.answer = None
            async with asyncio.timeout(DEADLINE_S / 2):
                await taker.caught_up.wait()


async def test_who_is_alone_has_caught_up_at_once() -> None:
    taker = taker_of(f"127.0.0.1:{OWN_PORT}", take=lambda _saved: None, limits=PATIENT)
    async with running(taker, is_synced=lambda: False):
        await taker.caught_up.wait()


async def test_it_goes_on_to_catch_up_and_says_no_more_of_it(tmp_path: Path) -> None:
    """The last push of a job may have been relayed in vain."""
    peer, late = Peer(answer=OK + frame(A) + END), list[SavedJob]()
    async with peer.serving(tmp_path) as name:
        taker = taker_of(
            name,
            take=lambda _saved: None,
            catch_up=late.append,
            limits=replace(PATIENT, again_s=(), every_s=0.001),
        )
        with structlog.testing.capture_logs() as logged:
            async with running(taker):
                await until(lambda: len(late) >= 3)
    assert [each["event"] for each in logged if each["log_level"] != "debug"] == ["state taken"] * 4


async def test_jobs_that_are_never_all_known_keep_it_from_nothing(tmp_path: Path) -> None:
    peer, jobs = Peer(answer=OK + frame(A) + END), list[SavedJob]()
    async with peer.serving(tmp_path) as name:
        taker = taker_of(
            name,
            take=jobs.append,
            limits=replace(PATIENT, again_s=(), synced_s=0.001),
        )
        async with running(taker, is_synced=lambda: False):
            await until(lambda: len(jobs) == 2)


async def test_a_name_that_does_not_resolve_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def resolve(host: str, port: int, *, own_port: int) -> set[Address]:
        nonlocal tries
        if host == "later":
            tries += 1
            if tries < 3:
                raise OSError("no such name")
        return {Address("127.0.0.1", port)}

    monkeypatch.setattr("visibility_api.peers.taking.resolve", resolve)
    one, other = Peer(answer=OK + frame(A) + END), Peer(answer=OK + frame(B) + END)
    async with one.serving(tmp_path), other.serving(tmp_path):
        names = (f"later:{one.port}", f"now:{other.port}", f"again:{other.port}")
        taken = await take(*names, limits=replace(PATIENT, resolve_again_s=0.001))
    assert taken.jobs == [B, A]
    assert tries >= 3
