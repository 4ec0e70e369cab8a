"""What bars that programs draw say of the run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from tqdm import tqdm

from trainjob_progress.lines import LineReader
from trainjob_progress.screen import Screen

from .test_reporter_lines import read


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (" 45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s]", {"step": 450, "total_steps": 1000}),
        ("  0%|          | 0/1000 [00:00<?, ?it/s]", {"step": 0, "total_steps": 1000}),
        ("100%|##########| 7/7 [00:01<00:00]", {"step": 7, "total_steps": 7}),
        (
            "training:  45%|████▌  | 450/1000 [01:23<01:41, 5.41it/s, loss=0.23, lr=1e-05]",
            {"step": 450, "total_steps": 1000, "metrics": {"loss": 0.23, "lr": 1e-05}},
        ),
        (
            "Epoch 2/3:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s, loss=0.5]",
            {"step": 150, "total_steps": 300, "epoch": 1, "total_epochs": 3, "metrics": {"loss": 0.5}},
        ),
        (
            "Epoch 1: 100%|██████████| 20/20 [00:00<00:00, 90.00it/s, v_num=0, train_loss=0.25]",
            {"step": 40, "epoch": 2, "metrics": {"train_loss": 0.25}},
        ),
        (  # most loops print epochs from 1
            "Epoch 1: 100%|██████████| 20/20 [00:00<00:00, 90.00it/s]",
            {"step": 20, "epoch": 1},
        ),
        (  # torchtune: epoch, step of the run, and a bar for each epoch
            "2|150|Loss: 1.25:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s]",
            {"step": 150, "epoch": 1},
        ),
    ],
)
def test_tqdms_bars(line: str, fields: dict[str, Any]) -> None:
    assert read(line) == fields


@pytest.mark.parametrize(
    "name",
    [
        "Map", "Loading checkpoint shards", "Validation DataLoader 0", "Tokenizing",
        "Adding EOS to train dataset", "Packing train dataset", "Truncating train dataset",  # TRL
        "train: Scanning /data/labels/train.cache... 118287 images, 0 corrupt",  # Ultralytics
        "caching latents", "Quantizing", "Uploading", "Encoding train examples", "Reranking",
        "Processed prompts", "make_experience", "Epoch 3 saving", "Epoch 3 embedding", "Epoch 3 dev",
        "Fold 2/5", "Fold 1", "Trials", "Evaluating on train", "Eval train",
        # Of what is trained on, not of a training.
        "train tokenization", "train embeddings", "Train metrics", "train eval", "train: files", "train.csv",
        "train/images", "/data/train", "train-00001-of-00005.parquet", "train_set",
        # Nothing that is known, as sentence-transformers' `Batches` for each encoding.
        "Batches", "Calibration", "Copy", "Scores", "Upload 3 LFS files", "LR finder", "Merge", "Évaluation",
        "DPO", "ring", "Readout layer", "Running inference", "Tuning threshold", "loss landscape",
        "Learning rate finder", "Episode 3 render", "Round 2 aggregation", "steps to export",
        "Fitting scaler",
        "Training tokenizer", "Training features", "Epoch 1 metrics", "TRAINING TOKENIZER", "BERT",
    ],
)  # fmt: skip
def test_bars_that_are_not_the_training_are_left_out(name: str) -> None:
    assert read(f"{name}:  45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s]") is None


def test_a_bar_of_an_unknown_name_counts_where_it_shows_what_only_a_training_measures() -> None:
    bar = "bert:  45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s, {}=0.5]"
    assert read(bar.format("loss")) == {"step": 450, "total_steps": 1000, "metrics": {"loss": 0.5}}
    assert read(bar.format("ram")) is None


def test_a_bar_of_an_unknown_name_counts_where_losses_are_printed_while_it_moves() -> None:
    bars = [f"SFT: {at}%|████▌     | {at}/100 [01:23<01:41,  5.41it/s]" for at in (10, 20, 30)]
    lines = ["{'loss': 0.5}", "{'loss': 0.4}"]
    assert read(bars[0], lines[0], bars[1]) == {"step": 20, "total_steps": 100}
    assert read(bars[0], lines[0], bars[1], bars[2]) == {"step": 30, "total_steps": 100}
    assert read(bars[0], bars[1], lines[0]) == {"metrics": {"loss": 0.5}}
    assert read(bars[0].replace("SFT", "Val"), lines[0], bars[1].replace("SFT", "Val")) is None


def read_at_times(*times: list[str]) -> dict[str, Any]:
    """What is known after lines that came at so many times."""
    reader, known = LineReader(), dict[str, Any]()
    for lines in times:
        reader.moment += 1
        for line in lines:
            known |= reader.read(line) or {}
    return {name: known.get(name) for name in ("step", "total_steps")}


@pytest.mark.parametrize("last", [100, 3000])
def test_a_bar_without_a_name_is_a_preparations_where_losses_come_again_and_again_without_it(
    last: int,
) -> None:
    """Seen: step 3000 of 3000, finished, of a training that prints losses and no steps."""
    bars = [f" 0%|█| {at}/3000 [00:10<00:00, 50it/s]" for at in (0, last)]
    losses = [[f"loss: {1 / at}"] for at in range(1, 5)]
    nothing = {"step": None, "total_steps": None}
    assert read_at_times(bars, *losses) == nothing
    assert read_at_times(bars, [line for lines in losses for line in lines])["step"] == last  # held back
    assert read_at_times([bars[0]], *losses, [bars[1]], *losses)["step"] == last  # between two of its steps
    tests = [[line.replace("loss", "test loss") for line in each] for each in losses]
    assert read_at_times(bars, *tests) == {"step": last, "total_steps": 3000}
    assert read_at_times(["Training:" + bar for bar in bars], *losses)["step"] == last


@pytest.mark.parametrize(
    "name",
    ["Inference", "Computing FID", "Epoch 1/3 [Val]", "[Val] Epoch 1/3", "Epoch 1/3 - val", "Preprocess"],
)
def test_bars_of_a_validation_or_a_preparation_are_left_out_wherever_they_say_so(name: str) -> None:
    assert read(f"{name}:  50%|████▌     | 2/4 [00:01<00:01,  5.41it/s]") is None


@pytest.mark.parametrize(
    "name",
    [
        "loss 0.5 test_acc 0.9", "train mAP=0.5", "valid_loss 0.4", "Train loss 0.5 | Test loss 0.5",
        "Pre-training", "Pretraining", "Fine-tuning", "Learning", "Optimizing", "Running", "Meta-learning",
        "DPO loss 0.5", "Distilling", "Iteration", "Global step", "Progress", "Rank 0", "pretrain", "Overall",
        "Trainer", "Training the model", "Training BERT", "ResNet training", "Training agent",
        "Train batches", "Training fold 1", "Training network", "Federated round 3",
    ],
)  # fmt: skip
def test_a_bar_of_the_training_may_show_what_an_evaluation_measured(name: str) -> None:
    """Seen: nothing at all was reported of these."""
    fields = read(f"{name}:  45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s]") or {}
    assert (fields.get("step"), fields.get("total_steps")) == (450, 1000)


@pytest.mark.parametrize("name", ["Epoch 2/3 (train) adapters", "Epoch 2/3 loss=0.5", "[Train] Epoch 2/3"])
def test_a_bar_that_names_its_epoch_is_the_trainings(name: str) -> None:
    assert read(f"{name}: 50%|██| 50/100 [01:30<01:41]") == {
        "step": 150, "total_steps": 300, "epoch": 1, "total_epochs": 3,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Train encoder", "Training on test-bench v2", "Epoch 2/3 dataset A"])
def test_a_bar_that_names_a_training_of_something_has_to_show_a_loss(name: str) -> None:
    """A tokenizer, a scaler and features are trained, too."""
    bar = "{}:  45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s{}]"
    assert read(bar.format(name, "")) is None
    shown = read(bar.format(name, ", loss=0.5")) or {}
    assert ("step" in shown) == ("test" not in name)  # nor an evaluation


def test_a_bar_that_says_what_its_last_step_does_is_still_the_trainings() -> None:
    drawn = "{}%|████▌| {}/50 [00:10<00:01, 5.0it/s]"
    bars = [drawn.format(80, 40), "Saving: " + drawn.format(100, 50)]
    assert read(*bars) == {"step": 50, "total_steps": 50}
    assert read(bars[1]) is None


def test_what_is_printed_behind_a_bar_is_read_too() -> None:
    bar = " 10%|█ | 10/100 [00:01<00:09, 9.0it/s]"
    assert read(f"{bar}step 10 loss: 0.5") == {"step": 10, "total_steps": 100, "metrics": {"loss": 0.5}}
    assert read(bar + "{'loss': 1.5, 'epoch': 0.5}") == {
        "step": 10, "total_steps": 100, "epoch": 0.5, "metrics": {"loss": 1.5},
    }  # fmt: skip


def test_what_is_printed_of_an_evaluation_behind_a_bar_is_its_own() -> None:
    """Seen: step 1 of 7 of the evaluation."""
    bar = "Epochs:  25%|██▌       | 1/4 [00:10<00:30, 10.00s/it]"
    assert read(f"{bar}[val] step 1/7 loss 0.9") == {"epoch": 1, "total_epochs": 4}


def test_a_bar_that_counts_less_than_the_steps_that_lines_say_counts_epochs() -> None:
    """Seen: step 4 of 4 at the end of 48."""
    reader = LineReader()
    for epoch in range(4):
        reader.read(f" {25 * epoch}%|██▌       | {epoch}/4 [00:10<00:30, 10.00s/it]")
        for step in range(4, 13, 4):
            reader.read(f"step {12 * epoch + step}: loss 0.5")
    assert reader.read("100%|██████████| 4/4 [00:40<00:00, 10.00s/it]") == {"epoch": 4, "total_epochs": 4}


def test_a_bar_with_a_loss_is_an_evaluations_where_lines_say_steps_of_epochs() -> None:
    """Seen: step 7 of 7 after the first epoch."""
    lines = [f"Epoch [1/4], Step [{step}/12], Loss: 0.5" for step in (4, 8, 12)]
    assert read(*lines, "100%|██████████| 7/7 [00:10<00:00, 1.43s/it, loss=0.9]") is None


def test_what_pip_installs_is_no_training() -> None:
    assert read("   ━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━ 3/12 [torch]") is None


@pytest.mark.parametrize("name", ["", "Training: "])
def test_a_bar_without_a_bar_is_one(name: str) -> None:
    assert read(f"{name} 45% 18/40 [00:00<00:00, 49.0it/s, loss=0.5]") == {
        "step": 18, "total_steps": 40, "metrics": {"loss": 0.5},
    }  # fmt: skip
    assert read(f"{name} 45% 18/40 [0.5, 0.6]") is None


def test_the_plan_of_a_bar_before_is_not_that_of_bars_that_name_their_epochs() -> None:
    """Seen: "20 of 100" for two epochs of 10, after a preparation of 100."""
    before = "100%|██████████| 100/100 [00:10<00:00,  5.00it/s]"
    bar = "Epoch {}: {}0%|█████| {}/10 [00:02<00:00,  5.00it/s]"
    epochs = [bar.format(epoch, step, step) for epoch in (1, 2) for step in (2, 10)]
    assert read(f"Warming up caches: {before}", *epochs) == {"step": 20, "epoch": 2}
    assert read(f"Round: {before}", *epochs) == {"step": 20, "total_steps": None, "epoch": 2}


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (["Epoch 1/10 loss: 0.5"], {}),  # that may be the preparation's results
        (["Epoch 1/10 loss: 0.5", "Epoch 2/10 loss: 0.5"], {"epoch": 2, "total_epochs": 10}),
        (["{'loss': 1.5, 'epoch': 0.5}", "{'loss': 1.5, 'epoch': 1.0}"], {"epoch": 1.0}),
        (["step 10 loss: 0.5", "step 20 loss: 0.5"], {"step": 20}),
        (["step 10/40 loss: 0.5", "step 20/40 loss: 0.5"], {"step": 20, "total_steps": 40}),
        (["[0]\ttrain-rmse:0.6", "[1]\ttrain-rmse:0.5"], {"step": 2}),
    ],
)
@pytest.mark.parametrize("name", ["", "Round: "])
def test_where_a_training_prints_lines_a_bar_before_it_says_nothing(
    name: str, lines: list[str], last: dict[str, Any]
) -> None:
    """Seen: the preparation's "500 of 500" during the whole training."""
    bars = [f"{name} 50%|█████| {at}/500 [00:10<00:00, 50it/s]" for at in (250, 500)]
    reader, known = LineReader(), dict[str, Any]()
    for line in (*bars, *lines):
        known |= reader.read(line) or {}
    assert {**known, "metrics": None} == {"step": None, "total_steps": None, **last, "metrics": None}


