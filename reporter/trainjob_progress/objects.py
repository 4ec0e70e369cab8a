"""What a JSON object or a Python dictionary in a line says, and which names are positions and which settings.

Pure. A line may be hostile (`lines`): repetitions that may meet are bounded.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple, Optional

from .pairs import COUNTS, EPOCHS, NUMBER, to_number, to_plain
from .patterns import lazily

Fields = dict[str, Any]

POSITION = {"step", "epoch"}
# Names of what says which part of a training it is: `{"experiment": "test"}` says nothing of it.
_PARTS = {
    "data_split", "dataset", "event", "fold", "kind", "loop", "message", "mode", "msg", "part", "partition",
    "phase", "section", "set", "split", "stage", "subset", "tag", "type",
}  # fmt: skip
_EVALUATIONS = {"dev", "eval", "evaluation", "test", "val", "valid", "validation"}
OF_RUN = {"global_step", "num_updates"}  # a step that says whose it is: another one is of something else
_ITEM = lazily(  # of a Python dictionary, as its repr has it
    rf"\s*'([^'\\]{{1,200}})':\s?(?:'([^'\\]{{0,200}})'|({NUMBER}))\s?([,}}])",
    re.IGNORECASE,
)
_RANKS = {"process_index", "worker", "worker_id"}  # and all that ends so
# What is no measurement, where nothing else is said but a learning rate.
_SETTINGS = {
    "arch", "betas", "batch_size", "data", "dataset", "device", "dropout", "gamma", "gpu", "gpus", "model",
    "momentum", "num_workers", "optim", "optimizer", "patience", "seed", "warmup", "warmup_steps",
    "weight_decay", "workers", "world_size",
}  # fmt: skip
_PLANS = {
    "epochs", "max_epochs", "max_steps", "n_epochs", "num_epochs", "num_steps", "num_train_epochs",
    "step_size", "total_epochs", "total_steps", "train_steps",
}  # fmt: skip
# What a logging library writes of each record.
_RECORD_NAMES = {
    "@timestamp", "attempt", "created", "level", "levelno", "line", "lineno", "msecs", "pid", "port",
    "process", "relativecreated", "severity", "thread", "time", "timestamp", "ts", "v",
}  # fmt: skip
# What only a training says: a position beside it is no setting.
_MEASURED = lazily(
    r"(?:^|[\W\d_])(?:loss|acc(?:uracy)?|rewards?|returns?|score|perplexity|ppl|[mrp]?ae|r?mse|nll|elbo|f1"
    r"|auc|bleu|[wc]er|iou|m?ap)(?![^\W\d_])(?!_(?:scale|weight|coef))",
    re.IGNORECASE,
)
_DIGITS = lazily(r"[\d.,+ -]{1,64}")
# A text beside a measurement that says whose it is: `{"event": "train_step", "step": 5, "loss": 0.5}`.
_SAYS_TRAINING = lazily(
    r"train(?:ing)?(?:[ _-](?:step|epoch|iter\w*|batch|loss|log|metrics|progress))?$", re.IGNORECASE
)
_IS_TIME = 10**8  # seconds since 1970; no epochs
_FIELD_OF_DOCUMENT = {
    "step": "step",
    "totalSteps": "total_steps",
    "epoch": "epoch",
    "totalEpochs": "total_epochs",
    "progressPercentage": "percentage",
    "estimatedRemainingSeconds": "remaining_s",
    "message": "message",
}


class Form(NamedTuple):
    """How a position was said, by what is no form of a framework: others of the same form are the same
    thing's."""

    kind: object  # what all lines have in common that say as much
    names: object  # what tells it apart from others, and texts that do
    texts: object = ()
    is_plain: bool = False  # a measurement stands beside it, and no text and no unknown word
    has_words: bool = False  # which are not known


def read_object(text: str) -> Optional[Fields]:
    """The fields of a report, perhaps none; None when it is no object, or says nothing of progress. A
    position has its `form` beside it, where that is not known to be a training's."""
    values = parse_object(text)
    if not values:
        return None
    if isinstance(values.get("trainerStatus"), dict):
        return _read_status(values["trainerStatus"])
    if "schemaVersion" in values or ("timestamp" in values and "progressPercentage" in values):
        fields = _read_fields(values)
        if isinstance(values.get("metrics"), dict):
            fields["metrics"] = values["metrics"]
        return fields
    metrics = {
        name: to_number(value)
        for name, value in values.items()
        if isinstance(value, (int, float, str))
        and not isinstance(value, bool)
        and name.lower() not in _RECORD_NAMES
    }
    if is_another_ranks(metrics):
        return {}
    parts: list[str] = [
        name if value is True else value for name, value in values.items() if _names_part(name, value)
    ]
    if (aside := next((part for part in parts if part.lower() in _EVALUATIONS), None)) is not None:
        return {"metrics": _name_aside(metrics, aside)} if speaks_of_progress({"metrics": metrics}) else None
    if are_settings(values, "batch"):
        return {}
    fields = with_position({name: value for name, value in metrics.items() if not isinstance(value, str)})
    counted = str(values.get("global_step/max_steps", "")).split("/")  # ms-swift's
    if is_counted := len(counted) == 2 and all(part.isdecimal() for part in counted):
        fields.update(step=to_number(counted[0]), total_steps=to_number(counted[1]))
    if not POSITION.isdisjoint(fields):
        measured = fields.get("metrics", {})
        is_measured = says_measured(measured)
        said = (value for value in metrics.values() if isinstance(value, str))
        says_more = any(not _SAYS_TRAINING.match(text) for text in said)
        if says_more and not is_measured and not any(isinstance(value, float) for value in measured.values()):
            return {}
        is_last = is_counted or next(reversed(values)) == "epoch"
        if not (is_measured and is_last and text.startswith("{'")):  # as Hugging Face's trainer writes it
            is_plain = is_measured and not (says_more or "best" in text)
            kind = "object", *(name for name in values if name.lower() in COUNTS or not is_measured)
            names = kind, *(() if is_plain else values)
            texts = tuple(_DIGITS.sub("0", part) for part in parts)
            fields["form"] = Form(kind, names, texts, is_plain)
    has_text = any(isinstance(values[name], str) for name in fields.get("metrics", ()))  # Katib's, HF's of v5
    return fields if fields and (has_text or speaks_of_progress(fields)) else None


