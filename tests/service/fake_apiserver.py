"""A scripted kube-apiserver on a real socket, for what no well-behaved one does: cut, stall, lie."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes_asyncio.client import Configuration

from visibility_api.kube.client import KubeClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def fake_apiserver(
    handler: Handler, *, configure: Callable[[Configuration], None] = lambda _: None, **options: Any
) -> AsyncIterator[KubeClient]:
    """A client, after `configure`, connected to a server that answers every request by `handler`."""
    server = web.Server(handler)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    configure(configuration)
    try:
        async with KubeClient(configuration, **options) as client:
            yield client
    finally:
        await runner.cleanup()
