"""scikit-learn in a loop of `partial_fit`, on its own digits."""

import numpy
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from trainjob_progress import report

EPOCHS = 60
x, y = load_digits(return_X_y=True)
x = x / 16

model = MLPClassifier((64,), random_state=0)
with report(total_steps=EPOCHS) as r:
    for _ in range(EPOCHS):
        model.partial_fit(x[:1400], y[:1400], classes=numpy.unique(y))
        r.step(loss=model.loss_, accuracy=model.score(x[1400:], y[1400:]))
print(f"accuracy={model.score(x[1400:], y[1400:]):.3f}")