@pytest.mark.parametrize(
    "line",
    [
        "{'train_runtime': 5.0, 'train_loss': 0.5, 'epoch': 3.0}", "{'eval_loss': 0.5, 'epoch': 3.0}",
        "Epoch 3/3 loss: 0.5", "step 500 loss: 0.5",
    ],
)  # fmt: skip
def test_the_summary_after_a_trainings_bar_changes_nothing_of_its_plan(line: str) -> None:
    bars = [f" 50%|█████| {at}/500 [00:10<00:00, 50it/s]" for at in (250, 500)]
    assert {"step": None, "total_steps": None}.items().isdisjoint((read(*bars, line) or {}).items())
    early = "{'loss': 0.5, 'epoch': 1.0}"  # said while the bar moved: it is the training's
    late = read(bars[0], early, bars[1], "{'loss': 0.5, 'epoch': 2.0}") or {}
    assert late == {"epoch": 2.0, "metrics": {"loss": 0.5}}


@pytest.mark.parametrize(
    ("epochs", "last"),
    [
        # Named so, three of them are all or, more often, one is to come: nobody knows.
        (("0/3", "1/3", "2/3"), {"step": 30, "total_steps": None, "epoch": 3, "total_epochs": None}),
        (("0/2", "1/2", "2/2"), {"step": 30, "total_steps": 30, "epoch": 3, "total_epochs": 3}),
        (("1/3", "2/3", "3/3"), {"step": 30, "total_steps": 30, "epoch": 3, "total_epochs": 3}),
    ],
)
def test_epochs_of_so_many_that_are_counted_from_0(epochs: tuple[str, ...], last: dict[str, Any]) -> None:
    """Seen: "20 of 30" or "20 of 20" at the end of 30 steps."""
    bars = [
        f"Epoch {name}: {share}0%|█████ | {share}/10 [00:02<00:00,  5.00it/s]"
        for name in epochs
        for share in (2, 10)
    ]
    assert read(*bars) == last


