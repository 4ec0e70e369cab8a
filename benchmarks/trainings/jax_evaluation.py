"""JAX: compilation at the first step and at the first evaluation, an evaluation after each 60 steps."""

import jax
import numpy as np
import optax
from flax import nnx

from trainjob_progress import report

EPOCHS = 4
STEPS, BATCH, EVALUATED = 60, 128, 30

rng = np.random.default_rng(0)
x = rng.normal(size=(STEPS * BATCH, 256)).astype("float32")
y = (x[:, :10].cumsum(1) > 0).sum(1) % 10
rngs = nnx.Rngs(0)
model = nnx.Sequential(
    nnx.Linear(256, 512, rngs=rngs), jax.nn.relu, nnx.Linear(512, 512, rngs=rngs), jax.nn.relu,
    nnx.Linear(512, 10, rngs=rngs),
)  # fmt: skip
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)


def loss_of(model, inputs, targets):
    return optax.softmax_cross_entropy_with_integer_labels(model(inputs), targets).mean()


@nnx.jit
def train_step(model, optimizer, inputs, targets):
    loss, gradients = nnx.value_and_grad(loss_of)(model, inputs, targets)
    optimizer.update(model, gradients)
    return loss


evaluate = nnx.jit(loss_of)

with report(total_steps=EPOCHS * STEPS, total_epochs=EPOCHS) as r:
    for _ in range(EPOCHS):
        for i in range(0, STEPS * BATCH, BATCH):
            r.step(loss=float(train_step(model, optimizer, x[i : i + BATCH], y[i : i + BATCH])))
        losses = [
            evaluate(model, x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, EVALUATED * BATCH, BATCH)
        ]
        r.epoch(eval_loss=float(np.mean(losses)))
