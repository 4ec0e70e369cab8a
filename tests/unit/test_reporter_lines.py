"""What is read out of the output of programs that know nothing of progress reports."""

from __future__ import annotations

from typing import Any

import pytest

from trainjob_progress.lines import LineReader
from trainjob_progress.objects import POSITION
from trainjob_progress.searcher import make_search


def read(*lines: str, pattern: str | None = None) -> dict[str, Any] | None:
    """What the last of the lines says, after those before it."""
    reader = LineReader(make_search(pattern) if pattern else None)
    fields = None
    for line in lines:
        fields = reader.read(line)
    return fields


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '4e-05', 'epoch': '0.5'}",
            {"epoch": 0.5, "metrics": {"loss": 2.345, "grad_norm": 1.2, "learning_rate": 4e-05}},
        ),
        ("{'loss': 2.345, 'epoch': 1.0}", {"epoch": 1.0, "metrics": {"loss": 2.345}}),
        ("{'eval_loss': 0.5, 'eval_runtime': 1.25}", {"metrics": {"eval_loss": 0.5, "eval_runtime": 1.25}}),
    ],
)
def test_hugging_faces_dictionaries(line: str, fields: dict[str, Any]) -> None:
    assert read(line) == fields


def test_what_numpy_writes_of_its_numbers_is_read_too() -> None:
    line = "{'loss': np.float64(0.5), 'grad_norm': np.float32(nan), 'epoch': 1}"
    assert str(read(line)) == "{'epoch': 1, 'metrics': {'loss': 0.5, 'grad_norm': nan}}"


def test_a_loss_that_is_nan_is_seen() -> None:
    fields = read("{'loss': nan, 'grad_norm': -inf, 'epoch': 1.0}")
    assert fields is not None
    assert str(fields["metrics"]) == "{'loss': nan, 'grad_norm': -inf}"


def test_keras_epochs_and_batches() -> None:
    line = "157/157 ━━━━━━━━━━━━━━━━━━━━ 2s 9ms/step - accuracy: 0.9100 - loss: 0.2800 - val_loss: nan"
    assert read("Epoch 3/10") == {"epoch": 2, "total_epochs": 10}
    fields = read("Epoch 3/10", line)
    assert fields is not None
    assert str(fields.pop("metrics")) == "{'accuracy': 0.91, 'loss': 0.28, 'val_loss': nan}"
    assert fields == {"step": 471, "total_steps": 1570, "epoch": 3}
    coloured = (
        "\x1b[1m 10/157\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m1s\x1b[0m 9ms/step - loss: 0.5"
    )
    assert read("Epoch 1/10", coloured) == {"step": 10, "total_steps": 1570, "metrics": {"loss": 0.5}}


def test_without_the_line_that_names_the_epoch_keras_says_its_metrics() -> None:
    line = "10/157 ━━━━━━━━━━━━━━━━━━━━ 1s 9ms/step - loss: 0.2800"
    assert read(line) == {"metrics": {"loss": 0.28}}


def test_keras_bars_of_evaluations_and_predictions_are_not_the_training() -> None:
    trained = "157/157 ━━━━━━━━━━━━━━━━━━━━ 2s 9ms/step - loss: 0.2800"
    after = "313/313 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - loss: 0.3500"
    as_long = "12/157 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - loss: 0.3500"
    assert read("Epoch 3/10", trained, after) is None
    assert read("Epoch 3/10", trained, as_long) is None
    again = "12/157 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - loss: 0.2700"
    fields = read("Epoch 3/10", trained, after, "Epoch 4/10", again)
    assert fields == {"step": 483, "total_steps": 1570, "metrics": {"loss": 0.27}}


def test_predictions_of_keras_within_an_epoch_are_not_its_batches() -> None:
    """Seen: step 3 of 10, of a loop over epochs that has a model generate."""
    assert (
        read("Epoch 3/10", "1/1 ━━━━━━━━━━━━━━━━━━━━ 0s 30ms/step", "1/1 ━━━━━━━━━━━━━━━━━━━━ 0s 20ms/step")
        is None
    )


def test_an_evaluation_of_keras_on_as_many_batches_is_not_the_training() -> None:
    """Seen: its loss as the training's, where Keras prints one line for each epoch."""
    line = "157/157 - 2s - 9ms/step - loss: {}"
    trained = line.format(0.5)
    assert read("Epoch 3/3", trained, line.format(0.25)) is None
    assert (read("Epoch 2/3", trained, "Epoch 3/3", line.format(0.25)) or {})["metrics"] == {"loss": 0.25}
    assert (read("Epoch 2/3", trained, trained + " - val_loss: 0.75") or {})["epoch"] == 2


def test_a_batch_that_keras_prints_late_is_not_said_again() -> None:
    """Seen: 3/44, then 2/44. With JAX, Keras draws its bar on the threads of a pool."""
    third, second = (f"{batch}/44 ━━━━━━━━━━━━━━━━━━━━ 1s 9ms/step - loss: 0.28" for batch in (3, 2))
    assert read("Epoch 1/10", third, second) is None
    assert (read("Epoch 1/10", third, second, third) or {})["step"] == 3
    assert (read("Epoch 1/10", third, "Epoch 2/10", second) or {})["step"] == 46


def test_a_configuration_is_no_position() -> None:
    """Seen: step 1000."""
    assert "step" not in (read("batch_size: 32, epochs: 10, lr: 0.001, steps: 1000") or {})
    assert read("steps: 10 loss: 0.5") == {"step": 10, "metrics": {"loss": 0.5}}


def test_how_long_an_epoch_will_take_is_no_metric() -> None:
    line = " 45/157 [=======>......................] - ETA: 1s - loss: 0.2831"
    assert read("Epoch 3/10", line) == {"step": 359, "total_steps": 1570, "metrics": {"loss": 0.2831}}


def test_paddles_steps_are_of_the_epoch_that_runs() -> None:
    line = "step  10/100 - loss: 0.5 - acc: 0.9 - 12ms/step"
    assert read("Epoch 2/3", line) == {"step": 110, "total_steps": 300, "metrics": {"loss": 0.5, "acc": 0.9}}


@pytest.mark.parametrize("line", ["3/10", " 0/7 ", "11/23", "2026/11/21"])
def test_a_bare_count_may_be_a_date(line: str) -> None:
    """Seen: the date 11/23 was 47 %."""
    assert read(line) is None
    assert LineReader(make_search(r"^\s*(?P<step>\d+)/(?P<total>\d+)\s*$")).read("3/10") == {
        "step": 3,
        "total_steps": 10,
    }


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039", {"epoch": 0, "metrics": {"Loss": 2.300039}}),
        ("Train Epoch: 2 [30000/60000 (50%)]\tloss=0.2", {"epoch": 1.5, "metrics": {"loss": 0.2}}),
        ("Train Epoch: 2 [ 3000/60000 ( 5%)] loss: 0.25 (0.5)", {"epoch": 1.05, "metrics": {"loss": 0.25}}),
    ],
)
def test_pytorchs_mnist_example(line: str, fields: dict[str, Any]) -> None:
    assert read(line) == fields


def test_openclips_epochs_count_from_0() -> None:
    """Seen: one epoch less, and 0 all through the first."""
    lines = [
        f"2025-09-24,07:38:01 | INFO | Train Epoch: {epoch} [ {at:4}/1000 ({at // 10}%)] "
        "Data (t): 0.5 LR: 0.1 Loss: 0.25 (0.5)"
        for epoch, at in ((0, 500), (1, 250))
    ]
    said = {"metrics": {"Data (t)": 0.5, "LR": 0.1, "Loss": 0.25}}
    assert read(lines[0]) == {"epoch": 0.5, **said}
    assert read(*lines) == {"epoch": 1.25, **said}


