"""How the ranks of simulated runs get on, as rank 0 gathers it: healthy, and with a slow one."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from trainjob_progress.ranks import make_columns
from visibility_api.jobs.straggling import FACTOR, NOTHING_GATHERED
from visibility_api.reports.ranks import read_ranks

from .jobs import T0

ACCOUNTS = 150
PAUSE_S = 600.0  # for which a run whose ranks do not wait for each other may stand still and be well


@dataclass(frozen=True, kw_only=True)
class Found:
    """Which accounts of a run showed a rank to lag."""

    falsely: int | None  # the first that named one that is well
    rightly: int | None
    begins: int | None  # from which on one was slow


def judge(rng: random.Random, *, lags: bool = False) -> Found:
    """One run of 2 to 500 ranks, an account of them every 15 s to a minute."""
    size = max(2, int(math.exp(rng.uniform(math.log(2), math.log(500)))))
    every_s, step_s = rng.uniform(15, 60), math.exp(rng.uniform(math.log(0.05), math.log(3)))
    noise = rng.choice([0.02, 0.1, 0.2] if lags else [0.02, 0.1, 0.3, 0.6])
    unequal = rng.choice([0.0, 0.1, 0.4])  # more work, or older accelerators
    own = [step_s * (1 + rng.uniform(0, unequal)) for _ in range(size)]
    waits = rng.random() < 0.6  # the ranks for each other
    slow, begins, factor = rng.randrange(size), rng.randrange(20, ACCOUNTS // 2), rng.uniform(2.6, 8)
    gathered, done, late = NOTHING_GATHERED, [0.0] * size, dict[int, int]()
    falsely = rightly = None
    for number in range(ACCOUNTS):
        if rng.random() < 0.1:  # a checkpoint, an evaluation, a wait for data
            hit = rng.choice([0, rng.randrange(size)])
            late[hit] = max(late.get(hit, 0), rng.randint(1, 4))
        load = 1.5 if rng.random() < 0.05 else 1.0  # longer sequences, for all of them
        took = [seconds * load * rng.lognormvariate(-noise * noise / 2, noise) for seconds in own]
        if lags and number >= begins:
            took[slow] *= factor
        for rank in list(late):
            took[rank] *= rng.uniform(2, 20) if waits else 1e6
            late[rank] -= 1
            if not late[rank]:
                del late[rank]
        at = T0 + timedelta(seconds=number * every_s)
        for rank in range(size):
            done[rank] += every_s / took[rank]
        if waits:
            columns = make_columns(at.timestamp(), took, None, None)
        else:
            columns = make_columns(at.timestamp(), None, [int(each) for each in done], None)
        if columns is None:
            continue
        ranks = read_ranks(columns)
        gathered = gathered.advance(ranks, at, attempt="a", factor=FACTOR, pause_s=PAUSE_S)
        for each in gathered.lagging:
            if lags and each.rank == slow and number >= begins:
                rightly = number if rightly is None else rightly
            elif falsely is None:
                falsely = number
    return Found(falsely=falsely, rightly=rightly, begins=begins if lags else None)
