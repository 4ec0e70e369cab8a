"""Lines of frameworks with forms of their own: recorded, or made of the format strings in their sources."""

# ruff: noqa: E501 — lines as programs print them

from __future__ import annotations

from typing import Any

import pytest

from trainjob_progress.lines import LineReader

# Where the forms come from, as read on 2026-11-25:
# - Ultralytics: ultralytics/engine/trainer.py, BaseTrainer._do_train: ("%11s" * 2 + "%11.4g" * (2 + loss_length)) of
#   f"{epoch + 1}/{epochs}", f"{memory:.3g}G", losses, instances, size; ultralytics/utils/tqdm.py, TQDM._display:
#   f"{desc}: {percent:.0f}% {bar} {n_str}/{t_str} {rate_str} {elapsed_str}{remaining_str}".
# - open-mmlab/mmengine: mmengine/runner/log_processor.py, get_log_after_iter: f"Epoch({mode}){epoch}[{iter}/{len}]  ",
#   the epoch in brackets, to the right of up to len(str(max_epochs)) + 3 places; f"Iter({mode}) [{iter}/{max_iters}]  ".
#   Lines of mmengine 0.10.7 were recorded here.
# - facebookresearch/fairseq: fairseq/logging/progress_bar.py: SimpleProgressBar.log "{}:  {:5d} / {:d} {}" of prefix,
#   i + 1, size, "key=value, "; .print "{} | {}" of prefix and "key value | "; JsonProgressBar; fairseq_cli/train.py:
#   "%(asctime)s | %(levelname)s | %(name)s | %(message)s", in which the name is the tag.
# - NVIDIA/Megatron-LM: megatron/training/training.py, training_log: f" [{datetime.now()…%f}]",
#   " iteration {:8d}/{:8d} |", " {}: {:.6E} |", f" grad norm: {grad_norm:.3f} |" and more.
# - DeepSpeed: deepspeed/runtime/engine.py, _report_progress: f"step={step}, skipped={…}, lr={lr}, mom={mom}" behind
#   log_dist's "[Rank {}] {}", -1 without a process group; deepspeed/utils/timer.py, ThroughputTimer.stop:
#   "epoch={}/micro_step={}/global_step={}, …"; deepspeed/runtime/pipe/engine.py, train_batch: f"steps: {…} loss: …".
# - pytorch/torchtitan: torchtitan/components/metrics.py, MetricsProcessor.log and log_validation:
#   f"step: {step:2}  loss: {loss:8.5f}  grad_norm: {grad_norm:7.4f}  memory: …", f"validate step: {step:2}  loss: …".
# - NVIDIA/NeMo: nemo/lightning/pytorch/callbacks/progress_printer.py, ProgressPrinter.on_train_batch_end:
#   f"Training epoch {trainer.current_epoch}, iteration {n-1}/{self.total-1}" (at times n and total), f" | {metric}: {val:.4}";
#   the total is trainer.max_steps, if there are any: of the run, not of the epoch.
# - Axolotl: transformers' dictionary, each number a text; recorded lines of others.
# - verl: verl/utils/logger/aggregate_logger.py, concat_dict_to_str: f"step:{step}", f"{k}:{pprint.pformat(v)}" (before: .3f)
#   joined by " - ".
# - espnet/espnet: espnet2/train/trainer.py, Trainer.run: "{}/{}epoch started", reporter.py: f"{epoch}epoch:{key}:" and
#   f"{start}-{end}batch: ", f"{epoch}epoch results: [train] …, [valid] …".
# - google/CommonLoopUtils: clu/metric_writers/logging_writer.py: "[%d]%s %s" of step, collection, "k=v, …" behind absl's prefix;
#   clu/periodic_actions.py, ReportProgress: f"{…:.1f} steps/s, {…:.1f}% ({step}/{total}), ETA: …", printed as "work unit notes".
HEAD = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size"


def read(*lines: str) -> dict[str, Any] | None:
    """What the last line says."""
    reader = LineReader()
    found = None
    for line in lines:
        found = reader.read(line)
    return found