@pytest.mark.parametrize(
    "pace",
    [
        "30000000.00it/s", "5000.00KB/s", "5000.00 examples/s", "1.20s/ examples", "12.6MB/s", "? examples/s",
        "850B/s",
    ],
)  # fmt: skip
def test_bars_that_count_rows_or_bytes_are_left_out(pace: str) -> None:
    assert read(f" 45%|████▌     | 450/1000 [01:23<01:41, {pace}]") is None


@pytest.mark.parametrize(
    "lines",
    [
        ["step 90/1000 | loss: 0.5", "step 100/1000 | loss: 0.5"],
        ["epoch 1 loss: 0.5", "epoch 2 loss: 0.5"],
        ["Epoch 2/10", "90/200 ━━━━━━ 2s 9ms/step - loss: 0.5", "100/200 ━━━━━━ 2s 9ms/step - loss: 0.5"],
        ["Epoch 2/10:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s, loss=0.5]"],
    ],
)
@pytest.mark.parametrize("name", ["", "DDIM Sampler: ", "Metrics: "])
def test_a_bar_that_comes_when_the_training_has_said_its_position_otherwise_is_not_the_run(
    lines: list[str], name: str
) -> None:
    """Seen: "20 of 50" of an evaluation without a name, in a run that prints lines."""
    assert read(*lines, f"{name} 40%|████      | 20/50 [00:10<00:10,  5.00it/s, loss=0.9]") is None


