"""Sending, in this thread or on an event loop: one method each, for every flow of `requests.py`."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from typing import AsyncIterator, Iterator, Optional, TypeVar

import httpx

from .connection import Connection
from .errors import ConfigError, UnreachableError
from .requests import Answer, Call, Flow, Pause, Received

T = TypeVar("T")
# A server that is alive sends a bookmark each minute.
_SILENCE = httpx.Timeout(90.0, connect=10.0)


class Session:
    """Blocks. May be used by several threads once the first request was answered."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http: Optional[httpx.Client] = None

    def run(self, flow: Flow[T]) -> T:
        """What the flow returns, or raises."""
        received: Received = None
        try:
            while True:
                step = flow.send(received)
                received = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    received = self.send(step)
        except StopIteration as end:
            result: T = end.value
            return result

    def send(self, call: Call) -> Received:
        """One request; a second one when the credentials had to be renewed."""
        try:
            answer = self._send(call)
            if answer.code == 401 and self.connection.credentials.can_renew:
                self.connection.credentials.renew()
                answer = self._send(call)
            return answer
        except httpx.RequestError as error:
            return _unreachable(error)

    def _send(self, call: Call) -> Answer:
        http = self._open()
        return _answer(http.send(_request(http, self.connection, call, None)))

    @contextmanager
    def stream(self, call: Call) -> Iterator["tuple[Answer, Iterator[bytes]]"]:
        """The answer, and its lines when it is a 200. Raises UnreachableError when it is cut."""
        try:
            response = self._begin(call)
            if response.status_code == 401 and self.connection.credentials.can_renew:
                response.close()
                self.connection.credentials.renew()
                response = self._begin(call)
            try:
                if response.status_code != 200:
                    response.read()
                    yield _answer(response), iter(())
                else:
                    yield Answer(200, b""), _lines(response.iter_bytes())
            finally:
                response.close()
        except httpx.RequestError as error:
            raise _unreachable(error) from error

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def _open(self) -> httpx.Client:
        if self.connection.prepare() or self._http is None:
            self.close()
            with _proxy_errors():
                self._http = httpx.Client(**self.connection.arguments())
        return self._http

    def _begin(self, call: Call) -> httpx.Response:
        http = self._open()
        return http.send(_request(http, self.connection, call, _SILENCE), stream=True)


class AsyncSession:
    """The same for asyncio."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http: Optional[httpx.AsyncClient] = None

    async def run(self, flow: Flow[T]) -> T:
        received: Received = None
        try:
            while True:
                step = flow.send(received)
                received = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    received = await self.send(step)
        except StopIteration as end:
            result: T = end.value
            return result

    async def send(self, call: Call) -> Received:
        try:
            answer = await self._send(call)
            if answer.code == 401 and self.connection.credentials.can_renew:
                self.connection.credentials.renew()
                answer = await self._send(call)
            return answer
        except httpx.RequestError as error:
            return _unreachable(error)

    async def _send(self, call: Call) -> Answer:
        http = await self._open()
        return _answer(await http.send(_request(http, self.connection, call, None)))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator["tuple[Answer, AsyncIterator[bytes]]"]:
        try:
            response = await self._begin(call)
            if response.status_code == 401 and self.connection.credentials.can_renew:
                await response.aclose()
                self.connection.credentials.renew()
                response = await self._begin(call)
            try:
                if response.status_code != 200:
                    await response.aread()
                    yield _answer(response), _async_lines(_nothing())
                else:
                    yield Answer(200, b""), _async_lines(response.aiter_bytes())
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise _unreachable(error) from error

    async def _begin(self, call: Call) -> httpx.Response:
        http = await self._open()
        return await http.send(_request(http, self.connection, call, _SILENCE), stream=True)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _open(self) -> httpx.AsyncClient:
        is_new = False
        if self.connection.is_due:  # a plugin may take seconds
            is_new = await asyncio.to_thread(self.connection.prepare)
        if is_new or self._http is None:
            await self.close()
            with _proxy_errors():
                self._http = httpx.AsyncClient(**self.connection.arguments())
        return self._http


@contextmanager
def _proxy_errors() -> Iterator[None]:
    """A proxy that httpx cannot use is a fault of the configuration."""
    try:
        yield
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(f"The proxy cannot be used: {error}") from error


def _request(
    http: "httpx.Client | httpx.AsyncClient",
    connection: Connection,
    call: Call,
    timeout: Optional[httpx.Timeout],
) -> httpx.Request:
    return http.build_request(
        "GET",
        call.path.lstrip("/"),  # relative, for a server may be below a path
        params=list(call.parameters) or None,
        headers=connection.headers(call.accept),
        extensions=connection.extensions,
        timeout=timeout if timeout is not None else httpx.USE_CLIENT_DEFAULT,
    )


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content, {k.lower(): v for k, v in response.headers.items()})


def _unreachable(error: httpx.RequestError) -> UnreachableError:
    return UnreachableError(f"The API server does not answer: {str(error) or type(error).__name__}.")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines only: what is cut in the middle never happened. (httpx's own splits at U+2028 as well.)"""
    begun: "list[bytes]" = []
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield b"".join([*begun, whole[0]])
            yield from whole[1:]
            begun = []
        begun.append(rest)


async def _async_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun: "list[bytes]" = []
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield b"".join([*begun, whole[0]])
            for line in whole[1:]:
                yield line
            begun = []
        begun.append(rest)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
