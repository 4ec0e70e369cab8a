"""What clients were shown of each job, held against what is true and against what they were shown before."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .fleet import BEAT_S, Job

QUIET, ALONE = "quiet", "single replica"  # stages: nothing is restarted, one without others is
INTERVAL_S = 15.0 * max(1.0, BEAT_S / 5)  # of probes; the default where reports come each 5 s
# All replicas show the log of one owner: what one has shown, every other shows so long after that. Changes
# are gathered for 5 ms before they are sent, and all processes share the cores. `behind_s` has how long it
# took.
RELAYED_S = 0.25
OLD_S = INTERVAL_S + BEAT_S  # the last report of a steady job
START_S = 20.0  # without an owner, and until all jobs are probed again
PUSHED_S = BEAT_S / 5  # a report waits so long at most until it is pushed, and its age counts from then
TABLE_KEPT_S = 5.5  # the ages in a Table are made anew every 5 s
LASTING = ("phase", "progressPercentage", "lastUpdatedTime", "startTime", "metrics", "steps")
OF_STEADY = ("estimatedRemainingSeconds", "estimatedCompletionTime", "steps.perSecond")
_AGE = re.compile(r"(\d+)([dhms])")
_UNIT_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SHOWN_FAULTS = 3  # of a kind


@dataclass(slots=True)
class _Seen:
    """Of one job."""

    fields: set[str] = field(default_factory=set)
    newest: list[tuple[datetime, datetime]] = field(default_factory=list)  # when it was shown, what was
    settled: Any = None  # all that is shown of a job that does not change any more


class Witness:
    """Checks all that clients are shown; `faults` by kind. `stage` is what is happening meanwhile."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = {(job.namespace, job.name): job for job in jobs}
        self._seen: dict[tuple[str, str], _Seen] = defaultdict(_Seen)
        self.stage = ""
        self.judged: frozenset[str] = frozenset()  # stages after the quiet one
        self.alone = frozenset({ALONE})
        self.relayed_s = RELAYED_S
        self.may_be_stale = False  # reports may come late, and of a late one nothing is estimated
        self.is_settled = False  # every change of `Fleet.change` has been taken in
        self.faults: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = defaultdict(list)
        self.documents: Counter[str] = Counter()  # checked, by stage
        self.refused: Counter[str] = Counter()  # requests that brought no answer, by stage
        self.resumed: Counter[str] = Counter()  # watches that ended and went on elsewhere, by stage
        self.back_s: dict[tuple[str, str], float] = {}  # the furthest step back, by stage and source
        # By stage: how long after the last push of a job was shown a replica did not show it.
        self.behind_s: dict[str, float] = {}
        self.oldest_s: dict[
            tuple[str, str], float
        ] = {}  # the oldest last report of a steady job, the same way

    @property
    def jobs(self) -> Mapping[tuple[str, str], Job]:
        return self._jobs

    def watch_failed(self, event: Mapping[str, Any]) -> None:
        """A watch was told to list again."""
        self.faults["relist"] += 1
        self.examples["relist"].append(f"[{self.stage}] {event['object'].get('message')}")

    def list_came(self, items: Iterable[Mapping[str, Any]], began: datetime, by: str) -> None:
        """A whole list, requested at `began`."""
        missing = set(self._jobs)
        for item in items:
            missing.discard((item["metadata"]["namespace"], item["metadata"]["name"]))
            self.document_came(item, began, by)
        for key in missing:
            self._fault("missing", key, by, "not in the list")

    def document_came(self, item: Mapping[str, Any], began: datetime, by: str) -> None:
        """One document, requested or received at `began`."""
        key = item["metadata"]["namespace"], item["metadata"]["name"]
        if key not in self._jobs:
            return
        job, status, seen = self._jobs[key], item["status"], self._seen[key]
        self.documents[self.stage] += 1
        shown = {name for name in (*LASTING, *OF_STEADY) if _found(status, name) is not None}
        has_estimate = job.is_steady and job.quiet_from is None and not self.may_be_stale
        expected = seen.fields if has_estimate else seen.fields - set(OF_STEADY)
        if blank := expected - shown:
            self._fault("blank", key, by, f"no {', '.join(sorted(blank))}: {_brief(status)}")
        seen.fields |= shown
        if (text := status.get("lastUpdatedTime")) is not None:
            self._check_report(key, job, status, datetime.fromisoformat(text), began, by)
        if (text := status.get("estimatedCompletionTime")) is not None and datetime.fromisoformat(
            text
        ) < began:
            self._fault("end in the past", key, by, text)
        if self.is_settled and not job.is_steady:
            self._check_settled(key, status, seen, by)

    def _check_report(
        self,
        key: tuple[str, str],
        job: Job,
        status: Mapping[str, Any],
        at: datetime,
        began: datetime,
        by: str,
    ) -> None:
        step, seen = status.get("steps", {}).get("current"), self._seen[key]
        if step is None or job.written_at(step).replace(microsecond=0) != at:  # served to the second
            self._fault("untrue time", key, by, f"step {step} at {at}")
        before = max((shown for when, shown in seen.newest if when < began), default=at)
        back_s = (before - at).total_seconds()
        place = self.stage, job.source
        if back_s > 0:
            self.back_s[place] = max(back_s, self.back_s.get(place, 0.0))
            behind_s = (began - min(when for when, shown in seen.newest if shown > at)).total_seconds()
            self.behind_s[self.stage] = max(behind_s, self.behind_s.get(self.stage, 0.0))
            # A single replica that dies may take a push with it, and the next one comes a beat later.
            is_alone = self.stage in self.alone and job.quiet_from is None and back_s <= 2 * BEAT_S
            says_so = any(each["reason"] == "ReplicaBehind" for each in status["conditions"])
            if behind_s > self.relayed_s and self.stage in self.judged and not is_alone and not says_so:
                self._fault("older", key, by, f"{back_s:.0f}s before what was shown: {_brief(status)}")
        now = datetime.now(UTC)
        if not seen.newest or at > seen.newest[-1][1]:
            seen.newest = [*seen.newest[-5:], (now, at)]
        if job.is_steady and job.quiet_from is None:
            old_s = (began - at).total_seconds()
            self.oldest_s[place] = max(old_s, self.oldest_s.get(place, 0.0))

    def _check_settled(self, key: tuple[str, str], status: Mapping[str, Any], seen: _Seen, by: str) -> None:
        found = settled_form(status)
        if seen.settled is None:
            seen.settled = found
        elif found != seen.settled:
            self._fault("changed", key, by, _differences(seen.settled, found))

    def table_came(self, table: Mapping[str, Any], began: datetime, by: str) -> None:
        """A whole Table: its ages."""
        at = {column["name"]: number for number, column in enumerate(table["columnDefinitions"])}
        for row in table["rows"]:
            meta, cells = row["object"]["metadata"], row["cells"]
            key = meta["namespace"], meta["name"]
            if key not in self._jobs:
                continue
            job, step, seen = self._jobs[key], cells[at["Step"]], cells[at["Seen"]]
            if not step or not seen:
                if "steps" in self._seen[key].fields:
                    self._fault("blank", key, by, f"STEP {step} SEEN {seen}")
                continue
            written_at = job.written_at(int(step.partition("/")[0]))
            true_s = (began - written_at).total_seconds()
            kept_s = TABLE_KEPT_S + (PUSHED_S if job.source == "push" else 0.0)
            if _most_s(seen) < true_s - kept_s:
                self._fault("younger", key, by, f"SEEN {seen}, and it was written {true_s:.0f}s ago")

    def _fault(self, kind: str, key: tuple[str, str], by: str, text: str) -> None:
        job = self._jobs[key]
        self.faults[kind] += 1
        examples = self.examples[kind]
        if sum(1 for each in examples if f"[{self.stage}]" in each) < _SHOWN_FAULTS:
            examples.append(f"[{self.stage}] {'/'.join(key)} ({job.source}, {job.manner}) by {by}: {text}")

    def not_current(self, items: Iterable[Mapping[str, Any]], now: datetime) -> list[str]:
        """Jobs whose last report is not shown, though there was time to take it in."""
        found = []
        for item in items:
            key = item["metadata"]["namespace"], item["metadata"]["name"]
            job, shown = self._jobs[key], item["status"].get("steps", {}).get("current", 0)
            old_s = max(OLD_S, self.oldest_s.get((QUIET, job.source), 0.0)) + START_S
            is_moving = job.is_steady and job.quiet_from is None
            due = job.last_step(now - timedelta(seconds=old_s) if is_moving else now)
            if shown < due:
                found.append(f"{'/'.join(key)} ({job.source}, {job.manner}): step {shown}, not {due}")
        return found


