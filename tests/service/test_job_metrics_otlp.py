"""Metrics of jobs pushed to an OpenTelemetry collector."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from tests.jobs import T0
from tests.unit.test_job_metrics import full, spent
from visibility_api.job_metrics.exposition import JobMetricsSource
from visibility_api.job_metrics.families import MAX_PODS, Pods
from visibility_api.job_metrics.otlp import BATCH_POINTS, Collector, OtlpPush, Post, RefusedPush
from visibility_api.jobs.job import ProbeHints, TrainingJob
from visibility_api.jobs.summary import JobProgress
from visibility_api.store.memory import MemoryStore

# What tests/frameworks/test_trackers.py reads by OpenTelemetry's own descriptors.
VECTOR = Path(__file__).parents[1] / "vectors/otlp-metrics.json"
TRACED = ProbeHints(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


def pusher(
    post: Post,
    *documents: JobProgress,
    is_owner: bool = True,
    interval_s: float = 60,
    pods: Callable[[TrainingJob], Pods] = lambda _job: (),
) -> OtlpPush:
    store = MemoryStore(base_revision=1)
    for each in documents:
        store.put(each)
    source = JobMetricsSource(
        store=store,
        most=1000,
        metrics=frozenset(("loss", "accuracy")),
        kinds=lambda: {"trainjobs": "TrainJob"},
        is_owner=lambda: is_owner,
        pods=pods,
    )
    return OtlpPush(source, post, interval_s=interval_s, now_ns=lambda: int(T0.timestamp() + 3600) * 10**9)


def traced(name: str = "bert") -> JobProgress:
    shown = full()
    return replace(shown, job=replace(shown.job, ref=replace(shown.job.ref, name=name), hints=TRACED))


class Kept:
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.fault: Exception | None = None
        self.is_third = asyncio.Event()

    async def __call__(self, body: bytes) -> None:
        self.requests.append(json.loads(gzip.decompress(body)))
        if len(self.requests) == 3:
            self.is_third.set()
        if self.fault is not None:
            raise self.fault


def metrics_of(request: Any) -> dict[str, Any]:
    return {each["name"]: each for each in request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}


def test_a_job_is_pushed_with_kubeflows_attributes_and_its_trace() -> None:
    kept = Kept()
    asyncio.run(pusher(kept, traced()).push())
    (request,) = kept.requests
    for each in request["resourceMetrics"]:
        for one in (each["resource"]["attributes"][1]["value"], each["scopeMetrics"][0]["scope"]):
            one |= {"stringValue": "0"} if "stringValue" in one else {"version": "0"}
    assert request == json.loads(VECTOR.read_text())
    (point,) = metrics_of(request)["trainjob_progress_ratio"]["gauge"]["dataPoints"]
    attributes = {each["key"]: each["value"]["stringValue"] for each in point["attributes"]}
    assert attributes == {
        "k8s.namespace.name": "team-a",
        "kubeflow.job.kind": "TrainJob",
        "kubeflow.job.name": "bert",
        "kubeflow.job.status": "Running",
    }
    assert point["asDouble"] == 0.42
    assert point["exemplars"][0]["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert metrics_of(request)["trainjob_attempts_total"]["sum"]["isMonotonic"]


def test_a_job_without_a_trace_has_no_exemplars() -> None:
    kept, job = Kept(), traced()
    asyncio.run(pusher(kept, replace(job, job=replace(job.job, hints=ProbeHints()))).push())
    (point,) = metrics_of(kept.requests[0])["trainjob_step"]["gauge"]["dataPoints"]
    assert "exemplars" not in point


def test_jobs_of_many_pods_are_several_requests_between_which_others_have_their_turn() -> None:
    kept, turn, turns = Kept(), 0, list[int]()

    def pods(_job: TrainingJob) -> Pods:
        turns.append(turn)
        return [(f"node-{number}", "n1") for number in range(MAX_PODS)]

    async def push() -> None:
        async def count() -> None:
            nonlocal turn
            while True:
                await asyncio.sleep(0)
                turn += 1

        counting = asyncio.create_task(count())
        await pusher(kept, *(traced(str(number)) for number in range(12)), pods=pods).push()
        counting.cancel()

    asyncio.run(push())
    sizes = [
        sum(len((each.get("gauge") or each["sum"])["dataPoints"]) for each in metrics_of(request).values())
        for request in kept.requests
    ]
    assert sum(sizes) > 12 * MAX_PODS
    assert max(sizes) < BATCH_POINTS + 2 * MAX_PODS
    assert len(set(turns)) > 6


def test_a_counter_does_not_shrink_after_a_push_of_other_jobs_failed() -> None:
    kept = Kept()
    more, less = (spent({"Productive": some}) for some in (950.0, 940.0))
    jobs = [replace(traced(str(number)), goodput=more) for number in range(12)]
    one = pusher(kept, *jobs, pods=lambda _job: [(f"node-{n}", "n1") for n in range(MAX_PODS)])

    async def push_thrice() -> None:
        await one.push()
        kept.fault = RefusedPush(503)
        with pytest.raises(RefusedPush):
            await one.push()
        kept.fault = None
        for each in jobs:
            one._source.store.put(replace(each, goodput=less))  # found to be another activity
        await one.push()

    asyncio.run(push_thrice())
    times = [
        point["asDouble"]
        for request in kept.requests
        for point in metrics_of(request)["trainjob_time_seconds_total"]["sum"]["dataPoints"]
    ]
    assert 24 < len(times) < 36  # the first request of the second push alone was made
    assert set(times) == {950.0}


def test_a_replica_that_does_not_own_the_jobs_pushes_nothing() -> None:
    kept = Kept()
    asyncio.run(pusher(kept, traced(), is_owner=False).push())
    assert kept.requests == []


def test_pushes_go_on_after_the_collector_was_away(capfd: pytest.CaptureFixture[str]) -> None:
    kept = Kept()
    kept.fault = RefusedPush(503)

    async def run() -> None:
        task = asyncio.create_task(pusher(kept, traced(), interval_s=0).run())
        await kept.is_third.wait()
        task.cancel()

    asyncio.run(run())
    said = "".join(capfd.readouterr())
    assert (said.count("metrics not pushed"), said.count("503")) == (1, 1)


@pytest.mark.parametrize(("status", "fault"), [(200, None), (302, "302"), (503, "503")])
async def test_a_collector_is_sent_the_headers_of_a_file_and_redirects_are_not_followed(
    tmp_path: Path, status: int, fault: str | None
) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer a-token\n\n")
    seen: list[tuple[str, str | None, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("Authorization"), await request.read()))
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server:
        collector = Collector(f"http://127.0.0.1:{server.port}/", tmp_path / "headers", None)
        if fault is None:
            await collector.post(gzip.compress(b"{}"))
        else:
            with pytest.raises(RefusedPush, match=fault):
                await collector.post(gzip.compress(b"{}"))
    assert seen == [("/v1/metrics", "Bearer a-token", b"{}")]
