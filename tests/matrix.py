"""Trainings that end in every way, with a reporter and without: what is compared, and what must be true."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STARTS = ("none", "fork", "spawn", "forkserver")
# How it ends → (state, ending, steps) of the document that is left. None: it may be a moment old.
ENDS: dict[str, tuple[str, str | None, int | None]] = {
    "return": ("completed", "finished", 6),
    "exception": ("failed", "failed", 3),
    "sys.exit": ("failed", "failed", 3),
    "sigterm": ("running", "preempted", 3),
    "sigterm with a handler": ("running", "preempted", 3),
    "sigkill": ("running", None, None),
    "out of memory": ("failed", "failed", 3),
}
PATIENCE_S = 30.0  # a hang takes longer; what is slow on this machine for other reasons does not

PREAMBLE = """
import multiprocessing, os, signal, sys, time

def work(number):
    import json, ssl, http.client
    return json.loads(json.dumps(number))

def leave(how, step):
    if step != 3 or how == "return":
        return
    if how == "exception":
        raise ValueError("loss is nan")
    if how == "sys.exit":
        sys.exit(3)
    if how == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    if how == "sigterm with a handler":
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "out of memory":
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))
        bytearray(1 << 36)

def prepare(how):
    if how == "sigterm with a handler":
        trainer = os.getpid()  # a pool ends its workers with SIGTERM; what they print then varies
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if os.getpid() == trainer else os._exit(0))

def use_workers(start):
    if start != "none":
        with multiprocessing.get_context(start).Pool(1) as pool:
            assert pool.map(work, [1, 2]) == [1, 2]

def save(step):
    with open("model.txt", "w") as file:
        file.write(str(step))
    print("saved", step, flush=True)
"""

PLAIN = """
if __name__ == "__main__":
    how, start = sys.argv[1:]
    prepare(how)
    with make_reporter(6) as r:
        for step in range(1, 7):
            if step in (1, 2):
                use_workers(start)
            r.step(loss=1 / step)
            save(step)
            leave(how, step)
"""

TORCH = """
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return torch.full((4,), float(work(i)))

if __name__ == "__main__":
    how, start = sys.argv[1:]
    torch.set_num_threads(1)
    prepare(how)
    workers = {} if start == "none" else {"num_workers": 1, "multiprocessing_context": start}
    layer = torch.nn.Linear(4, 1)
    with make_reporter(6) as r:
        for step, batch in enumerate(DataLoader(Data(), batch_size=1, **workers), 1):
            loss = layer(batch).sum()
            loss.backward()
            r.step(loss=loss)
            save(step)
            leave(how, step)
"""

XGBOOST = """
import numpy, xgboost

class Leave(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, log):
        save(epoch + 1)
        leave(how, epoch + 1)
        return False

if __name__ == "__main__":
    how, start = sys.argv[1:]
    prepare(how)
    use_workers(start)
    x = numpy.arange(40.0).reshape(10, 4)
    data = xgboost.DMatrix(x, x[:, 0])
    with make_reporter(6):
        xgboost.train({"nthread": 1}, data, 6, callbacks=[*make_callbacks("xgboost", 6), Leave()])
"""

LIGHTGBM = """
import lightgbm, numpy

def after(env):
    save(env.iteration + 1)
    leave(how, env.iteration + 1)

if __name__ == "__main__":
    how, start = sys.argv[1:]
    prepare(how)
    use_workers(start)
    x = numpy.arange(400.0).reshape(100, 4)
    after.order = 40
    with make_reporter(6):
        parameters = {"num_threads": 1, "verbose": -1, "min_data_in_leaf": 1}
        lightgbm.train(parameters, lightgbm.Dataset(x, x[:, 0]), 6,
                       callbacks=[*make_callbacks("lightgbm"), after])
"""

LIGHTNING = """
import logging, warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl, torch
logging.getLogger("lightning.pytorch").setLevel(logging.CRITICAL)
from torch.utils.data import DataLoader, TensorDataset

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Leave(pl.Callback):
    def on_train_batch_end(self, trainer, *_, **__):
        save(trainer.global_step)
        if how == "sigterm" and trainer.global_step == 3:
            os.kill(os.getpid(), signal.SIGTERM)  # Lightning's own handler ends the training after this batch
        else:
            leave(how, trainer.global_step)

