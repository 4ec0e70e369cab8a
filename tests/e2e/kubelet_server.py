"""The HTTPS server of a kubelet that kube-apiserver dials for `exec` and logs.

Knows the kubelet's paths and how outcomes become Status documents (X5). What runs behind it is a NodeAgent;
how bytes travel is exec_channel.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl

from aiohttp import web

from localcluster.machinery.node_agent import ExecError, LogQuery, NodeAgent, Process
from tests.e2e.exec_channel import ExecChannel, open_channel

_CHUNK_BYTES = 32 * 1024


class KubeletServer:
    """Serves one node's pods on a loopback port, to holders of a client certificate only."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._runner: web.AppRunner | None = None

    async def start(self, tls: ssl.SSLContext, port: int) -> None:
        app = web.Application()
        for method in ("GET", "POST"):
            app.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._exec)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        """A refusal comes after the upgrade, as from a container runtime (X10)."""
        channel, response = await open_channel(request)
        try:
            process = await self._agent.exec(*_target(request), request.query.getall("command"))
        except ExecError as refusal:
            await channel.send("error", _failure(refusal.reason, refusal.message))
            await channel.close()
            return response
        try:
            await _relay(process, channel)
        finally:
            await process.close()
        return response

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        given = request.query
        query = LogQuery(
            previous=given.get("previous") == "true",
            tail_lines=_optional_int(given.get("tailLines")),
            limit_bytes=_optional_int(given.get("limitBytes")),
            since_seconds=_optional_int(given.get("sinceSeconds")),
            timestamps=given.get("timestamps") == "true",
            follow=given.get("follow") == "true",
        )
        lines = self._agent.stream_logs(*_target(request), query)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for chunk in lines:
            await response.write(chunk)
        await response.write_eof()
        return response


async def _relay(process: Process, channel: ExecChannel) -> None:
    """Carry output until the process ends or the client leaves; the Status comes last, exactly once."""
    work = asyncio.create_task(_pump_all(process, channel), name="exec pump")
    left = asyncio.create_task(channel.gone.wait(), name="exec client left")
    try:
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return
        try:
            work.result()
        except ConnectionError:
            channel.abort()
            return
        await channel.send("error", _exit_status(await process.wait()))
        await channel.close()
    finally:
        for task in (work, left):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await task


async def _pump_all(process: Process, channel: ExecChannel) -> None:
    await asyncio.gather(_pump(process.stdout, "stdout", channel), _pump(process.stderr, "stderr", channel))


async def _pump(output: asyncio.StreamReader, stream: str, channel: ExecChannel) -> None:
    while data := await output.read(_CHUNK_BYTES):
        await channel.send(stream, data)


def _target(request: web.Request) -> tuple[str, str, str]:
    match = request.match_info
    return match["namespace"], match["pod"], match["container"]


def _optional_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _exit_status(code: int) -> bytes:
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    return json.dumps(
        {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    ).encode()


def _failure(reason: str, message: str) -> bytes:
    return json.dumps(
        {"metadata": {}, "status": "Failure", "reason": reason, "message": message, "code": 500}
    ).encode()
