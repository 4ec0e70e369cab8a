"""Sending, in this thread: for every flow of `requests.py`. And what async_session.py does alike."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, TypeVar

import httpx

from .connection import Connection
from .errors import ApiError, ClientError, ConfigError, UnreachableError
from .requests import Answer, Call, Flow, Pause, Received, failure_of
from .watching import Event, Watching

T = TypeVar("T")
# A server that is alive sends a bookmark each minute.
SILENCE = httpx.Timeout(90.0, connect=10.0)


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
            renewals = self.connection.credentials.renewals
            answer = self._send(call)
            if answer.code == 401 and self.connection.credentials.can_renew:
                self.connection.credentials.renew(renewals)
                answer = self._send(call)
            return answer
        except httpx.RequestError as error:
            return unreachable(error)

    def _send(self, call: Call) -> Answer:
        http = self._open()
        return answer_of(http.send(build_request(http, self.connection, call)))

    @contextmanager
    def stream(self, call: Call) -> Iterator["tuple[Answer, Iterator[bytes]]"]:
        """The answer, and its lines when it is a 200. Raises UnreachableError when it is cut."""
        try:
            renewals = self.connection.credentials.renewals
            response = self._begin(call)
            if response.status_code == 401 and self.connection.credentials.can_renew:
                response.close()
                self.connection.credentials.renew(renewals)
                response = self._begin(call)
            try:
                if response.status_code != 200:
                    response.read()
                    yield answer_of(response), iter(())
                else:
                    yield Answer(200, b""), _lines(response.iter_bytes())
            finally:
                response.close()
        except httpx.RequestError as error:
            raise unreachable(error) from error

    def watch(
        self, watching: Watching, on_state: Callable[[Optional[ClientError]], None] = lambda _: None
    ) -> Iterator[Event]:
        """The events, over as many connections as it takes. Raises what another try does not change.

        `on_state` is told why it is about to try again, and None once the server has answered.
        """
        while True:
            pause = Pause(0.0)
            call = watching.next_call()
            try:
                if watching.is_listing:
                    answer = self.send(call)
                    if isinstance(answer, Answer) and answer.code == 200:
                        on_state(None)
                        yield from watching.take_list(answer)
                    else:
                        pause = watching.end(answer)
                        on_state(failure_of(answer))
                else:
                    with self.stream(call) as (answer, lines):
                        if answer.code == 200:
                            on_state(None)
                        for line in lines:
                            yield from watching.take_line(line)
                    pause = watching.end(answer)
            except (UnreachableError, ApiError) as error:
                pause = watching.refuse(error)
                on_state(error)
            time.sleep(pause.seconds)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def _open(self) -> httpx.Client:
        if self.connection.prepare() or self._http is None:
            self.close()
            with proxy_errors():
                self._http = httpx.Client(**self.connection.arguments())
        return self._http

    def _begin(self, call: Call) -> httpx.Response:
        http = self._open()
        return http.send(build_request(http, self.connection, call, is_stream=True), stream=True)


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
    return Answer(response.status_code, response.content, {k.lower(): v for k, v in response.headers.items()})


def unreachable(error: httpx.RequestError) -> UnreachableError:
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
