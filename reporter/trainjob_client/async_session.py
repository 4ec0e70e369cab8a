"""Sending, on an event loop: `Session` with `await`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import AsyncIterator, Dict, Optional, TypeVar

import httpx

from .connection import Connection
from .requests import Answer, Call, Flow, Pause, Received
from .sending import unreachable
from .session import answer_of, build_request, proxy_errors

T = TypeVar("T")


class AsyncSession:
    """See Session."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http: Optional[httpx.AsyncClient] = None
        self._uses: Dict[httpx.AsyncClient, int] = {}
        self._opening: Optional[asyncio.Lock] = None  # of the loop that sends first

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
            renewals = self.connection.credentials.renewals
            answer = await self._send(call)
            if answer.code == 401 and self.connection.credentials.can_renew:
                self.connection.credentials.renew(renewals)
                answer = await self._send(call)
            return answer
        except httpx.RequestError as error:
            return unreachable(error)

    async def _send(self, call: Call) -> Answer:
        async with self._use() as http:
            return answer_of(await http.send(build_request(http, self.connection, call)))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator["tuple[Answer, AsyncIterator[bytes]]"]:
        try:
            renewals = self.connection.credentials.renewals
            async with self._begin(call) as response:
                is_refused = response.status_code == 401 and self.connection.credentials.can_renew
                if not is_refused:
                    yield await _lines_of(response)
            if is_refused:
                self.connection.credentials.renew(renewals)
                async with self._begin(call) as response:
                    yield await _lines_of(response)
        except httpx.RequestError as error:
            raise unreachable(error) from error

    @asynccontextmanager
    async def _begin(self, call: Call) -> AsyncIterator[httpx.Response]:
        async with self._use() as http:
            request = build_request(http, self.connection, call, is_stream=True)
            response = await http.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()

    async def close(self) -> None:
        current = [] if self._http is None else [self._http]
        for http in {*current, *self._uses}:
            await http.aclose()

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[httpx.AsyncClient]:
        """The client of today's certificate. One of before is closed when its last request has ended."""
        http = await self._open()
        self._uses[http] = self._uses.get(http, 0) + 1
        try:
            yield http
        finally:
            self._uses[http] -= 1
            if not self._uses[http]:
                del self._uses[http]
                if http is not self._http:
                    await http.aclose()

    async def _open(self) -> httpx.AsyncClient:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            is_new = False
            if self.connection.is_due:  # a plugin may take seconds
                is_new = await asyncio.to_thread(self.connection.prepare)
            if is_new or self._http is None:
                old = self._http
                with proxy_errors():
                    self._http = httpx.AsyncClient(**self.connection.arguments())
                if old is not None and old not in self._uses:
                    await old.aclose()
            return self._http


async def _lines_of(response: httpx.Response) -> "tuple[Answer, AsyncIterator[bytes]]":
    if response.status_code == 200:
        return Answer(200, b""), _async_lines(response.aiter_bytes())
    await response.aread()
    return answer_of(response), _async_lines(_nothing())


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