@pytest.mark.parametrize(
    ("line", "step", "metrics"),
    [
        ("[12]\ttrain-rmse:0.45\teval-rmse:0.48", 13, {"train-rmse": 0.45, "eval-rmse": 0.48}),
        ("[11:02:03] [12]\ttrain-rmse:0.45", 13, {"train-rmse": 0.45}),
        ("[0]\ttrain-rmse-mean:0.45+0.01", 1, {"train-rmse-mean": 0.45}),
        ("[12]\tvalid_0's l2: 0.24", 12, {"valid_0-l2": 0.24}),
        ("[12]\tvalid_0's auc: 0.99\tvalid_0's l2: 1e-05", 12, {"valid_0-auc": 0.99, "valid_0-l2": 1e-05}),
        (
            "12:\tlearn: 0.45\ttest: 0.5\tbest: 0.5 (12)\ttotal: 12ms\tremaining: 1.2s",
            13,
            {"learn": 0.45, "test": 0.5},
        ),
        ("0:\tlearn: 0.6\ttotal: 47.4ms\tremaining: 4.7s", 1, {"learn": 0.6}),
    ],
)
def test_boosting_rounds(line: str, step: int, metrics: dict[str, Any]) -> None:
    assert read(line) == {"step": step, "metrics": metrics}


