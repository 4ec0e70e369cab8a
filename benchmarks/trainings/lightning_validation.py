"""Lightning: a validation of 30 batches after each epoch of 40 steps."""

import lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from trainjob_progress.integrations.lightning import ReportProgress

EPOCHS = 4


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
            torch.nn.Linear(512, 10),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        return cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("eval_loss", cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
x = torch.randn(70 * 128, 256)
data = TensorDataset(x, (x[:, :10].cumsum(1) > 0).sum(1) % 10)
train, validation = torch.utils.data.random_split(data, [40 * 128, 30 * 128])
trainer = lightning.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    callbacks=[ReportProgress()],
)
trainer.fit(
    Network(), DataLoader(train, batch_size=128, shuffle=True), DataLoader(validation, batch_size=128)
)
