"""The server as a process of its own, and a stand-in for the kube-apiserver that it follows."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web

from tests.certificates import Authority
from tests.service.tls_server import NAMES
from visibility_api.auth.request_header_config import NAME

GROUP = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
DEADLINE_S = 90.0
SERVING = Authority("serving")
OURS = SERVING.issue("server", usages=[], hosts=["127.0.0.1"])


class ControlPlane:
    """A kube-apiserver with the `items` of each path, none at first: everybody may do everything; watches
    stay open and bring nothing, or all is 503."""

    def __init__(self) -> None:
        self.is_away = False
        self.items: dict[str, list[dict[str, Any]]] = {}
        self.status: dict[str, int] = {}  # by path: refused so
        self.behind_s = 0.0  # its clock, of the server's
        self._ended = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        code = 503 if self.is_away else self.status.get(request.path, 200)
        if code != 200:
            return web.json_response({"kind": "Status", "code": code, "reason": "No"}, status=code)
        if request.method == "POST":
            return web.json_response({"status": {"allowed": True}}, status=201)
        if request.path.endswith(NAME):
            return web.json_response({"metadata": {"name": NAME}, "data": NAMES})
        if request.query.get("watch") != "true":
            items = self.items.get(request.path, [])
            return web.json_response(
                {"metadata": {"resourceVersion": "1"}, "items": items},
                headers={"Date": formatdate(time.time() - self.behind_s, usegmt=True)},
            )
        stream = web.StreamResponse()
        await stream.prepare(request)
        await self._ended.wait()
        return stream

    @asynccontextmanager
    async def serving(self, directory: Path) -> AsyncIterator[Path]:
        """The kubeconfig to reach it by."""
        runner = web.ServerRunner(web.Server(self.handle))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        file = directory / "kubeconfig"
        file.write_text(kubeconfig(runner.addresses[0][1]))
        try:
            yield file
        finally:
            self._ended.set()
            await runner.cleanup()


def kubeconfig(port: int) -> str:
    return json.dumps(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "s3cr3t-token"}}],
        }
    )


class Process:
    """`visibility-api serve`, and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[dict[str, Any]] = []
        self.text = ""
        self.client: httpx.AsyncClient | None = None

    async def read_until(self, event: str) -> dict[str, Any]:
        """The fields of the next line with that event. Fails when the log ends before."""
        assert self._process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := await self._process.stderr.readline():
                self.text += line.decode()
                if line.startswith(b"{"):
                    self.lines.append(json.loads(line))
                    if self.lines[-1]["event"] == event:
                        return self.lines[-1]
        raise AssertionError(f"the log ends without {event!r}:\n{self.text}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit code; reads the rest of the log."""
        assert self._process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            self.text += (await self._process.stderr.read()).decode()
            return await self._process.wait()

    async def get(self, path: str) -> httpx.Response:
        assert self.client is not None
        return await self.client.get(path)

    async def until(self, path: str, is_so: Callable[[httpx.Response], bool]) -> httpx.Response:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so(answer := await self.get(path)):  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.05)
        return answer


@asynccontextmanager
async def started(*arguments: str | Path) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "visibility_api", "serve", "--secure-port=0", "--bind-address=127.0.0.1"),
        *(str(argument) for argument in arguments),
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        yield Process(child)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@asynccontextmanager
async def serving(directory: Path, *arguments: str | Path) -> AsyncIterator[Process]:
    """A server whose address is known. Each one in a test has the same certificate."""
    certificate, key = OURS.write(directory, "serving")
    files = (f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}")
    async with started(*files, *arguments) as process:
        address = (await process.read_until("serving"))["address"]
        context = ssl.create_default_context(cadata=SERVING.pem)
        async with httpx.AsyncClient(
            base_url=address, verify=context, trust_env=False, timeout=DEADLINE_S
        ) as client:
            process.client = client
            yield process
