"""The parsers, each as a function of bytes that fails when the parser does what it must not.

Each may raise only what its caller handles, and must not repeat in an error what it was given.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.fuzz.authority import POOL
from tests.fuzz.kept_targets import history_query, recent, saved_history, saved_state
from visibility_api.app.request_info import parse_query, read_request
from visibility_api.auth.certificates import Peer, last_text
from visibility_api.auth.client_certificate import ClientCertificates, _read_identity
from visibility_api.auth.errors import CredentialRejected, TrustUnusable
from visibility_api.auth.front_proxy import FrontProxy, ProxyHeaders
from visibility_api.auth.token_review import header_token
from visibility_api.errors.status import RequestError, encode_status
from visibility_api.errors.text import harmless
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob
from visibility_api.kube.decoding import UNDECODABLE, truncate_depth
from visibility_api.kubeapi.list_options import (
    read_get_options,
    read_include_object,
    read_list_options,
    read_watch_options,
)
from visibility_api.kubeapi.message import ResourceRequest
from visibility_api.kubeapi.negotiation import negotiate_error
from visibility_api.kubeapi.selectors.parsing import parse_field_selector, parse_label_selector
from visibility_api.probing.http_exchange import CutShort, NotHTTP, get
from visibility_api.pushing.payload import read_payload
from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.fields import (
    EARLIEST,
    LATEST,
    MAX_INTEGER,
    MAX_MESSAGE_CHARACTERS,
    MAX_METRIC_CHARACTERS,
    MAX_METRICS,
    MAX_POINTS,
)
from visibility_api.reports.log_tail import TailReader
from visibility_api.reports.report import parse_report
from visibility_api.workloads.annotations import KEYS, MONITORING, OPT_IN, PREFIX, read_annotations
from visibility_api.workloads.objects import BatchJob, Pod

_WORD = re.compile(rb"[0-9A-Za-z_./+=-]{16,}")  # as long as a secret is


def document(data: bytes) -> None:
    """A progress file, an answer of a port, a termination message."""
    for is_path_trusted in (True, False):
        _check(parse_report(data, is_path_trusted=is_path_trusted), data)


def log_lines(data: bytes) -> None:
    """The end of a container's log, read twice."""
    reader = TailReader()
    half = len(data) // 2
    _check(reader.read(data[:half], is_whole=True), data)
    _check(reader.read(data, is_whole=half % 2 == 0), data)


def push_body(data: bytes) -> None:
    try:
        payload = read_payload(data)
    except RequestError as error:
        encode_status(error)
        _check_untold(error.message, data)
    else:
        msgspec.json.decode(payload.echo)
        if payload.report is not None:
            _check(payload.report, data)


def request_line(data: bytes) -> None:
    """Method, path and query, separated by spaces, as the server hands them on."""
    method, _, target = data.partition(b" ")
    path, _, query = target.partition(b"?")
    try:
        info = read_request(method.decode("latin-1"), path.decode(errors="surrogateescape"), query)
        info.check_timeout()
    except RequestError as error:
        encode_status(error)


def list_options(data: bytes) -> None:
    """A query: selectors, versions, limits, continue tokens."""
    try:
        query = parse_query(data)
    except RequestError as error:
        encode_status(error)
        return
    request: Any = ResourceRequest(query=query, headers=(), attributes=_NONE, receive=_NONE)
    for read in (read_list_options, read_watch_options, read_get_options, read_include_object):
        try:
            read(request)
        except RequestError as error:
            encode_status(error)


def selectors(data: bytes) -> None:
    text = data.decode(errors="replace")  # as `parse_query` does
    for parse in (parse_label_selector, parse_field_selector):
        try:
            parse(text)
        except RequestError as error:
            encode_status(error)


def headers(data: bytes) -> None:
    """Lines of `name: value`: a token, the front proxy's names, what is accepted."""
    given = tuple(
        (name.strip().lower(), value.strip())
        for name, _, value in (line.partition(b":") for line in data.split(b"\n"))
    )
    with suppress(CredentialRejected):
        header_token(given)
    with suppress(CredentialRejected):
        _PROXY._decode(given)
    accept = next((value.decode("latin-1") for name, value in given if name == b"accept"), None)
    negotiate_error(accept, pretty=None, user_agent=None)


