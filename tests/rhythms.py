"""When runs reach their steps: recorded (tests/vectors/rhythms.json) and simulated, as sources show it.

A rhythm is a list of (seconds since the start, step), the last one its end.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

Rhythm = list[tuple[float, int]]
Pause = tuple[int, float, float]  # after so many steps each, so many seconds, with this variation

VECTORS = Path(__file__).parent / "vectors" / "rhythms.json"


def recorded() -> dict[str, Rhythm]:
    """Of real trainings, by name."""
    trainings = json.loads(VECTORS.read_text())["trainings"]
    return {each["name"]: [(at_s, step) for at_s, step in each["samples"]] for each in trainings}


def stretched(rhythm: Rhythm, duration_s: float) -> Rhythm:
    """The same run on a slower machine: what is recorded takes seconds."""
    factor = duration_s / rhythm[-1][0]
    return [(at_s * factor, step) for at_s, step in rhythm]


def probed(rhythm: Rhythm, interval_s: float) -> Rhythm:
    """What is new when the run is probed each so often."""
    seen, position, now_s = [rhythm[0]], 0, 0.0
    while now_s < rhythm[-1][0]:
        now_s += interval_s
        while position + 1 < len(rhythm) and rhythm[position + 1][0] <= now_s:
            position += 1
        if rhythm[position] != seen[-1]:
            seen.append(rhythm[position])
    return seen


def reported(rhythm: Rhythm, interval_s: float) -> Rhythm:
    """The reports of a training process that writes one at most each so often."""
    seen = [rhythm[0]]
    for sample in rhythm[1:]:
        if sample[0] - seen[-1][0] >= interval_s:
            seen.append(sample)
    return seen


def simulate(
    rng: random.Random,
    steps: int,
    step_s: float,
    *,
    variation: float = 0.1,
    pauses: Iterable[Pause] = (),
    rate: Callable[[float], float] = lambda _share: 1.0,
    first: int = 0,
) -> Rhythm:
    """A run that compiles at first, and pauses. `rate`: the factor of a step's time, by the share done."""
    at_s, rhythm = 0.0, [(0.0, first)]
    for step in range(1, steps + 1):
        at_s += step_s * _varied(rng, variation) * rate(step / steps)
        if step == 1:
            at_s += rng.uniform(5, 120)
        elif step == 2 and rng.random() < 0.3:  # for the second shape of a batch
            at_s += rng.uniform(5, 60)
        rhythm.append((at_s, first + step))
        for every, pause_s, pause_variation in pauses:
            if step % every == 0 and step < steps:
                at_s += pause_s * _varied(rng, pause_variation)
    return rhythm


def simulated(
    per_kind: int, seed: int = 0, source: type[random.Random] = random.Random
) -> dict[str, list[Rhythm]]:
    """Runs of ten minutes to ten hours, so many of each kind. `source`: `OnAverage` for the same runs without
    their noise."""
    return {
        name: [kind(source(f"{seed} {name} {number}")) for number in range(per_kind)]
        for name, kind in KINDS.items()
    }


