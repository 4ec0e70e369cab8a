"""What both clients ask, as flows: they differ only in how a flow is run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from . import kubeconfig
from .connection import Connection
from .deadline import within
from .errors import ApiError, UnreachableError
from .jobs import Job
from .records import JobRecord, JobRecords
from .requests import (
    ALL_KINDS,
    PREFIX,
    RECORDS,
    Call,
    Flow,
    Pause,
    find_resource,
    is_transient,
    path_of,
    selection,
    send,
)
from .waiting import Waiting

Selector = Union[str, Mapping[str, str], None]


class Queries:
    """What both clients ask, as flows."""

    def __init__(self, connection: Connection, namespace: Optional[str]) -> None:
        self.namespace = namespace or connection.context.namespace
        self._plurals = {"trainjobs": "trainjobs", "TrainJob": "trainjobs"}
        self._plurals.update({each: each for each in (ALL_KINDS, RECORDS)})

    def place(self, namespace: Optional[str]) -> str:
        return namespace or self.namespace

    def plural(self, kind: str) -> Flow[str]:
        if kind not in self._plurals:
            answer = yield from send(Call(PREFIX))
            self._plurals[kind] = find_resource(kind, answer.json()["resources"])
        return self._plurals[kind]

    def list(
        self,
        kind: Optional[str],
        namespace: Optional[str],
        everywhere: bool,
        labels: Selector,
        fields: Optional[str],
    ) -> Flow["List[Job]"]:
        path = yield from self.list_path(kind, namespace, everywhere)
        answer = yield from send(Call(path, selection(labels, fields)))
        return [Job.model_validate(each) for each in answer.json()["items"]]

    def list_path(self, kind: Optional[str], namespace: Optional[str], everywhere: bool) -> Flow[str]:
        resource = yield from self.plural(kind or ALL_KINDS)
        return path_of(resource, None if everywhere else self.place(namespace))

    def one(
        self, kind: str, namespace: Optional[str], name: str, subresource: str = "",
        parameters: Sequence[Tuple[str, str]] = (),
    ) -> Flow[Any]:  # fmt: skip
        resource = yield from self.plural(kind)
        answer = yield from send(
            Call(path_of(resource, self.place(namespace), name, subresource), parameters)
        )
        return answer.json()

    def get(self, name: str, kind: str, namespace: Optional[str]) -> Flow[Job]:
        return Job.model_validate((yield from self.one(kind, namespace, name)))

    def records(
        self,
        namespace: Optional[str],
        everywhere: bool,
        labels: Selector,
        fields: Optional[str],
        since: Optional[str],
        until: Optional[str],
    ) -> Flow[JobRecords]:
        path = path_of(RECORDS, None if everywhere else self.place(namespace))
        times = [(key, value) for key, value in (("since", since), ("until", until)) if value]
        chosen, found, token = [*selection(labels, fields), *times], JobRecords(), ""
        while True:
            more = [("continue", token)] if token else []
            document = (yield from send(Call(path, [*chosen, *more]))).json()
            found += [JobRecord.model_validate(each) for each in document["items"]]
            token = document["metadata"].get("continue")
            if not token:
                return found

    def record(self, name: str, namespace: Optional[str]) -> Flow[JobRecord]:
        return JobRecord.model_validate((yield from self.one(RECORDS, namespace, name)))

    def wait(
        self,
        name: str,
        waiting: Waiting,
        timeout: float,
        interval: float,
        kind: str,
        namespace: Optional[str],
    ) -> Flow[Job]:
        if interval <= 0:
            raise ValueError(f"polling_interval must be above 0, not {interval}.")
        end = time.monotonic() + timeout
        job: Optional[Job] = None
        while True:
            try:
                job = yield from within(self.get(name, kind, namespace), end)
                if waiting.is_over(job):
                    return job
            except (ApiError, UnreachableError) as error:
                if job is None or not is_transient(error):  # a long wait outlives a restart of the server
                    raise
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"The job {job.namespace}/{name} was {job.phase} after {timeout:g} s.")
            yield Pause(min(interval, left))


def history_parameters(
    metrics: Union[str, Sequence[str], None],
    since: Optional[str],
    until: Optional[str],
    points: Optional[int],
    attempt: Optional[int],
) -> List[Tuple[str, str]]:
    found = [("metric", each) for each in ([metrics] if isinstance(metrics, str) else metrics or ())]
    pairs = (("since", since), ("until", until), ("maxPoints", points), ("attempt", attempt))
    return found + [(key, str(value)) for key, value in pairs if value is not None]


def log_parameters(lines: int, previous: Optional[bool]) -> List[Tuple[str, str]]:
    return [("lines", str(lines))] + ([] if previous is None else [("previous", str(previous).lower())])


def connect(
    config_file: Union[str, Path, None], context: Optional[str], connection: Optional[Connection]
) -> Connection:
    return connection if connection is not None else Connection(kubeconfig.load(config_file, context))
