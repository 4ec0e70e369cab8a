"""`logs`, `history`, `why` and `top`: what else the server knows, made readable."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from trainjob_client.ages import duration
from trainjob_client.errors import ClientError
from trainjob_client.requests import ALL_KINDS, path_of

from .api import Api, Place, dig
from .showing import WASTED, draw, history_of, summary, words
from .terminal import BOLD, DIM, GREEN, RED, YELLOW, columns, harmless, terminal, wrap

_LEVELS = {"ERROR": RED, "CRITICAL": RED, "WARNING": YELLOW, "WARN": YELLOW, "DEBUG": DIM}
_MESSAGE, _LEVEL = ("message", "msg", "event"), ("level", "levelname", "severity")
_TIME = ("time", "timestamp", "ts", "asctime")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_BAR = 20


def logs(api: Api, place: Place, lines: int, previous: Optional[bool], is_raw: bool) -> None:
    """The last lines. JSON lines become time, level, message and the rest as key=value."""
    parameters = [("lines", str(lines)), *([("previous", str(previous).lower())] if previous else [])]
    tail, shown = api.read(api.below(place, "log-tail"), parameters), terminal()
    where = f"{tail['podName']}" + (
        f", container {tail['containerName']}" if tail.get("containerName") else ""
    )
    print(shown.paint(f"# {where}" + (", earlier run" if tail.get("previous") else ""), DIM), file=sys.stderr)
    if not tail["lines"]:
        print("It has printed nothing.", file=sys.stderr)
    for line in tail["lines"]:
        text = readable(line, shown.paint) if not is_raw else _plain(line) if shown.is_terminal else line
        print(shown.paint(text, RED, BOLD) if line == tail.get("causeLine") else text)


def readable(line: str, paint: Any = lambda text, *_: text) -> str:
    """A line of JSON as a person would have written it; any other without what drives a terminal."""
    if not line.lstrip().startswith("{"):
        return _plain(line)
    try:
        found = json.loads(line)
    except ValueError:
        return _plain(line)
    rest = dict(found) if isinstance(found, dict) else {}
    message, level, time = (_take(rest, names) for names in (_MESSAGE, _LEVEL, _TIME))
    if not rest and message is None:
        return _plain(line)
    parts = [paint(harmless(str(time)), DIM) if time is not None else ""]
    if level is not None:
        name = harmless(str(level).upper())
        parts.append(paint(name, *([_LEVELS[name]] if name in _LEVELS else [])))
    parts.append(harmless(str(message)) if message is not None else "")
    parts += [f"{harmless(str(key))}={_value(value)}" for key, value in rest.items()]
    return " ".join(filter(None, parts))


def _plain(line: str) -> str:
    """Without colours and what else drives a terminal. Tabs stay."""
    return "\t".join(map(harmless, _COLOUR.sub("", line).split("\t")))


def _take(fields: Dict[str, Any], names: Sequence[str]) -> Any:
    return next((fields.pop(name) for name in names if name in fields), None)


def _value(value: Any) -> str:
    is_word = isinstance(value, str) and " " not in value
    return harmless(value if is_word else json.dumps(value, ensure_ascii=False))


def history(api: Api, place: Place, metrics: Sequence[str], since: str, output: str) -> None:
    """Curves in a terminal; rows of CSV in a pipe, or what `output` says."""
    parameters = [("metric", each) for each in metrics] + ([("since", since)] if since else [])
    shown = terminal()
    if output == "csv" or (not output and not shown.is_terminal):
        sys.stdout.write(api.answer(api.below(place, "history"), parameters, "text/csv").body.decode())
        return
    if output:
        media_type = {
            "json": "application/json",
            "yaml": "application/yaml",
            "ndjson": "application/x-ndjson",
        }[output]
        sys.stdout.write(api.answer(api.below(place, "history"), parameters, media_type).body.decode())
        print(end="" if output != "json" else "\n")
        return
    found = history_of(api, place, *parameters)
    names = list(dict.fromkeys(each["metric"] for each in found["series"]))
    if not names:
        print(f"{place} has reported no metric.")
    for name in names[: 8 if not metrics else None]:
        for line in draw(found, name, shown, 6):
            print(line)


def why(place: Place, document: Dict[str, Any]) -> None:
    """How it is, what is wrong, and what to do: in the server's words."""
    shown, status = terminal(), document["status"]
    print("\n".join(summary(place, document, shown)))
    failure = status.get("failure") or {}
    if failure.get("retryable") is not None:
        print(
            "Another attempt may succeed."
            if failure["retryable"]
            else "Another attempt will fail in the same way."
        )
    if wasted := dig(status, "goodput", "wastedMessage"):
        print(wrap(harmless(wasted), shown.width))
    observation = status.get("observation") or {}
    if observation.get("reason"):
        print(
            wrap(
                f"Last probe ({observation.get('reason')}): {harmless(observation.get('message') or '')}",
                shown.width,
            )
        )
    if failure or observation.get("reason"):
        print(f"Its output: kubectl trainjob-progress logs {place} -n {place.namespace}")
    elif status["phase"] == "Running" and not words(document, shown):
        print("Nothing is wrong with it.")


