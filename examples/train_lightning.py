"""Lightning on scikit-learn's digits."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from trainjob_progress.integrations.lightning import ReportProgress


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        loss = cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("accuracy", (self.layers(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
validation = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=32)

trainer = lightning.Trainer(
    max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[ReportProgress()]
)
trainer.fit(Digits(), train, validation)
print(f"accuracy={trainer.callback_metrics['accuracy']:.3f}")