def settled_form(status: Mapping[str, Any]) -> dict[str, Any]:
    """All but who looked when, and messages, which tell an age."""
    found = {name: value for name, value in status.items() if name not in ("observation", "conditions")}
    found["conditions"] = [
        {name: value for name, value in condition.items() if name != "message"}
        for condition in status["conditions"]
    ]
    return found


def _differences(before: Any, after: Any, path: str = "") -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return ", ".join(_differences(before.get(name), after.get(name), f"{path}.{name}") for name in names)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
        return ", ".join(_differences(*pair, f"{path}[{pair[0].get('type', '')}]") for pair in pairs)
    return f"{path}: {before!r} -> {after!r}"


def _found(status: Mapping[str, Any], name: str) -> Any:
    first, _, rest = name.partition(".")
    value = status.get(first)
    return value if not rest or value is None else value.get(rest)


def _most_s(age: str) -> float:
    """The most seconds that kubectl's way to print an age stands for."""
    parts = [(int(number), unit) for number, unit in _AGE.findall(age)]
    if not parts:  # of a report that the server's clock has not reached yet there is no age
        return float("inf")
    return sum(number * _UNIT_S[unit] for number, unit in parts) + _UNIT_S[parts[-1][1]]


def _brief(status: Mapping[str, Any]) -> str:
    conditions = [f"{each['type']}={each['status']}/{each['reason']}" for each in status["conditions"]]
    return (
        f"{status.get('phase')} {status.get('steps')} {status.get('lastUpdatedTime')} {' '.join(conditions)}"
    )