@pytest.mark.parametrize("said", ["Early stopping, best", "Did not meet early stopping. Best"])
def test_the_round_that_lightgbm_names_the_best_is_not_the_last(said: str) -> None:
    last, best = "[50]\tvalid_0's l2: 0.24", "[30]\tvalid_0's l2: 0.20"
    assert read(last, f"{said} iteration is:", best) is None
    assert read(last, f"{said} iteration is:", best, "[1]\tvalid_0's l2: 0.9") == {
        "step": 1,
        "metrics": {"valid_0-l2": 0.9},
    }
    assert (
        read("[50]\ttrain-rmse:0.2", "Stopping. Best iteration:", "[30]\ttrain-rmse:0.3") is None
    )  # XGBoost


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("loss=0.25", {"metrics": {"loss": 0.25}}),
        ("2026-01-23T10:30:45Z accuracy=0.9 loss=1e-3", {"metrics": {"accuracy": 0.9, "loss": 0.001}}),
        (
            '{"timestamp": "2026-01-23T10:30:45Z", "loss": "0.25", "epoch": "3"}',
            {"epoch": 3, "metrics": {"loss": 0.25}},
        ),
        ('{"loss": "unavailable"}', None),
        (
            '{"level": "info", "ts": 1.5, "pid": 7, "step": 5, "loss": 0.2}',
            {"step": 5, "metrics": {"loss": 0.2}},
        ),
    ],
)
def test_katibs_text_and_json(line: str, fields: dict[str, Any] | None) -> None:
    assert read(line) == fields


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "step 100/1000 | loss: 0.52 | lr 3e-4",
            {"step": 100, "total_steps": 1000, "metrics": {"loss": 0.52, "lr": 3e-4}},
        ),
        (
            "Epoch: 3/10, iter: 20, train_loss = 0.5",
            {"epoch": 3, "total_epochs": 10, "step": 20, "metrics": {"train_loss": 0.5}},
        ),
        ("2026-01-23 10:30:45,123 INFO step=5 loss=nan", {"step": 5}),
        (  # counts of an epoch are none of the run
            "Epoch [3/10], Step [100/600], Loss: 0.25",
            {"epoch": 2.1667, "total_epochs": 10, "step": None, "total_steps": None},
        ),
        ("epoch 3 | step 150/600 | loss: 0.5", {"epoch": 2.25, "step": None, "total_steps": None}),
        ("epoch 0.5 | step 100/600 | loss: 0.5", {"epoch": 0.5, "step": 100, "total_steps": 600}),
        (
            "step 250: train loss 2.1, val loss 2.2",
            {"step": 250, "metrics": {"train_loss": 2.1, "val_loss": 2.2}},
        ),
        (
            "step: 10  loss:  7.25  memory:  1.20GiB(3.10%)  tps: 1,234  eta: 0:10:00",
            {"step": 10, "metrics": {"loss": 7.25, "tps": 1234}},
        ),
        (
            " iteration       10/     100 | lm loss: 1.0E+01 | number of nan iterations:   0 |",
            {"step": 10, "total_steps": 100, "metrics": {"lm loss": 10.0, "number of nan iterations": 0}},
        ),
    ],
)
def test_lines_of_names_and_numbers(line: str, fields: dict[str, Any]) -> None:
    found = read(line) or {}
    assert {name: found.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    "line",
    [
        "eval step 5/10 loss 0.3", "Eval: step 5/10 loss 0.3", "[eval] step 5/10 loss: 0.3",
        "Test Epoch: 1 loss 0.5", "Best epoch: 3, best loss: 0.2", "Best step: 100 loss: 0.2",
        "Best val loss: 0.25, epoch: 3", "best acc: 0.9, epoch: 12",
    ],
)  # fmt: skip
def test_where_an_evaluation_stands_is_not_where_the_training_stands(line: str) -> None:
    assert read(line) is None


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        # A place in the code, which logging libraries print.
        (
            "2025-01-01 10:00:00 | INFO     | yolox.core.trainer:270 - epoch: 3, iter: 10, total_loss: 10.5",
            {"step": 10, "epoch": 3, "metrics": {"total_loss": 10.5}},
        ),
        ("10:00:00 INFO     step 5 loss 0.5        train.py:12", {"step": 5, "metrics": {"loss": 0.5}}),
        (
            "2025-11-25 10:00:00 WARNING train.py:33 step 5 loss 0.5",
            {"step": 5, "metrics": {"loss": 0.5}},
        ),
        # A range, a date.
        ("epoch:101-200batch: iter_time=0.01, loss=12.5", None),
        ("epoch 1970-01-01", None),
        ("step 2025-11-25", None),
        # What nobody may see who may not read the log.
        ("{'host': 'db', 'password': 83921, 'lr': 0.001}", {"metrics": {"lr": 0.001}}),
        ('{"loss": "0.5", "password": "123456", "api_key": "1"}', {"metrics": {"loss": 0.5}}),
        ("step 5 loss 0.1 password=1234.5 token=77", {"step": 5, "metrics": {"loss": 0.1}}),
        ("step 5 loss 0.1 tokens=77", {"step": 5, "metrics": {"loss": 0.1, "tokens": 77}}),
        # The first position of a line is the line's.
        ("step 5 loss 0.5 (best 0.4 @ step 3)", {"step": 5, "metrics": {"loss": 0.5, "best": 0.4}}),
        ("step 5/10, best step 3/10, loss 0.5", {"step": 5, "total_steps": 10, "metrics": {"loss": 0.5}}),
        # What an evaluation has measured is not the training's of the same name.
        ("Test:  loss: 0.4 acc: 0.9", {"metrics": {"Test_loss": 0.4, "Test_acc": 0.9}}),
        ("Validation | loss: 0.4 | acc: 0.9", {"metrics": {"Validation_loss": 0.4, "Validation_acc": 0.9}}),
        ("[eval] loss=0.4 acc=0.9", {"metrics": {"eval_loss": 0.4, "eval_acc": 0.9}}),
        ("val loss: 0.4 acc: 0.7", {"metrics": {"val_loss": 0.4, "val_acc": 0.7}}),
        ("==> test loss: 0.4, acc: 0.9", {"metrics": {"test_loss": 0.4, "test_acc": 0.9}}),
        ("\tTrain Loss: 0.500 | Train Acc: 80.0", {"metrics": {"Train_Loss": 0.5, "Train_Acc": 80.0}}),
        ("\t Val. Loss: 0.400 |  Val. Acc: 85.0", {"metrics": {"Val_Loss": 0.4, "Val_Acc": 85.0}}),
        (
            "Epoch 1, validation: loss=0.2, acc=0.9",
            {"epoch": 1, "metrics": {"validation_loss": 0.2, "validation_acc": 0.9}},
        ),
        (
            "Epoch 3/5 Train: loss 0.5 acc 0.8 Val: loss 0.6 acc 0.7",
            {
                "epoch": 3,
                "total_epochs": 5,
                "metrics": {"loss": 0.5, "acc": 0.8, "Val_loss": 0.6, "Val_acc": 0.7},
            },
        ),
        (
            "step 5 [train] loss=0.5 [valid] loss=0.6",
            {"step": 5, "metrics": {"loss": 0.5, "valid_loss": 0.6}},
        ),
        (
            "Epoch 1 | iter 5 | loss train: 2.5, val: n/a | iter time: 12.5",
            {"epoch": 1, "step": 5, "metrics": {"loss train": 2.5, "iter time": 12.5}},
        ),
        *(
            (
                f"Epoch 3/10 {said} loss 0.5",
                {"epoch": 3, "total_epochs": 10, "metrics": {f"{name}_loss": 0.5}},
            )
            for name, said in (
                ("validation", "validation: 10/20"),
                ("Val", "[Val] [10/20]"),
                ("Val", "| Val | step 10/20 |"),
                ("val", "val step 10/20"),
                ("Test", "Test"),
            )
        ),
        ('{"mode": "val", "epoch": 3, "iter": 40, "mAP": 0.5}', {"metrics": {"val_mAP": 0.5}}),
        (
            '{"split": "test", "loss": 0.5, "test_acc": 0.75}',
            {"metrics": {"test_loss": 0.5, "test_acc": 0.75}},
        ),
        ("level=info env=dev step=5 loss=0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        ("step=5 env=dev loss=0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        (
            "Validation: 20/20, loss 0.5, acc 0.75",
            {"metrics": {"Validation_loss": 0.5, "Validation_acc": 0.75}},
        ),
        # Steps of an epoch.
        ("Epoch[3/10] Iter[20/100] loss: 0.5", {"epoch": 2.2, "total_epochs": 10, "metrics": {"loss": 0.5}}),
        ("Epoch 3 | Step 20/100 | loss 0.5", {"epoch": 2.2, "metrics": {"loss": 0.5}}),
        (
            "[Epoch 3/10] [Batch 20/100] [loss: 0.5]",
            {"epoch": 2.2, "total_epochs": 10, "metrics": {"loss": 0.5}},
        ),
        (
            '{"step": 5, "total_steps": 10, "epoch": 1, "total_epochs": 3, "loss": 0.5}',
            {"step": 5, "total_steps": 10, "epoch": 1, "total_epochs": 3, "metrics": {"loss": 0.5}},
        ),
        (
            '{"current_steps": 10, "total_steps": 100, "loss": 0.5}',
            {"step": 10, "total_steps": 100, "metrics": {"loss": 0.5}},
        ),
        # A step that says that it is the run's.
        ("STEP: 24/639 -- GLOBAL_STEP: 1302 -- loss: 0.5", {"step": 1302, "metrics": {"loss": 0.5}}),
        ("iter 5 | global_step 20 | loss 0.5", {"step": 20, "metrics": {"loss": 0.5}}),
        # Names are whole.
        (
            "step 5 loss 2.5 grad norm 1.5 lr 0.1",
            {"step": 5, "metrics": {"loss": 2.5, "grad norm": 1.5, "lr": 0.1}},
        ),
        (
            "Epoch 1/3 - train: loss=0.5 - val: loss=0.6 - lr=0.001",
            {"epoch": 1, "total_epochs": 3, "metrics": {"loss": 0.5, "val_loss": 0.6, "lr": 0.001}},
        ),
        (
            "Steps : 100, Loss Total : 45.5, Mel-Spec. Error : 0.5",
            {"step": 100, "metrics": {"Loss Total": 45.5, "Mel-Spec. Error": 0.5}},
        ),
        ("step 5, loss is 12.5 today, more than it was in step 4", {"step": 5}),
        ("epoch: 1 step: 100, loss is 2.5", {"epoch": 1, "step": 100, "metrics": {"loss": 2.5}}),
        (
            "Epoch 00010 | Time(s) 0.25 | Loss 0.5 | ETputs(KTEPS) 123.5",
            {"epoch": 10, "metrics": {"Time(s)": 0.25, "Loss": 0.5, "ETputs(KTEPS)": 123.5}},
        ),
        # Steps of something within a step, or of an episode.
        (
            "Episode 3/100, Step 45, Reward 12.5",
            {"epoch": 3, "total_epochs": 100, "metrics": {"Reward": 12.5}},
        ),
        ("step 5 loss 0.5 Train / Test accuracy: 0.93 / 0.92", {"step": 5, "metrics": {"loss": 0.5}}),
        ("epoch 2 episode 30 reward 12.5", {"epoch": 2, "metrics": {"reward": 12.5}}),
        (
            "Epoch[3] Batch [50]\tSpeed: 812.5 samples/sec\taccuracy=0.5",
            {
                "epoch": 3,
                "metrics": {"Speed": 812.5, "accuracy": 0.5},
            },
        ),
        (
            "Epoch: 1/3 Train steps: 20 Val steps: 5 loss: 0.5",
            {
                "epoch": 1,
                "total_epochs": 3,
                "metrics": {"loss": 0.5},
            },
        ),
        ("inner step 3/5 loss 0.5", None),
        ("PPO epoch: 3/4, loss: 0.5, value loss: 0.25", None),
        ("micro step 3/8", None),
        ("avg step 0.5 s", None),
        # How many there are of something else.
        ("Step 2/4: Tokenizing 12345 documents", None),
        (
            "step 5 loss 0.25 lr 0.125 acc 0.75 after 12 seen",
            {"step": 5, "metrics": {"loss": 0.25, "lr": 0.125, "acc": 0.75}},
        ),
        ("total_steps=5000, loss=0.5", {"metrics": {"loss": 0.5}}),
        # Names of several parts.
        ("Training for 10 epochs with lr=0.25", None),
        ("step 5 acc@1: 90.1", {"step": 5, "metrics": {"acc@1": 90.1}}),
        ("step 5 loss (train): 0.5", {"step": 5, "metrics": {"loss (train)": 0.5}}),
        ("Epoch 1 Avg. loss: 0.5", {"epoch": 1, "metrics": {"Avg. loss": 0.5}}),
        ("Total training time: 0.25", {"metrics": {"Total training time": 0.25}}),
        ("Total params: 124.4 M", None),
        # What is said in units, and beside a metric.
        (
            "step:10/5100 val_loss:5.1234 train_time:1000ms step_avg:100.12ms",
            {"step": 10, "total_steps": 5100, "metrics": {"val_loss": 5.1234}},
        ),
        (
            "step    1/1000 | loss 10.95 (+nanz)| norm 20.1 (+nanz)| lr 1.00e-06 | 120.5 ms | 50.1% bf16 MFU",
            {"step": 1, "total_steps": 1000, "metrics": {"loss": 10.95, "norm": 20.1, "lr": 1e-6}},
        ),
        *(
            (f"Step 10/100 {line}", {"step": 10, "total_steps": 100, "metrics": {"loss": 0.1}})
            for line in (
                "| loss 0.1 | 12.3K tok/s | 45.2% MFU",
                "| loss: 0.1 | 12,345 tok/s | 45.2 % MFU | 71.2 GiB",
                "| loss 0.1 | 45.2k tok/s | 12.3 GB | 123 ms",
                "- loss: 0.1 - 12345 tokens/sec - 3.2s/it - ETA 1h 20m",
            )
        ),
        (
            "Epoch 3/30 | loss 0.1 | 45.1% acc | 1.2K img/s",
            {"epoch": 3, "total_epochs": 30, "metrics": {"loss": 0.1}},
        ),
        ("step 10 | loss 0.5 | 45.2k tok/s | 12.3 GB", {"step": 10, "metrics": {"loss": 0.5}}),
        ("step 10: loss=0.5, 123ms/step, 12.3GB, ETA 0:01:02", {"step": 10, "metrics": {"loss": 0.5}}),
        ("step 10 | 45.2k tok/s | 12.3 GB", None),
        ("Saved in step 10, loss 0.5, 3 files, 12.3 GB, 14 shards, 45.2k tokens", None),
        ("Plan of step 10, which needs a loss of 0.5, 3 files, 12.3 GB", None),
        # Of how many, and counts that are cut to thousands.
        ("Epoch 3 of 5, loss 0.5", {"epoch": 3, "total_epochs": 5, "metrics": {"loss": 0.5}}),
        ("Step 10 of 50: loss=0.5", {"step": 10, "total_steps": 50, "metrics": {"loss": 0.5}}),
        ("Step 2 of 5: done", None),
        ("Step 2/5 done", None),
        ("step: 1 000 loss: 0.5", None),  # seen: step 1
        ("step: 12\u202f345 loss: 0.5", None),
        ("step: 12 300.5 ms, loss: 0.5", {"step": 12, "metrics": {"loss": 0.5}}),
        ("step 1.5k | loss 0.5", {"step": 1500, "metrics": {"loss": 0.5}}),
        (
            "step:1K smpl:8K ep:9 epch:0.90 loss:0.5",
            {"step": 1000, "metrics": {"ep": 9, "epch": 0.9, "loss": 0.5}},
        ),
        ("step 5m | loss 0.5", None),
        ("step 5kB | loss 0.5", None),
        ("step 5 loss=1.5±0.2 acc=90%", {"step": 5, "metrics": {"loss": 1.5, "acc": 90}}),
        ("step 1,450/10,000 loss 0.5", {"step": 1450, "total_steps": 10000, "metrics": {"loss": 0.5}}),
        ("step 5: {'loss': 0.5}", {"step": 5, "metrics": {"loss": 0.5}}),
        (
            'level=info ts=2026-01-23T10:00:00Z msg="train" step=5 loss=0.5',
            {"step": 5, "metrics": {"loss": 0.5}},
        ),
        ("steps 1-10 of 100", None),
        (
            "step 5/10 loss=0.1 eta=0:10:00 speed=12it/s lr=1e-4 time=12:30",
            {"step": 5, "total_steps": 10, "metrics": {"loss": 0.1, "lr": 1e-4}},
        ),
        ("INFO pid=1234 rank=0 step=5 loss=0.1", {"step": 5, "metrics": {"loss": 0.1}}),
        ("Epoch: 1 completed. Loss: 0.5. Time: 12.5s", {"epoch": 1, "metrics": {"Loss": 0.5}}),
        ("{'step': 5, 'loss': tensor(0.5000)}", {"step": 5, "metrics": {"loss": 0.5}}),
        (
            "{'step': 5, 'loss': tensor(0.5, device='cuda:0')}",
            {"step": 5, "metrics": {"loss": 0.5}},
        ),
        ("2026-01-23 10:00:00 INFO root:9 - step 10 loss 0.1", {"step": 10, "metrics": {"loss": 0.1}}),
        (
            '{"trainerStatus":{"progressPercentage":45,"metrics":[{"name":"loss","value":"0.25"}]}}',
            {"percentage": 45, "metrics": {"loss": 0.25}},
        ),
        (
            "global_step 25 epoch 1/3 loss 0.5",
            {"step": 25, "epoch": 1, "total_epochs": 3, "metrics": {"loss": 0.5}},
        ),
        # A logger's record.
        (
            "INFO 2021-01-01 12:30:45,123 log_hooks.py: 277: Rank: 0; iter: 1500; lr: 0.1; loss: 6.5;",
            {"step": 1500, "metrics": {"lr": 0.1, "loss": 6.5}},
        ),
        (
            "2017-11-03 10:00:00.12: step 100, loss = 4.5 (98.1 examples/sec; 1.304 sec/batch)",
            {"step": 100, "metrics": {"loss": 4.5}},
        ),
        ("ts=1701000000.123 step=5 loss=0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        ("Nov 26 20:30:45 host python[123]: step 5 loss 0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        (
            "05/01/2024 12:00:00 [INFO|DP=0|PP=0|TP=0|node-0]: iteration: 5 / 10 | lm_loss: 2.5",
            {"step": 5, "total_steps": 10, "metrics": {"lm_loss": 2.5}},
        ),
        (
            "[INFO|2026-01-23 10:00:00] llamafactory.train.callbacks:143 >> {'loss': 1.5, 'epoch': 0.10}",
            {"epoch": 0.1, "metrics": {"loss": 1.5}},
        ),
        ("INFO [train:12] step:5 loss:0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        ("[I 260123 10:30:45 train:12] step 5 loss 0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        ("INFO step:5 | loss:0.5", {"step": 5, "metrics": {"loss": 0.5}}),
        # Arrays of one number.
        (
            "{'loss': tensor(0.5000, device='cuda:0', grad_fn=<NllLoss>), 'step': Array(5, dtype=int32)}",
            {"step": 5, "metrics": {"loss": 0.5}},
        ),
        (
            "step 5 loss: tensor([0.5000], device='cuda:0') acc array(0.9)",
            {"step": 5, "metrics": {"loss": 0.5, "acc": 0.9}},
        ),
        ("step 5 loss tensor([0.5, 0.6])", {"step": 5}),
        ("global_step=123, episodic_return=[21.]", {"step": 123, "metrics": {"episodic_return": 21.0}}),
        ("INFO:tensorflow:loss = 2.5, step = 100 (1.234 sec)", {"step": 100, "metrics": {"loss": 2.5}}),
        (
            "timestamp=2026-11-26T20:30:45Z level=info step=300 loss=0.5",
            {"step": 300, "metrics": {"loss": 0.5}},
        ),
        # Settings.
        ("Hyperparameters: lr=0.001, wd=0.01, epochs=10, gamma=0.1", None),
        ("max_steps: 5000, lr: 0.001, dropout: 0.1", None),
        ("Namespace(epoch=100, batch=32, lr=0.001, gpu='0')", None),
        ("StepLR(step=2, gamma=0.5, lr=0.1)", None),
        ("{'epoch': 100, 'lr': 0.001, 'batch': 32}", None),
        ('{"epoch": 100, "lr": 0.001, "model": "x"}', None),
        ("python: 3.11", None),
        ("torch: 2.13", None),
        ("cuda: 12.4", None),
    ],
)
def test_what_stands_in_a_line_beside_its_metrics_and_position(
    line: str, fields: dict[str, Any] | None
) -> None:
    assert read(line) == fields


@pytest.mark.parametrize(
    ("before", "line", "fields"),
    [
        (
            "[step=549/1000,epoch=0]", "[step=550/1000,epoch=0]",
            {"step": 550, "total_steps": 1000, "epoch": 0},
        ),
        (
            "fps step: 1234 fps total: 1234 epoch: 2/100 frames: 12",
            "fps step: 12345 fps total: 1234 epoch: 3/100 frames: 12345",
            {
                "epoch": 3, "total_epochs": 100,
                "metrics": {"fps step": 12345, "fps total": 1234, "frames": 12345},
            },
        ),
        (
            "step 1 - batch_cost: 0.06 - reader cost: 0.01", "step 2 - batch_cost: 0.06 - reader cost: 0.01",
            {"step": 2, "metrics": {"batch_cost": 0.06, "reader cost": 0.01}},
        ),
        ("Step 1/5 (12.5 it/s)", "Step 2/5 (11.5 it/s)", {"step": 2, "total_steps": 5}),
        ("Step 1/5 (eta 0:10:00)", "Step 2/5 (eta 0:09:00)", {"step": 2, "total_steps": 5}),
        ("step 10/500 elapsed 8s", "step 20/500 elapsed 12s", {"step": 20, "total_steps": 500}),
        ("iter 1/5 | time 9ms | 3000 tok/s", "iter 2/5 | time 9ms | 3 tok/s", {"step": 2, "total_steps": 5}),
        (
            "{'epoch': 0.5, 'learning_rate': 0.001}", "{'epoch': 1.0, 'learning_rate': 0.0005}",
            {"epoch": 1.0, "metrics": {"learning_rate": 0.0005}},
        ),
        (
            "step 5/10 损失: 0.5 потери=0.4", "step 6/10 损失: 0.4 потери=0.4",
            {"step": 6, "total_steps": 10, "metrics": {"损失": 0.4, "потери": 0.4}},
        ),
        ("Step 1/5 done", "Step 2/5 done", None),
        ("Step 1/5 done in 3.2s", "Step 2/5 done in 4.5s", None),
        ("step: 10 retries", "step: 20 retries", None),
        ("Step 1/12 : FROM python:3.11", "Step 2/12 : FROM python:3.12", None),
    ],
)  # fmt: skip
def test_where_nothing_is_measured_a_position_counts_when_it_has_risen(
    before: str, line: str, fields: dict[str, Any] | None
) -> None:
    """Seen: step 3 of 5, of a script that numbers its parts."""
    assert read(before) is None
    assert read(before, line) == fields


@pytest.mark.parametrize(
    "words",
    ["exp1: ", "[resnet50] ", "[12345] ", "localhost: ", "GAN ", "Stage ", "iter_dt 12.30ms; ", "run_1 | "],
)
def test_a_position_behind_unknown_words_counts_when_it_rises_beside_a_loss_and_nothing_else_says_one(
    words: str,
) -> None:
    """Seen: no progress at all of programs that print their name first."""
    lines = [f"{words}epoch {epoch}/9, loss: {1 / epoch:.3f}" for epoch in (1, 2, 3)]
    truth = {"epoch": 3, "total_epochs": 9, "metrics": {"loss": 0.333}}
    assert read(lines[0]) is None
    assert read(*lines) == truth
    assert read(*lines, "other: epoch 5/9, loss: 0.5", "other: epoch 6/9, loss: 0.5") is None
    assert read("epoch 3/9, loss: 0.333", *lines) is None


@pytest.mark.parametrize(
    "record", ["2026-11-27 05:20:11,123 [INFO] train.py:42: ", "INFO 2026-11-27 05:20:11,123 train.py:42 - "]
)
def test_a_place_in_the_code_that_a_log_record_names_says_nothing(record: str) -> None:
    """Seen: no progress of a log in one of the most common formats."""
    lines = [f"{record}Step {step}/9" for step in (1, 2)]
    assert read(*lines) == {"step": 2, "total_steps": 9}


@pytest.mark.parametrize("behind", ["done", "took 12.3s"])
def test_an_epoch_counts_whatever_is_said_of_it(behind: str) -> None:
    assert read(*(f"Epoch {epoch}/9 {behind}" for epoch in (1, 2))) == {"epoch": 2, "total_epochs": 9}


@pytest.mark.parametrize(
    "line",
    [
        "epoch: 100", "epoch=100", "  epoch: 100", "decay lr at epoch: 30", "save at epoch: 50",
        "Next eval: step 500, lr: 0.1", "wandb:         epoch 10", "wandb:   global_step 5000",
        "Lloyd iter 50, error 0.1", "PCA iteration 30 loss 0.5", "warmup step 10/50 loss 4.9",
        "LR finder step 100/100 lr 0.001 loss 0.5", "RuntimeError: step 57: loss=nan",
        "Error at iteration 99: loss inf", "ValueError: loss is nan at step 57", "GET /step=5 loss=0.5",
        "(1/8) Epoch 9, batch 50, loss[loss=0.5, over 1000.00 frames. ]", "[1/8] epoch 9 loss 9.0",
        "[1] epoch 9 loss 9.0", "node1: epoch 9 loss 9.0", "[cuda:1] epoch 9 loss 9.0",
        "R1: epoch 9 loss 9.0",
        "[GPU 1/8] epoch 9 loss 9.0", "dp_rank=1 epoch=9 loss=9.0", "epoch 9 | rank 1 | loss 9.0",
        "epoch 9 loss 9.0 (rank 1)",
    ],
)  # fmt: skip
def test_what_stands_before_a_position_has_to_be_known(line: str) -> None:
    """Seen: each of these as the run's position, in the last document."""
    begun = [f"epoch {epoch} loss {1 / epoch:.3f}" for epoch in (1, 2, 3)]
    assert POSITION.isdisjoint(read(*begun, line) or {})


def test_a_line_of_the_form_of_one_that_was_read_is_read_however_long_its_numbers_are() -> None:
    """Seen: a run of 20 steps stayed at step 9."""
    assert read("step=1 loss=0.5 gpu_mem=12.3GB throughput=1.2k/s") == {"step": 1, "metrics": {"loss": 0.5}}
    for rest in ("tokens 0.01M | loss 8.000 | tok/s 12.3K", "throughput as usual on | loss 8.000"):
        lines = [f"step {step:6} | {rest}" for step in (9, 10, 123456)]
        assert read(*lines) == {"step": 123456, "metrics": {"loss": 8.0}}


def test_epochs_that_are_counted_from_0_are_done_when_the_next_one_begins() -> None:
    lines = [f"Epoch [{epoch}/3], Step [{step}/10], Loss: 0.5" for epoch in range(3) for step in (5, 10)]
    assert read(*lines) == {"epoch": 3.0, "total_epochs": None, "metrics": {"Loss": 0.5}}
    assert read("Epoch 0/2", "loss: 0.5", "Epoch 2/2, loss: 0.4") == {
        "epoch": 2, "total_epochs": 3, "metrics": {"loss": 0.4},
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "Total steps: 1000", "max steps = 1000", "Number of steps: 1000", "num steps: 1000", "# steps: 1000",
        "Warmup steps: 1000", "warm-up steps: 1000", "Save steps: 500", "logging steps: 100", "Max epoch: 10",
        "Total epoch: 10", "steps per epoch: 100", "Time per step: 12", "save every epoch: 1",
        "Skipped steps: 3", "Max train steps: 100000", "number of training steps: 1000000",
    ],
)  # fmt: skip
def test_how_many_steps_there_are_for_something_is_not_where_the_training_stands(line: str) -> None:
    assert read(line) is None
    assert read(f"{line}, loss: 0.25") in (None, {"metrics": {"loss": 0.25}})


