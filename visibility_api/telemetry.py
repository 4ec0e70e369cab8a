"""Logging setup and metric definitions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from visibility_api import __version__
from visibility_api.errors.text import harmless, harmless_lines


def set_up_logs(verbosity: int) -> None:
    """Events as JSON lines in a pod, key=value on a terminal; to stderr, as Kubernetes components do."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=False)
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    level = logging.DEBUG if verbosity >= 4 else logging.INFO
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _make_harmless,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()])
    # Its warnings are about what clients send: any client could fill the log with them.
    of_uvicorn = logging.getLogger("uvicorn.error")
    of_uvicorn.setLevel(logging.ERROR)
    of_uvicorn.addFilter(_is_not_told_already)
    logging.getLogger("asyncio").addFilter(_is_of_an_open_connection)


def _is_not_told_already(record: logging.LogRecord) -> bool:
    """uvicorn reports a response that ended early; `app/exchange.py` has logged why."""
    return record.getMessage() != "ASGI callable returned without completing response."


def _is_of_an_open_connection(record: logging.LogRecord) -> bool:
    """uvloop reports as a fatal error that TLS was to write to a connection that has just been closed
    (MagicStack/uvloop#685). asyncio's own loop says nothing of it, and whoever uses the connection knows."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, RuntimeError) and "the handler is closed" in str(error))


def _make_harmless(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for name, value in event.items():
        event[name] = harmless_lines(value) if name == "exception" else _harmless_value(value)
    return event


def _harmless_value(value: Any) -> Any:  # noqa: ANN401 - whatever an event has
    match value:
        case str():
            return harmless(value)
        case list() | tuple():
            return [_harmless_value(each) for each in value]
        case dict():
            return {_harmless_value(name): _harmless_value(each) for name, each in value.items()}
    return value


class _OfLibraries(logging.Handler):
    """What libraries log, in the form of our own events."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


class Metrics:
    """The metrics of this process, except those of requests. No label has a job, a pod or a namespace."""

    def __init__(self, registry: CollectorRegistry) -> None:
        Gauge("visibility_build_info", "The version that runs.", ["version"], registry=registry).labels(
            __version__
        ).set(1)
        self._probes = Counter(
            "visibility_probes_total",
            "Probes of rank 0, by source and outcome.",
            ["source", "outcome"],
            registry=registry,
        )
        self._latency = Histogram(
            "visibility_probe_duration_seconds",
            "How long one probe took.",
            ["source"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=registry,
        )
        self._lateness = Histogram(
            "visibility_probe_lateness_seconds",
            "How long after its due time a probe began; grows under overload.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60),
            registry=registry,
        )
        self._pushes = Counter(
            "visibility_pushes_total",
            "Reports that were pushed to this replica, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._reviews = {
            kind: Counter(
                f"apiserver_delegated_{kind}_request_total",
                f"Reviews requested of kube-apiserver ({kind}), by HTTP status.",
                ["code"],
                registry=registry,
            )
            for kind in ("authn", "authz")
        }
        self._write_backs = Counter(
            "visibility_write_backs_total",
            "Summaries for TrainJob.status.trainerStatus, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._events = Counter(
            "visibility_events_total",
            "Occurrences for Events on jobs, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._state_writes = Counter(
            "visibility_state_writes_total",
            "States of jobs for the data directory, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._archived = Counter(
            "visibility_archived_jobs_total",
            "Jobs for the archive, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.state_bytes = Gauge(
            "visibility_data_dir_bytes", "Size of the state in the data directory.", registry=registry
        )
        self.is_degraded = Gauge(
            "visibility_data_dir_degraded",
            "1 while the data directory cannot be used and state is kept in memory only.",
            registry=registry,
        )
        self.waiting_write_backs = Gauge(
            "visibility_write_backs_waiting", "Jobs whose status is yet to be written.", registry=registry
        )
        self.stretch = Gauge(
            "visibility_probe_interval_stretch_ratio",
            "How far the time between two probes is stretched by overload; 1 = not at all.",
            registry=registry,
        )
        self.waiting_probes = Gauge(
            "visibility_probes_waiting",
            "Jobs that are due for a probe and wait for a slot.",
            registry=registry,
        )
        self.jobs = Gauge("visibility_jobs", "Training jobs that are served.", registry=registry)
        self.is_owner = Gauge(
            "visibility_log_owner",
            "1 on the replica that owns the jobs: the one that probes.",
            registry=registry,
        )
        self.certificate_ends = Gauge(
            "visibility_serving_certificate_expiration_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970.",
            registry=registry,
        )
        self.certificate_lifetime = Gauge(
            "visibility_serving_certificate_lifetime_seconds",
            "How long the serving certificate lasts from its beginning.",
            registry=registry,
        )
        self.watches_down = Gauge(
            "visibility_watch_down",
            "1 while a watch of this collection has not worked for a minute.",
            ["collection"],
            registry=registry,
        )
        self._unread = Counter(
            "visibility_objects_unread_total",
            "Objects that were too large or could not be decoded, by collection and reason.",
            ["collection", "reason"],
            registry=registry,
        )
        self.probed_jobs = Gauge(
            "visibility_probed_jobs", "Jobs that are probed periodically.", registry=registry
        )

    def count_probe(self, source: str, outcome: str, latency_s: float, lateness_s: float) -> None:
        """Count a probe; `outcome` is Reported or the reason of its failure."""
        self._probes.labels(source, outcome).inc()
        self._latency.labels(source).observe(latency_s)
        self._lateness.observe(max(0.0, lateness_s))

    def count_push(self, outcome: str) -> None:
        """Count a push; `outcome` is one of those in `pushing/endpoint.py`."""
        self._pushes.labels(outcome).inc()

    def count_write_back(self, outcome: str) -> None:
        """Count an attempt to write; `outcome` is that of WriteBack."""
        self._write_backs.labels(outcome).inc()

    def count_event(self, outcome: str) -> None:
        """Count an occurrence; `outcome` is the Announcer's."""
        self._events.labels(outcome).inc()

    def count_state_writes(self, outcome: str, jobs: int) -> None:
        """Count states of jobs; `outcome` is the StateWriter's."""
        self._state_writes.labels(outcome).inc(jobs)

    def count_archived(self, outcome: str, jobs: int) -> None:
        """Jobs that were archived, or not."""
        self._archived.labels(outcome).inc(jobs)

    def count_unread(self, collection: str, reason: str) -> None:
        """Count an object that was not read; `reason` is the ObjectReader's."""
        self._unread.labels(collection, reason).inc()

    def count_review(self, kind: str) -> Callable[[str, float], None]:
        """Counts reviews of one kind, "authn" or "authz", under the Go library's names."""
        counter = self._reviews[kind]
        return lambda code, _seconds: counter.labels(code).inc()
