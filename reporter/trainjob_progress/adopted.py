"""Reads what a program logs to TensorBoard, MLflow or Weights & Biases anyway.

Their methods are called first, as without us, and what they raise is the program's. Numbers alone are taken.
"""

from __future__ import annotations

import functools
import sys
import threading

from . import beginning
from .auto import install as install_finder
from .loops import current, report
from .publisher import warn
from .termination import let_through
from .values import is_mapping, to_amount, to_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional

    from .reporter import Reporter

    Said = tuple[Mapping[str, Any], Any]  # metrics, and the step that is given with them

EPOCHS = ("epoch", "train/epoch")
STEPS = ("trainer/global_step", "train/global_step", "global_step")  # Lightning's, Hugging Face's
MAX_DEPTH = 4  # of W&B's nested dictionaries
_own: Optional[Reporter] = None  # of a program that has none itself
_is_named = False  # its steps come by one of STEPS, so a tracker's own count of them says nothing
_warned = False


def install() -> None:
    """Hook the trackers that are imported, and the others as they are."""
    for name, patch in PATCHES.items():
        module = sys.modules.get(name)
        if module is not None:
            try:
                patch(module)
            except Exception as error:  # another version, where things have moved
                let_through(error)
                warn(f"{name} is not read: {type(error).__name__}: {error}")
    install_finder(PATCHES)


def _hook(owner: Any, name: str, read: Callable[..., Said]) -> None:
    """`read`: takes what the method takes."""
    method = getattr(owner, name)
    if hasattr(method, "_is_adopted"):
        return

    @functools.wraps(method)
    def log(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        try:
            if not threading.current_thread().name.startswith("progress "):  # that is our own sink
                _note(*read(*args, **kwargs))
        except Exception as error:
            let_through(error)
            global _warned
            if not _warned:
                _warned = True
                warn(f"what {name} logs was not read, training goes on: {type(error).__name__}: {error}")
        return result

    log._is_adopted = True  # type: ignore[attr-defined]  # a function takes any attribute
    setattr(owner, name, log)


def _note(metrics: Mapping[str, Any], step: Any) -> None:
    global _own, _is_named
    numbers = dict(_flatten(metrics))
    named = [numbers.pop(name) for name in STEPS if name in numbers]
    epochs = [numbers.pop(name) for name in EPOCHS if name in numbers]
    if not (numbers or named or epochs):
        return  # a monitor of the machine counts steps of its own
    if beginning.newest is None:
        _own = report(initial_step=None)
    reporter = current()
    if reporter is not _own:
        reporter.update(numbers)  # that one counts steps itself
        return
    _is_named = _is_named or bool(named)
    at = to_count(named[0] if named else None if _is_named else step)
    if at is not None and reporter._step is not None and at <= reporter._step:
        at = None  # another metric may be logged by epoch
    reporter.update(numbers, step=at, epoch=to_amount(epochs[0]) if epochs else None)


def _flatten(metrics: Mapping[str, Any], before: str = "", depth: int = MAX_DEPTH) -> list[tuple[str, Any]]:
    """Numbers alone, and nothing of the machine, which the reporter sees itself."""
    found: list[tuple[str, Any]] = []
    for key, value in metrics.items():
        name = f"{before}{key}"
        if is_mapping(value):
            found += _flatten(value, f"{name}.", depth - 1) if depth else []
        elif isinstance(value, (int, float)) or hasattr(value, "item"):
            found += [(name, value)] if not name.startswith(("system/", "_")) else []
    return found


# What follows takes what the trackers' methods take.


def _patch_writer(module: Any) -> None:
    _hook(
        module.SummaryWriter,
        "add_scalar",
        lambda _, tag, scalar_value, global_step=None, *__, **___: ({tag: scalar_value}, global_step),
    )
    _hook(
        module.SummaryWriter,
        "add_scalars",
        lambda _, main_tag, tag_scalar_dict, global_step=None, *__, **___: (
            {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()},
            global_step,
        ),
    )


def _patch_mlflow(module: Any) -> None:
    _hook(
        module.MlflowClient,
        "log_metric",
        lambda _, run_id, key, value, timestamp=None, step=None, *__, **___: ({key: value}, step),
    )
    _hook(
        module.MlflowClient,
        "log_batch",
        lambda _, run_id, metrics=(), *__, **___: (
            {each.key: each.value for each in metrics},
            max((each.step for each in metrics), default=None),
        ),
    )


def _patch_wandb(module: Any) -> None:
    _hook(
        module.Run,
        "log",
        lambda run, data, step=None, *__, **___: (data, run.step if step is None else step),
    )
    wandb: Any = sys.modules.get("wandb")
    if wandb is not None and getattr(wandb, "run", None) is not None:
        wandb.log = wandb.run.log  # bound when that run began


PATCHES = {
    "torch.utils.tensorboard.writer": _patch_writer,
    "tensorboardX.writer": _patch_writer,
    "mlflow.tracking.client": _patch_mlflow,
    "wandb.sdk.wandb_run": _patch_wandb,
}
