"""Lightning's Trainer with the callback, and no mark of its own."""

import os
import time

import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from noting import (
    EVALUATE_EVERY,
    EVALUATE_S,
    LOAD_S,
    RESTORE_S,
    SAVE_EVERY,
    SAVE_S,
    STEPS,
    noted,
    spend,
    train,
)
from torch.utils.data import DataLoader

from trainjob_progress.integrations.lightning import ReportProgress


class SlowIO(TorchCheckpointIO):
    def save_checkpoint(self, *args, **kwargs):
        with noted("CheckpointSave"):
            time.sleep(SAVE_S)
            super().save_checkpoint(*args, **kwargs)

    def load_checkpoint(self, *args, **kwargs):
        with noted("CheckpointRestore"):
            time.sleep(RESTORE_S)
            return super().load_checkpoint(*args, **kwargs)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        train(self.global_step + 1)
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def on_validation_epoch_end(self):
        spend("Evaluation", EVALUATE_S)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def collate(rows):
    spend("DataLoading", LOAD_S)
    return torch.stack(rows)


rows = [torch.rand(8) for _ in range(STEPS * 4)]
saving = ModelCheckpoint(
    dirpath="out", filename="last", every_n_train_steps=SAVE_EVERY, enable_version_counter=False
)
trainer = lightning.Trainer(
    max_steps=STEPS, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    num_sanity_val_steps=0, val_check_interval=EVALUATE_EVERY, callbacks=[ReportProgress(), saving],
    plugins=[SlowIO()],
)  # fmt: skip
trainer.fit(
    Model(), DataLoader(rows, batch_size=4, collate_fn=collate), DataLoader(rows[:4], batch_size=4),
    ckpt_path="out/last.ckpt" if os.path.exists("out/last.ckpt") else None,
)  # fmt: skip
