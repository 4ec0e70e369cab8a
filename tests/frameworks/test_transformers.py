"""Hugging Face Transformers and TRL train for real; the document says what their Trainer says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Preempted, Progress

transformers = pytest.importorskip("transformers")
import torch  # noqa: E402

from trainjob_progress.integrations.transformers import ReportProgress  # noqa: E402

VOCABULARY = 64


def examples(count: int = 64) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    rows = torch.randint(0, VOCABULARY, (count, 1)) + torch.arange(16)  # the next token is one more
    return [{"input_ids": row % VOCABULARY, "labels": row % VOCABULARY} for row in rows]


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def make_trainer(directory: Path, callbacks: list[Any], **options: Any) -> Any:
    options = {"num_train_epochs": 3, "logging_steps": 5, "save_strategy": "no", "report_to": [], **options}
    args = transformers.TrainingArguments(
        str(directory),
        per_device_train_batch_size=8,
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-2,
        **options,
    )
    data = examples()
    return transformers.Trainer(
        model=model(), args=args, train_dataset=data, eval_dataset=data[:16], callbacks=callbacks
    )


def logged(trainer: Any, name: str) -> float:
    return [entry[name] for entry in trainer.state.log_history if name in entry][-1]


def test_steps_epochs_and_metrics_are_the_trainers_own(progress: Progress, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [ReportProgress], eval_strategy="epoch")
    trainer.train()
    assert progress.numbers == ("completed", trainer.state.global_step, trainer.state.max_steps, 100)
    assert trainer.state.global_step == 24
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (trainer.state.epoch, 3)
    metrics = progress.last["metrics"]
    for name in ("loss", "grad_norm", "learning_rate", "eval_loss", "train_loss", "train_runtime"):
        assert metrics[name] == pytest.approx(float(logged(trainer, name)))
    assert "epoch" not in metrics
    assert "message" not in progress.last
    progress.check_order()


def test_a_step_is_an_optimizer_step_when_gradients_are_accumulated(
    progress: Progress, tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, [ReportProgress], gradient_accumulation_steps=4)
    trainer.train()
    assert progress.numbers == ("completed", trainer.state.global_step, trainer.state.max_steps, 100)
    assert trainer.state.global_step == 6


def test_max_steps_decide_where_they_are_given(progress: Progress, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [ReportProgress], max_steps=10)
    trainer.train()
    assert progress.numbers == ("completed", 10, 10, 100)
    assert progress.last["epoch"] == trainer.state.epoch == 1.25


def test_a_preempted_run_goes_on_where_it_was(progress: Progress, tmp_path: Path) -> None:
    class Preempt(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            raise Preempted

    class Wait(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.wait()

    save = {"save_strategy": "steps", "save_steps": 12}
    with pytest.raises(Preempted):
        make_trainer(tmp_path, [ReportProgress, Preempt], **save).train()
    progress.begin_anew()
    trainer = make_trainer(tmp_path, [ReportProgress, Wait], **save)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert (progress.seen[0]["step"], progress.seen[0]["totalSteps"]) == (12, 24)
    assert progress.numbers == ("completed", 24, 24, 100)


def test_an_early_stop_is_a_stopped_run(progress: Progress, tmp_path: Path) -> None:
    class Stop(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step >= 9

    make_trainer(tmp_path, [ReportProgress, Stop]).train()
    assert progress.is_stopped
    assert progress.numbers == ("completed", 9, 24, 37)


def test_the_trainers_own_push_is_not_doubled(
    progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "https://127.0.0.1:1/refused")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", str(tmp_path / "token"))
    sinks: list[str] = []

    class Look(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            assert callback._reporter is not None
            sinks[:] = [type(one.sink).__name__ for one in callback._reporter._run._publishers]

    callback = ReportProgress()
    trainer = make_trainer(tmp_path, [callback, Look], max_steps=2)
    assert "kubeflow" in trainer.args.report_to
    trainer.train()
    assert sinks == ["FileSink"]


def test_trls_sft_trainer_reports_with_the_same_callback(progress: Progress, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: number for number, word in enumerate(["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    )
    data = datasets.Dataset.from_dict({"text": ["a b c d e f g h", "b c d e f g h i"] * 16})
    args = trl.SFTConfig(
        str(tmp_path), per_device_train_batch_size=8, num_train_epochs=2, logging_steps=1, save_strategy="no",
        use_cpu=True, disable_tqdm=True, report_to=[], max_length=16, bf16=False,
        gradient_checkpointing=False,
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        model=model(), args=args, train_dataset=data, processing_class=fast, callbacks=[ReportProgress]
    )
    trainer.train()
    assert progress.numbers == ("completed", trainer.state.global_step, trainer.state.max_steps, 100)
    assert trainer.state.global_step == 8
    assert progress.last["metrics"]["loss"] == pytest.approx(float(logged(trainer, "loss")))
    assert progress.last["metrics"]["mean_token_accuracy"] == pytest.approx(
        logged(trainer, "mean_token_accuracy")
    )
