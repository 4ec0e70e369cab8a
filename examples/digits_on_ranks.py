"""Train on several ranks, which average their gradients after each step, until the last one's loader hangs.

The thread that prepares its data ends, and the loop waits for the next batch for ever; the other ranks wait
for that rank. It happens for real. `make demo` shows how it looks from outside.
"""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from trainjob_progress import report

STEPS, BATCH = 60, 64


class Peers:
    """The ranks of one job, which meet at a socket of rank 0."""

    def __init__(self, rank: int, size: int, path: Path) -> None:
        self.rank, self._others = rank, []
        if rank == 0:
            with Listener(str(path), family="AF_UNIX", backlog=size) as listener:
                self._others = [listener.accept() for _ in range(size - 1)]
        else:
            self._others = [_connect(path)]

    def all_reduce(self, values: np.ndarray) -> np.ndarray:
        """The mean over all ranks: rank 0 makes it of what the others send."""
        if self.rank == 0:
            values = np.mean([values, *(each.recv() for each in self._others)], axis=0)
        for each in self._others:
            each.send(values)
        return values if self.rank == 0 else self._others[0].recv()


def _connect(path: Path) -> Connection:
    while True:
        try:
            return Client(str(path), family="AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.1)


def load(rows: int, last: int | None) -> Iterator[np.ndarray]:
    """Which rows each step trains on, prepared by a thread; it ends without a word after `last` of them."""
    ready: queue.Queue[np.ndarray] = queue.Queue(maxsize=2)

    def prepare() -> None:
        generator = np.random.default_rng(0)
        for _ in range(STEPS if last is None else last):
            ready.put(generator.integers(0, rows, BATCH))

    threading.Thread(target=prepare, daemon=True).start()
    for _ in range(STEPS):
        yield ready.get()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meet", type=Path, required=True, help="a socket that all ranks can reach")
    parser.add_argument("--hang-after", type=int, help="the step after which the last rank's loader hangs")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long it would take if all went well")
    arguments = parser.parse_args()
    rank, size = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
    data, target = load_digits(return_X_y=True)
    data, wanted = data[rank::size] / 16.0, np.eye(10)[target[rank::size]]
    weights, peers = np.zeros((data.shape[1], 10)), Peers(rank, size, arguments.meet)
    last = arguments.hang_after if rank == size - 1 else None
    with report(total_steps=STEPS) as r:
        for rows in r.track(load(len(data), last)):
            scores = np.exp(data[rows] @ weights)
            chances = scores / scores.sum(axis=1, keepdims=True)
            weights -= 0.5 * peers.all_reduce(data[rows].T @ (chances - wanted[rows]) / BATCH)
            r.step(loss=float(-np.log(chances[wanted[rows] == 1]).mean()))
            time.sleep(arguments.seconds / STEPS)  # the data are small; a real step takes its time


if __name__ == "__main__":
    main()
