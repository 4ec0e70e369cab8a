"""How metrics of runs go: simulated, healthy ones and ones that diverge."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Course = list[dict[str, float]]  # the metrics at each value that is reported


def healthy(rng: random.Random, count: int) -> Course:
    """A run that learns, or does not: noisy, with spikes, and whatever else is no divergence."""
    return rng.choice(HEALTHY)(rng, count)


def diverging(rng: random.Random, count: int) -> tuple[Course, int]:
    """A run that was healthy, and diverges from the value of this number on."""
    return rng.choice(DIVERGING)(rng, count)


def _learning(rng: random.Random, count: int, noise: float | None = None) -> list[float]:
    """A loss that falls."""
    start = math.exp(rng.uniform(math.log(0.2), math.log(12)))
    end, power = start * rng.uniform(0.01, 0.9), rng.uniform(0.3, 3)
    noise = rng.choice([0.01, 0.05, 0.2, 0.5]) if noise is None else noise
    falling = [end + (start - end) / (1 + 20 * number / count) ** power for number in range(count)]
    return [value * rng.lognormvariate(-noise * noise / 2, noise) for value in falling]


def _norms(rng: random.Random, count: int) -> list[float]:
    level = math.exp(rng.uniform(math.log(0.1), math.log(10)))
    norms = [level * rng.lognormvariate(0, 0.5) for _ in range(count)]
    for _ in range(rng.randint(0, 6)):
        norms[rng.randrange(count)] *= rng.uniform(10, 300)
    return norms


def _with_norms(rng: random.Random, losses: list[float]) -> Course:
    if rng.random() < 0.4:
        return [{"loss": loss} for loss in losses]
    norms = _norms(rng, len(losses))
    return [{"loss": loss, "grad_norm": norm} for loss, norm in zip(losses, norms, strict=True)]


def _plain(rng: random.Random, count: int) -> Course:
    return _with_norms(rng, _learning(rng, count))


def _spiky(rng: random.Random, count: int) -> Course:
    """Spikes in the warm-up, which the loss recovers from, and a few later."""
    losses, longest = _learning(rng, count), max(3, count // 25)
    factors = [1.0] * count
    for _ in range(rng.randint(1, 6)):
        begin = rng.randrange(max(1, count // 10))
        _spike(factors, begin, rng.randint(1, longest), rng.uniform(2, 15))
    for _ in range(rng.randint(0, 4)):
        _spike(factors, rng.randrange(count), rng.randint(1, longest), rng.uniform(1.5, 30))
    return _with_norms(rng, [loss * factor for loss, factor in zip(losses, factors, strict=True)])


def _spike(factors: list[float], begin: int, length: int, factor: float) -> None:
    for number in range(begin, min(begin + length, len(factors))):
        factors[number] = max(factors[number], 1 + (factor - 1) * (1 - (number - begin) / length))


def _restarts(rng: random.Random, count: int) -> Course:
    """A learning rate that is raised again and again: the loss gives up a part of what it learned."""
    losses, cycles = _learning(rng, count, 0.05), rng.randint(2, 6)
    gain, period = max(losses) - min(losses), max(2, count // cycles)
    share = rng.uniform(0.05, 0.35)
    raised = [
        loss + share * gain * math.exp(-6 * (number % period) / period) * (number >= period)
        for number, loss in enumerate(losses)
    ]
    return _with_norms(rng, raised)


def _heavy_tails(rng: random.Random, count: int) -> Course:
    losses = _learning(rng, count, 0.05)
    return _with_norms(rng, [loss * (1 + abs(rng.gauss(0, 1)) ** 3 * 0.3) for loss in losses])


def _stages(rng: random.Random, count: int) -> Course:
    """Harder data after a while."""
    losses, at, factor = _learning(rng, count, 0.1), rng.randrange(count), rng.uniform(1.05, 1.35)
    return _with_norms(rng, [loss * factor if number > at else loss for number, loss in enumerate(losses)])


def _policy(rng: random.Random, count: int) -> Course:
    """Of reinforcement learning: about 0 and below, growing slowly while the run improves."""
    growth, noise = rng.uniform(0, 0.5), rng.uniform(0.005, 0.1)
    losses = [growth * number / count + rng.gauss(0, noise) for number in range(count)]
    return [{"loss": loss} for loss in losses]


def _likelihood(rng: random.Random, count: int) -> Course:
    """A loss below 0."""
    start, end = rng.uniform(-5, 5), rng.uniform(-200, -10)
    return [
        {"loss": end + (start - end) * math.exp(-5 * number / count) + rng.gauss(0, 0.5)}
        for number in range(count)
    ]


def _overfitting(rng: random.Random, count: int) -> Course:
    """The loss of evaluations rises, while that of the training falls."""
    losses, every = _learning(rng, count, 0.1), max(2, count // rng.randint(4, 30))
    low, turn = min(losses) * 1.2, rng.uniform(0.2, 0.6)
    course: Course = []
    value = losses[0]
    for number, loss in enumerate(losses):
        if number % every == 0:
            share = number / count
            value = low * (1 + 3 * max(0.0, share - turn)) * rng.lognormvariate(0, 0.05)
        course.append({"loss": loss, "eval_loss": value})
    return course


def _half_precision(rng: random.Random, count: int) -> Course:
    """Gradients overflow now and then, several times in a row at the start."""
    course = [{"loss": loss, "grad_norm": norm} for loss, norm in zip(
        _learning(rng, count), _norms(rng, count), strict=True
    )]  # fmt: skip
    overflowing = [*range(rng.randint(0, 8)), *(rng.randrange(count) for _ in range(count // 100))]
    for number in overflowing:
        course[min(number, count - 1)]["grad_norm"] = rng.choice([math.inf, math.nan])
    return course


def _flat(rng: random.Random, count: int) -> Course:
    level = rng.uniform(0.1, 10)
    return _with_norms(rng, [level * rng.lognormvariate(0, 0.1) for _ in range(count)])


def _begins(rng: random.Random, count: int) -> int:
    return rng.randrange(count // 5, count // 2)


def _not_finite(rng: random.Random, count: int) -> tuple[Course, int]:
    course, at = healthy(rng, count), _begins(rng, count)
    for metrics in course[at:]:
        metrics["loss"] = rng.choice([math.nan, math.inf])
    return course, at


def _explodes(rng: random.Random, count: int) -> tuple[Course, int]:
    losses, at = _learning(rng, count), _begins(rng, count)
    growth, most = rng.uniform(1.05, 2), math.exp(rng.uniform(math.log(30), math.log(1e6)))
    factor = 1.0
    for number in range(at, count):
        factor = min(most, factor * growth)
        losses[number] *= factor * rng.lognormvariate(0, 0.1)
    return _with_norms(rng, losses), at


def _jumps(rng: random.Random, count: int) -> tuple[Course, int]:
    """To many times what it was, where it stays."""
    losses, at, factor = _learning(rng, count), _begins(rng, count), rng.uniform(6, 50)
    losses[at:] = [max(loss, losses[at]) * factor * rng.lognormvariate(0, 0.05) for loss in losses[at:]]
    return _with_norms(rng, losses), at


def _forgets(rng: random.Random, count: int) -> tuple[Course, int]:
    """Back to where it began, from well below."""
    start, noise = rng.uniform(2, 12), rng.choice([0.01, 0.05])
    end, at = start * rng.uniform(0.05, 0.4), _begins(rng, count)
    losses = [end + (start - end) * math.exp(-30 * number / count) for number in range(count)]
    losses[at:] = [start * rng.uniform(0.9, 1.05)] * (count - at)
    return _with_norms(rng, [loss * rng.lognormvariate(0, noise) for loss in losses]), at


HEALTHY: list[Callable[[random.Random, int], Course]] = [
    _plain, _plain, _spiky, _spiky, _restarts, _heavy_tails, _stages, _policy, _likelihood, _overfitting,
    _half_precision, _flat,
]  # fmt: skip
DIVERGING: list[Callable[[random.Random, int], tuple[Course, int]]] = [
    _not_finite,
    _explodes,
    _jumps,
    _forgets,
]
