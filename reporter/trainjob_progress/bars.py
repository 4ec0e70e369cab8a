"""Bars, of which some stand for the training and most do not."""

from __future__ import annotations

import math
import re
from copy import copy
from typing import Any, Dict, Iterable, Optional, Set, Tuple

from .drawn import Drawing, find_drawing
from .objects import POSITION, says_measured
from .pairs import read_metrics
from .patterns import lazily

Fields = dict[str, Any]

MAX_BARS = 64  # of a kind that is remembered
MIN_HEARD = 3  # moments at which a training speaks while a bar stands still that is another thing's
MAX_LAGS = 20  # a bar that was drawn so often with fewer steps has begun again before its end

_COUNT = r"\d{1,15}"
# Whole words: no "generator", "workload" or "encoder".
_EVALUATION_BAR = lazily(
    r"(?<![a-z])(?:eval(?:uat(?:e|ing|ion))?s?|val|valid(?:at(?:e|ing|ion))?|test(?:ing|s)?|dev|sanity"
    r"|predict(?:ing|ions?)?|infer(?:ence|ring)?)(?![a-z])",
    re.IGNORECASE,
)
_TRAINING = lazily(
    r"(?<![a-z/.])(?:(?:pre-?|meta-?)?train(?:ing)?|(?:fine-?)?tuning|fitting)(?![a-z/]|[.-]\w)",
    re.IGNORECASE,
)
# What else is said in the name of a training's bar. One with another word has to show a loss.
_KNOWN = {
    "and", "cpu", "cuda", "distilling", "env", "episode", "episodes", "epoch", "epochs", "federated",
    "fine", "finetune", "finetuning", "fit", "fitting", "global", "gpu", "in", "it", "iter",
    "iteration", "iterations", "iters", "learn", "learning", "loop", "loss", "main", "meta", "model",
    "of", "on", "optimization", "optimize", "optimizing", "overall", "pre", "pretrain", "pretraining",
    "progress", "rank", "round", "rounds", "run", "running", "step", "steps", "the", "timestep",
    "timesteps", "total", "train", "trainer", "training", "tune", "tuning", "update", "updates", "with",
}  # fmt: skip
# What is trained, as a rule, where the name says a training, too. So is a model's name: `Training BERT`.
_TRAINED = {
    "agent", "agents", "classifier", "diffusion", "discriminator", "fold", "generator", "local", "network",
    "neural", "policy", "stage", "start", "student", "teacher", "transformer",
}  # fmt: skip
_MODEL = lazily(r"\b\w{1,32}[A-Z]\w{0,32}")
_INNER = {"batch", "batches", "mini", "minibatch", "minibatches"}  # below another bar
_WORD = lazily(r"[^\W\d_]+")
_PAIR = lazily(r"[a-z][\w./-]{0,63}(?:\s?[=:]\s?|\s)[+-]?(?:\d{1,15}\.\d|nan|inf)", re.IGNORECASE)
_SHOWS_LOSS = lazily(r"loss|rewards?(?![a-z])|returns?(?![a-z])|elbo|nll|perplexity|ppl", re.IGNORECASE)
# Of the datasets library, of downloads: they may count bytes as if these were steps.
_SIDE_UNIT = lazily(r"\bexamples|[\d?][kKMGTP]?i?B/s|\d{7}(?:\.\d{1,9})?it/s")
_EPOCH = lazily(
    rf"\b(?:epochs?|(episode))[:=#(\[_\s-]{{0,16}}({_COUNT})(?:\s{{0,16}}(?:/|of\s)\s{{0,16}}({_COUNT}))?",
    re.IGNORECASE,
)
_EPOCHS_BAR = lazily(r"\bepochs?\s?:?\s{0,4}$", re.IGNORECASE)
_TORCHTUNE = lazily(rf"(?:^|\s)({_COUNT})\|({_COUNT})\|Loss: ")
_PART = lazily(rf"(?<!\d){_COUNT}/\d")  # `Fold 2/5`, Ultralytics' `3/100  2.3G …`
_WORDS = lazily(r"[^\W\d]{0,64}(?: [^\W\d]{1,64}){0,8}")


