"""Names with numbers behind them, as programs print them: `loss: 0.52 | lr 3e-4`.

A line may be hostile (`lines`): repetitions that may meet are bounded, and so are digits that become an int.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Iterable, NamedTuple, Optional, Union

from .patterns import lazily

Metrics = dict[str, Union[float, str]]

NUMBER = r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?|[+-]?(?:nan|inf(?:inity)?)"
_GROUPED = r"[1-9]\d{0,2}(?:,\d{3}){1,4}(?:\.\d{1,40})?"
# `0:10:00`, `1 day, 0:10:00`, `12ms`, `1970-01-01` and `101-200` are not 0, 1, 12, 1970 and 101.
_END = r"(?!\.?\w|[:,-]\d|\sdays?\b)"
_PAIR = lazily(
    rf"(?<![\w./-])([^\W\d_][\w./-]{{0,63}}(?:@\d{{1,4}}(?:\.\d{{1,2}})?|\s?\([a-z]{{1,16}}\))?)"
    rf"(\s{{0,16}}[=:]\s{{0,16}}|\s{{1,4}}is\s{{1,4}}|\s{{1,16}}|(?=\[)|\x20?#)(?:\[(?=\d{{1,15}}\s{{0,4}}[/\]]))?({_GROUPED}|{NUMBER})"
    rf"(?:(?:\s{{0,16}}/\s{{0,16}}|\sof\s)(\d{{1,3}}(?:,\d{{3}}){{1,4}}|\d{{1,15}}))?{_END}",
    re.IGNORECASE,
)
_ENTRY = lazily(
    rf"(?:(?<=-\s)([a-z_][\w ]{{0,63}})|(?<!\w)([a-z_]\w{{0,63}})):\s{{0,16}}({NUMBER}){_END}", re.IGNORECASE
)
# No measurements: words of a sentence, versions, and the number of Lightning's log directory.
_NO_NAMES = {
    "accelerate", "and", "at", "by", "cuda", "cudnn", "datasets", "driver", "for", "from", "in", "inf", "jax",
    "jaxlib", "keras", "lightning", "nan", "nccl", "numpy", "of", "or", "parameters", "params",
    "peft", "pid",    "python", "pytorch", "tensorflow", "to", "took", "torch", "torchaudio",
    "torchvision", "timestamp", "transformers", "triton", "ts", "v_num",
    "version", "with",
}  # fmt: skip
# Before a whole number in a sentence: `reward over 100 episodes: 12.5` names neither 100 nor 12.5.
_PREPOSITIONS = {
    "about", "across", "after", "before", "between", "during", "every", "first", "last", "next", "on", "over",
    "past", "per", "since", "than", "top", "under", "until", "up", "within",
}  # fmt: skip
_OF_SENTENCE = (_PREPOSITIONS | _NO_NAMES) - {"of"}  # `epoch 3 of 10 loss 0.5`
# Tell two losses in one line apart: `train loss 2.1, val loss 2.2`.
_PARTS = {"train", "training", "val", "valid", "validation", "test", "eval", "dev"}
_PART_CHARACTERS = 12
# More words of a name: `learning rate: 0.1`, `[D loss: 0.5]`. They begin where something else has ended.
_WORDS = lazily(
    r"(?:^|[|,;:(\[\]){}\t]\s{0,4}|\s-\s|\s\s|\d\s)((?:(?:[A-Za-z]{1,4}\.|[A-Za-z][A-Za-z_]{0,31}(?:-[A-Za-z\d]{1,16}\.?)?)\s){1,4})$"
)
_OF_COUNTS = ("", "#", " #")  # signs: `epoch[3/10]`, `epoch #3`
_ENDS = lazily(r"\s{0,4}(?:$|[|,;\])])")
_NO_COUNT = lazily(r"[ \u00a0\u202f]\d{3}(?![\d.])|%")  # `step: 1 000`: is it 1000, or 1? `epoch: 50%`
# `tokenized 1000 documents`, `Nov 26 20:30:45`
_OF_SOMETHING = lazily(r"\s(?:[a-z]{3,32}(?![\w./-]|\s{0,4}[=:\d])|\d\d:\d\d:)", re.IGNORECASE)
_TWO = lazily(r"\s?/\s?\d{0,9}\.\d")  # `Train / Test accuracy: 0.93 / 0.92`: the first is not the test's
_WORDS_CHARACTERS = 48
MAX_NAME = 64
MAX_PAIRS = 320  # what is more is no line of measurements
EPOCHS = {"epoch", "episode"}
COUNTS = {
    "step", "steps", "global_step", "current_step", "current_steps", "num_updates", "iter", "iteration", "it",
    "epoch", "episode",
}  # fmt: skip
# `np.float64(0.5)`, `tensor(0.5, device='cuda:0')`, `Array([0.5], dtype=float32)`, `=[0.5]`
_ARRAY = lazily(
    rf"\b(?:np\.\w{{1,16}}|tensor|array)\(\[?({NUMBER})\]?(?:, [a-z][^()]{{0,100}})?\)|(?<==)\[({NUMBER})\]",
    re.IGNORECASE,
)
_THOUSANDS = lazily(  # `step:1K` of LeRobot
    rf"(?<![\w./-])(?i:({'|'.join(sorted(COUNTS))}))(\s?[=:]\s?|\s{{1,4}})(\d{{1,6}}(?:\.\d{{1,3}})?)([kKM])(?![\w.])"
)


class Pair(NamedTuple):
    """One of them."""

    name: str
    value: Any  # a number
    total: Optional[str]  # of `step 5/10`: digits
    sign: str  # what stands between name and value
    start: int  # in the line
    length: int


def find_pairs(text: str) -> list[Pair]:
    """`name=number`, `name: number`, `name number`, `name number/total`."""
    pairs = []
    sentence = -1  # where a number of a sentence has ended
    for match in islice(_PAIR.finditer(text), MAX_PAIRS):
        name, sign, value, total = match.groups()
        lowered = name.lower()
        if sign.isspace() and value.isdecimal() and lowered in _OF_SENTENCE:
            sentence = match.end() + 1
        if sentence in (match.start(), match.end() + 1) or lowered in _NO_NAMES:
            continue
        if lowered not in COUNTS and (
            sign in _OF_COUNTS or (total is None and text[match.start(3) - 1] == "[")
        ):
            continue
        start = match.start()
        if lowered not in COUNTS and _TWO.match(text, match.end()):
            continue
        if (
            lowered in COUNTS
            and _NO_COUNT.match(text, match.end())
            and (len(value) < 4 or text[match.end()] == "%")
        ):
            continue
        if sign.isspace() and "." not in value and lowered not in COUNTS:
            if _OF_SOMETHING.match(text, match.end()):
                continue
        elif sign.strip() == "is" and not _ENDS.match(text, match.end()):
            continue  # a sentence
        before = text[max(0, start - _PART_CHARACTERS) : start]
        written = (before.split() or [""])[-1] if before[-1:] == " " else ""
        if written and (lowered not in COUNTS or written == "fps" or lowered == "steps"):
            part = written.rstrip(".")
            is_named = not sign.isspace() or "." in value  # and no words of a sentence
            more = _WORDS.search(text, max(0, start - _WORDS_CHARACTERS), start) if is_named else None
            words = more.group(1) if more and (not sign.isspace() or more.group(1).count(" ") == 1) else ""
            words = words.removeprefix("and ")
            if part.lower() in _PARTS and words.count(" ") < 2:
                name, start = f"{part}_{name}", start - len(written) - 1
            elif words and (
                _NO_NAMES.isdisjoint({*words.lower().split()} - {"and"}) or words.endswith(" in ")
            ):
                name, start = (words + name)[:MAX_NAME], start - len(words)
        if lowered == "steps" and name.lower() != lowered:
            continue  # `Train steps: 20 Val steps: 5`: how many
        value, total = value.replace(",", ""), total and total.replace(",", "")
        pairs.append(Pair(name, to_number(value), total, sign, start, match.end() - start))
    return pairs


def is_place(pair: Pair, text: str) -> bool:
    """Whether it is a place in the code, as logging libraries print it: `train.py:12`, `root:9 - …`."""
    if pair.name.endswith(".py") and isinstance(pair.value, int):
        return True
    if pair.sign != ":" or not isinstance(pair.value, int) or pair.name.lower() in COUNTS:
        return False
    end = pair.start + pair.length
    if text.startswith("]", end):
        return text[pair.start - 1] == " "
    return "." in pair.name or text.startswith(" - ", end)


def find_doubted(pairs: Iterable[Pair]) -> set[str]:
    """Names of several values, of which nothing says what tells them apart."""
    first: dict[str, Any] = {}
    return {
        pair.name
        for pair in pairs
        if repr(first.setdefault(pair.name, pair.value)) != repr(pair.value)
        and pair.name.lower() not in COUNTS
    }


def read_metrics(text: str) -> Metrics:
    """All pairs by name, whatever they are."""
    pairs = find_pairs(text)
    doubted = find_doubted(pairs)
    return {pair.name: pair.value for pair in pairs if pair.name not in doubted}


def read_entries(text: str) -> Metrics:
    """`name: number` only, as Keras writes it."""
    entries = ((whole or name, value) for whole, name, value in _ENTRY.findall(text))
    return {name: to_number(value) for name, value in entries if name not in _NO_NAMES}


def to_number(value: Any) -> Any:  # noqa: ANN401 — a number where it can be one, else as it was
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return int(number) if number.is_integer() and abs(number) < 2**53 and "." not in str(value) else number


def to_plain(text: str) -> str:
    """With numbers in place of arrays of one, and of counts that are cut to thousands."""
    if "K" in text or "k" in text or "M" in text:
        text = _THOUSANDS.sub(_write_out, text)
    return _ARRAY.sub(r"\1\2", text) if "(" in text or "=[" in text else text


def _write_out(match: re.Match[str]) -> str:
    name, sign, count, unit = match.groups()
    return f"{name}{sign}{round(float(count) * (1_000_000 if unit == 'M' else 1000))}"
