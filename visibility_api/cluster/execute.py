"""Running one command in a container over a WebSocket: kubernetes-api.md X1 to X10.

The generated call of kubernetes_asyncio is not used: it parses what the command prints and hands back the
repr of a Python object, without any bound on its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from .client import KubeClient
from .errors import ClusterError, Unreachable

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, STATUS = 1, 2, 3
MAX_STDERR_BYTES = 4096
MAX_EXCESS_BYTES = 64 * 1024  # on all channels together, past what is wanted: the `cat` is the image's own
MAX_STATUS_BYTES = 64 * 1024
MAX_FRAME_BYTES = 1024 * 1024  # the kubelet sends at most 32 KiB in one; 0 would mean no bound


class ExecFailed(ClusterError):
    """The command could not be run: no such container, not running, no such program in the image (X5)."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A command that ran, or was cut off at the byte limit."""

    stdout: bytes
    stderr: bytes  # at most 4 KiB
    exit_code: int | None  # None when the output was cut off
    is_cut: bool  # more came than the limit allows, and stdout may not be whole


async def execute(
    client: KubeClient,
    *,
    namespace: str,
    pod: str,
    container: str,
    argv: Sequence[str],
    max_bytes: int,
    timeout_s: float,
) -> Executed:
    """Run `argv` (no shell, no stdin) and return what it wrote, at most `max_bytes` of stdout.

    Raises ExecFailed, ApiError, Unreachable; TimeoutError after `timeout_s` seconds in all. A closed
    connection does not end the process in the container at once (X8).
    """
    query = [
        *(("command", word) for word in argv),
        ("container", container),
        ("stdout", "true"),
        ("stderr", "true"),
    ]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    stdout, stderr, status = bytearray(), bytearray(), bytearray()
    excess = 0  # bytes on other channels, and of messages that say nothing
    async with (
        asyncio.timeout(timeout_s),
        client.websocket(path, query=query, protocols=PROTOCOLS, max_message_bytes=MAX_FRAME_BYTES) as socket,
    ):
        # Until the server closes: the status may overtake the last of stdout, each is copied on its own.
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY:
                continue
            channel, data = message.data[0] if message.data else None, message.data[1:]
            if channel == STDOUT:
                stdout += data
                excess += 1
            else:
                excess += len(data) + 1
            if len(stdout) > max_bytes or excess > MAX_EXCESS_BYTES:
                return Executed(
                    stdout=bytes(stdout[:max_bytes]), stderr=bytes(stderr), exit_code=None, is_cut=True
                )
            if channel == STDERR:
                stderr += data[: MAX_STDERR_BYTES - len(stderr)]
            elif channel == STATUS:
                status += data[: MAX_STATUS_BYTES - len(status)]
    return Executed(
        stdout=bytes(stdout), stderr=bytes(stderr), exit_code=_exit_code(bytes(status)), is_cut=False
    )


def _exit_code(body: bytes) -> int:
    """The command's exit code by the Status on channel 3. Raises ExecFailed, Unreachable."""
    if not body:
        raise Unreachable("exec: the connection closed before the command's outcome was told")
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreachable("exec: the outcome of the command is not a Status") from error
    if status.status == "Success":
        return 0
    for cause in (status.details.causes if status.details else None) or ():
        if cause.reason == "ExitCode" and cause.message.isascii() and cause.message.isdigit():
            return int(cause.message[:4])
    raise ExecFailed(status.message[:500] or status.reason)
