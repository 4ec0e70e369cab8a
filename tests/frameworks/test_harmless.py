"""What a framework does to its models and with its signals, with a callback of ours as without one."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import NOISE

from .conftest import Progress

ROOT = Path(__file__).parents[2]
# The last document comes however slow the machine is.
PATIENCE = "from trainjob_progress import termination; termination.FLUSH_TIMEOUT_S = 60\n"


def train(directory: Path, script: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    """(exit code, output, document) of a training in a process of its own."""
    (directory / "train.py").write_text(PATIENCE + textwrap.dedent(script))
    path = directory / "document.json"
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT / "reporter"), "TRAINJOB_PROGRESS_FILE": str(path),
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    result = subprocess.run(
        [sys.executable, *options, "train.py"], cwd=directory, env=environ, capture_output=True, text=True
    )
    assert path.exists(), result.stderr[-3000:]
    lines = (result.stdout + result.stderr).splitlines(keepends=True)
    output = "".join(line for line in lines if line.rstrip("\n") not in NOISE)
    return result.returncode, output, json.loads(path.read_bytes())


def test_a_fitted_xgboost_model_is_cloned_copied_and_saved(progress: Progress, tmp_path: Path) -> None:
    """Seen: an estimator with our callback could not be pickled, cloned or deep-copied."""
    xgboost = pytest.importorskip("xgboost")
    sklearn = pytest.importorskip("sklearn")
    from sklearn.datasets import load_digits

    from trainjob_progress.integrations.xgboost import ReportProgress

    x, y = load_digits(n_class=2, return_X_y=True)
    model = xgboost.XGBClassifier(n_estimators=5, callbacks=[ReportProgress(5)])
    model.fit(x, y)
    assert progress.numbers == ("completed", 5, 5, 100)
    for one in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert (one.predict(x) == model.predict(x)).all()
    clone = sklearn.base.clone(model)
    clone.fit(x, y)
    assert clone.callbacks[0] is not model.callbacks[0]
    model.save_model(tmp_path / "model.json")


MODULE = """
import lightning.pytorch as pl, os, signal, sys, torch
from torch.utils.data import DataLoader, TensorDataset
from trainjob_progress import report
from trainjob_progress.integrations.lightning import ReportProgress

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.progress = ReportProgress()
    def configure_callbacks(self):
        return [self.progress]
    def training_step(self, batch, i):
        self.before(i)
        return self.layer(batch[0]).mean()
    def before(self, i): pass
    def test_step(self, batch, i):
        self.log("test_accuracy", 0.75)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def trainer(**options):
    return pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False,
                      enable_model_summary=False, enable_checkpointing=False, **options)

loader = DataLoader(TensorDataset(torch.ones(8, 4)))
"""


def test_a_lightning_module_that_holds_our_callback_is_copied_and_saved(tmp_path: Path) -> None:
    script = MODULE + (
        "import copy, io, pickle\n"
        "class Holding(Module):\n"
        "    def before(self, i):\n"
        "        assert self.progress._reporter.is_active\n"
        "        copied = copy.deepcopy(self.progress), pickle.loads(pickle.dumps(self.progress))\n"
        "        assert [one._reporter for one in copied] == [None, None]\n"
        "        torch.save(self.progress, io.BytesIO())\n"
        "module = Holding()\n"
        "trainer().fit(module, loader)\n"
        "copy.deepcopy(module); pickle.dumps(module); torch.save(module, 'module.pt')\n"
    )
    code, output, document = train(tmp_path, script)
    assert code == 0, output
    assert (document["ending"], document["step"]) == ("finished", 16)


def test_a_test_after_a_training_belongs_to_its_run(tmp_path: Path) -> None:
    script = MODULE + "module, t = Module(), trainer()\nt.fit(module, loader)\nt.test(module, loader)\n"
    code, output, document = train(tmp_path, script)
    assert code == 0, output
    assert (document["ending"], document["step"]) == ("finished", 16)
    assert document["metrics"]["test_accuracy"] == 0.75


@pytest.mark.parametrize("outer", ["", "r = report(total_steps=16)\n", "r = report()\nr.__enter__()\n"])
def test_lightnings_own_sigterm_handling_stays_on(tmp_path: Path, outer: str) -> None:
    """Seen: after report() before Trainer.fit, Lightning left its own handling out."""
    script = MODULE + (
        "class Terminated(Module):\n"
        "    def before(self, i):\n"
        "        if i == 5: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"{outer}"
        "module = Terminated()\n"
        "try:\n"
        "    trainer().fit(module, loader)\n"
        "finally:\n"
        "    print('received', module.trainer.received_sigterm, flush=True)\n"
    )
    without = script.replace("return [self.progress]", "return []").replace(outer or "\0", "")
    directory = tmp_path / "without"
    directory.mkdir()
    (directory / "train.py").write_text(without)
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "reporter")}
    bare = subprocess.run(
        [sys.executable, "train.py"], cwd=directory, env=environ, capture_output=True, text=True
    )
    code, output, document = train(tmp_path, script)
    assert (code, "received True" in output) == (bare.returncode, "received True" in bare.stdout), output
    assert "received True" in output
    assert document["ending"] == "preempted"
    assert document["step"] < 16


@pytest.mark.parametrize(("name", "ending"), [("SIGUSR2", "preempted"), ("SIGINT", "failed")])
def test_an_exit_in_a_lightning_training_is_judged_by_whose_it_is(
    tmp_path: Path, name: str, ending: str
) -> None:
    """A scheduler's signal preempts, as submitit's does; any other exit with a code is a failure."""
    script = MODULE + (
        f"signal.signal(signal.{name}, lambda *_: sys.exit(5))\n"
        "class Ended(Module):\n"
        "    def before(self, i):\n"
        f"        if i == 5: os.kill(os.getpid(), signal.{name})\n"
        "trainer().fit(Ended(), loader)\n"
    )
    code, output, document = train(tmp_path, script)
    assert code == 5, output
    assert document["ending"] == ending
    assert document["progressPercentage"] == 100 * document["step"] // 16 < 100


def test_a_just_in_time_checkpoint_is_a_preempted_run(tmp_path: Path) -> None:
    """Seen: Transformers' own checkpoint on SIGTERM ended a run that was then completed, 100 %."""
    pytest.importorskip("transformers.trainer_jit_checkpoint")
    script = """
        import os, signal, torch, transformers
        import transformers.trainer_jit_checkpoint as jit
        from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
        from trainjob_progress.integrations.transformers import ReportProgress
        original = jit.CheckpointManager.__init__
        jit.CheckpointManager.__init__ = lambda self, trainer, kill_wait=3: original(self, trainer, 0)
        class Terminate(TrainerCallback):
            def on_step_end(self, args, state, control, **_):
                if state.global_step == 3: os.kill(os.getpid(), signal.SIGTERM)
                if state.global_step > 3:
                    import time; time.sleep(0.05)
        config = LlamaConfig(vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                             num_attention_heads=1, max_position_embeddings=16)
        data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 400
        args = TrainingArguments("out", max_steps=200, per_device_train_batch_size=2, use_cpu=True,
                                 report_to="none", disable_tqdm=True, enable_jit_checkpoint=True,
                                 save_strategy="no")
        trainer = Trainer(LlamaForCausalLM(config), args, train_dataset=data, eval_dataset=data[:4],
                          callbacks=[ReportProgress, Terminate])
        trainer.train()
        print("checkpoints", [name for name in os.listdir("out") if name.startswith("checkpoint-")])
    """
    code, output, document = train(tmp_path, script)
    assert code == 0, output
    assert "checkpoints ['checkpoint-" in output
    assert (document["state"], document["ending"]) == ("running", "preempted")
    assert document["progressPercentage"] == 100 * document["step"] // 200 < 100


