"""Hugging Face's Trainer with the callback, and no mark of its own."""

import glob
import os
import time

import safetensors.torch
import torch
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
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from trainjob_progress.integrations.transformers import ReportProgress

load_file = safetensors.torch.load_file


def load_slowly(*args, **kwargs):
    spend("CheckpointRestore", RESTORE_S)
    return load_file(*args, **kwargs)


safetensors.torch.load_file = load_slowly
is_evaluating = False


def collate(rows):
    if not is_evaluating:
        spend("DataLoading", LOAD_S)
    tokens = torch.stack([row["tokens"] for row in rows])
    return {"input_ids": tokens, "labels": tokens}


class Slow(Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        train(self.state.global_step + 1)
        return loss

    def evaluate(self, *args, **kwargs):
        global is_evaluating
        is_evaluating = True
        with noted("Evaluation"):
            time.sleep(EVALUATE_S)
            found = super().evaluate(*args, **kwargs)
        is_evaluating = False
        return found

    def _save_checkpoint(self, *args, **kwargs):
        with noted("CheckpointSave"):
            time.sleep(SAVE_S)
            super()._save_checkpoint(*args, **kwargs)


config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=32,
)  # fmt: skip
data = [{"tokens": torch.randint(0, 64, (16,))} for _ in range(512)]
args = TrainingArguments(
    "out", max_steps=STEPS, per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True, report_to=[],
    save_strategy="steps", save_steps=SAVE_EVERY, eval_strategy="steps", eval_steps=EVALUATE_EVERY,
    logging_steps=10, remove_unused_columns=False, ignore_data_skip=True,
)  # fmt: skip
trainer = Slow(
    model=LlamaForCausalLM(config), args=args, train_dataset=data, eval_dataset=data[:16],
    data_collator=collate, callbacks=[ReportProgress],
)  # fmt: skip
trainer.train(resume_from_checkpoint=bool(glob.glob("out/checkpoint-*")) and os.path.isdir("out"))
