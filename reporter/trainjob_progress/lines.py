"""What the lines that training programs print say of their progress. Pure: text in, fields of a report out.

Reads our own JSON line, Katib's JSON and text, Hugging Face's dictionaries, tqdm, Lightning, Keras, XGBoost,
LightGBM, CatBoost, the forms of `forms`, and lines made of names and numbers. What is not understood is not
reported, and neither is a bare `N/M`, which may be a date.

`trainjob_progress.run` reads a program's own output with it, and the server's `logs` source the end of a
container's log (docs/decisions/0006): there a line is hostile. So every pattern takes a time that grows with
the line and no faster: repetitions that may meet are bounded, and so are digits that become an int.
"""

from __future__ import annotations

import re
from copy import copy
from typing import Any, Callable, Iterable, Mapping, Optional

from .bars import BarReader
from .drawn import Drawing, find_drawing
from .forms import FormReader
from .pairs import (
    COUNTS,
    NUMBER,
    Metrics,
    Pair,
    find_doubted,
    find_pairs,
    is_place,
    read_entries,
    read_metrics,
    to_number,
)
from .patterns import lazily

Fields = dict[str, Any]  # arguments of Reporter.update
Search = Callable[[str], Optional[dict[str, Optional[str]]]]  # the named groups of the first match in a line

