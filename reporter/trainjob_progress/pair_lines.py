"""Lines made of names and numbers: which say where a run stands, and which name a measurement. Pure."""

from __future__ import annotations

import re
from copy import copy
from typing import Optional

from .objects import (
    OF_RUN,
    POSITION,
    Fields,
    are_settings,
    is_another_ranks,
    is_doubtful,
    parse_object,
    speaks_of_progress,
    with_position,
)
from .pairs import COUNTS, Metrics, Pair, find_doubted, find_pairs, is_place, to_plain
from .patterns import lazily

MAX_FORMS = 64  # of lines
MAX_BESIDE = 2048  # characters; in a longer line all else that is said counts, whatever it is
_COUNT = r"\d{1,15}"
_FILLING = lazily(r"[\s|,;()\[\]-]")
# What is said beside: `eta: 0:10:00`, `step_avg:100.12ms`, `msg="train"`, `(+nanz)`, `120.5 ms`, `(7.0e+00)`.
_BESIDE = lazily(
    r"\b\w{1,16}[:=]\s{0,4}\d{1,9}(?::\d\d){1,2}\b"
    r"|\b(?:\w{1,16}[:=]\s?)?\d{1,9}(?:\.\d{1,9})?\s?(?:m?s|[a-z]{1,12}/s(?:ec)?|s(?:ec)?/[a-z]{1,8})\b"
    r"|\b\w{1,16}(?:/\w{1,8})?(?:[:=]\s{0,4}|\s{1,4})\d{1,9}(?:\.\d{1,9})?(?:\s?[KMGT]i?B|[KMGT])\b"
    r'|\b\w{1,16}="[^"]{0,200}"|\b(?:level|lvl|ts|time|timestamp)=\S{1,40}|\([+-]?(?:nan|\d{1,9}(?:\.\d{1,9})?)z?\)',
    re.IGNORECASE,
)
# Whole parts of a line that are a number and its unit: `| 12.3K tok/s |`, `, 123ms/step,`, `- ETA 1h 20m`.
_PART_BESIDE = lazily(
    r"(?:\||[,;](?=\s)|\s-(?=\s)|\t)\s{0,4}(?:\d[\d,]{0,12}(?:\.\d{1,9})?\s?(?:%\s?)?[a-z]{1,12}"
    r"(?:\s[a-z]{1,12})?(?:/[a-z]{1,12})?|eta:?\s(?:\d{1,9}(?::\d\d){1,2}|\d{1,9}[dhms](?:\s?\d{1,2}[hms]){0,3}))"
    r"(?=\s{0,4}(?:$|[|;\t]|,\s)|\s{1,4}-\s)",
    re.IGNORECASE,
)
# `avg loss over last 100 steps: 0.5`: what is measured is not named by that.
_SENTENCE = lazily(
    r"\b[a-z]{1,16}(?:\s[a-z]{1,12}){1,4}\s\d{1,9}\s[a-z]{1,16}\s?[:=]\s{0,4}\d{1,9}(?:\.\d{1,9})?(?![\w.])",
    re.IGNORECASE,
)
_OF = lazily(rf"\s{{1,4}}of\s{{1,4}}({_COUNT})(?![\w/-]|\.\d)")  # behind `step 5`
_DIGITS = lazily(r"[\d.,+ -]{1,64}")
# Of what follows it: `train: loss 0.5 val: loss 0.6`, `[valid] loss=0.6`, `Epoch 3 val step 10/20 loss 0.6`.
# Not `env=dev`.
_LABEL = lazily(
    r"(?<![\w.-])(?:(eval(?:uation)?|val|valid(?:ation)?|test|(?<!=)dev)|train(?:ing)?)(?![\w.-])",
    re.IGNORECASE,
)
_LETTER = lazily(r"[^\W\d]")
_TIMED = lazily(r"\d:\d\d\b|\d\s?(?:m?s|min|h)\b")  # `(eta 0:10:00)`, `took 1.2s`
# Before a position: of an evaluation, or of an earlier moment.
_ASIDE = lazily(r"\b(?:eval\w*|val|valid\w*|test\w*|infer\w*|predict\w*|best)\b", re.IGNORECASE)
_BEST = lazily(r"\bbest\b", re.IGNORECASE)
_CALL = lazily(r"\w{1,64}\(\w{1,64}=")  # the repr of settings


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
        self._forms: set[str] = set()  # of lines that say just enough
        self._names_run = False  # steps are named as the run's: others are of something else
        self._known: dict[str, float] = {}  # step and epoch
        self._last: dict[str, float] = {}  # the same, or what may be settings

    def copy(self, epochs: Epochs) -> PairReader:
        """One that goes on from here by itself."""
        other = copy(self)
        other.epochs, other._last, other._known = epochs, dict(self._last), dict(self._known)
        return other

    def follow(self, fields: Fields) -> None:
        """Another line has said where the run stands."""
        for field in POSITION.intersection(fields):
            self._last[field] = self._known[field] = fields[field] or 0

    def read(self, line: str, *, is_whole: bool = True) -> Optional[Fields]:
        """The fields of a report, perhaps none; None when the line says nothing of progress. `is_whole`: no
        measurements stand behind it."""
        text = to_plain(line)
        pairs = find_pairs(text)
        if not pairs or not self._is_said_by(pairs, text):
            return self._read_both(text)
        if are_settings(pair.name for pair in pairs) or (
            _CALL.match(text) and not any("loss" in pair.name.lower() for pair in pairs)
        ):
            return {}
        pairs = _with_totals([pair for pair in pairs if not is_place(pair, text)], text)
        position = next((pair.start for pair in pairs if pair.name.lower() in COUNTS), None)
        if position is not None and (
            _ASIDE.search(_leave_out(pairs, text[:position])) or _BEST.search(text, 0, position)
        ):
            return {}
        pairs = _name_aside(pairs, text) if position is None else _name_labelled(pairs, text)
        self._names_run = self._names_run or any(pair.name.lower() in OF_RUN for pair in pairs)
        fields, values = self._sort(pairs)
        if is_another_ranks(values):
            return {}
        fields.update(with_position(values))
        self.epochs.count(fields)
        if "total_steps" in fields and "step" in fields:
            first = next(name for name in fields if name in POSITION)
            self.epochs.put_steps(fields, is_inner=first == "epoch" or "epoch" not in fields)
        if is_whole and fields.keys() == {"step", "total_steps"}:
            end = pairs[-1].start + pairs[-1].length
            if _LETTER.search(_BESIDE.sub("", _SENTENCE.sub("", text[end:]))) and not _TIMED.search(
                text, end
            ):
                return {}  # `Step 2/5 done` of a script
        if is_whole and is_doubtful(fields, (pair.name for pair in pairs)) and self.may_be_set(fields):
            return {}
        has_position = not POSITION.isdisjoint(fields)
        is_assigned = not all(pair.sign.isspace() for pair in pairs)
        return fields if has_position or (is_assigned and speaks_of_progress(fields)) else None

    def _sort(self, pairs: list[Pair]) -> tuple[Fields, Metrics]:
        """Totals, and values by name: the first step and the first epoch are where the line stands."""
        said: Metrics = {}
        values: Metrics = {}
        totals: Fields = {}
        doubted = find_doubted(pairs)
        has_loss = any("loss" in pair.name.lower() for pair in pairs)
        has_episode = any(pair.name.lower() == "episode" for pair in pairs)
        for pair in pairs:
            name = pair.name.lower()
            if pair.name in doubted or (name == "steps" and not has_loss):
                continue  # `epochs: 10, steps: 1000` is a plan
            if name == "batch" and pair.total is not None and "epoch" in said:
                name = "step"
            if name in COUNTS:
                field = "epoch" if name == "epoch" else "step"
                if (
                    field in said
                    or (field == "step" and has_episode)
                    or (field == "step" and self._names_run and name not in OF_RUN)
                ):
                    continue
                said[field] = pair.value
                if pair.total is not None:
                    totals[f"total_{field}s"] = int(pair.total)
            elif pair.total is None:
                values[pair.name] = pair.value
        return totals, {**said, **values}

    def may_be_set(self, fields: Fields) -> bool:
        """Whether a doubtful position may be a setting: it may, until a later one is larger."""
        positions = {field: fields[field] for field in POSITION.intersection(fields)}
        before = self._last
        self._last = {**before, **positions}
        return all(
            value > 1 and value != self._known.get(field) and value <= before.get(field, value)
            for field, value in positions.items()
        )

    def _read_both(self, text: str) -> Optional[Fields]:
        """`step 5: {'loss': 0.5}`"""
        at = text.find("{")
        if at <= 0 or text[-1] != "}":
            return None
        fields, values = self.read(text[:at], is_whole=False), parse_object(text[at:])
        if not fields or not values or POSITION.isdisjoint(fields):
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
        elif len(text) > MAX_BESIDE:
            is_much, left = False, text
        else:
            left = _BESIDE.sub("", text if pairs[0].start > 1 else _SENTENCE.sub("", text))
            is_much = said >= 0.6 * len(_FILLING.sub("", left))
        if is_much and said >= 0.8 * len(_FILLING.sub("", left)):
            return True
        form = _DIGITS.sub("0", text)
        if is_much and len(self._forms) < MAX_FORMS:
            self._forms.add(form)
        return is_much or form in self._forms


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
    if not pairs:
        return pairs
    start = pairs[0].start
    aside = _ASIDE.search(text, 0, start) or _ASIDE.match(text, start)
    if aside is None:
        return pairs
    part = f"{aside.group()}_"
    if aside.start() == start and not f"{pairs[0].name}_".startswith(part):
        return pairs
    return [
        pair if f"{pair.name}_".startswith(part) else pair._replace(name=part + pair.name) for pair in pairs
    ]


def _leave_out(pairs: list[Pair], text: str) -> str:
    """What else is said: a metric's name says nothing of a position behind it."""
    for pair in reversed(pairs):
        text = text[: pair.start] + text[pair.start + pair.length :]
    return text


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