@pytest.mark.parametrize(
    ("line", "position", "metrics"),
    [
        pytest.param(
            "Train: 3 [  50/1251 (  4%)]  Loss: 6.50 (6.60)  Time: 0.500s, 512.0/s  (0.510s, 500.0/s)  "
            "LR: 1.000e-03  Data: 0.010 (0.020)",
            {"step": 3803, "epoch": 3.04},
            {"Loss": 6.5, "LR": 0.001},
            id="timm",
        ),
        pytest.param(
            "04/21 21:03:53 - mmengine - INFO - Epoch(train) [2][10/90]  lr: 1.0000e-02  eta: 0:00:25  "
            "time: 0.0100  data_time: 0.0000  memory: 0  grad_norm: 2.5  loss: 11.4723",
            {"step": 100, "epoch": 1.1111},
            {"lr": 0.01, "grad_norm": 2.5, "loss": 11.4723},
            id="mmengine, epochs",
        ),
        pytest.param(
            "11/25 15:37:13 - mmengine - INFO - Epoch(train)      [2][10/20]  lr: 1.0000e-03  eta: 0:00:00  time: 0.0037  "
            "data_time: 0.0015  loss: 0.9079  acc: 0.5000",
            {"step": 30, "epoch": 1.5},
            {"lr": 0.001, "loss": 0.9079, "acc": 0.5},
            id="mmengine, recorded, of 100,000 epochs",
        ),
        pytest.param(
            "03/25 23:59:30 - mmengine - INFO - Iter(train) [   50/40000]  base_lr: 1.0000e-02 lr: 1.0000e-02  "
            "eta: 1 day, 2:03:04  time: 2.3456  memory: 4711  loss: 2.1234  decode.loss_ce: 1.5",
            {"step": 50, "total_steps": 40000},
            {"base_lr": 0.01, "lr": 0.01, "loss": 2.1234, "decode.loss_ce": 1.5},
            id="mmengine, iterations",
        ),
        pytest.param(
            "2022-05-07 13:14:22,908 - mmdet - INFO - Epoch [1][1500/14659]\tlr: 0.01000, "
            "eta: 1 day, 12:59:34, time: 0.739, memory: 3028, loss_ins: 1.2023, loss: 1.7645",
            {"step": 1500, "epoch": 0.1023},
            {"lr": 0.01, "loss_ins": 1.2023, "loss": 1.7645},
            id="mmcv",
        ),
        pytest.param(
            "2023-03-03 10:00:00 | INFO | train_inner | epoch 002:    773 / 1546 loss=12.3, nll_loss=12, "
            "ppl=4096, wps=30000, num_updates=2319, lr=1.25e-05, gnorm=2.4, wall=30",
            {"step": 2319, "epoch": 1.5},
            {"loss": 12.3, "nll_loss": 12, "lr": 1.25e-05, "gnorm": 2.4},
            id="fairseq",
        ),
        pytest.param(
            "2023-03-03 10:10:00 | INFO | train | epoch 001 | loss 10.1 | nll_loss 9.5 | ppl 727.1 | "
            "num_updates 1546 | lr 0.000193 | gnorm 1.9",
            {"step": 1546, "epoch": 1},
            {"loss": 10.1, "ppl": 727.1, "lr": 0.000193},
            id="fairseq, the end of an epoch",
        ),
        pytest.param(
            '2023-03-03 10:00:00 | INFO | train_inner | {"epoch": 2, "update": 1.5, "loss": "12.3", '
            '"num_updates": "2319", "lr": "1.25e-05", "gnorm": "2.4", "wall": "30"}',
            {"step": 2319, "epoch": 1.5},
            {"loss": 12.3, "lr": 1.25e-05, "gnorm": 2.4},
            id="fairseq, JSON",
        ),
        pytest.param(
            '2023-03-03 10:10:00 | INFO | train | {"epoch": 1, "train_loss": "10.1", "train_num_updates": "1546"}',
            {"step": 1546, "epoch": 1},
            {"loss": 10.1},
            id="fairseq, JSON, the end of an epoch",
        ),
        pytest.param(
            " [2024-05-01 12:00:00.123456] iteration        5/      10 | consumed samples:           40 | learning "
            "rate: 1.5E-04 | lm loss: 9.1E+00 | params norm: 1.500 |",
            {"step": 5, "total_steps": 10},
            {"learning rate": 0.00015, "lm loss": 9.1, "params norm": 1.5},
            id="Megatron, of today",
        ),
        pytest.param(
            " [2024-05-01 12:00:00] iteration      100/  500000 | consumed samples:        25600 | elapsed time "
            "per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 123.4 | learning rate: "
            "1.500000E-04 | global batch size:   256 | lm loss: 9.123456E+00 | loss scale: 1.0 | grad norm: "
            "2.345 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            {"step": 100, "total_steps": 500000},
            {"learning rate": 0.00015, "lm loss": 9.123456, "grad norm": 2.345, "loss scale": 1.0},
            id="Megatron",
        ),
        pytest.param(
            "[2023-05-12 09:46:45,021] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, "
            "lr=[9.65e-06, 1e-05], mom=[(0.9, 0.95), (0.9, 0.95)]",
            {"step": 10},
            {"skipped": 0, "lr": 9.65e-06},
            id="DeepSpeed",
        ),
        pytest.param(
            "[2023-05-12 09:46:45,021] [INFO] [logging.py:96:log_dist] [Rank -1] step=10, skipped=0, lr=[1e-05], mom=[0.9]",
            {"step": 10},
            {"skipped": 0, "lr": 1e-05},
            id="DeepSpeed, one process",
        ),
        pytest.param(
            "steps: 10 loss: 2.5123 iter time (s): 0.121 samples/sec: 66.116",
            {"step": 10},
            {"loss": 2.5123, "samples/sec": 66.116},
            id="DeepSpeed's pipeline",
        ),
        pytest.param(
            "[2023-05-12 09:46:45,030] [INFO] [timer.py:199:stop] epoch=0/micro_step=20/global_step=10, "
            "RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.9, MemAllocated=6.1GB, MaxMemAllocated=12.1GB",
            {"step": 10},
            {"RunningAvgSamplesPerSec": 12.3, "CurrSamplesPerSec": 12.9},
            id="DeepSpeed's timer",
        ),
        pytest.param(
            "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - \x1b[31mstep: 12  \x1b[32mloss:  8.1309  "
            "\x1b[38;2;180;60;0mgrad_norm:  1.5123  \x1b[38;2;54;234;195mmemory:  1.20GiB(1.52%)  "
            "\x1b[34mtps: 1,234  \x1b[36mtflops: 1.25  \x1b[35mmfu: 0.51%\x1b[39m",
            {"step": 12},
            {"loss": 8.1309, "grad_norm": 1.5123, "tps": 1234},
            id="torchtitan",
        ),
        pytest.param(
            "Training epoch 1, iteration 9/99 | lr: 1e-05 | global_batch_size: 8 | global_step: 109 | "
            "reduced_train_loss: 10.2 | train_step_timing in s: 0.5 | consumed_samples: 80",
            {"step": 110, "epoch": 1},
            {"lr": 1e-05, "reduced_train_loss": 10.2, "train_step_timing in s": 0.5},
            id="NeMo",
        ),
        pytest.param(
            " 0: Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_step: 28 | reduced_train_loss: 2.778",
            {"step": 29, "epoch": 0},
            {"lr": 5.6e-06, "reduced_train_loss": 2.778},
            id="NeMo, behind srun's label",
        ),
        pytest.param(
            "{'loss': '0.7157', 'grad_norm': '12.79', 'learning_rate': '0', 'ppl': '2.046', "
            "'memory/max_active (GiB)': '2.98', 'tokens/trainable': 93, 'epoch': '0.1333'}",
            {"epoch": 0.1333},
            {"loss": 0.7157, "learning_rate": 0, "memory/max_active (GiB)": 2.98, "tokens/trainable": 93},
            id="Axolotl, recorded",
        ),
        pytest.param(
            "{'loss': 1.25, 'grad_norm': 2.5, 'learning_rate': 4e-05, 'memory/max_active (GiB)': 3.5, "
            "'epoch': 0.5}",
            {"epoch": 0.5},
            {"loss": 1.25, "learning_rate": 4e-05, "memory/max_active (GiB)": 3.5},
            id="Axolotl",
        ),
        pytest.param(
            "I0101 12:30:45.123456 140123 logging_writer.py:48] [100] steps_per_second=12.3, train_loss=0.3",
            {"step": 100},
            {"steps_per_second": 12.3, "train_loss": 0.3},
            id="CLU, of JAX's examples",
        ),
        pytest.param(
            "[gpu01:0/2] 2020-07-19 08:49:04,080 (trainer:464) INFO: 2epoch:train:1-682batch: iter_time=2.878e-04, "
            "loss=123.963, loss_att=77.448, acc=0.013, lr_0=3.460e-06",
            {"epoch": 1},
            {"loss": 123.963, "loss_att": 77.448, "lr_0": 3.46e-06},
            id="ESPnet",
        ),
        pytest.param(
            "(TaskRunner pid=123, ip=10.0.0.3) step:3 - global_seqlen/min:1200.000 - "
            "actor/entropy:np.float64(0.352) - critic/score/mean:0.125 - timing_s/step:33.5",
            {"step": 3},
            {"actor/entropy": 0.352, "critic/score/mean": 0.125},
            id="verl",
        ),
    ],
)
def test_a_line_of_a_framework_gives_its_position_and_whole_names(
    line: str, position: dict[str, Any], metrics: dict[str, Any]
) -> None:
    found = read(line)
    assert found is not None
    got = found.pop("metrics")
    assert found == position
    assert {name: got.get(name) for name in metrics} == metrics
    assert not {"rate", "norm", "pid", "eta", "s"} & got.keys()


