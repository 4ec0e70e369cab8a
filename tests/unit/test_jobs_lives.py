"""The same life of a job, told to servers that saw different parts of it: their documents are equal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, REF, T0
from visibility_api.jobs.conditions import evaluate
from visibility_api.jobs.goodput import account_of, read_goodput, reckon_until, wasted
from visibility_api.jobs.holding import hold
from visibility_api.jobs.job import Phase, Rank0, Termination, TrainingJob
from visibility_api.jobs.ledger import DAY_S, HOUR_S
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.record import summarise
from visibility_api.jobs.saved_account import save_account
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.kubeapi.v1alpha1 import status_of
from visibility_api.reports.document import Progress, Refused

INTERVAL_S = 15
STEPS = 10  # in an interval, while the run advances
NO_FILE = Refused(reason="NoProgressFile", message="No progress file.")


@dataclass(frozen=True, kw_only=True)
class Life:
    """What happens to a job, one word for each interval, and how its progress is read."""

    words: tuple[str, ...]  # train, nan, hang, crash, suspend; then hang or gone, after the end
    source: str
    has_time: bool
    ahead_s: int  # of the node's clock
    lag_s: int  # between a report and its reading


class World:
    """The truth: what the cluster and the training process would show to anybody who looks now."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.now = T0
        self.step = 0
        self.report: Progress | None = None  # of the present container run
        self.is_news = False
        self.rank0: Rank0 | None = replace(
            RANK0,
            pod_created_at=T0 - timedelta(seconds=20),
            pod_started_at=T0 - timedelta(seconds=20),
        )
        self.job: TrainingJob = replace(JOB, rank0=self.rank0, accelerators=(("nvidia.com/gpu", 8),))

    def moments(self) -> Iterator[None]:
        for word in self.life.words:
            self.now += timedelta(seconds=INTERVAL_S)
            self.is_news = False
            self._live(word)
            yield

    def _live(self, word: str) -> None:
        if word in ("train", "nan") and (self.rank0 is None or not self.rank0.is_running):
            self._start()
        elif word in ("train", "nan"):
            self.step += STEPS
            loss = "nan" if word == "nan" else f"{self.step % 70 / 100 + (self.step > 200) * 40}"
            self._tell(Progress(step=self.step, total_steps=1000, metrics=(("loss", loss),)))
        elif word == "crash" and self.rank0 is not None and self.rank0.is_running:
            ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=self.now)
            self._show(replace(self.rank0, is_running=False, last_termination=ended))
        elif word == "suspend" and self.job.phase is not Phase.SUSPENDED:
            self._show(None, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=self.now)
        elif word in ("complete", "fail", "die"):
            self._end(word)
        elif word == "gone":
            self._show(None)

    def _start(self) -> None:
        before = self.rank0
        if before is None:  # resumed: another pod
            accepted = self.now - timedelta(seconds=5)
            rank0 = replace(
                RANK0,
                pod_uid=f"{self.now:%H%M%S}",
                started_at=self.now,
                pod_created_at=accepted,
                pod_started_at=accepted,
            )
            self._show(rank0, phase=Phase.RUNNING, is_suspended=False, suspension_changed_at=self.now)
        else:
            again = before.restart_count + 1
            self._show(replace(before, is_running=True, restart_count=again, started_at=self.now))
        self.report = None
        self.step = self.step // 2 + 1

    def _end(self, word: str) -> None:
        phase = Phase.SUCCEEDED if word == "complete" else Phase.FAILED
        rank0 = self.rank0
        if rank0 is not None and rank0.is_running:
            code = 0 if word == "complete" else 1
            ended = Termination(exit_code=code, signal=None, reason="Ended", finished_at=self.now)
            left = "" if word == "die" else self._last_words("completed" if code == 0 else "failed")
            rank0 = replace(rank0, is_running=False, last_termination=ended, termination_message=left)
        self._show(rank0, phase=phase, reason="Ended", ended_at=self.now)

    def _last_words(self, state: str) -> str:
        at = self.now - timedelta(seconds=1 - self.life.ahead_s)
        return json.dumps(
            {"timestamp": at.isoformat(), "state": state, "step": self.step, "totalSteps": 1000}
        )

    def _tell(self, report: Progress) -> None:
        at = self.now + timedelta(seconds=self.life.ahead_s - self.life.lag_s)
        self.report = msgspec.structs.replace(report, timestamp=at if self.life.has_time else None)
        self.is_news = True

    def _show(self, rank0: Rank0 | None, **more: object) -> None:
        self.rank0 = rank0
        self.job = replace(self.job, rank0=rank0, **more)  # type: ignore[arg-type]


