"""`Client`: what a script or a notebook asks, one call after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Sequence, Union

from .connection import Connection
from .history import JobHistory
from .jobs import Job, JobEvent
from .models import TrainJobLogTail
from .queries import Queries, Selector, connect, history_parameters, log_parameters
from .records import JobRecord, JobRecords
from .requests import RECORDS, selection
from .session import Session
from .waiting import Until, Waiting
from .watching import Watching


class Client:
    """Progress of training jobs. Without arguments it is who kubectl is, or the service account of its pod.

    `kind` is a kind, a plural or a short name: TrainJob, pytorchjobs, tjp. `namespace` is the context's own
    where it is left out. Each method raises what `trainjob_client.errors` lists.
    """

    def __init__(
        self,
        namespace: Optional[str] = None,
        config_file: Union[str, Path, None] = None,
        context: Optional[str] = None,
        *,
        connection: Optional[Connection] = None,
    ) -> None:
        self._session = Session(connect(config_file, context, connection))
        self._queries = Queries(self._session.connection, namespace)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends its connections."""
        self._session.close()

    @property
    def namespace(self) -> str:
        """Where jobs are looked for when nothing else is said."""
        return self._queries.namespace

    def list_jobs(
        self,
        kind: Optional[str] = None,
        *,
        namespace: Optional[str] = None,
        all_namespaces: bool = False,
        label_selector: Selector = None,
        field_selector: Optional[str] = None,
    ) -> List[Job]:
        """The jobs of one kind, or without one of all kinds, by namespace and name."""
        flow = self._queries.list(kind, namespace, all_namespaces, label_selector, field_selector)
        return self._session.run(flow)

    def get_job(self, name: str, kind: str = "TrainJob", *, namespace: Optional[str] = None) -> Job:
        """One job."""
        return self._session.run(self._queries.get(name, kind, namespace))

    def get_job_history(
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
        """What it has reported. `since`, `until`: an RFC 3339 time or a duration before now, such as 1h."""
        parameters = history_parameters(metrics, since, until, max_points, attempt)
        found = self._session.run(self._queries.one(kind, namespace, name, "history", parameters))
        return JobHistory.model_validate(found)

    def get_job_log_tail(
        self,
        name: str,
        kind: str = "TrainJob",
        *,
        namespace: Optional[str] = None,
        lines: int = 50,
        previous: Optional[bool] = None,
    ) -> TrainJobLogTail:
        """The last lines of what failed first, or of rank 0; its pod, and which line says why it failed."""
        parameters = log_parameters(lines, previous)
        found = self._session.run(self._queries.one(kind, namespace, name, "log-tail", parameters))
        return TrainJobLogTail.model_validate(found)

    def get_job_logs(
        self,
        name: str,
        kind: str = "TrainJob",
        *,
        namespace: Optional[str] = None,
        lines: int = 50,
        previous: Optional[bool] = None,
    ) -> Iterator[str]:
        """The same lines alone."""
        return iter(
            self.get_job_log_tail(name, kind, namespace=namespace, lines=lines, previous=previous).lines
        )

    def list_job_records(
        self,
        *,
        namespace: Optional[str] = None,
        all_namespaces: bool = False,
        label_selector: Selector = None,
        field_selector: Optional[str] = None,
        since: Optional[str] = None,
        until: Optional[str] = None,
    ) -> JobRecords:
        """Jobs that have ended, also those that are gone. `since`, `until`: of their end."""
        flow = self._queries.records(namespace, all_namespaces, label_selector, field_selector, since, until)
        return self._session.run(flow)

    def get_job_record(self, name: str, *, namespace: Optional[str] = None) -> JobRecord:
        """One of them, with its last document as `progress`. `name` is the record's."""
        return self._session.run(self._queries.record(name, namespace))

    def get_job_record_history(self, name: str, *, namespace: Optional[str] = None) -> JobHistory:
        """What it had reported."""
        found = self._session.run(self._queries.one(RECORDS, namespace, name, "history"))
        return JobHistory.model_validate(found)

    def wait_for_job_status(
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
        """The job as soon as it has one of the statuses: phases, conditions that are True, or Created.

        `status` may be a function of the job as well. Raises TimeoutError, and JobEndedError, a RuntimeError,
        when the job has ended without it.
        """
        waiting = Waiting(status, callbacks)
        return self._session.run(
            self._queries.wait(name, waiting, timeout, polling_interval, kind, namespace)
        )

    def watch_jobs(
        self,
        kind: Optional[str] = None,
        *,
        namespace: Optional[str] = None,
        all_namespaces: bool = False,
        label_selector: Selector = None,
        field_selector: Optional[str] = None,
        resource_version: Optional[str] = None,
    ) -> Iterator[JobEvent]:
        """Each job that there is, as ADDED, then each change, once, until you stop.

        It connects anew by itself. With the `resource_version` of an event it goes on after that one.
        """
        path = self._session.run(self._queries.list_path(kind, namespace, all_namespaces))
        chosen = selection(label_selector, field_selector)
        for event in self._session.watch(Watching(path, chosen, resource_version=resource_version)):
            yield JobEvent.of(event)

    def show_job(self, name: str, kind: str = "TrainJob", *, namespace: Optional[str] = None) -> Any:
        """In a notebook: the job, drawn anew with each change until it ends, while other cells run."""
        from .notebook import JobDisplay

        return JobDisplay(self, name, kind, namespace).show()
