"""Lines of frameworks whose forms say more than names and numbers do. Pure: text in, fields of a report out.

Ultralytics, OpenMMLab (mmengine, mmcv), fairseq, Megatron, DeepSpeed, NeMo and others. What is said of a
validation is no position. A line may be hostile (`lines`): repetitions that may meet are bounded.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Callable, Optional

from .objects import Form
from .pairs import NUMBER, Metrics, read_metrics, to_number
from .patterns import lazily

Fields = dict[str, Any]

_COUNT = r"\d{1,15}"
# `   1/100   2.3G   1.204  …  20   640:  45%|████▌     | 45/100 [00:10<00:12, 4.41it/s]`, or, of Ultralytics'
# own bar since 8.3, `… 640: 45% ━━━━━╸────── 45/100 4.4it/s 10.2s<12.3s`.
_YOLO = lazily(
    rf"^\s{{0,16}}({_COUNT})/({_COUNT})((?:\s{{1,16}}[\w.+-]{{1,12}}){{3,16}}):\s{{1,4}}\d{{1,3}}%"
    rf".{{0,300}}?\s({_COUNT})/({_COUNT})\s"
)
_YOLO_HEAD = lazily(r"^\s{0,16}Epoch\s{1,16}(?:GPU|gpu)_mem((?:\s{1,16}\w{1,32}){1,16})\s*$")
_OPENMMLAB = lazily(
    rf"^(Epoch|Iter)(?:\((\w{{1,16}})\))?\s{{1,16}}\[\s{{0,9}}({_COUNT})(?:/({_COUNT}))?\]"
    rf"(?:\[\s{{0,9}}({_COUNT})/({_COUNT})\])?(?:\s(.*))?$"
)
_FAIRSEQ = lazily(
    rf"^([\w.-]{{1,64}}) \| epoch ({_COUNT})"
    rf"(?::\s{{1,9}}({_COUNT}) / ({_COUNT}))?[\s|](.*)$"
)
_MEGATRON = lazily(
    rf"^\s{{0,4}}(?:\[[\d: .-]{{19,26}}\]\s{{0,4}})?(?:samples/sec: [\d.]{{1,16}} \|\s)?"
    rf"\s{{0,4}}iteration\s{{1,16}}({_COUNT})/\s{{0,16}}({_COUNT})\s\|(.*)$"
)
_DEEPSPEED = lazily(
    rf"\[Rank (-1|{_COUNT})\] step=({_COUNT}), (.*)$|\bmicro_step=({_COUNT})/global_step=({_COUNT}), (.*)$"
)
_LIST = lazily(rf"\b(\w{{1,32}})=\[({NUMBER})[\],]", re.IGNORECASE)  # of groups of parameters: the first
_NEMO = lazily(rf"(?:^|\s)Training epoch ({_COUNT}), iteration ({_COUNT})/({_COUNT})((?:\s\||$).*)$")
# `Epoch: [1][  10/5000]\tTime …`, `Epoch: [3]  [  10/1000]  eta: …`, `[3/10][20/100]\tLoss_D: …`.
_EXAMPLE = lazily(
    rf"^\s{{0,4}}(?:Train: (?=\[))?(?:Epoch: \[\s{{0,4}}(?={_COUNT}\])|\[(?={_COUNT}/))"
    rf"({_COUNT})(?:/{_COUNT})?\]\s{{0,4}}"
    rf"\[\s{{0,9}}({_COUNT})/\s{{0,9}}({_COUNT})\]:?\s(.*)$"
)
# timm's `Train: 3 [  50/1251 (  4%)]  Loss: 6.50 (6.60) …`.
_TIMM = lazily(rf"^Train: ({_COUNT}) \[\s{{0,9}}({_COUNT})/({_COUNT}) \(\s{{0,3}}\d{{1,3}}%\)\]\s(.*)$")
# ESPnet's `2/3epoch started.`, `2epoch:train:1-682batch: loss=0.1`, `2epoch results: [train] …, [valid] …`.
_ESPNET = lazily(
    rf"^(?:.{{0,160}}\bINFO: )?({_COUNT})"
    rf"(?:/({_COUNT})epoch started|epoch(?::train:[\d-]{{1,31}}batch| results):(.*)$)"
)
_TUTORIAL = lazily(rf"^\[(?P<epoch>{_COUNT}),\s{{1,8}}{_COUNT}\] (?P<metrics>loss: .*)$")
# CLU's, of JAX's examples.
_CLU = lazily(rf"\blogging_writer\.py:\d{{1,5}}\] \[(?P<step>{_COUNT})\] (?P<metrics>.*)$")
_CLU_NOTES = lazily(
    rf"\bSetting work unit notes: .{{0,64}}% \((?P<step>{_COUNT})/(?P<total_steps>{_COUNT})\)"
)
# Stable-Baselines3's tables: `| time/ | |`, `|    total_timesteps | 256 |`.
_CELLS = lazily(
    rf"^\|\s(\s{{3}})?([\w./-]{{1,64}})\s{{1,64}}\|\s{{1,64}}(?:({NUMBER})\s{{1,64}})?\|$", re.IGNORECASE
)
# Tables, a row an epoch or an iteration: of fastai, skorch, scikit-learn, spaCy.
_TABLE_HEAD = lazily(r"^\s{0,16}(?:E|[Ee]poch|[Ii]ter)\s{2,16}[^\s\d].{0,500}$")
_CELL = rf"(?:{NUMBER})(?:[ms]|(?::\d\d){{1,2}})?|None|#na#|\+"
_ROW = lazily(rf"^\s{{0,16}}{_COUNT}(?:\s{{1,32}}(?:{_CELL})){{1,32}}\s{{0,8}}$", re.IGNORECASE)
_RAY = lazily(rf"^Training finished iteration (?P<step>{_COUNT}) at ")
_COMPOSER = lazily(rf"^\[(?:epoch=({_COUNT})\]\[)?batch=({_COUNT})/({_COUNT})\]:?$")
_FLOWER = lazily(rf"^\[ROUND ({_COUNT})(?:/({_COUNT}))?\]$|^Run finished ({_COUNT}) round\(s\) in ")
_ROUNDS = Form("rounds of clients", "rounds of clients", is_plain=True)
_MARIAN = lazily(rf"^Ep\. [\d.]{{1,9}} : Up\. (?P<step>{_COUNT}) : Sen\. [\d,.]{{1,24}} : (?P<metrics>[^*]*)")
_PART = lazily(rf"^\s{{0,16}}([A-Za-z][^:|=]{{0,62}}?)(?::\s{{0,16}}|\s)({NUMBER})\s{{0,16}}$", re.IGNORECASE)


class FormReader:
    """Reads such lines, and remembers what later ones build on."""

    def __init__(self) -> None:
        self._names: list[str] = []  # of the columns of Ultralytics' table
        self._counts_from_0 = False  # its epochs: YOLOv5's do
        self._section = ""  # of Stable-Baselines3's table
        self._columns: list[str] = []  # of another table
        self._row = -1  # the first cell of its last row
        self._rows_from_0 = False
        self._readers: tuple[tuple[str, Callable[[str], Optional[Fields]]], ...] = (
            ("% ", self._read_yolo), ("%|", self._read_yolo), ("_mem ", self._read_yolo_head),
            ("Epoch", _read_openmmlab), ("Iter", _read_openmmlab),
            ("| epoch", _read_fairseq), ('num_updates": ', _read_fairseq_object),
            ("iteration ", _read_megatron), ("step=", _read_deepspeed), ("Training epoch ", _read_nemo),
            ("epoch started", _read_espnet), ("epoch:train:", _read_espnet), ("epoch results:", _read_espnet),
            ("logging_writer.py:", _read_clu), ("work unit notes:", _read_clu_notes),
            ("Averaged stats:", _read_nothing), ("] loss: ", partial(_read_named, _TUTORIAL)),
            ("  |", self._read_cells), ("  ", self._read_table),
            ("[ROUND ", _read_flower), ("round(s) in", _read_flower),
            ("[valid] Ep. ", _read_nothing), (" : Up. ", partial(_read_named, _MARIAN)),
            ("finished iteration ", partial(_read_named, _RAY)), ("batch=", _read_composer),
            ("Epoch: [", _read_example), ("][", _read_example), ("%)]", _read_example),
        )  # fmt: skip

    def copy(self) -> FormReader:
        """One that goes on from here by itself."""
        other = FormReader()
        other._names, other._counts_from_0 = self._names, self._counts_from_0
        other._section, other._columns = self._section, self._columns
        other._row, other._rows_from_0 = self._row, self._rows_from_0
        return other

    def read(self, line: str, strip: Callable[[str], str]) -> Optional[Fields]:
        """The fields of a report, perhaps none; None when the line has none of these forms. `strip`: takes a
        time, and what logging libraries put before a message, off a line."""
        for mark, read in self._readers:
            if mark in line:
                fields = read(line if read in _OF_WHOLE_LINES else strip(line))
                if fields is not None:
                    return fields
        return None

    def _read_yolo_head(self, text: str) -> Optional[Fields]:
        match = _YOLO_HEAD.match(text)
        if match is None:
            return None
        self._names = match.group(1).split()
        return {}

    def _read_yolo(self, text: str) -> Optional[Fields]:
        match = _YOLO.match(text)
        if match is None:
            return {} if self._names else None  # of its validation
        epoch, epochs, step, total = (int(match.group(place)) for place in (1, 2, 4, 5))
        self._counts_from_0 = self._counts_from_0 or epoch == 0
        if self._counts_from_0:
            epoch, epochs = epoch + 1, epochs + 1
        if not 0 < epoch <= epochs or not step <= total or total == 0:
            return {}
        columns = match.group(3).split()[1:]  # behind the memory
        named = zip(self._names, columns) if len(self._names) == len(columns) else ()  # noqa: B905 — younger than 3.9
        metrics = {name: to_number(text) for name, text in named if name not in ("Instances", "Size")}
        return {
            "step": (epoch - 1) * total + step,
            "total_steps": epochs * total,
            "epoch": epoch - 1 + (1 if step == total else 0),
            "total_epochs": epochs,
            **({"metrics": metrics} if metrics else {}),
        }

    def _read_cells(self, text: str) -> Optional[Fields]:
        match = _CELLS.match(text)
        if match is None:
            return None
        is_inner, name, number = match.groups()
        if number is None:
            self._section = name if name.endswith("/") and not is_inner else ""
        if number is None or not (is_inner and self._section) or name.endswith("..."):
            return {}
        if (self._section, name) == ("time/", "total_timesteps"):
            return {"step": to_number(number)}
        return {"metrics": {self._section + name: to_number(number)}}

    def _read_table(self, text: str) -> Optional[Fields]:
        if _TABLE_HEAD.match(text):
            self._columns = [name for name in re.split(r"\s{2,}", text.strip()) if name != "cp"]
            self._row = -1
            return {}
        if not self._columns or not _ROW.match(text):
            return None
        cells = [cell for cell in text.split() if cell != "+"]  # skorch's mark of a checkpoint
        at = int(cells[0])
        if len(cells) != len(self._columns) or at < self._row:
            return None
        self._rows_from_0 = at == 0 if self._row < 0 else self._rows_from_0
        self._row = at
        values = {name: to_number(cell) for name, cell in zip(self._columns, cells)}  # noqa: B905 — younger than 3.9
        kind = self._columns[0].lower()
        del values[self._columns[0]]
        fields: Fields = {"step" if kind == "iter" else "epoch": at}
        if "#" in values:  # spaCy's: its row comes within an epoch
            fields["step"] = values.pop("#")
        elif kind != "iter":
            fields["epoch"] += self._rows_from_0
        return {
            **fields,
            "metrics": {name: cell for name, cell in values.items() if not isinstance(cell, str)},
        }


def _read_openmmlab(text: str) -> Optional[Fields]:
    match = _OPENMMLAB.match(text)
    if match is None:
        return None
    kind, mode, first, first_total, step, total, rest = match.groups()
    if mode not in (None, "train"):
        return {}
    metrics = _metrics(rest or "")
    if kind == "Iter" and first_total:
        return {"step": int(first), "total_steps": int(first_total), **metrics}
    if kind == "Epoch" and total and int(total) > 0:
        return {**_in_epoch(int(first), int(step), int(total)), **metrics}
    return None


def _read_fairseq(text: str) -> Optional[Fields]:
    match = _FAIRSEQ.match(text)
    if match is None:
        return None
    kind, epoch, step, total, rest = match.groups()
    if kind.lower() not in ("train", "train_inner"):
        return {}
    metrics = read_metrics(rest)
    updates = metrics.pop("num_updates", None)
    done: Fields = {"epoch": int(epoch)}
    if total and int(total) > 0:
        done = {"epoch": _in_epoch(int(epoch), int(step), int(total))["epoch"]}
    if isinstance(updates, int):
        done["step"] = updates
    return {**done, **({"metrics": metrics} if metrics else {})}


def _read_fairseq_object(text: str) -> Optional[Fields]:
    """`--log-format json`. At an epoch's end each name begins with that of the subset."""
    import json

    try:
        values = json.loads(text[max(text.find("{"), 0) :])
        epoch = int(values["epoch"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    prefix = "train_" if "train_num_updates" in values else ""
    if f"{prefix}num_updates" not in values:
        return {}
    metrics = {key[len(prefix) :]: to_number(values[key]) for key in values if key.startswith(prefix)}
    metrics.pop("epoch", None)
    done, step = metrics.pop("update", epoch), metrics.pop("num_updates")
    position = {"step": step, "epoch": done}
    numbers = {name: value for name, value in position.items() if isinstance(value, (int, float))}
    return {**numbers, "metrics": metrics}


def _read_megatron(text: str) -> Optional[Fields]:
    match = _MEGATRON.match(text)
    if match is None:
        return None
    step, total, rest = match.groups()
    return {"step": int(step), "total_steps": int(total), **_columns(rest)}


def _read_deepspeed(text: str) -> Optional[Fields]:
    match = _DEEPSPEED.search(text)
    if match is None:
        return None
    rank, step, rest, _, global_step, timed = match.groups()
    if rank is not None and int(rank) > 0:  # -1: there is one process
        return {}
    metrics = read_metrics(rest or timed)
    metrics.update({name: to_number(first) for name, first in _LIST.findall(rest or timed)})
    return {"step": int(step or global_step), **({"metrics": metrics} if metrics else {})}


def _read_nemo(text: str) -> Optional[Fields]:
    """Epochs and steps count from 0. The last iteration is the run's, or the epoch's: nobody says which."""
    match = _NEMO.search(text)
    if match is None:
        return None
    fields = _columns(match.group(4))
    step = fields.get("metrics", {}).pop("global_step", None)
    return {"epoch": int(match.group(1)), **({"step": step + 1} if isinstance(step, int) else {}), **fields}


def _read_example(text: str) -> Optional[Fields]:
    """Of PyTorch's, torchvision's and timm's, from which many are made: epochs and batches count from 0."""
    match = _EXAMPLE.match(text) or _TIMM.match(text)
    if match is None:
        return None
    epoch, step, total = (int(match.group(place)) for place in (1, 2, 3))
    return {**_in_epoch(epoch + 1, step, max(total, 1)), **_metrics(match.group(4))}


def _read_espnet(text: str) -> Optional[Fields]:
    match = _ESPNET.match(text)
    if match is None:
        return None
    epoch, epochs, rest = int(match.group(1)), match.group(2), match.group(3) or ""
    if epochs is not None:
        return {"epoch": max(epoch - 1, 0), "total_epochs": int(epochs)}
    train, _, valid = rest.partition("[valid]")
    metrics = {
        **read_metrics(train),
        **{f"valid_{name}": value for name, value in read_metrics(valid).items()},
    }
    done = epoch if "results:" in text else max(epoch - 1, 0)
    return {"epoch": done, **({"metrics": metrics} if metrics else {})}


def _read_flower(text: str) -> Optional[Fields]:
    """A round is named when it begins."""
    match = _FLOWER.match(text)
    if match is None:
        return None
    begun, rounds, done = match.groups()
    plan = {"total_steps": int(rounds)} if rounds else {}
    return {"step": int(done) if done else max(int(begun) - 1, 0), **plan, "form": _ROUNDS}


def _read_composer(text: str) -> Optional[Fields]:
    """A batch is one of the epoch that is named, which counts from 1, else of the run."""
    match = _COMPOSER.match(text)
    if match is None:
        return None
    epoch, step, total = match.groups()
    if epoch is None:
        return {"step": int(step), "total_steps": int(total)}
    return _in_epoch(int(epoch), int(step), max(int(total), 1))


def _read_named(form: re.Pattern[str], text: str) -> Optional[Fields]:
    """By groups that are named as fields."""
    match = form.search(text)
    if match is None:
        return None
    said = match.groupdict()
    metrics = _metrics(said.pop("metrics")) if "metrics" in said else None
    return {} if metrics == {} else {**{name: int(said[name]) for name in said}, **(metrics or {})}


def _read_nothing(_: str) -> Optional[Fields]:
    return {}


def _in_epoch(epoch: int, step: int, total: int) -> Fields:
    """`step` of `total` in an epoch that counts from 1; how many epochs there are, nobody says."""
    before = max(epoch - 1, 0)
    return {"step": before * total + step, "epoch": round(before + min(step / total, 1.0), 4)}


def _metrics(text: str) -> Fields:
    metrics = read_metrics(text)
    return {"metrics": metrics} if metrics else {}


def _columns(text: str) -> Fields:
    """`name: number | name: number |`: names as they are, blanks and all."""
    metrics: Metrics = {}
    for part in text.split("|"):
        match = _PART.match(part)
        if match is not None:
            metrics[match.group(1)] = to_number(match.group(2))
    return {"metrics": metrics} if metrics else {}


_read_clu, _read_clu_notes = partial(_read_named, _CLU), partial(_read_named, _CLU_NOTES)
_OF_WHOLE_LINES = {_read_espnet, _read_clu, _read_clu_notes}  # the place in the code is part of the form