def test_an_evaluation_after_a_training_belongs_to_its_run(progress: Progress, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    from trainjob_progress.integrations.transformers import ReportProgress

    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=16,
    )  # fmt: skip
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
    args = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=4, per_device_train_batch_size=2, use_cpu=True, report_to="none",
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        transformers.LlamaForCausalLM(config), args, train_dataset=data, eval_dataset=data,
        callbacks=[ReportProgress],
    )  # fmt: skip
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    while "eval_loss" not in progress.last["metrics"]:
        pass
    assert progress.last["metrics"]["eval_loss"] == loss
    assert progress.numbers == ("completed", 4, 4, 100)
    pickle.loads(pickle.dumps(trainer.callback_handler.callbacks))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loaders_of_every_start_method_work_and_do_not_report(tmp_path: Path, method: str) -> None:
    script = f"""
        import torch
        from torch.utils.data import DataLoader, Dataset
        from trainjob_progress import current, report, track
        class Data(Dataset):
            def __len__(self): return 16
            def __getitem__(self, i):
                import json, ssl
                current().step(100, loss=9.0)
                return torch.tensor(float(i))
        if __name__ == "__main__":
            for _ in track(range(2)):
                loader = DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="{method}")
                for batch in track(loader):
                    current().update(loss=batch.mean())
    """
    code, output, document = train(tmp_path, script, "-W", "error::DeprecationWarning:__main__")
    assert (code, output) == (0, "")
    assert (document["ending"], document["step"], document["totalSteps"]) == ("finished", 8, 8)


def test_no_graph_of_torch_is_kept_alive(progress: Progress) -> None:
    torch = pytest.importorskip("torch")
    import gc
    import weakref

    from trainjob_progress import report

    with report(total_steps=2) as r:
        layer = torch.nn.Linear(4, 1)
        loss = layer(torch.ones(4)).sum()
        gone = weakref.ref(layer.weight), weakref.ref(loss)
        r.step(loss=loss, grad=loss.detach() * 2)
        value = loss.item()
        del layer, loss
        gc.collect()
        assert [one() for one in gone] == [None, None]
        r.step()
    assert progress.last["metrics"] == {"loss": value, "grad": 2 * value}


def test_torchrun_ends_its_workers_and_the_run_is_preempted(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(
        textwrap.dedent("""
            import os, signal, time
            import torch.distributed as dist
            from trainjob_progress import report
            dist.init_process_group("gloo")
            with report(total_steps=100) as r:
                r.step(7)
                r.flush(20)
                dist.barrier()
                if dist.get_rank() == 0:
                    os.kill(os.getppid(), signal.SIGTERM)
                time.sleep(60)
        """)
    )
    path = tmp_path / "document.json"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "reporter"), "TRAINJOB_PROGRESS_FILE": str(path)}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "worker.py",
    ]
    result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, timeout=200)
    assert result.returncode not in (0, -signal.SIGKILL)
    document = json.loads(path.read_bytes())
    assert (document["ending"], document["step"]) == ("preempted", 7)
