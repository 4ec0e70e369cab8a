"""JAX with Flax and Optax on scikit-learn's digits."""

import optax
from flax import nnx
from sklearn.datasets import load_digits

from trainjob_progress import report

EPOCHS, BATCH = 10, 32
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")


class Network(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 64, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, inputs):
        return self.out(nnx.relu(self.hidden(inputs)))


@nnx.jit
def train_step(model, optimizer, inputs, targets):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(inputs), targets).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


model = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
starts = range(0, 1400 - BATCH + 1, BATCH)
with report(total_steps=EPOCHS * len(starts), total_epochs=EPOCHS) as r:
    for _ in range(EPOCHS):
        for i in starts:
            loss = train_step(model, optimizer, x[i : i + BATCH], y[i : i + BATCH])
            r.step(loss=loss)  # stays on the device until a report is due
        accuracy = float((model(x[1400:]).argmax(1) == y[1400:]).mean())
        r.epoch(accuracy=accuracy)
print(f"accuracy={accuracy:.3f}")
