"""How the ranks of simulated runs get on, as rank 0 gathers it: healthy, and with a slow one."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from trainjob_progress.ranks import make_columns
from trainjob_progress.work import KEPT, WINDOW_S
from visibility_api.jobs.straggling import FACTOR, NOTHING_GATHERED
from visibility_api.reports.ranks import RankRow, make_ranks, read_ranks

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


def judge_files(rng: random.Random, *, lags: bool = False) -> Found:
    """One run of 2 to 500 ranks, whose own files are read each five minutes, sooner where one was slow.

    `lags`: one becomes 1.6 to 8 times as slow. Healthy ranks differ in their work by a quarter at most: by
    their data, as stages of a pipeline do, or rank 0, which also writes logs. On accelerators most of a step
    is none of their own.
    """
    size = max(2, int(math.exp(rng.uniform(math.log(2), math.log(500)))))
    step_s, noise = math.exp(rng.uniform(math.log(0.05), math.log(3))), rng.choice([0.02, 0.1, 0.3, 0.6])
    unequal = rng.choice([0.0, 0.1, 0.2])
    own = [step_s * (1 + rng.uniform(0, unequal)) for _ in range(size)]
    if rng.random() < 0.2:  # four stages
        own = [seconds * (1 + 0.05 * (4 * rank // size)) for rank, seconds in enumerate(own)]
    own[0] *= rng.choice([1.0, 1.1])
    own = [min(seconds, 1.25 * min(own)) for seconds in own]
    waited_s = 0.0 if lags else step_s * rng.choice([0.0, 0.0, 0.5, 5.0])  # for accelerators
    slow, begins, factor = rng.randrange(size), rng.randrange(5, 20), rng.uniform(1.6, 8)
    gathered, now_s, late = NOTHING_GATHERED, 0.0, dict[int, float]()
    falsely = rightly = None
    for number in range(60):
        every_s = 100.0 if any(not each.lags for each in gathered.slow) else 300.0
        now_s += every_s
        if rng.random() < every_s / 3000:  # it waits for data, or another process is on its node
            late[rng.randrange(size)] = now_s + rng.uniform(30, 150)
        works = [seconds * (factor if lags and number >= begins and rank == slow else 1.0)
                 for rank, seconds in enumerate(own)]  # fmt: skip
        whole_s = max(works) + waited_s
        steps = max(1.0, WINDOW_S / whole_s)
        rows = []
        for rank, seconds in enumerate(works):
            spread = noise / math.sqrt(steps)
            windows = sorted(seconds * rng.lognormvariate(-spread * spread / 2, spread) for _ in range(KEPT))
            work_s = windows[KEPT // 2] * (rng.uniform(2, 5) if late.get(rank, 0.0) > now_s else 1.0)
            rows.append(RankRow(rank, "", number, work_s, "", max(whole_s, work_s)))
        at = T0 + timedelta(seconds=now_s)
        ranks = make_ranks(at, rows, is_median=True)
        gathered = gathered.advance(ranks, at, attempt="a", factor=None, pause_s=PAUSE_S)
        for each in gathered.lagging:
            if lags and each.rank == slow and number >= begins:
                rightly = number if rightly is None else rightly
            elif falsely is None:
                falsely = number
    return Found(falsely=falsely, rightly=rightly, begins=begins if lags else None)
