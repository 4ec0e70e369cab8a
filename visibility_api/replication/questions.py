"""Questions about one job, which the replica of this server that owns the jobs answers to the others."""

from __future__ import annotations

from typing import Protocol, TypeVar
from urllib.parse import parse_qs

import aiohttp
import msgspec
from starlette.types import Scope, Send
from yarl import URL

from visibility_api.errors.status import TooManyRequests, Unavailable
from visibility_api.jobs.job import JobRef
from visibility_api.kube.responses import read_start

from .addresses import Address
from .peer_client import PeerClient

MAX_ANSWER_BYTES = 8 * 1024 * 1024
_NO_ANSWER = "the replica of this server that owns the jobs gave no answer; try again"
_FIELDS = ("resource", "namespace", "name", "uid")

T = TypeVar("T")


class Ownership(Protocol):
    """Who owns the jobs now."""

    @property
    def owner(self) -> Address | None: ...


async def ask(
    client: PeerClient | None,
    owner: Address | None,
    path: str,
    ref: JobRef,
    answer_type: type[T],
    *,
    asker: str = "",
    timeout_s: float,
    crowded: str = "",
) -> T:
    """What the owner answers; `asker` is who wants to know it. Raises TooManyRequests with the message
    `crowded`, Unavailable."""
    if owner is None or client is None:
        raise Unavailable("no replica of this server owns the jobs now; try again later")
    query = {name: getattr(ref, name) for name in _FIELDS} | {"client": asker}
    url = URL.build(scheme="https", host=owner.host, port=owner.port, path=path, query=query)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with client.request("POST", url, data=b"", timeout=timeout) as response:
            answer = await read_start(response, MAX_ANSWER_BYTES + 1)
            if response.status == TooManyRequests.code:
                raise TooManyRequests(crowded)
            if response.status != 200 or len(answer) > MAX_ANSWER_BYTES:
                raise Unavailable(_NO_ANSWER)
        return msgspec.json.decode(answer, type=answer_type)
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
        raise Unavailable(_NO_ANSWER) from None


def read_question(scope: Scope) -> tuple[JobRef, str]:
    """The job, and who wants to know."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    given = {name: query.get(name, [""])[0] for name in _FIELDS}
    return JobRef(**given), query.get("client", [""])[0]


async def respond(send: Send, status: int, body: bytes = b"") -> None:
    """To another replica."""
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
