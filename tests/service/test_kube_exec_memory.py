"""The memory of an exec is freed at once: hundreds per second must not wait for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import uvloop

from visibility_api.kube.exec.upgrade import UpgradeResponse
from visibility_api.kube.exec.websocket import _Exchange

from .test_kube_sessions import client_of, probe, server_tls
from .tls_server import until
from .websocket_server import scripted_server


def left_behind() -> int:
    return sum(isinstance(found, _Exchange | UpgradeResponse) for found in gc.get_objects())


async def ask_three_times(directory: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        async with (
            scripted_server(tls=server_tls(directory)) as server,
            client_of(server, directory) as client,
        ):
            await probe(client, 3)
            await until(lambda: not left_behind())
    finally:
        gc.enable()


def test_a_connection_is_gone_from_memory_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask_three_times(tmp_path))