@pytest.mark.parametrize(
    "bar",
    [
        "45%|████▌     | 18/40 [00:10<00:12,  4.41it/s]",
        "45% ━━━━━╸────── 18/40 4.4it/s 10.2s<12.3s",  # its own, recorded from ultralytics 8.4
    ],
)
def test_ultralytics_epochs_are_steps_of_the_run_and_its_columns_metrics(bar: str) -> None:
    line = f"      3/100      2.3G      1.204        3.4         20        640: {bar}"
    assert read(HEAD, line) == {
        "step": 98, "total_steps": 4000, "epoch": 2, "total_epochs": 100,
        "metrics": {"box_loss": 1.204, "cls_loss": 3.4},
    }  # fmt: skip


def test_ultralytics_bars_of_other_forms_are_its_validations() -> None:
    """Seen: step 5 of 5, after 30 of 30, where it classifies."""
    train = "        3/3         0G       2.31         16        224: 100%|██████████| 10/10 [00:01<00:00,  5.41it/s]"
    valid = "               classes   top1_acc   top5_acc: 100%|██████████| 5/5 [00:00<00:00, 12.3it/s]"
    assert (read("      Epoch    GPU_mem       loss  Instances       Size", train) or {})["step"] == 30
    assert read("      Epoch    GPU_mem       loss  Instances       Size", train, valid) is None


