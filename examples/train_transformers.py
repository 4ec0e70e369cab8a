"""A small character model with Hugging Face's Trainer, on the source code of Python's own argparse."""

import argparse
import inspect

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from trainjob_progress.integrations.transformers import ReportProgress

LENGTH = 64
text = inspect.getsource(argparse).encode("ascii", "replace")
rows = torch.tensor(list(text)[: len(text) // LENGTH * LENGTH]).view(-1, LENGTH)
data = [{"input_ids": row, "labels": row} for row in rows]

set_seed(0)
config = LlamaConfig(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=LENGTH,
)
arguments = TrainingArguments(
    "output",
    num_train_epochs=3,
    per_device_train_batch_size=32,
    learning_rate=3e-3,
    logging_steps=10,
    eval_strategy="epoch",
    save_strategy="no",
    use_cpu=True,
    report_to=[],
)
trainer = Trainer(
    model=LlamaForCausalLM(config),
    args=arguments,
    train_dataset=data[50:],
    eval_dataset=data[:50],
    callbacks=[ReportProgress],
)
trainer.train()
print(f"loss={trainer.evaluate()['eval_loss']:.3f}")
