"""torchtune's own configuration builds the logger, and its own modules are trained for real."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Progress

config = pytest.importorskip("torchtune.config")
import torch  # noqa: E402
from omegaconf import DictConfig  # noqa: E402
from torchtune.models.llama2 import llama2  # noqa: E402

from trainjob_progress.integrations.torchtune import ReportProgress  # noqa: E402


def build(**options: Any) -> tuple[DictConfig, ReportProgress]:
    recipe = DictConfig(
        {
            "epochs": 3,
            "max_steps_per_epoch": None,
            "metric_logger": {
                "_component_": "trainjob_progress.integrations.torchtune.ReportProgress",
                "log_dir": "/tmp/logs",
            },
        }
    )
    recipe.update(options.pop("recipe", {}))
    recipe.metric_logger.update(options)
    return recipe, config.instantiate(recipe.metric_logger)


def train(recipe: DictConfig, logger: ReportProgress, *, first: int = 0, last: int = 20) -> float:
    """As torchtune's recipes do: count optimizer steps from 1, and log each as a dictionary."""
    logger.log_config(recipe)
    torch.manual_seed(0)
    model = llama2(vocab_size=32, num_layers=1, num_heads=2, num_kv_heads=2, embed_dim=32, max_seq_len=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(8).repeat(4, 2)
    loss = torch.tensor(0.0)
    for step in range(first + 1, last + 1):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        logger.log_dict({"loss": loss.item(), "lr": 1e-2, "tokens_per_second_per_gpu": 64.0}, step=step)
    return float(loss.detach())


def test_steps_and_metrics_are_the_recipes_own(progress: Progress) -> None:
    recipe, logger = build(total_steps=20)
    loss = train(recipe, logger)
    logger.close()
    assert progress.numbers == ("completed", 20, 20, 100)
    assert progress.last["metrics"]["loss"] == loss
    assert progress.last["totalEpochs"] == 3
    progress.check_order()


def test_the_total_comes_from_the_recipe_where_it_says_so(progress: Progress) -> None:
    recipe, logger = build(recipe={"max_steps_per_epoch": 5})
    train(recipe, logger, last=15)
    logger.log("eval_loss", torch.tensor(0.5), 15)
    logger.close()
    assert progress.numbers == ("completed", 15, 15, 100)
    assert progress.last["metrics"]["eval_loss"] == 0.5


def test_a_resumed_run_goes_on_where_it_was(progress: Progress) -> None:
    recipe, logger = build(total_steps=20)
    train(recipe, logger, last=12)
    progress.wait()
    progress.begin_anew()
    recipe, logger = build(total_steps=20)
    train(recipe, logger, first=12)
    logger.close()
    assert progress.numbers == ("completed", 20, 20, 100)
