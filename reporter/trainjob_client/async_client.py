"""`AsyncClient`: the methods of `Client`, with `await`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import AsyncIterator, Callable, Iterator, List, Optional, Sequence, Union

from .async_session import AsyncSession
from .connection import Connection
from .errors import ApiError, UnreachableError
from .history import JobHistory
from .jobs import Job, JobEvent
from .models import TrainJobLogTail
from .queries import Queries, Selector, connect, history_parameters, log_parameters
from .records import JobRecord, JobRecords
from .requests import RECORDS, Answer, Pause, selection
from .waiting import Until, Waiting
from .watching import Watching


class AsyncClient:
    """The same for asyncio: `await client.get_job(…)`, `async for event in client.watch_jobs(…)`."""

    def __init__(
        self,
        namespace: Optional[str] = None,
        config_file: Union[str, Path, None] = None,
        context: Optional[str] = None,
        *,
        connection: Optional[Connection] = None,
    ) -> None:
        self._session = AsyncSession(connect(config_file, context, connection))
        self._queries = Queries(self._session.connection, namespace)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See Client."""
        await self._session.close()

    @property
    def namespace(self) -> str:
        """See Client."""
        return self._queries.namespace

    async def list_jobs(
        self,
        kind: Optional[str] = None,
        *,
        namespace: Optional[str] = None,
        all_namespaces: bool = False,
        label_selector: Selector = None,
        field_selector: Optional[str] = None,
    ) -> List[Job]:
        """See Client."""
        flow = self._queries.list(kind, namespace, all_namespaces, label_selector, field_selector)
        return await self._session.run(flow)

    async def get_job(self, name: str, kind: str = "TrainJob", *, namespace: Optional[str] = None) -> Job:
        """See Client."""
        return await self._session.run(self._queries.get(name, kind, namespace))

    async def get_job_history(
        self,
        name: str,
        kind: str = "TrainJob",
        *,
        namespace: Optional[str] = None,
        metrics: Union[str, Sequence[str], None] = None,
        since: Optional[str] = None,
        until: Optional[str] = None,
        max_points: Optional[int] = None,
        attempt: Optional[int] = None,
    ) -> JobHistory:
        """See Client."""
        parameters = history_parameters(metrics, since, until, max_points, attempt)
        found = await self._session.run(self._queries.one(kind, namespace, name, "history", parameters))
        return JobHistory.model_validate(found)

    async def get_job_log_tail(
        self,
        name: str,
        kind: str = "TrainJob",
        *,
        namespace: Optional[str] = None,
        lines: int = 50,
        previous: Optional[bool] = None,
    ) -> TrainJobLogTail:
        """See Client."""
        parameters = log_parameters(lines, previous)
        found = await self._session.run(self._queries.one(kind, namespace, name, "log-tail", parameters))
        return TrainJobLogTail.model_validate(found)

    async def get_job_logs(
        self,
        name: str,
        kind: str = "TrainJob",
        *,
        namespace: Optional[str] = None,
        lines: int = 50,
        previous: Optional[bool] = None,
    ) -> Iterator[str]:
        """See Client."""
        found = await self.get_job_log_tail(name, kind, namespace=namespace, lines=lines, previous=previous)
        return iter(found.lines)

    async def list_job_records(
        self,
        *,
        namespace: Optional[str] = None,
        all_namespaces: bool = False,
        label_selector: Selector = None,
        field_selector: Optional[str] = None,
        since: Optional[str] = None,
        until: Optional[str] = None,
    ) -> JobRecords:
        """See Client."""
        flow = self._queries.records(namespace, all_namespaces, label_selector, field_selector, since, until)
        return await self._session.run(flow)

    async def get_job_record(self, name: str, *, namespace: Optional[str] = None) -> JobRecord:
        """See Client."""
        return await self._session.run(self._queries.record(name, namespace))

    async def get_job_record_history(self, name: str, *, namespace: Optional[str] = None) -> JobHistory:
        """See Client."""
        found = await self._session.run(self._queries.one(RECORDS, namespace, name, "history"))
        return JobHistory.model_validate(found)

    async def wait_for_job_status(
        self,
        name: str,
        status: Until = frozenset({"Complete"}),
        timeout: float = 600,
        polling_interval: float = 2,
        callbacks: Optional[List[Callable[[Job], None]]] = None,
        *,
        kind: str = "TrainJob",
        namespace: Optional[str] = None,
    ) -> Job:
        """See Client."""
        flow = self._queries.wait(
            name, Waiting(status, callbacks), timeout, polling_interval, kind, namespace
        )
        return await self._session.run(flow)

    async def watch_jobs(
        self,
        kind: Optional[str] = None,
        *,
        namespace: Optional[str] = None,
        all_namespaces: bool = False,
        label_selector: Selector = None,
        field_selector: Optional[str] = None,
        resource_version: Optional[str] = None,
    ) -> AsyncIterator[JobEvent]:
        """See Client."""
        path = await self._session.run(self._queries.list_path(kind, namespace, all_namespaces))
        watching = Watching(
            path, selection(label_selector, field_selector), resource_version=resource_version
        )
        while True:
            pause = Pause(0.0)
            call = watching.next_call()
            try:
                if watching.is_listing:
                    answer = await self._session.send(call)
                    if isinstance(answer, Answer) and answer.code == 200:
                        for event in watching.take_list(answer):
                            yield JobEvent.of(event)
                    else:
                        pause = watching.end(answer)
                else:
                    async with self._session.stream(call) as (answer, lines):
                        async for line in lines:
                            for event in watching.take_line(line):
                                yield JobEvent.of(event)
                    pause = watching.end(answer)
            except (UnreachableError, ApiError) as error:
                pause = watching.refuse(error)
            await asyncio.sleep(pause.seconds)
