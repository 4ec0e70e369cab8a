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
from typing import Any, Callable, Optional

from .bars import BarReader, is_evaluations, says_loss
from .drawn import Drawing, find_drawing
from .forms import FormReader
from .objects import POSITION, Form, parse_object, read_object
from .pair_lines import Epochs, PairReader
from .pairs import NUMBER, Metrics, read_entries, read_metrics, to_number
from .patterns import lazily

Fields = dict[str, Any]  # arguments of Reporter.update
Search = Callable[[str], Optional[dict[str, Optional[str]]]]  # the named groups of the first match in a line

MAX_LINE = 8192  # characters; a longer one is no progress
_COUNT = r"\d{1,15}"
_A_NUMBER = lazily(NUMBER, re.IGNORECASE)
_MAY_MEAN = lazily(
    r"\d|nan|inf|iteration(?: is)?:|_mem |^\s{0,16}(?:e|epoch|iter)  ", re.IGNORECASE
)  # most lines have nothing of this, and cost little
_ESCAPES = lazily(r"\x1b(?:\[[0-9;?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\))")
_CURSOR_UP = "\x1b[A"  # how tqdm returns from a bar that it draws below another
# `[1,0]<stdout>:` of mpirun (behind a time if asked for), `[prterun-host-7@1,0]<stdout>:` of Open MPI 5,
# `[rank0]:` and `[default0]:` of torchrun, `0: ` of srun, `[GPU0] ` and `Worker 0: ` of programs themselves:
# several processes in one log.
_RANK_PREFIX = lazily(
    r"^(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?"
    r"\[(?:(?:[\w.-]{1,128}@)?\d{1,9},(\d{1,9})\]<\w{1,16}>|(?:rank|default|trainer|worker)(\d{1,9})\]):\s?"
    # Where the rest says no position, the number may be one: `3: loss 0.5`.
    r"|^\s{0,8}(\d{1,6}):\x20(?=.{0,300}?(?:step|epoch|iter|%\||\d\d:\d\d|\{))"
    r"|^[\[(<]?(?:rank\s?(0|[1-9]\d{0,5})"
    r"|(?:gpu|cuda|node|worker|process|proc|client|replica|actor)[ _:#-]?(0|[1-9]\d{0,2}))"
    r"(?:/\d{1,5})?(?:[\])>]:?\s?|[:|,]?\s)"
    r"|^\((\d{1,5})/\d{1,5}\)\s",  # of icefall
    re.IGNORECASE,
)
_BEGIN_OF_RANK = set("0123456789 [(<rRgGwWpPcCaAnN")
_EPOCH = lazily(rf"\bepoch:?\s{{0,16}}\[?({_COUNT})(?:\s{{0,16}}/\s{{0,16}}({_COUNT}))?", re.IGNORECASE)
# Paddle's `step 10/100 - loss: 0.5 - 12ms/step` is of the same make.
_KERAS = lazily(rf"^\s*(?:step\s{{1,16}})?({_COUNT})/({_COUNT})\s+(?:[━=>.\[\]-]|\d{{1,9}}s\b)")
_RICH = lazily(rf"^Epoch ({_COUNT})/({_COUNT})\s[━╸╺\s]{{1,1000}}({_COUNT})/({_COUNT})\s(.*)$")
_IS_OTHER_BAR = lazily(rf"{_RICH.pattern}|{_KERAS.pattern}")  # read otherwise
# PyTorch's MNIST example, which half of all examples descend from: `Train Epoch: 1 [640/60000 (1%)]\tLoss: …`
_MNIST = lazily(
    rf"^train epoch:\s{{0,9}}({_COUNT})\s{{0,9}}\[\s{{0,9}}({_COUNT})/({_COUNT})\s{{0,9}}"
    r"\(\s{0,3}\d{1,3}%\)\](.*)$",
    re.IGNORECASE,
)
_BOOSTING = lazily(rf"^(?:\[\d[\d:]{{0,16}}\]\s{{0,4}})?\[({_COUNT})\]\t(.+)$")
_ROUNDS = Form("rounds", "rounds", is_plain=True)
_CATBOOST = lazily(rf"^({_COUNT}):\t(.*\btotal:.*)$")
_TIME = lazily(
    r"^\W{0,16}\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16}\s*"
    r"|^\[\d\d/\d\d \d\d:\d\d:\d\d [\w.]{1,64}\]:\s{1,4}"  # of Detectron2
    r"|^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:[\w.-]{1,64} [\w./-]{1,64}(?:\[\d{1,9}\])?:\s)?"  # syslog's
)
_RAY = lazily(r"^\((\w[\w.]{0,64}) pid=\d{1,9}(?:, ip=[\d.]{7,15})?\)\s")  # what Ray puts before a line
MAX_FORMS = 64  # of lines
_TOTALS = {"step": "total_steps", "epoch": "total_epochs"}
MIN_ALONE = 3  # positions of one kind alone, after which one of the other alone may be another thing's
MAX_OTHERS = 20  # lines of others of its name, after which an actor that says nothing is gone
# What logging libraries put before a message: all up to the level and, as Loguru does, a place in the code.
_RECORD = lazily(
    r"^\[(?:INFO|DEBUG)\|[^\]>]{0,64}\][^>]{0,64}>> "  # of Transformers
    r"|^(?:INFO|DEBUG):[\w.]{1,64}:"
    r"|^.{0,160}?\b(?:INFO|DEBUG)\b[\s|:\]-]{0,16}(?:[\w.]{1,64}:[\w<>]{1,64}:\d{1,6} - |[\w.]{1,64}:(?=\{)"
    r"|\[[\w.]{1,64}:\d{1,6}\] |[\w=|.-]{1,64}\]:\s"
    r"|(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16} )?[\w./]{1,64}\.py:\d{1,6}:?\s(?:-\s)?)?"
    r"|^[ID]\d{4} [\d:.]{8,15}\s{1,8}\d{1,9} [\w.]{1,64}:\d{1,6}\] "
)
_IS_EVALUATION = lazily(  # `--- Evaluation ---`
    r"^\W{0,32}(?:(?:running|initial|final)\s)?(?:eval|(?:evaluat|validat|test)(?:e|ing|ion)?|val"
    r"|(?:(?:evaluat|validat|test)ing|evaluation(?=\son\s))(?:\s[a-z-]{1,16}){1,6})\W{0,32}$",
    re.IGNORECASE,
)
_OWN_LINE = '{"schemaVersion":'
_OWN_RECORD = '{"timestamp": "'
_BEST = ("est iteration is:", "est iteration:")  # LightGBM, XGBoost: the next line repeats an earlier round
# More people may see the job than its log.
_SECRET = lazily(
    r"passw|passphrase|secret|credential|(?:api|access|private)[_-]?key|(?:^|[\W_])(?:token|pin|pwd)$",
    re.IGNORECASE,
)


