"""Metrics of requests, under the API server's own names.

Label values are verbs and resources that exist, so their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, str, str]  # verb, resource, subresource: known values only

# The API server's own, without the ones beyond its 60 s limit.
DURATION_BUCKETS_S = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 10, 20, 30, 60)
_BOUNDS = (*map(floatToGoString, DURATION_BUCKETS_S), "+Inf")
_LABELS = ("verb", "resource", "subresource")


class Series:
    """The counts of one set of labels. A counter and a histogram of the library's would cost 3 us a request,
    for locks: this process counts in one thread, which is that of its event loop."""

    def __init__(self) -> None:
        self.of_code: dict[int, int] = {}
        self.of_duration = [0] * len(_BOUNDS)  # of each bucket alone
        self.total_s = 0.0

    def count(self, code: int) -> None:
        """Count a request that is not timed: a watch."""
        self.of_code[code] = self.of_code.get(code, 0) + 1

    def record(self, code: int, seconds: float) -> None:
        """Count a finished request."""
        self.of_code[code] = self.of_code.get(code, 0) + 1
        self.of_duration[bisect_left(DURATION_BUCKETS_S, seconds)] += 1
        self.total_s += seconds


class RequestMetrics(Collector):
    """Counts of requests and watch events. A watch counts when it starts; its duration is not recorded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._series: dict[Labels, Series] = {}
        registry.register(self)
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

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape, and once at first."""
        requests = CounterMetricFamily(
            "apiserver_request", "Requests by verb, resource and HTTP status.", labels=(*_LABELS, "code")
        )
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "From the request line to the last byte sent; watches excepted.",
            labels=_LABELS,
        )
        for labels, series in self._series.items():
            for code, number in series.of_code.items():
                requests.add_metric((*labels, str(code)), number)
            if any(series.of_duration):
                buckets = list(zip(_BOUNDS, accumulate(series.of_duration), strict=True))
                durations.add_metric(labels, buckets, series.total_s)
        yield from (requests, durations)

    def watch_in_flight(self, *, requests: Callable[[], float], watches: Callable[[], float]) -> None:
        """Each returns the number of those that are under way, at each scrape."""
        self._in_flight.labels("readOnly").set_function(requests)
        self._long_running.labels("WATCH").set_function(watches)

    def series(self, labels: Labels) -> Series:
        """The series of these labels."""
        held = self._series.get(labels)
        if held is None:
            held = self._series[labels] = Series()
        return held

    def count_watch_events(self, resource: str, number: int) -> None:
        """Count events sent to the watchers of one resource."""
        self._watch_events.labels(resource).inc(number)
