"""The client for kube-apiserver: requests with limits, streams of lines, WebSockets; one connection pool.

kubernetes_asyncio reads the configuration (kubeconfig, in-cluster, exec plugins, token refresh). Its
generated API calls are not used: they build a Python object for every field of every pod, of which a dozen
are needed.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from . import foreign
from .credentials import FILES_INTERVAL_S, Credentials, credentials_of
from .errors import ApiError, ClusterError, Unreachable
from .responses import (
    MAX_LINE_BYTES,
    Oversized,
    describe_error,
    raise_for_status,
    read_body,
    split_lines,
    why_untrusted,
)
from .websocket import OnMessage, receive_all

Query = Sequence[tuple[str, str]]

JSON = "application/json"
USER_AGENT = "trainjob-visibility"
HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"  # RFC 9110, 5.6.7; nobody sends the older forms
READ_BUFFER_BYTES = 2 * 1024 * 1024
CONNECT_TIMEOUT_S = 10.0  # TCP and TLS
RESPONSE_TIMEOUT_S = 30.0  # of a stream: until its first line may come
FOREIGN_LINE_BYTES = 256 * 1024  # of a stream of another cluster's


class KubeClient:
    """Sends requests to one kube-apiserver as one user. Use `connect`; close it when done."""

    def __init__(
        self,
        configuration: Configuration,
        credentials: Credentials | None = None,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        is_foreign: bool = False,
    ) -> None:
        """`credentials`: by default those of the configuration, with all the files that it names.

        `max_line_bytes`: of one line of a stream. `is_foreign`: another cluster's server, which may send
        anything: nothing is decompressed, which may make a thousand bytes of one, and lines are shorter.
        """
        self._max_line_bytes = FOREIGN_LINE_BYTES if is_foreign else max_line_bytes
        self._large_line = asyncio.Semaphore(1)
        self._configuration = configuration
        self._credentials = credentials or Credentials(configuration)
        self._host = str(configuration.host).rstrip("/")
        self._server_hostname: str | None = configuration.tls_server_name
        self.acting_as = ""  # another user, whom this one may impersonate
        self.clock_ahead_s = 0.0  # ours, of kube-apiserver's, at its last answer to a GET; to a second
        self._session = aiohttp.ClientSession(
            # No limit: the callers limit themselves (probe concurrency, watches).
            connector=foreign.ForeignConnector() if is_foreign else aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_refuse_redirects,),
            proxy=configuration.proxy or None,
            # Only then: aiohttp looks for proxies in a thread, at every request.
            trust_env=_is_proxied(configuration),
            read_bufsize=foreign.READ_BUFFER_BYTES if is_foreign else READ_BUFFER_BYTES,
            auto_decompress=not is_foreign,
            headers={"Accept-Encoding": "identity"} if is_foreign else None,
        )

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None, *, files_interval_s: float = FILES_INTERVAL_S, is_foreign: bool = False
    ) -> Self:
        """A client for `kubeconfig`, or for the pod's own service account when it is None.

        `files_interval_s`: between two checks of the files that it names.

        Sends no request yet. Raises ClusterError when the configuration cannot be used.
        """
        if kubeconfig is not None and not kubeconfig.exists():  # noqa: ASYNC240 - before anything runs
            raise ClusterError(f"there is no kubeconfig {kubeconfig}")
        configuration = Configuration()
        try:
            if kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # theirs
                return cls(configuration, Credentials(configuration, interval_s=files_interval_s))
            loader = await load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
            credentials = credentials_of(loader, configuration, interval_s=files_interval_s)
            return cls(configuration, credentials, is_foreign=is_foreign)
        except (ConfigException, OSError) as error:  # ssl.SSLError is an OSError
            why = describe_error(error) if isinstance(error, ssl.SSLError) else str(error)
            place = f"kubeconfig {kubeconfig}" if kubeconfig else "the in-cluster service account"
            hint = "" if kubeconfig else " (outside a cluster, set --kubeconfig)"
            raise ClusterError(f"cannot use {place}: {why}{hint}") from error
        except Exception as error:  # the loader does not catch what odd YAML, base64 and types cause
            # Not its message, which may quote the file, and the file contains keys.
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
        self,
        path: str,
        *,
        query: Query = (),
        timeout_s: float = 30.0,
        max_bytes: int = 64 * 1024 * 1024,
        accept: str = JSON,
    ) -> bytes:
        """The body of a successful response. Raises ApiError or Unreachable."""
        return await self._request("GET", path, query, None, timeout_s, max_bytes, {"Accept": accept})

    async def post(self, path: str, body: bytes, *, timeout_s: float = 10.0) -> bytes:
        """Create: sends JSON, returns the body of a successful response. Raises ApiError or Unreachable."""
        return await self._request("POST", path, (), body, timeout_s, 4 * 1024 * 1024)

    async def patch(
        self, path: str, body: bytes, *, query: Query, headers: Mapping[str, str], timeout_s: float = 10.0
    ) -> bytes:
        """Change: as `post`; the Content-Type in `headers` says which kind of patch it is."""
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
        with _failing(f"{method} {path}", lambda: f"no response within {timeout_s:g}s"):
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    self._host + path,
                    params=query,
                    data=body,
                    headers=await self._headers() | dict(headers or {}),
                    server_hostname=self._server_hostname,
                    ssl=self._credentials.tls,
                ) as response,
            ):
                await raise_for_status(response)
                if method == "GET" and (date := response.headers.get("Date")) is not None:
                    self._compare_clocks(date)
                return await read_body(response, max_bytes)

    def _compare_clocks(self, date: str) -> None:
        with suppress(ValueError):
            theirs = datetime.strptime(date, HTTP_DATE).replace(tzinfo=UTC)
            self.clock_ahead_s = time.time() - theirs.timestamp()

    @asynccontextmanager
    async def lines(
        self, path: str, *, query: Query, silence_s: float, accept: str = JSON
    ) -> AsyncIterator[AsyncIterator[bytes | Oversized]]:
        """The lines of a streamed response as they arrive, until the stream ends.

        A stream without data for `silence_s` is ended. Raises ApiError, Unreachable.
        """
        waited = f"no response within {RESPONSE_TIMEOUT_S:g}s"
        with _failing(f"GET {path}", lambda: waited):
            async with asyncio.timeout(RESPONSE_TIMEOUT_S) as connecting:
                async with self._session.get(
                    self._host + path,
                    params=query,
                    headers=await self._headers() | {"Accept": accept},
                    server_hostname=self._server_hostname,
                    ssl=self._credentials.tls,
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s
                    ),
                ) as response:
                    connecting.reschedule(None)
                    waited = f"no data for {silence_s:g}s"
                    await raise_for_status(response)
                    yield split_lines(
                        response.content, max_bytes=self._max_line_bytes, large=self._large_line
                    )

    async def exchange(
        self,
        path: str,
        *,
        query: Query,
        protocols: Sequence[str],
        max_message_bytes: int,
        on_message: OnMessage,
    ) -> None:
        """Open a WebSocket; pass each message to `on_message` until it returns False or the server closes.

        A ping or pong is passed as b"". Raises ApiError when the upgrade is refused, Unreachable when the
        connection fails or a message is not binary. The caller limits the time.
        """
        try:
            headers = await self._headers()
            tls = self._credentials.tls
            socket = await self._session.ws_connect(
                self._host + path,
                params=query,
                headers=headers,
                protocols=protocols,
                max_msg_size=max_message_bytes,
                autoping=False,
                server_hostname=self._server_hostname,
                ssl=tls,
            )
            await receive_all(socket, tls, protocols, on_message)
        except aiohttp.WSServerHandshakeError as error:
            if error.status != 101:
                raise ApiError(error.status, "", "the WebSocket upgrade was refused") from error
            raise Unreachable(f"GET {path}: {error.message}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"GET {path}: {describe_error(error)}") from error

    async def _headers(self) -> dict[str, str]:
        """Raises Unreachable when there is no token to send: its file or plugin fails for now."""
        self._credentials.refresh()
        headers = {
            "Accept": JSON,
            "Content-Type": JSON,
            "User-Agent": USER_AGENT,
        }
        if self.acting_as:
            headers["Impersonate-User"] = self.acting_as
        if self._configuration.api_key:
            try:
                token = await self._configuration.get_api_key_with_prefix("BearerToken")
            except Exception as error:  # a file that is being replaced, a plugin that fails
                # Not its message: the output of a plugin is a credential.
                raise Unreachable(f"the token cannot be refreshed ({type(error).__name__})") from error
            if token:
                # A `tokenFile` may end in a newline, a header may not.
                headers["Authorization"] = token = token.strip()
                if not (token.isascii() and token.isprintable()):
                    raise Unreachable("the token contains a line break or is not ASCII")
        return headers


@contextmanager
def _failing(request: str, waited: Callable[[], str]) -> Iterator[None]:
    """Raises Unreachable for what a connection raises. `waited`: what took too long, if its time is over."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # as ssl.SSLError and TimeoutError are
        is_late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
        text = f"{request}: {waited() if is_late else describe_error(error)}"
        raise Unreachable(text, untrusted=why_untrusted(error)) from error


async def _refuse_redirects(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A redirect is an answer like any other that is no success: it is not followed."""
    response = await send(request)
    if 300 <= response.status < 400:
        response.close()
        raise ApiError(response.status, "", "redirects are not followed")
    return response


def _is_proxied(configuration: Configuration) -> bool:
    """Whether requests go through a proxy: `proxy-url`, HTTPS_PROXY, NO_PROXY."""
    if configuration.proxy:
        return True
    parts = urlsplit(str(configuration.host))
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
