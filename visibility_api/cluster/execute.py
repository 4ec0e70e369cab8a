"""Running one command in a container over a WebSocket: kubernetes-api.md X1 to X10.

The generated call of kubernetes_asyncio is not used: it parses what the command prints and hands back the
repr of a Python object, without any bound on its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

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
    connection does not end the process in the container at once (X8). A connection that breaks beyond the
    kubelet may reach us as a success with a part of the output: JSON shows that, lines of text need not.
    """
    query = [
        *(("command", word) for word in argv),
        ("container", container),
        ("stdout", "true"),
        ("stderr", "true"),
    ]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    output = _Output(max_bytes)
    async with asyncio.timeout(timeout_s):
        # Until the server closes: the status may overtake the last of stdout, each is copied on its own.
        await client.exchange(
            path, query=query, protocols=PROTOCOLS, max_message_bytes=MAX_FRAME_BYTES, take=output.take
        )
    return Executed(
        stdout=bytes(output.stdout[:max_bytes]),
        stderr=bytes(output.stderr),
        exit_code=None if output.is_cut else _exit_code(bytes(output.status)),
        is_cut=output.is_cut,
    )


class _Output:
    """What has come on each channel (X4), within bounds."""

    def __init__(self, max_bytes: int) -> None:
        self.stdout, self.stderr, self.status = bytearray(), bytearray(), bytearray()
        self.is_cut = False
        self._max_bytes = max_bytes
        self._excess = 0  # bytes on other channels, and of messages that say nothing

    def take(self, message: bytes) -> bool:
        """Whether more is wanted."""
        channel, data = message[0] if message else None, message[1:]
        if channel == STDOUT:
            self.stdout += data
            self._excess += 1
        else:
            self._excess += len(data) + 1
        self.is_cut = len(self.stdout) > self._max_bytes or self._excess > MAX_EXCESS_BYTES
        if channel == STDERR:
            self.stderr += data[: MAX_STDERR_BYTES - len(self.stderr)]
        elif channel == STATUS:
            self.status += data[: MAX_STATUS_BYTES - len(self.status)]
        return not self.is_cut


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
