"""Connections begin at a bounded rate, in turns by address, and none of them ends the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest

from tests.certificates import Authority
from tests.unit.virtual_time import in_virtual_time
from visibility_api.client_queues import MIN_PAUSE_S
from visibility_api.serving import listener as module
from visibility_api.serving.listener import Listener

CA = Authority("serving")
DEADLINE_S = 30.0


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.write(b"hello")


@contextlib.asynccontextmanager
async def listening(tmp_path: Any, make_protocol: Any = Echo, **options: Any) -> AsyncIterator[int]:
    """A listener on loopback; its port."""
    certificate, key = CA.issue("server", usages=[], hosts=["127.0.0.1"]).write(tmp_path, "server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    listener = Listener(sock, make_protocol, tls, **options)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        port = sock.getsockname()[1]
        listener.start(group)
        try:
            yield port
        finally:
            listener.close()
    assert listener._beginning == set()


async def greet(port: int) -> bytes:
    context = ssl.create_default_context(cadata=CA.pem)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await reader.read(100)
    finally:
        writer.transport.abort()


async def test_connections_are_served_also_beyond_the_burst(tmp_path: Any) -> None:
    async with listening(tmp_path) as port:
        assert await asyncio.gather(*[greet(port) for _ in range(40)]) == [b"hello"] * 40


async def test_clients_that_never_begin_or_speak_no_tls_keep_nobody_waiting(tmp_path: Any) -> None:
    async with listening(tmp_path) as port:
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

    async with listening(tmp_path, make) as port:
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
    async with listening(tmp_path, pause_s=0.0) as port:
        assert await greet(port) == b"hello"
    assert failures == []


@pytest.mark.parametrize("has_left", [False, True])
async def test_a_client_that_left_while_it_waited_costs_no_handshake(has_left: bool) -> None:
    handshakes = []

    async def begun(_make: Any, connection: Any, **_more: Any) -> None:
        handshakes.append(connection)

    listening = socket.socket()
    listener = Listener(listening, Echo, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    listening.close()
    listener._loop = asyncio.get_running_loop()
    client, accepted = socket.socketpair()
    with client, accepted:
        accepted.setblocking(False)
        with mock.patch.object(listener._loop, "connect_accepted_socket", begun):
            if has_left:
                client.close()
            await listener._begin(accepted, "10.0.0.1")
        assert len(handshakes) == (not has_left)
        assert (accepted.fileno() == -1) == has_left


class Waiting:
    """A socket whose client is there and has sent nothing."""

    def __init__(self, address: str) -> None:
        self.address = address

    def recv(self, _size: int, _flags: int) -> bytes:
        raise BlockingIOError

    def close(self) -> None:
        """Refused."""


async def begin(*addresses: str) -> list[tuple[str, float]]:
    """Address and time of each handshake that begins, when all ask for one at the same moment."""
    loop = asyncio.get_running_loop()
    begun: list[tuple[str, float]] = []

    async def handshake(_make: Any, connection: Any, **_more: Any) -> None:
        begun.append((connection.address, loop.time()))

    listening = socket.socket()
    listener = Listener(listening, Echo, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    listening.close()
    listener._loop = loop
    loop.connect_accepted_socket = handshake  # type: ignore[method-assign, assignment]
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for address in addresses:
            group.create_task(listener._begin(Waiting(address), address))  # type: ignore[arg-type]
    return [(address, at - began) for address, at in begun]


@in_virtual_time
async def test_one_address_has_a_rate_of_its_own() -> None:
    seconds = 2.0
    burst, number = int(module.ADDRESS_BURST), int(module.ADDRESS_HANDSHAKES_PER_S * seconds)
    begun = await begin(*["10.9.9.9"] * (burst + number), "10.0.0.1")
    (user_s,) = [at for address, at in begun if address == "10.0.0.1"]
    assert user_s <= MIN_PAUSE_S * 2
    assert begun[-1][1] == pytest.approx(seconds, abs=0.1)


@in_virtual_time
async def test_who_would_wait_longer_than_a_client_does_is_refused() -> None:
    waiting = int(module.ADDRESS_BURST + module.ADDRESS_HANDSHAKES_PER_S * module.MAX_DELAY_S)
    begun = await begin(*["10.9.9.9"] * (waiting + 500))
    assert waiting - 2 <= len(begun) <= waiting + 2
    assert begun[-1][1] <= module.MAX_DELAY_S + 0.1


@in_virtual_time
async def test_all_addresses_together_have_a_rate() -> None:
    burst, number = int(module.BURST), int(module.HANDSHAKES_PER_S)
    begun = await begin(*[f"10.0.{place // 250}.{place % 250}" for place in range(burst + number)])
    assert begun[burst - 1][1] == 0.0
    assert begun[-1][1] == pytest.approx(1.0, abs=0.1)
