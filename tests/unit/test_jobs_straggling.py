"""Straggling: which ranks are slower than the others, by what rank 0 says of them."""

from __future__ import annotations

import json
import math
import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests import paces
from tests.jobs import JOB, RANK0, REF, T0
from trainjob_progress.document import Snapshot, encode
from trainjob_progress.ranks import make_columns
from visibility_api.diagnosis.claims import PodState, work_of
from visibility_api.diagnosis.reading import RankState, RankWork, read_pod
from visibility_api.jobs import straggling
from visibility_api.jobs.job import Phase, ProbeHints, Thresholds
from visibility_api.jobs.straggling import REPORTS
from visibility_api.reports.document import Progress
from visibility_api.reports.ranks import NO_RANKS, RankRow, Ranks, make_ranks, read_ranks
from visibility_api.reports.report import parse_report

from .bench import Bench, at

RUNS = 4  # of each sort here; python -m benchmarks.verdicts has 1,000
EVEN = [0.4, 0.41, 0.39, 0.4]
SLOW = [0.4, 0.41, 0.39, 0.9]


def columns(**given: object) -> Ranks:
    return read_ranks(given)


class Gathering(Bench):
    """A bench to which rank 0 reports of all ranks, as the reporter writes it."""

    def say(self, step: int = 0, every_s: float = 20, **given: object) -> None:
        self.advance(every_s)
        now_s = self.now.timestamp()
        found = {"step_seconds": None, "steps": None, "names": None, **given}
        written = Snapshot(
            state="running",
            timestamp=now_s,
            start_time=now_s - 3600,
            step=step or int(now_s) % 10**6,
            ranks=make_columns(now_s, **found),  # type: ignore[arg-type]
        )
        report = parse_report(encode(written))
        assert isinstance(report, Progress)
        self.observe(report)

    def message(self) -> str:
        found = self.shown("Straggling")
        return found.message


@pytest.fixture
def bench() -> Gathering:
    bench = Gathering()
    bench.job(JOB)
    return bench


class TestSimulatedRuns:
    def test_no_rank_that_is_well_is_said_to_lag(self) -> None:
        for number in range(RUNS):
            assert paces.judge(random.Random(f"0 even {number}")).falsely is None, number

    def test_a_slow_rank_is_found(self) -> None:
        some = [paces.judge(random.Random(f"0 lags {number}"), lags=True) for number in range(RUNS)]
        assert all(each.rightly is not None and each.falsely is None for each in some)

    def test_nor_by_its_own_file_which_finds_a_slow_one_as_well(self) -> None:
        for number in range(5 * RUNS):
            assert paces.judge_files(random.Random(f"0 even {number}")).falsely is None, number
            found = paces.judge_files(random.Random(f"0 lags {number}"), lags=True)
            assert (found.rightly is not None, found.falsely) == (True, None), number