def test_a_step_is_one_whatever_is_done_with_it() -> None:
    for before in ("Train", "Global", "Saved", "End of", "Finished", "optimizer", "INFO", "at"):
        assert read(f"{before} step: 5, loss: 0.25") == {"step": 5, "metrics": {"loss": 0.25}}


@pytest.mark.parametrize(
    "line",
    [
        "rank: {}, step: 5, loss: 0.5",
        "[Rank {}] step 5 loss 0.5",
        "[PID:123] [RANK:{}] step 5 loss 0.5",
        '{{"rank": {}, "step": 5, "loss": 0.5}}',
    ],
)
def test_a_line_that_names_its_rank_counts_if_that_is_0(line: str) -> None:
    assert read(line.format(0)) == {"step": 5, "metrics": {"loss": 0.5}}
    assert read(line.format(3)) is None


@pytest.mark.parametrize("form", ["epoch: {}", "  step: {}", "global_step={}"])
def test_a_position_alone_in_a_line_may_be_a_setting_until_a_later_one_is_larger(form: str) -> None:
    """Seen: "epoch 100" of a run whose configuration had been printed."""
    name = form.split(":")[0].split("=")[0].strip().replace("global_", "")
    assert read(form.format(100)) is None
    assert read(form.format(100), form.format(1), form.format(2)) == {name: 2}
    assert read(form.format(100), form.format(57)) is None
    assert read(form.format(100), form.format(57), form.format(58)) == {name: 58}
    assert read(form.format(100), form.format(100)) is None


