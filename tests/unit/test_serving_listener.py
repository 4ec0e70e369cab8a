"""Handshakes begin at a bounded rate, in turns by address, the newest first, and none ends the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.certificates import Authority
from tests.unit.virtual_time import in_virtual_time
from visibility_api.serving.connections import ConnectionLimits, Connections
from visibility_api.serving.listener import BEGUN_AT_ONCE, MAX_WAIT_S, RECEIVE_BYTES, TURN_S, Listener

CA = Authority("serving")
DEADLINE_S = 30.0


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.write(b"hello")


@contextlib.asynccontextmanager
async def listening(
    tmp_path: Any, make_protocol: Any = Echo, *, strangers: int = 100, **options: Any
) -> AsyncIterator[tuple[int, Listener]]:
    """A listener on loopback, and its port."""
    certificate, key = CA.issue("server", usages=[], hosts=["127.0.0.1"]).write(tmp_path, "server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    connections = Connections(ConnectionLimits(strangers=strangers))
    listener = Listener(sock, make_protocol, lambda: tls, connections, **options)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        port = sock.getsockname()[1]
        listener.start(group)
        try:
            yield port, listener
        finally:
            listener.close()
    waiting = len(listener._silent) + len(listener._ready)
    assert (listener._handshakes, waiting, connections.strangers) == (set(), 0, 0)


async def greet(port: int) -> bytes:
    context = ssl.create_default_context(cadata=CA.pem)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await reader.read(100)
    finally:
        writer.transport.abort()


async def test_connections_are_served_also_beyond_the_burst(tmp_path: Any) -> None:
    async with listening(tmp_path) as (port, _):
        assert await asyncio.gather(*[greet(port) for _ in range(40)]) == [b"hello"] * 40


async def test_clients_that_never_begin_or_speak_no_tls_keep_nobody_waiting(tmp_path: Any) -> None:
    async with listening(tmp_path) as (port, _):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        reader, writer = silent[0]
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await greet(port) == b"hello"
        await reader.read()  # ended by the server, perhaps with an alert
    for _, writer in silent:
        writer.transport.abort()


async def test_a_fault_of_one_connection_does_not_end_the_others(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [KeyError("a fault")]

    def make() -> asyncio.Protocol:
        if faults:
            raise faults.pop()
        return Echo()

    async with listening(tmp_path, make) as (port, _):
        with contextlib.suppress(OSError):
            await greet(port)
        assert faults == []
        assert await greet(port) == b"hello"


async def test_without_a_free_file_descriptor_it_tries_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = socket.socket.accept, [OSError("too many open files")] * 3

    def failing(sock: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", failing)
    async with listening(tmp_path, pause_s=0.0) as (port, _):
        assert await greet(port) == b"hello"
    assert failures == []


async def test_a_client_that_sends_nothing_is_no_handshake(tmp_path: Any) -> None:
    async with listening(tmp_path, strangers=1, max_waiting=2) as (port, _):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await asyncio.gather(*[reader.read() for reader, _ in silent[:2]]) == [b"", b""]
        assert await greet(port) == b"hello"
        reader, writer = silent[3]  # the newest were kept
        await writer.start_tls(ssl.create_default_context(cadata=CA.pem), server_hostname="127.0.0.1")
        assert await reader.read(100) == b"hello"
    for _, writer in silent:
        writer.transport.abort()


async def test_a_client_that_never_sends_anything_is_closed(tmp_path: Any) -> None:
    async with listening(tmp_path) as (port, listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await greet(port) == b"hello"  # that came later
        now = asyncio.get_running_loop().time()
        listener.sweep(now)
        assert not reader.at_eof()
        listener.sweep(now + MAX_WAIT_S)
        assert await reader.read() == b""
    writer.transport.abort()


async def test_of_too_many_handshakes_that_are_not_completed_the_oldest_is_given_up(tmp_path: Any) -> None:
    hello = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    first_bytes = hello.read()
    async with listening(tmp_path, strangers=3) as (port, _):
        begun = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first_bytes)
            assert await reader.read(1) != b""
            begun.append((reader, writer))
        for reader, _ in begun[:2]:
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(4096):
                    pass
        assert await greet(port) == b"hello"
    for _, writer in begun:
        writer.transport.abort()


class Waiting:
    """A socket that was accepted, and what can be read from it first; nothing when the client has gone."""

    def __init__(self, address: str, first: bytes = b"\x16") -> None:
        self.address = address
        self.first = first
        self.is_closed = False

    def recv(self, _size: int, _flags: int) -> bytes:
        return self.first

    def close(self) -> None:
        self.is_closed = True


async def test_a_little_of_what_a_client_sends_is_kept_by_the_kernel(tmp_path: Any) -> None:
    """A connection keeps for ever as much memory as was once read from it in one piece."""
    sizes: list[int] = []

    class Measuring(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            sizes.append(connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            super().connection_made(transport)

    async with listening(tmp_path, Measuring) as (port, _):
        assert await greet(port) == b"hello"
    assert sizes[0] <= 2 * RECEIVE_BYTES


@contextlib.asynccontextmanager
async def beginning(**options: int) -> AsyncIterator[tuple[Any, list[tuple[Any, float]]]]:
    """To be called for each connection that is accepted; each connection whose handshake began, and when."""
    loop = asyncio.get_running_loop()
    begun: list[tuple[Waiting, float]] = []
    began = loop.time()

    async def handshake(_make: Any, connection: Any, **_more: Any) -> None:
        begun.append((connection, loop.time() - began))

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening = socket.socket()
    listener = Listener(listening, Echo, lambda: tls, Connections(ConnectionLimits()), **options)
    listening.close()
    loop.connect_accepted_socket = handshake  # type: ignore[method-assign, assignment]
    loop.add_reader = lambda _fd, callback, *args: callback(*args)  # type: ignore[method-assign]
    loop.remove_reader = lambda _: False  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        listener._loop, listener._group = loop, group

        def accept(connection: Waiting) -> Waiting:
            listener._enter(connection, connection.address)  # type: ignore[arg-type]
            return connection

        yield accept, begun
        await asyncio.sleep(1_000 * TURN_S)
        assert not listener._ready


@in_virtual_time
async def test_handshakes_begin_at_a_rate_and_one_address_does_not_wait_for_another() -> None:
    async with beginning() as (accept, begun):
        for _ in range(BEGUN_AT_ONCE * 50):
            accept(Waiting("10.9.9.9"))
        await asyncio.sleep(TURN_S * 1.5)
        user = accept(Waiting("10.0.0.1"))
    assert [at for _, at in begun[:BEGUN_AT_ONCE]] == [0.0] * BEGUN_AT_ONCE
    assert dict(begun)[user] == pytest.approx(2 * TURN_S)
    assert begun[-1][1] == pytest.approx(50 * TURN_S)


@in_virtual_time
async def test_a_client_that_has_gone_without_a_word_is_closed_at_once() -> None:
    """Seen: 3,000 of them waited for a turn each, and 870 were open after two seconds."""
    async with beginning() as (accept, begun):
        gone = [accept(Waiting("10.9.9.9", b"")) for _ in range(3000)]
        assert all(each.is_closed for each in gone)
    assert begun == []


@in_virtual_time
async def test_a_crowd_of_the_same_address_that_came_before_delays_nobody() -> None:
    async with beginning() as (accept, begun):
        for _ in range(1000):
            accept(Waiting("10.9.9.9"))
        await asyncio.sleep(1.0)
        newest = accept(Waiting("10.9.9.9"))
    assert dict(begun)[newest] <= 1.0 + 3 * TURN_S


@in_virtual_time
async def test_a_crowd_of_the_same_address_that_keeps_coming_keeps_nobody_waiting_for_ever() -> None:
    async with beginning() as (accept, begun):
        for _ in range(30 * BEGUN_AT_ONCE):
            accept(Waiting("10.9.9.9"))
        user = accept(Waiting("10.9.9.9"))
        for _ in range(200):  # as many as are served
            for _ in range(BEGUN_AT_ONCE):
                accept(Waiting("10.9.9.9"))
            await asyncio.sleep(TURN_S)
    assert dict(begun)[user] <= 45 * TURN_S


@in_virtual_time
async def test_when_too_many_wait_the_oldest_of_the_largest_crowd_is_closed() -> None:
    async with beginning(max_waiting=10) as (accept, _):
        user = accept(Waiting("10.0.0.1"))
        crowd = [accept(Waiting("10.9.9.9")) for _ in range(20)]
    assert not user.is_closed
    begun = BEGUN_AT_ONCE - 1
    assert [each.is_closed for each in crowd] == [False] * begun + [True] * (10 - begun) + [False] * 10
