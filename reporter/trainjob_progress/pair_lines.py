"""Lines made of names and numbers: which say where a run stands, and which name a measurement. Pure."""

from __future__ import annotations

import math
import re
from copy import copy
from typing import Optional

from .objects import (
    OF_RUN,
    POSITION,
    Fields,
    Form,
    are_settings,
    is_another_ranks,
    parse_object,
    says_measured,
    speaks_of_progress,
    with_position,
)
from .pairs import COUNTS, EPOCHS, Metrics, Pair, find_doubted, find_pairs, is_place, to_plain
from .patterns import lazily

MAX_BESIDE = 2048  # characters; in a longer line all else that is said counts, whatever it is
_COUNT = r"\d{1,15}"
_FILLING = lazily(r"[\s|,;()\[\]=#*-]")
# What is said beside: `eta: 0:10:00`, `12.3K tok/s`, `msg="train"`, `env=dev`, `(+nanz)`, `(7.0e+00)`.
_BESIDE = lazily(
    r"\b(?:\w{1,16}[:=]\s{0,4}|(?:eta|elapsed|time)\s)?(?:(?:\d{1,4} days?, )?\d{1,9}(?::\d\d){1,2}\b"
    r"|\d[\d,]{0,12}(?:\.\d{1,9})?\s?(?:%|m?s\b|[kKMGT]i?B?\b|[kKMGT]?\s?[a-z]{1,12}/[a-z]{1,8}\b))"
    r'|\b\w{1,16}=(?:"[^"]{0,200}"|[a-z][^\s,;]{0,40})|\b(?:ts|time|timestamp)=\S{1,40}'
    r"|\([+-]?(?:nan|\d{1,9}(?:\.\d{1,9})?)z?\)",
    re.IGNORECASE,
)
_LOSS = lazily(r"loss\b.{0,48}?(?:\d\.\d|nan\b|inf\b)", re.IGNORECASE)
_DIGITS = lazily(r"[\d.,+ -]{1,64}")
_QUOTED = lazily(r'="([^"]{0,200})"')
# Of what follows it: `train: loss 0.5 val: loss 0.6`, `[valid] loss=0.6`, `Epoch 3 val step 10/20 loss 0.6`.
# Not `env=dev`.
_LABEL = lazily(
    r"(?<![\w.-])(?:(eval(?:uation)?|val|valid(?:ation)?|test|(?<!=)dev)|train(?:ing)?)(?![\w.-])",
    re.IGNORECASE,
)
_LETTER = lazily(r"[^\W\d]")
_PROSE = lazily(r"[^\W\d_]{3}")
# Before a position: of an evaluation, or of an earlier moment.
_ASIDE = lazily(r"\b(?:eval\w*|val|valid\w*|test\w*|infer\w*|predict\w*|best)\b", re.IGNORECASE)
_BEST = lazily(r"\bbest\b", re.IGNORECASE)
# What counts steps of its own, or ends with one.
_ANOTHER = lazily(r"\b(?:warm-?up|burn-?in|ppo|critic|inner|micro|finder)\b", re.IGNORECASE)
_WORD = lazily(r"[^\W\d_]+|#|(?<=[\[(])\d{1,6}(?:/\d{1,6})?(?=[\])])|^\s{0,8}\d{1,6}:\s")
# What else may stand before the position of a training: its part, a log record's level, a tag.
_BEFORE = {
    "after", "at", "begin", "beginning", "completed", "current", "debug", "end", "fine", "finetune",
    "finetuning", "finished", "global", "i", "info", "learning", "main", "model", "of", "optimizer", "pid",
    "pretrain", "pretraining", "rank", "root", "running", "saved", "start", "starting", "train", "trainer",
    "training", "tuning", "warning",
}  # fmt: skip
_TAG = lazily(
    r"\[[A-Za-z](?:[\w.-]{0,62}[A-Za-z.])?\]|(?<![\w.])[A-Za-z]\w{0,31}(?:\.\w{1,32}){1,6}(?![\w.])"
)