def test_the_bar_of_a_training_may_come_after_a_line_of_its_first_evaluation() -> None:
    bar = "  1%|          | 10/1000 [00:10<10:10,  5.00it/s]"
    assert read("step 0: train loss 10.75", "step 0: val loss 10.5", bar) == {"step": 10, "total_steps": 1000}
    assert read("step 8 loss: 0.75", "step 9 loss: 0.5", f"Training: {bar}") == {
        "step": 10,
        "total_steps": 1000,
    }


@pytest.mark.parametrize("begun", ["Resuming from epoch 3, step 1200", "resume: step=1200 epoch=2"])
def test_the_bar_of_a_training_may_come_after_a_line_that_says_where_it_goes_on(begun: str) -> None:
    bar = "  1%|          | 10/1000 [00:10<10:10,  5.00it/s]"
    assert read(begun, "Epoch 3/10", bar) == {"step": 10, "total_steps": 1000}


def test_half_epochs_in_lines_may_come_before_their_bar() -> None:
    """Seen: of stdout and stderr, one is read before the other."""
    lines = [f"{{'loss': 0.5, 'epoch': {epoch / 10}}}" for epoch in range(10)]
    bar = " 90%|█████████ | 9/10 [00:10<00:01,  5.00it/s]"
    assert read(*lines, bar) == {"step": 9, "total_steps": 10}


def test_epochs_within_an_episode_are_not_those_of_the_run() -> None:
    """Seen: "16 of 16" after one of three batches of OpenRLHF, each of which is trained on for an epoch."""
    episode = "Episode [2/2]: {0}%|█| {0}/3 [00:10<00:10,  5.00it/s, reward=0.5]"
    epoch = "Train epoch [1/1]: 100%|█| 16/16 [00:02<00:00,  5.00it/s, policy_loss=0.25]"
    said = {"step": 4, "total_steps": 6, "epoch": 1, "total_epochs": 2, "metrics": {"reward": 0.5}}
    assert read(episode.format(0), epoch, episode.format(1)) == said
    assert read(episode.format(0), epoch, episode.format(1), epoch) == {"metrics": {"policy_loss": 0.25}}