def own_words(line: str) -> Optional[str]:
    """The line without the mark of rank 0; None when another rank printed it."""
    prefix = _RANK_PREFIX.match(line) if "]" in line or line[:1] in _BEGIN_OF_RANK else None
    if prefix is None:
        return line
    words = line[prefix.end() :]  # Megatron's last rank speaks for all
    return words if int(prefix.group(prefix.lastindex or 0)) == 0 or "| consumed samples:" in words else None


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
        self.moment = 0  # which time more lines have come
        self._sees_all = sees_all
        self._counted = Epochs()
        self._epochs: Optional[int] = None  # that a line of its own has named
        self._batches: Optional[int] = None  # of that epoch
        self._batch = 0  # the last one of that epoch
        self._ended: set[str] = set()  # what was measured at its end
        self._repeats = False  # the next line says what was said before
        self._bars = BarReader(sees_all=sees_all)
        self._known = FormReader()
        self._pairs = PairReader(self._counted)
        self._standing: dict[str, Optional[float]] = {}  # step and epoch, whatever has said them
        self._planned: dict[str, Optional[float]] = {}  # how many there will be of each
        self._alone = "", 0  # step or epoch, and how often lines have raised it without the other
        self._forms: dict[object, dict[str, float]] = {}  # the same, of forms that are not trusted yet
        self._trusted: set[object] = set()  # forms
        self._last: tuple[float, float] = (0, 0)  # step and epoch of the last line with a step
        self._steps_are_inner = False  # these begin anew with each epoch
        self._said_step: Optional[int] = None  # by a line that is no bar
        self._moves = 0  # how often, before any bar, one said where the run is, and how often a loss with it
        self._is_aside = False  # an evaluation has had its headline
        self._is_bar = False  # the line that was read last
        self._speaker = ""  # what Ray put before that line
        self._actor = ""  # the same, of the first actor that said where it stands
        self._others = 0  # lines in a row of others of its name

    def read(self, line: str, *, depth: int = 0) -> Optional[Fields]:
        """The fields of a report, or None when the line says nothing of progress.

        `depth`: how many lines below another bar's it stands, where control characters do not say so.
        """
        self._is_bar, self._speaker = False, ""
        fields = self._read(line, depth)
        if fields:
            form = fields.pop("form", None)
            if form is not None and not self._is_trusted(form, fields):
                metrics = fields.get("metrics", {})
                gone = self._hear(fields if form.is_plain else {"metrics": metrics}, is_trusted=False)
                # Whatever says it, these are an evaluation's.
                aside = {name: value for name, value in metrics.items() if is_evaluations(name)}
                return _without_secrets({**(gone or {}), "metrics": aside})
            if form is not None and fields.get("step") is not None:
                self._leave_out_inner(fields)
            if not self._is_bar:
                self._weigh(fields)
            self._planned.update({name: fields[total] for name, total in _TOTALS.items() if total in fields})
            self._standing.update({field: fields[field] for field in POSITION.intersection(fields)})
            if self._speaker and not POSITION.isdisjoint(fields):
                self._actor = self._speaker
        if fields and not self._is_bar:
            self._is_aside = self._is_aside and POSITION.isdisjoint(fields)
            at = (fields.get("step"), fields.get("epoch"))  # half an epoch needs a bar for the rest
            is_said = any(each and (form or type(each) is int) for each in at)
            if is_said and self._sees_all and not self._bars.has_run:
                self._moves += 1 + says_loss(fields.get("metrics", ()))
            if (gone := self._hear(fields, is_trusted=True)) is not None:
                fields = {**gone, **fields}
        return fields if fields is None or self._search is not None else _without_secrets(fields)

    def _is_trusted(self, form: Form, fields: Fields) -> bool:
        """Whether a position is the run's. The first one is, if it is plain. Another form has to come twice,
        with more: what comes once is a setting, a result or something else's. Where forms change with each
        line, one counts that says more than the last of its kind, if no trusted one was between."""
        at = {field: fields[field] for field in POSITION if fields.get(field) is not None}
        before = {field: self._standing.get(field) or 0 for field in at}
        if self._is_aside:  # the training goes on with the form it had
            rises = before != at and all(before[field] <= value for field, value in at.items())
            if form.names not in self._trusted or not rises:
                return False
            self._is_aside = False
        key = form.names, form.texts
        if key not in self._trusted:
            kind = key if form.has_words else form.kind
            rises, others_rise = (
                any(before[field] < value for field, value in at.items() if field in before)
                for before in (self._forms.get(key, {}), self._forms.get(kind, {}))
            )
            other, times = self._alone
            stands = self._standing.get(other) or 0
            if (
                times >= MIN_ALONE
                and other not in at
                and not any(total in fields for total in _TOTALS.values())
            ):
                goes_on = self._forms.get(key, {}).get(other) != stands
                rises, others_rise = rises and goes_on, others_rise and goes_on
            is_first = form.is_plain and not any(self._standing.values())
            is_full = len(self._trusted) >= 2 * MAX_FORMS
            if not (is_first or rises) or (form.has_words and self._trusted and any(self._standing.values())):
                if len(self._forms) >= MAX_FORMS:
                    self._forms.clear()
                self._forms[key] = self._forms[kind] = {other: stands, **at}
                is_same = all(self._standing.get(field) == value for field, value in at.items())
                if others_rise and not form.has_words and not is_full:
                    self._trusted.add(form.names)
                return not form.has_words and (others_rise or is_same)
            if not is_full:
                self._trusted.update((form.names, key))
        self._forms.pop(form.kind, None)
        return True

    def _weigh(self, fields: Fields) -> None:
        """A plan is not that of a position which lies behind the last one or beyond the end, and which was
        said without it. A step that stands still while epochs rise is another thing's, or long ago."""
        named = POSITION.intersection(fields)
        for field in named:
            at, last, planned = fields[field], self._standing.get(field) or 0, self._planned.get(field)
            if planned and at is not None and not last - 1 <= at <= planned:
                fields.setdefault(_TOTALS[field], None)
            times = self._alone[1] if self._alone[0] == field else 0
            self._alone = field if len(named) == 1 else "", times + ((at or 0) > last)
        if self._alone == ("epoch", MIN_ALONE) and self._said_step is not None and not self._bars.has_run:
            fields.update(step=None, total_steps=None)

    def _leave_out_inner(self, fields: Fields) -> None:
        """A step that is smaller in a later epoch is one of the epoch, and so are all that follow."""
        at = fields["step"], fields.get("epoch", self._standing.get("epoch")) or 0
        last, self._last = self._last, at
        if self._steps_are_inner or (at[0] < last[0] and at[1] > last[1]):
            is_planned = "total_steps" in fields or not self._steps_are_inner
            fields.update({"total_steps": None} if is_planned else {}, step=None)
            self._steps_are_inner = True

    def _hear(self, fields: Fields, *, is_trusted: bool) -> Optional[Fields]:
        """What a line, trusted or not, takes away of what a bar said."""
        has_loss = says_loss(fields.get("metrics", ()))
        if not has_loss and POSITION.isdisjoint(fields):
            return None
        is_gone = self._bars.hear(fields, self.moment, has_loss=has_loss, is_trusted=is_trusted)
        if not is_gone:
            return None
        self._standing["step"] = None
        return {"step": None, "total_steps": None}

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
        if not (_MAY_MEAN.search(words) or "/  " in words):
            self._repeats = False
            self._is_aside = len(words) < 64 and _IS_EVALUATION.match(words) is not None
            return None
        if words[0] == "(" and (mark := _RAY.match(words)) is not None:
            if self._is_another_actor(mark):
                return None
            self._speaker, words = mark.group(), words[mark.end() :]
        if words.startswith(_OWN_RECORD):
            return self._read_record(words)
        fields = self._known.read(words, _message)
        if fields is not None:
            self._said_step = fields.get("step", self._said_step)
            return fields or None
        if _may_be_bar(words):
            is_other = "%|" not in words and _IS_OTHER_BAR.match(words)
            fields = (
                None if is_other else self._bars.read(words, is_nested=is_nested, is_late=self._moves > 1)
            )
            if fields is not None:
                self._is_bar = True
                fields = fields if self._said_step is None else self._beside_lines(fields)
                at = words.find("]", words.rfind("%|")) + 1
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
            self._read_object, _read_rich, self._read_keras, _read_boosting, self._read_counts,
            self._read_pairs,
        )  # fmt: skip
        for read in readers:
            fields = read(words)
            if fields is not None:
                self._said_step = fields.get("step", self._said_step)
                return fields or None
        return None

    def _is_another_actor(self, mark: re.Match[str]) -> bool:
        """Of several trials or ranks in one log, the first that says where it stands counts. Another of its
        name takes its place once it is gone."""
        if not self._actor or mark.group() == self._actor:
            self._others = 0
            return False
        self._others += self._actor.startswith(f"({mark.group(1)} ")
        if self._others < MAX_OTHERS:
            return True
        self._actor, self._others = mark.group(), 0
        return False

    def _read_record(self, line: str) -> Optional[Fields]:
        """A log line of `logging`: by its fields, else by its message."""
        fields = read_object(line) if line.endswith("}") else None
        if fields is not None:
            fields.pop("form", None)
            self._said_step = fields.get("step", self._said_step)
            return fields or None
        message = (parse_object(line) or {}).get("message")
        return self.read(message) if isinstance(message, str) and message[:1] not in ("", "{") else None

    def copy(self) -> LineReader:
        """One that goes on from here by itself."""
        other = copy(self)
        other._bars, other._known, other._counted = self._bars.copy(), self._known.copy(), copy(self._counted)
        other._pairs = self._pairs.copy(other._counted)
        other._standing, other._forms = dict(self._standing), dict(self._forms)
        other._trusted = set(self._trusted)
        other._planned = dict(self._planned)
        return other

    def find_end(self) -> Optional[tuple[float, int]]:
        """Epochs that are done, and planned, once the program has ended. Of those that count from 0 nothing
        else says it: the last one is over, and was it not called by the number of them, it was one less."""
        epoch, epochs = self._bars.named or self._counted.named or (0, None)
        return None if epochs is None else (epoch, epochs + (epoch > epochs))

    def find_headed(self) -> Optional[int]:
        """The epoch that has begun, from 1, where a line of its own has said so and no bar how far it is."""
        return self._counted.current if self._epochs and self._batches is None else None

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
            self._counted.count(said)
            self._counted.current = said["epoch"] + self._counted.counts_from_0
            self._epochs, self._batches, self._batch = said["total_epochs"], None, 0
            self._ended = set()
            return {"epoch": self._counted.current - 1, "total_epochs": self._epochs}
        match = _KERAS.match(line)
        if match is None:
            return None
        batch, batches = int(match.group(1)), int(match.group(2))
        metrics = read_entries(line[match.end() :])
        current = self._counted.current
        if current is None:  # the line that names the epoch is out of sight
            return {"metrics": metrics} if metrics and ("/step" in line or "/epoch" in line) else None
        if batches != (self._batches or batches) or batch < self._batch or not metrics:
            # An evaluation, or a prediction; or a thread was late: Keras prints on several.
            return {}
        before, self._ended = self._ended, set(metrics) if batch == batches else set()
        if before and before >= self._ended and batch == batches:
            return {}  # of an evaluation of as many; its own end it says again with the validation's
        self._batches, self._batch = batches, batch
        fields: Fields = {"step": (current - 1) * batches + batch, "metrics": metrics}
        if self._epochs:
            fields["total_steps"] = self._epochs * batches
        if batch == batches:
            fields["epoch"] = current
        return fields

    def _read_counts(self, line: str) -> Optional[Fields]:
        """The example that counts rows within an epoch. OpenCLIP's epochs count from 0."""
        match = _MNIST.match(_message(line))
        if match is None or int(match.group(3)) == 0:
            return None
        epoch, share = int(match.group(1)), min(1.0, int(match.group(2)) / int(match.group(3)))
        self._counted.counts_from_0 = self._counted.counts_from_0 or epoch == 0
        metrics = read_metrics(match.group(4))
        done = round(epoch - (not self._counted.counts_from_0) + share, 4)
        return {"epoch": done, **({"metrics": metrics} if metrics else {})}

    def _read_object(self, line: str) -> Optional[Fields]:
        if not line.endswith("}"):
            return None
        text = (line if line[0] == "{" else _message(line)).strip()
        return read_object(text) if text.startswith("{") else None

    def _read_pairs(self, line: str) -> Optional[Fields]:
        words = own_words(_message(line))  # a rank may stand behind the time, too
        return {} if words is None else self._pairs.read(words)


