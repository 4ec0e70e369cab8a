"""Plain PyTorch on scikit-learn's digits; goes on from its checkpoint when it is started again."""

import os

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from trainjob_progress import report

EPOCHS = 10
CHECKPOINT = os.path.join(os.environ.get("CHECKPOINT_DIR", "."), "checkpoint.pt")

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
first = 0
if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"]

with report(total_steps=EPOCHS * len(loader), total_epochs=EPOCHS, initial_step=first * len(loader)) as r:
    for epoch in range(first, EPOCHS):
        for inputs, targets in loader:
            loss = cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            r.step(loss=loss)  # the tensor itself: it is read when a report is due
        with torch.no_grad():
            accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean()
        r.epoch(epoch + 1, accuracy=accuracy)
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, CHECKPOINT
        )

print(f"accuracy={accuracy:.3f}")
