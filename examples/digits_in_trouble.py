"""Train as digits.py does, and go wrong on the way: diverge, or run out of memory.

Each is what happens to real runs, and happens for real. `make demo` shows how that looks from outside.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from digits import train
from sklearn.datasets import load_digits

from trainjob_progress import report

EPOCHS = 60
CHUNK_BYTES = 8 * 1024 * 1024


def diverge(seconds: float) -> Iterator[float]:
    """Gradient descent whose learning rate grows: at first it learns faster, then each step overshoots."""
    data, target = load_digits(return_X_y=True)
    weights = np.zeros(data.shape[1])
    with np.errstate(all="ignore"):  # overflow is what this is about
        for epoch in range(EPOCHS):
            yield float(np.mean((data @ weights - target) ** 2))
            for _ in range(5):
                weights -= 1e-5 * 1.4**epoch * data.T @ (data @ weights - target) / len(target)
            time.sleep(seconds / EPOCHS)


def leak(seconds: float) -> Iterator[float]:
    """Keeps something of every step, such as a loss with its graph, until the memory limit is reached."""
    kept = []
    for _, loss, _ in train("mlp", EPOCHS, seconds):
        kept.append(np.ones(CHUNK_BYTES, dtype=np.uint8))
        yield loss


TROUBLES = {"diverge": diverge, "leak": leak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trouble", choices=sorted(TROUBLES))
    parser.add_argument("--seconds", type=float, default=30.0, help="how long it would take if all went well")
    arguments = parser.parse_args()
    with report(total_steps=EPOCHS) as r:
        for loss in TROUBLES[arguments.trouble](arguments.seconds):
            r.step(loss=loss)


if __name__ == "__main__":
    main()
