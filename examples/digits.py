"""Train a classifier on scikit-learn's handwritten digits, and say how far it has come.

The three lines that report are the import, the `with` and `r.step(...)`. `--report` is for the demo: it
can leave the report out, or write garbage in its place.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from trainjob_progress import report

Epoch = tuple[int, float, float]  # number from 1, loss on the training data, accuracy on held-out data

MODELS = {
    "linear": lambda: SGDClassifier(loss="log_loss", alpha=0.01, learning_rate="constant", eta0=0.001),
    "mlp": lambda: MLPClassifier(hidden_layer_sizes=(64,), learning_rate_init=0.0003),
}


def train(model_name: str, epochs: int, seconds: float) -> Iterator[Epoch]:
    """Train for `epochs`, spread over `seconds`; after each, its number, loss and held-out accuracy."""
    data, target = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(data / 16.0, target, test_size=0.25, random_state=0)
    model = MODELS[model_name]()
    generator = np.random.default_rng(0)
    began = time.monotonic()
    for epoch in range(1, epochs + 1):
        for batch in np.array_split(generator.permutation(len(train_x)), 10):
            model.partial_fit(train_x[batch], train_y[batch], classes=np.arange(10))
        loss = log_loss(train_y, model.predict_proba(train_x), labels=np.arange(10))
        yield epoch, float(loss), float(model.score(test_x, test_y))
        # The data are small; a real run would take its time by itself.
        time.sleep(max(0.0, began + seconds * epoch / epochs - time.monotonic()))


def with_report(steps: Iterator[Epoch], epochs: int) -> None:
    with report(total_steps=epochs) as r:
        for _, loss, accuracy in steps:
            r.step(loss=loss, accuracy=accuracy)


def with_nothing(steps: Iterator[Epoch], epochs: int) -> None:
    for epoch, loss, accuracy in steps:
        print(f"epoch {epoch}/{epochs} loss {loss:.3f} accuracy {accuracy:.3f}", flush=True)


def with_garbage(steps: Iterator[Epoch], epochs: int) -> None:
    for epoch, *_ in steps:
        with open(os.environ["TRAINJOB_PROGRESS_FILE"], "w") as file:
            file.write(f"epoch {epoch} of {epochs}, going well\n")


REPORTS: dict[str, Callable[[Iterator[Epoch], int], None]] = {
    "file": with_report,
    "nothing": with_nothing,
    "garbage": with_garbage,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.0, help="spread the run over this time")
    parser.add_argument("--report", choices=sorted(REPORTS), default="file")
    arguments = parser.parse_args()
    steps = train(arguments.model, arguments.epochs, arguments.seconds)
    REPORTS[arguments.report](steps, arguments.epochs)


if __name__ == "__main__":
    main()
