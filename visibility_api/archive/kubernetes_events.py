"""The Kubernetes Events about a job and its pods, as kube-apiserver has them when a record is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.kube.errors import ApiError, ClusterError

log = structlog.get_logger("visibility.archive")

MAX_EVENTS = 50  # of one record: the latest
MAX_MESSAGE = 1024  # characters, as kube-apiserver allows
MAX_LISTED, MAX_BYTES = 200, 1024 * 1024
TIMEOUT_S = 5.0
REFUSED_S = 600.0  # after which a missing right is tried again


class _Object(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Series(msgspec.Struct, rename="camel"):
    count: int = 0
    last_observed_time: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    involved_object: _Object = msgspec.field(default_factory=_Object)
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None

    @property
    def first(self) -> datetime | None:
        return self.first_timestamp or self.event_time or self.last_timestamp

    @property
    def last(self) -> datetime | None:
        return (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


_decode = msgspec.json.Decoder(_Events).decode


class KubernetesEvents:
    """Needs the right to list events."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._refused_until = 0.0

    async def read(self, ref: JobRef, pods: Sequence[str]) -> bytes:
        """A JSON array, the earliest first; b"" where none can be read. Raises nothing of the cluster's."""
        if asyncio.get_running_loop().time() < self._refused_until:
            return b""
        found = list[_Event]()
        try:
            for selector in (
                f"involvedObject.uid={ref.uid}",
                *(f"involvedObject.kind=Pod,involvedObject.name={name}" for name in pods),
            ):
                found += await self._list(ref.namespace, selector)
        except ApiError as error:
            if error.status in (401, 403):
                self._refused_until = asyncio.get_running_loop().time() + REFUSED_S
                log.warning("no right to list events", hint="apply components/archive")
            return b""
        except (ClusterError, *UNDECODABLE):
            return b""
        found.sort(key=lambda each: each.last or _NEVER)
        return msgspec.json.encode([_shown(each) for each in found[-MAX_EVENTS:]])

    async def _list(self, namespace: str, selector: str) -> list[_Event]:
        query = (("fieldSelector", selector), ("limit", str(MAX_LISTED)))
        path = f"/api/v1/namespaces/{namespace}/events"
        body = await self._client.get(path, query=query, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)
        return _decode(body).items or []


_NEVER = datetime.fromtimestamp(0, UTC)


def _shown(event: _Event) -> dict[str, object]:
    """As `RecordEvent` in models/job_records.py."""
    about = event.involved_object
    times = {"firstTime": event.first, "lastTime": event.last}
    return {
        "type": harmless(event.type or "Normal"),
        "reason": harmless(event.reason or ""),
        "message": harmless((event.message or "")[:MAX_MESSAGE]),
        "object": {"kind": harmless(about.kind), "name": harmless(about.name)},
        "count": max(1, event.count or 0, event.series.count if event.series else 0),
        **{
            name: at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for name, at in times.items()
            if at is not None
        },
    }
