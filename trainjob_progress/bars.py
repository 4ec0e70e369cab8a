"""Bars as tqdm draws them, of which some stand for the training and most do not."""

from __future__ import annotations

import re
from typing import Any, Optional

from .pairs import read_metrics

Fields = dict[str, Any]

_COUNT = r"\d{1,15}"
_BAR = re.compile(
    rf"(?<![^\s:])(\d{{1,3}})%\|[^|]{{0,1000}}\|\s{{0,16}}({_COUNT})/({_COUNT})\s{{0,16}}"
    r"\[([^\],]{0,64})(?:,\s?([^\],]{0,64}))?(?:,\s?([^\]]*))?\]?"
)
_SIDE_BAR = re.compile(
    r"map|download|load|filter|token|generat|eval|valid|test|predict|sanity|fetch|shard|extract|sav|cach|dataset",
    re.IGNORECASE,
)
_SIDE_UNIT = re.compile(r"\bexamples|[\d?][kMGTP]?i?B/s")  # of the datasets library, of downloads
_EPOCH = re.compile(rf"\bepoch:?\s{{0,16}}\[?({_COUNT})(?:\s{{0,16}}/\s{{0,16}}({_COUNT}))?", re.IGNORECASE)
_EPOCHS_BAR = re.compile(r"\bepochs?\s?:?\s{0,4}$", re.IGNORECASE)
_TORCHTUNE = re.compile(rf"(?:^|\s)({_COUNT})\|({_COUNT})\|Loss: ")
_PART = re.compile(rf"(?<!\d){_COUNT}/\d")  # `Fold 2/5`, Ultralytics' `3/100  2.3G …`
_CLOCK = re.compile(r"\d{1,9}(?::\d\d){1,2}")


class BarReader:
    """Reads one program's bars and remembers what later ones build on."""

    def __init__(self) -> None:
        self._total: Optional[int] = None  # of the bar that stands for the whole run
        self._lasts_s = 0  # how long that bar takes, as far as it knows
        self._counts_from_0 = False  # epochs: Lightning does, most loops print them from 1

    def read(self, line: str, *, is_nested: bool) -> Optional[Fields]:
        """The fields of a report, perhaps none; None when there is no bar. `is_nested`: below another one."""
        bars = list(_BAR.finditer(line))
        if not bars:
            return None
        match = bars[-1]  # the newest
        description = line[bars[-2].end() if len(bars) > 1 else 0 : match.start(1)]
        if _SIDE_BAR.search(description) or _SIDE_UNIT.search(match.group(5) or ""):
            return {}
        step, total = int(match.group(2)), int(match.group(3))
        metrics = read_metrics(match.group(6) or "")
        fields: Fields = {"metrics": metrics} if metrics else {}
        epoch = _EPOCH.search(description)
        if epoch:
            return {**fields, **self._in_epoch(epoch, step, total, has_version="v_num=" in line)}
        if _EPOCHS_BAR.search(description):
            return {**fields, "epoch": step, "total_epochs": total}
        torchtune = _TORCHTUNE.search(description)  # epoch, counted from 1, and step of the whole run
        if torchtune:
            done = max(int(torchtune.group(1)) - 1, 0)
            return {**fields, "step": int(torchtune.group(2)), "epoch": done + (1 if step == total else 0)}
        if is_nested or _PART.search(description):
            return fields
        lasts_s = _duration_s(match.group(4))
        # Of several bars that follow each other, such as an evaluation's, the one that takes longest stands
        # for the run.
        if self._total not in (None, total) and lasts_s <= self._lasts_s:
            return {}
        self._total, self._lasts_s = total, lasts_s
        return {**fields, "step": step, "total_steps": total}

    def _in_epoch(self, match: re.Match[str], step: int, total: int, *, has_version: bool) -> Fields:
        epoch, epochs = int(match.group(1)), match.group(2)
        if epochs is not None:
            done = max(epoch - 1, 0)
            return {
                "step": done * total + step,
                "total_steps": int(epochs) * total,
                "epoch": done + (1 if step == total else 0),
                "total_epochs": int(epochs),
            }
        # No word of how many there will be. Only Lightning names the version of its log.
        self._counts_from_0 = self._counts_from_0 or epoch == 0 or has_version
        done = epoch if self._counts_from_0 else epoch - 1
        return {"step": done * total + step, "epoch": done + (1 if step == total else 0)}


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