class Server:
    """One process; `memory`: what it is told as it starts."""

    def __init__(self, world: World, memory: bytes | None = None) -> None:
        self._world = world
        self.published: list[JobProgress] = []
        self.tracker = Tracker(
            publish=self.published.append,
            retract=lambda _ref: None,
            now=lambda: world.now,
            interval_s=INTERVAL_S,
            recall=lambda _ref: (memory, None),
        )

    def look(self) -> None:
        """Takes in what there is to see now."""
        world = self._world
        source, rank0, report = world.life.source, world.rank0, world.report
        status = None
        if source == "status" and report is not None:
            status = Observation(ref=REF, attempt="", source=source, at=world.now, outcome=report)
        self.tracker.job_changed(world.job, status)
        if (
            rank0 is not None
            and rank0.is_running
            and source != "status"
            and (source != "push" or world.is_news)
        ):
            outcome = report or NO_FILE
            self.tracker.observed(
                Observation(
                    ref=REF,
                    attempt=rank0.attempt,
                    source=source,
                    at=world.now,
                    outcome=outcome,
                    latency_s=0.01,
                )
            )

    def stored(self) -> bytes:
        state = self.tracker.state(REF)
        assert state is not None
        return state

    @property
    def shown(self) -> JobProgress:
        """What the job's document says when it is evaluated now."""
        record = self.tracker._records[REF]  # published is what differs from before, or a minute later
        account = account_of(record, self._world.now)
        record.conditions = evaluate(record, self._world.now)
        record.holding = hold(record.holding, record.job, record.last_run(), self._world.now)
        reckon_until(account, record, self._world.now)
        record.wasted_s = sum(wasted(account).values())
        return summarise(record, self._world.now, save_account(account))


def told(document: JobProgress) -> tuple[dict[str, Any], object]:
    """All that a client gets, but for when and how who looked last, how often in vain, how long it took."""
    status = msgspec.json.decode(msgspec.json.encode(status_of(document)))
    status["account"] = document.goodput
    for name in ("lastProbeTime", "nextProbeTime", "latencySeconds", "consecutiveFailures", "message"):
        status.get("observation", {}).pop(name, None)
    if document.updated_at is None:  # without a report, how it was looked for
        status.get("observation", {}).pop("source", None)
    return status, document.seen_at


_TRAINING = st.sampled_from(["train"] * 6 + ["hang"] * 2 + ["nan", "crash", "suspend"])
_words = st.tuples(
    st.lists(
        st.one_of(_TRAINING.map(lambda word: [word]), st.integers(1, 30).map(lambda n: ["hang"] * n)),
        max_size=25,
    ),
    st.sampled_from([[], ["complete"], ["fail"], ["die"]]),
    st.lists(st.sampled_from(["hang", "gone"]), max_size=4),
).map(lambda parts: tuple(word for part in (*parts[0], parts[1]) for word in part) + tuple(parts[2]))


@st.composite
def lives(draw: st.DrawFn) -> Life:
    source = draw(st.sampled_from(["exec", "http", "logs", "push", "status"]))
    return Life(
        words=draw(_words),
        source=source,
        has_time=source in ("push", "status") or draw(st.booleans()),
        ahead_s=draw(st.sampled_from([0, 0, 2, -2, 600, -600, 7200, -7200])),
        lag_s=draw(st.integers(0, 9)),
    )


@settings(max_examples=30)
@given(lives(), st.integers(0, 40), st.integers(0, 40), st.integers(1, 40))
def test_whoever_sees_a_life_shows_the_same(life: Life, joins: int, restarts: int, again: int) -> None:
    world = World(life)
    whole = Server(world)  # saw all of it
    whole.look()
    restarted, joined = Server(world), None
    restarted.look()
    for moment, _ in enumerate(world.moments()):
        whole.look()
        whole.stored()  # at each moment, as in a data directory
        restarted.look()
        if moment in (restarts, restarts + again):
            restarted = Server(world, restarted.stored())
            restarted.look()
        if moment == joins:
            joined = Server(world, whole.stored())
        if joined is not None:
            joined.look()
            assert told(joined.shown) == told(whole.shown)
        assert told(restarted.shown) == told(whole.shown)


