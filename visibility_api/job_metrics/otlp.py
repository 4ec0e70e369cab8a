"""The same metrics pushed by OTLP over HTTP, in JSON, by the replica that owns the jobs.

OTLP's form is opentelemetry-proto's metrics.proto as JSON. It is written here, and not by OpenTelemetry's
SDK (decision 77). Attributes are named as the Kubeflow SDK names them (kubeflow/sdk#382).
"""

from __future__ import annotations

import asyncio
import gzip
import math
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import aiohttp
import msgspec
import structlog

from visibility_api import __version__
from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress

from .exposition import RENDER_S, JobMetricsSource, choose, grow
from .families import FAMILIES, Family, Shown

log = structlog.get_logger("visibility.otlp")

BATCH_POINTS = 4000  # of one request: a megabyte, compressed to a twentieth. A job has 2,000 at most
TIMEOUT_S = 10.0
MAX_HEADERS_BYTES = 16 * 1024
PATH = "/v1/metrics"  # OTLP's own
CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE

_LABEL = re.compile(r',(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

Post = Callable[[bytes], Awaitable[None]]  # raises what goes wrong


class RefusedPush(Exception):
    """The collector's answer is no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the collector answered {status}")
        self.status = status


class Collector:
    """Where requests are sent. Its files are read for each: they may be renewed."""

    def __init__(self, url: str, headers_file: Path | None, ca_file: Path | None) -> None:
        self._url = url if url.rstrip("/").endswith(PATH) else url.rstrip("/") + PATH
        self._headers_file, self._ca_file = headers_file, ca_file

    async def post(self, body: bytes) -> None:
        """Raises RefusedPush, OSError, aiohttp.ClientError, ValueError or TimeoutError."""
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        if self._headers_file is not None:
            text = self._headers_file.read_bytes()[:MAX_HEADERS_BYTES].decode("ascii")
            headers |= dict(line.split(": ", 1) for line in text.splitlines() if line.strip())
        context = ssl.create_default_context(cafile=self._ca_file) if self._ca_file is not None else True
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout) as session,
            session.post(
                self._url, data=body, headers=headers, ssl=context, allow_redirects=False
            ) as response,
        ):
            if not 200 <= response.status < 300:
                raise RefusedPush(response.status)


class OtlpPush:
    """Of one replica. `post` sends one request."""

    def __init__(
        self,
        source: JobMetricsSource,
        post: Post,
        *,
        interval_s: float,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._source = source
        self._post = post
        self._interval_s = interval_s
        self._now_ns = now_ns
        self._has_failed = False
        self._seconds: dict[JobRef, Mapping[int, float]] = {}

    async def run(self) -> None:
        """Until it is cancelled. What cannot be sent is left out: the next values come soon."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.push()
                self._has_failed = False
            except Exception as error:  # the collector's, or the network's
                if not self._has_failed:
                    status = error.status if isinstance(error, RefusedPush) else None
                    log.warning("metrics not pushed", status=status, **describe_fault(error))
                self._has_failed = True

    async def push(self) -> None:
        """All jobs once, if this replica owns them."""
        source = self._source
        if not source.is_owner():
            self._seconds.clear()
            return
        kinds = source.kinds()
        chosen, _ = choose(source.store.list(frozenset(kinds)).entries, source.most)
        documents = [entry.document for entry in chosen]
        self._seconds = {  # of all, also if the collector refuses some of them
            each.job.ref: grow(self._seconds.get(each.job.ref, {}), each)
            async for each in in_slices(documents, RENDER_S)
        }
        points = dict[str, list[bytes]]()
        async for document in in_slices(documents, RENDER_S):
            self._add(points, document, kinds[document.job.ref.resource])
            if sum(map(len, points.values())) >= BATCH_POINTS:
                await self._post(await asyncio.to_thread(encode, points))
                points = {}
        if points:
            await self._post(await asyncio.to_thread(encode, points))

    def _add(self, points: dict[str, list[bytes]], document: JobProgress, kind: str) -> None:
        job, pods = document.job, self._source.pods(document.job)
        shown = Shown(document, pods, self._seconds[job.ref], self._source.metrics)
        common = {
            "k8s.namespace.name": job.ref.namespace,
            "kubeflow.job.kind": kind,
            "kubeflow.job.name": job.ref.name,
            "kubeflow.job.status": str(document.phase),
        }
        begins = b'{"attributes":[%s' % _attributes(common)
        timed = b'],"timeUnixNano":"%d"' % (now_ns := self._now_ns())
        begun_at = job.created_at or document.started_at
        since = timed
        if begun_at is not None:
            since += b',"startTimeUnixNano":"%d"' % (int(begun_at.timestamp()) * 10**9)
        traced = b""
        if job.hints.traceparent is not None:
            _, trace_id, span_id, _ = job.hints.traceparent.encode().split(b"-")
            traced = b',"exemplars":[{"traceId":"%s","spanId":"%s","timeUnixNano":"%d"' % (
                trace_id,
                span_id,
                now_ns,
            )
        for family in FAMILIES:
            found = points.setdefault(family.name, [])
            when = since if family.type == "counter" else timed
            for labels, value in _samples(family, shown):
                number = b',"asDouble":' + _number(value)
                exemplar = b"%s%s}]" % (traced, number) if traced else b""
                found.append(b"%s%s%s%s%s}" % (begins, _labels(labels), when, number, exemplar))


def encode(points: Mapping[str, Sequence[bytes]]) -> bytes:
    """An ExportMetricsServiceRequest, compressed. On a thread: nothing else has its `points`."""
    metrics = []
    for family in FAMILIES:
        if found := points.get(family.name):
            head = msgspec.json.encode({"name": family.name, "description": family.help})[:-1]
            kind, more = b"gauge", b""
            if family.type == "counter":
                kind, more = b"sum", b',"aggregationTemporality":%d,"isMonotonic":true' % CUMULATIVE
            metrics.append(b'%s,"%s":{"dataPoints":[%s]%s}}' % (head, kind, b",".join(found), more))
    resource = _attributes({"service.name": "trainjob-visibility", "service.version": __version__})
    scope = msgspec.json.encode({"name": "visibility_api.job_metrics", "version": __version__})
    body = (
        b'{"resourceMetrics":[{"resource":{"attributes":[%s]},"scopeMetrics":[{"scope":%s,"metrics":[%s]}]}]}'
    )
    return gzip.compress(body % (resource, scope, b",".join(metrics)), 1)


def _samples(family: Family, job: Shown) -> Iterable[tuple[str, float]]:
    if family.value is None:
        return family.samples(job)
    value = family.value(job.document)
    return () if value is None else (("", value),)


def _number(value: float) -> bytes:
    """As protobuf's JSON has it, which has words for what is not finite."""
    if isinstance(value, int) or math.isfinite(value):
        return repr(float(value)).encode()
    return b'"NaN"' if math.isnan(value) else b'"Infinity"' if value > 0 else b'"-Infinity"'


@lru_cache(maxsize=65536)
def _labels(text: str) -> bytes:
    """Labels as a Family writes them, each after a comma."""
    found = {name: _ESCAPED.sub(_unescape, quoted) for name, quoted in _LABEL.findall(text)}
    return b"," + _attributes(found) if found else b""


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _attributes(given: Mapping[str, str]) -> bytes:
    """Without the brackets around them."""
    return msgspec.json.encode(
        [{"key": name, "value": {"stringValue": value}} for name, value in given.items()]
    )[1:-1]
