"""The log of the jobs in NATS JetStream: a stream of what has changed, and a key-value bucket with each job.

Both are made if they are not there. Every write names the sequence that it follows, so that NATS refuses
what an earlier owner still writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from visibility_api.errors.text import harmless

log = structlog.get_logger("visibility.store")

REQUEST_S = 1.0
CONNECT_S = 3.0
SILENCE_S = 3.0  # a consumer says something each second
RELOAD_S = 15.0
_WRONG_SEQUENCE = (10070, 10071, 10164)  # of a stream, of a subject, and that of one not yet stored
_NOT_THERE = (10037, 10059)


class Unusable(Exception):
    """The settings of --store cannot be used; the message says why."""


class Unavailable(Exception):
    """NATS cannot be used now; the message says why."""


class Refused(Exception):
    """Something else was written meanwhile."""


class Stored(NamedTuple):
    """A message of a stream."""

    subject: str
    sequence: int
    body: bytes
    pending: int  # messages that follow it


class Bounds(NamedTuple):
    first: int  # 1 more than `last` if the stream is empty
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the log is, and what opens it. Files are read again when they change."""

    servers: Sequence[str]
    name: str
    replicas: int
    max_bytes: int  # of the stream
    credentials_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def stream(self) -> str:
        return f"{self.name}-log"

    @property
    def subject(self) -> str:
        return f"{self.name}.log"

    @property
    def bucket(self) -> str:
        """Its stream: a key-value bucket is one."""
        return f"KV_{self.name}-jobs"

    def key(self, key: str) -> str:
        """The subject of a key."""
        return f"$KV.{self.name}-jobs.{key}"