MAX_FORMS = 64  # of lines
MAX_LINE = 8192  # characters; a longer one is no progress
_COUNT = r"\d{1,15}"
_A_NUMBER = lazily(NUMBER, re.IGNORECASE)
_MAY_MEAN = lazily(
    r"\d|nan|inf|iteration is:|_mem ", re.IGNORECASE
)  # most lines have nothing of this, and cost little
_ESCAPES = lazily(r"\x1b(?:\[[0-9;?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\))")
_CURSOR_UP = "\x1b[A"  # how tqdm returns from a bar that it draws below another
# `[1,0]<stdout>:` of mpirun (behind a time if asked for), `[prterun-host-7@1,0]<stdout>:` of Open MPI 5,
# `[rank0]:` and `[default0]:` of torchrun: several processes in one log.
_RANK_PREFIX = lazily(
    r"^(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?"
    r"\[(?:(?:[\w.-]{1,128}@)?\d{1,9},(\d{1,9})\]<\w{1,16}>|(?:rank|default|trainer|worker)(\d{1,9})\]):\s?"
)
_EPOCH = lazily(rf"\bepoch:?\s{{0,16}}\[?({_COUNT})(?:\s{{0,16}}/\s{{0,16}}({_COUNT}))?", re.IGNORECASE)
# Paddle's `step 10/100 - loss: 0.5 - 12ms/step` is of the same make.
_KERAS = lazily(rf"^\s*(?:step\s{{1,16}})?({_COUNT})/({_COUNT})\s+(?:[━=>.\[\]-]|\d{{1,9}}s\b)")
_RICH = lazily(rf"^Epoch ({_COUNT})/({_COUNT})\s[━╸╺\s]{{1,1000}}({_COUNT})/({_COUNT})\s(.*)$")
_IS_OTHER_BAR = lazily(rf"{_RICH.pattern}|{_KERAS.pattern}")  # read otherwise
# PyTorch's MNIST example, which half of all examples descend from: `Train Epoch: 1 [640/60000 (1%)]\tLoss: …`
_MNIST = lazily(
    rf"^train epoch:\s{{0,9}}({_COUNT})\s{{0,9}}\[({_COUNT})/({_COUNT})\s{{0,9}}\(\d{{1,3}}%\)\](.*)$",
    re.IGNORECASE,
)
_BOOSTING = lazily(rf"^(?:\[\d[\d:]{{0,16}}\]\s{{0,4}})?\[({_COUNT})\]\t(.+)$")
_CATBOOST = lazily(rf"^({_COUNT}):\t(.*\btotal:.*)$")
_ITEM = lazily(  # of a Python dictionary, as its repr has it
    rf"\s*'([^'\\]{{1,200}})':\s?(?:'([^'\\]{{0,200}})'|({NUMBER}))\s?([,}}])",
    re.IGNORECASE,
)
_FILLING = lazily(r"[\s|,;()\[\]-]")
# What is said beside: `eta: 0:10:00`, `step_avg:100.12ms`, `msg="train"`, `(+nanz)`, `120.5 ms`, `(7.0e+00)`.
_BESIDE = lazily(
    r"\b\w{1,16}[:=]\s{0,4}\d{1,9}(?::\d\d){1,2}\b"
    r"|\b(?:\w{1,16}[:=]\s?)?\d{1,9}(?:\.\d{1,9})?\s?(?:m?s|[a-z]{1,12}/s|s/[a-z]{1,8})\b"
    r"|\b\w{1,16}(?:/\w{1,8})?(?:[:=]\s{0,4}|\s{1,4})\d{1,9}(?:\.\d{1,9})?(?:\s?[KMGT]i?B|[KMGT])\b"
    r'|\b\w{1,16}="[^"]{0,200}"|\b(?:level|lvl|ts|time)=\S{1,40}|\([+-]?(?:nan|\d{1,9}(?:\.\d{1,9})?)z?\)',
    re.IGNORECASE,
)
# Whole parts of a line that are a number and its unit: `| 12.3K tok/s |`, `, 123ms/step,`, `- ETA 1h 20m`.
_PART_BESIDE = lazily(
    r"(?:\||[,;](?=\s)|\s-(?=\s)|\t)\s{0,4}(?:\d[\d,]{0,12}(?:\.\d{1,9})?\s?(?:%\s?)?[a-z]{1,12}"
    r"(?:\s[a-z]{1,12})?(?:/[a-z]{1,12})?|eta:?\s(?:\d{1,9}(?::\d\d){1,2}|\d{1,9}[dhms](?:\s?\d{1,2}[hms]){0,3}))"
    r"(?=\s{0,4}(?:$|[|;\t]|,\s)|\s{1,4}-\s)",
    re.IGNORECASE,
)
_OF = lazily(rf"\s{{1,4}}of\s{{1,4}}({_COUNT})(?![\w/-]|\.\d)")  # behind `step 5`
_THOUSANDS = lazily(  # `step:1K` of LeRobot
    rf"(?<![\w./-])(?i:({'|'.join(sorted(COUNTS))}))(\s?[=:]\s?|\s{{1,4}})(\d{{1,6}}(?:\.\d{{1,3}})?)([kKM])(?![\w.])"
)
_DIGITS = lazily(r"[\d.,+ -]{1,64}")
_TIME = lazily(r"^\W{0,16}\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16}\s*")
_RAY = lazily(r"^\(\w[\w.]{0,64}(?: pid=\d{1,9})(?:, ip=[\d.]{7,15})?\)\s")  # what Ray puts before a line
# `np.float64(0.5)`, `tensor(0.5, device='cuda:0')`, `Array([0.5], dtype=float32)`
_ARRAY = lazily(
    rf"\b(?:np\.\w{{1,16}}|tensor|array)\(\[?({NUMBER})\]?(?:, [a-z][^()]{{0,100}})?\)", re.IGNORECASE
)
# What logging libraries put before a message: all up to the level and, as Loguru does, a place in the code.
_RECORD = lazily(
    r"^\[(?:INFO|DEBUG)\|[^\]>]{0,64}\][^>]{0,64}>> "  # of Transformers
    r"|^.{0,160}?\b(?:INFO|DEBUG)\b[\s|:\]-]{0,16}(?:[\w.]{1,64}:[\w<>]{1,64}:\d{1,6} - |[\w.]{1,64}:(?=\{)"
    r"|\[[\w.]{1,64}:\d{1,6}\] )?"
    r"|^[ID]\d{4} [\d:.]{8,15}\s{1,8}\d{1,9} [\w.]{1,64}:\d{1,6}\] "
)
# Before a position: of an evaluation, or of an earlier moment.
_ASIDE = lazily(r"\b(?:eval\w*|val|valid\w*|test\w*|infer\w*|predict\w*|best)\b", re.IGNORECASE)
_OWN_LINE = '{"schemaVersion":'
_OWN_RECORD = '{"timestamp": "'
_BEST = "est iteration is:"  # LightGBM: the next line repeats an earlier round
_POSITION = {"step", "epoch"}
# More people may see the job than its log.
_SECRET = lazily(
    r"passw|passphrase|secret|credential|(?:api|access|private)[_-]?key|(?:^|[\W_])(?:token|pin|pwd)$",
    re.IGNORECASE,
)
# What is no measurement, where nothing else is said but a learning rate.
_SETTINGS = {
    "arch", "betas", "batch_size", "data", "dataset", "device", "dropout", "gamma", "gpu", "gpus", "model",
    "momentum", "num_workers", "optim", "optimizer", "patience", "seed", "warmup", "warmup_steps",
    "weight_decay", "workers", "world_size",
}  # fmt: skip
_CALL = lazily(r"\w{1,64}\(\w{1,64}=")  # the repr of settings
# What a logging library writes of each record.
_RECORD_NAMES = {
    "@timestamp", "attempt", "created", "level", "levelno", "line", "lineno", "msecs", "pid", "port",
    "process", "relativecreated", "severity", "thread", "time", "timestamp", "ts", "v",
}  # fmt: skip


