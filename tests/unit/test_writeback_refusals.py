"""Summaries that kube-apiserver refuses: what happens to each, and that none is lost."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, strategies as st

from tests.jobs import job_ref, reported
from visibility_api.jobs.job import JobRef, Phase
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.writeback.queue import FORGOTTEN_S, Entry, WriteQueue
from visibility_api.writeback.writer import FORBIDDEN_RETRY_S, INTERVAL_S, LONGEST_PAUSE_S, REFUSED_RETRY_S

from .test_writeback_writer import running
from .virtual_time import in_virtual_time


class TestRefusals:
    @in_virtual_time
    async def test_fields_of_kubeflow_trainer_stay_and_ours_are_withdrawn(self) -> None:
        async with running() as bench:
            bench.say(1)
            await asyncio.sleep(1)
            bench.apiserver.foreign.add(("team-a", "bert"))
            for step in range(2, 1202):
                bench.say(step % 1000)
                await asyncio.sleep(1)
            # Tried again only after minutes; what is ours is taken away once.
            assert bench.outcomes == {"Written": 1, "OwnedByOther": 2}
            assert sum(status is None for _, _, status in bench.apiserver.writes) == 1
            times = bench.apiserver.times()
            assert times[-1] - times[-2] >= REFUSED_RETRY_S

    @in_virtual_time
    async def test_a_missing_right_stops_its_namespace_only_and_is_logged_once(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async with running() as bench:
            bench.apiserver.errors = [ApiError(403, "Forbidden", "no") for _ in range(2)]
            bench.say(1)
            await asyncio.sleep(1)
            for number in range(20):
                bench.say(1, of=job_ref(f"job-{number}"))
            await asyncio.sleep(FORBIDDEN_RETRY_S / 2)
            assert bench.outcomes == {"Forbidden": 1}
            bench.say(1, of=job_ref("gpt", namespace="team-b"))
            bench.apiserver.errors = []
            await asyncio.sleep(1)
            assert bench.status("gpt", "team-b") is not None
            bench.apiserver.errors = [ApiError(403, "Forbidden", "no")]
            await asyncio.sleep(FORBIDDEN_RETRY_S)
            assert bench.outcomes == {"Forbidden": 2, "Written": 1}
            await asyncio.sleep(2 * FORBIDDEN_RETRY_S)
            assert bench.outcomes == {"Forbidden": 2, "Written": 22}
        said = capsys.readouterr().out
        assert said.count("patch on trainjobs/status in apiGroup trainer.kubeflow.org") == 1

    @in_virtual_time
    async def test_trouble_of_the_apiserver_makes_pauses_that_grow_and_end(self) -> None:
        async with running() as bench:
            bench.apiserver.errors = [ApiError(429, "TooManyRequests"), *[Unreachable("reset")] * 8]
            for number in range(100):
                bench.say(1, of=job_ref(f"job-{number}"))
            await asyncio.sleep(300)
            times = [at for at, _, _ in bench.apiserver.writes]
            gaps = [round(b - a, 1) for a, b in itertools.pairwise(times[:10])]
            assert gaps == sorted(gaps)
            assert 1.0 <= gaps[0] < 2.0
            assert LONGEST_PAUSE_S - 1 <= gaps[-1] <= LONGEST_PAUSE_S + 1
            await asyncio.sleep(300)
            assert bench.outcomes == {"Busy": 1, "Unreachable": 8, "Written": 100}

    @in_virtual_time
    async def test_a_retry_after_is_kept_within_bounds(self) -> None:
        async with running() as bench:
            bench.apiserver.errors = [ApiError(429, retry_after_s=20.0), ApiError(429, retry_after_s=9e9)]
            bench.say(1)
            bench.say(1, of=job_ref("gpt"))
            await asyncio.sleep(1000)
            times = [at for at, _, _ in bench.apiserver.writes]
            assert times[1] - times[0] >= 20.0
            assert LONGEST_PAUSE_S <= times[2] - times[1] < LONGEST_PAUSE_S + 1

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [
            (ApiError(404, "NotFound"), "Gone"),
            (ApiError(422, "Invalid", "s3cr3t"), "Invalid"),
            (ApiError(400, "BadRequest", "s3cr3t"), "Invalid"),
            (ApiError(500, "", "s3cr3t: field not declared in schema"), "Failed"),
            (ApiError(401, "Unauthorized"), "Failed"),
        ],
        ids=lambda value: str(getattr(value, "status", value)),
    )
    def test_a_job_that_cannot_be_written_is_left_alone_and_delays_no_other(
        self, error: ApiError, outcome: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        @in_virtual_time
        async def case() -> None:
            async with running() as bench:
                bench.apiserver.errors = [error]
                for second in range(int(REFUSED_RETRY_S) - 5):
                    bench.say(second)
                    bench.say(second, of=job_ref("gpt"))
                    await asyncio.sleep(1)
                assert bench.outcomes[outcome] == 1
                assert len(bench.apiserver.times()) == 1
                assert 17 <= len(bench.apiserver.times("gpt")) <= 20
                bench.say(700)
                await asyncio.sleep(30)
                assert len(bench.apiserver.times()) == 2

        case()
        assert "s3cr3t" not in capsys.readouterr().out

    @in_virtual_time
    async def test_objects_that_cannot_be_written_delay_those_of_no_other_namespace(self) -> None:
        """etcd refuses an object that is too large with 500, and a tenant makes one so."""
        async with running() as bench:
            bench.apiserver.too_large = {"team-a", "team-c"}
            for number in range(24):
                bench.say(1, of=job_ref(f"job-{number}", namespace=("team-a", "team-c")[number % 2]))
            for second in range(120):
                bench.say(second, of=job_ref("gpt", namespace="team-b"))
                await asyncio.sleep(1)
            assert len(bench.apiserver.times("gpt")) == 4
            assert bench.outcomes["Failed"] >= 20

    @in_virtual_time
    async def test_a_refusal_that_is_the_same_for_every_job_is_logged_once(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async with running() as bench:
            bench.apiserver.errors = [ApiError(422, "Invalid", "no") for _ in range(100)]
            for number in range(100):
                bench.say(1, of=job_ref(f"job-{number}"))
            await asyncio.sleep(60)
            assert bench.outcomes == {"Invalid": 100}
        assert capsys.readouterr().out.count("status not written") == 1

    @in_virtual_time
    async def test_a_job_that_took_the_name_of_another_is_freed_of_its_numbers(self) -> None:
        async with running() as bench:
            bench.apiserver.uids["team-a", "bert"] = "another"
            bench.say(120)
            await asyncio.sleep(1)
            assert bench.outcomes == {"Recreated": 1}
            assert bench.status() is None
            bench.say(121)  # the watch has not told us yet
            await asyncio.sleep(60)
            assert bench.outcomes == {"Recreated": 1}
            bench.write_back.gone(job_ref())
            bench.say(5, of=job_ref(uid="another"))
            await asyncio.sleep(1)
            assert bench.outcomes == {"Recreated": 1, "Written": 1}

    @in_virtual_time
    async def test_an_unforeseen_fault_is_that_jobs_trouble_alone(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async with running() as bench:
            bench.say(1, metrics=(("loss", "\ud800 s3cr3t"),))  # no UTF-8
            bench.say(1, of=job_ref("gpt"))
            bench.say(1, of=job_ref("t5"), epoch=float("inf"))  # no count of anything
            await asyncio.sleep(1)
            assert bench.status("gpt") is not None
            assert bench.outcomes == {"Failed": 1, "Written": 1}
        assert "s3cr3t" not in capsys.readouterr().out


STEPS = st.sampled_from(["say", "end", "take", "done", "silence", "drop", "wait"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 3)), max_size=60))
def test_the_latest_word_of_every_job_comes_to_its_turn_whatever_happens(
    steps: list[tuple[str, int]],
) -> None:
    queue, now = WriteQueue(), 1.0
    latest: dict[JobRef, JobProgress] = {}
    under_way: list[tuple[JobRef, Entry, JobProgress]] = []
    dealt_with: set[int] = set()

    def take() -> None:
        while (turn := queue.take(now)) is not None:
            job, entry = turn
            assert entry.document is latest[job]
            assert all(other is not entry for _, other, _ in under_way)
            under_way.append((job, entry, entry.document))

    def finish() -> None:
        queue.done(*under_way[0], not_before=now + INTERVAL_S)
        dealt_with.add(id(under_way.pop(0)[2]))

    kept = []  # so that no two documents share an id
    for step, number in steps:
        job = job_ref(f"job-{number}")
        if step in ("say", "end"):
            latest[job] = reported(1, of=job, phase=Phase.RUNNING if step == "say" else Phase.SUCCEEDED)
            kept.append(latest[job])
            queue.put(latest[job], now)
        elif step == "take":
            take()
        elif step == "done" and under_way:
            finish()
        elif step in ("silence", "drop"):
            queue.withhold(job) if step == "silence" else queue.drop(job)
            latest.pop(job, None)
        elif step == "wait":
            now += 10.0
    for _ in range(3):
        while under_way:
            finish()
        now += 2 * INTERVAL_S
        take()
    assert len(queue) == 0
    assert {id(said) for said in latest.values()} <= dealt_with


def test_a_namespace_that_is_held_again_is_no_news_and_one_that_is_gone_is_forgotten() -> None:
    queue = WriteQueue()
    assert queue.hold("gone", until=300.0)
    assert queue.hold("there", until=300.0)
    for day in range(1, 4):
        assert not queue.hold("there", until=300.0 + day * FORGOTTEN_S / 2)
    assert queue.hold("gone", until=300.0 + 2 * FORGOTTEN_S)