class NatsClient:
    """Connects when it is first used, and again when a file has changed. Methods raise Unavailable."""

    def __init__(self, location: Location) -> None:
        self.location = location
        try:
            import nats
            import nats.js.api
        except ImportError as error:
            raise Unusable("--store needs the package nats-py: install trainjob-visibility[nats]") from error
        self._nats: Any = nats
        self._connection: Any = None
        self._jetstream: Any = None
        self._fingerprint = b""
        self._own = "", ""  # a server, and the address by which it is reached
        self._is_ready = False  # the stream and the bucket are there
        self._lock = asyncio.Lock()

    @property
    def max_bytes(self) -> int:
        """Of one message, as the server has it."""
        return self._connection.max_payload if self._connection is not None else 1024 * 1024

    @property
    def own_host(self) -> str:
        """The address by which this process reaches NATS: other replicas reach it by that one."""
        server = self._connection.connected_url if self._connection is not None else None
        if server is not None and server.netloc != self._own[0]:
            with suppress(OSError):
                family, _, _, _, address = socket.getaddrinfo(server.hostname, 9, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, socket.SOCK_DGRAM) as probe:
                    probe.connect(address)  # a datagram socket sends nothing here
                    self._own = server.netloc, str(probe.getsockname()[0])
        return self._own[1]

    async def append(self, body: bytes, after: int) -> int:
        """Write to the stream what follows this sequence; its own one. Raises Refused."""
        header = {"Nats-Expected-Last-Sequence": str(after)}
        return await self._publish(self.location.stream, self.location.subject, body, header)

    async def put(self, key: str, body: bytes, after: int) -> int:
        """Write to the bucket in place of what has this sequence, 0 = nothing. Raises Refused."""
        header = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        return await self._publish(self.location.bucket, self.location.key(key), body, header)

    async def purge(self, key: str, until: int) -> None:
        """Take a key out of the bucket, unless something newer than that sequence is there."""
        jetstream = await self._open()
        await self._called(
            jetstream.purge_stream(self.location.bucket, seq=until + 1, subject=self.location.key(key))
        )

    async def last(self) -> Stored | None:
        """The newest message of the stream."""
        jetstream, subject = await self._open(), self.location.subject
        try:
            found = await self._called(jetstream.get_last_msg(self.location.stream, subject))
        except Refused:
            return None
        return Stored(subject, found.seq, found.data or b"", 0)

    async def bounds(self) -> Bounds:
        """Of the stream."""
        jetstream = await self._open()
        state = (await self._called(jetstream.stream_info(self.location.stream))).state
        return Bounds(state.first_seq if state.messages else state.last_seq + 1, state.last_seq)

    async def keys(self) -> dict[str, int]:
        """Of the bucket, each with its sequence."""
        return {each.subject: each.sequence async for each in self.entries(headers_only=True)}

    async def entries(self, *, headers_only: bool = False) -> AsyncIterator[Stored]:
        """All that the bucket has."""
        bucket = self.location.bucket
        state = (await self._called((await self._open()).stream_info(bucket))).state
        if not state.messages:
            return
        async for found in self.read(bucket, 1, headers_only=headers_only):
            if found is not None:
                yield found
                if not found.pending:
                    return

    async def read(
        self, stream: str, start: int, *, headers_only: bool = False
    ) -> AsyncIterator[Stored | None]:
        """Messages from this sequence on, as they come; None at first, and after each second without."""
        jetstream = await self._open()
        connection, api = self._connection, self._nats.js.api
        inbox, arrived = connection.new_inbox(), asyncio.Queue[Any]()
        subscription = await self._called(connection.subscribe(inbox, cb=arrived.put))
        try:
            config = api.ConsumerConfig(
                deliver_subject=inbox,
                ack_policy=api.AckPolicy.NONE,
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=max(1, start),
                idle_heartbeat=1.0,
                flow_control=True,
                headers_only=headers_only or None,
                mem_storage=True,
                num_replicas=1,
                inactive_threshold=30.0,
                max_deliver=1,
            )
            await self._called(jetstream.add_consumer(stream, config, timeout=REQUEST_S))
            delivered = 0
            yield None
            while True:
                message = await self._next(arrived)
                status = (message.headers or {}).get("Status")
                if status == "100":
                    reply = message.reply or (message.headers or {}).get("Nats-Consumer-Stalled")
                    if reply:
                        await connection.publish(reply)
                    else:
                        yield None
                    continue
                if status:
                    raise Unavailable(f"reading ended: {message.headers.get('Description', status)}")
                meta = message.metadata
                delivered += 1
                if meta.sequence.consumer != delivered:
                    raise Unavailable("a message was lost on its way")
                yield Stored(message.subject, meta.sequence.stream, message.data, meta.num_pending)
        finally:
            with suppress(Exception):
                await subscription.unsubscribe()

    async def follow_files(self) -> None:
        """Connect anew when credentials or certificates have changed, for ever."""
        while True:
            await asyncio.sleep(RELOAD_S)
            if self._connection is not None and self._files() != self._fingerprint:
                log.info("files of the log's store have changed: connecting anew")
                await self.close()

    async def close(self) -> None:
        connection, self._connection, self._is_ready = self._connection, None, False
        if connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(REQUEST_S):
                    await connection.close()

    # ---

    async def _next(self, arrived: asyncio.Queue[Any]) -> Any:  # noqa: ANN401 - of an optional package
        try:
            async with asyncio.timeout(SILENCE_S):
                return await arrived.get()
        except TimeoutError:
            raise Unavailable(f"nothing is heard for {SILENCE_S:g}s") from None

    async def _publish(self, stream: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        jetstream = await self._open()
        headers["Nats-Expected-Stream"] = stream
        answer = await self._called(jetstream.publish(subject, body, timeout=REQUEST_S, headers=headers))
        return int(answer.seq)

    async def _called(self, work: Any) -> Any:  # noqa: ANN401 - of an optional package
        """Raises Unavailable; Refused where something else was written, or is not there.

        In a task of its own: until Python 3.12 `asyncio.wait_for`, which nats-py uses, may lose a
        cancellation."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=2 * REQUEST_S)
            if not task.done():
                raise TimeoutError
            return task.result()
        except self._nats.js.errors.APIError as error:
            if error.err_code in _WRONG_SEQUENCE or error.err_code in _NOT_THERE:
                if error.err_code == 10059:
                    self._is_ready = False
                raise Refused(_describe(error)) from error
            raise Unavailable(_describe(error)) from error
        except self._nats.js.errors.NoStreamResponseError as error:
            self._is_ready = False  # it was removed: make it anew
            raise Unavailable("no stream takes what is written") from error
        except (self._nats.errors.Error, OSError, TimeoutError) as error:
            raise Unavailable(_describe(error)) from error
        finally:
            task.cancel()

    async def _open(self) -> Any:  # noqa: ANN401 - of an optional package
        """The JetStream context, of a connection that stands."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._connect()
                self._jetstream = self._connection.jetstream(timeout=REQUEST_S)
                self._is_ready = False
            if not self._connection.is_connected:
                raise Unavailable("no server of NATS answers")
            if not self._is_ready:
                await self._make_streams()
                self._is_ready = True
            return self._jetstream

    async def _connect(self) -> Any:  # noqa: ANN401 - of an optional package
        async def ignore(*_: object) -> None:
            """What it costs is told where it is noticed."""

        fingerprint, credentials = self._files(), dict[str, Any]()
        connection = _client(self._nats, lambda: "tls" in credentials)
        try:
            credentials |= self._credentials()
            async with asyncio.timeout(CONNECT_S):
                await connection.connect(
                    servers=list(self.location.servers),
                    name="trainjob-visibility",
                    connect_timeout=CONNECT_S / 2,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.5,
                    ping_interval=2,
                    max_outstanding_pings=2,
                    error_cb=ignore,
                    disconnected_cb=ignore,
                    reconnected_cb=ignore,
                    closed_cb=ignore,
                    **credentials,
                )
        except Exception as error:  # of files and libraries of several kinds; jobs are served without it
            with suppress(Exception):
                await connection.close()
            why = connection.last_error if isinstance(error, TimeoutError) else None  # it was tried again
            raise Unavailable(connection.why_refused or _describe(why or error)) from error
        self._fingerprint = fingerprint
        return connection

    def _credentials(self) -> dict[str, Any]:
        place, found = self.location, dict[str, Any]()
        if place.ca_file or place.cert_file or any(each.startswith("tls:") for each in place.servers):
            found["tls"] = context = ssl.create_default_context(cafile=place.ca_file)
            if place.cert_file is not None:
                context.load_cert_chain(place.cert_file, place.key_file)
        if place.credentials_file is None:
            return found
        text = place.credentials_file.read_text().strip()
        if "-----BEGIN NATS USER JWT-----" in text:
            found["user_credentials"] = str(place.credentials_file)
        elif text.startswith("SU") and len(text) == 58:
            found["nkeys_seed_str"] = text
        elif ":" in text:
            found["user"], _, found["password"] = text.partition(":")
        else:
            found["token"] = text
        return found

    def _files(self) -> bytes:
        """A hash of what they say now."""
        place, seen = self.location, hashlib.sha256()
        for file in (place.credentials_file, place.ca_file, place.cert_file, place.key_file):
            with suppress(OSError):
                seen.update(b"" if file is None else file.read_bytes())
            seen.update(b"\0")
        return seen.digest()

    async def _make_streams(self) -> None:
        place, api = self.location, self._nats.js.api
        for name, settings in (
            # No limit of age: without an owner nobody writes, and all that is acknowledged must stay.
            (place.stream, {"subjects": [place.subject]}),
            (
                place.bucket,
                {
                    "subjects": [place.key(">")],
                    "max_msgs_per_subject": 1,
                    "discard": api.DiscardPolicy.NEW,
                    "allow_rollup_hdrs": True,
                    "deny_delete": True,
                    "allow_direct": True,
                },
            ),
        ):
            config = api.StreamConfig(
                name=name,
                description="jobs of trainjob-visibility",
                storage=api.StorageType.FILE,
                compression=api.StoreCompression.S2,
                num_replicas=place.replicas,
                max_bytes=place.max_bytes,
                **settings,
            )
            try:
                await self._called(self._jetstream.stream_info(name))
            except Refused:
                self._is_ready = False
                await self._called(self._jetstream.add_stream(config))
                log.info("stream made in NATS", name=name, replicas=place.replicas)


def _client(nats: Any, wants_tls: Callable[[], bool]) -> Any:  # noqa: ANN401 - of an optional package
    """One that sends nothing to a server without TLS where that is wanted: nats-py asks the server."""

    class Client(nats.NATS):  # type: ignore[misc]
        why_refused = ""

        def _connect_command(self) -> bytes:
            if wants_tls() and not self._server_info.get("tls_required"):
                self.why_refused = "NATS: a server offers no TLS, and was told nothing (docs/nats.md)"
                raise nats.errors.Error(self.why_refused)
            made: bytes = super()._connect_command()
            return made

    return Client()


def _describe(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"NATS: these credentials need the package {error.name} (docs/nats.md)"
    if isinstance(error, TimeoutError):
        return "NATS gives no answer in time"
    description = getattr(error, "description", None)  # the server's
    if type(error).__name__ == "Error":  # nats-py's, of what the server says of the connection
        description = str(error).removeprefix("nats: ")
    return f"NATS: {harmless(str(description)) if description else type(error).__name__}"[:300]