def test_epochs_are_counted_from_0_where_the_first_one_said_so() -> None:
    bar = "Epoch {}:  {}%|█████     | {}/100 [00:10<00:10,  5.00it/s]"
    assert read(bar.format(0, 50, 50), bar.format(1, 20, 20)) == {"step": 120, "epoch": 1}


@pytest.mark.parametrize(
    "name", ["Epoch #2", "Epoch-2", "Epoch (2)", "Epoch=2, step=5", "epoch_2", "Epoch [2]"]
)
def test_a_bar_that_names_its_epoch_is_no_bar_of_epochs_however_it_writes_it(name: str) -> None:
    """Seen: epoch 500 of 1000, of Tianshou's `Epoch #1`."""
    assert read(f"{name}:  50%|#####     | 500/1000 [00:01<00:01, 600it/s]") == {"step": 1500, "epoch": 1}


def test_rich_counts_with_commas() -> None:
    """As tqdm.rich writes what is over 999, for example for Stable-Baselines3."""
    assert read(" 50% ━━━━━━━━━━━━━ 5,000/10,000  [ 0:00:10 < 0:00:10 , 500 it/s ]") == {
        "step": 5000, "total_steps": 10000,
    }  # fmt: skip


def test_of_two_bars_in_one_line_the_newest_is_read_by_its_own_name() -> None:
    bar = " 45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s]"
    assert read(f"Map:{bar}{bar}") == {"step": 450, "total_steps": 1000}


def test_lightnings_bar_where_rich_is_installed() -> None:
    line = "Epoch 1/9  ━━━━━━━━━╸━━━━━━━ 22/44 0:00:00 • 0:00:00 554.39it/s v_num: 0 loss: 0.134"
    assert read(line) == {
        "step": 66,
        "total_steps": 440,
        "epoch": 1,
        "total_epochs": 10,
        "metrics": {"loss": 0.134},
    }


@pytest.mark.parametrize("name", ["", "Iteration: "])
def test_of_two_bars_that_may_be_the_trainings_the_one_that_goes_on_is_it(name: str) -> None:
    """Seen: 1000 of 1000 of an evaluation after the training, or of a preparation, since that took longer."""
    first = [f"{name} 45%|████ | {at}/1000 [01:23<01:41, 5.41it/s]" for at in (450, 460)]
    second = [f"{name} 50%|█████| {at}/16 [00:01<00:01, 8.00it/s, acc=0.5]" for at in (8, 16)]
    nothing = {"step": None, "total_steps": None}
    assert nothing.items() <= (read(first[0], second[0]) or {}).items()
    assert "step" not in (read(*first, *second) or {})
    assert read(first[0], *second, first[1]) == {"step": 460, "total_steps": 1000}
    assert read(first[0], second[0], "loss: 0.5", second[1], first[0]) is None
    assert (read(first[0], second[0], "loss: 0.5", second[1]) or {})["step"] == 16


def test_a_bar_called_a_training_is_the_run_however_long_others_take() -> None:
    """Seen: an evaluation without a name that took longer was the run, after the training's end."""
    train = "Training: 100%|██████████| 50/50 [00:10<00:00,  5.00it/s]"
    other = " 10%|█         | 30/300 [00:06<00:54,  5.00it/s]"
    assert read(train, other) is None
    assert read(other, train) == {"step": 50, "total_steps": 50}


@pytest.mark.parametrize("names", [("Pretraining", "Fine-tuning"), ("Training teacher", "Training student")])
def test_a_training_that_follows_another_counts_though_it_is_shorter(names: tuple[str, str]) -> None:
    """Seen: step 100 of 100, finished, of the first, for all of the second."""
    first = f"{names[0]}: 100%|█████| 100/100 [01:40<00:00, 1.00it/s, loss=0.5]"
    begun, second = (f"{names[1]}: 50%|█████| {at}/30 [00:15<00:15, 1.00it/s, loss=0.4]" for at in (0, 15))
    assert (read(first, begun, second) or {})["step"] == 15
    assert "step" not in (read(first.replace("100/100", "99/100"), second) or {})


def test_a_bar_that_shows_a_loss_takes_the_place_of_one_that_shows_none() -> None:
    """Seen: "1000 of 1000" of a preparation during the whole training."""
    prepared = "100%|█████| 1000/1000 [01:40<00:00, 10.00it/s]"
    trained = " 50%|█████| 25/50 [00:10<00:10, 2.50it/s, loss=0.5]"
    assert read(prepared, trained) == {"step": 25, "total_steps": 50, "metrics": {"loss": 0.5}}
    assert read(trained, " 50%|█████| 500/1000 [00:50<00:50, 10.00it/s]") is None