def test_yolov5_counts_its_epochs_from_0() -> None:
    lines = [
        f"        {epoch}/2         0G        1.2        3.4         20        640: 100%|██| 4/4 [00:01<00:00, 4it/s]"
        for epoch in range(3)
    ]
    assert read(HEAD, *lines) == {
        "step": 12, "total_steps": 12, "epoch": 3, "total_epochs": 3,
        "metrics": {"box_loss": 1.2, "cls_loss": 3.4},
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "03/25 23:59:30 - mmengine - INFO - Epoch(val) [1][50/100]    eta: 0:00:25  time: 0.0100  memory: 0  ",
        "2023-03-03 10:10:10 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 9.3 | num_updates 1546",
        "2023-03-03 10:10:10 | INFO | dev | epoch 001 | valid on 'dev' subset | loss 9.3 | num_updates 1546",
        '2023-03-03 10:10:10 | INFO | valid | {"epoch": 1, "valid_loss": "9.3", "valid_num_updates": "1546"}',
        "[titan] 2025-01-01 00:00:00,000 - root - INFO - validate step: 12  loss:  8.1309  memory:  1.20GiB(1.52%)  tps: 1,234",
        "Validation: iteration 5/10",
        "[2023-05-12 09:46:45,021] [INFO] [logging.py:96:log_dist] [Rank 1] step=10, skipped=0, lr=[9.65e-06]",
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100% ━━━━ 4/4",
        " validation loss at iteration 100 | lm loss value: 9.1E+00 | lm loss PPL: 8.9E+03 |",
    ],
)
def test_a_validation_or_another_rank_has_no_position(line: str) -> None:
    assert not {"step", "epoch"} & (read(line) or {}).keys()


