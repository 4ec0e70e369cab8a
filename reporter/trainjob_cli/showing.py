"""One job, or two beside each other: in words, with bars and its curve."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

from trainjob_client.ages import duration

from .api import Api, Place, dig, faults_of, metrics_of
from .terminal import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Terminal, columns, curve, harmless, terminal, wrap

LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "train-loss")
_KINDS = (  # of time, the useful one first; with how it is painted
    ("productive", "Productive", GREEN),
    ("evaluation", "Evaluation", BLUE),
    ("dataLoading", "Data loading", BLUE),
    ("checkpointSave", "Checkpoint save", BLUE),
    ("checkpointRestore", "Checkpoint restore", BLUE),
    ("programStartup", "Program startup", DIM),
    ("other", "Other", DIM),
    ("queued", "Queued", DIM),
    ("starting", "Starting", YELLOW),
    ("recovery", "Recovery", YELLOW),
    ("lostProgress", "Lost progress", RED),
    ("stalled", "Stalled", RED),
)
WASTED = ("starting", "lostProgress", "recovery", "stalled")
_POINTS = "400"


def number(value: Any) -> str:
    """A metric as people read it."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return harmless(str(value))
    return f"{found:.4g}" if math.isfinite(found) else str(found)


def show(api: Api, place: Place, document: Dict[str, Any]) -> None:
    """Everything about one job that fits a screen."""
    shown, status = terminal(), document["status"]
    for line in summary(place, document, shown):
        print(line)
    for line in _goodput(status, shown):
        print(line)
    for line in _curve_of(api, place, shown):
        print(line)


def summary(place: Place, document: Dict[str, Any], shown: Terminal) -> List[str]:
    """Phase, progress, metrics, conditions in words."""
    status = document["status"]
    head = f"{shown.paint(f'{place.namespace}/{place}', BOLD)}  {shown.paint_phase(status['phase'])}"
    if status.get("phaseReason") and status["phase"] not in ("Running", "Succeeded"):
        head += f" ({status['phaseReason']})"
    lines = [head]
    percent = status.get("progressPercentage")
    if percent is not None:
        cells = 40 if (shown.width or 80) >= 60 else 20
        lines.append(f"{shown.bar(percent / 100, cells, BLUE)} {percent}%")
    rows = [(name, value) for name, value in _facts(status) if value]
    lines += columns(rows) if rows else []
    if status.get("message"):
        lines.append(wrap(harmless(status["message"]), shown.width))
    if status.get("phaseMessage"):
        lines.append(wrap(harmless(status["phaseMessage"]), shown.width))
    return lines + words(document, shown)


def words(document: Dict[str, Any], shown: Terminal) -> List[str]:
    """What is wrong, if anything, as sentences."""
    lines, failure = [], dig(document, "status", "failure")
    if failure:
        is_over = document["status"]["phase"] == "Failed"
        lines.append(shown.paint("Failed:" if is_over else "An attempt failed:", RED if is_over else YELLOW))
        said = ""
        for text in filter(None, map(failure.get, ("message", "cause", "hint"))):
            if text not in said:  # the message of a known cause has both
                lines.append(wrap(harmless(text), shown.width, "  "))
                said += text
    for fault in faults_of(document):
        title = {"Reporting": "Not reporting", "Fresh": "Not fresh"}.get(fault["type"], fault["type"])
        lines.append(shown.paint(f"{title} ({fault['reason']}):", YELLOW))
        lines.append(wrap(harmless(fault["message"]), shown.width, "  "))
    return lines


def _facts(status: Dict[str, Any]) -> Sequence[Tuple[str, str]]:
    steps, epochs, left = (
        status.get("steps") or {},
        status.get("epochs") or {},
        status.get("estimatedRemainingSeconds"),
    )
    metrics = {each["name"]: each["value"] for each in status.get("metrics") or ()}
    held = status.get("resources") or {}
    end, took = status.get("estimatedCompletionTime"), status.get("durationSeconds")
    return (
        ("Step", _of(steps.get("current"), steps.get("total"))),
        ("Epoch", _of(epochs.get("current"), epochs.get("total"))),
        ("Rate", f"{number(steps['perSecond'])}/s" if steps.get("perSecond") else ""),
        (
            "Left",
            f"{duration(left)}, until {end}" if left is not None and end else "",
        ),
        ("Took", "" if took is None else duration(took)),
        (
            "Metrics",
            ", ".join(f"{harmless(name)} {number(value)}" for name, value in list(metrics.items())[:6]),
        ),
        ("Attempts", str(status["attempts"]) if status.get("attempts", 1) > 1 else ""),
        ("Checkpoint", f"step {dig(status, 'checkpoint', 'step')}" if status.get("checkpoint") else ""),
        ("Accelerators", ", ".join(f"{each['count']} {each['name']}" for each in held.get("byName") or ())),
        ("Source", str(dig(status, "observation", "source") or "")),
    )


def _of(done: Any, planned: Any) -> str:
    if done is None:
        return ""
    return f"{done:g} of {planned:g}" if planned is not None else f"{done:g}"