@pytest.mark.parametrize(
    "form",
    [
        '{{"lr": 0.001, "epoch": {}, "hidden_size": 768, "dropout": 0.1}}',
        "lr=0.1 epoch={} label_smoothing=0.1",
        "step {} gamma 0.1 beta 0.9",
    ],
)
def test_a_position_beside_which_nothing_is_measured_may_be_a_setting_too(form: str) -> None:
    """Seen: epoch 100 of a configuration in JSON."""
    assert read(form.format(100)) is None
    assert POSITION.isdisjoint(read(form.format(100), form.format(57)) or {})
    assert not POSITION.isdisjoint(read(form.format(100), form.format(57), form.format(58)) or {})
    measured = form.format(100).replace("lr", "loss").replace("gamma", "loss")
    assert not POSITION.isdisjoint(read(measured) or {})


@pytest.mark.parametrize("text", ["env: dev", "environment: test", "experiment: test", "run: eval"])
def test_where_and_by_what_name_a_training_runs_is_no_part_of_it(text: str) -> None:
    name, _, value = text.partition(": ")
    lines = [f'{{"{name}": "{value}", "step": {step}, "loss": 0.5}}' for step in (4, 5)]
    assert read(*lines) == {"step": 5, "metrics": {"loss": 0.5}}


@pytest.mark.parametrize(
    "line",
    [
        '{"best_epoch": 1, "loss": 0.35, "step": 999}', '{"model": "x", "epoch": 50, "acc": 0.3}',
        '{"event": "config", "epoch": 100, "loss": 0.5}', '{"epoch": 30, "error": 0.0}',
        '{"eval": true, "step": 900, "loss": 9}', "[warmup] step 10/50 loss 5", "result: epoch 50 loss 0.1",
        "step 10/20 loss 0.4",
    ],
)  # fmt: skip
def test_a_position_of_another_form_counts_when_it_comes_twice_with_more(line: str) -> None:
    """Seen: epoch 100, 50 and 30, step 999 and 900."""
    trained = [f"epoch {epoch} loss 0.5" for epoch in (1, 2)]
    assert POSITION.isdisjoint(read(*trained, line) or {})
    assert (read(trained[0], line, trained[1]) or {})["epoch"] == 2
    assert (read(line, *trained) or {})["epoch"] == 2
    steps = [f"step {step} loss 0.4" for step in (100, 200)]
    assert (read(*trained, *steps) or {})["step"] == 200


