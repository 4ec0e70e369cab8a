"""Limits that add up: what clients may hold fits the memory that the Deployment allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from visibility_api.app import Limits
from visibility_api.serving.connection import MAX_STRANGERS_HEAD_BYTES
from visibility_api.serving.connections import CONNECTION_BYTES, ConnectionLimits
from visibility_api.serving.writer import KEPT_BYTES

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
    assert connections + strangers + limits.head_bytes + JOBS_BYTES <= _memory_limit()


def test_watches_leave_connections_for_requests() -> None:
    """Also when every class of callers has all the watches that it may have, requests find a connection."""
    limits, connections = Limits(), ConnectionLimits()
    assert limits.watches < connections.connections - 2 * connections.reserve
    assert limits.watches_of_user * 10 <= limits.watches
