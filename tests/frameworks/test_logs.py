"""The server's `logs` source on what frameworks print themselves: these trainings know nothing of us."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from visibility_api.reports.document import Progress
from visibility_api.reports.log_tail import TailReader

from .container import ROOT, Record, give_out, run

os.environ.setdefault("KERAS_BACKEND", "jax")
LINES = 30  # of a tail: fewer than in earnest, so that much is out of sight


def look_often(records: Sequence[Record]) -> list[Progress]:
    """What a reader has seen who looked at the end of the log as it grew, a hundred times."""
    reader, seen, rng = TailReader(), [], random.Random(0)
    moments = sorted({len(records), *(rng.randrange(1, len(records) + 1) for _ in range(100))})
    for moment in moments:
        data = give_out(records[max(0, moment - LINES) : moment])
        found = reader.read(data, is_whole=moment < LINES)
        if isinstance(found, Progress):
            seen.append(found)
    return seen


def cut_anywhere(records: Sequence[Record]) -> list[Progress]:
    """What readers say who have seen nothing but the end of the log, from any byte on."""
    data = give_out(records)
    rng = random.Random(0)
    offsets = {rng.randrange(len(data)) for _ in range(90)} | set(range(len(data) - 60, len(data)))
    readings = [TailReader().read(data[max(0, at) :], is_whole=False) for at in sorted(offsets)]
    return [found for found in readings if isinstance(found, Progress)]


def check_order(seen: Sequence[Progress]) -> None:
    """Steps never went back, and no total changed."""
    steps = [found.step for found in seen if found.step is not None]
    assert steps == sorted(steps)
    assert len({found.total_steps for found in seen} - {None}) <= 1


def script_of(name: str, truth: str) -> str:
    """An example without our reporter in it; `truth`: an expression of what the framework itself knows."""
    script = (ROOT / "examples" / f"train_{name}.py").read_text()
    script = re.sub(r"^from trainjob_progress.*\n", "", script, flags=re.MULTILINE)
    script = re.sub(r",?\s*callbacks=\[ReportProgress(\([^)]*\))?\],?", "", script)
    script = script.replace("progress, results = ReportProgress(), {}", "results = {}")
    script = script.replace("callbacks=[progress]", "callbacks=[]")
    script = re.sub(
        r"^progress = .*\n|^.*progress\.finish.*\n|^ *progress,\n", "", script, flags=re.MULTILINE
    )
    assert "ReportProgress" not in script
    return script + f'\nimport json\njson.dump({truth}, open("truth.json", "w"))\n'


# Hugging Face


@pytest.fixture(scope="module")
def transformers_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], dict[str, float]]:
    pytest.importorskip("transformers")
    truth = (
        "{'step': trainer.state.global_step, 'total': trainer.state.max_steps, 'epoch': trainer.state.epoch}"
    )
    script = re.sub(r"^print.*\n", "", script_of("transformers", truth), flags=re.MULTILINE)
    return run(tmp_path_factory.mktemp("transformers"), script)


def test_transformers_bar_and_dictionaries(transformers_log: tuple[list[Record], dict[str, float]]) -> None:
    records, truth = transformers_log
    seen = look_often(records)
    check_order(seen)
    last = seen[-1]
    assert (last.step, last.total_steps, last.epoch) == (truth["step"], truth["total"], truth["epoch"])
    metrics = dict(last.metrics)
    assert {"loss", "grad_norm", "learning_rate", "eval_loss", "train_loss"} <= metrics.keys()
    printed = re.findall(rb"'loss': '?([\d.]+)", give_out(records))
    assert float(metrics["loss"]) == float(printed[-1])


def test_transformers_log_cut_anywhere(transformers_log: tuple[list[Record], dict[str, float]]) -> None:
    records, truth = transformers_log
    # Of a whole evaluation after the training, with a bar of its own, nothing tells it from a training.
    last = max(i for i, record in enumerate(records) if f"/{truth['total']} [".encode() in record.content)
    trained = records[: last + 1]
    readings = cut_anywhere(trained)
    assert len(readings) > 80
    assert {found.step for found in readings} <= {truth["step"], None}
    # Bars and values come through two pipes: the last values may have been written down after the last bar.
    printed = re.findall(rb"'epoch': '?([0-9.]+)", b"".join(record.content for record in trained))
    assert {found.epoch for found in readings} <= {float(printed[-1]), None}


# Bars

TQDM = """
import json, time
from tqdm import tqdm
for step in (bar := tqdm(range(2000), mininterval=0, desc="training")):
    bar.set_postfix(loss=1 / (step + 1))
