"""`jobrecords`: jobs that have ended, also those that were deleted since: each as it was written then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from visibility_api.archive.bucket import Unavailable
from visibility_api.archive.index import Line, is_part
from visibility_api.archive.shelf import Filed, Shelf
from visibility_api.auth.access_review import AccessReviewer
from visibility_api.auth.identity import log_of
from visibility_api.errors import status as errors
from visibility_api.errors.text import harmless
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.kube.errors import ClusterError
from visibility_api.models.served import GROUP_VERSION, JOB_RECORDS

from .age import UNKNOWN, age, duration
from .columns import KIND, Column
from .disconnect import unless_gone
from .history import read_moment
from .list_layout import layout_of, write_items
from .list_options import ListOptions, read_include_object, read_list_options
from .message import ResourceRequest, ResourceResponse
from .negotiation import Representation, Target, negotiate_request
from .paging import pack_token, unpack_token
from .rendering import render
from .turns import Turns

MAX_PAGE = 5_000  # records; a list without a limit is cut there as well
# Lines that are matched before other tasks run: to read one with many labels takes 20 us, very many terms as
# much again.
AT_ONCE = 50
ITEMS_A_PART = 64  # of a list: one write
COLUMNS = (
    Column(name="Name", format="name", description="Name of the job, and the beginning of its uid."),
    KIND,
    Column(name="Phase", description="How it ended."),
    Column(name="Progress", description="Share of the run that was done."),
    Column(name="Duration", description="From start to end."),
    Column(name="Goodput", description="Share of productive time, of all in which it was not queued."),
    Column(name="Cause", description="Why it failed."),
    Column(name="Ended", description="Time since it ended."),
    Column(name="Metrics", description="The last values of its first metrics.", priority=1),
)

_encode = msgspec.json.Encoder().encode
_VARY = ((b"vary", b"Accept"),)
_METRICS_IN_A_CELL = 3

T = TypeVar("T")


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Job(msgspec.Struct):
    kind: str = ""


class _Shown(msgspec.Struct, rename="camel"):
    phase: str = ""
    end_time: datetime | None = None
    duration_seconds: int | None = None
    progress_percentage: int | None = None
    goodput_percentage: float | None = None
    metrics: list[dict[str, str]] = msgspec.field(default_factory=list)
    cause: str | None = None


class _Record(msgspec.Struct, rename="camel"):
    """What is read of a line."""

    metadata: _Metadata
    summary: _Shown
    job_ref: _Job = msgspec.field(default_factory=_Job)


class _Whole(msgspec.Struct):
    """What is read of a record."""

    progress: msgspec.Raw = msgspec.Raw(b"")
    history: msgspec.Raw = msgspec.Raw(b"")
    events: msgspec.Raw = msgspec.Raw(b"[]")  # of none but the newer ones


class _Log(msgspec.Struct, rename="camel"):
    """What is read of the end of a log."""

    pod_name: str


_read = msgspec.json.Decoder(_Record).decode
_read_whole = msgspec.json.Decoder(_Whole).decode
_read_log = msgspec.json.Decoder(_Log).decode


class _Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In a continue token: the last record shown."""

    ended: str
    name: str
    uid: str


class _Asked(NamedTuple):
    options: ListOptions
    since: str
    until: str
    after: tuple[str, str, str] | None


