"""Requests to other replicas: sent only to a server that presents the certificate which this one has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from .recognition import PROOF, ReplicaKeys


class PeerClient:
    """Recognises other replicas by `keys`, and is recognised by them.

    Call `close` at the end.
    """

    def __init__(self, keys: ReplicaKeys) -> None:
        self._keys = keys
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | AsyncIterator[bytes],
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Raises aiohttp.ClientError, OSError, TimeoutError while it is entered and read."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        *others, last = self._keys()
        for key in (*others, last):
            try:
                response = await self._session.request(
                    method,
                    url,
                    data=data,
                    headers={"Host": "visibility-api", PROOF.decode(): key.proof, **(headers or {})},
                    ssl=key.fingerprint,
                    allow_redirects=False,
                    timeout=timeout,
                )
            except aiohttp.ServerFingerprintMismatch:  # nothing was sent
                if key is last:
                    raise
                continue
            async with response:
                yield response
            return

    async def close(self) -> None:
        """End its connections."""
        if self._session is not None:
            await self._session.close()
