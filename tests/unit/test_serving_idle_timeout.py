"""One timer for all timeouts of a connection."""

from __future__ import annotations

import asyncio

from visibility_api.serving.idle_timeout import IdleTimeout


class Clock:
    """An event loop's timers on a clock of its own: only what `IdleTimeout` needs."""

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


def idle_timeout() -> tuple[IdleTimeout, Clock, list[float]]:
    clock = Clock()
    ends: list[float] = []
    return IdleTimeout(clock, lambda: ends.append(clock.now)), clock, ends  # type: ignore[arg-type]


def test_it_ends_when_its_time_is_over() -> None:
    timeout, clock, ends = idle_timeout()
    timeout.start(30)
    clock.advance(29)
    assert ends == []
    clock.advance(1)
    assert ends == [30]
    clock.advance(1000)
    assert ends == [30]


def test_more_time_counts_from_when_it_was_given() -> None:
    timeout, clock, ends = idle_timeout()
    timeout.start(30)
    clock.advance(20)
    timeout.start(30)
    clock.advance(29)
    assert ends == []
    clock.advance(1)
    assert ends == [50]


def test_less_time_counts_too() -> None:
    timeout, clock, ends = idle_timeout()
    timeout.start(120)
    timeout.start(30)
    clock.advance(30)
    assert ends == [30]
    clock.advance(1000)
    assert ends == [30]


def test_it_does_not_end_while_nothing_is_waited_for() -> None:
    timeout, clock, ends = idle_timeout()
    timeout.start(30)
    timeout.stop()
    clock.advance(1000)
    assert ends == []
    timeout.start(30)
    clock.advance(30)
    assert ends == [1030]


def test_a_connection_that_is_gone_is_left_alone() -> None:
    timeout, clock, ends = idle_timeout()
    timeout.start(30)
    timeout.close()
    clock.advance(1000)
    assert ends == []


def test_ten_thousand_requests_arm_one_timer() -> None:
    timeout, clock, _ = idle_timeout()
    for _ in range(10_000):
        timeout.start(120)
        timeout.stop()
    assert clock.armed == 1
