"""PyTorch Ignite on scikit-learn's digits."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from trainjob_progress.integrations.ignite import ReportProgress

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
validation = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=32)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
trainer = create_supervised_trainer(model, optimizer, torch.nn.CrossEntropyLoss())
evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()})

progress = ReportProgress(metrics_from=lambda loss: {"loss": loss}).attach(trainer)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate():
    evaluator.run(validation)
    progress.update(evaluator.state.metrics)


trainer.run(train, max_epochs=10)
print(f"accuracy={evaluator.state.metrics['accuracy']:.3f}")