class OnAverage(random.Random):
    """Draws as `random.Random` does, but what `_varied` makes of it is what it is on average."""

    def lognormvariate(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        super().lognormvariate(mu, sigma)  # so that later draws are the same
        return math.exp(mu + sigma * sigma / 2)


def _varied(rng: random.Random, variation: float) -> float:
    """About 1, on average 1, never below 0."""
    return rng.lognormvariate(-variation * variation / 2, variation)


def _size(rng: random.Random) -> tuple[float, int]:
    """Seconds a step, and steps: between 100 and 20,000."""
    duration_s = _log_uniform(rng, 600, 36_000)
    step_s = _log_uniform(rng, max(0.2, duration_s / 20_000), min(20, duration_s / 100))
    return step_s, max(60, int(duration_s / step_s))


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _steady(rng: random.Random) -> Rhythm:
    step_s, steps = _size(rng)
    return simulate(rng, steps, step_s, variation=rng.choice([0.02, 0.1, 0.3]))


def _noisy(rng: random.Random) -> Rhythm:
    step_s, steps = _size(rng)
    return simulate(rng, steps, step_s, variation=rng.choice([0.6, 1.0]))


def _evaluation(rng: random.Random, evaluations: Sequence[int] = range(5, 31)) -> Rhythm:
    step_s, steps = _size(rng)
    every = max(5, steps // rng.choice(evaluations))
    return simulate(rng, steps, step_s, pauses=[(every, every * step_s * rng.uniform(0.03, 0.4), 0.1)])


def _few_evaluations(rng: random.Random) -> Rhythm:
    return _evaluation(rng, range(2, 5))


def _two_kinds(rng: random.Random) -> Rhythm:
    step_s, steps = _size(rng)
    short, long = max(5, steps // rng.randint(10, 60)), max(7, steps // rng.randint(4, 10))
    checkpoints = (short, short * step_s * rng.uniform(0.05, 0.3), 0.3)
    return simulate(
        rng, steps, step_s, pauses=[checkpoints, (long, long * step_s * rng.uniform(0.03, 0.3), 0.1)]
    )


def _slower(rng: random.Random) -> Rhythm:
    (step_s, steps), by = _size(rng), rng.uniform(0.2, 0.6)
    return simulate(rng, steps, step_s, rate=lambda share: 1 + by * share)


def _faster(rng: random.Random) -> Rhythm:
    (step_s, steps), by = _size(rng), rng.uniform(0.2, 0.4)
    return simulate(rng, steps, step_s, rate=lambda share: 1 - by * share)


def _changed(rng: random.Random) -> Rhythm:
    (step_s, steps), at, factor = _size(rng), rng.uniform(0.05, 0.18), rng.choice([0.5, 1.5, 2.0, 3.0])
    return simulate(rng, steps, step_s, rate=lambda share: factor if share > at else 1.0)


def _waves(rng: random.Random) -> Rhythm:
    (step_s, steps), by, waves = _size(rng), rng.uniform(0.1, 0.4), rng.randint(3, 30)
    return simulate(rng, steps, step_s, rate=lambda share: 1 + by * math.sin(2 * math.pi * waves * share))


def _one_pause(rng: random.Random) -> Rhythm:
    (step_s, steps), at = _size(rng), rng.uniform(0.05, 0.9)
    pause_s = steps * step_s * rng.uniform(0.02, 0.1)
    rhythm = simulate(rng, steps, step_s)
    return [(at_s + pause_s if step > at * steps else at_s, step) for at_s, step in rhythm]


def _resumed(rng: random.Random) -> Rhythm:
    step_s, steps = _size(rng)
    every = max(5, steps // rng.randint(8, 20))
    evaluation = (every, every * step_s * rng.uniform(0.03, 0.2), 0.1)
    return simulate(rng, steps, step_s, pauses=[evaluation], first=rng.randint(1, 10) * steps)


def _restarted(rng: random.Random) -> Rhythm:
    step_s, steps = _size(rng)
    every = max(5, steps // rng.randint(8, 20))
    evaluation = (every, every * step_s * rng.uniform(0.03, 0.2), 0.1)
    failed = max(2, int(steps * rng.uniform(0.05, 0.15)))
    before = simulate(rng, steps, step_s, pauses=[evaluation])[:failed]
    checkpoint = failed - rng.randint(1, failed // 2)
    again_s = before[-1][0] + rng.uniform(30, 300)
    after = simulate(rng, steps - checkpoint, step_s, pauses=[evaluation], first=checkpoint)
    return before + [(again_s + at_s, step) for at_s, step in after]


def pausing(rng: random.Random) -> tuple[Rhythm, int | None, float]:
    """A healthy run of ten minutes to six hours, the steps of its epochs if it reports any, and how many
    seconds it takes after its last step. It loads and evaluates long, saves, waits for data now and then."""
    duration_s = _log_uniform(rng, 600, 21_600)
    steps = rng.randint(60, 1500)
    step_s = duration_s / steps
    epoch = max(2, int(steps / _log_uniform(rng, 2, 30)))
    evaluation_s = min(1200.0, epoch * step_s * _log_uniform(rng, 0.01, 0.3))
    pauses: list[Pause] = [(epoch, evaluation_s, 0.2)]
    if rng.random() < 0.5:
        every = max(2, int(epoch * _log_uniform(rng, 0.2, 5)))
        pauses.append((every, min(300.0, every * step_s * _log_uniform(rng, 0.01, 0.1)), 0.5))
    rhythm = simulate(rng, steps, step_s, variation=rng.choice([0.05, 0.3, 0.6]), pauses=pauses)
    waits = sorted(rng.uniform(0, rhythm[-1][0]) for _ in range(rng.randint(0, int(duration_s / 3600) + 1)))
    later_s, moved = _log_uniform(rng, 1, 1200), [rhythm[0]]
    for at_s, step in rhythm[1:]:
        while waits and at_s > waits[0]:
            waits.pop(0)
            later_s += _log_uniform(rng, 5, 60)
        moved.append((at_s + later_s, step))
    return moved, epoch if rng.random() < 0.6 else None, _log_uniform(rng, 1, 1200)


def quick(rng: random.Random) -> tuple[Rhythm, int | None, float]:
    """The same of a run of ten minutes to two hours with steps of 0.3 to 3 s, which begins within half a
    minute and pauses for 20 s at most."""
    step_s = _log_uniform(rng, 0.3, 3)
    steps = int(_log_uniform(rng, 600, 7200) / step_s)
    epoch = max(2, int(steps / _log_uniform(rng, 2, 30)))
    pauses: list[Pause] = [(epoch, min(20.0, epoch * step_s * _log_uniform(rng, 0.01, 0.3)), 0.2)]
    at_s, rhythm = rng.uniform(1, 30), [(0.0, 0)]
    for step in range(1, steps + 1):
        at_s += step_s * _varied(rng, 0.2)
        rhythm.append((at_s, step))
        for every, pause_s, variation in pauses:
            if step % every == 0 and step < steps:
                at_s += pause_s * _varied(rng, variation)
    return rhythm, epoch if rng.random() < 0.6 else None, _log_uniform(rng, 1, 60)


KINDS: dict[str, Callable[[random.Random], Rhythm]] = {
    "steady": _steady,
    "noisy steps": _noisy,
    "several epochs with evaluation": _evaluation,
    "few long evaluations": _few_evaluations,
    "evaluations and checkpoints": _two_kinds,
    "becomes slower": _slower,
    "becomes faster": _faster,
    "one change of rate": _changed,
    "rate in waves": _waves,
    "one single pause": _one_pause,
    "resumed, with evaluation": _resumed,
    "restarted from a checkpoint": _restarted,
}