@settings(max_examples=30)
@given(lives(), st.integers(0, 40), st.integers(1, 40))
def test_reports_missed_while_a_server_was_down_change_nothing_of_those_it_reads(
    life: Life, stops: int, down: int
) -> None:
    life = dataclasses.replace(life, has_time=True, ahead_s=0)
    world = World(life)
    whole, other = Server(world), Server(world)
    whole.look()
    other.look()
    memory: bytes | None = None
    for moment, _ in enumerate(world.moments()):
        whole.look()
        if moment == stops:
            memory = other.stored()
        if moment < stops:
            other.look()
        elif moment == stops + down:
            assert memory is not None
            other = Server(world, memory)
            other.look()
        elif moment > stops + down:
            other.look()
        is_running = world.rank0 is not None and world.rank0.is_running
        can_be_read = is_running and world.report is not None and life.source != "push"
        if can_be_read and not stops <= moment < stops + down:
            (found, seen_at), (whole_status, whole_seen_at) = facts(other.shown), facts(whole.shown)
            if "lastTermination" not in found["rank0"]:  # it may be of a pod that was deleted meanwhile
                whole_status["rank0"].pop("lastTermination", None)
            assert (found, seen_at) == (whole_status, whole_seen_at)


def facts(document: JobProgress) -> tuple[dict[str, Any], object]:
    """All but what several reports tell: the pace and the end, since when and how long the run has advanced
    and wasted accelerators, and when a report is old."""
    status, seen_at = told(document)
    for name in (
        "estimatedRemainingSeconds",
        "estimatedCompletionTime",
        "estimatedCompletionRange",
        "resources",
        "goodput",
        "account",
    ):
        status.pop(name, None)
    status.get("steps", {}).pop("perSecond", None)
    for condition in status["conditions"]:
        if condition["type"] in ("Reporting", "Diverged"):
            del condition["lastTransitionTime"]
    status["conditions"] = [each for each in status["conditions"] if each["type"] not in ("Fresh", "Stalled")]
    return status, seen_at


@settings(max_examples=30)
@given(lives(), st.integers(0, 40))
def test_a_server_that_knows_nothing_of_the_past_shows_nothing_old_as_new(life: Life, starts: int) -> None:
    world = World(life)
    whole, late = Server(world), None
    # A report that bears no time may be as old, when it is first seen, as one that is fresh.
    doubt = timedelta(seconds=INTERVAL_S if life.has_time else 3 * INTERVAL_S)
    whole.look()
    for moment, _ in enumerate(world.moments()):
        whole.look()
        if moment == starts:
            late = Server(world)
        if late is None:
            continue
        late.look()
        if is_fresh(late.shown) and not is_fresh(whole.shown):
            assert went_old(whole.shown) >= world.now - doubt
        if life.has_time and not life.ahead_s and late.shown.seen_at is not None:
            assert late.shown.seen_at == whole.shown.seen_at


def is_fresh(document: JobProgress) -> bool:
    fresh = document.condition("Fresh")
    return fresh is not None and fresh.status == "True"


def went_old(document: JobProgress) -> datetime:
    fresh = document.condition("Fresh")
    assert fresh is not None
    return fresh.since


@settings(max_examples=30)
@given(lives())
def test_at_no_moment_is_an_end_in_the_past_or_a_time_in_the_future(life: Life) -> None:
    world = World(life)
    server = Server(world)
    server.look()
    for _ in world.moments():
        server.look()
        shown = server.shown
        assert shown.completion_at is None or shown.completion_at > world.now
        assert shown.seen_at is None or shown.seen_at <= world.now
        assert all(condition.since <= world.now for condition in shown.conditions)
        if shown.phase is not Phase.RUNNING or not is_fresh(shown):
            assert (shown.steps_per_s, shown.completion_at) == (None, None)
            assert shown.remaining_s in (None, 0)


@settings(max_examples=30)
@given(lives())
def test_at_every_moment_the_kinds_of_time_sum_to_the_whole_whatever_the_source(life: Life) -> None:
    world = World(life)
    server = Server(world)
    server.look()
    for _ in world.moments():
        server.look()
        account = read_goodput(server.shown.goodput)
        assert account is not None
        ledger, passed_s = account.ledger, (world.now - T0).total_seconds()
        assert min(ledger.whole) >= 0
        assert sum(ledger.whole) == pytest.approx(ledger.until - ledger.began, abs=1)
        if server.shown.phase is Phase.RUNNING:  # of one that waits or has ended it does not go on
            assert ledger.until - T0.timestamp() == pytest.approx(passed_s, abs=1)
        for window_s, seconds in ((HOUR_S, ledger.hour()), (DAY_S, ledger.day())):
            assert sum(seconds) == pytest.approx(min(window_s, ledger.until - ledger.began), abs=1)
