"""JAX, Flax and Optax in a loop: metrics stay on the device until a report is due."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from trainjob_progress import report

from .conftest import Progress

jax = pytest.importorskip("jax")
nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")
from sklearn.datasets import load_digits  # noqa: E402


def batches() -> list[tuple[Any, Any]]:
    x, y = load_digits(return_X_y=True)
    return [(x[i : i + 32].astype("float32") / 16, y[i : i + 32]) for i in range(0, 640, 32)]


def make() -> tuple[Any, Any]:
    model = nnx.Linear(64, 10, rngs=nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)


@nnx.jit
def train_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    def loss_of(model: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def test_a_flax_loop_hands_over_arrays_as_they_are(progress: Progress) -> None:
    model, optimizer = make()
    with report(total_steps=60, total_epochs=3) as r:
        for _ in range(3):
            for x, y in batches():
                loss = train_step(model, optimizer, x, y)
                r.step(loss=loss)
            r.epoch()
    assert progress.numbers == ("completed", 60, 60, 100)
    assert progress.last["metrics"] == {"loss": float(loss)}
    assert progress.last["epoch"] == 3
    progress.check_order()


def test_a_step_count_kept_in_an_array_is_a_step(progress: Progress) -> None:
    model, optimizer = make()
    with report(total_steps=20) as r:
        for x, y in batches():
            train_step(model, optimizer, x, y)
            r.update(step=optimizer.step[...])
    assert progress.numbers == ("completed", 20, 20, 100)


def test_a_resumed_run_goes_on_where_it_was(progress: Progress) -> None:
    model, optimizer = make()
    first = report(total_steps=40)
    for x, y in batches():
        first.step(loss=train_step(model, optimizer, x, y))
    progress.wait()
    progress.begin_anew()
    with report(total_steps=40, initial_step=int(optimizer.step[...])) as r:
        progress.wait()
        for x, y in batches():
            r.step(loss=train_step(model, optimizer, x, y))
    assert progress.seen[0]["step"] == 20
    assert progress.numbers == ("completed", 40, 40, 100)


def test_asking_for_the_rank_leaves_jax_uninitialised() -> None:
    script = (
        "import jax; from trainjob_progress.rank import find_rank; from jax._src import xla_bridge\n"
        "assert find_rank({'JAX_PROCESS_ID': '3'}) == 3\n"
        "assert not xla_bridge.backends_are_initialized()"  # or initialize() would fail
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_an_initialised_jax_knows_its_rank_better_than_the_environment() -> None:
    script = (
        "import jax, socket; from trainjob_progress.rank import find_rank\n"
        "with socket.create_server(('127.0.0.1', 0)) as s: port = s.getsockname()[1]\n"
        "jax.distributed.initialize(f'127.0.0.1:{port}', num_processes=1, process_id=0)\n"
        "assert find_rank({'JAX_PROCESS_ID': '3'}) == jax.process_index() == 0"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
