"""Plain PyTorch: loops, data loaders with workers, and two processes of torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress import report, report_metrics, track

from .conftest import Progress

torch = pytest.importorskip("torch")
from sklearn.datasets import load_digits  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

ROOT = Path(__file__).parents[2]


class Digits:
    """A small classifier, its data, and one step of its training."""

    def __init__(self) -> None:
        x, y = load_digits(return_X_y=True)
        data = TensorDataset(torch.tensor(x[:640], dtype=torch.float32) / 16, torch.tensor(y[:640]))
        self.loader = DataLoader(data, batch_size=32)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(64, 10)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, batch: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def test_a_loop_hands_over_its_loss_tensor_as_it_is(progress: Progress) -> None:
    digits = Digits()
    with report(total_steps=60, total_epochs=3) as r:
        for _ in range(3):
            for batch in digits.loader:
                loss = digits.step(batch)
                r.step(loss=loss, lr=digits.optimizer.param_groups[0]["lr"])
            r.epoch()
    assert progress.numbers == ("completed", 60, 60, 100)
    assert progress.last["metrics"] == {"loss": loss.item(), "lr": 0.01}
    progress.check_order()


def test_a_tracked_loader_knows_its_length(progress: Progress) -> None:
    digits = Digits()
    for batch in track(digits.loader, epochs=2):
        report_metrics({"loss": digits.step(batch)})
    assert progress.numbers == ("completed", 40, 40, 100)
    assert progress.last["epoch"] == 2


def test_an_iterable_dataset_has_no_total(progress: Progress) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            return iter(range(7))

    for _ in track(DataLoader(Stream(), batch_size=None)):
        pass
    assert (progress.last["step"], "totalSteps" in progress.last) == (7, False)


def test_a_resumed_run_goes_on_where_it_was(progress: Progress) -> None:
    digits = Digits()
    first = report(total_steps=40)
    for batch in digits.loader:
        first.step(loss=digits.step(batch))
    progress.wait()
    progress.begin_anew()
    with report(total_steps=40, initial_step=20) as r:
        progress.wait()
        for batch in digits.loader:
            r.step(loss=digits.step(batch))
    assert progress.seen[0]["step"] == 20
    assert progress.numbers == ("completed", 40, 40, 100)


SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from trainjob_progress import report

class Data(TensorDataset):
    def __getitem__(self, index):
        if index == 0:
            with report(total_steps=1) as r:  # what a careless module does when a worker imports it
                r.step(loss=-1)
        return super().__getitem__(index)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Data(torch.randn(256, 8), torch.randn(256, 1))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data), num_workers=2,
                        multiprocessing_context=sys.argv[1])
    with report(total_steps=2 * len(loader)) as r:
        assert r.is_active == (dist.get_rank() == 0)
        for epoch in range(2):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad(); loss.backward(); optimizer.step()
                r.step(loss=loss, rank_plus_one=1 + dist.get_rank())
            r.epoch()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_of_two_processes_and_their_workers_only_rank_0_writes(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    path = tmp_path / "progress.json"
    environ = {
        **os.environ,
        "TRAINJOB_PROGRESS_FILE": str(path),
        "PYTHONPATH": str(ROOT / "reporter"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    result = subprocess.run(
        [*command, "train.py", method], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(path.read_bytes())
    assert (document["state"], document["step"], document["totalSteps"]) == ("completed", 16, 16)
    assert (document["rank"], document["metrics"]["rank_plus_one"]) == (0, 1)
    assert document["metrics"]["loss"] > 0
    assert document["attempt"] == 0  # torchrun counts restarts
    assert "trainjob_progress" not in result.stderr
