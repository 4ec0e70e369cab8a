"""Drives an ASGI application in process: one call in, the whole answer out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

Application = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came back. `is_complete` is False when the application left without ending the body."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The only value of a header, None when it is absent; two are a fault of the test's subject."""
        values = [v for k, v in self.headers if k == name]
        assert len(values) < 2, f"{name} is given {len(values)} times"
        return values[0] if values else None


def http_scope(method: str, target: str, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """A scope as uvicorn makes it for one request line."""
    raw_path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 443),
        "state": {},
    }


async def call(
    app: Application,
    target: str,
    *,
    method: str = "GET",
    headers: Sequence[tuple[str, str]] = (),
    before_send: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
    state: dict[str, Any] | None = None,
) -> Answer:
    """One request. `before_send` may hold up what the application sends, as a slow client does; `state` is
    the connection's."""
    answer = Answer()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if before_send is not None:
            await before_send(message)
        if message["type"] == "http.response.start":
            assert answer.status == 0, "the answer was started twice"
            answer.status = message["status"]
            answer.headers = [(k.decode(), v.decode("latin-1")) for k, v in message["headers"]]
            return
        assert answer.status, "a body came before its headers"
        assert not answer.is_complete, "something came after the end"
        answer.chunks.append(message.get("body", b""))
        answer.is_complete = not message.get("more_body", False)

    await app(http_scope(method, target, headers) | {"state": dict(state or {})}, receive, send)
    return answer