def own_words(line: str) -> Optional[str]:
    """The line without the mark of rank 0; None when another rank printed it."""
    prefix = _RANK_PREFIX.match(line) if "]" in line else None
    if prefix is None:
        return line
    return line[prefix.end() :] if int(prefix.group(1) or prefix.group(2)) == 0 else None


def find_bar(line: str) -> Optional[Drawing]:
    """The bar that a line shows, whatever it stands for; None when it shows none."""
    if len(line) > MAX_LINE:
        return None
    return find_drawing(_ESCAPES.sub("", line) if "\x1b" in line else line)


class LineReader:
    """Reads one program's output, a line at a time, and remembers what later lines build on."""

    def __init__(self, search: Optional[Search] = None, *, sees_all: bool = True) -> None:
        """`search`: for a pattern of the user's; named groups are step, total, epoch, epochs, percentage,
        message, and otherwise metrics. It replaces everything that is known here. `sees_all`: no line of the
        program is missing."""
        self._search = search
        self._epoch: Optional[int] = None  # the one that runs, counted from 1
        self._epochs: Optional[int] = None
        self._batches: Optional[int] = None  # of that epoch
        self._batch = 0  # the last one of that epoch
        self._repeats = False  # the next line says what was said before
        self._bars = BarReader(sees_all=sees_all)
        self._known = FormReader()
        self._counts_from_0 = False  # epochs, in lines of names and numbers
        self._named: Optional[tuple[float, int]] = None  # such a one, and of how many, as it was printed
        self._forms: set[str] = set()  # of lines that say just enough
        self._said_step: Optional[int] = None  # by a line that is no bar
        self._is_bar = False  # the line that was read last

    def read(self, line: str, *, depth: int = 0) -> Optional[Fields]:
        """The fields of a report, or None when the line says nothing of progress.

        `depth`: how many lines below another bar's it stands, where control characters do not say so.
        """
        self._is_bar = False
        fields = self._read(line, depth)
        if fields and not self._is_bar and not _POSITION.isdisjoint(fields) and self._bars.is_behind(fields):
            fields = {"step": None, "total_steps": None, **fields}
        metrics = None if fields is None else fields.get("metrics")
        if not metrics or self._search is not None or not any(map(_SECRET.search, metrics)):
            return fields
        kept = {name: value for name, value in metrics.items() if not _SECRET.search(name)}
        fields = {**(fields or {}), "metrics": kept}
        return fields if kept else {name: fields[name] for name in fields if name != "metrics"} or None

    def _read(self, line: str, depth: int) -> Optional[Fields]:
        if len(line) > MAX_LINE:
            return None
        is_nested = depth > 0
        if "\x1b" in line:
            is_nested = is_nested or _CURSOR_UP in line
            line = _ESCAPES.sub("", line)
        words = own_words(line.rstrip())
        if words is None or not words.strip():
            return None
        if (begin := words.find(_OWN_LINE)) > 0:  # behind what the program has printed without a line end
            words = words[begin:]
        if self._search is not None:
            return self._read_own(self._search, words)
        if not _MAY_MEAN.search(words):
            self._repeats = False
            return None
        if words[0] == "(":
            words = _RAY.sub("", words)
        if words.startswith(_OWN_RECORD):
            return self._read_record(words)
        fields = self._known.read(words, _message)
        if fields is not None:
            self._said_step = fields.get("step", self._said_step)
            return fields or None
        if _may_be_bar(words):
            is_other = "%|" not in words and _IS_OTHER_BAR.match(words)
            fields = None if is_other else self._bars.read(words, is_nested=is_nested)
            if fields is not None:
                self._is_bar = True
                fields = fields if self._said_step is None else self._beside_lines(fields)
                at = words.rfind("]") + 1
                behind = words[at:].strip()
                if at and behind and "%|" in words[:at]:  # printed while the bar was there
                    said = self._read(behind, 0) or {}
                    metrics = {**fields.get("metrics", {}), **said.get("metrics", {})}
                    fields = {**fields, **said, **({"metrics": metrics} if metrics else {})}
                return fields or None
        repeats, self._repeats = self._repeats, words.endswith(_BEST)
        if repeats and _BOOSTING.match(words):
            return None
        readers: tuple[Callable[[str], Optional[Fields]], ...] = (
            _read_object, _read_rich, self._read_keras, _read_boosting, _read_counts, self._read_pairs,
        )  # fmt: skip
        for read in readers:
            fields = read(words)
            if fields is not None:
                self._said_step = fields.get("step", self._said_step)
                return fields or None
        return None

    def _read_record(self, line: str) -> Optional[Fields]:
        """A log line of `logging`: by its fields, else by its message."""
        fields = _read_object(line)
        if fields is not None:
            self._said_step = fields.get("step", self._said_step)
            return fields or None
        message = (_parse_object(line) or {}).get("message")
        return self.read(message) if isinstance(message, str) and message[:1] not in ("", "{") else None

    def copy(self) -> LineReader:
        """One that goes on from here by itself."""
        other = copy(self)
        other._bars, other._known = self._bars.copy(), self._known.copy()
        return other

    def find_end(self) -> Optional[tuple[float, int]]:
        """Epochs that are done, and planned, once the program has ended. Of those that count from 0 nothing
        else says it: the last one is over, and was it not called by the number of them, it was one less."""
        epoch, epochs = self._bars.named or self._named or (0, None)
        return None if epochs is None else (epoch, epochs + (epoch > epochs))

    def find_headed(self) -> Optional[int]:
        """The epoch that has begun, from 1, where a line of its own has said so and no bar how far it is."""
        return self._epoch if self._epochs and self._batches is None else None

    def _beside_lines(self, fields: Fields) -> Fields:
        """A bar is drawn ten times a second; a line that was printed meanwhile knows more."""
        said, drawn = self._said_step or 0, fields.get("step")
        if drawn is None:
            return fields
        if drawn < said <= drawn + max(0.05 * (fields.get("total_steps") or 0), 1):
            return {name: value for name, value in fields.items() if name != "step"}
        self._said_step = None
        return fields

    def _read_own(self, search: Search, line: str) -> Optional[Fields]:
        found = search(line)
        if found is None:
            return None
        groups = {name: text for name, text in found.items() if text is not None}
        fields: Fields = {}
        for group, field in _FIELD_OF_GROUP.items():
            if group in groups:
                text = groups.pop(group)
                fields[field] = text if field == "message" else to_number(text)
        metrics = {name: to_number(text) for name, text in groups.items()}
        return {**fields, "metrics": metrics} if metrics else fields

    def _read_keras(self, line: str) -> Optional[Fields]:
        epoch = _EPOCH.match(line)
        if epoch and epoch.end() == len(line.rstrip(": ")) and epoch.group(2):
            if self._bars.name_epochs:
                return {}  # what is left of a bar: fastprogress takes all but its name away
            said: Fields = {"epoch": int(epoch.group(1)), "total_epochs": int(epoch.group(2))}
            self._count_epochs(said)
            self._epoch, self._epochs = said["epoch"] + self._counts_from_0, said["total_epochs"]
            self._batches, self._batch = None, 0
            return {"epoch": said["epoch"] - (not self._counts_from_0), "total_epochs": self._epochs}
        match = _KERAS.match(line)
        if match is None:
            return None
        batch, batches = int(match.group(1)), int(match.group(2))
        metrics = read_entries(line[match.end() :])
        if self._epoch is None:  # the line that names the epoch is out of sight
            return {"metrics": metrics} if metrics and ("/step" in line or "/epoch" in line) else None
        if batches != (self._batches or batches) or batch < self._batch:
            # An evaluation or a prediction, which look alike; or a thread was late: Keras prints on several.
            return {}
        self._batches, self._batch = batches, batch
        fields: Fields = {"step": (self._epoch - 1) * batches + batch, "metrics": metrics}
        if self._epochs:
            fields["total_steps"] = self._epochs * batches
        if batch == batches:
            fields["epoch"] = self._epoch
        return fields

    def _read_pairs(self, line: str) -> Optional[Fields]:
        text = _plain(_message(line))
        pairs = find_pairs(text)
        if not pairs or not self._is_said_by(pairs, text):
            return self._read_both(text)
        if _are_settings(pair.name for pair in pairs) or (
            _CALL.match(text) and not any("loss" in pair.name.lower() for pair in pairs)
        ):
            return {}
        pairs = _with_totals([pair for pair in pairs if not is_place(pair, text)], text)
        position = next((pair.start for pair in pairs if pair.name.lower() in COUNTS), None)
        if position is None:
            pairs = _name_aside(pairs, text)
        elif _ASIDE.search(text, 0, position):
            return {}
        said: Metrics = {}
        values: Metrics = {}
        fields: Fields = {}
        doubted = find_doubted(pairs)
        has_loss = any("loss" in pair.name.lower() for pair in pairs)
        for pair in pairs:
            if pair.name in doubted or (pair.name.lower() == "steps" and not has_loss):
                continue  # `epochs: 10, steps: 1000` is a plan
            name = pair.name.lower()
            if name == "batch" and pair.total is not None and "epoch" in said:
                name = "step"
            if name in COUNTS:
                field = "epoch" if name == "epoch" else "step"
                if field in said:
                    continue  # the first of a line is where it stands
                said[field] = pair.value
                if pair.total is not None:
                    fields[f"total_{field}s"] = int(pair.total)
            elif pair.total is None:
                values[pair.name] = pair.value
        values = {**said, **values}
        if _is_another_ranks(values):
            return {}
        fields.update(_with_position(values))
        self._count_epochs(fields)
        if "total_steps" in fields and "step" in fields:
            self._put_in_epoch(fields)
        has_position = not _POSITION.isdisjoint(fields)
        is_assigned = not all(pair.sign.isspace() for pair in pairs)
        return fields if has_position or (is_assigned and _speaks_of_progress(fields)) else None

    def _read_both(self, text: str) -> Optional[Fields]:
        """`step 5: {'loss': 0.5}`"""
        at = text.find("{")
        if at <= 0 or text[-1] != "}":
            return None
        fields, values = self._read_pairs(text[:at]), _parse_object(text[at:])
        if not fields or not values or _POSITION.isdisjoint(fields):
            return None
        metrics = {name: value for name, value in values.items() if type(value) in (int, float)}
        return {**fields, "metrics": {**fields.get("metrics", {}), **metrics}}

    def _is_said_by(self, pairs: list[Pair], text: str) -> bool:
        """Whether a line says little else: prose, or a configuration, may have a number in it. One that has
        the form of an earlier one does, though its numbers are longer."""
        said = sum(pair.length for pair in pairs)
        if _begins_with_position(pairs, text):
            text = _PART_BESIDE.sub("", text)
        if said >= 0.6 * len(_FILLING.sub("", text)):
            is_much, left = True, text
        else:
            left = _BESIDE.sub("", text)
            is_much = said >= 0.6 * len(_FILLING.sub("", left))
        if is_much and said >= 0.8 * len(_FILLING.sub("", left)):
            return True
        form = _DIGITS.sub("0", text)
        if is_much and len(self._forms) < MAX_FORMS:
            self._forms.add(form)
        return is_much or form in self._forms

    def _put_in_epoch(self, fields: Fields) -> None:
        """`Epoch [3/10], Step [100/600]`: such steps begin anew with each epoch, as a rule, and where they do
        not, they are as far within it. So they say how much of the epoch is done, and nothing of the run."""
        epoch = fields.get("epoch")
        epoch = self._epoch if epoch is None else epoch + self._counts_from_0
        if not isinstance(epoch, int):  # there is none, or it says so itself: 1.35
            return
        step, total = fields.pop("step"), fields.pop("total_steps")
        if 0 <= step <= total and total > 0:
            fields["epoch"] = round(max(epoch - 1, 0) + step / total, 4)

    def _count_epochs(self, fields: Fields) -> None:
        """`Epoch 0/3`: such epochs count from 0, and whether there are three or four, the last one says."""
        epoch, epochs = fields.get("epoch"), fields.get("total_epochs")
        self._counts_from_0 = self._counts_from_0 or epoch == 0
        if self._counts_from_0 and epoch is not None and epochs is not None:
            self._named = epoch + 1, epochs
            fields["total_epochs"] = epochs + 1 if epoch == epochs else None


