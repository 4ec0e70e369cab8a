"""Metrics of requests, under the API server's own names.

A request is counted by a few additions: the counters of prometheus_client cost more than a whole response.
Label values are verbs and resources that exist, so their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = tuple[str, str, str]  # verb, resource, subresource: known values only

# The API server's own, without the ones beyond its 60 s limit.
DURATION_BUCKETS_S = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 10, 20, 30, 60)


class Series:
    """The counts of one set of labels."""

    __slots__ = ("buckets", "codes", "total_s")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}  # requests by HTTP status
        self.buckets = [0] * (len(DURATION_BUCKETS_S) + 1)  # requests by duration, not cumulative
        self.total_s = 0.0

    def count(self, code: int) -> None:
        """Count a request that is not timed: a watch."""
        self.codes[code] = self.codes.get(code, 0) + 1

    def record(self, code: int, seconds: float) -> None:
        """Count a finished request."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.buckets[bisect_left(DURATION_BUCKETS_S, seconds)] += 1
        self.total_s += seconds


class RequestMetrics(Collector):
    """Counts of requests and watch events. A watch counts when it starts; its duration is not recorded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._series: dict[Labels, Series] = {}
        self._watch_events: dict[str, int] = {}
        self._in_flight: Callable[[], tuple[int, int]] = lambda: (0, 0)
        registry.register(self)

    def watch_in_flight(self, read: Callable[[], tuple[int, int]]) -> None:
        """`read` returns the numbers of requests in flight and of open watches, at each scrape."""
        self._in_flight = read

    def series(self, labels: Labels) -> Series:
        """The series of these labels; callers keep it, since a look-up for each request costs time."""
        held = self._series.get(labels)
        if held is None:
            held = self._series[labels] = Series()
        return held

    def count_watch_events(self, resource: str, number: int) -> None:
        """Count events sent to the watchers of one resource."""
        self._watch_events[resource] = self._watch_events.get(resource, 0) + number

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "apiserver_request",
            "Requests by verb, resource and HTTP status.",
            labels=("verb", "resource", "subresource", "code"),
        )
        for labels, series in self._series.items():
            for code, count in series.codes.items():
                requests.add_metric((*labels, str(code)), count)
        yield requests
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "From the request line to the last byte sent; watches excepted.",
            labels=("verb", "resource", "subresource"),
        )
        for labels, series in self._series.items():
            if any(series.buckets):
                durations.add_metric(labels, _cumulative(series.buckets), series.total_s)
        yield durations
        requests_in_flight, watches = self._in_flight()
        in_flight = GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests under way; watches excepted.",
            labels=("request_kind",),
        )
        in_flight.add_metric(("readOnly",), requests_in_flight)
        yield in_flight
        long_running = GaugeMetricFamily(
            "apiserver_longrunning_requests", "Watches under way.", labels=("verb",)
        )
        long_running.add_metric(("WATCH",), watches)
        yield long_running
        events = CounterMetricFamily(
            "apiserver_watch_events", "Events sent to watchers.", labels=("resource",)
        )
        for resource, count in self._watch_events.items():
            events.add_metric((resource,), count)
        yield events


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*DURATION_BUCKETS_S, float("inf")), counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
    return buckets
