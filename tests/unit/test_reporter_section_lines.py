"""Lines of frameworks that say that a program saves, restores or evaluates."""

from __future__ import annotations

import pytest

from trainjob_progress.marks import EVALUATION, RESTORE, SAVE
from trainjob_progress.section_lines import Mark, read_mark

BEGIN, END = True, False


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("[INFO|trainer.py:4226] >> ***** Running Evaluation *****", Mark(EVALUATION, BEGIN)),
        ("{'eval_loss': '0.5', 'eval_runtime': '12.5', 'epoch': '1'}", Mark(EVALUATION, END, took_s=12.5)),
        ("{'eval_loss': 0.5, 'eval_runtime': 12.5, 'epoch': 1}", Mark(EVALUATION, END, took_s=12.5)),
        ("Saving model checkpoint to out/checkpoint-500", Mark(SAVE, BEGIN, 500)),
        ("Validation DataLoader 0:  45%|####5     | 9/20 [00:01<00:01,  8.1it/s]", Mark(EVALUATION, BEGIN)),
        ("Epoch 0, global step 100: 'val_loss' reached 0.5 (best 0.5), saving model to '/y.ckpt' as top 3",
         Mark(SAVE, BEGIN, 100)),
        ("Epoch 1: saving model to model.keras", Mark(SAVE, BEGIN)),
        ("Epoch 1: finished saving model to model.keras", Mark(SAVE, END)),
        ("saving checkpoint at iteration    1000 to /ckpt in torch_dist format", Mark(SAVE, BEGIN, 1000)),
        ("  successfully saved checkpoint from iteration    1000 to /ckpt", Mark(SAVE, END, 1000)),
        (" loading distributed checkpoint from /c at iteration 1", Mark(RESTORE, BEGIN)),
        ("  successfully loaded checkpoint from /c [ t 0/1, p 0/1 ] at iteration 9", Mark(RESTORE, END)),
        ("Evaluating on 5120 samples", Mark(EVALUATION, BEGIN)),
        (" validation loss at iteration 1000 | lm loss value: 2.1E+00 |", Mark(EVALUATION, END)),
        ("[titan] 2026-01-23 10:30:45 - root - INFO - Saving the checkpoint (or staging if async is on).",
         Mark(SAVE, BEGIN)),
        ("[titan] root - INFO - Finished saving the checkpoint (or staging if async is enabled)in 1 seconds.",
         Mark(SAVE, END)),
        ("root - INFO - Loading the checkpoint from outputs/checkpoint/step-10.", Mark(RESTORE, BEGIN)),
        ("root - INFO - Finished loading the checkpoint in 5.06 seconds.", Mark(RESTORE, END)),
        ("fairseq.checkpoint_utils | Preparing to save checkpoint for epoch 1 @ 100 updates",
         Mark(SAVE, BEGIN, 100)),
        ("Saved checkpoint ckpt/checkpoint1.pt (epoch 1 @ 100 updates, score 5) (writing took 1 seconds)",
         Mark(SAVE, END, 100)),
        ('begin validation on "valid" subset', Mark(EVALUATION, BEGIN)),
        ("[Rank 0] [Torch] Saving ckpt/global_step100/mp_rank_00_model_states.pt...", Mark(SAVE, BEGIN, 100)),
        ("[Rank 0] [Torch] Checkpoint global_step100 is ready now!", Mark(SAVE, END, 100)),
    ],
)  # fmt: skip
def test_a_line_says_what_begins_or_ends(line: str, mark: Mark) -> None:
    assert read_mark(line) == mark


@pytest.mark.parametrize(
    "line",
    [
        "step 100/1000 loss: 0.52",
        "checkpoint_dir: /ckpt",
        "val_loss=0.3 validation_accuracy=0.9",
        "evaluating the idea of saving money",
        "checkpointing is enabled every 500 steps",
        "{'loss': 0.5, 'epoch': 1}",
        "Saved 3 pictures",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert read_mark(line) is None