@pytest.mark.parametrize(
    "form",
    [
        "step {0} loss 0.5 top{0} 0.4",
        "step {0} loss 0.5 best_of_{1} 0.4",
        "step {0}/{0}0 loss 0.5",
        'msg="loss is {1}" step={0}',
        'msg="loss is {1}" step={0} loss=0.5',
        '{{"msg": "loss is {1}", "step": {0}, "loss": 0.5}}',
        'step={0} loss=0.5 file="shard-{1}.tar"',
        "step {0}/100 shard={1}",
        "[rank0]: step {0} loss 0.5 acc_{1} 0.4",
        "2025-11-25 10:00:00 INFO step {0} loss 0.5 expert_{1} 0.4",
    ],
)
def test_a_line_whose_names_or_text_change_each_time_counts_on(form: str) -> None:
    """Seen: step 10 for ever."""
    lines = [form.format(10 * at, word) for at, word in enumerate(("low", "high", "fair", "good"), start=1)]
    assert (read(*lines[:3]) or {})["step"] == 30
    assert (read(*lines) or {})["step"] == 40


@pytest.mark.parametrize(
    ("usual", "last"),
    [
        ("step {} loss 0.5", "step {} loss 0.5 val_loss 0.6"),
        ("step {} loss 0.5 lr 0.1", "step {} loss 0.5"),
        ('{{"step": {}, "loss": 0.5}}', '{{"loss": 0.5, "val_loss": 0.6, "step": {}}}'),
    ],
)
def test_a_line_with_more_or_fewer_measurements_is_of_the_same_form(usual: str, last: str) -> None:
    """Seen: step 20, of 30."""
    assert (read(usual.format(10), usual.format(20), last.format(30)) or {})["step"] == 30


def test_an_epoch_before_a_dictionary_of_measurements_counts_behind_a_loggers_name() -> None:
    """Of Accelerate's examples. Seen: nothing."""
    line = "11/25/2025 10:00:00 - INFO - __main__ - epoch 1: {'matthews_correlation': 0.5}"
    assert read(line) == {"epoch": 1, "metrics": {"matthews_correlation": 0.5}}


def test_the_step_of_litgpt_is_not_its_micro_batch() -> None:
    """Seen: step 24."""
    line = "Epoch 1 | iter 24 step 6 | loss train: 1.423, val: n/a | iter time: 523.10 ms (step)"
    assert (read(line) or {})["step"] == 6
    assert read(line, "iter 24: val loss 1.5012, val time: 12345.67 ms") == {
        "metrics": {"val_loss": 1.5012, "val_time": 12345.67}
    }


def test_a_count_behind_a_number_sign_is_read() -> None:
    assert read("Epoch #3 loss 0.5") == {"epoch": 3, "metrics": {"loss": 0.5}}
    assert read("issue #3 loss 0.5") is None


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("test_reward: 30.0, best_reward: 31.0", {"test_reward": 30.0, "best_reward": 31.0}),
        ("valid_auc=0.5 valid_loss=0.4 time=3.5", {"valid_auc": 0.5, "valid_loss": 0.4, "time": 3.5}),
        ("test acc: 0.5, loss: 0.4", {"test_acc": 0.5, "test_loss": 0.4}),
        ("loss=0.4, grad_norm=0.523, accuracy=0,5", {"loss": 0.4, "grad_norm": 0.523}),
        ("loss=0.4, grad_norm=0.523, accuracy=0,523", {"loss": 0.4, "grad_norm": 0.523}),
    ],
)
def test_a_name_that_says_an_evaluation_is_no_part_of_the_next_name(
    line: str, metrics: dict[str, float]
) -> None:
    """Seen: `test_reward_best_reward`, and an accuracy of 523."""
    assert read(line) == {"metrics": metrics}


@pytest.mark.parametrize(
    ("lines", "position"),
    [
        # An epoch goes on after an evaluation, and another one begins.
        (("epoch 1, step 100, loss 0.5", "Validating...", "epoch 1, step 200, loss 0.4"), ("step", 200)),
        (
            ('{"epoch": 1, "step": 5, "loss": 0.5}', "Testing", '{"epoch": 1, "step": 6, "loss": 0.5}'),
            ("step", 6),
        ),
        (
            ("Epoch 1/2", "step 9 lr 0.1 loss 0.5", "Testing", "Epoch 2/2", "step 3 lr 0.1 loss 0.4"),
            ("step", None),
        ),
        (
            (
                *(f'msg="loss {word}" step={len(word)} loss=0.5' for word in ("a", "bb")),
                "Testing",
                'msg="loss ccc" step=3 loss=0.4',
            ),
            ("step", 3),
        ),
        # A first line before the training is of another form, or names its steps otherwise.
        (("step 0 loss 9.5", "exp1 step 10 loss 0.5", "exp1 step 20 loss 0.4"), ("step", 20)),
        (("global_step=0 loss=9.5", "step 10 loss 0.5", "step 20 loss 0.4"), ("step", 20)),
    ],
)
def test_a_position_does_not_stay_where_it_was(lines: tuple[str, ...], position: tuple[str, Any]) -> None:
    """Seen: step 100, 5 and 0, as long as the epoch or the program lasted; and a loss that stayed."""
    fields = read(*lines) or {}
    assert position in fields.items()
    assert "metrics" in fields


def test_a_count_of_something_else_is_no_part_of_a_lines_form() -> None:
    """Of OpenNMT. Seen: step 50 for ever."""
    lines = [f"Step {step}/1000; acc: 10.5; ppl: 9.1; bsz: 10/ {step}/10" for step in (50, 100)]
    assert (read(*lines) or {})["step"] == 100


@pytest.mark.parametrize(
    ("lines", "metrics"),
    [
        (("epoch 1 loss 0.9", "Validating...", "epoch 1 val_loss 0.5 acc 0.5"), {"val_loss": 0.5}),
        (("step 10 loss 0.9", '{"epoch": 1, "loss": 0.1, "val_acc": 0.5, "val_token": 7}'), {"val_acc": 0.5}),
    ],
)
def test_measurements_that_are_an_evaluations_by_name_count_whatever_says_them(
    lines: tuple[str, ...], metrics: dict[str, float]
) -> None:
    """Seen: the line was left out whole, with its metrics."""
    assert read(*lines) == {"metrics": metrics}


def test_an_object_with_a_text_that_says_a_training_counts_at_once() -> None:
    """Seen: nothing before the second such line."""
    assert (read('{"event": "train_step", "step": 10, "loss": 0.5}') or {})["step"] == 10
    assert read('{"event": "train_config", "step": 10, "loss": 0.5}') is None


@pytest.mark.parametrize("form", ["Epoch: {} | Step: {} | Loss: 0.5", "epoch {}, iter {}, loss = 0.5"])
def test_a_step_that_begins_anew_with_each_epoch_is_not_the_runs(form: str) -> None:
    """Seen: step 40, of three epochs of 50, and once finished at step 40 of 40."""
    in_epochs = [form.format(epoch, step) for epoch in (1, 2, 3) for step in (0, 20, 40)]
    assert (read(*in_epochs[:3]) or {})["step"] == 40
    assert (read(*in_epochs[:4]) or {})["step"] is None
    assert (read(*in_epochs) or {})["step"] is None
    below = ["Epoch 1/2", "step 30 loss 0.5", "step 40 loss 0.5", "Epoch 2/2", "step 5 loss 0.5"]
    assert (read(*below) or {})["step"] is None
    of_run = [form.format(epoch, epoch * 50 + step) for epoch in (1, 2, 3) for step in (0, 20, 40)]
    assert (read(*of_run) or {})["step"] == 190


