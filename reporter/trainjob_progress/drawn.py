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
    r"\[([^\],]{0,64})(?:,\s?([^\],]{0,64}))?(?:,\s?([^\]]*))?\]?"
)
_OF = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})/(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})"
_TIME = r"\d{1,9}(?::\d\d){1,2}"
# rich's columns stand in any order; tqdm.rich's are like these.
_RICH = lazily(r"^(.{0,500}?)(?<![━╸╺])[━╸╺]{5,1000}\s(.{0,1000})$")
_RICH_COUNT = lazily(rf"(?<!\S){_OF}(?!\S)")
_PACKAGE = lazily(r"\s\[[\w.-]{1,64}\]\s*$")  # what pip installs
_RICH_TIME = lazily(rf"(?<!\S)({_TIME}|-:--:--)(?!\S)")
# Of the others each group has the name of what it gives.
_BEFORE, _BEHIND = r"^(?P<description>.{0,500}?)", r"(?P<postfix>.{0,1000})$"
_STEPS = rf"(?P<step>{_COUNT})/(?P<total>{_COUNT})"
_CLICK = lazily(
    rf"{_BEFORE}\[[#=>.-]{{5,1000}}\]\s{{1,8}}{_STEPS}(?!\S)\s{{0,8}}"
    rf"(?P<remaining>{_TIME})?{_BEHIND}"
)
_PROGRESSBAR = lazily(
    rf"{_BEFORE}\d{{1,3}}% \((?P<step>{_COUNT}) of (?P<total>{_COUNT})\) \|[^|]{{0,1000}}\|"
    rf"(?: Elapsed Time: +(?P<elapsed>{_TIME}))?(?: (?:ETA|Time): +(?P<remaining>{_TIME}))?{_BEHIND}"
)
_ALIVE = lazily(
    rf"{_BEFORE}\|[^|]{{5,1000}}\|[^|/]{{0,32}}?\s{_STEPS} \[\d{{1,3}}%\] in "
    rf"(?P<elapsed>\S{{1,16}}) \((?P<pace>~{{0,9}}(?P<remaining>[^(),]{{0,64}})[^()]{{0,64}})\){_BEHIND}"
)
_FASTPROGRESS = lazily(
    rf"{_BEFORE}\|[^|]{{0,1000}}\|\s{{1,4}}\d{{1,3}}\.\d\d% "
    rf"\[{_STEPS} (?P<elapsed>{_TIME})<(?P<remaining>{_TIME})(?P<postfix>.{{0,1000}})\]\s*$"
)
_IGNITE = lazily(  # tqdm's, in a form of its own
    rf"{_BEFORE}\[{_STEPS}\]\s{{1,4}}\d{{1,3}}%\|(?P<postfix>[^|\[]{{0,1000}})"
    rf"\[(?P<elapsed>{_TIME})<(?P<remaining>{_TIME}|\?)\]\s*$"
)


class Drawing(NamedTuple):
    """What a bar shows."""

    description: str  # before it
    step: int
    total: int
    elapsed_s: int = 0  # 0: not shown
    remaining_s: int = 0
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
    elapsed, _, remaining = match.group(4).partition("<")
    return Drawing(
        line[max(begin, match.start(1) - 500) : match.start(1)], int(match.group(2)), int(match.group(3)),
        to_seconds(elapsed), to_seconds(remaining), match.group(6) or "", match.group(5) or "",
    )  # fmt: skip


def _find_rich(line: str) -> Optional[Drawing]:
    match = _RICH.match(line)
    if match is None:
        return None
    description, rest = match.groups()
    times = _RICH_TIME.findall(rest)
    # A single time is the remaining one, the default, until the bar has come to its end.
    elapsed, remaining = (times[0], times[1]) if len(times) > 1 else ("", times[0] if times else "")
    count = _RICH_COUNT.search(rest)
    if count is None:
        return None
    step, total = (int(text.replace(",", "")) for text in count.groups())
    behind = rest[count.end() :]
    if _PACKAGE.match(behind):
        return None
    return Drawing(
        description, step, total, to_seconds(elapsed), to_seconds(remaining), behind, behind,
    )  # fmt: skip


def _find_by_names(form: re.Pattern[str], line: str) -> Optional[Drawing]:
    match = form.match(line)
    if match is None:
        return None
    found = match.groupdict("")
    return Drawing(
        found["description"], int(found["step"]), int(found["total"]),
        to_seconds(found.get("elapsed", "")), to_seconds(found["remaining"]),
        found["postfix"], found.get("pace", ""),
    )  # fmt: skip


_CLOCK = lazily(r"\d{1,9}(?::\d\d){1,2}")
_SECONDS = lazily(r"(\d{1,9})(?:\.\d{1,9})?s")


def to_seconds(time: str) -> int:
    """`01:23`, `1:01:41` or `2.4s`; what is not known counts 0."""
    time = time.strip()
    if _CLOCK.fullmatch(time):
        time_s = 0
        for digits in time.split(":"):
            time_s = time_s * 60 + int(digits)
        return time_s
    seconds = _SECONDS.fullmatch(time)
    return int(seconds.group(1)) if seconds else 0
