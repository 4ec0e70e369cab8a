"""One drawing of a bar, by tqdm, rich, click, progressbar2, alive-progress, fastprogress or Ignite.

What a bar stands for is `bars`' to say. One that shows a percentage and no count is none: nothing tells what
it is a share of. A line may be hostile (`lines`): repetitions that may meet are bounded.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from .patterns import lazily

_COUNT = r"\d{1,15}"
_TQDM = lazily(
    rf"(?<![^\s:])(\d{{1,3}})%(?:\|[^|]{{0,1000}}\||(?=\s{_COUNT}/{_COUNT}\s\[[\d:]{{1,16}}<))"  # ncols=0
    rf"\s{{0,16}}({_COUNT})/({_COUNT})\s{{0,16}}"
    r"\[[^\],]{0,64}(?:,\s?([^\],]{0,64}))?(?:,\s?([^\]]*))?\]?"
)
_OF = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})/(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})"
_TIME = r"\d{1,9}(?::\d\d){1,2}"
# rich's columns stand in any order; tqdm.rich's are like these.
_RICH = lazily(r"^(.{0,500}?)(?<![━╸╺])[━╸╺]{5,1000}\s(.{0,1000})$")
_RICH_COUNT = lazily(rf"(?<!\S){_OF}(?!\S)")
_PACKAGE = lazily(r"\s\[[\w.-]{1,64}\]\s*$")  # what pip installs
# Of the others each group has the name of what it gives.
_BEFORE, _BEHIND = r"^(?P<description>.{0,500}?)", r"(?P<postfix>.{0,1000})$"
_STEPS = rf"(?P<step>{_COUNT})/(?P<total>{_COUNT})"
_CLICK = lazily(
    rf"{_BEFORE}\[[#=>.-]{{5,1000}}\]\s{{1,8}}{_STEPS}(?!\S)\s{{0,8}}"
    rf"(?:{_TIME})?{_BEHIND}"
)
_PROGRESSBAR = lazily(
    rf"{_BEFORE}\d{{1,3}}% \((?P<step>{_COUNT}) of (?P<total>{_COUNT})\) \|[^|]{{0,1000}}\|"
    rf"(?: Elapsed Time: +{_TIME})?(?: (?:ETA|Time): +{_TIME})?{_BEHIND}"
)
_ALIVE = lazily(
    rf"{_BEFORE}\|[^|]{{5,1000}}\|[^|/]{{0,32}}?\s{_STEPS} \[\d{{1,3}}%\] in "
    rf"\S{{1,16}} \((?P<pace>[^()]{{0,128}})\){_BEHIND}"
)
_FASTPROGRESS = lazily(
    rf"{_BEFORE}\|[^|]{{0,1000}}\|\s{{1,4}}\d{{1,3}}\.\d\d% "
    rf"\[{_STEPS} {_TIME}<{_TIME}(?P<postfix>.{{0,1000}})\]\s*$"
)
_IGNITE = lazily(  # tqdm's, in a form of its own
    rf"{_BEFORE}\[{_STEPS}\]\s{{1,4}}\d{{1,3}}%\|(?P<postfix>[^|\[]{{0,1000}})"
    rf"\[{_TIME}<(?:{_TIME}|\?)\]\s*$"
)


class Drawing(NamedTuple):
    """What a bar shows."""

    description: str  # before it
    step: int
    total: int
    postfix: str = ""  # what stands behind it
    pace: str = ""


def find_drawing(line: str) -> Optional[Drawing]:
    """The newest bar of a line; None when there is none."""
    if "%|" in line:
        return _find_tqdm(line) or _find_by_names(_IGNITE, line)
    if "% " in line and "<" in line and (found := _find_tqdm(line)) is not None:
        return found
    if "━" in line:
        return _find_rich(line)
    if "%]" in line:
        return _find_by_names(_ALIVE, line)
    if "%" in line and "|" in line:
        return _find_by_names(_PROGRESSBAR, line) or _find_by_names(_FASTPROGRESS, line)
    return _find_by_names(_CLICK, line) if "]" in line else None


def _find_tqdm(line: str) -> Optional[Drawing]:
    match = _TQDM.search(line)
    if match is None:
        return None
    begin = 0
    while (later := _TQDM.search(line, match.end())) is not None:
        begin, match = match.end(), later
    step, total, pace, postfix = match.group(2, 3, 4, 5)
    description = line[max(begin, match.start(1) - 500) : match.start(1)]
    return Drawing(description, int(step), int(total), postfix or "", pace or "")


def _find_rich(line: str) -> Optional[Drawing]:
    match = _RICH.match(line)
    if match is None:
        return None
    description, rest = match.groups()
    count = _RICH_COUNT.search(rest)
    if count is None:
        return None
    step, total = (int(text.replace(",", "")) for text in count.groups())
    behind = rest[count.end() :]
    if _PACKAGE.match(behind):
        return None
    return Drawing(description, step, total, behind, behind)


def _find_by_names(form: re.Pattern[str], line: str) -> Optional[Drawing]:
    match = form.match(line)
    if match is None:
        return None
    found = match.groupdict("")
    step, total = int(found["step"]), int(found["total"])
    return Drawing(found["description"], step, total, found["postfix"], found.get("pace", ""))
