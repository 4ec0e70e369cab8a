"""What the ranks of a simulated run show when they are read while it stands still: at work, and in a hang.

The server's own judgement is made of it. Stacks are sampled from half a minute after the last step on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime

from visibility_api.diagnosis.claims import PodState
from visibility_api.diagnosis.judging import diagnose
from visibility_api.diagnosis.places import place_of
from visibility_api.diagnosis.reading import RankState
from visibility_api.diagnosis.result import Diagnosis

ALL_REDUCE = ("torch.distributed.distributed_c10d:all_reduce:2810", "train.py:main:9")
BARRIER = ("torch.distributed.distributed_c10d:barrier:4500", "train.py:main:12")
DEVICE = ("torch.cuda:synchronize:1040", "train.py:main:31")
COMPILES = ("jax._src.compiler:backend_compile:300", "train.py:main:4")
EVALUATES = ("train.py:evaluate:40", "train.py:main:20")
LOADS = ("torch.utils.data._utils.worker:_try_get_data:1200", "train.py:main:20")
SAVES = ("torch.serialization:save:850", "train.py:main:26")
WORKERS = ("multiprocessing.pool:wait:760", "train.py:main:4")
OWN = ("train.py:poll:7", "train.py:main:20")

# What all ranks do, or one while the others wait: stack, whether a CPU or accelerator is busy, whether the
# stack changes, and what the others do (None: the same).
Doing = tuple[Sequence[str], bool, bool, Sequence[str] | None]
HEALTHY: dict[str, Doing] = {
    "compilation in C": (COMPILES, True, False, None),
    "compilation by workers": (WORKERS, False, False, None),
    "compilation on one": (COMPILES, True, True, ALL_REDUCE),
    "evaluation": (EVALUATES, True, True, None),
    "evaluation on one": (EVALUATES, True, True, BARRIER),
    "evaluation on accelerators": (DEVICE, True, True, None),
    "checkpoint to a slow volume": (SAVES, False, False, BARRIER),
    "checkpoint": (SAVES, True, True, None),
    "slow loader": (LOADS, False, False, ALL_REDUCE),
    "slow loaders": (LOADS, True, True, None),
}
HANGS: dict[str, tuple[Doing, str, bool]] = {  # and the state of the one, and whether nothing comes to it
    "collective": ((ALL_REDUCE, False, False, None), "", True),
    "loader": (HEALTHY["slow loader"], "", True),
    "loader, of a file": (HEALTHY["slow loader"], "storage", True),
    "loader, of an answer": (HEALTHY["slow loader"], "", False),
    "GIL": ((OWN, False, False, ALL_REDUCE), "held", True),
    "GIL, spinning": ((OWN, True, False, ALL_REDUCE), "held", True),
    "SIGSTOP": ((OWN, False, False, ALL_REDUCE), "stopped", True),
    "ended": (((), False, False, ALL_REDUCE), "ended", True),
    "spinning": ((DEVICE, True, False, None), "", True),
    "busy loop": ((OWN, True, True, ALL_REDUCE), "", False),
}
SILENT_S = 60.0  # what is healthy gets something so often at least: data, or a worker's turn


def capture(
    rng: random.Random,
    doing: Doing,
    still_s: float,
    at: datetime,
    *,
    state: str = "",
    is_silent: bool = False,
) -> Diagnosis:
    """`is_silent`: nothing comes to the one that others wait for.

    Of a run that has stood still for so long; one in twenty pods says nothing."""
    frames, is_busy, is_changing, others = doing
    size = rng.choice([2, 4, 8, 16])
    one, pods = rng.randrange(size), []
    for rank in range(size):
        is_other = others is not None and rank != one
        shown = tuple(others or ()) if is_other else tuple(frames)
        sampled_s = max(0.0, still_s - rng.uniform(30, 32))
        for_s = sampled_s if is_other or not is_changing else min(sampled_s, rng.uniform(0, 60))
        idle_s = sampled_s if is_silent else min(sampled_s, rng.uniform(0, SILENT_S))
        uses = rng.random() < 0.02 if is_other or not is_busy else rng.random() < 0.95
        found = RankState(
            rank=rank,
            step=10,
            state="" if is_other else state,
            frames=shown if sampled_s else (),
            place=place_of(shown if sampled_s else ()),
            for_s=for_s,
            is_busy=uses,
            idle_s=None if uses or is_busy else idle_s,
            world_size=size,
        )
        pods.append(PodState(name=f"p{rank}", index=rank, ranks=(found,)))
    if rng.random() < 0.05:
        pods[rng.randrange(size)] = PodState(name="silent", unread="it did not answer in time")
    return diagnose(pods, at)
