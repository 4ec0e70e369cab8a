"""Streams and the other protocols of ASGI: W2, W3, W20, W23, W24."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from tests.asgi import http_scope
from tests.unit.api_shell import BASE, Shell
from visibility_api.app import Limits
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse, ResourceStream

Writer = Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]


def streaming(write: Writer) -> Callable[[ResourceRequest], Awaitable[ResourceResponse | ResourceStream]]:
    async def handler(_: ResourceRequest) -> ResourceResponse | ResourceStream:
        return ResourceStream(write=write)

    return handler


async def test_a_streams_headers_leave_before_there_is_anything_to_tell() -> None:
    """W2, W3: client-go's Watch returns only then."""
    seen: list[str] = []
    started = asyncio.Event()
    tell = asyncio.Event()

    async def write(send: Callable[[bytes], Awaitable[None]]) -> None:
        await tell.wait()
        await send(b"{}\n")

    async def note(message: dict[str, Any]) -> None:
        seen.append(message["type"])
        started.set()

    shell = Shell(handler=streaming(write))
    task = asyncio.create_task(
        shell.get(f"{BASE}/trainjobs?watch=1", ("Accept-Encoding", "gzip"), before_send=note)
    )
    await started.wait()
    assert seen == ["http.response.start"]
    assert shell.sample("apiserver_longrunning_requests", verb="WATCH") == 1
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0  # P11
    tell.set()
    answer = await task
    assert (answer.header("content-type"), answer.header("content-length")) == ("application/json", None)
    assert answer.header("content-encoding") is None  # R14
    assert (answer.chunks, answer.is_complete) == ([b"{}\n", b""], True)  # W24: a clean end
    assert shell.sample("apiserver_longrunning_requests", verb="WATCH") == 0


async def test_watches_are_bounded() -> None:
    end = asyncio.Event()
    running = asyncio.Event()

    async def write(_: Callable[[bytes], Awaitable[None]]) -> None:
        running.set()
        await end.wait()

    shell = Shell(handler=streaming(write), limits=Limits(watches=1, chunk_timeout_s=0.01))
    first = asyncio.create_task(shell.get(f"{BASE}/trainjobs?watch=1"))
    await running.wait()
    assert (await shell.get(f"{BASE}/trainjobs?watch=1")).status == 429
    end.set()
    await first
    assert (await shell.get(f"{BASE}/trainjobs?watch=1")).status == 200


async def drive(
    shell: Shell, scope: dict[str, Any], incoming: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    waiting = list(incoming)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    await shell.app(scope, receive, send)
    assert waiting == []
    return sent


async def test_the_lifespan_starts_and_ends_in_order() -> None:
    sent = await drive(
        Shell(), {"type": "lifespan"}, [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    )
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_closed_before_it_is_accepted() -> None:
    """Watches are HTTP; the server below answers 403."""
    scope = {**http_scope("GET", f"{BASE}/trainjobs?watch=1"), "type": "websocket"}
    assert [message["type"] for message in await drive(Shell(), scope, [])] == ["websocket.close"]