def top(api: Api, by: str, window: str, output: str) -> None:
    """What wastes most, by group: accelerator-hours, or hours of jobs where there are no accelerators."""
    namespace = None if api.flags.get("all_namespaces") else api.namespace
    path = path_of(ALL_KINDS, namespace)
    found = api.read(path, [*api.selection(), ("sumBy", by), ("window", window)])
    if output == "json":
        print(json.dumps(found, indent=4))
        return
    shown = terminal()
    groups = sorted(found["groups"], key=_wasted_s, reverse=True)
    groups += [{**found["others"], "name": "(others)"}] if found.get("others") else []
    rows = [[by.upper(), "JOBS", "RUNNING", "ACCELERATORS", "GOODPUT", "WASTED"]]
    for group in [*groups, {**found["total"], "name": "(all)"}]:
        share = dig(group, "goodput", "percentage")
        goodput = "" if share is None else f"{share:.0f}%".rjust(4)
        rows.append(
            [
                harmless(group.get("name") or "(none)"),
                *(str(group[key]) for key in ("jobs", "running", "accelerators")),
                goodput + (" " + "\0" * _BAR if shown.is_terminal and share is not None else ""),
                _hours(_wasted_s(group)),
            ]
        )
    lines = columns(rows)
    print(shown.paint(lines[0], BOLD))
    for line, group in zip(lines[1:], [*groups, found["total"]]):
        share = dig(group, "goodput", "percentage") or 0.0
        colour = GREEN if share >= 90 else YELLOW if share >= 50 else RED
        print(line.replace("\0" * _BAR, shown.bar(share / 100, _BAR, colour)))


def _wasted_s(group: Dict[str, Any]) -> float:
    seconds = dig(group, "goodput", "acceleratorSeconds") or dig(group, "goodput", "seconds") or {}
    return float(sum(seconds.get(key, 0) for key in WASTED))


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f}h" if seconds >= 360 else duration(seconds)


def check(api: Api) -> Tuple[int, List[str]]:
    """Each link between this terminal and the jobs, as this user. The first that is broken ends it."""
    lines: List[str] = []
    try:
        context = api.session.connection.context
        lines.append(f"ok    kubeconfig: context {context.name}, server {context.cluster['server']}")
        served = api.read("/apis/visibility.trainer.kubeflow.org/v1alpha1")["resources"]
        kinds = sorted(each["name"] for each in served if "/" not in each["name"])
        lines.append(f"ok    the API is served, with {', '.join(kinds)}")
        where = "all namespaces" if api.flags.get("all_namespaces") else f"namespace {api.namespace}"
        jobs = api.read(api.list_path(), api.selection())["items"]
        lines.append(f"ok    {len(jobs)} jobs may be read in {where}")
    except ClientError as error:
        return 1, [*lines, f"FAULT {error}"]
    silent = [each for each in jobs if _is_silent(each)]
    for job in silent[:10]:
        reason = dig(job, "status", "observation", "message") or ""
        lines.append(f"FAULT {job['metadata']['name']} does not report: {harmless(reason)}".rstrip(": "))
    return (1 if silent else 0), lines


def _is_silent(job: Dict[str, Any]) -> bool:
    conditions = dig(job, "status", "conditions") or ()
    is_running = job["status"]["phase"] == "Running"
    return is_running and any(
        each["type"] == "Reporting" and each["status"] == "False" for each in conditions
    )
