"""One connection pool to kube-apiserver: requests with bounds, line streams, WebSockets.

Configuration (kubeconfig, in-cluster, exec plugins, token refresh) is kubernetes_asyncio's; its generated
API calls are not used: they build a Python object for every field of every pod, where we need a dozen.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import aiohttp
import msgspec
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from .credentials import Credentials, credentials_of
from .errors import ApiError, ClusterError, TooLarge, Unreachable
from .proxy import ProxiedDialer, is_proxied
from .websocket import Dialer, Take

Query = Sequence[tuple[str, str]]

USER_AGENT = "trainjob-visibility"
MAX_ERROR_BYTES = 64 * 1024
MAX_MESSAGE_CHARACTERS = 500
MAX_LINE_BYTES = 8 * 1024 * 1024  # one watch event: etcd holds at most 1.5 MiB, JSON is larger
READ_BUFFER_BYTES = 2 * 1024 * 1024
CONNECT_TIMEOUT_S = 10.0


class _StatusDetails(msgspec.Struct):
    retryAfterSeconds: float = 0


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


class KubeClient:
    """Speaks to one kube-apiserver as one user. Use `connect`; close it when done."""

    def __init__(self, configuration: Configuration, credentials: Credentials | None = None) -> None:
        """`credentials`: those of the configuration, by all the files that it names when left out."""
        self._configuration = configuration
        self._credentials = credentials or Credentials(configuration)
        self._host = str(configuration.host).rstrip("/")
        self._server_hostname: str | None = configuration.tls_server_name
        through_proxy = is_proxied(configuration)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # our bounds: probe concurrency, watches
            proxy=configuration.proxy or None,
            trust_env=through_proxy,  # only then: it costs aiohttp a thread at every request
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._dialer = (
            ProxiedDialer(self._host, self._session, server_hostname=self._server_hostname)
            if through_proxy
            else Dialer(self._host, server_hostname=self._server_hostname)
        )

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> Self:
        """A client by `kubeconfig`, or by the pod's own service account when it is None.

        Makes no request yet. Raises ClusterError when the configuration cannot be used.
        """
        configuration = Configuration()
        try:
            if kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # theirs
                return cls(configuration)
            loader = await load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
            return cls(configuration, credentials_of(loader, configuration))
        except (ConfigException, OSError) as error:  # ssl.SSLError is an OSError
            why = _describe(error) if isinstance(error, ssl.SSLError) else str(error)
            place = f"kubeconfig {kubeconfig}" if kubeconfig else "the in-cluster service account"
            hint = "" if kubeconfig else " (outside a cluster give --kubeconfig)"
            raise ClusterError(f"cannot use {place}: {why}{hint}") from error
        except Exception as error:  # the loader lets through whatever YAML, base64 and odd types end in
            # Not its message: that may quote the file, and the file holds keys.
            raise ClusterError(f"kubeconfig {kubeconfig} is malformed ({type(error).__name__})") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._credentials.close()
        await self._session.close()

    async def get(
        self, path: str, *, query: Query = (), timeout_s: float = 30.0, max_bytes: int = 64 * 1024 * 1024
    ) -> bytes:
        """The body of a 2xx answer. Raises ApiError or Unreachable."""
        return await self._request("GET", path, query, None, timeout_s, max_bytes)

    async def post(self, path: str, body: bytes, *, timeout_s: float = 10.0) -> bytes:
        """Create: the body of a 2xx answer to a JSON body. Raises ApiError or Unreachable."""
        return await self._request("POST", path, (), body, timeout_s, 4 * 1024 * 1024)

    async def patch(
        self, path: str, body: bytes, *, query: Query, headers: Mapping[str, str], timeout_s: float = 10.0
    ) -> bytes:
        """Change: the body of a 2xx answer; `headers` say how. Raises ApiError, Unreachable."""
        return await self._request("PATCH", path, query, body, timeout_s, 4 * 1024 * 1024, headers)

    async def _request(
        self,
        method: str,
        path: str,
        query: Query,
        body: bytes | None,
        timeout_s: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    self._host + path,
                    params=query,
                    data=body,
                    headers=await self._headers() | dict(headers or {}),
                    allow_redirects=False,
                    server_hostname=self._server_hostname,
                    ssl=self._credentials.tls,
                ) as response,
            ):
                await _raise_for_status(response)
                return await _read(response, max_bytes)
        except TimeoutError as error:
            raise Unreachable(f"{method} {path}: no answer within {timeout_s:g}s") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise Unreachable(f"{method} {path}: {_describe(error)}") from error

    @asynccontextmanager
    async def lines(
        self, path: str, *, query: Query, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a streamed answer as they come; ends with the stream.

        A stream that says nothing for `silence_s` is dead (Unreachable). Raises ApiError, Unreachable.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S + 20) as connecting:
                async with self._session.get(
                    self._host + path,
                    params=query,
                    headers=await self._headers(),
                    allow_redirects=False,
                    server_hostname=self._server_hostname,
                    ssl=self._credentials.tls,
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=silence_s),
                ) as response:
                    connecting.reschedule(None)
                    await _raise_for_status(response)
                    yield _split_lines(response.content)
        except TimeoutError as error:
            raise Unreachable(f"GET {path}: the stream was silent for {silence_s:g}s") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise Unreachable(f"GET {path}: {_describe(error)}") from error

    async def exchange(
        self,
        path: str,
        *,
        query: Query,
        protocols: Sequence[str],
        max_message_bytes: int,
        take: Take,
    ) -> None:
        """Open a WebSocket and give each message to `take`, until it returns False or the server ends it.

        What says nothing (a ping, say) is given as b"". Then hangs up at once. Raises ApiError when the
        upgrade is refused, Unreachable when the connection breaks. Has no time limit of its own.
        """
        try:
            await self._dialer.exchange(
                f"{quote(path)}?{_encode(query)}",
                headers=await self._headers(),
                tls=self._credentials.tls,
                protocols=protocols,
                max_message_bytes=max_message_bytes,
                take=take,
            )
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise Unreachable(f"GET {path}: {_describe(error)}") from error

    async def _headers(self) -> dict[str, str]:
        """Raises Unreachable when there is no token to ask with: its file or plugin fails for now."""
        self._credentials.look()
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
        }
        if self._configuration.api_key:
            try:
                token = await self._configuration.get_api_key_with_prefix("BearerToken")
            except Exception as error:  # a file caught in rotation, a plugin that crashes or prints garbage
                # Not its message: a plugin's output is a credential.
                raise Unreachable(f"the token cannot be refreshed ({type(error).__name__})") from error
            if token:
                # `tokenFile`s end in a newline at times, and no header may.
                headers["Authorization"] = token.strip()
        return headers


def _encode(query: Query) -> str:
    """As `urlencode` for names that need no quoting, at a fraction of its cost: most values come back."""
    return "&".join(f"{name}={_quote(value)}" for name, value in query)


@lru_cache(maxsize=1024)
def _quote(value: str) -> str:
    return quote(value, safe="")


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    body = await response.content.read(MAX_ERROR_BYTES)
    status = _Status()
    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a proxy's HTML or plain text: the code must do
        status = msgspec.json.decode(body, type=_Status)
    retry_after_s = status.details.retryAfterSeconds if status.details else 0.0
    with suppress(ValueError):  # an HTTP date: rare, and a back-off of our own follows anyway
        retry_after_s = max(retry_after_s, float(response.headers.get("Retry-After", 0)))
    raise ApiError(
        response.status,
        status.reason,
        status.message[:MAX_MESSAGE_CHARACTERS],
        retry_after_s=retry_after_s or None,
    )


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            raise TooLarge(f"GET {response.url.path}: the answer exceeds {max_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _split_lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Not `readline`: that fails on lines longer than the read buffer."""
    rest: list[bytes] = []
    size = 0
    async for chunk in stream.iter_any():
        head, *tail = chunk.split(b"\n")
        rest.append(head)
        size += len(head)
        for piece in tail:
            line = b"".join(rest)
            rest, size = [piece], len(piece)
            if line:
                yield line
        if size > MAX_LINE_BYTES:
            raise Unreachable(f"a watch event exceeds {MAX_LINE_BYTES} bytes")
    # what is left after the last newline was cut off by the end of the stream


def _describe(error: BaseException) -> str:
    """Class and message, without bodies or headers (aiohttp's messages carry neither)."""
    text = str(error)
    if isinstance(error, aiohttp.ClientResponseError):  # that names the URL: a proxy's, with its password
        text = f"{error.status} {error.message}"
    text = text[:MAX_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