def test_the_total_of_a_step_that_begins_anew_with_each_epoch_is_not_the_runs() -> None:
    """Seen: no step, of 30, from the second line of the second epoch on."""
    lines = [
        line
        for epoch in (1, 2, 3)
        for line in (f"=== Epoch {epoch}/3 ===", "Step 10/30 loss=0.5", "Step 30/30 loss=0.5")
    ]
    assert (read(*lines) or {}).get("total_steps") is None


def test_what_a_log_line_says_in_words_tells_its_form_apart() -> None:
    """Seen: step 900 of an evaluation."""
    trained = [f'level=info msg="train step" step={step} loss=0.5' for step in (1, 2)]
    assert read(*trained, 'level=info msg="eval done" step=900 loss=0.9') is None
    assert (read(*trained) or {})["step"] == 2
    events = [f'{{"event": "train", "step": {step}, "loss": 0.5}}' for step in (1, 2)]
    assert read(*events, '{"event": "rollout", "step": 900, "loss": 0.9}') is None


def test_a_share_of_an_epoch_is_none() -> None:
    """Seen: epoch 90, of StarSpace's `Epoch: 90.0%`."""
    assert POSITION.isdisjoint(
        read("Epoch: 80.0%  lr: 0.01  loss: 0.5", "Epoch: 90.0%  lr: 0.01  loss: 0.5") or {}
    )


@pytest.mark.parametrize(
    "headline",
    [
        "--- Evaluation ---", "Running validation...", "Testing", "Testing model...", "Initial evaluation",
        "Evaluating on the validation set", "Final evaluation on test set:",
    ],
)  # fmt: skip
def test_positions_below_the_headline_of_an_evaluation_are_its_own(headline: str) -> None:
    """Seen: step 20 of 20, finished, of a training of 30 steps."""
    trained = [f"step {step}/30 loss 0.5" for step in (10, 20)]
    others = [f"step {step}/20 loss 0.4" for step in (10, 20)]
    assert read(*trained, headline, *others) is None
    assert read(headline, *others, "Training", *trained) == {
        "step": 20, "total_steps": 30, "metrics": {"loss": 0.5},
    }  # fmt: skip
    again = "step 30/30 loss 0.4"
    assert (read(*trained, headline, *others, again) or {})["step"] == 30


@pytest.mark.parametrize(
    ("trained", "other", "last"),
    [
        ("step {}/100 loss 0.5", "Iteration {}, inertia 12.5, score 0.5", {"step": 9, "total_steps": None}),
        ("Epoch {}/100 loss 0.5", "-- Epoch {}, Avg. loss: 0.25", {"epoch": 9, "total_epochs": None}),
        ("step {}/100 loss 0.5", "epoch {} loss 0.25", {}),
        ("Epoch {}/100 loss 0.5", "Iteration {}, loss = 0.25", {}),
        ("Epoch {}/100 loss 0.5", "[{}]\ttrain-rmse:0.5", {}),
        ("Epoch {}/100 loss 0.5", "[ROUND {}]", {}),
    ],
)
def test_another_algorithm_behind_the_training_has_no_part_in_its_position(
    trained: str, other: str, last: dict[str, Any]
) -> None:
    """Seen: step 200 of 100, finished, of a classifier that was fitted after 30; step 55 in epoch 3 of 10."""
    reader, known = LineReader(), dict[str, Any]()
    for at in (20, 30, 40, 50):
        reader.read(trained.format(at))
    for at in range(10):
        known |= reader.read(other.format(at)) or {}
    assert {name: value for name, value in known.items() if name != "metrics"} == last


def test_a_step_that_is_said_no_more_is_unknown_when_epochs_go_on() -> None:
    """Seen: step 200 of a classifier that was fitted first, beside the epochs of the training."""
    lines = [f"Iteration {at}, loss = 0.5" for at in (1, 200)]
    epochs = [f"Epoch {at}/10 train_loss: 0.5" for at in range(1, 6)]
    assert [(read(*lines, *epochs[:at]) or {}).get("step", "none") for at in (2, 4)] == ["none", None]


def test_a_step_may_be_the_one_that_is_called_global_elsewhere() -> None:
    """Seen: step 20 while lines said 30."""
    lines = [line for at in (10, 20) for line in (f"step {at} loss 0.5", f"global_step {at}")]
    assert (read(*lines, "step 30 loss 0.5") or {})["step"] == 30


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("INFO :      [ROUND 3]", {"step": 2}),
        ("INFO :      [ROUND 3/5]", {"step": 2, "total_steps": 5}),
        ("INFO :      Run finished 5 round(s) in 12.34s", {"step": 5}),
        (
            "[2025-03-01 10:00:00] Ep. 1 : Up. 300 : Sen. 30,000 : Cost 8.5 * 1,234 @ 12 after 34 : Time 9s",
            {"step": 300, "metrics": {"Cost": 8.5}},
        ),
        ("[2025-03-01 10:00:00] [valid] Ep. 1 : Up. 300 : cross-entropy : 85.9 : new best", None),
        (
            "{'loss': 1.5, 'epoch': 0.25, 'global_step/max_steps': '5/20', 'percentage': '25.00%'}",
            {"step": 5, "total_steps": 20, "epoch": 0.25, "metrics": {"loss": 1.5}},
        ),
    ],
)
def test_flower_marian_and_ms_swift(line: str, fields: dict[str, Any] | None) -> None:
    assert read(line) == fields


def test_what_is_measured_at_a_position_that_is_known_is_taken_whatever_its_name() -> None:
    trained = "{'loss': 0.5, 'epoch': 2.0}"
    assert read(trained, "{'eval_runtime': 1.5, 'epoch': 2.0}") == {
        "epoch": 2.0, "metrics": {"eval_runtime": 1.5},
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 3, "tokens_per_sec": 12.5, "eta": "0:10:00", "msg": "train"}',
        '{"epoch": 3, "trainLoss": 0.5, "valLoss": 0.75, "run": "x"}',
    ],
)
def test_a_text_beside_a_measurement_takes_no_position_away(line: str) -> None:
    """Seen: nothing of a training that writes JSON with a text, for all of its time."""
    assert not POSITION.isdisjoint(read(line, line.replace("3,", "4,", 1)) or {})


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 3, "name": "download", "status": "ok"}',
        '{"level": "info", "msg": "Reconciling", "step": 3}',
        '{"epoch": 1763720000, "cpu": 0.5}',
        '{"epoch": 1763720000.5, "level": "info"}',
    ],
)
def test_what_else_is_called_a_step_or_an_epoch_is_no_position(line: str) -> None:
    later = line.replace("3", "4")
    assert POSITION.isdisjoint(read(line, later) or {})


@pytest.mark.parametrize("wrong", ['"abc"', "[1]", "{}", "true"])
def test_a_position_that_is_none_keeps_no_later_one_from_being_read(wrong: str) -> None:
    assert read(f'{{"schemaVersion": 1, "step": {wrong}}}', "step: 5", "step: 6") == {"step": 6}
    bar = " 10%|█         | 50/500 [00:05<00:45, 10.0it/s]"
    assert read(f'{{"schemaVersion": 1, "step": {wrong}}}', bar) == {"step": 50, "total_steps": 500}
    for later in (5, 6):
        assert (
            read(f'{{"schemaVersion": 1, "step": {wrong}}}', f"step: {later}") is None
        )  # as if it was the first


def test_steps_that_go_on_over_epochs_are_the_runs() -> None:
    """Seen: epoch 9.0 after 1000 of 1000 steps of PaddleSeg, and no step."""
    lines = [f"epoch: {1 + at // 500}, iter: {at}/1000, loss: 0.5" for at in (250, 600, 1000)]
    assert read(lines[0]) == {"epoch": 0.25, "metrics": {"loss": 0.5}}
    assert read(*lines[:2]) == {"step": 600, "total_steps": 1000, "epoch": 2, "metrics": {"loss": 0.5}}
    assert read(*lines) == {"step": 1000, "total_steps": 1000, "epoch": 3, "metrics": {"loss": 0.5}}


