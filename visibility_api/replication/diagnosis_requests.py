"""Requests to read the ranks of a job: the replica of this server that owns the jobs does, others ask it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.types import Scope, Send

from visibility_api.errors.status import Unavailable
from visibility_api.jobs.job import JobRef
from visibility_api.workloads.diagnoser import Diagnoser

from .peer_client import PeerClient
from .questions import Ownership, ask, read_question, respond

PATH = "/replication/diagnose"
TIMEOUT_S = 5.0


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
        if (own := self._own()) is not None:
            return own.request(ref)
        return await ask(self._client, self._ownership.owner, PATH, ref, float, timeout_s=TIMEOUT_S)

    async def answer(self, scope: Scope, send: Send) -> None:
        """A request of another replica, which was recognised."""
        if (own := self._own()) is None:
            await respond(send, Unavailable.code)
            return
        ref, _ = read_question(scope)
        await respond(send, 200, msgspec.json.encode(own.request(ref)))