def test_espnet_and_clu_say_the_plan_in_lines_of_their_own() -> None:
    started = "[gpu01:0/2] 2020-07-19 08:40:04,080 (trainer:280) INFO: 2/3epoch started. Estimated time to finish: 1 hour"
    assert read(started) == {"epoch": 1, "total_epochs": 3}
    results = "[gpu01] 2020-07-19 09:40:04,080 (trainer:334) INFO: 2epoch results: [train] loss=0.5, [valid] loss=0.7"
    assert read(results) == {"epoch": 2, "metrics": {"loss": 0.5, "valid_loss": 0.7}}
    notes = "I0101 12:30:45.123456 140123 local.py:50] Setting work unit notes: 12.3 steps/s, 45.0% (450/1000), ETA: 1m"
    assert read(notes) == {"step": 450, "total_steps": 1000}


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("[D loss: 0.5] [G loss: 1.2]", {"D loss": 0.5, "G loss": 1.2}),
        ("learning rate: 0.1 | lm loss: 3.5", {"learning rate": 0.1, "lm loss": 3.5}),
        ("step 5 loss: 0.5 loss: 1.25 lr: 0.1", {"lr": 0.1}),  # which is which?
        ("step 5 loss: 0.5 loss: 0.5", {"loss": 0.5}),
    ],
)
def test_two_numbers_have_two_names_or_none(line: str, metrics: dict[str, float]) -> None:
    """Seen: `loss: 1.2`, `rate`, `norm`."""
    found = read(line)
    assert found is not None
    assert found["metrics"] == metrics


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (  # PyTorch's ImageNet example, MoCo, SimSiam
            ("Epoch: [1][  10/5000]\tTime  0.500 ( 0.600)\tData  0.001 ( 0.100)\tLoss 6.9e+00 (7.0e+00)\t"
            "Acc@1   0.39 (  0.20)"),
            {
                "step": 5010, "epoch": 1.002,
                "metrics": {"Time": 0.5, "Data": 0.001, "Loss": 6.9, "Acc@1": 0.39},
            },
        ),
        (  # torchvision's references, DETR, MAE, DINO
            "Epoch: [3]  [  10/1000]  eta: 0:10:00  lr: 0.0001  loss: 12.3 (13.4)  time: 0.5  max mem: 2000",
            {
                "step": 3010, "epoch": 3.01,
                "metrics": {"lr": 0.0001, "loss": 12.3, "time": 0.5, "max mem": 2000},
            },
        ),
        (  # PyTorch's DCGAN example
            "[3/10][20/100]\tLoss_D: 0.5000\tLoss_G: 1.2000\tD(x): 0.6000\tD(G(z)): 0.3000 / 0.2000",
            {"step": 320, "epoch": 3.2, "metrics": {"Loss_D": 0.5, "Loss_G": 1.2, "D(x)": 0.6}},
        ),
        ("Test: [ 0/10]  eta: 0:00:05  loss: 0.4 (0.4)", None),
        ("Averaged stats: class_error: 55.1  loss: 21.1 (22.3)", None),  # of an epoch, or of the test before it
        (  # Swin
            "[2021-04-22 10:00:00 swin_tiny](main.py 150): INFO Train: [3/300][10/1000]\teta 0:10:00 lr 0.5\ttime 0.5 (0.6)",
            {"step": 3010, "epoch": 3.01, "metrics": {"lr": 0.5, "time": 0.5}},
        ),
        ("[2,  2000] loss: 1.25", {"epoch": 2, "metrics": {"loss": 1.25}}),  # PyTorch's tutorial
    ],
)  # fmt: skip
def test_lines_of_pytorchs_examples(line: str, fields: dict[str, Any] | None) -> None:
    """They count epochs and batches from 0."""
    assert read("[0/10][0/100]\tLoss_D: 1.0\tLoss_G: 1.0" if line[0] == "[" else "", line) == fields


