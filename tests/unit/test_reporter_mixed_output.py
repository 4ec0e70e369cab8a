"""Programs that prepare, train and evaluate: what is known at their end is true, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainjob_progress.lines import LineReader
from trainjob_progress.screen import Screen

Part = Callable[[str], tuple[str, dict[str, Any]]]  # of what follows each epoch: its text, and the truth
POSITION = ("step", "total_steps", "epoch", "total_epochs")


def draw(
    step: int, total: int, name: str = "", postfix: str = "", *, took_s: float = 1, pace: str = "10.0it/s"
) -> str:
    elapsed_s, left_s = int(step * took_s), int((total - step) * took_s)
    times = f"{elapsed_s // 60:02d}:{elapsed_s % 60:02d}<{left_s // 60:02d}:{left_s % 60:02d}"
    share = 100 * step // total
    shown = f"{share:3d}%|{'#' * (share // 10):10}| {step}/{total} [{times}, {pace}{postfix}]"
    return f"{name}: {shown}" if name else shown


def bar(
    total: int, name: str = "", *, shows_loss: bool = False, took_s: float = 1, pace: str = "10.0it/s"
) -> str:
    steps = [total * part // 4 for part in range(5)]
    postfixes = [f", loss={1 / (step + 1):.3f}" if shows_loss else "" for step in steps]
    drawn = [
        draw(step, total, name, postfix, took_s=took_s, pace=pace)
        for step, postfix in zip(steps, postfixes, strict=True)
    ]
    return "\r".join(drawn) + "\n"


BEFORE = {
    "nothing": "",
    "a bar": bar(1000, took_s=0.05),
    "a long bar": bar(1000, took_s=0.3),
    "a bar that is left": f"{draw(0, 3000)}\r{draw(100, 3000)}\n",
    "a bar too fast to be drawn": f"{draw(0, 3000)}\r{draw(3000, 3000, took_s=0, pace='2000000.00it/s')}\n",
    "bars with names": bar(500, "Tokenizing") + bar(300, "Training tokenizer") + bar(7, "Fetching 7 files"),
    "rows": bar(1000, "Map", pace="5000.00 examples/s"),
    "a configuration": "epoch: 100\nlr: 0.001\nstep: 5000\n",
    "a configuration, JSON": '{"epoch": 100, "lr": 0.001, "dropout": 0.1}\n',
    "arguments": "Namespace(epoch=100, lr=0.1, step=5)\n+ python train.py epoch=100 lr=0.1 step=30\n",
    "a script": "Step 1/4: load\nStep 2/4 done in 3.2s\nStep 3/4 done in 4.2s\nStep 4/4 done in 5.2s\n",
    "a warm-up": "warmup step 10/50 loss 5.0\nwarmup step 50/50 loss 4.0\n",
    "a warm-up with a tag": "[warmup] step 10/50 loss 5.0\n[warmup] step 50/50 loss 4.0\n",
    "an event": '{"event": "config", "epoch": 100, "loss": 0.5}\n',
    "an evaluation": "Evaluation\nstep 10/20 loss 0.4\nstep 20/20 loss 0.4\nTraining\n",
    "k-means": "".join(f"Lloyd iteration {at}, error 0.{9 - at}\n" for at in range(9)),
}  # fmt: skip
WITHIN = {
    "nothing": "",
    "a bar": bar(20, took_s=0.1),
    "a long bar": bar(400),
    "a bar with a name": bar(20, "Evaluating"),
    "a bar with a loss": bar(20, "Val", shows_loss=True),
    "an encoding": bar(8, "Batches"),
    "a line": "val loss: 0.6 acc: 0.7\n",
    "steps": "eval step 10/20 loss 0.7\n[eval] step 20/20 loss: 0.9\n",
    "a headline": "--- Evaluation ---\nstep 10/20 loss 0.4\nstep 20/20 loss 0.4\n",
    "an evaluation, JSON": '{"eval": true, "step": 900, "loss": 9}\n',
    "a checkpoint": "Saving checkpoint to out/ckpt-30\nBest epoch: 1\n",
}
AFTER = {
    "a longer bar": bar(1000, took_s=0.5),
    "a bar of as many": bar(20),
    "bars with names": bar(100, "Predicting") + bar(100, "Running SHAP") + bar(50, "Fitting scaler"),
    "an accuracy": "Test accuracy: 0.93\nTest: loss: 0.5 acc: 0.9\n",
    "a summary": "wandb:         epoch 100\nwandb:   global_step 5000\n",
    "a configuration": "epoch: 100\nstep: 5000\nlr: 0.1\n",
    "results": '{"best_epoch": 1, "loss": 0.35, "step": 999}\n',
    "a model's results": '{"model": "bert", "epoch": 50, "accuracy": 0.35}\n',
    "another server": '{"epoch": 30, "error": 0.0}\n',
    "an evaluation": "=== Test ===\nstep 10/20 loss 0.4\nstep 20/20 loss 0.4\n",
    "a plan": "Next run: epoch 50, lr 0.1\n",
    "the best epoch": "Best epoch: 2, best loss: 0.1\nLoaded checkpoint from epoch 2 (loss 0.2)\n",
    "an exception": "RuntimeError: step 57: loss=nan\n",
    "other ranks": "[cuda:1] epoch 9 loss 9.0\nnode1: step 99 loss 9.0\n",
}


def lines(form: str, **truth: int) -> Part:
    return lambda within: (
        "".join(form.format(at=at, loss=1 / at) + f"\n{within}" for at in (1, 2, 3)),
        truth,
    )


def one_bar(name: str, *, shows_loss: bool) -> Part:
    def train(within: str) -> tuple[str, dict[str, Any]]:
        drawn = [
            draw(step, 60, name, f", loss={1 / (step + 1):.3f}" if shows_loss else "", took_s=2)
            for step in range(0, 61, 15)
        ]
        text = "".join(f"{each}\n{within}" if at in (1, 3) else f"{each}\r" for at, each in enumerate(drawn))
        return text + "\n", {"step": 60, "total_steps": 60}

    return train


def transformers(within: str) -> tuple[str, dict[str, Any]]:
    said = [f"\n{{'loss': {1 / at}, 'grad_norm': 1.5, 'epoch': {at}.0}}\n{within}" for at in (1, 2, 3)]
    text = draw(0, 60) + "".join(f"\r{draw(20 * at, 60, took_s=2)}{said[at - 1]}" for at in (1, 2, 3))
    summary = "\n{'train_runtime': 12.5, 'train_loss': 0.7, 'epoch': 3.0}\n"
    return text + summary, {"step": 60, "total_steps": 60, "epoch": 3.0}


def keras(within: str) -> tuple[str, dict[str, Any]]:
    text = "".join(f"Epoch {at}/3\n20/20 - 1s - 50ms/step - loss: {1 / at}\n{within}" for at in (1, 2, 3))
    return text, {"step": 60, "total_steps": 60, "epoch": 3, "total_epochs": 3}


def bars_of_epochs(within: str) -> tuple[str, dict[str, Any]]:
    text = "".join(bar(20, f"Epoch {at}/3", shows_loss=True) + within for at in (1, 2, 3))
    return text, {"step": 60, "total_steps": 60, "epoch": 3, "total_epochs": 3}


def bars_and_lines(within: str) -> tuple[str, dict[str, Any]]:
    text = "".join(
        bar(20, shows_loss=True) + f"Epoch {at} train loss: {1 / at}\n{within}" for at in (1, 2, 3)
    )
    return text, {"step": 60, "epoch": 3}


TRAININGS: dict[str, Part] = {
    "epochs": lines("epoch {at} loss {loss:.3f}", epoch=3),
    "epochs of so many": lines("Epoch [{at}/3], Loss: {loss:.3f}", epoch=3, total_epochs=3),
    # That the third is over, the end of the command says.
    "headlines": lines("Epoch {at}/3\n----------\ntrain Loss: {loss:.3f} Acc: 0.5", epoch=2, total_epochs=3),
    "steps": lines("step {at}0/30 | loss {loss:.3f} | 12.3K tok/s", step=30, total_steps=30),
    "dictionaries": lines("{{'step': {at}, 'loss': {loss:.3f}}}", step=3),
    "JSON": lines('{{"epoch": {at}, "train_loss": {loss:.3f}}}', epoch=3),
    "losses": lines("loss: {loss:.3f}\nloss: {loss:.2f}\nloss: {loss:.1f}"),
    "a bar": one_bar("", shows_loss=False),
    "a bar with a loss": one_bar("", shows_loss=True),
    "a bar with a name": one_bar("Training", shows_loss=False),
    "a bar of a model": one_bar("bert", shows_loss=True),
    "Transformers": transformers,
    "Keras": keras,
    "bars of epochs": bars_of_epochs,
    "bars and lines": bars_and_lines,
}  # fmt: skip


def read(text: str) -> dict[str, Any]:
    """The position that is known at the end."""
    screen, reader, known = Screen(), LineReader(), dict[str, Any]()
    for piece in [*text.splitlines(keepends=True), ""]:
        reader.moment += 1
        for line in screen.write(piece) if piece else screen.end():
            known |= reader.read(line.text, depth=line.depth) or {}
    return {name: known[name] for name in POSITION if known.get(name) is not None}


def check(text: str, truth: dict[str, Any]) -> None:
    assert read(text).items() <= truth.items()


@pytest.mark.parametrize("training", TRAININGS)
def test_what_is_said_at_the_end_is_true_of_the_training_or_nothing(training: str) -> None:
    """Seen: in a third of such programs another thing's position."""
    train = TRAININGS[training]
    for before in BEFORE.values():
        text, truth = train("")
        check(before + text, truth)
    for within in WITHIN.values():
        check(*train(within))
    for after in AFTER.values():
        check(text + after, truth)
    text, truth = train("")
    found = read(text)
    missing = set(truth) - set(found) - {"total_steps", "total_epochs"}
    assert not missing
