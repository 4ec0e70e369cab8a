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
