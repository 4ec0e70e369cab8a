"""Keras on scikit-learn's digits, with JAX underneath unless KERAS_BACKEND says otherwise."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
from sklearn.datasets import load_digits

from trainjob_progress.integrations.keras import ReportProgress

x, y = load_digits(return_X_y=True)
x = x / 16

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x[:1400],
    y[:1400],
    validation_data=(x[1400:], y[1400:]),
    batch_size=32,
    epochs=10,
    verbose=2,
    callbacks=[ReportProgress()],
)
print(f"accuracy={history.history['val_accuracy'][-1]:.3f}")
