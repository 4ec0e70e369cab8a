"""What is counted, under which names and with which labels: P19, D20."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.api_shell import BASE, ONE, Shell
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse, ResourceStream


@pytest.mark.parametrize(
    ("target", "method", "labels"),
    [
        (ONE, "GET", ("GET", "trainjobs", "", "200")),
        (f"{ONE}/progress", "GET", ("GET", "trainjobs", "progress", "200")),
        (f"{BASE}/trainjobs", "GET", ("LIST", "trainjobs", "", "200")),
        (ONE, "PUT", ("PUT", "trainjobs", "", "405")),
        (ONE, "SMUGGLE", ("other", "trainjobs", "", "405")),
        (f"{BASE}/namespaces/a/secret-thing/x", "GET", ("GET", "", "", "404")),
        ("/secret-thing", "GET", ("GET", "", "", "404")),
        ("/livez", "HEAD", ("HEAD", "", "", "200")),
    ],
)
async def test_requests_are_counted_by_words_of_our_own(
    target: str, method: str, labels: tuple[str, str, str, str]
) -> None:
    """P19: what a client makes up never becomes a label."""
    shell = Shell()
    await shell.get(target, method=method)
    names = dict(zip(("verb", "resource", "subresource", "code"), labels, strict=True))
    assert shell.sample("apiserver_request_total", **names) == 1
    assert "secret" not in (await shell.get("/metrics")).text


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, "0.005"), (0.005, "0.005"), (0.3, "0.4"), (61.0, "+Inf")]
)
def test_a_duration_counts_in_its_bucket_and_all_above(seconds: float, bucket: str) -> None:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry)
    metrics.series(("GET", "trainjobs", "")).record(200, seconds)
    counts = {
        sample.labels["le"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    bounds = list(counts)
    assert [counts[b] for b in bounds] == [0] * bounds.index(bucket) + [1] * (
        len(bounds) - bounds.index(bucket)
    )


async def test_a_watch_counts_when_it_starts_and_has_no_duration() -> None:
    """P19."""

    async def write(_: Callable[[bytes], Awaitable[None]]) -> None:
        assert shell.sample("apiserver_request_total", **labels, code="200") == 1

    async def handler(_: ResourceRequest) -> ResourceResponse | ResourceStream:
        return ResourceStream(write=write)

    labels = {"verb": "WATCH", "resource": "trainjobs", "subresource": ""}
    shell = Shell(handler=handler)
    assert (await shell.get(f"{BASE}/trainjobs?watch=1")).is_complete
    assert shell.sample("apiserver_request_duration_seconds_count", **labels) is None


def test_watch_events_are_counted_by_resource() -> None:
    """P19."""
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry)
    metrics.count_watch_events("trainjobs", 3)
    metrics.count_watch_events("trainjobs", 2)
    assert registry.get_sample_value("apiserver_watch_events_total", {"resource": "trainjobs"}) == 5


async def test_metrics_are_text_that_prometheus_reads() -> None:
    """D20."""
    shell = Shell()
    await shell.get(ONE)
    answer = await shell.get("/metrics")
    assert (answer.header("content-type") or "").startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {
        "apiserver_request",
        "apiserver_request_duration_seconds",
        "apiserver_current_inflight_requests",
        "apiserver_watch_events",
    } <= names


async def test_metrics_are_openmetrics_for_whoever_asks() -> None:
    """D20."""
    answer = await Shell().get("/metrics", ("Accept", "application/openmetrics-text;version=1.0.0"))
    assert (answer.header("content-type") or "").startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_the_version_has_every_field_kubectl_reads() -> None:
    """D20."""
    answer = await Shell().get("/version")
    assert list(answer.json()) == [
        "major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler",
        "platform",
    ]  # fmt: skip
    assert answer.json()["gitVersion"].startswith("v")


@pytest.mark.parametrize("version", ["1.0.1", "7.7.7", "1.0.0.made-up"])
async def test_a_format_nobody_knows_is_not_repeated(version: str) -> None:
    """The library would answer under any version that it is asked for."""
    answer = await Shell().get("/metrics", ("Accept", f"application/openmetrics-text;version={version}"))
    assert answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    assert not answer.text.endswith("# EOF\n")
