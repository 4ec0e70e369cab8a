"""What a training notes of what it does, for those who compare: lines of JSON with begin and end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NOTES = open(os.environ["NOTES"], "a", buffering=1)  # noqa: SIM115
STEPS, DIES_AFTER, SAVE_EVERY, EVALUATE_EVERY = 400, 290, 100, 130
STEP_S, LOAD_S, SAVE_S, RESTORE_S, EVALUATE_S = 0.05, 0.025, 1.2, 1.5, 1.5
IS_FIRST = os.environ["ATTEMPT"] == "0"


def note(began: float, **what: Any) -> None:
    NOTES.write(json.dumps([began, time.time(), what]) + "\n")


@contextmanager
def noted(kind: str) -> Iterator[None]:
    began = time.time()
    yield
    note(began, kind=kind)


def spend(kind: str, seconds: float) -> None:
    with noted(kind):
        time.sleep(seconds)


def train(step: int) -> None:
    """The step of this number, from 1. In the first attempt the training dies after some."""
    began = time.time()
    time.sleep(STEP_S)
    note(began, step=step)
    if IS_FIRST and step == DIES_AFTER:
        os._exit(1)