json.dump({"step": bar.n, "total": bar.total}, open("truth.json", "w"))
"""
NESTED = """
import json
from tqdm import tqdm
for epoch in (outer := tqdm(range(5), mininterval=0)):
    for step in (inner := tqdm(range(300), mininterval=0, leave=False)):
        inner.set_postfix(loss=1 / (step + 1), refresh=step % 10 == 0)
    for step in tqdm(range(20), mininterval=0, desc="validating", leave=False):
        pass
json.dump({"step": outer.n, "total": outer.total}, open("truth.json", "w"))
"""


@pytest.mark.parametrize("script", [TQDM, NESTED])
def test_tqdms_endless_line(tmp_path: Path, script: str) -> None:
    pytest.importorskip("tqdm")
    records, truth = run(tmp_path, script)
    assert sum(len(record.content) for record in records) > 100_000
    # What a CRI wrote down while the line went on are parts of 16 KiB.
    reader = TailReader()
    readings = [
        reader.read(give_out(records[max(0, i - 7) : i]), is_whole=False) for i in range(1, len(records) + 1)
    ]
    seen = [found for found in readings if isinstance(found, Progress)]
    check_order(seen)
    assert (seen[-1].step, seen[-1].total_steps) == (truth["step"], truth["total"])
    assert "loss" in dict(seen[-1].metrics)
    assert {found.step for found in cut_anywhere(records)} <= {truth["step"], None}


@pytest.mark.parametrize("bar", ["RichProgressBar", "TQDMProgressBar"])
def test_lightnings_bars(tmp_path: Path, bar: str) -> None:
    pytest.importorskip("lightning.pytorch")
    script = script_of("lightning", "{'step': trainer.global_step, 'epoch': trainer.current_epoch}")
    script = script.replace('self.log("loss", loss)', 'self.log("loss", loss, prog_bar=True)')
    bars = f"from lightning.pytorch.callbacks import {bar} as Bar\nimport lightning\n"
    script = script.replace("import lightning\n", bars)
    script = re.sub(r"Trainer\(", "Trainer(callbacks=[Bar()], ", script, count=1)
    records, truth = run(tmp_path, script)
    seen = look_often(records)
    steps = [found.step for found in seen if found.step is not None]
    assert steps == sorted(steps)
    assert (seen[-1].step, seen[-1].epoch) == (truth["step"], truth["epoch"])
    assert "loss" in dict(seen[-1].metrics)


# Keras and boosting


@pytest.mark.parametrize("verbose", [1, 2])
def test_keras_lines(tmp_path: Path, verbose: int) -> None:
    pytest.importorskip("keras")
    truth = "{'epochs': len(history.epoch), 'accuracy': history.history['val_accuracy'][-1]}"
    records, said = run(tmp_path, script_of("keras", truth).replace("verbose=2", f"verbose={verbose}"))
    seen = look_often(records)
    check_order(seen)
    last = seen[-1]
    assert (last.step, last.total_steps) == (44 * said["epochs"], 44 * said["epochs"])
    assert last.epoch == last.total_epochs == said["epochs"]
    assert float(dict(last.metrics)["val_accuracy"]) == pytest.approx(said["accuracy"], abs=1e-3)
    steps = {found.step for found in cut_anywhere(records)}
    assert steps <= {last.step, None}


BOOSTERS = {
    "xgboost": """
import json, numpy, xgboost
x = numpy.random.default_rng(0).normal(size=(300, 5)); y = (x.sum(1) > 0).astype(int)
data, said = xgboost.DMatrix(x, y), {}
model = xgboost.train({"objective": "binary:logistic", "eval_metric": ["logloss", "auc"]}, data, 120,
                      evals=[(data, "train")], evals_result=said, verbose_eval=1)
json.dump({"rounds": model.num_boosted_rounds(), "metrics": {
    f"train-{name}": values[-1] for name, values in said["train"].items()}}, open("truth.json", "w"))
""",
    "lightgbm": """
import json, numpy, lightgbm
x = numpy.random.default_rng(0).normal(size=(300, 5)); y = (x.sum(1) > 0).astype(int)
data, said = lightgbm.Dataset(x, y), {}
model = lightgbm.train({"objective": "binary", "metric": ["auc", "binary_logloss"]}, data, 120,
    valid_sets=[data], valid_names=["train"],
    callbacks=[lightgbm.log_evaluation(1), lightgbm.record_evaluation(said)])
