"""Connections through an HTTP proxy, where the kubeconfig or the environment names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio.client import Configuration
from yarl import URL

from .errors import ApiError
from .exec.websocket import OnMessage
from .tls import ResumingContext


def is_proxied(configuration: Configuration) -> bool:
    """Whether requests to the configured server go through a proxy: `proxy-url`, HTTPS_PROXY, NO_PROXY."""
    if configuration.proxy:
        return True
    parts = urlsplit(str(configuration.host))
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


class ProxiedDialer:
    """As exec.websocket.Dialer, with aiohttp, which supports proxies (decision 0010 has the cost)."""

    def __init__(self, base: str, session: aiohttp.ClientSession, *, server_hostname: str | None) -> None:
        self._base = base
        self._session = session
        self._server_hostname = server_hostname

    async def exchange(
        self,
        target: str,
        *,
        headers: Mapping[str, str],
        tls: ResumingContext,
        protocols: Sequence[str],
        max_message_bytes: int,
        on_message: OnMessage,
    ) -> None:
        """See Dialer.exchange; raises aiohttp.ClientError, too."""
        try:
            socket = await self._session.ws_connect(
                URL(self._base + target, encoded=True),
                headers=headers,
                protocols=protocols,
                max_msg_size=max_message_bytes,
                compress=0,
                server_hostname=self._server_hostname,
                ssl=tls,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "", "the WebSocket upgrade was refused") from error
        try:
            async for message in socket:
                if not on_message(message.data if message.type is aiohttp.WSMsgType.BINARY else b""):
                    return
        finally:
            # Not `socket.close`, which reads until the server's close frame: a server that floods never sends
            # one. There is no public way to close the connection at once.
            socket._response.close()
