"""Limits that add up: what clients may hold fits the memory that the Deployment allows."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from visibility_api.app import Limits
from visibility_api.app.exchange import PIECE_BYTES
from visibility_api.kube.responses import MAX_LINE_BYTES
from visibility_api.server import set_up_threads
from visibility_api.serving.connection import MAX_STRANGERS_HEAD_BYTES
from visibility_api.serving.connections import CONNECTION_BYTES, ConnectionLimits
from visibility_api.serving.writer import KEPT_BYTES, SMALL_BYTES
from visibility_api.workloads.pod_lists import AT_A_TIME, MAX_PAGE_BYTES

MIB = 1024 * 1024
# Of a server with 3,000 jobs: their documents and the lists that it keeps (docs/security.md).
JOBS_BYTES = 290 * MIB
HANDSHAKE_BYTES = 130_000


def _memory_limit() -> int:
    text = (Path(__file__).parents[2] / "deploy/base/deployment.yaml").read_text()
    deployment: dict[str, Any] = next(
        each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limit: str = container["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    return int(limit.removesuffix("Gi")) * 1024 * MIB


def test_what_is_bounded_fits_the_memory_limit_of_the_deployment() -> None:
    limits = ConnectionLimits()
    connections = limits.connections * (CONNECTION_BYTES + KEPT_BYTES)
    strangers = limits.strangers * max(HANDSHAKE_BYTES, MAX_STRANGERS_HEAD_BYTES)
    inspections = AT_A_TIME * MAX_PAGE_BYTES  # of failed jobs
    parts = (connections, strangers, limits.head_bytes, JOBS_BYTES, inspections, MAX_LINE_BYTES)
    assert sum(parts) <= _memory_limit()


def test_a_watch_that_is_not_read_keeps_no_more_than_a_connection_may() -> None:
    """Its chunk, and what OpenSSL keeps of its largest write: of two small ones at most, twice."""
    chunk = 64 * 1024
    assert chunk + 2 * 2 * SMALL_BYTES * 4 // 3 <= KEPT_BYTES
    assert PIECE_BYTES + len(f"{PIECE_BYTES:x}\r\n\r\n") <= SMALL_BYTES


def test_watches_leave_connections_for_requests() -> None:
    """Also when every class of callers has all the watches that it may have, requests find a connection."""
    limits, connections = Limits(), ConnectionLimits()
    assert limits.watches < connections.connections - 2 * connections.reserve
    assert limits.watches_of_user * 10 <= limits.watches


async def test_work_in_threads_is_done_one_by_one_and_gives_way_within_half_a_millisecond() -> None:
    """What pods print is read there: six threads that wait for Python's lock kept the loop for 170 ms."""
    before, running, most = sys.getswitchinterval(), 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.001)
        running -= 1

    try:
        set_up_threads(asyncio.get_running_loop())
        await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
        assert (most, sys.getswitchinterval()) == (1, 0.0005)
    finally:
        sys.setswitchinterval(before)
