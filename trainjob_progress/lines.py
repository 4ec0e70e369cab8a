"""What the lines that training programs print say of their progress. Pure: text in, fields of a report out.

Reads our own JSON line, Katib's JSON and text, Hugging Face's dictionaries, tqdm, Lightning, Keras, XGBoost,
LightGBM, CatBoost, and lines made of names and numbers (workloads-and-protocols.md 1.3). A guess by nature:
what is not understood is not reported.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping, Optional, Union

Fields = dict[str, Any]  # arguments of Reporter.update
Metrics = dict[str, Union[float, str]]

MAX_LINE = 8192  # characters; a longer one is no progress
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# `[1,0]<stdout>:` of mpirun, `[rank0]:` and `[default0]:` of torchrun: several processes in one log.
_RANK_PREFIX = re.compile(r"^\[(?:\d+,(\d+)\]<\w+>|(?:rank|default)(\d+)\]):\s?")
_TQDM = re.compile(
    r"(?:^|\s|:)\s*(\d{1,3})%\|[^|]*\|\s*(\d+)/(\d+)\s*\[[^\],]*(?:,\s*[^\],]*)?(?:,\s*([^\]]*))?\]?"
)
_SIDE_BAR = re.compile(
    r"map|download|load|filter|token|generat|eval|valid|test|predict|sanity|fetch|shard|extract|sav|cach",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepoch:?\s*\[?(\d+)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_KERAS = re.compile(r"^\s*(\d+)/(\d+)\s+(?:[━=>.\[\]-]|\d+s\b).*?(?:\s-\s(.*))?$")
_RICH = re.compile(r"^Epoch (\d+)/(\d+)\s+[━╸╺\s]+(\d+)/(\d+)\s(.*)$")
_KERAS_METRIC = re.compile(rf"([A-Za-z_]\w*):\s*({_NUMBER})", re.IGNORECASE)
_BOOSTING = re.compile(r"^(?:\[\d[\d:]*\]\s*)?\[(\d+)\]\t(.+)$")
_CATBOOST = re.compile(r"^(\d+):\t(.*\btotal:.*)$")
_PAIR = re.compile(rf"([A-Za-z][\w./|-]*)\s*[=: ]\s*({_NUMBER})(?:\s*/\s*(\d+))?(?![\w.])", re.IGNORECASE)
_TIME = re.compile(r"^\W*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s*")
_STEP_NAMES = {"step", "steps", "global_step", "current_step", "iter", "iteration", "it"}


class LineReader:
    """Reads one program's output, a line at a time, and remembers what later lines build on."""

    def __init__(self, pattern: Optional[str] = None) -> None:
        """`pattern`: a regular expression of one's own; its named groups are step, total, epoch, epochs,
        percentage, message, and otherwise metrics. It replaces everything that is known here."""
        self._pattern = re.compile(pattern) if pattern else None
        self._epoch: Optional[int] = None  # the one that runs, counted from 1
        self._epochs: Optional[int] = None
        self._bar_total: Optional[int] = None  # of the bar that stands for the whole run

    def read(self, line: str) -> Optional[Fields]:
        """The fields of a report, or None when the line says nothing of progress."""
        if len(line) > MAX_LINE:
            return None
        line = _ESCAPES.sub("", line).rstrip()
        prefix = _RANK_PREFIX.match(line)
        if prefix:
            if int(prefix.group(1) or prefix.group(2)) != 0:
                return None
            line = line[prefix.end() :]
        if not line.strip():
            return None
        if self._pattern is not None:
            return self._read_own(self._pattern, line)
        readers: tuple[Callable[[str], Optional[Fields]], ...] = (
            self._read_object, self._read_tqdm, self._read_rich, self._read_keras, self._read_boosting,
            self._read_pairs,
        )  # fmt: skip
        for read in readers:
            fields = read(line)
            if fields is not None:
                return fields or None
        return None

    def _read_own(self, pattern: re.Pattern[str], line: str) -> Optional[Fields]:
        match = pattern.search(line)
        if match is None:
            return None
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        fields: Fields = {}
        for group, field in _FIELD_OF_GROUP.items():
            if group in groups:
                text = groups.pop(group)
                fields[field] = text if field == "message" else _to_number(text)
        metrics = {name: _to_number(text) for name, text in groups.items()}
        return {**fields, "metrics": metrics} if metrics else fields

    def _read_object(self, line: str) -> Optional[Fields]:
        text = _TIME.sub("", line).strip()
        if not (text.startswith("{") and text.endswith("}")):
            return None
        values = _parse_object(text)
        if not values:
            return None
        if "schemaVersion" in values or ("timestamp" in values and "progressPercentage" in values):
            fields: Fields = {
                ours: values[theirs] for theirs, ours in _FIELD_OF_DOCUMENT.items() if theirs in values
            }
            if isinstance(values.get("metrics"), dict):
                fields["metrics"] = values["metrics"]
            return fields
        metrics = {
            name: _to_number(value)
            for name, value in values.items()
            if isinstance(name, str) and isinstance(value, (int, float, str)) and name != "timestamp"
        }
        metrics = {name: value for name, value in metrics.items() if not isinstance(value, str)}
        return _with_position(metrics) if metrics else None

    def _read_tqdm(self, line: str) -> Optional[Fields]:
        bars = list(_TQDM.finditer(line))
        if not bars:
            return None
        match = bars[-1]  # the newest
        description = line[: match.start(1)]
        if _SIDE_BAR.search(description):
            return {}
        step, total = int(match.group(2)), int(match.group(3))
        metrics = {name: _to_number(value) for name, value, _ in _PAIR.findall(match.group(4) or "")}
        fields: Fields = {"metrics": metrics} if metrics else {}
        epoch = _EPOCH.search(description)
        if epoch:
            return {**fields, **self._in_epoch(epoch, step, total)}
        if self._bar_total is None or self._bar_total == total:
            self._bar_total = total
            return {**fields, "step": step, "total_steps": total}
        return {}  # a second bar, such as an evaluation's: the first one stands for the run

    def _read_rich(self, line: str) -> Optional[Fields]:
        """Lightning's bar where rich is installed. It counts epochs from 0, in the total as well."""
        match = _RICH.match(line)
        if match is None:
            return None
        epoch, last, batch, batches = (int(text) for text in match.groups()[:4])
        return {
            "step": epoch * batches + batch,
            "total_steps": (last + 1) * batches,
            "epoch": epoch + (1 if batch == batches else 0),
            "total_epochs": last + 1,
            "metrics": {name: _to_number(value) for name, value in _KERAS_METRIC.findall(match.group(5))},
        }

    def _read_keras(self, line: str) -> Optional[Fields]:
        epoch = _EPOCH.match(line)
        if epoch and epoch.end() == len(line.rstrip(": ")) and epoch.group(2):
            self._epoch, self._epochs = int(epoch.group(1)), int(epoch.group(2))
            return {"epoch": self._epoch - 1, "total_epochs": self._epochs}
        match = _KERAS.match(line)
        if match is None or self._epoch is None:
            return None
        batch, batches = int(match.group(1)), int(match.group(2))
        metrics = {name: _to_number(value) for name, value in _KERAS_METRIC.findall(match.group(3) or "")}
        fields: Fields = {"step": (self._epoch - 1) * batches + batch, "metrics": metrics}
        if self._epochs:
            fields["total_steps"] = self._epochs * batches
        if batch == batches:
            fields["epoch"] = self._epoch
        return fields

    def _read_boosting(self, line: str) -> Optional[Fields]:
        match = _BOOSTING.match(line)
        if match:
            metrics: Metrics = {}
            for part in match.group(2).split("\t"):
                name, _, value = part.rpartition(":")
                if name and re.fullmatch(_NUMBER, value.split("+")[0].strip(), re.IGNORECASE):
                    metrics[name.strip().replace("'s ", "-")] = _to_number(value.split("+")[0])
            # LightGBM counts from 1 and writes `: `, XGBoost counts from 0 and writes `:`.
            first = 0 if re.search(r":\s", match.group(2)) else 1
            return {"step": int(match.group(1)) + first, "metrics": metrics} if metrics else None
        match = _CATBOOST.match(line)
        if match is None:
            return None
        found = dict(_KERAS_METRIC.findall(match.group(2).split("total:")[0].split("best:")[0]))
        return {
            "step": int(match.group(1)) + 1,
            "metrics": {name: _to_number(value) for name, value in found.items()},
        }

    def _read_pairs(self, line: str) -> Optional[Fields]:
        text = _TIME.sub("", line)
        pairs = list(_PAIR.finditer(text))
        said = sum(match.end() - match.start() for match in pairs)
        if said < 0.6 * len(re.sub(r"[\s|,;()\[\]-]|^\W*(?:INFO|DEBUG)\b", "", text)):
            return None  # prose, or a configuration, with a number in it
        values: Metrics = {}
        fields: Fields = {}
        for match in pairs:
            name, value, total = match.group(1), _to_number(match.group(2)), match.group(3)
            if total is not None and name.lower() in _STEP_NAMES:
                fields["total_steps"] = int(total)
            elif total is not None and name.lower() == "epoch":
                fields["total_epochs"] = int(total)
            elif total is not None:
                continue
            values[name] = value
        return {**fields, **_with_position(values)} if values else None

    def _in_epoch(self, match: re.Match[str], step: int, total: int) -> Fields:
        epoch, epochs = int(match.group(1)), match.group(2)
        if epochs is None:  # Lightning's: counted from 0, and no word of how many there will be
            return {"step": epoch * total + step, "epoch": epoch + (1 if step == total else 0)}
        done = epoch - 1
        return {
            "step": done * total + step,
            "total_steps": int(epochs) * total,
            "epoch": done + (1 if step == total else 0),
            "total_epochs": int(epochs),
        }


