"""Runs one command in a container, through kube-apiserver's `pods/exec`.

The protocol: k8s.io/apimachinery/pkg/util/remotecommand (channels and their numbers), KEP-4006 (WebSockets).
The generated call of kubernetes_asyncio is not used: it parses what the command prints and returns the repr
of a Python object, without any limit on its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ClusterError, Unreachable
from visibility_api.kube.responses import Status

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, STATUS = 1, 2, 3
MAX_FRAME_BYTES = 1024 * 1024  # the kubelet sends at most 32 KiB in one
MAX_STDERR_BYTES, MAX_STATUS_BYTES = 4096, 64 * 1024
# Of stderr and other channels: the `cat` is the image's own. Messages may be so many as would hold what may
# be read by MESSAGE_BYTES each: each takes 2 us of the event loop.
MAX_EXCESS_BYTES, MESSAGE_BYTES = 64 * 1024, 128


class ExecFailed(ClusterError):
    """The command could not be run: no such container, not running, no such program in the image."""


class CommandFailed(ClusterError):
    """The command ran and ended with an exit code other than 0."""

    def __init__(self, exit_code: int, stderr: bytes) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code
        self.stderr = stderr  # at most 4 KiB


class OutputTooLarge(ClusterError):
    """The command wrote more than the limit allows, and was cut off."""


async def execute(
    client: KubeClient,
    *,
    namespace: str,
    pod: str,
    container: str,
    argv: Sequence[str],
    max_bytes: int,
    timeout_s: float,
) -> bytes:
    """Run `argv` (no shell, no stdin) and return what it wrote to stdout, at most `max_bytes`.

    Raises CommandFailed, OutputTooLarge, ExecFailed, ApiError, Unreachable; TimeoutError after `timeout_s`
    seconds in all. Closing the connection does not end the process in the container at once. A connection
    that breaks behind the kubelet may look like a success with a part of the output: cut JSON does not parse,
    cut lines of text may.
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
        # Until the server closes: each channel is copied by itself, and the Status may precede stdout's end.
        await client.exchange(
            path, query=query, protocols=PROTOCOLS, max_message_bytes=MAX_FRAME_BYTES, on_message=output.add
        )
    if output.is_cut:
        raise OutputTooLarge(f"more than {max_bytes} bytes of output")
    if exit_code := _exit_code(bytes(output.status)):
        raise CommandFailed(exit_code, bytes(output.stderr))
    return bytes(output.stdout)


class _Output:
    """What was received on each channel (the first byte of every message), within limits."""

    def __init__(self, max_bytes: int) -> None:
        self.stdout, self.stderr, self.status = bytearray(), bytearray(), bytearray()
        self.is_cut = False
        self._max_bytes = max_bytes
        self._max_messages = max(max_bytes, MAX_EXCESS_BYTES) // MESSAGE_BYTES
        self._excess, self._messages = 0, 0

    def add(self, message: bytes) -> bool:
        """Whether the limits allow more."""
        channel, data = message[0] if message else None, message[1:]
        if channel == STDOUT:
            self.stdout += data
        else:
            self._excess += len(data)
        self._messages += 1
        self.is_cut = (
            len(self.stdout) > self._max_bytes
            or self._excess > MAX_EXCESS_BYTES
            or self._messages > self._max_messages
        )
        if channel == STDERR:
            self.stderr += data[: MAX_STDERR_BYTES - len(self.stderr)]
        elif channel == STATUS:
            self.status += data[: MAX_STATUS_BYTES - len(self.status)]
        return not self.is_cut


def _exit_code(body: bytes) -> int:
    """The exit code in the Status that was received on channel 3. Raises ExecFailed, Unreachable."""
    if not body:
        raise Unreachable("exec: the connection closed before the command's status arrived")
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreachable("exec: the status of the command is not a Status object") from error
    if status.status == "Success":
        return 0
    for cause in (status.details.causes if status.details else None) or ():
        if cause.reason == "ExitCode" and cause.message.isascii() and cause.message.isdigit():
            return int(cause.message[:4])
    raise ExecFailed(status.message[:500] or status.reason)