def _is_named(description: str, *, is_inner: bool, shows_loss: bool) -> bool:
    """Whether a bar says that it is the training's, or says nothing: each word of its name is a known one. A
    loss that it shows says the same."""
    said = _PAIR.sub(lambda pair: "" if says_measured([pair.group()]) else pair.group(), description)
    training = _TRAINING.search(said)
    evaluation = _EVALUATION_BAR.search(said)
    if evaluation is not None:  # `Train loss 0.5 | Test loss 0.5`
        return training is not None and training.start() < evaluation.start() and said != description
    if shows_loss or said != description or (training is not None and _EPOCH.search(said)):
        return True
    if training is not None:
        words = set(_WORD.findall((said if said.isupper() else _MODEL.sub("", said)).lower()))
        return words <= _KNOWN | _INNER | _TRAINED
    words = set(_WORD.findall(said.lower()))
    return words <= (_KNOWN | _INNER if is_inner else _KNOWN)


def is_evaluations(name: str) -> bool:
    """Whether a metric's name says that an evaluation has measured it."""
    return _EVALUATION_BAR.search(name) is not None


def says_loss(metrics: Iterable[str]) -> bool:
    """Whether one is a loss of the training, by its name."""
    for name in metrics:  # noqa: SIM110 — half as long
        if "loss" in name.lower() and not is_evaluations(name):
            return True
    return False


class _Bar:
    """One bar, as often as it is drawn and however often it begins again."""

    __slots__ = (
        "before", "counts_epochs", "drawn", "has_lines", "has_twins", "heard",
        "heard_at", "is_doubted", "is_named", "lags", "name", "shows_loss", "step", "total",
    )  # fmt: skip

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.counts_epochs = _EPOCHS_BAR.search(name) is not None
        self.is_named = self.counts_epochs or _TRAINING.search(name) is not None  # as a training's
        self.shows_loss = False
        self.has_twins = False  # bars of the same name are drawn below it: of other processes
        self.total = total
        self.step = 0
        self.drawn = 0  # the step that it showed last, which may be another process's
        self.before = 0  # steps of the rounds before this one
        self.has_lines = False  # the training has printed where it stands, while this was drawn
        self.lags = 0  # how many times in a row it was drawn with fewer steps than before
        self.heard = 0  # moments at which positions or losses were printed since it has moved
        self.heard_at = -1  # the last one
        self.is_doubted = False  # the training goes on without it


