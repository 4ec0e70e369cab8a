"""Sending by httpx, in this thread. And what async_session.py does alike."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Dict, Iterator, Optional, Tuple

import httpx

from .connection import CONNECT_S, Connection
from .errors import ConfigError
from .requests import Answer, Call
from .sending import SILENCE_S, Sender

SILENCE = httpx.Timeout(SILENCE_S, connect=CONNECT_S)


class Session(Sender):
    """By httpx, which knows all proxies."""

    faults = (httpx.RequestError,)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._http: Optional[httpx.Client] = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def _open(self) -> httpx.Client:
        if self.connection.prepare() or self._http is None:
            self.close()
            with proxy_errors():
                self._http = httpx.Client(**self.connection.arguments())
        return self._http

    def _send(self, call: Call) -> Answer:
        http = self._open()
        return answer_of(http.send(build_request(http, self.connection, call)))

    @contextmanager
    def _begin(self, call: Call) -> Iterator[Tuple[int, Dict[str, str], Iterator[bytes]]]:
        http = self._open()
        response = http.send(build_request(http, self.connection, call, is_stream=True), stream=True)
        try:
            yield response.status_code, _headers_of(response), response.iter_bytes()
        finally:
            response.close()


@contextmanager
def proxy_errors() -> Iterator[None]:
    """A proxy that httpx cannot use is a fault of the configuration."""
    try:
        yield
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(f"The proxy cannot be used: {error}") from error


def build_request(
    http: "httpx.Client | httpx.AsyncClient",
    connection: Connection,
    call: Call,
    *,
    is_stream: bool = False,
) -> httpx.Request:
    timeout = SILENCE if is_stream else http.timeout
    if call.timeout_s is not None:
        least = call.timeout_s
        phases = timeout.as_dict().items()
        timeout = httpx.Timeout(**{key: least if own is None else min(own, least) for key, own in phases})
    return http.build_request(
        "GET",
        call.path.lstrip("/"),  # relative, for a server may be below a path
        params=list(call.parameters) or None,
        headers=connection.headers(call.accept),
        extensions=connection.extensions,
        timeout=timeout,
    )


def answer_of(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content, _headers_of(response))


def _headers_of(response: httpx.Response) -> Dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
