"""exec against a kube-apiserver that hangs, drops connections, floods and breaks the protocol."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from tests.jobs import RANK0, REF
from visibility_api.jobs.job import Rank0
from visibility_api.kube import exec as exec_
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import Unreachable
from visibility_api.kube.exec import CommandFailed, ExecFailed, OutputTooLarge, execute
from visibility_api.probing.exec_source import ExecSource
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

from .fake_apiserver import Handler, fake_apiserver
from .websocket_server import DEADLINE_S

SUCCESS = {"metadata": {}, "status": "Success"}
DOCUMENT = b'{"timestamp":"2026-01-23T10:30:45Z","step":7}'


def exit_status(code: int) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def serving(
    act: Callable[[web.WebSocketResponse], Awaitable[None]], protocol: str = "v5.channel.k8s.io"
) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(protocols=(protocol,))
        await ws.prepare(request)
        for channel in (1, 2, 3):
            await ws.send_bytes(bytes([channel]))  # empty: kube-apiserver confirms the channel
        await act(ws)
        return ws

    return handle


def saying(*messages: tuple[int, bytes], status: Any = SUCCESS) -> Handler:
    async def act(ws: web.WebSocketResponse) -> None:
        for channel, data in messages:
            await ws.send_bytes(bytes([channel]) + data)
        if status is not None:
            await ws.send_bytes(b"\x03" + json.dumps(status).encode())
        await ws.close()

    return serving(act)


async def run(
    client: KubeClient,
    *,
    timeout_s: float = DEADLINE_S,
    max_bytes: int = 1000,
) -> bytes:
    return await execute(
        client,
        namespace="team-a",
        pod="bert",
        container="node",
        argv=("cat", "--", "/tmp/x y"),
        max_bytes=max_bytes,
        timeout_s=timeout_s,
    )


async def ask(handler: Handler, *, timeout_s: float = DEADLINE_S, rank0: Rank0 = RANK0) -> Outcome:
    async with fake_apiserver(handler) as client:
        return await ExecSource(client, timeout_s=timeout_s).probe(REF, rank0)


def refusal(outcome: Outcome) -> tuple[str, RetryClass]:
    assert isinstance(outcome, Refused)
    return outcome.reason, outcome.retry


def speaking(status: Any) -> Callable[[web.WebSocketResponse], Awaitable[None]]:
    """Each channel in two frames."""

    async def act(ws: web.WebSocketResponse) -> None:
        await ws.send_bytes(b"\x01hel")
        await ws.send_bytes(b"\x02oo")
        await ws.send_bytes(b"\x03" + json.dumps(status).encode()[:20])
        await ws.send_bytes(b"\x03" + json.dumps(status).encode()[20:])
        await ws.send_bytes(b"\x01lo")  # after the status: each stream is copied on its own
        await ws.send_bytes(b"\x02ps")
        await ws.close()

    return act


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_output_is_put_together_whatever_the_frames(protocol: str) -> None:
    async with fake_apiserver(serving(speaking(SUCCESS), protocol)) as client:
        assert await run(client) == b"hello"


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_a_command_that_fails_is_an_error_with_its_exit_code_and_what_it_complained(
    protocol: str,
) -> None:
    async with fake_apiserver(serving(speaking(exit_status(3)), protocol)) as client:
        with pytest.raises(CommandFailed) as failed:
            await run(client)
    assert (failed.value.exit_code, failed.value.stderr) == (3, b"oops")


async def test_endless_output_is_cut_at_the_bound() -> None:
    async def act(ws: web.WebSocketResponse) -> None:
        try:
            while True:
                await ws.send_bytes(b"\x01" + b"x" * 32_000)
        except (ConnectionError, RuntimeError):
            pass  # the reader has gone, as it should

    async with fake_apiserver(serving(act)) as client:
        with pytest.raises(OutputTooLarge):
            await run(client, max_bytes=100_000)


async def test_a_frame_larger_than_any_kubelet_sends_is_refused() -> None:
    async with fake_apiserver(saying((1, b"x" * 3_000_000))) as client:
        with pytest.raises(Unreachable):
            await run(client)


@pytest.mark.parametrize("messages", [(), ((1, DOCUMENT),)], ids=["before any output", "after whole output"])
async def test_a_connection_that_closes_without_outcome_is_no_success(messages: Any) -> None:
    async with fake_apiserver(saying(*messages, status=None)) as client:
        with pytest.raises(Unreachable, match="before the command's status arrived"):
            await run(client)


async def test_a_connection_cut_half_way_is_no_success() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await ws.prepare(request)
        await ws.send_bytes(b"\x01" + DOCUMENT[:10])
        assert request.transport is not None
        request.transport.abort()
        return ws

    async with fake_apiserver(handle) as client:
        with pytest.raises(Unreachable):
            await run(client)


@pytest.mark.parametrize("status", ["nonsense", {"status": "Failure", "reason": "InternalError"}, {}])
async def test_an_outcome_that_names_no_exit_code_is_a_failure(status: Any) -> None:
    async with fake_apiserver(saying((1, DOCUMENT), status=status)) as client:
        with pytest.raises((ExecFailed, Unreachable)):
            await run(client)


async def test_a_document_is_read() -> None:
    outcome = await ask(saying((1, DOCUMENT[:9]), (1, DOCUMENT[9:])))
    assert isinstance(outcome, Progress)
    assert outcome.step == 7


def complaining(stderr: bytes, code: int) -> Handler:
    return saying((2, stderr), status=exit_status(code))


def reporting(message: str) -> Handler:
    """As the runtime, of a command that did not begin."""
    return saying(status={"status": "Failure", "reason": "InternalError", "message": message, "code": 500})


def refusing(code: int) -> Handler:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": code}, status=code)

    return refuse


NOT_FOUND = 'exec failed: unable to start container process: exec: "cat": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("handler", "reason", "retry"),
    [
        (complaining(b"cat: /tmp/s3cr3t: No such file or directory\n", 1), "NoProgressFile", "LATER"),
        (
            complaining(b"cat: can't open '/tmp/s3cr3t': No such file or directory", 1),
            "NoProgressFile",
            "LATER",
        ),
        (complaining(b"cat: /tmp/s3cr3t: Is a directory\n", 1), "ProgressFileUnreadable", "LATER"),
        (complaining(b"cat: read error: Is a directory", 1), "ProgressFileUnreadable", "LATER"),
        (complaining(b"cat: /tmp/s3cr3t: Permission denied", 1), "ProgressFileUnreadable", "LATER"),
        (complaining(b"s3cr3t", 1), "ProgressFileUnreadable", "LATER"),
        (complaining(b"", 126), "NoCatInImage", "RARELY"),
        (complaining(b"", 127), "NoCatInImage", "RARELY"),
        (reporting(NOT_FOUND), "NoCatInImage", "RARELY"),
        (reporting('container not found ("node")'), "ContainerNotRunning", "SOON"),
        (reporting("something s3cr3t"), "ExecFailed", "RARELY"),
        (refusing(403), "ExecForbidden", None),
        (refusing(404), "PodGone", None),
        (refusing(500), "PodUnreachable", None),
        (refusing(400), "PodUnreachable", None),
        (saying((1, b"s3cr3t \xff\xfe")), "NotUTF8", "LATER"),
        (saying(*[(1, b"x" * 32_000)] * 5), "TooLarge", "RARELY"),
        *(
            (saying((3, outcome), status=None), "PodUnreachable", "SOON")  # what is no status counts as none
            for outcome in (b"\xff", b"[" * 5000, b"7", b'{"status":7}')
        ),
    ],
    ids=range(21),
)
async def test_what_goes_wrong_becomes_a_reason_and_nothing_of_it_is_repeated(
    handler: Handler, reason: str, retry: str | None
) -> None:
    outcome = await ask(handler)
    assert isinstance(outcome, Refused)
    assert (outcome.reason, outcome.retry.name if retry else None) == (reason, retry)
    assert "s3cr3t" not in outcome.message


@pytest.mark.parametrize(
    "message", [b"", b"\x01", b"\x02" + b"x" * 1000, b"\x07" + b"x" * 1000], ids=range(4)
)
async def test_an_endless_stream_that_brings_no_document_is_left_at_a_bound(
    monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    """The `cat` is the image's own: what it writes, and where, is its author's choice."""

    monkeypatch.setattr(exec_, "MAX_EXCESS_BYTES", 4000)

    async def act(ws: web.WebSocketResponse) -> None:
        while True:
            await ws.send_bytes(message)
            await asyncio.sleep(0)  # the reader's turn, who shares the event loop

    async with fake_apiserver(serving(act)) as client:
        with pytest.raises(OutputTooLarge):
            await run(client)


async def test_a_document_in_hundreds_of_messages_is_not_read() -> None:
    """60,000 of a byte each kept the event loop for 110 ms without a pause."""

    async def act(ws: web.WebSocketResponse) -> None:
        with suppress(ConnectionError):
            for _ in range(600):
                await ws.send_bytes(b"\x01x")
            await ws.send_bytes(b'\x03{"status":"Success"}')

    async with fake_apiserver(serving(act)) as client:
        with pytest.raises(OutputTooLarge):
            await run(client, max_bytes=64 * 1024)


async def test_a_hanging_read_is_tried_again_only_rarely() -> None:
    async def act(ws: web.WebSocketResponse) -> None:
        await ws.receive()

    assert refusal(await ask(serving(act), timeout_s=0.2)) == ("ProbeTimeout", RetryClass.RARELY)


async def test_a_server_that_is_down_is_the_fault_of_no_job() -> None:
    with socket.socket() as taken:  # nobody listens, and nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with KubeClient(Configuration(host=f"http://127.0.0.1:{port}")) as client:
            outcome = await ExecSource(client, timeout_s=DEADLINE_S).probe(REF, RANK0)
    assert refusal(outcome) == ("PodUnreachable", RetryClass.SOON)
    assert isinstance(outcome, Refused)
    assert str(port) not in outcome.message  # where kube-apiserver is, is not for every user