def _without_secrets(fields: Fields) -> Optional[Fields]:
    metrics = {name: value for name, value in fields.pop("metrics", {}).items() if not _SECRET.search(name)}
    return {**fields, "metrics": metrics} if metrics else fields or None


def _may_be_bar(line: str) -> bool:
    """Whether it has a part of a bar: of tqdm, rich, alive-progress, progressbar2, fastprogress or click."""
    return (
        "%|" in line or ("% " in line and "<" in line) or "━" in line
        or "%] in " in line or ") |" in line or "% [" in line
        or "#]" in line or "-]" in line
    )  # fmt: skip


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
        return {"step": int(match.group(1)) + first, "metrics": metrics, "form": _ROUNDS} if metrics else None
    match = _CATBOOST.match(line)
    if match is None:
        return None
    return {
        "step": int(match.group(1)) + 1,
        "metrics": read_entries(match.group(2).split("total:")[0].split("best:")[0]),
        "form": _ROUNDS,
    }


def _message(line: str) -> str:
    """Without a time, and without what a logging library puts before it."""
    time = _TIME.match(line)
    text = line[time.end() :] if time else line
    if "INFO" in text or "DEBUG" in text or text[:1] in "ID":
        record = _RECORD.match(text)
        return text[record.end() :] if record else text
    return text


_FIELD_OF_GROUP = {
    "step": "step",
    "total": "total_steps",
    "epoch": "epoch",
    "epochs": "total_epochs",
    "percentage": "percentage",
    "message": "message",
}
