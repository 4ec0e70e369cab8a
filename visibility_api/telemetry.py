"""Logging setup and metric definitions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import cache, partial
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
        def children(name: str, text: str, *labels: str) -> Callable[..., Counter]:
            # The library would look for them each time, with a lock.
            return cache(Counter(name, text, labels, registry=registry).labels)

        def counts(name: str, text: str, *labels: str) -> Callable[..., None]:
            of = children(name, text, *labels)
            return lambda *values: of(*values).inc()

        def sums(name: str, text: str) -> Callable[[str, int], None]:
            of = children(name, text, "outcome")
            return lambda outcome, number: of(outcome).inc(number)

        gauge = partial(Gauge, registry=registry)
        gauge("visibility_build_info", "The version that runs.", ["version"]).labels(__version__).set(1)
        self._probes = counts(
            "visibility_probes_total", "Probes of rank 0, by source and outcome.", "source", "outcome"
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
        # Outcomes are those of `pushing/endpoint.py`, WriteBack, Announcer, StateWriter and Keeper.
        self.count_push = counts(
            "visibility_pushes_total", "Reports that were pushed to this replica, by outcome.", "outcome"
        )
        self.count_write_back = counts(
            "visibility_write_backs_total",
            "Summaries for TrainJob.status.trainerStatus, by outcome.",
            "outcome",
        )
        self.count_event = counts(
            "visibility_events_total", "Occurrences for Events on jobs, by outcome.", "outcome"
        )
        self.count_state_writes = sums(
            "visibility_state_writes_total", "States of jobs for the data directory, by outcome."
        )
        self.count_archived = sums("visibility_archived_jobs_total", "Jobs for the archive, by outcome.")
        self.count_unread = counts(
            "visibility_objects_unread_total",
            "Objects that were too large or could not be decoded, by collection and reason.",
            "collection",
            "reason",
        )
        # Under the Go library's names, by HTTP status.
        self.count_authn, self.count_authz = (
            counts(
                f"apiserver_delegated_{kind}_request_total",
                f"Reviews requested of kube-apiserver ({kind}), by HTTP status.",
                "code",
            )
            for kind in ("authn", "authz")
        )
        self.state_bytes = gauge("visibility_data_dir_bytes", "Size of the state in the data directory.")
        self.is_degraded = gauge(
            "visibility_data_dir_degraded",
            "1 while the data directory cannot be used and state is kept in memory only.",
        )
        self.waiting_write_backs = gauge(
            "visibility_write_backs_waiting", "Jobs whose status is yet to be written."
        )
        self.stretch = gauge(
            "visibility_probe_interval_stretch_ratio",
            "How far the time between two probes is stretched by overload; 1 = not at all.",
        )
        self.waiting_probes = gauge(
            "visibility_probes_waiting", "Jobs that are due for a probe and wait for a slot."
        )
        self.jobs = gauge("visibility_jobs", "Training jobs that are served.")
        self.is_owner = gauge(
            "visibility_log_owner", "1 on the replica that owns the jobs: the one that probes."
        )
        self.certificate_ends = gauge(
            "visibility_serving_certificate_expiration_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970.",
        )
        self.certificate_lifetime = gauge(
            "visibility_serving_certificate_lifetime_seconds",
            "How long the serving certificate lasts from its beginning.",
        )
        self.watches_down = gauge(
            "visibility_watch_down",
            "1 while a watch of this collection has not worked for a minute.",
            ["collection"],
        )
        self.probed_jobs = gauge("visibility_probed_jobs", "Jobs that are probed periodically.")

    def count_probe(self, source: str, outcome: str, latency_s: float, lateness_s: float) -> None:
        """Count a probe; `outcome` is Reported or the reason of its failure."""
        self._probes(source, outcome)
        self._latency.labels(source).observe(latency_s)
        self._lateness.observe(max(0.0, lateness_s))