def test_of_very_many_slow_ranks_the_slowest_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with all others: a job whose pods claim 8,192 kept the event loop for 1.5 s."""
    compared: list[float] = []
    is_beyond = straggling._is_beyond

    def counted(seconds: float, *of: Any) -> bool:
        compared.append(seconds)
        return is_beyond(seconds, *of)

    monkeypatch.setattr(straggling, "_is_beyond", counted)
    rows = [RankRow(rank, "", None, 1.0 if rank < 510 else float(rank)) for rank in range(1000)]
    found = straggling.Gathered().advance(
        make_ranks(T0, rows, is_median=True), T0, attempt="a", factor=None, pause_s=60.0
    )
    assert [each.rank for each in found.slow] == list(range(992, 1000))
    assert compared == list(range(992, 1000))


def test_the_spread_of_the_others_is_their_median_distance() -> None:
    rng = random.Random("spread")
    for _ in range(300):
        ordered = sorted(rng.choice([1.0, 2.0, rng.random(), math.inf]) for _ in range(rng.randint(1, 9)))
        for number in range(1, len(ordered) + 1):
            middle = rng.uniform(0, 2)
            expected = sorted(abs(each - middle) for each in ordered)[number - 1]
            assert straggling._nearest(ordered, middle, number) == pytest.approx(expected)


class TestTheCondition:
    def test_it_is_absent_where_nothing_is_said_of_other_ranks(self, bench: Gathering) -> None:
        bench.report(10)
        assert bench.last.condition("Straggling") is None

    def test_it_is_unknown_until_there_were_enough_reports(self, bench: Gathering) -> None:
        for number in range(REPORTS):
            assert number == 0 or bench.condition("Straggling") == ("Unknown", "NotJudged")
            bench.say(step_seconds=EVEN)
        assert bench.condition("Straggling") == ("False", "NoSlowReplica")

    def test_it_names_the_slow_replica_and_how_slow_it_is(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=SLOW, names=[f"bert-node-0-{rank}" for rank in range(4)])
        assert bench.condition("Straggling") == ("True", "SlowReplica")
        assert bench.message() == (
            "Rank 3 (bert-node-0-3) takes 0.9 s for a step, 2.2 times as long as the median of the 3 others"
            " (0.4 s). Check its node, its accelerator and its data."
        )

    def test_it_began_with_the_first_slow_report(self, bench: Gathering) -> None:
        for _ in range(5):
            bench.say(step_seconds=EVEN)
        began = bench.now + timedelta(seconds=20)
        for _ in range(REPORTS):
            bench.say(step_seconds=SLOW)
        found = bench.shown("Straggling")
        assert found.since == began

    def test_it_keeps_its_time_while_another_rank_takes_over(self, bench: Gathering) -> None:
        for step_seconds in (SLOW, [0.4, 0.41, 0.9, 0.91], [0.4, 0.41, 0.9, 0.4]):
            for _ in range(REPORTS):
                bench.say(step_seconds=step_seconds)
            found = bench.shown("Straggling")
            assert (found.status, found.since) == ("True", T0 + timedelta(seconds=20))
        assert found.message.startswith("Rank 2 ")

    def test_it_ends_when_the_rank_is_no_longer_slow(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=SLOW)
        bench.say(step_seconds=EVEN)
        assert bench.condition("Straggling") == ("True", "SlowReplica")  # one report is no proof
        bench.say(step_seconds=EVEN)
        assert bench.condition("Straggling") == ("False", "NoSlowReplica")

    def test_a_report_that_is_read_again_counts_once(self, bench: Gathering) -> None:
        bench.say(step_seconds=SLOW)
        [row] = [columns(rank=[0, 1], stepSeconds=[0.4, 0.9])]
        for step in range(100, 100 + 2 * REPORTS):
            bench.advance(20)
            bench.observe(Progress(timestamp=bench.now, step=step, ranks=row))
        assert bench.condition("Straggling") == ("Unknown", "NotJudged")

    def test_many_reports_within_a_short_time_are_not_enough(self, bench: Gathering) -> None:
        for _ in range(3 * REPORTS):
            bench.say(step_seconds=SLOW, every_s=2)
        assert bench.condition("Straggling") == ("False", "NoSlowReplica")

    def test_of_two_ranks_each_is_compared_with_the_other(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=[1.0, 0.25])
        assert "Rank 0 takes 1 s for a step, 4 times as long as the other one (0.25 s)." in bench.message()

    def test_a_slow_node_is_all_of_its_ranks(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=[0.4] * 6 + [0.91, 0.9])
        assert bench.message().startswith("Rank 6 takes 0.91 s for a step")
        assert "Also slow: rank 7." in bench.message()

    def test_ranks_whose_times_vary_widely_are_not_slow(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
        assert bench.condition("Straggling") == ("False", "NoSlowReplica")

    def test_steps_tell_where_ranks_do_not_wait_for_each_other(self, bench: Gathering) -> None:
        for number in range(100):
            bench.say(steps=[40 * number, 41 * number, 39 * number, 10 * number])
        assert bench.condition("Straggling") == ("True", "SlowReplica")
        assert "Rank 3 takes 2 s for a step, 4 times as long" in bench.message()

    def test_a_rank_that_stands_still_lags_after_the_pause_that_any_run_may_make(
        self, bench: Gathering
    ) -> None:
        moved = 30
        for number in range(moved):
            bench.say(steps=[40 * number] * 4)
        for number in range(moved, moved + 14):
            bench.say(steps=[*[40 * number] * 3, 40 * moved])
        assert bench.condition("Straggling") == ("False", "NoSlowReplica")  # it may evaluate
        for number in range(moved + 14, moved + 60):
            bench.say(steps=[*[40 * number] * 3, 40 * moved])
        assert "Rank 3 does not advance, in contrast to the median of the 3 others" in bench.message()

    def test_a_run_of_few_steps_is_compared_over_longer(self, bench: Gathering) -> None:
        for number in range(400):
            bench.say(steps=[number // 10, number // 10, number // 9, number // 11])
        assert bench.condition("Straggling")[0] != "True"

    def test_another_attempt_begins_anew(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=SLOW)
        again = replace(RANK0, restart_count=1)
        bench.job(replace(JOB, rank0=again))
        assert bench.condition("Straggling") == ("False", "NotTraining")
        bench.advance(20)
        bench.observe(Progress(timestamp=bench.now, step=1), attempt=again.attempt)
        assert bench.last.condition("Straggling") is None

    def test_a_job_that_has_ended_does_not_straggle(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=SLOW)
        bench.job(replace(JOB, phase=Phase.SUCCEEDED))
        assert bench.condition("Straggling") == ("False", "NotTraining")

    @pytest.mark.parametrize(
        ("above", "status"), [(None, "True"), (3.0, "False"), (1.5, "True"), (float("inf"), None)]
    )
    def test_an_annotation_says_how_slow_is_slow(
        self, bench: Gathering, above: float | None, status: str | None
    ) -> None:
        bench.job(replace(JOB, hints=ProbeHints(thresholds=Thresholds(straggling_above=above))))
        for _ in range(REPORTS):
            bench.say(step_seconds=SLOW)
        found = bench.last.condition("Straggling")
        assert (found.status if found is not None else None) == status

    def test_another_process_goes_on_from_what_is_remembered(self, bench: Gathering) -> None:
        for _ in range(REPORTS - 1):
            bench.say(step_seconds=SLOW)
        other = Gathering()
        other.now = bench.now
        other.tracker._recall = lambda ref: (bench.tracker.state(ref), None)
        other.job(JOB)
        other.say(step_seconds=SLOW)
        assert other.condition("Straggling") == ("True", "SlowReplica")

    def test_what_is_remembered_of_many_slow_ranks_is_bounded(self, bench: Gathering) -> None:
        for _ in range(REPORTS):
            bench.say(step_seconds=[0.4] * 33 + [0.9] * 31, names=["x" * 64] * 64)
        assert bench.condition("Straggling") == ("True", "SlowReplica")
        assert len(msgspec.json.encode(bench.memory().gathered)) < 2048

    def test_no_report_of_ranks_is_kept_with_the_report(self, bench: Gathering) -> None:
        bench.say(step_seconds=SLOW)
        memory = bench.memory()
        assert memory.report is not None
        assert memory.report.ranks == NO_RANKS


SLOW_LOADER = (0.93, 1.0, 0.41, "DataLoading")
WORKS = {
    "in its loader": (
        SLOW_LOADER,
        (
            "Rank 3 (bert-node-0-3, node gpu-3) works 0.93 s for a step, the fastest of 3 others 0.4 s"
            " (relative score 0.43). At its best it worked 0.41 s (individual score 0.44). Most of it is"
            " waiting for data. Check its volume, its network and its loader's workers."
        ),
    ),
    "computing": ((0.6, 0.62, 0.6, "Productive"), "Most of it is computing. Check its node"),
    "saving": ((0.6, 0.62, 0.4, "CheckpointSave"), "Most of it is saving checkpoints. Check the volume"),
    "by a reporter that says no more": ((0.6, None, None, ""), "(relative score 0.67). Check its node"),
    "just not slow": ((0.53, 0.6, 0.4, "Productive"), ""),
    "slower, but something else sets the pace": ((0.93, 2.0, 0.4, "Productive"), ""),
}


class Reading(Bench):
    """A bench whose ranks' own files are read."""

    def read(self, *works: tuple[float, float | None, float | None, str], every_s: float = 100) -> bool:
        self.advance(every_s)
        self.report(int((self.now - T0).total_seconds()))
        pods = [
            PodState(
                name=f"bert-node-0-{index}",
                node_name=f"gpu-{index}",
                index=index,
                ranks=(RankState(rank=index, work=RankWork(*work)),),
            )
            for index, work in enumerate(works)
        ]
        return self.tracker.worked(REF, work_of(pods, self.now))


