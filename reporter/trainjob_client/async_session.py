"""Sending, on an event loop: `Session` with `await`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import AsyncIterator, Optional, TypeVar

import httpx

from .connection import Connection
from .requests import Answer, Call, Flow, Pause, Received
from .session import SILENCE, answer_of, build_request, proxy_errors, unreachable

T = TypeVar("T")


class AsyncSession:
    """See Session."""

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
            return unreachable(error)

    async def _send(self, call: Call) -> Answer:
        http = await self._open()
        return answer_of(await http.send(build_request(http, self.connection, call, None)))

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
                    yield answer_of(response), _async_lines(_nothing())
                else:
                    yield Answer(200, b""), _async_lines(response.aiter_bytes())
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise unreachable(error) from error

    async def _begin(self, call: Call) -> httpx.Response:
        http = await self._open()
        return await http.send(build_request(http, self.connection, call, SILENCE), stream=True)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _open(self) -> httpx.AsyncClient:
        is_new = False
        if self.connection.is_due:  # a plugin may take seconds
            is_new = await asyncio.to_thread(self.connection.prepare)
        if is_new or self._http is None:
            await self.close()
            with proxy_errors():
                self._http = httpx.AsyncClient(**self.connection.arguments())
        return self._http


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
