"""The API shell on a real socket, under uvicorn, as an HTTP client meets it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from tests.unit.api_shell import BASE, ONE, Shell
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse, ResourceStream

LARGE = [b"%06d\n" % i * 1000 for i in range(50)]
DEADLINE_S = 90.0


@asynccontextmanager
async def serving(shell: Shell) -> AsyncIterator[str]:
    """The URL of a uvicorn that serves the shell on a free port of 127.0.0.1."""
    config = uvicorn.Config(shell.app, log_config=None, http="httptools", server_header=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # from here on clients may connect
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def answer(request: ResourceRequest) -> ResourceResponse | ResourceStream:
    if request.attributes.verb == "watch":

        async def write(send: Callable[[bytes], Awaitable[None]]) -> None:
            await send(b'{"n":1}\n')
            await send(b'{"n":2}\n')

        return ResourceStream(write=write)
    if request.attributes.verb == "list":
        return ResourceResponse(body=LARGE)
    return ResourceResponse(body=b"{}\n")


async def test_get_list_and_watch_on_one_connection() -> None:
    """R14, R15, W1 to W3."""
    async with (
        serving(Shell(handler=answer)) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as client,
    ):
        one = await client.get(ONE, headers={"Audit-ID": "a-1"})
        assert (one.status_code, one.content, one.headers["audit-id"]) == (200, b"{}\n", "a-1")
        listed = await client.get(f"{BASE}/trainjobs", headers={"Accept-Encoding": "gzip"})
        assert (listed.headers["content-encoding"], listed.content) == ("gzip", b"".join(LARGE))
        plain = await client.get(f"{BASE}/trainjobs", headers={"Accept-Encoding": "identity"})
        assert (int(plain.headers["content-length"]), plain.content) == (
            len(b"".join(LARGE)),
            b"".join(LARGE),
        )
        async with client.stream("GET", f"{BASE}/trainjobs?watch=1") as watch:
            assert watch.headers["transfer-encoding"] == "chunked"
            assert [line async for line in watch.aiter_lines()] == ['{"n":1}', '{"n":2}']


@pytest.mark.parametrize("path", ["/livez", "/version", "/openapi/v3", BASE])
async def test_head_has_the_headers_of_get_and_no_body(path: str) -> None:
    """R6."""
    async with serving(Shell()) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as client:
        head, got = await client.head(path), await client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) == len(got.content)


async def test_not_modified_leaves_the_connection_usable() -> None:
    """D12: a 304 has neither body nor length."""
    async with serving(Shell()) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as client:
        etag = (await client.get("/openapi/v3")).headers["etag"]
        again = await client.get("/openapi/v3", headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("/livez")).text == "ok"


async def test_the_body_of_a_refused_request_does_not_disturb_the_next() -> None:
    """R6."""
    async with serving(Shell()) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as client:
        assert (await client.post(ONE, content=b"x" * 300_000)).status_code == 405
        assert (await client.get("/livez")).text == "ok"


async def test_a_stream_that_breaks_is_seen_as_broken() -> None:
    """W20: the client must not take it for the whole."""

    async def broken(_: ResourceRequest) -> ResourceResponse | ResourceStream:
        async def write(send: Callable[[bytes], Awaitable[None]]) -> None:
            await send(b"{}\n")
            raise KeyError

        return ResourceStream(write=write)

    async with (
        serving(Shell(handler=broken)) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as client,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"{BASE}/trainjobs?watch=1")