def _may_be_bar(line: str) -> bool:
    """Whether it has a part of a bar: of tqdm, rich, alive-progress, progressbar2, fastprogress or click."""
    return (
        "%|" in line or ("% " in line and "<" in line) or "━" in line
        or "%] in " in line or ") |" in line or "% [" in line
        or "#]" in line or "-]" in line
    )  # fmt: skip


def _read_object(line: str) -> Optional[Fields]:
    if not line.endswith("}"):
        return None
    text = (line if line[0] == "{" else _message(line)).strip()
    if not text.startswith("{"):
        return None
    values = _parse_object(text)
    if not values:
        return None
    if isinstance(values.get("trainerStatus"), dict):
        return _read_status(values["trainerStatus"])
    if "schemaVersion" in values or ("timestamp" in values and "progressPercentage" in values):
        fields: Fields = {
            ours: values[theirs] for theirs, ours in _FIELD_OF_DOCUMENT.items() if theirs in values
        }
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
    if _is_another_ranks(metrics):
        return {}
    if _are_settings(values, "batch"):
        return {}
    said = _with_position({name: value for name, value in metrics.items() if not isinstance(value, str)})
    has_text = any(isinstance(values[name], str) for name in said.get("metrics", ()))  # Katib's, HF's of v5
    return said if said and (has_text or _speaks_of_progress(said)) else None


