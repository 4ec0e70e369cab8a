"""HTTP of another cluster's server, which may be hostile, on a real socket."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from kubernetes_asyncio.client import Configuration

from tests.unit.turns import busy_s
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import Unreachable

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MOST_S = 0.05  # at once: ten times what is allowed, as a crowded core takes longer
EVENT = b'{"type":"MODIFIED","object":"' + b"x" * 600 + b'"}\n'


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[Configuration]:
    """Answers each connection's first request in a thread of its own."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)  # else a test that fails never ends
        thread.start()
        yield Configuration(host=f"http://127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


async def read(client: KubeClient, *, rest_s: float = 0.0) -> int:
    """The number of lines of a stream."""
    number = 0
    async with client.lines("/apis", query=(), silence_s=5.0) as lines:
        async for _ in lines:
            number += 1
            if number % 1_000 == 0:
                await asyncio.sleep(rest_s)
    return number


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        (CHUNKED, b"1\r\n \r\n"),
        (CHUNKED + b"1;", b"a;"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["chunks of a byte", "extensions of a chunk", "interim answers"],
)
async def test_http_without_content_is_ended_before_it_takes_much_of_the_loop_and_is_told(
    start: bytes, repeated: bytes
) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(repeated * 20_000)

    told = list[str]()

    async def refused(client: KubeClient) -> None:
        with pytest.raises(Unreachable) as error:
            await read(client)
        told.append(str(error.value))

    with server(answer) as configuration:
        async with KubeClient(configuration, is_foreign=True) as client:
            turns = await busy_s(refused(client))
    # On a busy machine it comes slowly enough to be read within the share of time, up to its size limit.
    assert re.search("HTTP that takes too long to read|size limit exceeded", told[0])
    assert max(turns) < MOST_S


@pytest.mark.parametrize("rest_s", [0.0, 0.01], ids=["fast", "slow"])
async def test_all_that_a_server_sends_as_servers_do_is_read_also_by_a_slow_reader(rest_s: float) -> None:
    """More than is kept for one: then nothing is parsed for a while."""

    def answer(connection: socket.socket) -> None:
        chunk = EVENT * 20
        connection.sendall(CHUNKED + (b"%x\r\n%b\r\n" % (len(chunk), chunk)) * 1_000 + b"0\r\n\r\n")

    with server(answer) as configuration:
        async with KubeClient(configuration, is_foreign=True) as client:
            assert await read(client, rest_s=rest_s) == 20_000