class Epochs:
    """How one program counts its epochs, and the steps in them."""

    def __init__(self) -> None:
        self.counts_from_0 = False
        self.named: Optional[tuple[float, int]] = None  # such a one, and of how many, as it was printed
        self.current: Optional[int] = None  # that a line of its own has named, from 1
        self._last = (0, 0, 0)  # epoch, step and total of the last line with steps of an epoch
        self._begin_anew: Optional[bool] = None  # those steps do, with each epoch; None: not seen yet

    def count(self, fields: Fields) -> None:
        """`Epoch 0/3`: such epochs count from 0, and whether there are three or four, the last one says."""
        epoch, epochs = fields.get("epoch"), fields.get("total_epochs")
        self.counts_from_0 = self.counts_from_0 or epoch == 0
        if self.counts_from_0 and epoch is not None and epochs is not None:
            self.named = epoch + 1, epochs
            fields["total_epochs"] = epochs + 1 if epoch == epochs else None

    def put_steps(self, fields: Fields, *, is_inner: bool) -> None:
        """`Epoch [3/10], Step [100/600]`: such steps begin anew with each epoch, as a rule. So they say how
        much of it is done, and nothing of the run, until they have gone on from one epoch to the next. Steps
        that are named first are the run's, until they have begun anew."""
        epoch = fields.get("epoch")
        epoch = self.current if epoch is None else epoch + self.counts_from_0
        if not isinstance(epoch, int):  # there is none, or it says so itself: 1.35
            return
        step, total = fields["step"], fields["total_steps"]
        last, self._last = self._last, (epoch, step, total)
        if 0 < last[0] < epoch and last[2] == total and last[1] != step:
            begin_anew, self._begin_anew = self._begin_anew, step < last[1]
            if self._begin_anew and begin_anew is None and not is_inner:
                fields.update(step=None, total_steps=None)  # they were taken for the run's
        if not (is_inner if self._begin_anew is None else self._begin_anew):
            return
        if fields["step"] is not None:
            del fields["step"], fields["total_steps"]
        if 0 <= step <= total and total > 0:
            fields["epoch"] = round(max(epoch - 1, 0) + step / total, 4)


class PairReader:
    """Reads such lines, and remembers what later ones build on."""

    def __init__(self, epochs: Epochs) -> None:
        self.epochs = epochs
        self._names_run = False  # steps are named as the run's, and go on: others are of something else
        self._run_step = math.inf  # the last one
        self._names_epochs = False  # then an episode is a part of one, or has some: a measurement
        self._step: object = None  # the last one that is named so only

    def copy(self, epochs: Epochs) -> PairReader:
        """One that goes on from here by itself."""
        other = copy(self)
        other.epochs = epochs
        return other

    def read(self, line: str, *, is_whole: bool = True) -> Optional[Fields]:
        """The fields of a report, perhaps none; None when the line says nothing of progress. `is_whole`: no
        measurements stand behind it."""
        text = to_plain(line)
        found = find_pairs(text)
        pairs = [pair for pair in found if not is_place(pair, text)]
        position = next((pair.start for pair in pairs if pair.name.lower() in COUNTS), None)
        is_measured = says_measured(pair.name for pair in pairs) or _LOSS.search(text) is not None
        if text.endswith("}") and (both := self._read_both(text)) is not None:
            return both
        is_all = bool(pairs) and _are_said(pairs, text)
        is_measured = is_measured or not is_whole
        if not is_all and not (is_measured and position is not None):
            return None
        words = "" if position is None else _find_words(found, text, position)
        if words is None or (words and not is_measured):
            return {}
        if not is_all:
            pairs = [pair for pair in pairs if _is_sure(pair)]
        if are_settings(pair.name for pair in pairs):
            return {}
        pairs = _name_aside(pairs, text) if position is None else _name_labelled(pairs, text)
        for pair in pairs:
            if pair.name.lower() in OF_RUN:
                self._names_run = (
                    self._names_run or self._run_step < pair.value
                ) and self._step != pair.value
                self._run_step = pair.value
            elif pair.name.lower() in COUNTS - EPOCHS:
                self._step = pair.value
        fields, values = self._sort(pairs)
        if is_another_ranks(values):
            return {}
        fields.update(with_position(values))
        self.epochs.count(fields)
        if "total_steps" in fields and "step" in fields:
            first = next(name for name in fields if name in POSITION)
            self.epochs.put_steps(fields, is_inner=first == "epoch" or "epoch" not in fields)
        if POSITION.isdisjoint(fields):
            is_assigned = not all(pair.sign.isspace() for pair in pairs)
            return fields if is_assigned and speaks_of_progress(fields) else None
        names: object = ""
        if not is_measured:
            left = _leave_out(found, text, position or 0)
            if "epoch" not in fields and _PROSE.search(_BESIDE.sub("", left)) is not None:
                return {}  # `Step 2/5 done` of a script
            names = _DIGITS.sub("0", text)
        is_plain = not words and is_measured
        texts = tuple(_DIGITS.sub("0", quoted) for quoted in _QUOTED.findall(text)) if '="' in text else ()
        totals = (pair.total for pair in pairs if pair.total is not None and pair.name.lower() in COUNTS)
        kind = is_measured, *(pair.name for pair in pairs if pair.name.lower() in COUNTS)
        form = Form(kind, (kind, words or names, *totals), texts, is_plain, bool(words))
        return {**fields, "form": form}

    def _sort(self, pairs: list[Pair]) -> tuple[Fields, Metrics]:
        """Totals, and values by name: the first step and the first epoch are where the line stands."""
        said: Metrics = {}
        values: Metrics = {}
        totals: Fields = {}
        doubted = find_doubted(pairs)
        names = {pair.name.lower() for pair in pairs}
        has_loss = any("loss" in name for name in names)
        self._names_epochs = self._names_epochs or "epoch" in names
        names_run = self._names_run or not OF_RUN.isdisjoint(names)
        for pair in pairs:
            name = pair.name.lower()
            if pair.name in doubted or (name == "steps" and not has_loss):
                continue  # `epochs: 10, steps: 1000` is a plan
            if name == "batch" and pair.total is not None and "epoch" in said:
                name = "step"
            if name in COUNTS:
                field = "epoch" if name in EPOCHS else "step"
                if (
                    field in said
                    or (name == "episode" and (self._names_epochs or "epoch" in names))
                    or (field == "step" and "episode" in names)
                    or (name == "iter" and "step" in names)  # of LitGPT: a micro-batch
                    or (field == "step" and names_run and name not in OF_RUN)
                ):
                    continue
                said[field] = pair.value
                if pair.total is not None:
                    totals[f"total_{field}s"] = int(pair.total)
            elif pair.total is None:
                values[pair.name] = pair.value
        return totals, {**said, **values}

    def _read_both(self, text: str) -> Optional[Fields]:
        """`step 5: {'loss': 0.5}`"""
        at = text.find("{")
        if at <= 0:
            return None
        values = parse_object(text[at:])
        if not values:
            return None
        fields = self.read(text[:at], is_whole=not any(isinstance(one, float) for one in values.values()))
        if not fields or POSITION.isdisjoint(fields):
            return None
        metrics = {name: value for name, value in values.items() if type(value) in (int, float)}
        return {**fields, "metrics": {**fields.get("metrics", {}), **metrics}}


