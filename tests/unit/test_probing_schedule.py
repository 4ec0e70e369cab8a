"""When each job is probed next, on a clock that is only a number."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from tests.jobs import job_ref
from visibility_api.jobs.job import JobRef
from visibility_api.probing.schedule import (
    GRACE_S,
    LONGEST_INTERVALS,
    PUSH_LONGEST_S,
    PUSH_PROBE_INTERVALS,
    RIGHT_S,
    SILENCE_SHARE,
    UNDECLARED_GRACE_S,
    UNDECLARED_SILENCE_SHARE,
    Schedule,
    Turn,
)
from visibility_api.reports.document import RetryClass

DAY_S = 86400.0
Answering = Callable[[float], RetryClass | None]


def put(
    schedule: Schedule,
    job: JobRef,
    *,
    now: float = 0.0,
    due: float | None = None,
    attempt: str = "1",
    node: str | None = None,
    interval_s: float = 10.0,
    is_declared: bool = True,
) -> None:
    schedule.put(
        job,
        attempt=attempt,
        node=node,
        interval_s=interval_s,
        is_declared=is_declared,
        now=now,
        due=now if due is None else due,
    )


def schedule_of(*names: str, interval_s: float = 10.0, is_declared: bool = True) -> Schedule:
    schedule = Schedule(random_=random.Random(1))
    for name in names:
        put(schedule, job_ref(name), interval_s=interval_s, is_declared=is_declared)
    return schedule


def take(schedule: Schedule, now: float) -> Turn:
    turn = schedule.take(now)
    assert turn is not None
    return turn


def probes(schedule: Schedule, answering: Answering, *, until: float, start: float = 0.0) -> list[float]:
    """The times at which the one job is probed; its outcome depends on the time."""
    now, times = start, []
    while (due := schedule.next_due()) is not None and due <= until:
        now = max(now, due)
        turn = schedule.take(now)
        if turn is not None:
            times.append(now)
            schedule.done(turn, now=now, retry=answering(now))
    return times


def gaps(times: list[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]


def reports(_now: float) -> None:
    return None


def is_silent(_now: float) -> RetryClass:
    return RetryClass.LATER


def test_a_job_is_probed_again_within_one_interval_of_the_last_time() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    due = schedule.done(turn, now=3.0, retry=None)
    assert due is not None
    assert 9.0 <= due <= 10.0


def test_a_probe_that_took_longer_than_the_interval_is_followed_at_once() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    assert schedule.done(turn, now=25.0, retry=None) == 25.0


def test_a_job_is_never_handed_out_twice_at_a_time() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    schedule.hasten(job_ref(), 1.0)
    assert schedule.take(1000.0) is None
    assert schedule.done(turn, now=2.0, retry=None) == 2.0
    assert take(schedule, 2.0) is turn


def test_a_job_that_is_dropped_and_put_again_while_it_is_probed_waits_for_the_end_of_that_probe() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    schedule.drop(job_ref())
    assert len(schedule) == 0
    put(schedule, job_ref(), now=1.0, attempt="2")
    assert len(schedule) == 1
    assert schedule.take(5.0) is None
    assert schedule.done(turn, now=5.0, retry=RetryClass.RARELY) == 5.0
    assert take(schedule, 5.0).failures == 0, "what the probe brought concerns the attempt before"


def test_a_declared_job_is_probed_at_its_interval_during_the_grace_time() -> None:
    times = probes(schedule_of("bert"), is_silent, until=GRACE_S)
    assert max(gaps(times)) <= 10.0


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_late_starter_is_seen_within_a_share_of_its_age(is_declared: bool) -> None:
    schedule = schedule_of("bert", is_declared=is_declared)
    times = probes(schedule, is_silent, until=DAY_S)
    share = SILENCE_SHARE if is_declared else UNDECLARED_SILENCE_SHARE
    grace_s = GRACE_S if is_declared else UNDECLARED_GRACE_S
    for before, after in itertools.pairwise(times):
        assert after - before <= max(10.0, share * before) + 1e-6
        assert after - before <= LONGEST_INTERVALS * 10.0
        if before < grace_s:
            assert after - before <= 10.0


@pytest.mark.parametrize("interval_s", [15.0, 30.0])
def test_a_job_without_instrumentation_costs_less_than_a_hundredth_of_one_with(interval_s: float) -> None:
    instrumented = len(probes(schedule_of("a", interval_s=interval_s), reports, until=DAY_S))
    silent = len(probes(schedule_of("a", interval_s=interval_s, is_declared=False), is_silent, until=DAY_S))
    assert DAY_S / interval_s <= instrumented <= 1.1 * DAY_S / interval_s
    assert silent < instrumented / 100


def test_a_job_that_falls_silent_after_hours_is_probed_at_its_interval_for_the_grace_time() -> None:
    schedule = schedule_of("bert", is_declared=False)
    last_s = 4 * 3600.0
    times = probes(schedule, lambda now: None if now < last_s else RetryClass.LATER, until=last_s + GRACE_S)
    assert max(gaps(times)) <= 10.0


def test_connection_trouble_backs_off_a_little_only() -> None:
    times = probes(schedule_of("bert"), lambda _: RetryClass.SOON, until=200.0)
    assert gaps(times)[0] <= 10.0
    assert max(gaps(times)) <= 40.0


def test_a_hanging_job_backs_off_from_its_first_failure_on() -> None:
    times = gaps(probes(schedule_of("bert"), lambda _: RetryClass.RARELY, until=DAY_S))
    assert times[3] > 4 * 10.0 * 0.9
    assert times[-1] > 0.9 * LONGEST_INTERVALS * 10.0
    assert max(times) <= LONGEST_INTERVALS * 10.0


def test_one_hang_after_much_silence_is_not_taken_for_many() -> None:
    schedule = schedule_of("bert")
    times = probes(schedule, lambda now: RetryClass.RARELY if now > 500.0 else RetryClass.LATER, until=540.0)
    assert gaps(times)[-1] <= 20.0


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_missing_right_is_tried_every_few_minutes_however_long_it_is_missing(is_declared: bool) -> None:
    schedule = schedule_of("bert", interval_s=15.0, is_declared=is_declared)
    times = gaps(probes(schedule, lambda _: RetryClass.FORBIDDEN, until=DAY_S))
    assert max(times) <= RIGHT_S
    assert times[-1] > 0.9 * RIGHT_S


def test_one_answer_ends_the_back_off() -> None:
    schedule = schedule_of("bert")
    times = probes(schedule, lambda now: RetryClass.RARELY if now < 1000.0 else None, until=3000.0)
    assert times[-1] - times[-2] <= 10.0


def test_a_new_attempt_ends_the_back_off() -> None:
    schedule = schedule_of("bert")
    now = probes(schedule, lambda _: RetryClass.RARELY, until=5000.0)[-1] + 1.0
    put(schedule, job_ref(), attempt="2", now=now)
    turn = take(schedule, now)
    due = schedule.done(turn, now=now, retry=RetryClass.RARELY)
    assert due is not None
    assert due - now <= 10.0


def test_the_same_attempt_put_again_keeps_its_turn() -> None:
    schedule = schedule_of("bert")
    due = schedule.done(take(schedule, 0.0), now=0.0, retry=None)
    put(schedule, job_ref(), now=1.0)
    assert schedule.next_due() == due


def test_a_shorter_interval_takes_effect_at_once() -> None:
    schedule = schedule_of("bert", interval_s=1000.0)
    schedule.done(take(schedule, 0.0), now=0.0, retry=None)
    put(schedule, job_ref(), now=1.0, interval_s=2.0)
    assert schedule.next_due() == 3.0


def test_a_dropped_job_is_not_probed_again_even_if_it_was_being_probed() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    schedule.drop(job_ref())
    assert schedule.done(turn, now=1.0, retry=None) is None
    assert schedule.next_due() is None
    assert schedule.take(1e9) is None


@pytest.mark.parametrize("gap_s", [5.0, 60.0, 300.0])
@pytest.mark.parametrize(("retry", "expected"), [(RetryClass.LATER, 1), (None, 40)])
def test_a_job_that_pushes_regularly_is_probed_seldom_and_not_at_all_where_nothing_is_read(
    gap_s: float, retry: RetryClass | None, expected: int
) -> None:
    schedule = schedule_of("bert")
    probed, now = 0, 0.0
    while now < 40 * PUSH_PROBE_INTERVALS * 10.0:
        schedule.postpone(job_ref(), now)
        if (turn := schedule.take(now)) is not None:
            probed += 1
            schedule.done(turn, now=now, retry=retry)
        now += gap_s
    assert probed <= expected
    assert probed >= min(expected, 10)


def test_a_job_that_stops_pushing_is_probed_again() -> None:
    schedule = schedule_of("bert")
    schedule.done(take(schedule, 0.0), now=0.0, retry=RetryClass.LATER)
    schedule.postpone(job_ref(), 0.0)
    schedule.postpone(job_ref(), 60.0)
    times = probes(schedule, reports, until=1000.0)
    assert 60.0 < times[0] <= 60.0 + PUSH_LONGEST_S
    assert max(gaps(times)) <= 10.0


def test_a_pod_that_ends_is_probed_even_if_its_job_pushes() -> None:
    schedule = schedule_of("bert")
    schedule.postpone(job_ref(), 1.0)
    schedule.hasten(job_ref(), 2.0)
    assert take(schedule, 2.0).ref == job_ref()


def test_due_jobs_of_a_namespace_come_earliest_first() -> None:
    schedule = Schedule()
    for number in range(50):
        put(schedule, job_ref(str(number)), due=float((number * 37) % 50))
    assert [take(schedule, 1e9).due for _ in range(50)] == [float(n) for n in range(50)]


@dataclass
class Simulation:
    """So many places, a clock that jumps, and probes that take as long as the test says."""

    schedule: Schedule
    places: int
    took_s: Callable[[JobRef], float] = lambda _: 0.1
    probes: dict[JobRef, list[float]] = field(default_factory=dict)
    most_at_a_time: int = 0
    most_on_a_node: Counter[str] = field(default_factory=Counter)
    _under_way: list[tuple[float, int, Turn]] = field(default_factory=list)
    now: float = 0.0

    def run(self, until: float) -> None:
        number = 0
        while self.now < until:
            while len(self._under_way) < self.places and (turn := self.schedule.take(self.now)):
                assert all(turn.ref != t.ref for _, _, t in self._under_way)
                number += 1
                heapq.heappush(self._under_way, (self.now + self.took_s(turn.ref), number, turn))
                self.probes.setdefault(turn.ref, []).append(self.now)
                on_nodes = Counter(t.node for _, _, t in self._under_way if t.node)
                self.most_on_a_node |= on_nodes
            self.most_at_a_time = max(self.most_at_a_time, len(self._under_way))
            due = self.schedule.next_due()
            ends = self._under_way[0][0] if self._under_way else None
            moments = [t for t in (ends, due) if t is not None and t > self.now]
            if ends is not None and ends <= self.now:
                moments = [self.now]
            if not moments:
                return
            self.now = max(self.now, min(moments))
            while self._under_way and self._under_way[0][0] <= self.now:
                self.schedule.done(heapq.heappop(self._under_way)[2], now=self.now, retry=None)

    def gaps(self, refs: Iterable[JobRef]) -> list[float]:
        return [gap for r in refs for gap in gaps(self.probes[r])]


def fill(schedule: Schedule, namespace: str, jobs: int, *, node: str | None = None) -> list[JobRef]:
    refs = [job_ref(f"{namespace}-{n}", namespace) for n in range(jobs)]
    for n, job in enumerate(refs):
        put(schedule, job, due=10.0 * n / jobs, node=node or f"{namespace}-node-{n}")
    return refs


def test_under_overload_a_namespace_of_5000_jobs_does_not_slow_one_of_5() -> None:
    schedule = Schedule(random_=random.Random(3))
    big, small = fill(schedule, "big", 5000), fill(schedule, "small", 5)
    sim = Simulation(schedule, places=10)  # 100 probes a second where 500 are due
    sim.run(200.0)
    assert max(sim.gaps(small)) <= 10.0 + 0.3
    assert min(len(sim.probes[r]) for r in big) >= 3, "nobody starves"
    assert sim.most_at_a_time == 10


def test_under_overload_intervals_stretch_evenly_and_the_ratio_shows_it() -> None:
    schedule = Schedule(random_=random.Random(3))
    jobs = fill(schedule, "big", 1000)
    sim = Simulation(schedule, places=4)  # 40 probes a second where 100 are due
    sim.run(300.0)
    settled = [gap for r in jobs for gap in gaps(sim.probes[r])[3:]]
    assert min(settled) >= 0.9 * 25.0
    assert max(settled) <= 1.1 * 25.0
    assert 2.2 <= schedule.stretch <= 2.8
    assert schedule.waiting > 100


def test_without_overload_nothing_is_late() -> None:
    schedule = Schedule(random_=random.Random(3))
    jobs = fill(schedule, "big", 300)
    sim = Simulation(schedule, places=10)
    sim.run(100.0)
    assert max(sim.gaps(jobs)) <= 10.2
    assert schedule.stretch <= 1.02


def test_a_node_that_hangs_holds_its_places_only() -> None:
    schedule = Schedule(random_=random.Random(3))
    broken = fill(schedule, "broken", 200, node="broken")
    fine = fill(schedule, "fine", 50)
    sim = Simulation(schedule, places=16, took_s=lambda r: 30.0 if r.namespace == "broken" else 0.1)
    sim.run(4000.0)
    assert sim.most_on_a_node["broken"] == 4
    assert max(sim.gaps(fine)) <= 10.2
    assert min(len(sim.probes[r]) for r in broken) >= 2, "nobody starves, not even there"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "new", "hasten", "postpone", "drop", "take", "done", "wait"]),
            st.integers(0, 7),
            st.sampled_from([None, *RetryClass]),
        ),
        max_size=120,
    )
)
def test_whatever_happens_a_live_job_is_probed_once_at_a_time_and_never_forgotten(
    events: list[tuple[str, int, RetryClass | None]],
) -> None:
    schedule = Schedule(per_node=2, random_=random.Random(0))
    live: set[JobRef] = set()
    probing: dict[JobRef, Turn] = {}
    now, attempt = 0.0, 0
    for event, number, retry in events:
        now += 1000.0 if event == "wait" else 1.0
        job = job_ref(str(number), f"team-{number % 2}")
        if event in ("put", "new"):
            attempt += event == "new"
            put(schedule, job, attempt=str(attempt), interval_s=5.0, now=now, node=f"node-{number % 3}")
            live.add(job)
        elif event == "hasten":
            schedule.hasten(job, now)
        elif event == "postpone":
            schedule.postpone(job, now)
        elif event == "drop":
            schedule.drop(job)
            live.discard(job)
        elif event == "take":
            turn = schedule.take(now)
            if turn is not None:
                assert turn.ref not in probing
                assert turn.ref in live
                probing[turn.ref] = turn
                assert max(Counter(t.node for t in probing.values()).values()) <= 2
        elif job in probing:
            due = schedule.done(probing.pop(job), now=now, retry=retry)
            assert (due is not None) == (job in live)
        assert len(schedule) == len(live)
    for turn in probing.values():
        schedule.done(turn, now=now, retry=None)
    found = set()
    while (turn := schedule.take(1e9)) is not None:
        found.add(turn.ref)
        schedule.drop(turn.ref)
        schedule.done(turn, now=1e9, retry=None)
    assert found == live
    assert not schedule._turns