@pytest.mark.parametrize("name", ["Training data", "Training set"])
def test_a_bar_of_training_data_is_not_named_as_a_trainings(name: str) -> None:
    """Seen: "100 of 100" of a preparation during the whole training."""
    prepared = f"{name}: 100%|█████| 100/100 [00:02<00:00, 50.00it/s]"
    assert read(prepared, "  5%|█| 50/1000 [00:10<03:10, 5.00it/s]") == {"step": 50, "total_steps": 1000}


@pytest.mark.parametrize("name", ["Epoch 2: Training, remaining 5", "Epoch 2 (train) warming"])
def test_what_is_said_behind_the_word_training_does_not_make_it_another_bar(name: str) -> None:
    assert read(f"{name}:  50%|█████| 5/10 [00:10<00:10, 1.00it/s]") == {"step": 15, "epoch": 1}


def test_a_bar_beside_which_lines_said_where_the_training_is_stays_the_run() -> None:
    """Seen: "500 of 1000" of an evaluation after the training, which took longer."""
    bars = [f" 50%|█████| {at}/500 [00:10<00:00, 50it/s]" for at in (250, 500)]
    later = " 50%|█████| 500/1000 [00:50<00:50, 10.00it/s]"
    assert read(bars[0], "{'loss': 0.5, 'epoch': 1.5}", bars[1], later) is None
    assert read(*bars, "{'train_runtime': 9.5, 'train_loss': 0.5, 'epoch': 3.0}", later) is None


def test_a_bar_that_was_too_fast_to_be_drawn_leaves_no_position() -> None:
    """Seen: "0 of 3000" for all of the training that followed."""
    bars = ["  0%| | 0/3000 [00:00<?, ?it/s]", "100%|█████| 3000/3000 [00:00<00:00, 2270054.48it/s]"]
    assert read(*bars) == {"step": None, "total_steps": None}
    assert read(*bars, " 50%|█████| 10/20 [00:10<00:10]") == {"step": 10, "total_steps": 20}


def test_a_bar_below_another_that_has_moved_gives_its_metrics_only() -> None:
    outer = " 33%|███▎| 1/3 [00:01<00:01, 1.00s/it]"
    nested = " 50%|█████| 50/100 [59:00<59:00, 1.41it/s, loss=0.5]\x1b[A"
    assert read(nested) == {"metrics": {"loss": 0.5}}
    assert read(outer, nested) == {"metrics": {"loss": 0.5}}
    assert read(nested, outer) == {"step": 1, "total_steps": 3}


def test_a_bar_that_counts_epochs_says_so() -> None:
    assert read("Epochs:  33%|███▎      | 1/3 [00:01<00:01,  1.00s/it]") == {"epoch": 1, "total_epochs": 3}


# Bars as tqdm draws them


