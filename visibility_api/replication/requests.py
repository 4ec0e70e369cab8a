"""The paths at which other replicas are given the log, a share of the jobs and statuses of replicas, or ask
for a diagnosis.

They are recognised by their proof, not as users."""

from __future__ import annotations

from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from visibility_api.errors.status import BadRequest, RequestEntityTooLarge, Unauthorized
from visibility_api.store.job_log import JobLog

from .follower import Refusal
from .member import PATH as SHARE
from .partitions import decode_report, encode_message
from .push_streams import PATH as PUSHES, ServedStreams
from .questions import DIAGNOSE, REPLICAS, Questions, respond
from .recognition import ReplicaKeys, is_proof
from .shares import Shares
from .streams import PATH, LogStreams, NotOwner, TooManyFollowers

MAX_REPORT_BYTES = 64 * 1024 * 1024


class LogRequests:
    """Raw ASGI: a stream in both directions is nothing that FastAPI could describe."""

    def __init__(
        self,
        streams: LogStreams,
        jobs: JobLog,
        keys: ReplicaKeys,
        questions: Questions,
        pushes: ServedStreams,
        shares: Shares | None = None,
    ) -> None:
        self._streams = streams
        self._log = jobs
        self._keys = keys
        self._questions = questions
        self._pushes = pushes
        self._shares = shares

    @staticmethod
    def takes(method: str, path: str) -> bool:
        return path in (PATH, REPLICAS, DIAGNOSE, SHARE, PUSHES) and method == "POST"

    def recognise(self, scope: Scope) -> None:
        """Raises Unauthorized for whoever is not a replica of this server."""
        if not is_proof(scope["headers"], self._keys):
            raise Unauthorized

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """For a replica that was recognised."""
        if scope["path"] == PUSHES:
            await self._pushes.serve(receive, send)
            return
        if scope["path"] == SHARE:
            await self._share(receive, send)
            return
        if scope["path"] != PATH:
            await self._questions.answer(scope, send)
            return
        since = parse_qs(scope["query_string"].decode("latin-1")).get("since", ["0"])[0]
        try:
            await self._streams.serve(int(since) if since.isdecimal() else 0, receive, send)
        except (NotOwner, TooManyFollowers):
            refusal = Refusal(has_log=self._log.is_complete, revision=self._log.store.revision)
            await respond(send, 409, msgspec.json.encode(refusal))

    async def _share(self, receive: Receive, send: Send) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > MAX_REPORT_BYTES:
                await respond(send, RequestEntityTooLarge.code)
                return
            if not message.get("more_body"):
                break
        try:
            share = None if self._shares is None else await self._shares.heard(decode_report(body))
        except msgspec.MsgspecError:
            await respond(send, BadRequest.code)
            return
        await (respond(send, 409) if share is None else respond(send, 200, encode_message(share)))
