"""Train as digits.py does, and mark what it waits for: its loader, evaluations and checkpoints.

`make demo` runs it twice: with a loader that takes a third of the time, and with a failure in its middle. The
marks are `r.track`, `restoring`, `evaluating` and `checkpointing`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from digits import MODELS
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from trainjob_progress import checkpointing, evaluating, report, restoring

STEPS, EVALUATE_EVERY, SAVE_EVERY = 120, 40, 20


def load(steps: int, seconds: float) -> Iterator[np.ndarray]:
    """Which rows each step trains on, after so many seconds: decoding, augmenting, a slow disk."""
    generator = np.random.default_rng(0)
    for _ in range(steps):
        if seconds:
            time.sleep(seconds)
        yield generator.integers(0, 1400, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long it takes, about")
    parser.add_argument("--loading", type=float, default=0.0, help="share of that in the loader")
    parser.add_argument("--checkpoint", type=Path, help="where to save, and to resume from")
    parser.add_argument("--die-after", type=int, help="the step after which it fails, if it was not resumed")
    arguments = parser.parse_args()
    step_s = arguments.seconds / STEPS
    data, target = load_digits(return_X_y=True)
    data = data / 16.0
    model, step, path = MODELS["mlp"](), 0, arguments.checkpoint
    with report(total_steps=STEPS, initial_step=None) as r:
        if path is not None and path.exists():
            with restoring():
                model, step = pickle.loads(path.read_bytes())
                time.sleep(step_s)
        first = step
        r.update(step=step)
        for rows in r.track(load(STEPS - first, step_s * arguments.loading)):
            model.partial_fit(data[rows], target[rows], classes=np.arange(10))
            time.sleep(step_s * (1 - arguments.loading))  # the data are small; a real step takes its time
            step += 1
            r.step(loss=log_loss(target[rows], model.predict_proba(data[rows]), labels=np.arange(10)))
            if step % EVALUATE_EVERY == 0:
                with evaluating():
                    r.update(accuracy=model.score(data[1400:], target[1400:]))
                    time.sleep(2 * step_s)
            if path is not None and step % SAVE_EVERY == 0:
                with checkpointing(step=step):
                    temporary = path.with_suffix(".new")
                    temporary.write_bytes(pickle.dumps((model, step)))
                    temporary.replace(path)
                    time.sleep(step_s)
            if step == arguments.die_after and not first:
                os._exit(1)  # as a node does that goes away


if __name__ == "__main__":
    main()