def certificate(data: bytes) -> None:
    """A client's certificate, DER, and the same bytes as a CA."""
    verified = POOL.verify(Peer(chain=(data,)))
    assert (verified.certificate is None) == bool(verified.fault)
    with suppress(CredentialRejected):
        _CLIENTS.identify(Peer(chain=(data, data)))
    try:
        parsed = x509.load_der_x509_certificate(data)
        user = last_text(parsed, NameOID.COMMON_NAME)
    except Exception:
        pass  # the pool refuses these
    else:
        with suppress(CredentialRejected):
            _read_identity(parsed, user)
    with suppress(TrustUnusable):
        type(POOL)(data.decode("latin-1"), name="fuzzed")


def http_answer(data: bytes) -> None:
    """What the port of a pod answers."""
    with suppress(CutShort, NotHTTP):
        _LOOP.run_until_complete(_exchange(data))


def annotations(data: bytes) -> None:
    text = data.decode(errors="replace")
    names = (*(PREFIX + key for key in KEYS), OPT_IN, MONITORING + "port")
    given = dict(zip(names, text.split("\n"), strict=False))
    found = read_annotations(given | {PREFIX + text[:20]: text})
    assert found.path is None or (found.path.startswith("/") and harmless(found.path) == found.path)
    assert found.hints.interval_s is None or 1.0 <= found.hints.interval_s <= 3600.0


def objects(data: bytes) -> None:
    """TrainJobs, JobSets, Jobs and pods; kube-apiserver has checked that they are JSON."""
    for kind in (TrainJob, JobSet, BatchJob, Pod):
        with suppress(*UNDECODABLE):
            msgspec.json.decode(data, type=kind)
    with suppress(UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        msgspec.json.decode(data)
        msgspec.json.decode(_LOOP.run_until_complete(truncate_depth(data, max_depth=3)))


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        document, log_lines, push_body, request_line, list_options, selectors, headers, certificate,
        http_answer, annotations, objects,
        history_query, saved_state, saved_history, recent,
    )
}  # fmt: skip

_NONE: Any = None
_LOOP = asyncio.new_event_loop()
_CLIENTS = ClientCertificates(POOL)
_PROXY = FrontProxy(
    POOL,
    ProxyHeaders(
        user=(b"x-remote-user",),
        uid=(b"x-remote-uid",),
        group=(b"x-remote-group",),
        extra_prefixes=(b"x-remote-extra-",),
    ),
    (),
)


class _Writer:
    def write(self, _data: bytes) -> None:
        pass


async def _exchange(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    writer: Any = _Writer()
    found = await get(reader, writer, host="10.0.0.7:1", path="/metrics", max_body_bytes=1000)
    assert len(found.body) <= 1000
    assert found.status != 200 or not found.is_too_large or len(found.body) == 1000


def _check(outcome: Progress | Refused, data: bytes) -> None:
    """A report is within its bounds and can be sent; a refusal repeats nothing."""
    if isinstance(outcome, Refused):
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", outcome.reason)
        _check_untold(outcome.message, data)
        return
    msgspec.json.encode(outcome)
    assert len(outcome.metrics) <= MAX_METRICS
    for name, value in outcome.metrics:
        assert 0 < len(name) <= MAX_METRIC_CHARACTERS
        assert len(value) <= MAX_METRIC_CHARACTERS
    assert len(outcome.message or "") <= MAX_MESSAGE_CHARACTERS
    for number in (outcome.step, outcome.total_steps, outcome.remaining_s, outcome.epoch):
        assert number is None or 0 <= number <= MAX_INTEGER
    assert outcome.progress_percentage is None or 0 <= outcome.progress_percentage <= 100
    assert len(outcome.points) <= MAX_POINTS
    for point in outcome.points:
        assert EARLIEST <= point.timestamp <= LATEST
        assert point.step is None or 0 <= point.step <= MAX_INTEGER
        assert point.epoch is None or 0 <= point.epoch <= MAX_INTEGER
        assert len(point.metrics) <= MAX_METRICS
        assert all(
            0 < len(name) <= MAX_METRIC_CHARACTERS and 0 < len(value) <= MAX_METRIC_CHARACTERS
            for name, value in point.metrics
        )


def _check_untold(message: str, data: bytes) -> None:
    told = message.encode(errors="replace")
    for word in _WORD.findall(data):
        assert word not in told or any(word in ours for ours in _OUR_WORDS), word


# That our own messages contain, longer than 16 characters.
_OUR_WORDS = frozenset(
    {b"trainerStatus.metrics", b"trainerStatus.metrics.name", b"trainerStatus.metrics.value",
     b"estimatedRemainingSeconds", b"progressPercentage", b"trainerStatus.progressPercentage",
     b"trainerStatus.estimatedRemainingSeconds", b"trainerStatus.lastUpdatedTime", b"docs/document.md"}
)  # fmt: skip
