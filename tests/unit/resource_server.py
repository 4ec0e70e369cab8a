"""The resource side of the API over a real store: documents are put by the test, clients ask as in life."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from prometheus_client import CollectorRegistry

from tests.asgi import Answer, call, http_scope
from tests.jobs import NOW, document
from visibility_api.app import Limits, Parts, create_app
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.kinds import RESOURCES
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.training_jobs import AllKinds
from visibility_api.kubeapi.watch import Watches, WatchLimits
from visibility_api.models.served import TRAINING_JOBS
from visibility_api.store.memory import MAX_CHANGES, MemoryStore

BASE = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
ALL = f"{BASE}/trainjobs"
TEAM = f"{BASE}/namespaces/team-a/trainjobs"
BERT = f"{TEAM}/bert"
BASE_REVISION = 1_767_323_045_000_000  # a time of start in microseconds

JSON = ("Accept", "application/json")
YAML = ("Accept", "application/yaml")
TABLE = (
    "Accept",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
)
PARTIAL = ("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
PARTIAL_LIST = ("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")

_PATIENCE_S = 90.0


class WatchClient:
    """One watch as its client sees it: events as they come, until the end."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.is_ended = False  # by the server, in order
        self.started = asyncio.Event()  # the headers have come; from here on every change is seen
        self.reads = asyncio.Event()  # cleared: the client takes nothing more
        self.reads.set()
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._pending: list[dict[str, Any]] = []
        self._begun = b""  # of a line
        self._gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            self.started.set()
            return
        await self.reads.wait()
        if body := message.get("body", b""):
            self.chunks.append(body)
            self._arrived.put_nowait(body)
        if not message.get("more_body", False):
            self.is_ended = True
            self._arrived.put_nowait(None)

    def disconnect(self) -> None:
        self._gone.set()

    async def event(self) -> dict[str, Any]:
        """The next event; fails when the stream ends first."""
        while not self._pending:
            async with asyncio.timeout(_PATIENCE_S):
                chunk = await self._arrived.get()
            assert chunk is not None, "the stream has ended"
            self._take(chunk)
        return self._pending.pop(0)

    def _take(self, chunk: bytes) -> None:
        *lines, self._begun = (self._begun + chunk).split(b"\n")
        self._pending.extend(json.loads(line) for line in lines)

    async def events(self, number: int) -> list[dict[str, Any]]:
        return [await self.event() for _ in range(number)]

    async def rest(self) -> list[dict[str, Any]]:
        """All events up to the stream's end."""
        async with asyncio.timeout(_PATIENCE_S):
            while (chunk := await self._arrived.get()) is not None:
                self._take(chunk)
        assert not self._begun
        events, self._pending = self._pending, []
        return events


class ResourceServer:
    """An application of its own with one resource, and that of all kinds. Jane may do all but what is
    `denied`: resources, or resources and namespaces."""

    def __init__(
        self,
        *,
        max_changes: int = MAX_CHANGES,
        base_revision: int = BASE_REVISION,
        limits: Limits | None = None,
        watch_limits: WatchLimits | None = None,
    ) -> None:
        self.store = MemoryStore(base_revision=base_revision, max_changes=max_changes)
        self.now = NOW
        self.registry = CollectorRegistry()
        metrics = RequestMetrics(self.registry)
        documents = Collection(TrainJobKind.served, self.store, now=lambda: self.now)
        self.watches = Watches(
            TrainJobKind.served,
            self.store,
            now=lambda: self.now,
            count_events=lambda number: metrics.count_watch_events("trainjobs", number),
            limits=watch_limits or WatchLimits(),
        )
        self.denied: set[str | tuple[str, str]] = set()
        self.asked: list[Attributes] = []  # whether she may
        view = AllKinds(RESOURCES, self)
        of_all = Collection(TRAINING_JOBS, self.store, now=lambda: self.now, view=view)
        watches_of_all = Watches(
            TRAINING_JOBS, self.store, now=lambda: self.now, view=view, limits=watch_limits or WatchLimits()
        )
        self.app = create_app(
            Parts(
                authenticator=self,
                authorizer=self,
                resources=(TrainJobKind.served, TRAINING_JOBS),
                handlers={
                    ("trainjobs", "", "get"): documents.get,
                    ("trainjobs", "", "list"): documents.list,
                    ("trainjobs", "", "watch"): self.watches.watch,
                    ("trainjobs", "progress", "get"): documents.get,
                    ("trainingjobs", "", "get"): of_all.get,
                    ("trainingjobs", "", "list"): of_all.list,
                    ("trainingjobs", "", "watch"): watches_of_all.watch,
                },
                registry=self.registry,
                metrics=metrics,
                limits=limits or Limits(),
            )
        )

    async def authenticate(self, scope: Any) -> Identity:
        return Identity(user="jane")

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        self.asked.append(attributes)
        if self.denied & {attributes.resource, (attributes.resource, attributes.namespace)}:
            raise AccessDenied(identity, attributes)

    def put(self, name: str = "bert", **more: Any) -> int:
        """Puts a document; returns the newest revision."""
        self.store.put(document(name, **more))
        return self.store.revision

    def delete(self, name: str = "bert", *, namespace: str = "team-a", resource: str = "trainjobs") -> int:
        entry = self.store.get(resource, namespace, name)
        assert entry is not None
        self.store.delete(entry.document.job.ref)
        return self.store.revision

    async def get(self, target: str, *headers: tuple[str, str]) -> Answer:
        return await call(self.app, target, headers=headers)

    async def refused(self, target: str, *headers: tuple[str, str]) -> tuple[int, str, str]:
        """Code, reason and message of the Status that answers."""
        answer = await self.get(target, *headers)
        status = answer.json()
        assert (status["kind"], status["code"]) == ("Status", answer.status)
        return answer.status, status["reason"], status["message"]

    @contextlib.asynccontextmanager
    async def watch(self, target: str, *headers: tuple[str, str]) -> AsyncIterator[WatchClient]:
        """A client that stays until the block ends; then its watch must be gone, too."""
        client = WatchClient()
        task = asyncio.create_task(self.app(http_scope("GET", target, headers), client.receive, client.send))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await client.started.wait()
            yield client
        finally:
            client.disconnect()
            client.reads.set()
            async with asyncio.timeout(_PATIENCE_S):
                await task


def names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Type and object name of each event."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]
