"""Trainings that end in every way, with a reporter and without: what is compared, and what must be true.

Most of a training this small is the import of its framework. So only the first of many repeats is a process
from its start: the others are forked, one after the other, from one that has imported the framework, and
nothing of ours. They end as any process does, by the interpreter's own way out.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
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
TIMEOUT_S = 500.0  # of one training, or of all that are forked from one process
PATIENCE_S = 30.0  # a hang takes longer; what is slow on this machine for other reasons does not
# C++ prints it when a worker is ended while it imports torch, now and then, also without us.
NOISE = ("terminate called without an active exception",)
MORE_BARE_RUNS = 4  # when ours ended in another way: a training may end in several ways by itself

# What workers run; in a module of its own, so that they need not import the training.
WORK = """
def work(number):
    import json, ssl, http.client
    return json.loads(json.dumps(number))
"""

PREAMBLE = """
import gc, multiprocessing, os, signal, sys, threading, time
from work import work

IS_REPEAT = False

def repeat(names):
    # Returns in one child for each name, in a directory and a session of its own; the parent ends here.
    global IS_REPEAT
    assert threading.active_count() == 1, "a fork would lose a thread of the framework's"
    gc.freeze()  # or each child's last collection copies every page of what the framework has imported
    for name in names:
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.chdir(name)
            for stream, path in (1, f"../{name}.out"), (2, f"../{name}.err"):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), stream)
            os.environ["REPORTS"] = "" if name.startswith("bare") else "1"
            os.environ["TRAINJOB_PROGRESS_FILE"] = os.path.abspath(f"../{name}.json")
            IS_REPEAT = True
            return
        try:
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), time.monotonic() - began, flush=True)
        finally:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    os._exit(0)

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
    if IS_REPEAT:
        globals().pop("__file__", None)  # workers import the training, with its framework, no more
    if start != "none":
        with multiprocessing.get_context(start).Pool(1) as pool:
            assert pool.map(work, [1, 2]) == [1, 2]

def save(step):
    with open("model.txt", "w") as file:
        file.write(str(step))
    print("saved", step, flush=True)
"""

# After the framework's import.
REPORTER = """
if __name__ == "__main__" and sys.argv[3:]:
    names = sys.argv[3:]
    del sys.argv[3:]
    repeat(names)

if os.environ["REPORTS"]:
    from trainjob_progress import report as make_reporter, termination

    termination.FLUSH_TIMEOUT_S = 20  # a disk may be slow; what hangs takes longer than Run.took_s may
    def make_callbacks(name, *arguments):
        from importlib import import_module
        return [import_module(f"trainjob_progress.integrations.{name}").ReportProgress(*arguments)]
else:
    class make_reporter:
        def __init__(self, *_): pass
        def step(self, *_, **__): pass
        def __enter__(self): return self
        def __exit__(self, *_): pass

    def make_callbacks(*_):
        return []
"""

IMPORTS = {
    "plain": "",
    "torch": "import torch\nfrom torch.utils.data import DataLoader, Dataset\n",
    "xgboost": "import numpy, xgboost\n",
    "lightgbm": "import lightgbm, numpy\n",
    "lightning": """