def _are_said(pairs: list[Pair], text: str) -> bool:
    """Whether a line says little else: prose, or a configuration, may have a number in it."""
    said = sum(pair.length for pair in pairs)
    if said >= 0.6 * len(_FILLING.sub("", text)):
        return True
    return len(text) <= MAX_BESIDE and said >= 0.6 * len(_FILLING.sub("", _BESIDE.sub("", text)))


def _is_sure(pair: Pair) -> bool:
    """Whether it is one among words, too: `over 1000.00 frames` is none."""
    return not pair.sign.isspace() or pair.name.lower() in COUNTS or says_measured([pair.name])


def _find_words(pairs: list[Pair], text: str, position: int) -> Optional[str]:
    """What stands before a position, if that has an unknown word: all there is to tell whose it is. None if
    it is an evaluation's, another rank's or an earlier moment's."""
    before = _BESIDE.sub("", _leave_out([pair for pair in pairs if pair.start < position], text[:position]))
    if _ASIDE.search(before) or _ANOTHER.search(before) or _BEST.search(text, 0, position):
        return None
    words = _WORD.findall(_TAG.sub("", before).lower())
    return "" if _BEFORE.issuperset(words) else before


def _name_aside(pairs: list[Pair], text: str) -> list[Pair]:
    """Measurements of an evaluation, by names that say so: `Test: loss: 0.4 acc: 0.9`."""
    if not pairs:
        return pairs
    start = pairs[0].start
    aside = _ASIDE.search(text, 0, start) or _ASIDE.match(text, start)
    if aside is None:
        return pairs
    part = f"{aside.group()}_"
    if aside.start() == start and ("_" in aside.group() or not f"{pairs[0].name}_".startswith(part)):
        return pairs  # `test_reward: 30.0, loss: 0.5`
    return [
        pair if f"{pair.name}_".startswith(part) else pair._replace(name=part + pair.name) for pair in pairs
    ]


def _leave_out(pairs: list[Pair], text: str, start: int = 0) -> str:
    """What else is said: a metric's name says nothing of a position behind it."""
    for pair in reversed(pairs):
        if pair.start >= start:
            text = text[: pair.start] + text[pair.start + pair.length :]
    return text[start : start + MAX_BESIDE]


def _name_labelled(pairs: list[Pair], text: str) -> list[Pair]:
    """Measurements of an evaluation behind the training's: `Epoch 3 Train: loss 0.5 Val: loss 0.6`."""
    named, label, at = [], "", 0
    for pair in pairs:
        found = list(_LABEL.finditer(text, at, pair.start))[-1:]
        if found and not _LETTER.search(text[found[0].end() : pair.start]):
            label = f"{found[0].group(1)}_" if found[0].group(1) else ""
        elif pair.total is not None and (aside := _LABEL.fullmatch(pair.name)):  # `validation: 10/20`
            label = f"{aside.group(1)}_" if aside.group(1) else ""
        at = pair.start + pair.length
        if pair.name.lower() in ("lr", "learning_rate"):
            named.append(pair)
        elif pair.name.lower() not in COUNTS:
            named.append(pair._replace(name=label + pair.name))
        elif not label:
            named.append(pair)
    return named