def test_steps_before_their_epoch_are_the_runs_until_they_begin_anew() -> None:
    lines = [f"step {at}/100, epoch {epoch}, loss: 0.5" for epoch in (1, 2) for at in (50, 100)]
    said = {"metrics": {"loss": 0.5}}
    assert read(*lines[:2]) == {"step": 100, "total_steps": 100, "epoch": 1, **said}
    assert read(*lines[:3]) == {"step": None, "total_steps": None, "epoch": 1.5, **said}
    assert read(*lines) == {"epoch": 2.0, **said}


def test_a_step_of_an_evaluation_is_none_where_others_say_that_they_are_the_runs() -> None:
    """Seen: step 3 of 639, after 1,902, of Coqui's trainer."""
    lines = ["--> STEP: 24/639 -- GLOBAL_STEP: 1302", " > EVALUATION", "--> STEP: 3"]
    assert read(*lines) is None


def test_steps_after_a_line_that_names_the_epoch_are_of_that_epoch() -> None:
    lines = [f"step {step}/100 | loss: 0.5" for step in (40, 50)]
    assert read("Epoch 2/4", *lines) == {"epoch": 1.5, "metrics": {"loss": 0.5}}


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-01-23 10:30:45,123 - train - INFO - ",
        "2026-01-23 10:30:45.123 | INFO     | __main__:train:12 - ",
        "01/23/2026 10:30:45 - INFO - __main__ - ",
        "[titan] 2026-01-23 10:30:45,123 - root - INFO - ",
        "I0123 10:30:45.123456 140 hooks.py:260] ",
        "INFO:root:",
        "[INFO] ",
    ],
)
def test_what_a_logging_library_puts_before_a_message_is_no_metric(prefix: str) -> None:
    assert read(prefix + "step 5/10 loss: 0.5") == {"step": 5, "total_steps": 10, "metrics": {"loss": 0.5}}
    if "__main__ -" not in prefix:
        assert read(prefix + "{'loss': 0.5, 'epoch': 1.0}") == {"epoch": 1.0, "metrics": {"loss": 0.5}}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Downloading model to /tmp/cache, 3 files",
        "Namespace(lr=0.1, epochs=3, model='resnet50', data='/data/imagenet', workers=8, arch='x')",
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 42, in <module>',
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)",
        "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500",
        "listening on 127.0.0.1:8080",
        "{",
        "{}",
        "{'a': [1, 2]}",
        "{'__import__': 'os'}",
        "[12] something else",
        "157/157 tests passed",
        "seed 42",
        "world_size: 8, workers=4",
        "Evaluating train.py:48",
        '{"level": "info", "ts": 1763720000.25, "caller": "main.go:7", "pid": 7, "msg": "started"}',
        '{"is_ready": true}',
        "x" * 100_000,
    ],
)
def test_what_is_no_progress_is_not_read(line: str) -> None:
    assert read(line) is None


@pytest.mark.parametrize("before", ["", "done ", " 10%|█ | 1/10 [00:01<00:09, 9.0it/s]", "step 3 loss 0.5 "])
def test_our_own_line_is_read_whole_wherever_it_begins(before: str) -> None:
    line = (
        before + '{"schemaVersion":1,"state":"running","step":450,"totalSteps":1000,"metrics":{"loss":0.25},'
        '"message":"x","timestamp":"2026-01-23T10:30:45Z"}'
    )
    assert read(line) == {"step": 450, "total_steps": 1000, "message": "x", "metrics": {"loss": 0.25}}


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank{}]: ",
        "[1,{}]<stdout>:",
        "[default{}]:",
        "[prterun-node-0-7@1,{}]<stderr>: ",
        "Fri Jan 23 10:30:45 2026[1,{}]<stdout>:",
        "[GPU{}] ",
        "GPU {}: ",
        "rank{}: ",
        "[worker_{}]: ",
        "Worker {} | ",
        "2026-01-23 10:30:45 INFO [GPU{}] ",
    ],
)
def test_of_several_processes_in_one_log_rank_0_is_read(prefix: str) -> None:
    assert read(prefix.format(0) + "loss=0.25") == {"metrics": {"loss": 0.25}}
    assert read(prefix.format(3) + "loss=0.25") is None
    assert read(prefix.format(3) + "Epoch 3/10, Step 10/100, loss: 0.5") is None


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 3/10, Step 10/100, loss: 0.5", "step 5 loss 0.5", "{'loss': 0.5, 'epoch': 3}",
        "2026-01-23 10:30:45 INFO loss: 0.5", " 50%|█| 1/2 [00:01<00:01, 1.0it/s, loss=0.5]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["{}: ", " {}: "])
def test_srun_labels_lines_with_ranks(prefix: str, line: str) -> None:
    """Seen: rank 1's step and loss."""
    assert read(prefix.format(0) + line) == read(line)
    assert read(prefix.format(12) + line) is None


def test_how_many_there_are_is_no_word_of_a_sentence() -> None:
    assert read("epoch 3 of 10 loss 0.5") == {"epoch": 3, "total_epochs": 10, "metrics": {"loss": 0.5}}


def test_the_id_of_a_process_is_no_rank() -> None:
    assert (read("Process 12345: step 5 loss=0.5") or {})["step"] == 5


def test_a_number_before_a_measurement_alone_may_count_what_is_done() -> None:
    assert read("0: loss=0.75", "1: loss=0.5") == {"metrics": {"loss": 0.5}}


@pytest.mark.parametrize("name", ["worker", "worker_id", "local_rank", "process_index"])
def test_an_object_of_another_rank_says_nothing(name: str) -> None:
    assert read(f'{{"{name}": 3, "step": 5, "loss": 0.5}}') is None
    assert read(f'{{"{name}": 0, "step": 5, "loss": 0.5}}') == {"step": 5, "metrics": {"loss": 0.5}}


def test_of_rays_actors_of_one_name_the_first_counts_that_says_where_it_stands() -> None:
    """Seen: epochs and losses of several trials, mixed."""
    first, other, driver = (f"({name}) " for name in ("train_a pid=7", "train_a pid=8", "Tuner pid=9"))
    said = "Epoch {}/10, loss: 0.5"
    begun = [f"{other}Using 2 workers", first + said.format(3)]
    assert read(*begun, other + said.format(5)) is None
    assert read(*begun, driver + said.format(5)) is None
    assert (
        read(*begun, *[other + said.format(5)] * 30, first + said.format(4)) is None
    )  # it was gone too long
    assert read(*begun, *[other + said.format(5)] * 10, first + said.format(4)) is not None
    assert read(*begun, *[driver + said.format(5)] * 30) is None
    assert read(*begun, *[other + said.format(5)] * 30) is not None


@pytest.mark.parametrize(
    "line",
    [
        "Mean reward over 100 episodes: 12.5", "Mean reward over last 100 episodes: 12.5",
        "accuracy after 10 rounds = 0.5", "Loss after 100 iterations: 0.5", "F1 on 500 examples: 0.93",
        "average over 5 runs: 0.93", "top 5 accuracy: 0.93",
    ],
)  # fmt: skip
def test_words_of_a_sentence_are_no_names(line: str) -> None:
    """Seen: metrics called "over" and "episodes"."""
    assert read(line) is None
    assert read(f"step 5 | loss: 0.5 | {line}") in (None, {"step": 5, "metrics": {"loss": 0.5}})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[epoch 3/10] loss over 100 batches: 0.5", {"epoch": 3, "total_epochs": 10}),
        ("step 100/1000: avg loss over last 100 steps: 0.5", {"step": 100, "total_steps": 1000}),
        ("step 5: read over 100 files: 3", None),
    ],
)
def test_a_sentence_behind_a_position_takes_it_away_from_no_run(
    line: str, expected: dict[str, Any] | None
) -> None:
    assert read(line) == expected


def test_a_pattern_of_ones_own_replaces_the_rest() -> None:
    pattern = r"it (?P<step>\d+) of (?P<total>\d+): ppl (?P<perplexity>[\d.]+)( in (?P<message>\w+))?"
    assert read("it 5 of 10: ppl 12.5 in warmup", pattern=pattern) == {
        "step": 5,
        "total_steps": 10,
        "message": "warmup",
        "metrics": {"perplexity": 12.5},
    }
    assert read("loss=0.25", pattern=pattern) is None
