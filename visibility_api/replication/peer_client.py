"""Requests to other replicas: sent only to a server that presents the certificate which this one has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
from yarl import URL

from .recognition import PROOF, certificate_fingerprint


class PeerClient:
    """`certificate` returns the serving certificate, DER, and `proof` what other replicas recognise this one
    by.

    Call `close` at the end.
    """

    def __init__(self, *, certificate: Callable[[], bytes], proof: Callable[[], str]) -> None:
        self._certificate = certificate
        self._proof = proof
        self._expected: tuple[bytes, aiohttp.Fingerprint] | None = None
        self._session: aiohttp.ClientSession | None = None

    def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | AsyncIterator[bytes],
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.client._RequestContextManager:
        """Raises aiohttp.ClientError, OSError, TimeoutError while it is entered and read."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session.request(
            method,
            url,
            data=data,
            headers={"Host": "visibility-api", PROOF.decode(): self._proof(), **(headers or {})},
            ssl=self._fingerprint(),
            allow_redirects=False,
            timeout=timeout,
        )

    async def close(self) -> None:
        """End its connections."""
        if self._session is not None:
            await self._session.close()

    def _fingerprint(self) -> aiohttp.Fingerprint:
        """The same object as long as it is the same certificate: aiohttp reuses connections by it."""
        der = self._certificate()
        if self._expected is None or self._expected[0] != der:
            self._expected = der, certificate_fingerprint(der)
        return self._expected[1]
