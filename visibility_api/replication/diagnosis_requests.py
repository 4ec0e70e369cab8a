"""Requests to read the ranks of a job: the replica of this server that owns the jobs does, others ask it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs

import aiohttp
import msgspec
from starlette.types import Scope, Send
from yarl import URL

from visibility_api.errors.status import Unavailable
from visibility_api.jobs.job import JobRef
from visibility_api.kube.responses import read_start
from visibility_api.workloads.diagnoser import Diagnoser

from .peer_client import PeerClient
from .replica_reads import Ownership

PATH = "/replication/diagnose"
TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64
_FIELDS = ("resource", "namespace", "name", "uid")
_NO_OWNER = "no replica of this server owns the jobs now; try again later"
_NO_ANSWER = "the replica of this server that owns the jobs gave no answer; try again"


class DiagnosisRequests:
    """`own` returns this replica's, while it owns the jobs. `client` None: there are no others."""

    def __init__(
        self, ownership: Ownership, own: Callable[[], Diagnoser | None], client: PeerClient | None
    ) -> None:
        self._ownership = ownership
        self._own = own
        self._client = client

    async def request(self, ref: JobRef) -> float:
        """As `Diagnoser.request`. Raises Unavailable."""
        own, owner = self._own(), self._ownership.owner
        if own is not None:
            return own.request(ref)
        if owner is None or self._client is None:
            raise Unavailable(_NO_OWNER)
        query = {name: getattr(ref, name) for name in _FIELDS}
        url = URL.build(scheme="https", host=owner.host, port=owner.port, path=PATH, query=query)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with self._client.request("POST", url, data=b"", timeout=timeout) as response:
                answer = await read_start(response, MAX_ANSWER_BYTES)
                if response.status != 200:
                    raise Unavailable(_NO_ANSWER)
            return msgspec.json.decode(answer, type=float)
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
            raise Unavailable(_NO_ANSWER) from None

    async def answer(self, scope: Scope, send: Send) -> None:
        """A request of another replica, which was recognised."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        own, status, body = self._own(), Unavailable.code, b""
        if own is not None:
            wait_s = own.request(JobRef(**{name: query.get(name, [""])[0] for name in _FIELDS}))
            status, body = 200, msgspec.json.encode(wait_s)
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
