"""Reads the bodies of pushes: so many at one time, each within limits of bytes and of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from visibility_api.errors.status import Invalid, RequestEntityTooLarge, TooManyRequests
from visibility_api.flowcontrol.deadline import within

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY_BYTES = 64 * 1024
JOB_SHARE = 10  # the pods of one job, however many, may hold 1/10 of the places
NAMESPACE_SHARE = 4  # those of one namespace 1/4


class ClientGone(Exception):
    """The client disconnected before its push was complete."""


def check_length(headers: Headers) -> int:
    """The Content-Length; without one as much as a body may have, since it comes in pieces.

    Raises RequestEntityTooLarge for one above the limit, before the body is read.
    """
    for name, value in headers:
        if name == b"content-length":
            if len(value) > 12 or int(value) > MAX_BODY_BYTES:
                raise RequestEntityTooLarge(f"the body exceeds {MAX_BODY_BYTES} bytes")
            return int(value)
    return MAX_BODY_BYTES


class NoPlace(TooManyRequests):
    """Too many bodies are being read."""


class Bodies:
    """Places for bodies that are being read, or wait to be parsed or passed on."""

    def __init__(self, *, places: int = 1000, timeout_s: float = 10.0) -> None:
        """`timeout_s`: for one body, as Kubeflow Trainer's read timeout."""
        self._places = places
        self._timeout_s = timeout_s
        self._held: dict[tuple[str, str], int] = {}  # by namespace and job, by namespace, and all

    @contextmanager
    def place(self, namespace: str, job: str) -> Iterator[None]:
        """Raises NoPlace when there is none for this job, this namespace or at all."""
        held, shares = (
            self._held,
            (((namespace, job), JOB_SHARE), ((namespace, ""), NAMESPACE_SHARE), (("", ""), 1)),
        )
        for key, share in shares:
            if held.get(key, 0) * share >= self._places:
                raise NoPlace("too many pushes are under way; try again later")
        for key, _ in shares:
            held[key] = held.get(key, 0) + 1
        try:
            yield
        finally:
            for key, _ in shares:
                held[key] -= 1
                if not held[key]:
                    del held[key]

    async def read(self, receive: Receive) -> bytes:
        """The whole body. Raises ClientGone; Invalid when it is too long or does not come."""
        try:
            return await within(self._timeout_s, _read(receive))
        except TimeoutError:
            raise Invalid(f"the body was not complete within {self._timeout_s:g} s") from None


async def _read(receive: Receive) -> bytes:
    """Raises Invalid for one that is too long: 422 as Kubeflow Trainer, not 413."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")  # nearly always: the body came with the headers
        if len(body) > MAX_BODY_BYTES:
            raise Invalid(f"the body exceeds {MAX_BODY_BYTES} bytes")
        return body
    chunks, size = [], 0
    while message["type"] == "http.request":
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY_BYTES:
            raise Invalid(f"the body exceeds {MAX_BODY_BYTES} bytes")
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()
    raise ClientGone