import logging, warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl, torch
logging.getLogger("lightning.pytorch").setLevel(logging.CRITICAL)
from torch.utils.data import DataLoader, TensorDataset
""",
}

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


@dataclass(frozen=True)
class Run:
    """One training: what it left, the seconds that it took, and its document."""

    outcome: Outcome
    took_s: float
    document: dict[str, Any] | None


class Cell:
    """One of the matrix: trainings that differ only in whether they report. Names of bare ones begin so."""

    def __init__(self, python: str, framework: str, start: str, end: str, directory: Path) -> None:
        self._command = [python, str(directory / "train.py"), end, start]
        self._directory = directory
        (directory / "work.py").write_text(WORK)
        script = PREAMBLE + IMPORTS[framework] + REPORTER + SCRIPTS[framework]
        (directory / "train.py").write_text(script)

    def run(self, name: str) -> Run:
        """In a process of its own."""
        (self._directory / name).mkdir()
        began_s = time.monotonic()
        code = self._start(name, self._directory / name, self._command)
        return self._read(name, code, time.monotonic() - began_s)

    def fork(self, names: list[str]) -> list[Run]:
        """One after the other, as children of one process."""
        for name in names:
            (self._directory / name).mkdir()
        self._start("all", self._directory, [*self._command, *names])
        ends = (self._directory / "all.out").read_text().splitlines()
        assert len(ends) == len(names), (self._directory / "all.err").read_text()
        return [
            self._read(name, int(code), float(took_s))
            for name, (code, took_s) in zip(names, map(str.split, ends), strict=True)
        ]

    def _start(self, name: str, directory: Path, command: list[str]) -> int:
        environ = {
            "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(ROOT / "reporter"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "default::DeprecationWarning:__main__",
            "REPORTS": "" if name.startswith("bare") else "1",
            "TRAINJOB_PROGRESS_FILE": str(self._directory / f"{name}.json"),
        }  # fmt: skip
        # Into files and not pipes: workers of a training that was killed may outlive it, and hold those open.
        with (
            (self._directory / f"{name}.out").open("w") as output,
            (self._directory / f"{name}.err").open("w") as errors,
        ):
            training = subprocess.Popen(
                command, cwd=directory, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        try:
            return training.wait(timeout=TIMEOUT_S)
        finally:
            training.send_signal(signal.SIGINT)  # it ends what it has forked into another session
            with contextlib.suppress(subprocess.TimeoutExpired):
                training.wait(timeout=10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(training.pid, signal.SIGKILL)
            training.wait()

    def _read(self, name: str, code: int, took_s: float) -> Run:
        lines = (self._directory / f"{name}.err").read_text().splitlines()
        errors = [line for line in lines if line not in NOISE]
        last = errors[-1] if errors else ""  # a `with` of ours is one more line in a framework's traceback
        files = {path.name: path.read_text() for path in (self._directory / name).iterdir()}
        document = self._directory / f"{name}.json"
        return Run(
            Outcome(
                code, (self._directory / f"{name}.out").read_text(), f"{len(errors)} lines: {last}", files
            ),
            took_s,
            json.loads(document.read_bytes()) if document.exists() else None,
        )


def check(python: str, framework: str, start: str, end: str, directory: Path, repeats: int = 1) -> float:
    """Run it without us and `repeats` times with us; returns how many seconds longer it took with us.

    Of the least each: what other processes on the machine add is not ours.
    """
    cell = Cell(python, framework, start, end, directory)
    bare, ours = [cell.run("bare")], [cell.run("0")]
    more = [str(number) for number in range(1, repeats)]
    if framework == "plain":  # nothing takes long to import
        ours += map(cell.run, more)
    elif more:
        forked = cell.fork(["bare again", *more])  # a fork without us, to compare forks with us with
        bare, ours = [*bare, forked[0]], [*ours, *forked[1:]]
    for number, run in enumerate(ours):
        while run.outcome not in [other.outcome for other in bare] and len(bare) <= MORE_BARE_RUNS:
            bare.append(cell.run(f"bare {len(bare)}"))
        assert run.outcome in [other.outcome for other in bare], (number, run, bare)
        # Each worker imports its framework anew: on a busy machine in half or in three times the time.
        assert run.took_s < 3 * bare[0].took_s + PATIENCE_S, (number, run, bare)
        state, ending, step = ENDS[end]
        document = run.document
        if end == "sigkill" and document is None:
            continue  # killed before anything was written
        assert document is not None, number
        assert (document["state"], document.get("ending")) == (state, ending), (number, document)
        assert document["step"] == step or (step is None and document["step"] <= 3), (number, document)
        if end == "return":
            assert document["progressPercentage"] == 100, (number, document)
        else:
            assert document["progressPercentage"] <= 50, (number, document)
    return min(run.took_s for run in ours) - min(run.took_s for run in bare)
