"""What answers requests for jobs, of the kinds that are served at one time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from visibility_api.auth.access_review import AccessReviewer
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.kinds import Kinds, is_absent
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.job_records import JobRecords
from visibility_api.kubeapi.lists import Lists
from visibility_api.kubeapi.message import Handler
from visibility_api.kubeapi.replicas import ProgressWithReplicas, Read
from visibility_api.kubeapi.training_jobs import AllKinds
from visibility_api.kubeapi.watch import Watches
from visibility_api.models.served import JOB_RECORDS, TRAINING_JOBS, Resource
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.presence import Presence

from .request_metrics import RequestMetrics
from .resource_routes import RouteKey

END_DELAY_S = 1.0  # as in kube-apiserver, between the DELETED events of a kind that goes and its watches' end
DELETED_WITHIN_S = 30.0  # another replica may write those events


class ServedResources:
    """The handlers of the resource path, by resource, subresource and verb, and the watches among them."""

    def __init__(
        self,
        store: MemoryStore,
        metrics: RequestMetrics,
        shares: TimeShares,
        authorizer: AccessReviewer,
        read_replicas: Read,
        *,
        now: Callable[[], datetime],
        records: JobRecords | None = None,
    ) -> None:
        """`records`: of the archive; None: there is none."""
        self._now = now
        self.handlers: dict[RouteKey, Handler] = {}
        self._store, self._metrics, self._authorizer = store, metrics, authorizer
        self._read_replicas = read_replicas
        self._lists = Lists(store, shares=shares)
        self._watches: dict[Resource, Watches] = {}
        self.archived = (JOB_RECORDS,) if records is not None else ()
        if records is not None:
            self.handlers[JOB_RECORDS.plural, "", "get"] = records.get
            self.handlers[JOB_RECORDS.plural, "", "list"] = records.list
            self.handlers[JOB_RECORDS.plural, "", "delete"] = records.delete
            self.handlers[JOB_RECORDS.plural, "history", "get"] = records.history
            self.handlers[JOB_RECORDS.plural, "log-tail", "get"] = records.log_tail

    def serve(self, kinds: Kinds) -> None:
        """Serve exactly these kinds. Watches of others end, and those of all kinds, which begin anew."""
        for resource in set(self._watches).difference(kinds.resources):
            self._watches.pop(resource).drain()
            self.handlers = {key: each for key, each in self.handlers.items() if key[0] != resource.plural}
        of_all_kinds = AllKinds(kinds.resources, self._authorizer)
        for resource in kinds.all_resources:
            if resource not in self._watches:
                self._add(resource, of_all_kinds if resource is TRAINING_JOBS else None)

    def drain(self) -> None:
        """At shutdown."""
        for each in self._watches.values():
            each.drain()

    async def follow(self, presence: Presence, kinds: Callable[[], Kinds]) -> None:
        """End the watches of each kind whose CRD goes: without an error, after the DELETED events.

        kube-apiserver ends those of the CRD's own objects in the same way.
        """
        while True:
            present = [each for each in kinds().resources if not is_absent(presence, each.plural, kinds())]
            await presence.wait()
            if gone := [each for each in present if is_absent(presence, each.plural, kinds())]:
                with suppress(TimeoutError):
                    async with asyncio.timeout(DELETED_WITHIN_S):
                        while any(self._store.count(each.plural) for each in gone):  # noqa: ASYNC110 - rare
                            await asyncio.sleep(END_DELAY_S / 10)
                await asyncio.sleep(END_DELAY_S)
                for resource in gone:
                    if (watches := self._watches.get(resource)) is not None:
                        watches.end()

    def _add(self, resource: Resource, view: AllKinds | None) -> None:
        documents = Collection(resource, self._store, now=self._now, lists=self._lists, view=view)
        changes = self._watches[resource] = Watches(
            resource,
            self._store,
            now=self._now,
            view=view,
            count_events=partial(self._metrics.count_watch_events, resource.plural),
        )
        self.handlers[resource.plural, "", "get"] = documents.get
        self.handlers[resource.plural, "", "list"] = documents.list
        self.handlers[resource.plural, "", "watch"] = changes.watch
        for subresource in resource.subresources:
            if not subresource.is_operation:
                progress = ProgressWithReplicas(resource, self._store, self._read_replicas, documents.get)
                self.handlers[resource.plural, subresource.name, "get"] = progress.get