def _with_position(values: Mapping[str, Any]) -> Fields:
    """Values by name, with steps and epochs taken out of them."""
    metrics = dict(values)
    fields: Fields = {}
    for name in list(metrics):
        if isinstance(metrics[name], str):
            continue
        if name.lower() in _STEP_NAMES:
            fields["step"] = metrics.pop(name)
        elif name.lower() == "epoch":
            fields["epoch"] = metrics.pop(name)
        elif name.lower() == "total_steps":
            fields["total_steps"] = metrics.pop(name)
    return {**fields, "metrics": metrics} if metrics else fields


def _parse_object(text: str) -> Optional[dict[Any, Any]]:
    """A JSON object, or the repr of a Python dictionary as Hugging Face prints it."""
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if not text.startswith("{'"):
            return None
        import ast

        try:
            value = ast.literal_eval(
                re.sub(r"(?<=: )-?(?:nan|inf)\b", lambda match: f"'{match.group()}'", text)
            )
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return value if isinstance(value, dict) else None


def _to_number(value: Any) -> Any:  # noqa: ANN401 — a number where it can be one, else as it was
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    return int(number) if number.is_integer() and abs(number) < 2**53 and "." not in str(value) else number


_FIELD_OF_GROUP = {
    "step": "step",
    "total": "total_steps",
    "epoch": "epoch",
    "epochs": "total_epochs",
    "percentage": "percentage",
    "message": "message",
}
_FIELD_OF_DOCUMENT = {
    "step": "step",
    "totalSteps": "total_steps",
    "epoch": "epoch",
    "totalEpochs": "total_epochs",
    "progressPercentage": "percentage",
    "estimatedRemainingSeconds": "remaining_s",
    "message": "message",
}
