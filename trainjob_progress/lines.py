"""What the lines that training programs print say of their progress. Pure: text in, fields of a report out.

Reads our own JSON line, Katib's JSON and text, Hugging Face's dictionaries, tqdm, Lightning, Keras, XGBoost,
LightGBM, CatBoost, Argo's `N/M`, and lines made of names and numbers (workloads-and-protocols.md 1.3). A
guess by nature: what is not understood is not reported.

`trainjob_progress.run` reads a program's own output with it, and the server's `logs` source the end of a
container's log (docs/decisions/0006): there a line is hostile. So every pattern takes a time that grows with
the line and no faster: repetitions that may meet are bounded, and so are digits that become an int.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping, Optional, Union

Fields = dict[str, Any]  # arguments of Reporter.update
Metrics = dict[str, Union[float, str]]

MAX_LINE = 8192  # characters; a longer one is no progress
_COUNT = r"\d{1,15}"
_NUMBER = r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?|[+-]?(?:nan|inf(?:inity)?)"
_A_NUMBER = re.compile(_NUMBER, re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\))")
_CURSOR_UP = "\x1b[A"  # how tqdm returns from a bar that it draws below another
# `[1,0]<stdout>:` of mpirun, `[prterun-host-7@1,0]<stdout>:` of Open MPI 5, `[rank0]:` and `[default0]:` of
# torchrun: several processes in one log.
_RANK_PREFIX = re.compile(
    r"^\[(?:(?:[\w.-]{1,128}@)?\d{1,9},(\d{1,9})\]<\w{1,16}>|(?:rank|default|trainer|worker)(\d{1,9})\]):\s?"
)
_TQDM = re.compile(
    rf"(?<![^\s:])(\d{{1,3}})%\|[^|]{{0,1000}}\|\s{{0,16}}({_COUNT})/({_COUNT})\s{{0,16}}"
    r"\[([^\],]{0,64})(?:,\s?[^\],]{0,64})?(?:,\s?([^\]]*))?\]?"
)
_SIDE_BAR = re.compile(
    r"map|download|load|filter|token|generat|eval|valid|test|predict|sanity|fetch|shard|extract|sav|cach",
    re.IGNORECASE,
)
_EPOCH = re.compile(rf"\bepoch:?\s{{0,16}}\[?({_COUNT})(?:\s{{0,16}}/\s{{0,16}}({_COUNT}))?", re.IGNORECASE)
_EPOCHS_BAR = re.compile(r"\bepochs?\s?:?\s{0,4}$", re.IGNORECASE)
_KERAS = re.compile(rf"^\s*({_COUNT})/({_COUNT})\s+(?:[━=>.\[\]-]|\d{{1,9}}s\b).*?(?:\s-\s(.*))?$")
_RICH = re.compile(rf"^Epoch ({_COUNT})/({_COUNT})\s[━╸╺\s]{{1,1000}}({_COUNT})/({_COUNT})\s(.*)$")
# PyTorch's MNIST example, which half of all examples descend from: `Train Epoch: 1 [640/60000 (1%)]\tLoss: …`
_MNIST = re.compile(
    rf"^train epoch:\s{{0,9}}({_COUNT})\s{{0,9}}\[({_COUNT})/({_COUNT})\s{{0,9}}\(\d{{1,3}}%\)\](.*)$",
    re.IGNORECASE,
)
_ARGO = re.compile(rf"^\s*({_COUNT})/({_COUNT})\s*$")
_KERAS_METRIC = re.compile(rf"(?<!\w)([A-Za-z_]\w{{0,63}}):\s{{0,16}}({_NUMBER})", re.IGNORECASE)
_BOOSTING = re.compile(rf"^(?:\[\d[\d:]{{0,16}}\]\s{{0,4}})?\[({_COUNT})\]\t(.+)$")
_CATBOOST = re.compile(rf"^({_COUNT}):\t(.*\btotal:.*)$")
_PAIR = re.compile(
    rf"(?<![\w./-])([A-Za-z][\w./-]{{0,63}})(\s{{0,16}}[=:]\s{{0,16}}|\s{{1,16}})({_NUMBER})"
    rf"(?:\s{{0,4}}/\s{{0,4}}({_COUNT}))?(?![\w.])",
    re.IGNORECASE,
)
_ITEM = re.compile(  # of a Python dictionary, as its repr has it; NumPy writes np.float64(0.5)
    rf"\s*'([^'\\]{{1,200}})':\s?(?:'([^'\\]{{0,200}})'|(?:np\.\w{{1,16}}\()?({_NUMBER})\)?)\s?([,}}])",
    re.IGNORECASE,
)
_FILLING = re.compile(r"[\s|,;()\[\]-]|^\W{0,16}(?:INFO|DEBUG)\b")
_TIME = re.compile(r"^\W{0,16}\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16}\s*")
_CLOCK = re.compile(r"\d{1,9}(?::\d\d){1,2}")
_STEP_NAMES = {"step", "steps", "global_step", "current_step", "iter", "iteration", "it"}
_POSITION = {"step", "epoch"}
# What a logging library writes of each record.
_RECORD_NAMES = {
    "@timestamp", "created", "level", "levelno", "line", "lineno", "msecs", "pid", "port", "process",
    "relativecreated", "severity", "thread", "time", "timestamp", "ts", "v",
}  # fmt: skip


def own_words(line: str) -> Optional[str]:
    """The line without the mark of rank 0; None when another rank printed it."""
    prefix = _RANK_PREFIX.match(line)
    if prefix is None:
        return line
    return line[prefix.end() :] if int(prefix.group(1) or prefix.group(2)) == 0 else None


class LineReader:
    """Reads one program's output, a line at a time, and remembers what later lines build on."""

    def __init__(self, pattern: Optional[str] = None) -> None:
        """`pattern`: a regular expression of one's own; its named groups are step, total, epoch, epochs,
        percentage, message, and otherwise metrics. It replaces everything that is known here."""
        self._pattern = re.compile(pattern) if pattern else None
        self._epoch: Optional[int] = None  # the one that runs, counted from 1
        self._epochs: Optional[int] = None
        self._bar_total: Optional[int] = None  # of the bar that stands for the whole run
        self._bar_s = 0  # how long that bar takes, as far as it knows

    def read(self, line: str) -> Optional[Fields]:
        """The fields of a report, or None when the line says nothing of progress."""
        if len(line) > MAX_LINE:
            return None
        is_nested = _CURSOR_UP in line
        words = own_words(_ESCAPES.sub("", line).rstrip())
        if words is None or not words.strip():
            return None
        if self._pattern is not None:
            return self._read_own(self._pattern, words)
        if "%|" in words:
            fields = self._read_tqdm(words, is_nested)
            if fields is not None:
                return fields or None
        readers: tuple[Callable[[str], Optional[Fields]], ...] = (
            _read_object, _read_rich, self._read_keras, _read_boosting, _read_counts, _read_pairs,
        )  # fmt: skip
        for read in readers:
            fields = read(words)
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

    def _read_tqdm(self, line: str, is_nested: bool) -> Optional[Fields]:
        bars = list(_TQDM.finditer(line))
        if not bars:
            return None
        match = bars[-1]  # the newest
        description = line[: match.start(1)]
        if _SIDE_BAR.search(description):
            return {}
        step, total = int(match.group(2)), int(match.group(3))
        metrics = {found.group(1): _to_number(found.group(3)) for found in _pairs(match.group(5) or "")}
        fields: Fields = {"metrics": metrics} if metrics else {}
        epoch = _EPOCH.search(description)
        if epoch:
            return {**fields, **_in_epoch(epoch, step, total)}
        if _EPOCHS_BAR.search(description):
            return {**fields, "epoch": step, "total_epochs": total}
        if is_nested:
            return fields
        lasts_s = _duration_s(match.group(4))
        # Of several bars that follow each other, such as an evaluation's, the one that takes longest stands
        # for the run.
        if self._bar_total not in (None, total) and lasts_s <= self._bar_s:
            return {}
        self._bar_total, self._bar_s = total, lasts_s
        return {**fields, "step": step, "total_steps": total}

    def _read_keras(self, line: str) -> Optional[Fields]:
        epoch = _EPOCH.match(line)
        if epoch and epoch.end() == len(line.rstrip(": ")) and epoch.group(2):
            self._epoch, self._epochs = int(epoch.group(1)), int(epoch.group(2))
            return {"epoch": self._epoch - 1, "total_epochs": self._epochs}
        match = _KERAS.match(line)
        if match is None:
            return None
        batch, batches = int(match.group(1)), int(match.group(2))
        metrics = {name: _to_number(value) for name, value in _KERAS_METRIC.findall(match.group(3) or "")}
        if self._epoch is None:  # the line that names the epoch is out of sight
            return {"metrics": metrics} if metrics and ("/step" in line or "/epoch" in line) else None
        fields: Fields = {"step": (self._epoch - 1) * batches + batch, "metrics": metrics}
        if self._epochs:
            fields["total_steps"] = self._epochs * batches
        if batch == batches:
            fields["epoch"] = self._epoch
        return fields


