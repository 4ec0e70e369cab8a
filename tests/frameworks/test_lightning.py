"""Lightning trains for real; the document says what its Trainer says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Preempted, Progress

lightning = pytest.importorskip("lightning.pytorch")
import torch  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from trainjob_progress.integrations.lightning import ReportProgress  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def dataset() -> TensorDataset:
    x, y = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(x[:640], dtype=torch.float32) / 16, torch.tensor(y[:640]))


class Digits(lightning.LightningModule):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("accuracy", (self.layer(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_trainer(directory: Path, callbacks: list[Any], **options: Any) -> Any:
    return lightning.Trainer(
        default_root_dir=directory, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=callbacks, **options,
    )  # fmt: skip


def loader() -> DataLoader[Any]:
    return DataLoader(dataset(), batch_size=32)


def test_steps_epochs_and_metrics_are_lightnings_own(progress: Progress, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [ReportProgress()], max_epochs=3)
    trainer.fit(Digits(), loader(), loader())
    assert progress.numbers == ("completed", trainer.global_step, trainer.estimated_stepping_batches, 100)
    assert trainer.global_step == 60
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (
        trainer.current_epoch,
        trainer.max_epochs,
    )
    assert progress.last["metrics"] == {
        name: value.item() for name, value in trainer.callback_metrics.items()
    }
    assert set(progress.last["metrics"]) == {"loss", "accuracy"}
    progress.check_order()


class StopWithinAnEpoch(lightning.Callback):  # type: ignore[misc,name-defined]
    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        trainer.should_stop = trainer.global_step >= 25


def test_an_epoch_that_was_cut_short_is_not_counted(progress: Progress, tmp_path: Path) -> None:
    """Seen: Lightning calls its end all the same."""
    make_trainer(tmp_path, [ReportProgress(), StopWithinAnEpoch()], max_epochs=3).fit(Digits(), loader())
    assert (progress.last["step"], progress.last["ending"]) == (25, "stopped")
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (1, 3)


def test_a_step_is_an_optimizer_step_when_gradients_are_accumulated(
    progress: Progress, tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, [ReportProgress()], max_epochs=2, accumulate_grad_batches=4)
    trainer.fit(Digits(), loader())
    assert progress.numbers == ("completed", 10, 10, 100)


def test_an_exception_is_a_failed_run_and_a_checkpoint_goes_on(progress: Progress, tmp_path: Path) -> None:
    class Preempt(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if trainer.global_step == 50:
                trainer.save_checkpoint(tmp_path / "last.ckpt")
                raise Preempted("the node goes away")

    class Wait(lightning.Callback):  # type: ignore[misc,name-defined]
        on_train_start = progress.wait

    with pytest.raises(Preempted):
        make_trainer(tmp_path, [ReportProgress(), Preempt()], max_epochs=4).fit(Digits(), loader())
    assert progress.numbers == ("failed", 50, 80, 62)
    assert progress.last["message"] == "Preempted: the node goes away"
    progress.begin_anew()
    trainer = make_trainer(tmp_path, [ReportProgress(), Wait()], max_epochs=4)
    trainer.fit(Digits(), loader(), ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert (progress.seen[0]["step"], progress.seen[0]["totalSteps"]) == (50, 80)
    assert progress.numbers == ("completed", 80, 80, 100)


def test_a_stream_without_an_end_has_no_percentage(progress: Progress, tmp_path: Path) -> None:
    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(dataset())

    trainer = make_trainer(tmp_path, [ReportProgress()], max_epochs=-1, max_time={"seconds": 1})
    trainer.fit(Digits(), DataLoader(Stream(), batch_size=32))
    assert progress.numbers == ("completed", trainer.global_step, None, None)
