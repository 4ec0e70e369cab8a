"""An HTTPS proxy in front of an API server, which gives answers of a test's choice a fault."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from tests.e2e.cluster import Cluster
from tests.e2e.loop_thread import LoopThread
from tests.e2e.pki import Authority

# Of one connection, or made anew here.
_OWN_HEADERS = frozenset(("host", "connection", "transfer-encoding", "content-length", "accept-encoding"))
_PADDING = b'{"padding":"%s",' % (b"x" * 5 * 2**20)  # beyond the 4 MiB that a server reads of such answers


class Fault(enum.Enum):
    """What becomes of an answer. kube-apiserver has done what was requested all the same."""

    TOO_LONG = "the same JSON, of 5 MiB"
    BROKEN = "the connection is cut in the middle of it"
    LATE = "it never comes"
    ENDLESS = "it begins, and goes on with blanks"


class ApiProxy:
    """Relays requests to the API server of `cluster`; the credentials are the client's."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        authority = Authority(directory, "api-proxy")
        self.ca_file = authority.bundle
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*authority.issue_server("api-proxy", "127.0.0.1"))
        self._upstream = cluster.url
        self._upstream_tls = ssl.create_default_context(cafile=str(cluster.ca_file))
        self._faults: dict[str, Fault] = {}
        self._once: dict[str, Fault] = {}
        self._loop = LoopThread()
        self.url = self._loop.call(self._start())

    @contextlib.contextmanager
    def answering(self, ending: str, fault: Fault) -> Iterator[None]:
        """Answers on paths with this end, the query included, have the fault meanwhile."""
        self._faults[ending] = fault
        try:
            yield
        finally:
            del self._faults[ending]

    @contextlib.contextmanager
    def spoiling(self, part: str, fault: Fault) -> Iterator[Callable[[], bool]]:
        """The next piece of a stream on a path with this part has the fault, once; not TOO_LONG. Yields what
        says whether it came."""
        self._once[part] = fault
        yield lambda: part not in self._once
        assert part not in self._once, "nothing came on such a path"

    def stop(self) -> None:
        self._loop.call(self._stop())
        self._loop.stop()

    async def _start(self) -> str:
        connector = aiohttp.TCPConnector(ssl=self._upstream_tls, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._relay)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        return f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        faults = [fault for ending, fault in self._faults.items() if request.raw_path.endswith(ending)]
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS}
        async with self._session.request(
            request.method,
            URL(self._upstream + request.raw_path, encoded=True),
            data=await request.read() or None,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN_HEADERS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            if faults:
                return await self._spoil(request, response, await answer.read(), faults[0])
            await response.prepare(request)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):  # either side has gone
                async for piece in answer.content.iter_any():
                    part = next((part for part in self._once if part in request.raw_path), None)
                    if part is not None:
                        return await self._end(request, response, piece, self._once.pop(part))
                    await response.write(piece)
            return response

    async def _spoil(
        self, request: web.Request, response: web.StreamResponse, body: bytes, fault: Fault
    ) -> web.StreamResponse:
        if fault is Fault.BROKEN:
            response.content_length = len(body)
        if fault is not Fault.LATE:
            await response.prepare(request)
        if fault is Fault.TOO_LONG:
            with contextlib.suppress(ConnectionError):
                await response.write(_PADDING + body[1:])
            return response
        return await self._end(request, response, body, fault)

    async def _end(
        self, request: web.Request, response: web.StreamResponse, body: bytes, fault: Fault
    ) -> web.StreamResponse:
        """With the first half of it, if it comes."""
        if fault is Fault.LATE:
            await asyncio.Event().wait()  # until its client goes
        with contextlib.suppress(ConnectionError):
            await response.write(body[: len(body) // 2])
            while fault is Fault.ENDLESS:
                await response.write(b" " * 65_536)
        if fault is Fault.BROKEN and request.transport is not None:
            request.transport.close()
        return response
