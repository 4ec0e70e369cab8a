"""A loop of one's own in plain PyTorch, which reports its steps and marks nothing."""

import os
import time

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
from torch.utils.data import DataLoader

from trainjob_progress import report


def collate(rows):
    spend("DataLoading", LOAD_S)
    return torch.stack(rows)


model = torch.nn.Linear(8, 1)
loader = DataLoader([torch.rand(8) for _ in range(STEPS * 4)], batch_size=4, collate_fn=collate)
step = 0
with report(total_steps=STEPS, initial_step=None) as r:
    if os.path.exists("model.pt"):
        with noted("CheckpointRestore"):
            time.sleep(RESTORE_S)
            step, state = torch.load("model.pt")
            model.load_state_dict(state)
    r.update(step=step)
    for batch in loader:
        if step == STEPS:
            break
        step += 1
        loss = model(batch).pow(2).mean()
        loss.backward()
        train(step)
        r.step(loss=loss)
        if step % SAVE_EVERY == 0:
            with noted("CheckpointSave"):
                time.sleep(SAVE_S)
                torch.save((step, model.state_dict()), "model.pt")
        if step % EVALUATE_EVERY == 0:
            spend("Evaluation", EVALUATE_S)