def _read_object(line: str) -> Optional[Fields]:
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
        if isinstance(value, (int, float, str))
        and not isinstance(value, bool)
        and name.lower() not in _RECORD_NAMES
    }
    said = _with_position({name: value for name, value in metrics.items() if not isinstance(value, str)})
    has_text = any(isinstance(values[name], str) for name in said.get("metrics", ()))  # Katib's, HF's of v5
    return said if said and (has_text or _speaks_of_progress(said)) else None


def _read_rich(line: str) -> Optional[Fields]:
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


def _read_boosting(line: str) -> Optional[Fields]:
    match = _BOOSTING.match(line)
    if match:
        metrics: Metrics = {}
        for part in match.group(2).split("\t"):
            name, _, value = part.rpartition(":")
            if name and _A_NUMBER.fullmatch(value.split("+")[0].strip()):
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


def _read_counts(line: str) -> Optional[Fields]:
    """Argo's `N/M`, and the example that counts rows within an epoch."""
    match = _ARGO.match(line)
    if match:
        done, total = int(match.group(1)), int(match.group(2))
        return {"step": done, "total_steps": total} if done <= total and total > 0 else None
    match = _MNIST.match(line)
    if match is None or int(match.group(3)) == 0:
        return None
    epoch = int(match.group(1)) - 1 + min(1.0, int(match.group(2)) / int(match.group(3)))
    metrics = {found.group(1): _to_number(found.group(3)) for found in _pairs(match.group(4))}
    return {"epoch": round(max(epoch, 0), 4), **({"metrics": metrics} if metrics else {})}