class BarReader:
    """Reads one program's bars and remembers what later ones build on."""

    def __init__(self, *, sees_all: bool) -> None:
        """`sees_all`: every bar that the program draws, not a part of them: then rounds can be counted."""
        self._sees_all = sees_all
        self._run: Optional[_Bar] = None  # the bar that stands for the whole run
        self._inner: Optional[_Bar] = None  # the one below it that runs once for each of its steps
        self._is_inner_gone = False  # it gave steps, and does no more
        self._rounds = 0  # how often it has begun since the outer one's last step
        self._epoch_total: Optional[int] = None  # of bars that say which epoch they are
        self._has_episodes = False  # bars say which one it is, and what they name an epoch is a part of it
        self._counts_from_0 = False  # epochs: Lightning does, most loops print them from 1
        self.named: Optional[Tuple[float, int]] = None  # epochs done of those from 0, and how many it said
        self._named: Optional[Tuple[int, int, int]] = None  # epoch, step and total of the last such bar
        self._is_renamed: Optional[bool] = None  # one bar of the whole run says the epoch; None: not known
        self._nested: Set[Tuple[str, int]] = set()  # bars that were drawn below another one
        self._again: Set[Tuple[str, int]] = set()  # bars that have begun again; shared with copies of this
        self._strangers: Dict[Tuple[str, int], Tuple[int, int]] = {}  # of unknown names: step, losses by then
        self._proven: Set[Tuple[str, int]] = set()  # of these, the training's
        self._losses = 0  # how many lines have said one
        self._is_spoken = False  # one did, and no position
        self._turns = 0  # how often another bar was drawn that may be the training's, and the last one
        self._drawn: Optional[Tuple[str, int]] = None
        self._is_unclear = False  # two bars were seen that may be the training's

    def copy(self) -> BarReader:
        """One that goes on from here by itself; but what has begun again, has done so for both."""
        other = copy(self)
        other._run, other._inner = copy(self._run), copy(self._inner)
        return other

    @property
    def has_run(self) -> bool:
        """Whether a bar has said how far the run is."""
        return (self._run is not None and not self._run.is_doubted) or self._epoch_total is not None

    @property
    def name_epochs(self) -> bool:
        """Whether bars have said which epoch they are."""
        return self._epoch_total is not None

    def read(self, line: str, *, is_nested: bool, is_late: bool) -> Optional[Fields]:
        """The fields of a report, perhaps none; None when there is no bar. `is_nested`: below another one.
        `is_late`: lines have said where the training is, so that another's bar may follow.

        A field that is None was known before and is not any more.
        """
        drawing = find_drawing(line)
        if drawing is None:
            return None
        is_late = is_late and _TRAINING.search(drawing.description) is None
        return self._take(drawing, is_nested=is_nested, is_late=is_late, has_version="v_num=" in line)

    def hear(self, said: Fields, moment: int, *, has_loss: bool, is_trusted: bool) -> bool:
        """A line has said a position, trusted or not, or a loss. Whether the bar was another thing's, as of a
        preparation: it is at its end, and the line is no summary; or it stands still for some lines."""
        has_position = not POSITION.isdisjoint(said)
        self._losses += has_loss
        self._is_spoken = self._is_spoken or (has_loss and not has_position)
        bar = self._run
        if bar is None or bar.has_lines or bar.is_doubted or bar.before:
            return False
        bar.counts_epochs = bar.counts_epochs or (
            is_trusted and (said.get("step") or 0) > bar.total > bar.step
        )
        if bar.step >= bar.total and has_position and (is_trusted or not bar.is_named):
            metrics = said.get("metrics", ())
            is_summary = "train_runtime" in metrics or (
                bool(metrics) and all(name.startswith("eval_") for name in metrics)
            )
            is_end = said.get("step") == bar.step or said.get("epoch", 0) >= (
                said.get("total_epochs") or math.inf
            )
            bar.has_lines = is_summary or is_end
            bar.is_doubted = not bar.has_lines
        elif not bar.is_named:
            bar.heard += bar.heard_at != moment
            bar.heard_at = moment
            bar.is_doubted = bar.heard >= MIN_HEARD
        self._is_unclear = self._is_unclear or bar.is_doubted
        return bar.is_doubted

    def _take(self, drawing: Drawing, *, is_nested: bool, is_late: bool, has_version: bool) -> Fields:
        description, step, total = drawing.description, drawing.step, drawing.total
        has_name = bool(description) and not description.isspace()
        fields: Fields = {}
        shows_loss = False
        if drawing.postfix and (metrics := read_metrics(drawing.postfix)):
            fields["metrics"] = metrics
            shows_loss = any(map(_SHOWS_LOSS.search, metrics))
        shows_loss = shows_loss or any(_SHOWS_LOSS.search(pair) for pair in _PAIR.findall(description))
        bar = self._run
        if _SIDE_UNIT.search(drawing.pace):
            if bar is None or bar.total != total or bar.step or bar.before:
                return {}
            self._run = None  # so fast that it was drawn at its beginning and its end only
            return {"step": None, "total_steps": None}
        words = _WORDS.match(description) if has_name else None
        name = words.group().strip().lower() if words else ""  # what follows may change: an epoch, a loss
        # When it ends, an inner bar is drawn for the last time where the outer one was.
        is_below = is_nested or (name, total) in self._nested
        if has_name:
            is_trainings = _is_named(description, is_inner=is_below, shows_loss=shows_loss)
        else:
            is_known = bar is not None and bar.total == total
            is_trainings = is_below or is_known or shows_loss or not self._is_spoken
        is_sure = is_below or shows_loss or _TRAINING.search(description) or _EPOCH.search(description)
        is_run = bar is not None and (bar.name, bar.total) == (name, total)
        is_run = is_run and bar is not None and not (bar.is_doubted and bar.step >= bar.total)
        may_be_outer = is_trainings and not is_late and self._is_unclear and not (is_sure or is_run)
        if (not is_trainings or is_late or may_be_outer) and (
            _EVALUATION_BAR.search(description)
            or not self._is_proven((name, total), step, may_be_outer=may_be_outer)
        ):
            if bar is None or bar.total != total or not 0 < bar.step < step:
                return {}
            bar.step = step  # it is the training's, which says what its last step does
            return self._position(bar)
        if is_nested and name and bar is not None and (bar.name, bar.total) == (name, total):
            bar.has_twins = True
            return fields  # `gpu 1` below `gpu 0`: both do the same, and neither is inside of the other
        if is_nested and len(self._nested) < MAX_BARS:
            self._nested.add((name, total))
        if is_below and self._run is not None:
            fields.update(self._in_outer(name, step, total))
            return fields
        if has_name:
            epoch = _EPOCH.search(description)
            if epoch:
                self._has_episodes = self._has_episodes or epoch.group(1) is not None
                if self._has_episodes and epoch.group(1) is None:
                    return fields  # of a part of the episode
                self._epoch_total = total
                fields.update(self._in_epoch(epoch, step, total, has_version=has_version))
                return fields
            torchtune = _TORCHTUNE.search(description)  # epoch, counted from 1, and step of the whole run
            if torchtune:
                done = max(int(torchtune.group(1)) - 1, 0)
                return {
                    **fields,
                    "step": int(torchtune.group(2)),
                    "epoch": done + (1 if step == total else 0),
                }
        if is_below or total == 0 or (has_name and _PART.search(description)):
            return fields
        if self._epoch_total is not None and not _EPOCHS_BAR.search(name):
            return {}
        is_named = _TRAINING.search(description) is not None
        fields.update(self._as_run(name, step, total, is_named=is_named, shows_loss=shows_loss))
        return fields

    def _is_proven(self, bar: Tuple[str, int], step: int, *, may_be_outer: bool) -> bool:
        """Whether losses are printed while a bar moves that may be another thing's. Of bars that may all be
        the training's, the one is that goes on when another one has been drawn."""
        if may_be_outer and bar != self._drawn:
            self._turns += 1
            self._drawn = bar
        signs = 2 * self._losses + self._turns
        seen = self._strangers.get(bar)
        if seen is not None and 0 < seen[0] < step and seen[1] + 1 < signs:
            self._proven.add(bar)
        if (seen is None and len(self._strangers) < MAX_BARS) or (seen is not None and seen[0] != step):
            self._strangers[bar] = step, signs  # not if it is drawn again below a line
        return bar in self._proven

    def _as_run(self, name: str, step: int, total: int, *, is_named: bool, shows_loss: bool) -> Fields:
        """Of several bars that follow each other, such as an evaluation's, one stands for the run where
        something says so. A bar of epochs does in any case."""
        bar = self._run
        if bar is not None and bar.total == total and bar.step == bar.before == 0 and not bar.name:
            bar.name = name  # drawn before it was given its name
        if bar is None or bar.total != total or bar.name != name:
            found = _Bar(name, total)
            found.is_named = found.is_named or is_named or shows_loss
            if bar is not None and not bar.is_doubted and not found.counts_epochs:
                is_next = bar.step >= bar.total and (
                    is_named or self._is_proven((name, total), step, may_be_outer=False)
                )
                is_sure = bar.is_named or bar.has_lines or bar.heard > 0
                if not is_next and (is_sure or not found.is_named):
                    return {} if is_sure else self._leave_open(bar, found, step)
            bar = self._run = found
            self._inner = None
            bar.step = step
        elif bar.shows_loss and not shows_loss and step < bar.step:
            return {}  # of an evaluation of as many
        elif not self._follow(bar, step):
            return {}
        bar.is_named, bar.shows_loss = bar.is_named or shows_loss, bar.shows_loss or shows_loss
        return self._position(bar)

    def _leave_open(self, bar: _Bar, other: _Bar, step: int) -> Fields:
        """Two may be the training's, and nothing tells which."""
        self._is_unclear, self._run = True, None
        self._is_proven((bar.name, bar.total), bar.step, may_be_outer=True)
        self._is_proven((other.name, other.total), step, may_be_outer=True)
        return {"step": None, "total_steps": None}

    def _follow(self, bar: _Bar, step: int) -> bool:
        """Whether this bar was drawn, and not another process's of the same kind, which is further behind."""
        if step >= bar.step:
            if bar.before and step - bar.step > bar.total / 2:
                return False  # of the round before
            bar.lags = 0
            if step > bar.step:
                bar.has_lines = bar.has_lines or bar.heard > 0
                bar.heard, bar.is_doubted = 0, False
                self._leave_inner(step - bar.step)
                bar.step = step
            return True
        if bar.has_twins:
            return False
        bar.lags += 1
        if not (step <= bar.total / 2 and bar.step == bar.total) and bar.lags < MAX_LAGS:
            return False
        bar.lags = bar.heard = 0
        bar.is_doubted = False
        bar.before += bar.step
        bar.step = step
        if len(self._again) < MAX_BARS:
            self._again.add((bar.name, bar.total))
        return True

    def _in_outer(self, name: str, step: int, total: int) -> Fields:
        """A bar below another one. The first that is drawn there before the outer one has moved, and begins
        again with each of its steps, counts; any other is an evaluation, or a part of something."""
        bar, inner = self._run, self._inner
        if bar is None or not self._sees_all:
            return {}
        if inner is None:
            if bar.step > 0 or bar.before or total == 0:
                return {}
            inner = self._inner = _Bar(name, total)
            self._rounds = 1
        if (inner.name, inner.total) != (name, total):
            return {}
        if step < inner.drawn:
            self._rounds += 1
        inner.drawn = step
        if self._rounds:
            inner.step = max(inner.step, min(step, total))
        return self._position(bar)

    def _leave_inner(self, steps: int) -> None:
        """The outer bar has taken so many steps."""
        if self._inner is not None and self._rounds >= steps:
            self._inner.step = self._rounds = 0
        else:
            self._is_inner_gone = self._inner is not None
            self._inner = None  # it runs beside the other, not within

    def _position(self, bar: _Bar) -> Fields:
        if self._inner is None and not self._again and not bar.counts_epochs:
            return {"step": bar.step, "total_steps": bar.total}
        epochs: Fields = {"epoch": bar.step, "total_epochs": bar.total} if bar.counts_epochs else {}
        inner = self._inner
        if inner is not None:
            total = bar.total * inner.total
            return {**epochs, "step": min(bar.step * inner.total + inner.step, total), "total_steps": total}
        if bar.counts_epochs:
            gone, self._is_inner_gone = self._is_inner_gone, False
            return {**epochs, "step": None, "total_steps": None} if gone else epochs
        if (bar.name, bar.total) not in self._again:
            return {"step": bar.step, "total_steps": bar.total}
        # How many rounds there will be, nobody has said.
        return {"step": bar.before + bar.step if self._sees_all else None, "total_steps": None}

    def _in_epoch(self, match: re.Match[str], step: int, total: int, *, has_version: bool) -> Fields:
        epoch, epochs = int(match.group(2)), match.group(3)
        is_renamed = self._find_renamed(epoch, step, total)
        if self._is_renamed is not False and abs(epoch - step) <= 1:
            bar = self._run
            is_there = bar is not None and bar.total == total and bar.step <= step <= bar.step + 1
            if is_there and epochs != str(total) and self._inner is None and step <= 1:
                return {}  # nothing is known yet
            if is_renamed or epochs == str(total) or is_there:  # a bar over epochs
                if bar is None or bar.total != total:
                    bar = self._run = _Bar("", total)
                unknown = {} if bar.counts_epochs else {"step": None, "total_steps": None}
                bar.counts_epochs = True
                return {**unknown, **self._position(bar)} if self._follow(bar, step) else {}
        if is_renamed:
            self._counts_from_0 = self._counts_from_0 or epoch == 0
            done = epoch - (not self._counts_from_0) + (step == total)
            return {"step": step, "total_steps": total, "epoch": done}
        if epochs is not None:
            self._counts_from_0 = self._counts_from_0 or epoch == 0
            # From 0, the last one may be named like their number, or be one less: then it is yet to come.
            planned: Optional[int] = int(epochs)
            if self._counts_from_0:
                self.named = epoch + step / max(total, 1), int(epochs)
                planned = epoch + 1 if epoch == planned else None
            done = epoch - (not self._counts_from_0)
            return {
                "step": done * total + step,
                "total_steps": None if planned is None else planned * total,
                "epoch": done + (1 if step == total else 0),
                "total_epochs": planned,
            }
        # No word of how many there will be. Only Lightning names the version of its log.
        self._counts_from_0 = self._counts_from_0 or epoch == 0 or has_version
        done = epoch if self._counts_from_0 else epoch - 1
        plan = {} if self._run is None else {"total_steps": None}  # it was another bar's
        return {"step": done * total + step, **plan, "epoch": done + (1 if step == total else 0)}

    def _find_renamed(self, epoch: int, step: int, total: int) -> bool:
        """Whether one bar goes on under another name: a bar of each epoch would have begun anew with it."""
        last, self._named = self._named, (epoch, step, total)
        if self._is_renamed is not None or last is None:
            return bool(self._is_renamed)
        if last[2] == total and epoch > last[0]:
            if step < last[1] or last[1] == total:
                self._is_renamed = False
            elif step > 1:  # where an epoch is short, 0 or 1 may be all that was seen of it
                self._is_renamed = True
        return bool(self._is_renamed)