if __name__ == "__main__":
    how, start = sys.argv[1:]
    torch.set_num_threads(1)
    prepare(how)
    use_workers(start)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False,
                         enable_model_summary=False, enable_checkpointing=False,
                         callbacks=[*make_callbacks("lightning"), Leave()])
    trainer.fit(Module(), DataLoader(TensorDataset(torch.ones(6, 4))))
"""

WITH = """
from trainjob_progress import report as make_reporter

def make_callbacks(name, *arguments):
    from importlib import import_module
    return [import_module(f"trainjob_progress.integrations.{name}").ReportProgress(*arguments)]
"""

WITHOUT = """
class make_reporter:
    def __init__(self, *_): pass
    def step(self, *_, **__): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass

def make_callbacks(*_):
    return []
"""

SCRIPTS = {
    "plain": PLAIN,
    "torch": TORCH,
    "xgboost": XGBOOST,
    "lightgbm": LIGHTGBM,
    "lightning": LIGHTNING,
}


@dataclass(frozen=True)
class Outcome:
    """What a training leaves behind, to whoever started it."""

    code: int
    output: str
    errors: str
    files: dict[str, str]


def run(
    python: str, framework: str, start: str, end: str, directory: Path, *, reports: bool
) -> tuple[Outcome, float, dict[str, Any] | None]:
    """What a training left, the seconds that it took, and its document."""
    directory.mkdir()
    (directory / "train.py").write_text(PREAMBLE + (WITH if reports else WITHOUT) + SCRIPTS[framework])
    document = directory.parent / f"{directory.name}.json"
    environ = {
        "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(ROOT / "reporter"),
        "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "default::DeprecationWarning:__main__",
        "TRAINJOB_PROGRESS_FILE": str(document),
    }  # fmt: skip
    began_s = time.monotonic()
    # Into files and not pipes: workers of a training that was killed may outlive it, and hold those open.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors_file:
        training = subprocess.Popen(
            [python, "train.py", end, start], cwd=directory, env=environ, stdin=subprocess.DEVNULL,
            stdout=output, stderr=errors_file, start_new_session=True,
        )  # fmt: skip
        try:
            code = training.wait(timeout=250)
            took_s = time.monotonic() - began_s
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(training.pid, signal.SIGKILL)
            training.wait()
        output.seek(0)
        errors_file.seek(0)
        printed, errors = output.read(), errors_file.read().splitlines()
    files = {path.name: path.read_text() for path in directory.iterdir() if path.name != "train.py"}
    last = errors[-1] if errors else ""  # a traceback's lines have other numbers in the two scripts
    return (
        Outcome(code, printed, f"{len(errors)} lines: {last}", files),
        took_s,
        json.loads(document.read_bytes()) if document.exists() else None,
    )


def check(
    python: str, framework: str, start: str, end: str, directory: Path, repeats: int = 1
) -> list[float]:
    """Run it without us and `repeats` times with us; returns how many seconds longer each took."""
    bare, bare_s, _ = run(python, framework, start, end, directory / "bare", reports=False)
    more: list[float] = []
    for number in range(repeats):
        ours, took_s, document = run(python, framework, start, end, directory / str(number), reports=True)
        # A `with` of ours is one more line in a traceback of a framework's.
        assert ours == bare, (number, ours, bare)
        # Each worker imports its framework anew: on a busy machine in half or in three times the time.
        assert took_s < 3 * bare_s + PATIENCE_S
        state, ending, step = ENDS[end]
        if end == "sigkill" and document is None:
            continue  # killed before anything was written
        assert document is not None
        assert (document["state"], document.get("ending")) == (state, ending), document
        assert document["step"] == step or (step is None and document["step"] <= 3), document
        if end == "return":
            assert document["progressPercentage"] == 100
        else:
            assert document["progressPercentage"] <= 50
        more.append(took_s - bare_s)
    return more