def _read_pairs(line: str) -> Optional[Fields]:
    text = _TIME.sub("", line)
    pairs = _pairs(text)
    if not pairs:
        return None
    said = sum(match.end() - match.start() for match in pairs)
    if said < 0.6 * len(_FILLING.sub("", text)):
        return None  # prose, or a configuration, with a number in it
    values: Metrics = {}
    fields: Fields = {}
    is_assigned = False
    for match in pairs:
        name, value, total = match.group(1), _to_number(match.group(3)), match.group(4)
        is_assigned = is_assigned or not match.group(2).isspace()
        if total is not None and name.lower() in _STEP_NAMES:
            fields["total_steps"] = int(total)
        elif total is not None and name.lower() == "epoch":
            fields["total_epochs"] = int(total)
        elif total is not None:
            continue
        values[name] = value
    said_fields = {**fields, **_with_position(values)}
    has_position = not _POSITION.isdisjoint(said_fields)
    return said_fields if has_position or (is_assigned and _speaks_of_progress(said_fields)) else None


def _pairs(text: str) -> list[re.Match[str]]:
    return list(_PAIR.finditer(text))


def _speaks_of_progress(fields: Fields) -> bool:
    """Whether these are measurements: `world_size: 8` and `{"pid": 7}` are not."""
    if not _POSITION.isdisjoint(fields):
        return True
    return any(isinstance(value, float) for value in fields.get("metrics", {}).values())


def _in_epoch(match: re.Match[str], step: int, total: int) -> Fields:
    epoch, epochs = int(match.group(1)), match.group(2)
    if epochs is None:  # Lightning's: counted from 0, and no word of how many there will be
        return {"step": epoch * total + step, "epoch": epoch + (1 if step == total else 0)}
    done = max(epoch - 1, 0)
    return {
        "step": done * total + step,
        "total_steps": int(epochs) * total,
        "epoch": done + (1 if step == total else 0),
        "total_epochs": int(epochs),
    }


def _duration_s(times: str) -> int:
    """`01:23<1:01:41`, elapsed and remaining, in seconds together; what is not known counts 0."""
    total = 0
    for time in times.split("<"):
        if _CLOCK.fullmatch(time.strip()):
            time_s = 0
            for digits in time.split(":"):
                time_s = time_s * 60 + int(digits)
            total += time_s
    return total


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


def _parse_object(text: str) -> Optional[dict[str, Any]]:
    """A JSON object, or the repr of a flat Python dictionary as Hugging Face prints it."""
    if text.startswith("{'"):
        return _parse_repr(text)
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
        values[name] = string if string is not None else _to_number(number)
        at = match.end()
    return values if at == len(text) else None


def _to_number(value: Any) -> Any:  # noqa: ANN401 — a number where it can be one, else as it was
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
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