json.dump({"rounds": model.current_iteration(), "metrics": {
    f"train-{name}": values[-1] for name, values in said["train"].items()}}, open("truth.json", "w"))
""",
    "catboost": """
import json, numpy, catboost
x = numpy.random.default_rng(0).normal(size=(300, 5)); y = (x.sum(1) > 0).astype(int)
model = catboost.CatBoostClassifier(iterations=120, allow_writing_files=False).fit(x, y)
json.dump({"rounds": model.tree_count_, "metrics": {
    "learn": model.evals_result_["learn"]["Logloss"][-1]}}, open("truth.json", "w"))
""",
}


@pytest.mark.parametrize("framework", list(BOOSTERS))
def test_boosting_rounds(tmp_path: Path, framework: str) -> None:
    pytest.importorskip(framework)
    records, truth = run(tmp_path, BOOSTERS[framework])
    seen = look_often(records)
    check_order(seen)
    assert seen[-1].step == truth["rounds"]
    for name, value in truth["metrics"].items():
        assert float(dict(seen[-1].metrics)[name]) == pytest.approx(value, abs=1e-4)
    assert {found.step for found in cut_anywhere(records)} <= {truth["rounds"], None}


# Prints, and several processes in one log

KATIB = """
import json, time
for epoch in range(1, 41):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{now} INFO     epoch={epoch} Train-accuracy={1 - 1 / epoch:.4f}")
    print(json.dumps({"timestamp": time.time(), "epoch": str(epoch), "val_loss": f"{1 / epoch:.4f}"}))
json.dump({"epoch": epoch}, open("truth.json", "w"))
"""


def test_katibs_text_and_json(tmp_path: Path) -> None:
    records, truth = run(tmp_path, KATIB)
    last = look_often(records)[-1]
    assert last.epoch == truth["epoch"]
    assert dict(last.metrics) == {"Train-accuracy": "0.975", "val_loss": "0.025"}
    names = {name for found in cut_anywhere(records) for name, _ in found.metrics}
    assert names == {"Train-accuracy", "val_loss"}


RANKS = """
import json, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 61):
    print(f"step {step}/60 | rank_plus_one: {rank + 1}.0 | loss: {1 / step:.4f}", flush=True)
    if rank == 1:
        print("{'eval_loss': 9.0, 'epoch': 99.0}", flush=True)
    dist.barrier()
if rank == 0:
    json.dump({"step": step}, open("truth.json", "w"))
dist.destroy_process_group()
"""


def test_torchruns_two_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        "--nproc-per-node=2",
        "--tee=3",
    ]
    records, truth = run(tmp_path, RANKS, launcher)
    assert any(record.content.startswith(b"[default1]:") for record in records)
    seen = look_often(records)
    check_order(seen)
    assert (seen[-1].step, seen[-1].total_steps, seen[-1].epoch) == (truth["step"], 60, None)
    assert dict(seen[-1].metrics) == {"rank_plus_one": "1.0", "loss": "0.0167"}


# Prefixes lines as `mpirun --tag-output` does; Open MPI itself comes from no Python package.
MPIRUN = """
import subprocess, sys, threading
LOOP = '''
import sys, time
for step in range(1, 81):
    print("{'loss': %s, 'rank': %d.5, 'step': %d}" % (1 / step, int(sys.argv[1]), step), flush=True)
'''
def copy(rank, name, source, target):
    for line in source:
        target.write(f"[1,{rank}]<{name}>:{line}"); target.flush()
ranks = [subprocess.Popen([sys.executable, "-c", LOOP, str(i)], stdout=subprocess.PIPE, text=True)
         for i in range(3)]
threads = [threading.Thread(target=copy, args=(i, "stdout", rank.stdout, sys.stdout))
           for i, rank in enumerate(ranks)]
[thread.start() for thread in threads], [thread.join() for thread in threads], [rank.wait() for rank in ranks]
import json; json.dump({"step": 80}, open("truth.json", "w"))
"""


def test_of_mpiruns_ranks_the_first_counts(tmp_path: Path) -> None:
    records, truth = run(tmp_path, MPIRUN)
    seen = look_often(records)
    check_order(seen)
    assert seen[-1].step == truth["step"]
    assert {dict(found.metrics)["rank"] for found in seen} == {"0.5"}
