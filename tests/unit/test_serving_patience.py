"""One timer for all that a connection waits for."""

from __future__ import annotations

import asyncio

from visibility_api.serving.patience import Patience


class Clock:
    """An event loop's timers on a clock of its own: only what `Patience` needs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.armed = 0
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object) -> asyncio.TimerHandle:
        self.armed += 1
        handle = asyncio.TimerHandle(when, callback, (), self)  # type: ignore[arg-type]
        self._timers.append(handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.remove(handle)

    def get_debug(self) -> bool:
        return False

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer.when() <= end]:
            first = min(due, key=lambda timer: timer.when())
            self._timers.remove(first)
            self.now = first.when()
            first._run()
        self.now = end


def patience() -> tuple[Patience, Clock, list[float]]:
    clock = Clock()
    ends: list[float] = []
    return Patience(clock, lambda: ends.append(clock.now)), clock, ends  # type: ignore[arg-type]


def test_it_ends_when_its_time_is_over() -> None:
    waiting, clock, ends = patience()
    waiting.limit(30)
    clock.advance(29)
    assert ends == []
    clock.advance(1)
    assert ends == [30]
    clock.advance(1000)
    assert ends == [30]


def test_more_time_counts_from_when_it_was_given() -> None:
    waiting, clock, ends = patience()
    waiting.limit(30)
    clock.advance(20)
    waiting.limit(30)
    clock.advance(29)
    assert ends == []
    clock.advance(1)
    assert ends == [50]


def test_less_time_counts_too() -> None:
    waiting, clock, ends = patience()
    waiting.limit(120)
    waiting.limit(30)
    clock.advance(30)
    assert ends == [30]
    clock.advance(1000)
    assert ends == [30]


def test_it_does_not_end_while_nothing_is_waited_for() -> None:
    waiting, clock, ends = patience()
    waiting.limit(30)
    waiting.lift()
    clock.advance(1000)
    assert ends == []
    waiting.limit(30)
    clock.advance(30)
    assert ends == [1030]


def test_a_connection_that_is_gone_is_left_alone() -> None:
    waiting, clock, ends = patience()
    waiting.limit(30)
    waiting.end()
    clock.advance(1000)
    assert ends == []


def test_ten_thousand_requests_arm_one_timer() -> None:
    waiting, clock, _ = patience()
    for _ in range(10_000):
        waiting.limit(120)
        waiting.lift()
    assert clock.armed == 1
