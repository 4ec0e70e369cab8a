"""The metrics of each job at /metrics/jobs: what they say, for how many jobs, and who may scrape them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections import Counter
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from tests.jobs import JOB, NOW, RANK0, T0, document, spent
from tests.unit.api_shell import Shell
from tests.unit.test_workloads_inspection import Cluster, replica
from tests.unit.virtual_time import in_virtual_time
from tests.workload_objects import TORCH, all_pods
from visibility_api.errors.status import Forbidden
from visibility_api.job_metrics import exposition
from visibility_api.job_metrics.exposition import JobMetrics, JobMetricsSource
from visibility_api.job_metrics.families import FAMILIES, JOB_LABELS, LEFT_OUT
from visibility_api.jobs.job import Phase, TrainingJob
from visibility_api.jobs.summary import Condition, JobProgress
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads import job_pods as module
from visibility_api.workloads.job_pods import JobPods, Pods
from visibility_api.workloads.pod_lists import PodLists

HELD = replace(JOB, accelerators=(("nvidia.com/gpu", 8),), labels={"kueue.x-k8s.io/queue-name": "research"})
SPENT = {"Queued": 60.0, "Productive": 900.0, "LostProgress": 0.4}
OF_HELD = (("kind", "TrainJob"), ("namespace", "team-a"), ("trainjob", "bert"))


def full(**more: Any) -> JobProgress:
    """A job of which everything is known."""
    shown = document(
        progress_percentage=42,
        completion_at=NOW + timedelta(hours=1),
        started_at=T0,
        ended_at=NOW,
        attempts=3,
        seen_at=NOW,
        step=420,
        total_steps=1000,
        steps_per_s=1.5,
        metrics=(("loss", "1.25"), ("lr", "0.1"), ("accuracy", "NaN")),
        checkpoint=(400, NOW - timedelta(minutes=1)),
        goodput=spent(SPENT),
        conditions=tuple(
            Condition(type=type_, status=status, reason="R", message="m", since=T0)
            for type_, status in (("Stalled", "True"), ("Fresh", "False"), ("Diverged", "Unknown"))
        ),
        **more,
    )
    return replace(shown, job=HELD)


class Scene:
    """A replica with jobs."""

    def __init__(self, *documents: JobProgress, most: int = 100) -> None:
        self.store = MemoryStore(base_revision=1)
        self.log = JobLog(self.store)
        self.is_owner = True
        self.pods: Pods = ()
        for each in documents:
            self.store.put(each)
        self.metrics = JobMetrics(
            JobMetricsSource(
                store=self.store,
                most=most,
                metrics=frozenset(("loss", "accuracy")),
                kinds=lambda: {"trainjobs": "TrainJob", "jobs": "Job"},
                is_owner=lambda: self.is_owner,
                pods=lambda _job: self.pods,
            ),
            self.log,
        )

    def report(self, document: JobProgress) -> None:
        """As the owner of the log does it."""
        self.store.put(document)
        self.log.set_state(document.job.ref, None, None)

    def scrape(self) -> str:
        async def read() -> bytes:
            return b"".join([piece async for piece in self.metrics.pieces()])

        return asyncio.run(read()).decode()

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        found = [each for family in text_string_to_metric_families(self.scrape()) for each in family.samples]
        samples = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in found}
        assert len(samples) == len(found)  # no series twice
        return samples

    def of(self, name: str) -> dict[str, float]:
        """Samples by the values of their own labels, of the one job."""
        return {
            "/".join(value for label, value in labels if label not in JOB_LABELS): value
            for (found, labels), value in self.samples().items()
            if found == name
        }


EXPECTED: dict[str, dict[str, float]] = {
    "trainjob_info": {"gpus/trainjobs/research/": 1},
    "trainjob_status_phase": {each.value: int(each is Phase.RUNNING) for each in Phase},
    "trainjob_status_condition": {"Stalled": 1, "Fresh": 0},  # Unknown is neither
    "trainjob_accelerators": {"nvidia.com/gpu": 8},
    "trainjob_pod_info": {"gpu-1/bert-node-0-0-abcde": 1, "gpu-2/bert-node-0-1-fghij": 1},
    "trainjob_attempts_total": {"": 3},
    "trainjob_start_timestamp_seconds": {"": T0.timestamp()},
    "trainjob_end_timestamp_seconds": {"": NOW.timestamp()},
    "trainjob_planned_steps": {"": 1000},
    "trainjob_progress_ratio": {"": 0.42},
    "trainjob_step": {"": 420},
    "trainjob_steps_per_second": {"": 1.5},
    "trainjob_estimated_completion_timestamp_seconds": {"": NOW.timestamp() + 3600},
    "trainjob_last_report_timestamp_seconds": {"": NOW.timestamp()},
    "trainjob_checkpoint_timestamp_seconds": {"": NOW.timestamp() - 60},
    "trainjob_time_seconds_total": {"Queued": 60, "Productive": 900},
    "trainjob_reported_value": {"loss": 1.25, "accuracy": float("nan")},
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_metric_says_what_the_job_shows_and_nothing_of_one_that_shows_nothing(family: Any) -> None:
    held = replace(HELD, rank0=replace(RANK0, node_pool="gpus"))
    scene = Scene(replace(full(), job=held))
    scene.pods = (("bert-node-0-0-abcde", "gpu-1"), ("bert-node-0-1-fghij", "gpu-2"))
    assert scene.of(family.name) == pytest.approx(EXPECTED[family.name], nan_ok=True)
    bare = Scene(document(phase=Phase.PENDING)).of(family.name)
    assert bool(bare) is not bool(family.absent)


def test_the_text_is_what_promtool_takes_for_well_made() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here")
    text = Scene(full(), document("other", namespace="b"), document("c", namespace="b"), most=2).scrape()
    told = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_a_scrape_shows_what_has_changed_since_the_last_one() -> None:
    scene = Scene(full())
    before = scene.samples()
    assert scene.samples() == pytest.approx(before, nan_ok=True)
    scene.pods = (("bert-node-0-1-fghij", "gpu-2"),)
    changed = replace(full(), step=421, attempts=4, metrics=(("loss", "1.0"),), goodput=spent({"Stalled": 5}))
    scene.store.put(changed)
    assert scene.samples() == as_first_scraped(scene)
    scene.store.delete(HELD.ref)
    assert not scene.samples()


def as_first_scraped(scene: Scene) -> dict[Any, float]:
    """The same jobs, to a replica that is scraped for the first time; counters go on."""
    other = Scene(*(each.document for each in scene.store.list("trainjobs").entries))
    other.pods = scene.pods
    kept = {"Queued": 60.0, "Productive": 900.0}
    name = "trainjob_time_seconds_total"
    return other.samples() | {(name, (("activity", each), *OF_HELD)): some for each, some in kept.items()}


def test_what_a_report_changes_is_rendered_at_once_so_that_a_scrape_only_joins_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, render = Scene(full()), exposition._lines
    scene.scrape()
    changed = replace(full(), step=421, attempts=4, metrics=(("loss", "1.0"),), goodput=spent({"Stalled": 5}))
    scene.report(changed)
    monkeypatch.setattr(exposition, "_lines", None)  # nothing is left to do
    assert "} 421\n" in scene.scrape()
    scene.report(replace(changed, attempts=5))  # which breaks no report
    monkeypatch.setattr(exposition, "_lines", render)
    assert scene.of("trainjob_attempts_total") == {"": 5}
    assert scene.samples() == as_first_scraped(scene)
    scene.report(full())
    assert scene.of("trainjob_step") == {"": 420}


def test_a_counter_of_time_keeps_what_was_scraped_and_not_what_it_was_between_two_scrapes() -> None:
    scene = Scene(full())
    scene.scrape()
    for sums in ({"Productive": 1000.0}, {"Productive": 950.0, "Stalled": 50.0}):
        scene.report(replace(full(), goodput=spent(sums)))
    expected = {"Queued": 60, "Productive": 950, "Stalled": 50}
    assert scene.of("trainjob_time_seconds_total") == expected


def test_a_counter_of_time_never_shrinks_when_what_a_job_did_is_found_to_be_another_activity() -> None:
    scene = Scene(full())
    scene.scrape()
    for sums, expected in (
        ({"Productive": 950.0}, {"Queued": 60, "Productive": 950}),
        ({"Productive": 940.0, "Stalled": 70.0}, {"Queued": 60, "Productive": 950, "Stalled": 70}),
        ({"Productive": 960.0, "Stalled": 70.0}, {"Queued": 60, "Productive": 960, "Stalled": 70}),
    ):
        scene.store.put(replace(full(), goodput=spent(sums)))
        assert scene.of("trainjob_time_seconds_total") == expected
    scene.store.put(replace(full(), goodput=b"damaged"))
    assert scene.of("trainjob_time_seconds_total")["Productive"] == 960


@pytest.mark.parametrize(
    ("jobs", "most", "shown"),
    [
        ({"a": 3, "b": 2}, 5, {"a": 3, "b": 2}),
        ({"a": 90, "b": 2, "c": 5}, 12, {"a": 5, "b": 2, "c": 5}),
        ({"a": 90, "b": 2, "c": 50}, 12, {"a": 5, "b": 2, "c": 5}),
        ({"a": 9, "b": 9, "c": 9}, 2, {}),
        ({"a": 9}, 2, {"a": 2}),
    ],
)
def test_namespaces_share_the_limit_and_one_with_many_jobs_hides_its_own_only(
    jobs: dict[str, int], most: int, shown: dict[str, int]
) -> None:
    documents = [document(f"j{n}", namespace=each) for each, some in jobs.items() for n in range(some)]
    samples = Scene(*documents, most=most).samples()
    assert Counter(dict(labels)["namespace"] for name, labels in samples if name == "trainjob_info") == shown
    left_out = {
        dict(labels)["namespace"]: n for (name, labels), n in samples.items() if name == LEFT_OUT.name
    }
    assert left_out == {each: n - shown.get(each, 0) for each, n in jobs.items() if n > shown.get(each, 0)}


def test_of_a_namespace_jobs_that_have_not_ended_are_shown_first_and_the_oldest_stay() -> None:
    names = {"done": (0, Phase.SUCCEEDED), "old": (1, Phase.RUNNING), "new": (2, Phase.RUNNING)}
    documents = []
    for name, (minutes, phase) in names.items():
        made = document(name, phase=phase)
        documents.append(replace(made, job=replace(made.job, created_at=T0 + timedelta(minutes=minutes))))
    for most, expected in ((1, {"old"}), (2, {"old", "new"})):
        samples = Scene(*documents, most=most).samples()
        assert {dict(labels)["trainjob"] for name, labels in samples if name == "trainjob_info"} == expected


def test_no_text_that_a_user_chooses_breaks_a_line_or_rules_a_terminal() -> None:
    hostile = 'a"} 1\nevil{x="\\\x1b[2J'
    shown = full()
    job = replace(HELD, labels={"kueue.x-k8s.io/queue-name": hostile}, accelerators=((hostile, 1),))
    text = Scene(
        replace(shown, job=job, message=hostile, metrics=((hostile, "1"), ("loss", hostile)))
    ).scrape()
    assert "\x1b" not in text
    names = {family.name for family in text_string_to_metric_families(text)}
    assert names <= {each.name.removesuffix("_total") for each in (*FAMILIES, LEFT_OUT)}


def test_names_that_begin_alike_make_one_series() -> None:
    """Prometheus drops samples of a series that is there twice, and its own alert fires."""
    beginning = "resourceclaim/" + "x" * 100
    held = tuple((beginning + end, number) for number, end in enumerate(("a", "b", "c\x1b"), start=1))
    assert list(
        Scene(replace(full(), job=replace(HELD, accelerators=held))).of("trainjob_accelerators").values()
    ) == [6]


async def test_only_the_owner_has_them_and_who_scrapes_needs_a_right_of_its_own() -> None:
    scene = Scene(full())
    shell = Shell(job_metrics=scene.metrics)
    answer = await shell.get("/metrics/jobs")
    assert answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    assert 'trainjob_step{namespace="team-a",kind="TrainJob",trainjob="bert"} 420' in answer.text
    assert (shell.asked[-1].verb, shell.asked[-1].path) == ("get", "/metrics/jobs")
    assert "trainjob_" not in (await shell.get("/metrics")).text
    assert (await shell.get("/metrics/jobs", method="HEAD")).body == b""
    scene.is_owner = False
    assert (await shell.get("/metrics/jobs")).body == b""
    assert (await Shell().get("/metrics/jobs")).status == 404
    refused = Shell(job_metrics=scene.metrics, verdict=Forbidden("no"))
    assert (await refused.get("/metrics/jobs")).status == 403


RUNNING = replace(HELD, rank0=RANK0)


def pods_of(cluster: object) -> JobPods:
    return JobPods(PodLists(cast(KubeClient, cluster), lambda _ref: all_pods(TORCH)), clock=_now)


def _now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("fault", [ApiError(500), RuntimeError("which nobody has foreseen")])
def test_pods_are_listed_when_they_are_asked_for_and_again_with_the_next_attempt_or_later(
    fault: Exception,
) -> None:
    cluster = Cluster([replica(0, {}), replica(1, {})], [replica(0, {})], fault, [replica(0, {})])

    @in_virtual_time
    async def scene() -> None:
        pods = pods_of(cluster)
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(pods.run())

            async def after(seconds: float, job: TrainingJob) -> list[str]:
                await asyncio.sleep(seconds)
                return [name for name, _ in pods.of(job)]

            assert await after(0, RUNNING) == []
            assert len(await after(2, RUNNING)) == 2
            assert len(await after(2, RUNNING)) == 2
            restarted = replace(RUNNING, rank0=replace(RANK0, restart_count=1))
            assert await after(1, restarted) == []
            assert len(await after(2, restarted)) == 1
            await after(module.AGAIN_S, restarted)
            assert await after(2, restarted) == []  # that failed
            await after(module.AGAIN_AFTER_FAILURE_S, restarted)
            assert len(await after(2, restarted)) == 1
            for other in (replace(RUNNING, accelerators=()), replace(RUNNING, phase=Phase.SUSPENDED)):
                assert pods.of(other) == ()
            loop.cancel()

    scene()
