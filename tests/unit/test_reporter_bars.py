"""What bars that programs draw say of the run."""

from __future__ import annotations

from typing import Any

import pytest

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
        "Fold 2/5", "      3/100      2.3G      1.123         45        640",  # Ultralytics' epoch 3
    ],
)  # fmt: skip
def test_bars_that_are_not_the_training_are_left_out(name: str) -> None:
    assert read(f"{name}:  45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s]") is None


@pytest.mark.parametrize(
    "pace", ["5000.00 examples/s", "1.20s/ examples", "12.6MB/s", "? examples/s", "850B/s"]
)
def test_bars_that_count_rows_or_bytes_are_left_out(pace: str) -> None:
    assert read(f" 45%|████▌     | 450/1000 [01:23<01:41, {pace}]") is None


def test_epochs_are_counted_from_0_where_the_first_one_said_so() -> None:
    bar = "Epoch {}:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s]"
    assert read(bar.format(0), bar.format(1)) == {"step": 150, "epoch": 1}


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


def test_a_second_bar_does_not_take_the_first_ones_place() -> None:
    main, second = " 45%|████ | 450/1000 [01:23<01:41, 5.41it/s]", " 50%|█████| 8/16 [00:01<00:01, 8.00it/s]"
    assert read(main, second) is None
    assert read(main, second, main) == {"step": 450, "total_steps": 1000}


def test_a_longer_run_takes_the_place_of_a_bar_that_only_prepared_it() -> None:
    prepared = "100%|█████| 50/50 [00:05<00:00, 10.00it/s]"
    began, under_way = "  0%| | 0/1000 [00:00<?, ?it/s]", "  1%| | 10/1000 [00:10<16:30, 1.00it/s]"
    assert read(prepared, began) is None
    assert read(prepared, began, under_way) == {"step": 10, "total_steps": 1000}


def test_a_bar_below_another_gives_its_metrics_only() -> None:
    nested = " 50%|█████| 50/100 [59:00<59:00, 1.41it/s, loss=0.5]\x1b[A"
    outer = " 33%|███▎| 1/3 [00:01<00:01, 1.00s/it]"
    assert read(nested) == {"metrics": {"loss": 0.5}}
    assert read(nested, outer) == {"step": 1, "total_steps": 3}


def test_a_bar_that_counts_epochs_says_so() -> None:
    assert read("Epochs:  33%|███▎      | 1/3 [00:01<00:01,  1.00s/it]") == {"epoch": 1, "total_epochs": 3}
