"""Keras on JAX: compilation at the first step and at the first validation, one after each 60 batches."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from trainjob_progress.integrations.keras import ReportProgress

EPOCHS = 4

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(90 * 128, 256)).astype("float32")
y = (x[:, :10].cumsum(1) > 0).sum(1) % 10
model = keras.Sequential(
    [keras.Input((256,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(512, "relu"),
     keras.layers.Dense(10, "softmax")]
)  # fmt: skip
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(
    x[: 60 * 128], y[: 60 * 128], validation_data=(x[60 * 128 :], y[60 * 128 :]), batch_size=128,
    epochs=EPOCHS, verbose=2, callbacks=[ReportProgress()],
)  # fmt: skip
