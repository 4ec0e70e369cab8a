"""Accelerate on scikit-learn's digits, with progress as one of its trackers."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from trainjob_progress.integrations.accelerate import ReportProgress

EPOCHS = 10
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
torch.manual_seed(0)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

accelerator = Accelerator(cpu=True, log_with=ReportProgress(total_steps=EPOCHS * len(loader)))
accelerator.init_trackers("digits")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

step = 0
for _ in range(EPOCHS):
    for inputs, targets in loader:
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        accelerator.log({"loss": loss}, step=step)
    with torch.no_grad():
        accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean()
    accelerator.log({"accuracy": accuracy}, step=step)
accelerator.end_training()
print(f"accuracy={accuracy:.3f}")
