"""The report in a TrainJob's status: read as an observation, written within the limits of the CRD."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from tests.workload_objects import described
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import Phase, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.kinds.trainjob import TRAINJOBS, TrainJob, TrainJobKind
from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.fields import MAX_INTEGER, MAX_METRICS
from visibility_api.reports.trainer_status import MAX_INT32, TrainerMetric, TrainerStatus
from visibility_api.workloads.inventory import Inventory, reported_progress
from visibility_api.writeback.trainer_status import fingerprint, summarize

AT = datetime(2026, 1, 23, 10, 30, 45, 123456, tzinfo=UTC)
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def status(**fields: Any) -> TrainerStatus:
    return msgspec.convert({"lastUpdatedTime": "2026-01-23T10:30:45.123456Z", **fields}, TrainerStatus)


def read(**fields: Any) -> Progress:
    found = reported_progress(status(**fields))
    assert found is not None
    return found


def trainjob(*, managed_by: str | None = MULTIKUEUE, suspend: bool = False, **status: Any) -> TrainJob:
    return msgspec.convert(
        {
            "metadata": {"name": "bert", "namespace": "team-a", "uid": "t1"},
            "spec": {"managedBy": managed_by, "suspend": suspend},
            "status": status or None,
        },
        TrainJob,
    )


def counts(name: str, **fields: int) -> dict[str, Any]:
    return {"name": name, "ready": 0, "active": 0, "succeeded": 0, "failed": 0, "suspended": 0, **fields}


class TestReading:
    def test_the_numbers_are_taken_over(self) -> None:
        assert read(
            progressPercentage=45,
            estimatedRemainingSeconds=795,
            metrics=[{"name": "loss", "value": "0.2347"}],
        ) == Progress(timestamp=AT, progress_percentage=45, remaining_s=795, metrics=(("loss", "0.2347"),))

    def test_steps_and_epochs_are_lifted_out_of_the_metrics(self) -> None:
        found = read(
            metrics=[
                {"name": "current_step", "value": "120"},
                {"name": "total_steps", "value": "500"},
                {"name": "current_epoch", "value": "1.5"},
                {"name": "total_epochs", "value": "3"},
                {"name": "loss", "value": "nan"},
            ]
        )
        assert (found.step, found.total_steps, found.epoch, found.total_epochs) == (120, 500, 1.5, 3.0)
        assert found.metrics == (("loss", "nan"),)

    def test_a_percentage_beyond_its_bounds_is_clamped(self) -> None:
        assert read(progressPercentage=250).progress_percentage == 100
        assert read(progressPercentage=-3).progress_percentage == 0

    @pytest.mark.parametrize(
        "time", ["", "yesterday", "2026-01-23", "2026-01-23T10:30:45", "0000-00-00T00:00:00Z"]
    )
    def test_without_a_time_that_can_be_read_there_is_no_report(self, time: str) -> None:
        assert reported_progress(status(progressPercentage=45, lastUpdatedTime=time)) is None

    def test_without_a_time_or_a_status_there_is_no_report(self) -> None:
        assert reported_progress(TrainerStatus(progress_percentage=45)) is None
        assert reported_progress(None) is None

    @given(
        st.builds(
            TrainerStatus,
            progress_percentage=st.none() | st.integers(),
            estimated_remaining_seconds=st.none() | st.integers(),
            metrics=st.none()
            | st.lists(
                st.builds(TrainerMetric, name=st.text(max_size=80), value=st.text(max_size=80)), max_size=300
            ).map(tuple),
            last_updated_time=st.none() | st.text() | st.just("2026-01-23T10:30:45Z"),
        )
    )
    def test_anything_is_a_report_within_bounds_or_none(self, anything: TrainerStatus) -> None:
        found = reported_progress(anything)
        if found is not None:
            assert found.timestamp is not None
            assert found.progress_percentage is None or 0 <= found.progress_percentage <= 100
            assert len(found.metrics) <= MAX_METRICS


class TestWriting:
    def test_only_what_is_known_is_written(self) -> None:
        assert msgspec.json.encode(summarize(Progress(), AT)) == (
            b'{"lastUpdatedTime":"2026-01-23T10:30:45.123456Z"}'
        )

    def test_everything_comes_back_as_it_was_written(self) -> None:
        said = Progress(
            timestamp=AT,
            step=120,
            total_steps=500,
            epoch=1.5,
            total_epochs=3.0,
            progress_percentage=24,
            remaining_s=795,
            metrics=(("loss", "0.2347"), ("rewards/margins", "-1e-05")),
        )
        assert reported_progress(summarize(said, AT)) == said

    @given(
        st.builds(
            Progress,
            step=st.none() | st.integers(0, MAX_INTEGER),
            epoch=st.none() | st.floats(0, MAX_INTEGER),
            progress_percentage=st.none() | st.integers(0, 100),
            remaining_s=st.none() | st.integers(0, MAX_INTEGER),
            metrics=st.dictionaries(
                st.text(min_size=1, max_size=64) | st.sampled_from(["current_step", "total_epochs"]),
                st.text(min_size=1, max_size=64),
                max_size=MAX_METRICS,
            ).map(lambda metrics: tuple(metrics.items())),
        ),
        st.datetimes(timezones=st.just(UTC)),
    )
    def test_nothing_is_written_that_the_crd_would_refuse(self, said: Progress, at: datetime) -> None:
        fields = msgspec.json.decode(msgspec.json.encode(summarize(said, at)))
        assert 0 <= fields.get("estimatedRemainingSeconds", 0) <= MAX_INT32
        metrics = fields.get("metrics", [])
        assert len(metrics) <= MAX_METRICS
        assert all(1 <= len(m["name"]) <= 64 and 1 <= len(m["value"]) <= 64 for m in metrics)
        assert len({m["name"] for m in metrics}) == len(metrics)

    def test_times_alone_are_no_other_numbers(self) -> None:
        said = Progress(step=1, progress_percentage=1, remaining_s=99)
        later = Progress(step=1, progress_percentage=1, remaining_s=60)
        further = Progress(step=2, progress_percentage=1, remaining_s=60)
        assert fingerprint(summarize(said, AT)) == fingerprint(summarize(later, AT + timedelta(seconds=39)))
        assert fingerprint(summarize(said, AT)) != fingerprint(summarize(further, AT))


class TestInventory:
    async def test_the_report_in_a_status_is_an_observation_like_any_other(self) -> None:
        seen: list[tuple[TrainingJob, Observation | None]] = []
        inventory = Inventory(
            (TrainJobKind(),),
            on_job=lambda job, status: seen.append((job, status)),
            on_gone=lambda _: None,
            now=lambda: AT,
        )
        for objects in inventory.collections:
            await inventory.list(objects, in_slices(()))
        inventory.change(TRAINJOBS, "ADDED", trainjob(managed_by=None))
        inventory.change(
            TRAINJOBS,
            "MODIFIED",
            trainjob(
                managed_by=None,
                trainerStatus={"progressPercentage": 45, "lastUpdatedTime": "2026-01-23T10:30:45Z"},
            ),
        )
        (job, before), (same, status) = seen
        assert (job, before) == (same, None)
        assert status == Observation(
            ref=job.ref,
            attempt="",
            source="status",
            at=AT,
            outcome=Progress(timestamp=AT.replace(microsecond=0), progress_percentage=45),
        )
        assert not job.runs_elsewhere

    async def test_a_job_is_handed_on_when_nothing_but_its_status_changed(self) -> None:
        seen: list[Progress | Refused | None] = []
        inventory = Inventory(
            (TrainJobKind(),),
            on_job=lambda _job, status: seen.append(status and status.outcome),
            on_gone=lambda _: None,
        )
        for objects in inventory.collections:
            await inventory.list(objects, in_slices(()))
        for percent in (45, 45, 46):
            inventory.change(
                TRAINJOBS,
                "MODIFIED",
                trainjob(
                    trainerStatus={"progressPercentage": percent, "lastUpdatedTime": "2026-01-23T10:30:45Z"}
                ),
            )
        assert [isinstance(of, Progress) and of.progress_percentage for of in seen] == [45, 46]


class TestPhaseOfAJobThatRunsElsewhere:
    """MultiKueue: no JobSet, no pods; the status is all there is."""

    NUMBERS = {"progressPercentage": 45, "lastUpdatedTime": "2026-01-23T10:30:45Z"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("status", "phase", "reason"),
        [
            ({}, Phase.UNKNOWN, "ManagedElsewhere"),
            ({"conditions": [{"type": "Suspended", "status": "False"}]}, Phase.PENDING, "ManagedElsewhere"),
            ({"jobsStatus": [counts("node")]}, Phase.PENDING, "ManagedElsewhere"),
            ({"jobsStatus": [counts("node", active=1)]}, Phase.PENDING, "ManagedElsewhere"),
            ({"jobsStatus": [counts("node", ready=1)]}, Phase.RUNNING, "TrainerReady"),
            (
                {"jobsStatus": [counts("dataset-initializer", active=1), counts("node")]},
                Phase.INITIALIZING,
                "InitializerRunning",
            ),
            ({"trainerStatus": NUMBERS}, Phase.RUNNING, "StatusReported"),
            (
                {"trainerStatus": NUMBERS, "jobsStatus": [counts("node", active=1)]},
                Phase.RUNNING,
                "StatusReported",
            ),
            # The numbers of an earlier run outlive it.
            ({"trainerStatus": NUMBERS, "jobsStatus": [counts("node")]}, Phase.PENDING, "ManagedElsewhere"),
            (
                {"trainerStatus": NUMBERS, "conditions": [{"type": "Complete", "status": "True"}]},
                Phase.SUCCEEDED,
                "Complete",
            ),
        ],
    )
    def test_it_follows_from_the_status(self, status: dict[str, Any], phase: Phase, reason: str) -> None:
        job = described(trainjob(**status), None, ())
        assert (job.phase, job.reason) == (phase, reason)
        assert job.runs_elsewhere

    def test_one_that_is_not_admitted_yet_is_suspended(self) -> None:
        assert described(trainjob(suspend=True), None, ()).phase is Phase.SUSPENDED

    def test_one_of_our_own_without_a_jobset_is_pending_whatever_numbers_it_kept(self) -> None:
        job = described(trainjob(managed_by=None, trainerStatus=self.NUMBERS), None, ())
        assert (job.phase, job.reason) == (Phase.PENDING, "NoJobSet")