def _read_status(status: dict[str, Any]) -> Fields:
    """What Kubeflow's clients push, as they print it."""
    fields: Fields = {ours: status[theirs] for theirs, ours in _FIELD_OF_DOCUMENT.items() if theirs in status}
    listed = status.get("metrics")
    metrics = {
        one["name"]: to_number(one.get("value"))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    return {**fields, **_with_position(metrics)}


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
        "metrics": read_entries(match.group(5)),
    }


def _read_boosting(line: str) -> Optional[Fields]:
    match = _BOOSTING.match(line)
    if match:
        metrics: Metrics = {}
        for part in match.group(2).split("\t"):
            name, _, value = part.rpartition(":")
            if name and _A_NUMBER.fullmatch(value.split("+")[0].strip()):
                metrics[name.strip().replace("'s ", "-")] = to_number(value.split("+")[0])
        # LightGBM counts from 1 and writes `: `, XGBoost counts from 0 and writes `:`.
        first = 0 if re.search(r":\s", match.group(2)) else 1
        return {"step": int(match.group(1)) + first, "metrics": metrics} if metrics else None
    match = _CATBOOST.match(line)
    if match is None:
        return None
    return {
        "step": int(match.group(1)) + 1,
        "metrics": read_entries(match.group(2).split("total:")[0].split("best:")[0]),
    }


