"""PaddlePaddle's high-level API on scikit-learn's digits."""

import paddle
from sklearn.datasets import load_digits

from trainjob_progress.integrations.paddle import ReportProgress

x, y = load_digits(return_X_y=True)
x, y = paddle.to_tensor(x.astype("float32") / 16), paddle.to_tensor(y.reshape(-1, 1))
train, test = paddle.io.TensorDataset([x[:1400], y[:1400]]), paddle.io.TensorDataset([x[1400:], y[1400:]])

paddle.seed(0)
model = paddle.Model(
    paddle.nn.Sequential(paddle.nn.Linear(64, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 10))
)
optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
model.prepare(optimizer, paddle.nn.CrossEntropyLoss(), paddle.metric.Accuracy())
model.fit(train, test, batch_size=32, epochs=10, verbose=0, callbacks=[ReportProgress()])
print(f"accuracy={model.evaluate(test, batch_size=32, verbose=0)['acc']:.3f}")
