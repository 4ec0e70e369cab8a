"""Metrics of requests, under the API server's own names.

Label values are verbs and resources that exist, so their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Labels = tuple[str, str, str]  # verb, resource, subresource: known values only

# The API server's own, without the ones beyond its 60 s limit.
DURATION_BUCKETS_S = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 10, 20, 30, 60)
_LABELS = ("verb", "resource", "subresource")


class Series:
    """The counts of one set of labels. Looking its counters up for each request would cost 4 us."""

    def __init__(self, labels: Labels, requests: Counter, durations: Histogram) -> None:
        self._labels = labels
        self._requests = requests
        self._durations = durations
        self._of_code: dict[int, Counter] = {}
        self._duration: Histogram | None = None

    def count(self, code: int) -> None:
        """Count a request that is not timed: a watch."""
        counter = self._of_code.get(code)
        if counter is None:
            counter = self._of_code[code] = self._requests.labels(*self._labels, str(code))
        counter.inc()

    def record(self, code: int, seconds: float) -> None:
        """Count a finished request."""
        self.count(code)
        if self._duration is None:
            self._duration = self._durations.labels(*self._labels)
        self._duration.observe(seconds)


class RequestMetrics:
    """Counts of requests and watch events. A watch counts when it starts; its duration is not recorded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "apiserver_request",
            "Requests by verb, resource and HTTP status.",
            (*_LABELS, "code"),
            registry=registry,
        )
        self._durations = Histogram(
            "apiserver_request_duration_seconds",
            "From the request line to the last byte sent; watches excepted.",
            _LABELS,
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Requests under way; watches excepted.",
            ["request_kind"],
            registry=registry,
        )
        self._long_running = Gauge(
            "apiserver_longrunning_requests", "Watches under way.", ["verb"], registry=registry
        )
        self._watch_events = Counter(
            "apiserver_watch_events", "Events sent to watchers.", ["resource"], registry=registry
        )
        self._series: dict[Labels, Series] = {}

    def watch_in_flight(self, *, requests: Callable[[], float], watches: Callable[[], float]) -> None:
        """Each returns the number of those that are under way, at each scrape."""
        self._in_flight.labels("readOnly").set_function(requests)
        self._long_running.labels("WATCH").set_function(watches)

    def series(self, labels: Labels) -> Series:
        """The series of these labels."""
        held = self._series.get(labels)
        if held is None:
            held = self._series[labels] = Series(labels, self._requests, self._durations)
        return held

    def count_watch_events(self, resource: str, number: int) -> None:
        """Count events sent to the watchers of one resource."""
        self._watch_events.labels(resource).inc(number)