def _read_counts(line: str) -> Optional[Fields]:
    """The example that counts rows within an epoch."""
    match = _MNIST.match(line)
    if match is None or int(match.group(3)) == 0:
        return None
    epoch = int(match.group(1)) - 1 + min(1.0, int(match.group(2)) / int(match.group(3)))
    metrics = read_metrics(match.group(4))
    return {"epoch": round(max(epoch, 0), 4), **({"metrics": metrics} if metrics else {})}


def _is_another_ranks(values: dict[str, Any]) -> bool:
    """Whether a line says that rank 1 or a later one printed it. That rank 0 did is no metric."""
    for name in ("rank", "Rank", "global_rank"):
        if isinstance(values.get(name), int) and values.pop(name) != 0:
            return True
    return False


def _message(line: str) -> str:
    """Without a time, and without what a logging library puts before it."""
    time = _TIME.match(line)
    text = line[time.end() :] if time else line
    if "INFO" in text or "DEBUG" in text or text[:1] in "ID":
        record = _RECORD.match(text)
        return text[record.end() :] if record else text
    return text


def _plain(text: str) -> str:
    """With numbers in place of arrays of one, and of counts that are cut to thousands."""
    if "K" in text or "k" in text or "M" in text:
        text = _THOUSANDS.sub(_write_out, text)
    return _ARRAY.sub(r"\1", text) if "(" in text else text