class Drawing:
    """What real bars, drawn at each step, say of a run: the position after each line."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.options: dict[str, Any] = {"file": self.file, "mininterval": 0, "ncols": 100}

    def bar(self, count: int, desc: str | None = None, **options: Any) -> Iterator[int]:
        yield from tqdm(range(count), desc, **{**self.options, **options})

    def read(self) -> list[tuple[int | None, int | None]]:
        """(step, total steps) after each line that said something."""
        screen, reader, known = Screen(), LineReader(), dict[str, Any]()
        positions = []
        for line in [*screen.write(self.file.getvalue()), *screen.end()]:
            known |= reader.read(line.text, depth=line.depth) or {}
            position = known.get("step"), known.get("total_steps")
            if position[0] is not None and position[1] is not None and position[0] > position[1]:
                position = position[0], None  # as a document has it: a wrong plan is none
            positions.append(position)
        return positions


def check_order(positions: list[tuple[int | None, int | None]]) -> None:
    """Neither the steps nor the share of them ever fall."""
    for (before, planned), (step, total) in pairwise(positions):
        assert before is None or step is not None
        assert (before or 0) <= (step or 0)
        if planned and total:
            assert (before or 0) / planned <= (step or 0) / total


@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize(
    "names",
    [(None, None), ("Epochs", "Batches"), ("Overall", None), ("training", "loss 0.5"), ("round", "epoch 1")],
)
def test_a_bar_within_a_bar_gives_the_steps_of_the_run(
    names: tuple[str | None, str | None], leave: bool
) -> None:
    drawing = Drawing()
    for _ in drawing.bar(3, names[0]):
        for _ in drawing.bar(20, names[1], leave=leave):
            pass
        for _ in drawing.bar(7, leave=leave):  # validation, though it does not say so
            pass
    positions = drawing.read()
    check_order(positions)
    assert {total for step, total in positions if step} == {60}
    assert {step for step, _ in positions} >= {*range(1, 61)}
    assert positions[-1] == (60, 60)


def test_of_bars_that_do_the_same_below_each_other_the_first_counts() -> None:
    """Seen: step 100 of 10,000."""
    drawing = Drawing()
    bars = [drawing.bar(100, f"train gpu {number}", position=number) for number in range(3)]
    for _ in zip(*bars, strict=True):
        pass
    positions = drawing.read()
    check_order(positions)
    assert {total for step, total in positions if step} == {100}


def test_a_bar_below_one_of_its_name_that_ends_first_begins_no_round() -> None:
    """Seen: step 75 of 50. When the bars end, each is drawn where the first one was."""
    drawing = Drawing()
    bars = [tqdm(total=50, desc=f"train {at}", position=at, **drawing.options) for at in range(3)]
    for step in range(50):
        for at, bar in enumerate(bars):
            bar.update(step % (at + 1) == 0)
    for bar in bars:
        bar.close()
    assert drawing.read()[-1] == (50, 50)


def test_of_three_levels_of_bars_the_outer_two_count() -> None:
    drawing = Drawing()
    for _ in drawing.bar(2, "round"):
        for _ in drawing.bar(3, "epoch"):
            for _ in drawing.bar(10):
                pass
    positions = drawing.read()
    check_order(positions)
    assert (positions[-1], {total for step, total in positions if step}) == ((6, 6), {6})


def test_an_evaluation_below_the_bar_of_the_training_changes_nothing() -> None:
    """As Hugging Face's Trainer draws it."""
    drawing = Drawing()
    for step in drawing.bar(30):
        if step % 10 == 9:
            for _ in drawing.bar(8, leave=False):
                pass
    positions = drawing.read()
    check_order(positions)
    assert {total for _, total in positions} == {30}


def test_bars_that_run_side_by_side_are_the_first_ones_run() -> None:
    drawing = Drawing()
    first = tqdm(total=50, position=0, **drawing.options)
    second = tqdm(total=40, position=1, **drawing.options)
    for _ in range(50):
        first.update(1)
        second.update(1)
    positions = drawing.read()
    assert positions[-1] == (50, 50)
    shares = [step / total for step, total in positions if step is not None and total]
    assert shares == sorted(shares)


def test_bars_of_trainings_and_evaluations_that_do_not_say_which_are_no_progress() -> None:
    drawing = Drawing()
    for _ in range(3):
        for _ in drawing.bar(20):
            pass
        for _ in drawing.bar(5):
            pass
    assert drawing.read()[-1] == (None, None)


def test_a_bar_that_gets_its_name_after_its_first_drawing_does_not_begin_the_run_again() -> None:
    drawing = Drawing()
    for epoch in range(1, 4):
        bar = tqdm(range(10), **drawing.options)
        for step in bar:
            bar.set_description(f"epoch {epoch}/3 loss {1 / (step + 1):.3f}")
    positions = drawing.read()
    assert positions[-1] == (30, 30)
    check_order([position for position in positions if position[1] == 30])


def test_a_loss_in_a_bars_name_makes_no_other_bar_of_it() -> None:
    drawing = Drawing()
    bar = tqdm(range(10), **drawing.options)
    for step in bar:
        bar.set_description(f"loss {10.0 ** -(2 * step)}")
    check_order(drawing.read())
    assert drawing.read()[-1] == (10, 10)


def test_a_line_that_is_printed_beside_a_bar_may_know_more_than_the_bar() -> None:
    """It is drawn ten times a second."""
    drawn = " 15%|█▌   | 47/300 [00:01<00:05, 47.00it/s]"
    assert read(drawn, "step 50 loss 0.5", drawn) == {"total_steps": 300}
    later = " 17%|█▋   | 51/300 [00:01<00:05, 47.00it/s]"
    assert read(drawn, "step 50 loss 0.5", drawn, later) == {"step": 51, "total_steps": 300}


@pytest.mark.parametrize("late", [1, 3])
def test_the_same_bar_of_another_process_begins_no_round(late: int) -> None:
    """Ranks whose lines bear no mark: each draws its own."""
    bar = "{:3d}%|██| {}/20 [00:{:02d}<00:10, 2.00it/s]"
    ours = [bar.format(step * 5, step, step) for _ in range(3) for step in range(21)]
    lines = [
        line
        for at in range(len(ours) + late)
        for line in (*ours[at : at + 1], *ours[max(at - late, 0) :][:1])
    ]
    reader = LineReader()
    steps = [(reader.read(line) or {}).get("step") for line in lines]
    known = [step for step in steps if step is not None]
    assert known == sorted(known)
    assert known[-1] == 60