def _goodput(status: Dict[str, Any], shown: Terminal) -> List[str]:
    """A bar of what the time was spent on, and its largest parts."""
    seconds = dig(status, "goodput", "whole", "seconds") or {}
    total = sum(seconds.values())
    if not total:
        return []
    share = dig(status, "goodput", "whole", "percentage")
    lines = [
        "",
        f"Goodput {share:.0f}% of {duration(total)}" if share is not None else f"{duration(total)} so far",
    ]
    spent = [(title, seconds[key] / total, colour) for key, title, colour in _KINDS if seconds.get(key)]
    if shown.has_blocks:
        cells, drawn, bar = min(60, shown.width or 60), 0, ""
        for index, (_, part, colour) in enumerate(spent):
            wide = cells - drawn if index == len(spent) - 1 else round(part * cells)
            bar, drawn = bar + shown.paint("█" * wide, colour), drawn + wide
        lines.append(bar)
    parts = [f"{shown.paint(title, colour)} {part:.0%}" for title, part, colour in spent if part >= 0.005]
    lines.append(", ".join(parts))
    return lines


def history_of(api: Api, place: Place, *parameters: Tuple[str, str]) -> Dict[str, Any]:
    found: Dict[str, Any] = api.read(api.below(place, "history"), [("maxPoints", _POINTS), *parameters])
    return found


def points_of(history: Dict[str, Any], metric: str) -> List[Tuple[float, float]]:
    """Steps, or times where there are none, and values that are finite."""
    points = []
    for series in history["series"]:
        if series["metric"] == metric:
            places = series.get("steps")
            if not places or None in places:
                places = series["times"]
            points += [
                (float(x), float(y)) for x, y in zip(places, series["values"]) if math.isfinite(float(y))
            ]
    return points


def loss_of(names: Sequence[str]) -> Optional[str]:
    """The metric to draw: a loss, or else the first one."""
    lower = {each.lower(): each for each in reversed(list(names))}
    return next((lower[each] for each in LOSSES if each in lower), names[0] if names else None)


def _curve_of(api: Api, place: Place, shown: Terminal) -> List[str]:
    history = history_of(api, place)
    name = loss_of(list(dict.fromkeys(each["metric"] for each in history["series"])))
    return ["", *draw(history, name, shown)] if name is not None else []


def draw(history: Dict[str, Any], name: str, shown: Terminal, height: int = 8) -> List[str]:
    """A metric's name, where it began and where it is, and its curve."""
    points = points_of(history, name)
    if not points:
        return []
    title = f"{harmless(name)}: {points[0][1]:.4g} {'→' if shown.has_blocks else '->'} {points[-1][1]:.4g}"
    if len(points) < 2:
        return [title]
    return [shown.paint(title, BOLD), *curve(points, min(shown.width or 80, 100), height, shown)]


def compare(api: Api, jobs: Sequence[Tuple[Place, Dict[str, Any]]]) -> None:
    """Each fact in a row, a job in a column, and the loss at the same steps."""
    shown = terminal()
    rows = [["", *(str(place) for place, _ in jobs)]]
    documents = [document for _, document in jobs]
    rows.append(["Phase", *(each["status"]["phase"] for each in documents)])
    progress = [each["status"].get("progressPercentage") for each in documents]
    rows.append(["Progress", *("" if each is None else f"{each}%" for each in progress)])
    facts = [dict(_facts(each["status"])) for each in documents]
    rows += [[name, *(each[name] for each in facts)] for name in facts[0] if name != "Metrics"]
    shares = [dig(each, "status", "goodput", "whole", "percentage") for each in documents]
    rows.append(["Goodput", *("" if each is None else f"{each:.0f}%" for each in shares)])
    failures = [dig(each, "status", "failure") or {} for each in documents]
    causes = [each.get("class") or each.get("reason") or "" for each in failures]
    rows.append(["Cause", *map(harmless, causes)])
    metrics = [metrics_of(each) for each in documents]
    rows += [
        [harmless(name), *(number(each[name]) if name in each else "" for each in metrics)]
        for name in dict.fromkeys(name for each in metrics for name in each)
    ]
    rows += _at_same_steps(api, [place for place, _ in jobs])
    for line in columns([row for row in rows if any(row[1:])]):
        print(line if shown.width is None else line[: shown.width])


def _at_same_steps(api: Api, places: Sequence[Place]) -> List[List[str]]:
    """The loss of each at a quarter, half, three quarters and all of what all have done; and its least."""
    histories = [history_of(api, each) for each in places]
    names = [list(dict.fromkeys(each["metric"] for each in found["series"])) for found in histories]
    name = loss_of([each for each in names[0] if all(each in others for others in names)])
    if name is None:
        return []
    courses = [sorted(points_of(found, name)) for found in histories]
    if not all(courses):
        return []
    end = min(course[-1][0] for course in courses)
    rows = []
    for step in dict.fromkeys(round(end * quarter / 4) for quarter in (1, 2, 3, 4)):
        at = [[y for x, y in course if x <= step] for course in courses]
        if all(at):
            rows.append([f"{harmless(name)} at {step}", *(number(each[-1]) for each in at)])
    return [*rows, [f"Least {harmless(name)}", *(number(min(y for _, y in course)) for course in courses)]]