def _write_out(match: re.Match[str]) -> str:
    name, sign, count, unit = match.groups()
    return f"{name}{sign}{round(float(count) * (1_000_000 if unit == 'M' else 1000))}"


def _begins_with_position(pairs: list[Pair], text: str) -> bool:
    """Whether a line says first where the run stands, and then a measurement."""
    first, *more = pairs
    begins = first.name.lower() in COUNTS and not re.search(r"\w", text[: first.start])
    return begins and any(pair.name.lower() not in COUNTS and isinstance(pair.value, float) for pair in more)


def _with_totals(pairs: list[Pair], text: str) -> list[Pair]:
    """`Epoch 3 of 5, loss 0.5`. Without a measurement it may be anything else: `Step 2 of 5: done`."""
    counted = {"batch", *COUNTS}
    if " of " not in text or all(pair.name.lower() in counted for pair in pairs):
        return pairs
    return [
        pair._replace(total=of.group(1))
        if pair.total is None
        and pair.name.lower() in counted
        and (of := _OF.match(text, pair.start + pair.length))
        else pair
        for pair in pairs
    ]


def _name_aside(pairs: list[Pair], text: str) -> list[Pair]:
    """Measurements of an evaluation, by names that say so: `Test: loss: 0.4 acc: 0.9`."""
    start = pairs[0].start if pairs else 0
    aside = _ASIDE.search(text, 0, start) or _ASIDE.match(text, start)
    if aside is None or (aside.start() == start and not pairs[0].name.startswith(f"{aside.group()}_")):
        return pairs
    part = f"{aside.group()}_"
    return [pair if pair.name.startswith(part) else pair._replace(name=part + pair.name) for pair in pairs]


def _are_settings(names: Iterable[str], *more: str) -> bool:
    """Whether what is named so is set before a run. `more`: what may be a setting here."""
    named = {name.lower() for name in names} - COUNTS - {"lr", "learning_rate"}
    return bool(named) and named <= _SETTINGS.union(more)


def _speaks_of_progress(fields: Fields) -> bool:
    """Whether these are measurements: `world_size: 8` and `{"pid": 7}` are not."""
    if not _POSITION.isdisjoint(fields):
        return True
    return any(isinstance(value, float) for value in fields.get("metrics", {}).values())


def _with_position(values: Mapping[str, Any]) -> Fields:
    """Values by name, with steps and epochs taken out of them."""
    metrics = dict(values)
    fields: Fields = {}
    for name in list(metrics):
        if isinstance(metrics[name], str):
            continue
        if name.lower() == "epoch":
            fields["epoch"] = metrics.pop(name)
        elif name.lower() in COUNTS:
            fields["step"] = metrics.pop(name)
        elif name.lower() in ("total_steps", "total_epochs"):
            fields[name.lower()] = metrics.pop(name)
    return {**fields, "metrics": metrics} if metrics else fields


def _parse_object(text: str) -> Optional[dict[str, Any]]:
    """A JSON object, or the repr of a flat Python dictionary as Hugging Face prints it."""
    if text.startswith("{'"):
        return _parse_repr(_plain(text))
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