def test_a_bar_beside_which_losses_are_printed_is_the_next_training() -> None:
    """Of two Trainers of Transformers, one after the other. Seen: 300 of 300 during the second."""
    ended = "{'train_runtime': 30.5, 'train_loss': 0.5, 'epoch': 3.0}"
    first = ["100%|█████| 300/300 [00:30<00:00, 10it/s]", ended]
    lines = [f" 50%|█████| {at}/100 [00:05<00:05, 10it/s]" for at in (0, 10, 20)]
    losses = [f"{{'loss': 0.5, 'epoch': {at}}}" for at in (0.1, 0.2)]
    assert (read(*first, *lines[:2], losses[0], lines[2]) or {}) == {"step": 20, "total_steps": 100}
    assert read(*first, *losses, *lines) is None  # of an evaluation


def test_a_bar_that_is_drawn_again_below_a_line_goes_on_after_another_one() -> None:
    """Seen: nothing, from the first evaluation on, of Transformers' Trainer where no loss is due."""
    bars = [f" 45%|████ | {at}/300 [01:23<01:41, 5.41it/s]" for at in (100, 100, 101)]
    other = " 50%|█████| 16/16 [00:01<00:00, 8.00it/s]"
    assert (read(bars[0], other, "{'eval_loss': 0.5, 'epoch': 1.0}", *bars[1:]) or {})["step"] == 101


def test_bars_of_epochs_that_are_seen_at_their_ends_only_are_several() -> None:
    """Seen: step 20 of 20, finished."""
    ended = [f"Epoch {epoch}/3: 100%|█████| 20/20 [00:00<00:00, 500it/s]" for epoch in (1, 2)]
    assert read(*ended) == {"step": 40, "total_steps": 60, "epoch": 2, "total_epochs": 3}


def test_where_bars_are_missing_rounds_are_not_counted() -> None:
    ended, begun = "100%|█████| 20/20 [00:10<00:00]", "  5%|▌    | 1/20 [00:00<00:10]"
    reader = LineReader(sees_all=False)
    assert reader.read(ended) == {"step": 20, "total_steps": 20}
    assert reader.read(begun) == {"step": None, "total_steps": None}


def test_one_bar_that_is_renamed_for_each_epoch_counts_the_steps_of_the_run() -> None:
    """Seen: 180 steps where the bar shows 60 of 60."""
    drawing = Drawing()
    bar = tqdm(total=60, **drawing.options)
    for epoch in range(3):
        bar.set_description(f"epoch {epoch}")
        for _ in range(20):
            bar.update()
    bar.close()
    check_order(drawing.read())
    assert drawing.read()[-1] == (60, 60)


@pytest.mark.parametrize("name", ["Epoch {}", "Epoch {}/10"])
def test_a_bar_over_epochs_that_says_which_one_it_is_counts_no_steps(name: str) -> None:
    """Seen: 100 steps."""
    drawing = Drawing()
    bar = tqdm(range(10), **drawing.options)
    for epoch in bar:
        bar.set_description(name.format(epoch + 1))
    reader, fields = LineReader(), dict[str, Any]()
    for line in Screen().write(drawing.file.getvalue()):
        fields |= reader.read(line.text, depth=line.depth) or {}
    assert fields == {"step": None, "total_steps": None, "epoch": 10, "total_epochs": 10}


@pytest.mark.parametrize("first", ["", "Epoch", "Epoch 1/3"])
@pytest.mark.parametrize("name", ["Epoch {}/3", "Epoch {} of 3", "Epoch {}"])
@pytest.mark.parametrize("inner", ["", "Batches", "Training", "Running Epoch {} of 3"])
def test_a_bar_within_one_that_is_renamed_for_each_epoch_gives_the_steps_of_the_run(
    first: str, name: str, inner: str
) -> None:
    """Seen: step 0 of 60, epoch 0, in the third epoch."""
    drawing = Drawing()
    outer = tqdm(range(3), first, **drawing.options)
    for epoch in outer:
        outer.set_description(name.format(epoch + 1))
        for _ in tqdm(range(20), inner.format(epoch), leave=False, **drawing.options):
            pass
    reader, said = LineReader(), list[dict[str, Any]]()
    for line in Screen().write(drawing.file.getvalue()):
        said.append({**(said[-1] if said else {}), **(reader.read(line.text, depth=line.depth) or {})})
    steps = [fields["step"] or 0 for fields in said if "step" in fields]
    assert steps == sorted(steps)
    assert said[-1] == {"step": 60, "total_steps": 60, "epoch": 3, "total_epochs": 3}