def _read_fields(document: dict[str, Any]) -> Fields:
    """Those that are what they should be: whatever printed the line may have written anything."""
    return {
        ours: document[theirs]
        for theirs, ours in _FIELD_OF_DOCUMENT.items()
        if type(document.get(theirs)) in ((str,) if ours == "message" else (int, float))
    }


def _read_status(status: dict[str, Any]) -> Fields:
    """What Kubeflow's clients push, as they print it."""
    fields = _read_fields(status)
    listed = status.get("metrics")
    metrics = {
        one["name"]: to_number(one.get("value"))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    return {**fields, **with_position(metrics)}


def _names_part(name: str, value: object) -> bool:
    lowered = name.lower()
    return (isinstance(value, str) and lowered in _PARTS) or (value is True and lowered in _EVALUATIONS)


def _name_aside(metrics: Mapping[str, Any], aside: str) -> Fields:
    """The measurements of an evaluation, by names that say so: `{"mode": "val", "iter": 40, "mAP": 0.5}`."""
    return {
        name if name.startswith(f"{aside}_") else f"{aside}_{name}": value
        for name, value in metrics.items()
        if not isinstance(value, str) and name.lower() not in COUNTS
    }


def is_another_ranks(values: dict[str, Any]) -> bool:
    """Whether a line says that rank 1 or a later one printed it. That rank 0 did is no metric."""
    for name in list(values):
        is_rank = name.lower() in _RANKS or name.lower().endswith("rank")
        if is_rank and isinstance(values[name], int) and values.pop(name) != 0:
            return True
    return False


def are_settings(names: Iterable[str], *more: str) -> bool:
    """Whether what is named so is set before a run. `more`: what may be a setting here."""
    lowered = {name.lower() for name in names}
    is_measured = any("loss" in name for name in lowered) or not lowered.isdisjoint(COUNTS - {"steps"})
    if not is_measured and not _PLANS.isdisjoint(lowered):
        return True
    named = lowered - COUNTS - {"lr", "learning_rate"}
    return bool(named) and named <= _SETTINGS.union(more)


def speaks_of_progress(fields: Fields) -> bool:
    """Whether these are measurements: `world_size: 8` and `{"pid": 7}` are not."""
    if not POSITION.isdisjoint(fields):
        return True
    return any(isinstance(value, float) for value in fields.get("metrics", {}).values())


def says_measured(names: Iterable[str]) -> bool:
    """Whether one of them is of what only a training measures."""
    return any(map(_MEASURED.search, names))


def with_position(values: Mapping[str, Any]) -> Fields:
    """Values by name, with steps and epochs taken out of them."""
    metrics = dict(values)
    fields: Fields = {}
    names_run = not OF_RUN.isdisjoint(metrics)
    for name in list(metrics):
        if isinstance(metrics[name], str):
            continue
        if name.lower() in EPOCHS:
            value = metrics.pop(name)
            if value < _IS_TIME and ("epoch" not in fields or name.lower() == "epoch"):
                fields["epoch"] = value
        elif name.lower() in COUNTS:
            value = metrics.pop(name)
            if (name in OF_RUN or not names_run) and value == value // 1:
                fields["step"] = value
        elif name.lower() in ("total_steps", "total_epochs"):
            fields[name.lower()] = metrics.pop(name)
    for field in POSITION - fields.keys():  # how many there are, which is not where the run stands
        fields.pop(f"total_{field}s", None)
    return {**fields, "metrics": metrics} if metrics else fields


def parse_object(text: str) -> Optional[dict[str, Any]]:
    """A JSON object, or the repr of a flat Python dictionary as Hugging Face prints it."""
    if text.startswith("{'"):
        return _parse_repr(to_plain(text))
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _parse_repr(text: str) -> Optional[dict[str, Any]]:
    """Not ast.literal_eval: nesting may overflow its stack, and it knows neither nan nor np.float64."""
    values: dict[str, Any] = {}
    at, end = 1, ","
    while end == ",":
        match = _ITEM.match(text, at)
        if match is None:
            return None
        name, string, number, end = match.groups()
        values[name] = string if string is not None else to_number(number)
        at = match.end()
    return values if at == len(text) else None
