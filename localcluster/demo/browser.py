"""An address for a browser: the dashboard of one namespace, read as one user of the local cluster.

It stands for `kubectl proxy`, which may be absent, and like that one it acts with somebody's credentials. So
nobody else on this machine may use it: each request's path begins with a secret, which is in the address that
the demo prints. And no website may: the Host header must be this server's own, since a name of a website's
may be made to resolve to 127.0.0.1. It only reads.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from localcluster.machinery.client import ApiClient

API = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
SECRET_BYTES = 16
SHUTDOWN_S = 1.0  # then open watches are cut
# A watch has no end. One that the browser leaves is cancelled with its handler.
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=10)
_PASSED_ON = ("Accept", "Accept-Encoding", "If-None-Match")
_OF_ONE_CONNECTION = frozenset(
    ("connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "proxy-authenticate")
)


class _Forwarder:
    """Answers each request with kube-apiserver's own answer to `client`."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.secret = secrets.token_urlsafe(SECRET_BYTES)
        self.hosts: frozenset[str] = frozenset()  # until the port is known nobody is served
        self._client = client
        self._page = f"{API}/namespaces/{namespace}/dashboard"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Host", "") not in self.hosts:
            return web.Response(status=403, text="this server answers under its own address only\n")
        secret, _, rest = request.raw_path[1:].partition("/")
        if not hmac.compare_digest(secret.encode(), self.secret.encode()):
            return web.Response(status=403, text="open the whole address that `make demo` printed\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="this server only reads\n", headers={"Allow": "GET, HEAD"})
        if not rest:
            return web.Response(status=302, headers={"Location": f"/{self.secret}{self._page}"})
        return await self._forward(request, rest)

    async def _forward(self, request: web.Request, path: str) -> web.StreamResponse:
        sent = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        address = URL(f"{self._client.server}/{path}", encoded=True)
        async with self._client.session.request(
            request.method,
            address,
            headers={"Accept-Encoding": "identity", **sent},
            auto_decompress=False,
            allow_redirects=False,
            timeout=_TIMEOUT,
        ) as found:
            kept = [(k, v) for k, v in found.headers.items() if k.lower() not in _OF_ONE_CONNECTION]
            response = web.StreamResponse(status=found.status, headers=CIMultiDict(kept))
            await response.prepare(request)
            if request.method != "HEAD":
                async for chunk in found.content.iter_any():
                    await response.write(chunk)
        await response.write_eof()
        return response


@contextlib.asynccontextmanager
async def serving_browser(client: ApiClient, namespace: str) -> AsyncIterator[str]:
    """The address to open, on loopback; `client` is the user's."""
    forwarder = _Forwarder(client, namespace)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", forwarder.handle)
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        forwarder.hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))
        yield f"http://127.0.0.1:{port}/{forwarder.secret}/"
    finally:
        await runner.cleanup()