class JobRecords:
    """The handlers for records. `now` is the clock of ages, `authorizer` reviews the right to logs."""

    def __init__(self, shelf: Shelf, authorizer: AccessReviewer, *, now: Callable[[], datetime]) -> None:
        self._shelf, self._authorizer = shelf, authorizer
        self._now = now
        self._queues = ClientQueues(
            crowded="too many requests for records wait; try again after the time in Retry-After",
            max_running=8,
            max_running_per_client=2,
            max_waiting=400,
            max_waiting_per_client=100,
            wait_s=10.0,
        )
        self._turns = Turns()  # of lists that are written

    async def list(self, request: ResourceRequest) -> ResourceResponse:
        """Those of one namespace or of all, the latest first. Raises BadRequest, Unavailable, ClientGone."""
        representation = negotiate_request(request, Target.LIST)
        asked = self._read_query(request)
        return await self._answer(request, lambda: self._list(request, representation, asked))

    async def get(self, request: ResourceRequest) -> ResourceResponse:
        """One record, without its history. Raises ObjectNotFound, Unavailable, ClientGone."""
        representation = negotiate_request(request, Target.OBJECT)
        return await self._answer(request, lambda: self._get(request, representation))

    async def history(self, request: ResourceRequest) -> ResourceResponse:
        """The history of one. Raises as `get`."""
        representation = negotiate_request(request, Target.PLAIN)
        return await self._answer(request, lambda: self._history(request, representation))

    async def log_tail(self, request: ResourceRequest) -> ResourceResponse:
        """The end of the log of one, for callers that may get pods/log as well.

        Raises as `get`, NotFound, AccessDenied.
        """
        representation = negotiate_request(request, Target.PLAIN)
        return await self._answer(request, lambda: self._log_tail(request, representation))

    async def delete(self, request: ResourceRequest) -> ResourceResponse:
        """Remove one. Raises as `get`."""
        return await self._answer(request, lambda: self._delete(request))

    async def _answer(
        self, request: ResourceRequest, make: Callable[[], Awaitable[ResourceResponse]]
    ) -> ResourceResponse:
        async def in_turn() -> ResourceResponse:
            async with self._queues.slot(request.client):
                return await make()

        try:
            return await unless_gone(request.receive, in_turn())
        except (Unavailable, ClusterError) as error:
            raise errors.Unavailable(f"the archive cannot be read now: {error}") from error

    async def _list(
        self, request: ResourceRequest, representation: Representation, asked: _Asked
    ) -> ResourceResponse:
        namespace = request.attributes.namespace or None
        limit = min(asked.options.limit or MAX_PAGE, MAX_PAGE)
        found = await self._shelf.newest(namespace, limit + 1, partial(_choose, asked, limit + 1))
        shown, is_cut = found[:limit], len(found) > limit
        meta = {"resourceVersion": "1"} | ({"continue": _token(shown[-1])} if is_cut else {})
        layout = layout_of(self._form(request, representation), representation)
        write, between, parts = layout.items(), layout.separator, list[bytes]()
        with self._turns.sending():
            for start in range(0, len(shown), ITEMS_A_PART):
                some = shown[start : start + ITEMS_A_PART]
                items = await write_items(write, some, layout.bytes_at_once, self._turns.wait)
                parts.append(between.join([b"", *items] if start else items))
        head, end = layout.around(_encode(meta), is_empty=not parts)
        return ResourceResponse(
            content_type=representation.media_type, body=[head, *parts, end], headers=_VARY
        )

    def _form(self, request: ResourceRequest, representation: Representation) -> _Form:
        return _Form(representation, read_include_object(request), self._now())

    async def _get(self, request: ResourceRequest, representation: Representation) -> ResourceResponse:
        filed = await self._find(request)
        if representation.transform == "Table":
            form = self._form(request, representation)
            body = form.head(_encode({"resourceVersion": "1"})) + form.items()(filed[1]) + b"]}"
        elif representation.transform is not None:
            body = _only_metadata(filed[1], representation.version)
        else:
            whole = await self._whole(request, filed)
            parts = filed[1].content[:-1], bytes(whole.progress), bytes(whole.events)
            body = b'%s,"progress":%s,"events":%s}' % parts
        return _response(body, representation)

    async def _history(self, request: ResourceRequest, representation: Representation) -> ResourceResponse:
        whole = await self._whole(request, await self._find(request))
        return _response(bytes(whole.history), representation)

    async def _log_tail(self, request: ResourceRequest, representation: Representation) -> ResourceResponse:
        filed = await self._find(request)
        content = await self._shelf.log(*filed)
        if content is None:
            raise errors.NotFound(
                "No log of this job is kept: the server read none when it ended (docs/archive.md)."
            )
        try:
            pod_name = _read_log(content).pod_name
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unavailable(f"the log of {request.attributes.name} is damaged") from error
        # The chain has checked the right to this subresource; here is the right to the log itself.
        await self._authorizer.authorize(request.identity, log_of(request.attributes.namespace, pod_name))
        metadata = msgspec.json.decode(filed[1].content, type=_MetadataOnly).metadata
        head = b'{"kind":"JobRecordLogTail","apiVersion":"%s","metadata":%s,'
        body = head % (GROUP_VERSION.encode(), bytes(metadata)) + content.lstrip(b"{").rstrip()
        return _response(body, representation)

    async def _delete(self, request: ResourceRequest) -> ResourceResponse:
        filed = await self._find(request)
        if request.parameter("dryRun") is None:
            await self._shelf.remove(*filed)
        details = {"name": request.attributes.name, "group": GROUP_VERSION.partition("/")[0]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        kind = {"kind": JOB_RECORDS.plural, "uid": filed[1].uid}
        return ResourceResponse(body=_encode(status | {"details": details | kind}) + b"\n")

    async def _find(self, request: ResourceRequest) -> Filed:
        namespace, name = request.attributes.namespace, request.attributes.name
        found = await self._shelf.find(namespace, name) if is_part(namespace) else None
        if found is None:
            raise errors.ObjectNotFound(JOB_RECORDS.plural, name)
        return found

    async def _whole(self, request: ResourceRequest, filed: Filed) -> _Whole:
        """The content of a record."""
        content = await self._shelf.record(*filed)
        try:
            if content is not None and (whole := _read_whole(content)).history and whole.progress:
                return whole
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unavailable(f"the record {request.attributes.name} is damaged") from error
        raise errors.ObjectNotFound(JOB_RECORDS.plural, request.attributes.name)

    def _read_query(self, request: ResourceRequest) -> _Asked:
        if not is_part(request.attributes.namespace or "all"):
            raise errors.BadRequest("the namespace is not a name")
        options = read_list_options(request)
        since, until = (self._moment(request, name) for name in ("since", "until"))
        after = None
        if options.continue_token:
            after = msgspec.structs.astuple(unpack_token(options.continue_token, _Place))
        return _Asked(options, since, until, cast(Any, after))

    def _moment(self, request: ResourceRequest, name: Literal["since", "until"]) -> str:
        """The time that a parameter says, as a line has it; "" for none. Raises BadRequest."""
        if not (text := request.parameter(name)):
            return ""
        try:
            moment = read_moment(text)
        except ValueError as error:
            raise errors.BadRequest(f"{name}: give {error}") from error
        if not isinstance(moment, datetime):
            moment = datetime.fromtimestamp(max(0.0, self._now().timestamp() - moment), UTC)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Form:
    """What a list has of each record: its line, its metadata, or a row of a Table."""

    def __init__(self, representation: Representation, include: str, now: datetime) -> None:
        self.key = representation.transform or "record"
        self.items_field = "rows" if self.key == "Table" else "items"
        self._version, self._include, self._now = representation.version, include, now

    def moment(self) -> int:
        return 0  # no list of records is kept

    def head(self, list_meta: bytes) -> bytes:
        kind, version, columns = b"JobRecordList", GROUP_VERSION, b""
        if self.key != "record":
            kind, version = b"PartialObjectMetadataList", f"meta.k8s.io/{self._version}"
        if self.key == "Table":
            kind = b"Table"
            columns = b'"columnDefinitions":%s,' % _encode([column.definition() for column in COLUMNS])
        head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,' % (kind, version.encode(), list_meta)
        return b'%s%s"%s":[' % (head, columns, self.items_field.encode())

    def items(self) -> Callable[[Line], bytes]:
        if self.key == "Table":
            return self._row
        return self._metadata if self.key != "record" else attrgetter("content")

    def _metadata(self, line: Line) -> bytes:
        return _only_metadata(line, self._version)

    def _row(self, line: Line) -> bytes:
        carried = {"Object": line.content, "Metadata": b"", "None": b"null"}[self._include]
        cells = _encode(_cells(_read(line.content), self._now))
        return b'{"cells":%s,"object":%s}' % (cells, carried or self._metadata(line))


async def _choose(asked: _Asked, most: int, lines: Iterable[Line]) -> list[Line]:
    """Of lines, of which those that ended last come first, what was asked for, `most` at most."""
    chosen: list[Line] = []
    at_once = min(AT_ONCE, asked.options.selection.matched_at_once)
    for at, line in enumerate(lines):
        if at % at_once == at_once - 1:
            await asyncio.sleep(0)
        if len(chosen) == most or (asked.since and line.ended < asked.since):
            break  # all further ones ended earlier
        if asked.until and line.ended > asked.until:
            continue
        if asked.after is not None and line[:3] >= asked.after:
            continue
        if _matches(asked.options, line):
            chosen.append(line)
    return chosen


def _matches(options: ListOptions, line: Line) -> bool:
    selection = options.selection
    if selection.is_everything:
        return True
    record = _read(line.content)
    held = {
        "metadata.name": record.metadata.name,
        "metadata.namespace": record.metadata.namespace,
        "status.phase": record.summary.phase,
    }
    return selection.labels.matches(record.metadata.labels) and all(
        (held.get(term.field, "") == term.value) is term.is_equal for term in selection.fields.terms
    )


def _cells(record: _Record, now: datetime) -> list[str | None]:
    summary = record.summary
    metrics = [
        f"{each.get('name', '')}={each.get('value', '')}" for each in summary.metrics[:_METRICS_IN_A_CELL]
    ]
    cells = (
        record.metadata.name,
        record.job_ref.kind,
        summary.phase,
        None if summary.progress_percentage is None else f"{summary.progress_percentage}%",
        None if summary.duration_seconds is None else duration(max(0, summary.duration_seconds)),
        None if summary.goodput_percentage is None else f"{summary.goodput_percentage:.0f}%",
        summary.cause,
        UNKNOWN if summary.end_time is None else age(int((now - summary.end_time).total_seconds())),
        " ".join(metrics) or None,
    )
    return [None if cell is None else harmless(cell) for cell in cells]


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw


def _only_metadata(line: Line, version: str) -> bytes:
    metadata = msgspec.json.decode(line.content, type=_MetadataOnly).metadata
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":%s}' % (
        version.encode(),
        bytes(metadata),
    )


def _token(line: Line) -> str:
    return pack_token(_Place(ended=line.ended, name=line.name, uid=line.uid))


def _response(body: bytes, representation: Representation) -> ResourceResponse:
    return ResourceResponse(
        content_type=representation.media_type,
        body=render(body, representation),
        headers=_VARY,
    )
