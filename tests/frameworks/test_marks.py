"""Frameworks' own hooks mark what training waits for, with callbacks that are slow on purpose."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress import current, marks, report

from .conftest import Progress

SLOW_S = 0.3


def spent(progress: Progress) -> dict[str, float]:
    """Seconds by kind in the last document."""
    return dict(progress.last.get("timeSpent", {}))


@pytest.fixture(autouse=True)
def _nothing_spent() -> None:
    marks.forget()


def slowly(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """From now on this method takes SLOW_S longer."""
    method = getattr(owner, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        time.sleep(SLOW_S)
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, run)


def check(found: dict[str, float], **expected_s: float) -> None:
    """Nothing beside these kinds, and of these no less than this and not much more."""
    assert {kind for kind, some in found.items() if some > 0.25} == {
        kind for kind, some in expected_s.items() if some
    }
    for kind, expected in expected_s.items():
        assert expected <= found[kind] < expected + 3, found  # others use this machine too


def test_transformers(progress: Progress, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from trainjob_progress.integrations.transformers import ReportProgress

    from .test_transformers import make_trainer

    class Slow(transformers.Trainer):  # type: ignore[misc,name-defined]
        def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(SLOW_S / 2)  # two batches an evaluation
            return super().prediction_step(*args, **kwargs)

        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(SLOW_S)
            return super()._save_checkpoint(*args, **kwargs)

        def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(SLOW_S / 6)
            return super().get_batch_samples(*args, **kwargs)

    def make(**options: Any) -> Any:
        made = make_trainer(
            tmp_path, [ReportProgress], max_steps=12, eval_strategy="steps", eval_steps=6,
            save_strategy="steps", save_steps=6, **options,
        )  # fmt: skip
        made.__class__ = Slow
        return made

    make().train()
    check(spent(progress), evaluation=2 * SLOW_S, checkpointSave=2 * SLOW_S, dataLoading=2 * SLOW_S)
    assert progress.last["checkpoint"]["step"] == 12


def test_transformers_restores(progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    import transformers.trainer

    from trainjob_progress.integrations.transformers import ReportProgress

    from .test_transformers import make_trainer

    make_trainer(tmp_path, [], max_steps=4, save_strategy="steps", save_steps=2).train()
    ReportProgress()  # marks what is slow from now on inside
    slowly(monkeypatch, transformers.trainer.Trainer, "_issue_warnings_after_load")
    trainer = make_trainer(tmp_path, [ReportProgress], max_steps=6, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert spent(progress)["checkpointRestore"] >= SLOW_S


def test_lightning(progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.plugins.io import TorchCheckpointIO

    from trainjob_progress.integrations.lightning import ReportProgress

    from .test_lightning import Digits, loader, make_trainer

    class Slow(Digits):
        def on_validation_epoch_end(self) -> None:
            time.sleep(SLOW_S)

    class SlowLoader(type(loader())):  # type: ignore[misc]
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                time.sleep(SLOW_S / 20)
                yield batch

    def data() -> Any:
        return SlowLoader(loader().dataset, batch_size=32)

    slowly(monkeypatch, TorchCheckpointIO, "save_checkpoint")
    slowly(monkeypatch, TorchCheckpointIO, "load_checkpoint")
    saving = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path, filename="last", save_top_k=-1)
    trainer = make_trainer(tmp_path, [ReportProgress(), saving], max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(Slow(), data(), loader())
    check(spent(progress), evaluation=2 * SLOW_S, checkpointSave=2 * SLOW_S, dataLoading=2 * SLOW_S)
    assert progress.last["checkpoint"]["step"] == 40
    progress.begin_anew()
    marks.forget()
    again = make_trainer(
        tmp_path, [ReportProgress()], max_epochs=3, num_sanity_val_steps=0, enable_checkpointing=False
    )
    again.fit(Digits(), loader(), ckpt_path=saving.best_model_path)
    check(spent(progress), checkpointRestore=SLOW_S)


def test_an_asynchronous_save_of_lightning_counts_when_it_is_complete(
    progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

    from trainjob_progress.integrations.lightning import ReportProgress

    from .test_lightning import Digits, loader, make_trainer

    class Saving(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 5:
                trainer.save_checkpoint(tmp_path / "saved.ckpt")
                current().flush(5)
                seen.append("checkpoint" in progress.last)
            if batch_idx == 10:
                trainer.strategy.checkpoint_io._executor.submit(bool).result()

    seen: list[bool] = []
    slowly(monkeypatch, TorchCheckpointIO, "save_checkpoint")
    trainer = make_trainer(
        tmp_path,
        [ReportProgress(), Saving()],
        max_epochs=1,
        plugins=[AsyncCheckpointIO()],
        enable_checkpointing=False,
    )
    trainer.fit(Digits(), loader())
    assert seen == [False]
    assert progress.last["checkpoint"]["step"] == 6
    assert spent(progress).get("checkpointSave", 0.0) < SLOW_S


def test_an_asynchronous_save_of_lightning_that_fails_is_no_checkpoint(
    progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

    from trainjob_progress.integrations.lightning import ReportProgress

    from .test_lightning import Digits, loader, make_trainer

    class Saving(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 5:
                trainer.save_checkpoint(tmp_path / "saved.ckpt")

    def fail(*_: Any, **__: Any) -> None:
        time.sleep(SLOW_S)  # until after it was begun
        raise OSError("No space left on device")

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", fail)
    trainer = make_trainer(
        tmp_path,
        [ReportProgress(), Saving()],
        max_epochs=1,
        plugins=[AsyncCheckpointIO()],
        enable_checkpointing=False,
    )
    with pytest.raises(OSError, match="No space left"):
        trainer.fit(Digits(), loader())
    assert progress.last["step"] > 6
    assert "checkpoint" not in progress.last


def test_keras(progress: Progress, tmp_path: Path) -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    from trainjob_progress.integrations.keras import ReportProgress

    from .test_keras import digits, network

    class Slow(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(SLOW_S if batch == 0 else 0)

    x, y = digits()
    saving = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True)
    model = network()
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=2,
        validation_split=0.2,
        verbose=0,
        callbacks=[ReportProgress(), Slow(), saving],
    )
    found = spent(progress)
    assert found["evaluation"] >= 2 * SLOW_S
    assert found["checkpointSave"] > 0
    assert progress.last["checkpoint"]["step"] == 32


def test_accelerate(progress: Progress, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from trainjob_progress.integrations.accelerate import ReportProgress

    from .test_accelerate import train

    accelerator, _ = train(ReportProgress(total_steps=40), first=0, last=20)
    accelerator.register_save_state_pre_hook(lambda *_: time.sleep(SLOW_S))
    accelerator.register_load_state_pre_hook(lambda *_: time.sleep(SLOW_S))
    accelerator.save_state(str(tmp_path))
    accelerator.load_state(str(tmp_path))
    accelerator.end_training()
    check(spent(progress), checkpointSave=SLOW_S, checkpointRestore=SLOW_S)
    assert progress.last["checkpoint"]["step"] == 20


def test_ignite(progress: Progress, tmp_path: Path) -> None:
    pytest.importorskip("ignite")
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver

    from trainjob_progress.integrations.ignite import ReportProgress

    class Loader:
        def __len__(self) -> int:
            return 10

        def __iter__(self) -> Any:
            for i in range(10):
                time.sleep(SLOW_S / 10)
                yield i

    import torch

    engine = Engine(lambda _, batch: batch)
    ReportProgress().attach(engine)
    saver = Checkpoint({"model": torch.nn.Linear(2, 2)}, DiskSaver(str(tmp_path), create_dir=True))
    engine.add_event_handler(Events.EPOCH_COMPLETED, saver)
    engine.run(Loader(), max_epochs=2)
    found = spent(progress)
    assert 2 * SLOW_S <= found["dataLoading"] < 3 * SLOW_S
    assert progress.last["checkpoint"]["step"] == 20


def test_torchtune(progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchtune.config")
    from torchtune.training import FullModelTorchTuneCheckpointer

    from .test_torchtune import build, train

    recipe, logger = build(total_steps=20)
    train(recipe, logger)
    (tmp_path / "in").mkdir()
    import torch

    torch.save({"layer": torch.zeros(2)}, tmp_path / "in" / "model.pt")
    checkpointer = FullModelTorchTuneCheckpointer(
        checkpoint_dir=str(tmp_path / "in"), checkpoint_files=["model.pt"], model_type="LLAMA2",
        output_dir=str(tmp_path / "out"),
    )  # fmt: skip
    slowly(monkeypatch, torch, "load")
    slowly(monkeypatch, torch, "save")
    checkpointer.load_checkpoint()
    checkpointer.save_checkpoint({"model": {"layer": torch.zeros(2)}}, epoch=0)
    logger.close()
    check(spent(progress), checkpointSave=SLOW_S, checkpointRestore=SLOW_S)
    assert progress.last["checkpoint"]["step"] == 20


def test_asynchronous_saves_of_torch_cost_nothing(
    progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    import torch
    from torch.distributed.checkpoint import filesystem

    from trainjob_progress.integrations import torch_checkpoint

    slowly(monkeypatch, filesystem.FileSystemWriter, "write_data")
    slowly(monkeypatch, filesystem.FileSystemReader, "read_data")
    state = {"weight": torch.zeros(4)}
    with report(total_steps=10) as r:
        r.step(5)
        saving = torch_checkpoint.async_save(state, checkpoint_id=str(tmp_path / "a"), no_dist=True)
        assert not saving.done()
        r.flush(5)
        assert "checkpoint" not in progress.last
        saving.result()
        r.flush(5)
        assert progress.last["checkpoint"]["step"] == 5
        assert spent(progress).get("checkpointSave", 0) < SLOW_S / 2
        r.step(2)
        torch_checkpoint.save(state, checkpoint_id=str(tmp_path / "b"), no_dist=True)
        torch_checkpoint.load(state, checkpoint_id=str(tmp_path / "b"), no_dist=True)
    assert progress.last["checkpoint"]["step"] == 7
    assert SLOW_S <= spent(progress)["checkpointSave"] < 2 * SLOW_S
    assert spent(progress)["checkpointRestore"] >= SLOW_S


def test_orbax(progress: Progress, tmp_path: Path) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    import numpy

    from trainjob_progress.integrations.orbax import CheckpointManager

    state = {"weight": numpy.zeros(4)}
    with report(total_steps=10) as r:
        with CheckpointManager(
            tmp_path / "a", options=ocp.CheckpointManagerOptions(save_interval_steps=2)
        ) as manager:
            for step in range(1, 5):
                r.step()
                manager.save(step, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
            r.flush(5)
            assert progress.last["checkpoint"]["step"] == 4
            assert not manager._saving
            manager.restore(4, args=ocp.args.StandardRestore(state))
        options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
        with CheckpointManager(tmp_path / "b", options=options) as manager:
            manager.save(7, args=ocp.args.StandardSave(state))
    assert progress.last["checkpoint"]["step"] == 7
    assert set(spent(progress)) == {"checkpointSave", "checkpointRestore"}


def test_paddle(progress: Progress, tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle")
    from trainjob_progress.integrations.paddle import ReportProgress

    class Slow(paddle.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_eval_batch_end(self, step: int, logs: Any = None) -> None:
            time.sleep(SLOW_S if step == 0 else 0)

    data = paddle.io.TensorDataset([paddle.rand([64, 4]), paddle.zeros([64, 1], dtype="int64")])
    model = paddle.Model(paddle.nn.Linear(4, 2))
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
    model.prepare(optimizer, paddle.nn.CrossEntropyLoss())
    model.fit(
        data,
        data,
        batch_size=8,
        epochs=2,
        verbose=0,
        save_dir=str(tmp_path),
        callbacks=[ReportProgress(), Slow()],
    )
    assert spent(progress)["evaluation"] >= 2 * SLOW_S
    assert progress.last["checkpoint"]["step"] == 16
