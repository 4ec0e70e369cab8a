"""`wait JOB --until …`: what is waited for, as words and as an expression."""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Tuple

from trainjob_client.errors import ClientError
from trainjob_client.requests import is_transient
from trainjob_client.words import CONDITION_TYPES, PHASES

from .api import Api, Place, UsageError, dig, metrics_of

REACHED, FAILED, ENDED_OTHERWISE, TIMED_OUT = 0, 1, 3, 4
_EXPRESSION = re.compile(r"^\s*([^\s<>=]+)\s*(<=|>=|<|>)\s*(\S+)\s*$")
_OPERATORS: Dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_INTERVAL_S = 2.0

_WORDS = frozenset(each.lower() for each in (*PHASES, *CONDITION_TYPES))

Holds = Callable[[Dict[str, Any]], bool]


def read_until(text: str) -> Holds:
    """done, ended, 50%, loss<0.3, a phase or a condition. Raises UsageError."""
    word = text.strip().lower()
    if word in ("done", "complete", "succeeded"):
        return lambda job: job["status"]["phase"] == "Succeeded"
    if word == "ended":
        return lambda job: job["status"]["phase"] in ("Succeeded", "Failed")
    if re.fullmatch(r"\d+(\.\d+)?%", word):
        percent = float(word[:-1])
        return lambda job: (dig(job, "status", "progressPercentage") or 0) >= percent
    if found := _EXPRESSION.match(text):
        return _compares(*found.groups())
    if word in _WORDS:
        return lambda job: (
            word == job["status"]["phase"].lower()
            or any(
                each["type"].lower() == word and each["status"] == "True"
                for each in dig(job, "status", "conditions") or ()
            )
        )
    raise UsageError(f"--until {text!r} is none of: done, ended, 50%, 'loss<0.3', a phase, a condition.")


def _compares(name: str, operator: str, value: str) -> Holds:
    try:
        limit = float(value)
    except ValueError as error:
        raise UsageError(f"--until: {value!r} is no number.") from error

    def holds(job: Dict[str, Any]) -> bool:
        found: Any = metrics_of(job).get(name)
        if name in ("step", "epoch"):
            found = dig(job, "status", f"{name}s", "current")
        try:
            return found is not None and _OPERATORS[operator](float(found), limit)
        except ValueError:
            return False

    return holds


def read_duration(text: str) -> float:
    """Seconds of 90, 90s, 1h30m. Raises UsageError."""
    found = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not found or "".join(map("".join, found)) != text:
        raise UsageError(f"{text!r} is no duration, such as 90s or 1h30m.")
    return sum(float(value) * _UNITS[unit] for value, unit in found)


def wait(api: Api, word: str, holds: Holds, timeout_s: float) -> Tuple[int, str]:
    """The exit code, and what is said. A timeout of 0 looks once."""
    api.end = time.monotonic() + timeout_s
    try:
        return _follow(api, *api.find(word), holds, api.end)
    except TimeoutError as error:
        return TIMED_OUT, f"timed out waiting for the condition on {word}. {error}"


def _follow(api: Api, place: Place, job: Dict[str, Any], holds: Holds, end: float) -> Tuple[int, str]:
    has_ended = False
    while True:
        phase = job["status"]["phase"]
        if holds(job):
            return REACHED, f"{place} condition met"
        if has_ended:
            why = dig(job, "status", "failure", "message") or ""
            return ENDED_OTHERWISE, f"{place} has ended: {phase}. {why}".strip()
        # Once more after the end: the last report may come a moment later.
        has_ended = phase in ("Succeeded", "Failed")
        left = end - time.monotonic()
        if left <= 0:
            return TIMED_OUT, f"timed out waiting for the condition on {place}"
        time.sleep(min(_INTERVAL_S, left))
        try:
            job = api.get(place)[1]
        except ClientError as error:
            if not is_transient(error):  # a long wait outlives a restart of the server
                raise