def test_stable_baselines_tables_give_names_with_their_part() -> None:
    """Recorded: stable-baselines3 2.9.2."""
    table = [
        "| rollout/                |              |", "|    ep_rew_mean          | 23.8         |",
        "| time/                   |              |", "|    fps                  | 360          |",
        "|    total_timesteps      | 768          |", "| train/                  |              |",
        "|    approx_kl            | 0.0065871077 |", "|    value_loss           | 114          |",
    ]  # fmt: skip
    reader = LineReader()
    said = [reader.read(line) for line in table]
    assert [fields for fields in said if fields] == [
        {"metrics": {"rollout/ep_rew_mean": 23.8}},
        {"metrics": {"time/fps": 360}},
        {"step": 768},
        {"metrics": {"train/approx_kl": 0.0065871077}},
        {"metrics": {"train/value_loss": 114}},
    ]
    assert read("|    value_loss           | 114          |") is None
    assert read("| total_timesteps | 768 |") is None


def test_spacys_table_names_its_columns() -> None:
    """Recorded: spaCy 3.8.18."""
    head = "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE "
    row = " 50     100          0.54    425.70  100.00  100.00  100.00    1.00"
    scores = {"ENTS_F": 100.0, "ENTS_P": 100.0, "ENTS_R": 100.0, "SCORE": 1.0}
    said = {"epoch": 50, "step": 100, "metrics": {"LOSS TOK2VEC": 0.54, "LOSS NER": 425.7, **scores}}
    assert read(head, "---  ------  ------------", row) == said
    assert read(row) is None
    assert read(head, "  3     200   1.00") is None


@pytest.mark.parametrize(
    ("head", "rows", "said"),
    [
        (
            "epoch     train_loss  valid_loss  accuracy  time    ",
            [
                "0         0.641147    0.441234    0.84      00:05   ",
                "1         0.5         #na#        0.9       00:05",
            ],
            {"epoch": 2, "metrics": {"train_loss": 0.5, "accuracy": 0.9}},
        ),
        (
            "  epoch    train_loss    valid_acc    valid_loss    cp     dur",
            [
                "      1        0.7371       0.6375        0.6543     +  0.1024",
                "      2        0.64  0.68  0.58  0.0089",
            ],
            {
                "epoch": 2,
                "metrics": {"train_loss": 0.64, "valid_acc": 0.68, "valid_loss": 0.58, "dur": 0.0089},
            },
        ),
        (
            "      Iter       Train Loss   Remaining Time ",
            ["         1           1.3018            0.10s", "        50           0.2349            0.00s"],
            {"step": 50, "metrics": {"Train Loss": 0.2349}},
        ),
    ],
)
def test_rows_of_a_table_are_epochs_or_iterations(head: str, rows: list[str], said: dict[str, Any]) -> None:
    """Of fastai, skorch and scikit-learn, as recorded. Seen: no position."""
    assert read(head, *rows) == said
    assert read(*rows) is None
    assert read(head, *rows, rows[0]) is None  # another table's
    assert read(head, "3 of 4 files were 0.5") is None


def test_composers_batches_and_rays_iterations_are_positions() -> None:
    """Composer's by its source, console_logger.py, and Ray Train's as it prints them. Seen: no position."""
    assert read("[batch=20/100]:") == {"step": 20, "total_steps": 100}
    assert read("[epoch=2][batch=16/64]:") == {"step": 80, "epoch": 1.25}
    assert read("[Eval batch=5/5] Eval on eval data:") is None
    assert read("Training finished iteration 2 at 2025-11-25 10:00:00. Total running time: 20s") == {
        "step": 2
    }


def test_megatrons_last_rank_speaks_for_all() -> None:
    """Seen: no position, where each line bears the mark of its rank."""
    line = " [2025-11-25 10:00:00] iteration       20/     500 | consumed samples:         2560 | lm loss: 1.5E+01 |"
    assert (read(f"[default7]:{line}") or {})["step"] == 20
    assert read("[default7]: step 20 loss 0.5") is None