class TestRanksOwnFiles:
    EVEN = (0.4, 1.0, 0.39, "Productive")

    @pytest.fixture
    def reading(self) -> Reading:
        bench = Reading()
        bench.job(JOB)
        return bench

    @pytest.mark.parametrize("kind", WORKS)
    def test_four_readings_in_a_row_name_the_rank_its_node_and_what_is_slow(
        self, reading: Reading, kind: str
    ) -> None:
        work, says = WORKS[kind]
        again = [reading.read(self.EVEN, self.EVEN, self.EVEN, work) for _ in range(4)]
        assert again == [bool(says), bool(says), bool(says), False]  # while there is doubt it is read sooner
        assert reading.condition("Straggling") == (
            ("True", "SlowReplica") if says else ("False", "NoSlowReplica")
        )
        assert says in reading.shown("Straggling").message

    def test_a_slow_node_is_named_once(self, reading: Reading) -> None:
        pods = [
            PodState(name=f"p{index}", node_name=f"gpu-{index}", index=index, ranks=tuple(
                RankState(rank=8 * index + local, work=RankWork(0.9 if index == 2 else 0.4))
                for local in range(8)
            ))
            for index in range(8)
        ]  # fmt: skip
        for _ in range(4):
            reading.advance(100)
            reading.report(int((reading.now - T0).total_seconds()))
            reading.tracker.worked(REF, work_of(pods, reading.now))
        assert (
            "Also slow: rank 17, 18, 19, 20, 21, 22, 23, all on node gpu-2."
            in reading.shown("Straggling").message
        )

    def test_one_reading_without_it_is_no_proof_and_two_are(self, reading: Reading) -> None:
        for _ in range(4):
            reading.read(self.EVEN, SLOW_LOADER)
        reading.read(self.EVEN, self.EVEN)
        assert reading.condition("Straggling") == ("True", "SlowReplica")
        reading.read(self.EVEN, self.EVEN)
        assert reading.condition("Straggling") == ("False", "NoSlowReplica")

    def test_nothing_is_known_half_an_hour_after_the_last_reading(self, reading: Reading) -> None:
        for _ in range(4):
            reading.read(self.EVEN, SLOW_LOADER)
        for expected in ("True", "Unknown"):
            reading.advance(1000)
            reading.report(int((reading.now - T0).total_seconds()))
            assert reading.condition("Straggling")[0] == expected
        reading.read(self.EVEN, SLOW_LOADER)
        assert reading.condition("Straggling") == ("True", "SlowReplica")

    def test_what_rank_0_says_of_the_others_counts_alone(self, bench: Gathering) -> None:
        bench.say(step_seconds=EVEN)
        assert bench.tracker.rounds_apart(REF) == 0

    @pytest.mark.parametrize(
        ("hours", "known", "apart"), [(0.5, False, 1), (2, False, 12), (2, True, 1)], ids=str
    )
    def test_files_are_looked_for_seldom_where_there_were_none(
        self, reading: Reading, hours: float, known: bool, apart: int
    ) -> None:
        reading.report(0, started_at=T0)
        reading.advance(3600 * hours)
        if known:
            reading.read(self.EVEN, self.EVEN)
        reading.report(10**5, started_at=T0)
        assert reading.tracker.rounds_apart(REF) == apart

    def test_runs_that_do_not_train_or_stand_still_are_not_read(self, reading: Reading) -> None:
        assert reading.tracker.rounds_apart(REF) == 0  # nothing was reported
        reading.report(10)
        assert reading.tracker.rounds_apart(REF) == 1
        reading.advance(4000)
        reading.report(10)
        assert (reading.condition("Stalled")[0], reading.tracker.rounds_apart(REF)) == ("True", 0)
        reading.job(replace(JOB, hints=ProbeHints(thresholds=Thresholds(straggling_above=float("inf")))))
        reading.report(11)
        assert reading.tracker.rounds_apart(REF) == 0


