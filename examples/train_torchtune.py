"""torchtune's modules and metric logger, as its recipes use them, on the source code of Python's argparse.

In a real run nothing of this is written: `tune run … metric_logger._component_=` followed by
`trainjob_progress.integrations.torchtune.ReportProgress metric_logger.total_steps=…` is all.
"""

import argparse
import inspect

import torch
from omegaconf import OmegaConf
from torch.nn.functional import cross_entropy
from torchtune import config
from torchtune.models.llama2 import llama2

STEPS, LENGTH, BATCH = 60, 64, 16
recipe = OmegaConf.create(
    {
        "epochs": 1,
        "max_steps_per_epoch": STEPS,
        "optimizer": {"_component_": "torch.optim.AdamW", "lr": 3e-3},
        "metric_logger": {"_component_": "trainjob_progress.integrations.torchtune.ReportProgress"},
    }
)
logger = config.instantiate(recipe.metric_logger)
logger.log_config(recipe)

text = inspect.getsource(argparse).encode("ascii", "replace")
rows = torch.tensor(list(text)[: len(text) // LENGTH * LENGTH]).view(-1, LENGTH)
torch.manual_seed(0)
model = llama2(vocab_size=128, num_layers=2, num_heads=4, num_kv_heads=4, embed_dim=64, max_seq_len=LENGTH)
optimizer = config.instantiate(recipe.optimizer, model.parameters())
for step in range(1, STEPS + 1):
    batch = rows[torch.randint(len(rows), (BATCH,))]
    loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    logger.log_dict({"loss": loss.item(), "lr": recipe.optimizer.lr}, step=step)
logger.close()
print(f"loss={loss.item():.3f}")
