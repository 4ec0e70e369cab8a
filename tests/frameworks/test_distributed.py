"""Two processes of a framework's own making: rank 0 writes the document, the other one its own file alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

TRANSFORMERS = """
import os, torch, transformers
from trainjob_progress.integrations.transformers import ReportProgress

rows = torch.arange(64).view(-1, 1) + torch.arange(16)
data = [{"input_ids": row % 64, "labels": row % 64} for row in rows]
config = transformers.LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                  num_attention_heads=2, num_key_value_heads=2)

class Mark(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        logs["rank_plus_one"] = 1 + int(os.environ["RANK"])

arguments = transformers.TrainingArguments(
    "output", per_device_train_batch_size=4, num_train_epochs=2, use_cpu=True, logging_steps=1,
    save_strategy="no", report_to=[], disable_tqdm=True, dataloader_num_workers=2,
)
trainer = transformers.Trainer(transformers.LlamaForCausalLM(config), arguments, train_dataset=data,
                               callbacks=[Mark, ReportProgress])
trainer.train()
assert trainer.args.world_size == 2
"""

LIGHTNING = """
import sys, lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from trainjob_progress.integrations.lightning import ReportProgress

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        self.log("rank_plus_one", 1.0 + self.trainer.global_rank)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.randn(128, 8)), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=2, strategy=sys.argv[1], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, callbacks=[ReportProgress()],
    )
    trainer.fit(Module(), loader)
"""


def run(directory: Path, script: str, *command: str) -> dict[str, Any]:
    (directory / "train.py").write_text(script)
    path = directory / "progress.json"
    environ = {
        **os.environ,
        "TRAINJOB_PROGRESS_FILE": str(path),
        "PYTHONPATH": str(ROOT / "reporter"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    result = subprocess.run(
        [sys.executable, *command], cwd=directory, env=environ, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "trainjob_progress:" not in result.stderr
    document: dict[str, Any] = json.loads(path.read_bytes())
    other = json.loads((directory / "progress.json.rank-1").read_bytes())
    assert (other["rank"], other["step"], "ended" in other) == (1, document["step"], True)
    return document


def test_transformers_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "train.py")
    document = run(tmp_path, TRANSFORMERS, *torchrun)
    assert (document["state"], document["step"], document["totalSteps"]) == ("completed", 16, 16)
    assert (document["rank"], document["metrics"]["rank_plus_one"]) == (0, 1)


@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_lightning_starts_its_own_processes(tmp_path: Path, strategy: str) -> None:
    pytest.importorskip("lightning.pytorch")
    document = run(tmp_path, LIGHTNING, "train.py", strategy)
    assert (document["state"], document["step"], document["totalSteps"]) == ("completed", 32, 32)
    assert (document["rank"], document["metrics"]["rank_plus_one"]) == (0, 1)
