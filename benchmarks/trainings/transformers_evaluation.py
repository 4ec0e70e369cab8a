"""Transformers: an evaluation after each 80 steps, a checkpoint after each 60.

Model and text are those of examples/train_transformers.py; a training that is recorded is one file.
"""

import argparse
import inspect

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from trainjob_progress.integrations.transformers import ReportProgress

EPOCHS = 1
LENGTH = 64
text = inspect.getsource(argparse).encode("ascii", "replace")
rows = torch.tensor(list(text)[: len(text) // LENGTH * LENGTH]).view(-1, LENGTH)
data = [{"input_ids": row, "labels": row} for row in rows]

set_seed(0)
config = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=LENGTH,
)  # fmt: skip
arguments = TrainingArguments(
    "output", max_steps=EPOCHS * 80, per_device_train_batch_size=16, learning_rate=3e-3, logging_steps=10,
    eval_strategy="steps", eval_steps=80, save_strategy="steps", save_steps=60, save_total_limit=1,
    use_cpu=True, report_to=[],
)  # fmt: skip
trainer = Trainer(
    model=LlamaForCausalLM(config), args=arguments, train_dataset=data, eval_dataset=data[:200],
    callbacks=[ReportProgress],
)  # fmt: skip
trainer.train()