class TestReading:
    def test_a_row_for_each_rank_in_order(self) -> None:
        found = columns(rank=[1, 0], stepSeconds=[0.5, 0.25], step=[7, None], name=["b", None])
        assert [msgspec.to_builtins(row)[:4] for row in found.rows] == [[0, "", None, 0.25], [1, "b", 7, 0.5]]

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"rank": []},
            {"rank": [0, 1]},
            {"rank": [0, 0], "step": [1, 1]},
            {"rank": [0, 1], "step": [1]},
            {"rank": [0], "step": [-1]},
            {"rank": [0], "step": [1.5]},
            {"rank": [-1], "step": [1]},
            {"rank": [0], "stepSeconds": [0]},
            {"rank": [0], "stepSeconds": ["nan"]},
            {"rank": [0], "step": [1], "name": ["x" * 65]},
            {"rank": [0], "step": [1], "timestamp": "2026-01-23T10:00:00"},
            {"rank": list(range(65)), "step": [1] * 65},
            # No form in UTC: encoding the job's state raised, for all jobs.
            {"rank": [0, 1], "step": [1, 2], "timestamp": "0001-01-01T00:00:00+23:59"},
            {"rank": [0, 1], "step": [1, 2], "timestamp": "9999-12-31T23:00:00-23:59"},
        ],
    )
    def test_a_report_of_ranks_that_breaks_a_rule_is_none(self, given: dict[str, object]) -> None:
        assert columns(**given) == NO_RANKS

    @pytest.mark.parametrize("ranks", [b"null", b"[]", b'"x"', b'{"rank":[0],"step":["x"]}'])
    def test_the_report_around_it_counts(self, ranks: bytes) -> None:
        for more in (b"", b',"progressPercentage":45.5'):  # as is usual, and by the parser for the rest
            found = parse_report(
                b'{"timestamp":"2026-01-23T10:00:00Z","step":3,"ranks":%s%s}' % (ranks, more)
            )
            assert isinstance(found, Progress)
            assert (found.step, found.ranks) == (3, NO_RANKS)

    def test_both_parsers_read_it(self) -> None:
        account = b'{"rank":[0,1],"stepSeconds":[0.5,0.25]}'
        for more in (b"", b',"progressPercentage":45.5'):
            found = parse_report(
                b'{"timestamp":"2026-01-23T10:00:00Z","step":3,"ranks":%s%s}' % (account, more)
            )
            assert isinstance(found, Progress)
            assert [row.step_s for row in found.ranks.rows] == [0.5, 0.25]


