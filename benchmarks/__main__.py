"""`python -m benchmarks`: the measurements, one after the other. Each module also runs by itself."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

import uvloop

from . import (
    aggregated,
    beside,
    bounds,
    estimates,
    growth,
    history,
    kinds,
    memory,
    probe,
    probing,
    push,
    reading,
    reporter,
    state,
    verdicts,
    watching,
)

Measurement = Callable[[], Awaitable[None]]


async def _memory() -> None:
    memory.show([await memory.measure(jobs, idle_s=memory.IDLE_S) for jobs in memory.NUMBERS])


async def _probing() -> None:
    await probing.show(10_000, 30.0, 60.0)


async def _estimates() -> None:
    estimates.show()


async def _verdicts() -> None:
    verdicts.show()


MEASUREMENTS: dict[str, Measurement] = {
    "bounds": bounds.show,
    "reading": reading.show,
    "watching": watching.show,
    "aggregated": aggregated.show,
    "push": push.measure,
    "probe": probe.run,
}
# With --growth: how cost grows, and what takes minutes.
LONG_MEASUREMENTS: dict[str, Measurement] = {
    "bounds": bounds.show,
    "growth": growth.show,
    "memory": _memory,
    "kinds": kinds.show,
    "probing": _probing,
    "state": state.show,
    "history": history.show,
    "beside": beside.show,
    "estimates": _estimates,
    "verdicts": _verdicts,
}


def main() -> int:
    every = MEASUREMENTS | LONG_MEASUREMENTS
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(every)}, reporter")
    parser.add_argument("--growth", action="store_true", help=f"also {', '.join(LONG_MEASUREMENTS)}")
    given = parser.parse_args()
    if unknown := set(given.names) - set(every) - {"reporter"}:
        parser.error(f"there is no measurement called {', '.join(sorted(unknown))}")
    names = given.names or [*(every if given.growth else MEASUREMENTS), "reporter"]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name in names:
            if name != "reporter":
                runner.run(every[name]())
    return reporter.main() if "reporter" in names else 0


if __name__ == "__main__":
    sys.exit(main())
