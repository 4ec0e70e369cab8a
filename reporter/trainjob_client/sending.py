"""Sending, in this thread: for every flow of `requests.py`. And what async_session.py does alike.

How a request goes out is a subclass's own: `session.py` has httpx, `trainjob_cli` the standard library.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, ContextManager, Dict, Iterator, Optional, Tuple, Type, TypeVar

from .connection import Connection
from .errors import ApiError, ClientError, UnreachableError
from .requests import Answer, Call, Flow, Pause, Received, failure_of
from .watching import Event, Watching

T = TypeVar("T")
SILENCE_S = 90.0  # a server that is alive sends a bookmark each minute


class Sender:
    """Blocks. May be used by several threads once the first request was answered."""

    faults: Tuple[Type[Exception], ...] = ()  # of a request that brings no answer

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def _send(self, call: Call) -> Answer:
        """Raises one of `faults`."""
        raise NotImplementedError

    def _begin(self, call: Call) -> "ContextManager[Tuple[int, Dict[str, str], Iterator[bytes]]]":
        """The code, headers in lower case, and the body as it comes. Raises one of `faults`."""
        raise NotImplementedError

    def close(self) -> None:
        """All connections."""

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
        except self.faults as error:
            return unreachable(error)

    @contextmanager
    def stream(self, call: Call) -> Iterator["tuple[Answer, Iterator[bytes]]"]:
        """The answer, and its lines when it is a 200. Raises UnreachableError when it is cut."""
        try:
            renewals = self.connection.credentials.renewals
            with self._begin(call) as found:
                is_refused = found[0] == 401 and self.connection.credentials.can_renew
                if not is_refused:
                    yield _begun(*found)
            if is_refused:
                self.connection.credentials.renew(renewals)
                with self._begin(call) as found:
                    yield _begun(*found)
        except self.faults as error:
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


def unreachable(error: Exception) -> UnreachableError:
    return UnreachableError(f"The API server does not answer: {str(error) or type(error).__name__}.")


def _begun(code: int, headers: Dict[str, str], chunks: Iterator[bytes]) -> "Tuple[Answer, Iterator[bytes]]":
    if code == 200:
        return Answer(200, b""), lines_of(chunks)
    return Answer(code, b"".join(chunks), headers), iter(())


def lines_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines only: what is cut in the middle never happened. (httpx's own splits at U+2028 as well.)"""
    begun: "list[bytes]" = []
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield b"".join([*begun, whole[0]])
            yield from whole[1:]
            begun = []
        begun.append(rest)