def test_what_the_accelerators_of_all_pods_do_is_in_the_next_report() -> None:
    def pod(number: int, *busy: int) -> PodState:
        devices = [{"index": each, "utilizationPercentage": of} for each, of in enumerate(busy)]
        file = {
            "rank": number,
            "pid": 9,
            "time": at(900).isoformat(),
            "workSeconds": 1.0,
            "accelerators": devices,
        }
        output = f"@now {at(900).timestamp():.0f} x86_64 h\n@rank {number}\n{json.dumps(file)}\n@end\n"
        return PodState(name=f"p{number}", index=number, ranks=tuple(read_pod(output.encode())))

    ranks = work_of([pod(0, 90, 80), pod(1, 0, 40), pod(2, 60)], at(900))
    of_all = {
        "system/gpu_devices": "5",
        "system/gpu_min_utilization_percentage": "0",
        "system/gpu_median_utilization_percentage": "60",
        "system/gpu_max_utilization_percentage": "90",
    }
    assert dict(ranks.accelerators) == of_all
    bench = Bench()
    bench.job(JOB)
    own = (("loss", "1"), ("system/gpu_0_utilization_percentage", "2"), ("system/gpu_devices", "2"))
    for step, metrics, shown in (
        (1, own, dict(own)),
        (2, own, dict(own) | of_all),
        (3, (("loss", "1"),), {"loss": "1"}),  # rank 0 reads none itself
    ):
        bench.advance(15)
        bench.observe(Progress(timestamp=bench.now, step=step, metrics=metrics))
        assert dict(bench.last.metrics) == shown
        bench.tracker.worked(REF, ranks)
    heir = bench.heir()
    heir.job(JOB)
    heir.observe(Progress(timestamp=heir.now, step=4, metrics=own))
    assert dict(heir.last.metrics) == dict(own) | of_all
    bench.advance(900)  # not read since
    bench.observe(Progress(timestamp=bench.now, step=9, metrics=own))
    assert dict(bench.last.metrics) == dict(own)
    assert work_of([pod(0, 90)], at(900)).accelerators == ()
    assert work_of([], at(900)).accelerators == ()
