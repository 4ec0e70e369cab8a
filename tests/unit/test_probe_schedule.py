"""When each job is asked next, on a clock that is only a number."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from visibility_api.probe.schedule import GRACE_S, Schedule, Turn
from visibility_api.probe.source import Patience
from visibility_api.progress.job import JobRef


def ref(name: str = "bert") -> JobRef:
    return JobRef(resource="trainjobs", namespace="team-a", name=name, uid=name)


def schedule_of(*names: str, interval_s: float = 10.0) -> Schedule:
    schedule = Schedule(random_=random.Random(1))
    for name in names:
        schedule.put(ref(name), attempt="1", interval_s=interval_s, now=0.0, due=0.0)
    return schedule


def take(schedule: Schedule, now: float) -> Turn:
    (turn,) = schedule.take_due(now)
    return turn


def test_a_job_is_asked_again_within_one_interval_of_the_last_time() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    due = schedule.done(turn, now=3.0, patience=None)
    assert due is not None
    assert 9.0 <= due <= 10.0


def test_a_look_that_took_longer_than_the_interval_is_followed_at_once() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    assert schedule.done(turn, now=25.0, patience=None) == 25.0


def test_a_job_is_never_handed_out_twice_at_a_time() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    schedule.hasten(ref(), 1.0)
    assert list(schedule.take_due(1000.0)) == []
    assert schedule.done(turn, now=2.0, patience=None) == 2.0
    assert take(schedule, 2.0) is turn


def test_a_job_that_has_not_written_yet_is_asked_at_its_interval_during_the_grace_time() -> None:
    schedule = schedule_of("bert")
    now = 0.0
    while now < GRACE_S - 10:
        due = schedule.done(take(schedule, now), now=now, patience=Patience.LATER)
        assert due is not None
        assert due - now <= 10.0
        now = due


def test_a_job_that_never_writes_ends_up_a_hundred_times_rarer() -> None:
    schedule = schedule_of("bert")
    now, gaps = 0.0, []
    for _ in range(200):
        due = schedule.done(take(schedule, now), now=now, patience=Patience.LATER)
        assert due is not None
        gaps.append(due - now)
        now = due
    assert gaps[-1] > 850.0
    assert max(gaps) <= 1000.0


def test_connection_trouble_backs_off_a_little_only() -> None:
    schedule = schedule_of("bert")
    now, gaps = 0.0, []
    for _ in range(6):
        due = schedule.done(take(schedule, now), now=now, patience=Patience.SOON)
        assert due is not None
        gaps.append(due - now)
        now = due
    assert gaps[0] <= 10.0
    assert max(gaps) <= 40.0


def test_a_hanging_job_backs_off_from_its_first_failure_on() -> None:
    schedule = schedule_of("bert")
    now, gaps = 0.0, []
    for _ in range(10):
        due = schedule.done(take(schedule, now), now=now, patience=Patience.RARELY)
        assert due is not None
        gaps.append(due - now)
        now = due
    assert gaps[3] > 4 * 10.0 * 0.9
    assert gaps[-1] > 850.0


def test_one_answer_ends_the_back_off() -> None:
    schedule = schedule_of("bert")
    now = 0.0
    for _ in range(8):
        now = schedule.done(take(schedule, now), now=now, patience=Patience.RARELY) or 0.0
    due = schedule.done(take(schedule, now), now=now, patience=None)
    assert due is not None
    assert due - now <= 10.0


def test_a_new_attempt_ends_the_back_off() -> None:
    schedule = schedule_of("bert")
    now = 0.0
    for _ in range(8):
        now = schedule.done(take(schedule, now), now=now, patience=Patience.RARELY) or 0.0
    earlier = now - 500.0
    schedule.put(ref(), attempt="2", interval_s=10.0, now=earlier, due=earlier)
    turn = take(schedule, earlier)
    due = schedule.done(turn, now=earlier, patience=Patience.RARELY)
    assert due is not None
    assert due - earlier <= 10.0


def test_the_same_attempt_put_again_keeps_its_turn() -> None:
    schedule = schedule_of("bert")
    due = schedule.done(take(schedule, 0.0), now=0.0, patience=None)
    schedule.put(ref(), attempt="1", interval_s=10.0, now=1.0, due=1.0)
    assert schedule.next_due() == due


def test_a_shorter_interval_takes_effect_at_once() -> None:
    schedule = schedule_of("bert", interval_s=1000.0)
    schedule.done(take(schedule, 0.0), now=0.0, patience=None)
    schedule.put(ref(), attempt="1", interval_s=2.0, now=1.0, due=1.0)
    assert schedule.next_due() == 3.0


def test_a_dropped_job_is_not_asked_again_even_if_it_was_being_asked() -> None:
    schedule = schedule_of("bert")
    turn = take(schedule, 0.0)
    schedule.drop(ref())
    assert schedule.done(turn, now=1.0, patience=None) is None
    assert schedule.next_due() is None


@pytest.mark.parametrize("count", [1, 50])
def test_due_jobs_come_earliest_first(count: int) -> None:
    schedule = Schedule()
    for number in range(count):
        schedule.put(
            ref(str(number)), attempt="1", interval_s=10.0, now=0.0, due=float((number * 37) % count)
        )
    assert [turn.due for turn in schedule.take_due(1e9)] == [float(n) for n in range(count)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "new", "hasten", "drop", "take", "done"]),
            st.integers(0, 3),
            st.sampled_from([None, *Patience]),
        ),
        max_size=60,
    )
)
def test_whatever_happens_a_live_job_is_either_being_asked_or_due(
    events: list[tuple[str, int, Patience | None]],
) -> None:
    schedule = Schedule(random_=random.Random(0))
    live: set[JobRef] = set()
    asking: dict[JobRef, list[Turn]] = {}
    now, attempt = 0.0, 0
    for event, number, patience in events:
        now += 1.0
        job = ref(str(number))
        if event in ("put", "new"):
            attempt += event == "new"
            schedule.put(job, attempt=str(attempt), interval_s=5.0, now=now, due=now)
            live.add(job)
        elif event == "hasten":
            schedule.hasten(job, now)
        elif event == "drop":
            schedule.drop(job)
            live.discard(job)
        elif event == "take":
            for turn in schedule.take_due(now):
                asking.setdefault(turn.ref, []).append(turn)
        elif asking.get(job):
            schedule.done(asking[job].pop(), now=now, patience=patience)
    for turns in asking.values():
        for turn in turns:
            schedule.done(turn, now=now, patience=None)
    assert {turn.ref for turn in schedule.take_due(1e9)} == live
