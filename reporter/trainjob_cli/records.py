"""Jobs of the past, from the server's archive: as a list, or runs side by side."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from trainjob_client.ages import duration
from trainjob_client.requests import RECORDS

from .api import Api, Place, dig
from .listing import Lines, print_list
from .showing import history_of, loss_of, number, points_of
from .terminal import harmless, terminal

MAX_RUNS = 100  # side by side: the history of each is read
_EXPENDABLE = ("bar", "bar", "ATTEMPTS", "ENDED", "STEP", "PROGRESS", "GOODPUT")
# As the page does it (dashboard/src/model/best.ts); one table tests both, tests/unit/best_values.json.
_LOSS, _SCALE = re.compile(r"\w*loss(es)?"), re.compile(r"loss[_\s-]?scal", re.IGNORECASE)
_LOWER = re.compile(r"err|errors?|perplexity|ppl|nll|r?mse|mae|wer|cer|fid")
_HIGHER = re.compile(
    r"acc\d?|accuracy|precision|recall|f1|bleu\d?|rouge\w?|auc|auroc|map|miou|iou|rewards?|psnr|ssim"
)


def records(api: Api, job: Optional[str], metric: Optional[str], output: str, *times: Tuple[str, str]) -> int:
    """The exit code. With a job or a metric: the runs of that name, each with its best value."""
    api.flags["kind"] = RECORDS
    if not job and not metric:
        return print_list(api, output, *times)
    runs = [
        each for each in _all(api, times) if job in (None, each["jobRef"]["name"], each["metadata"]["name"])
    ]
    if output == "json":
        print(json.dumps({"kind": "JobRecordList", "items": runs}, indent=4, ensure_ascii=False))
        return 0
    if not runs:
        print(f"No records found of {job or 'jobs'}.", file=sys.stderr)
        return 0
    if len(runs) > MAX_RUNS:
        print(f"These are the latest {MAX_RUNS} of {len(runs)}.", file=sys.stderr)
    is_wide = output == "wide"
    lines = Lines(terminal(), api.flags, set(), is_wide=is_wide, expendable=_EXPENDABLE)
    print(*lines.of(_side_by_side(api, runs[:MAX_RUNS], metric)), sep="\n")
    return 0


def _all(api: Api, times: Sequence[Tuple[str, str]]) -> Iterator[Dict[str, Any]]:
    token = ""
    while True:
        more = [("continue", token)] if token else []
        found = api.read(api.list_path(), [*api.selection(), *times, *more])
        yield from found["items"]
        token = found["metadata"].get("continue")
        if not token:
            return


def _side_by_side(api: Api, runs: Sequence[Dict[str, Any]], metric: Optional[str]) -> List[Dict[str, str]]:
    rows = []
    for run in runs:
        metadata, summary = run["metadata"], run["summary"]
        metric = metric or loss_of([each["name"] for each in summary.get("metrics", ())])
        value = _in_summary(summary, metric)
        if value is None:  # an older record, or a metric beyond the first sixteen
            history = history_of(api, Place(RECORDS, metadata["namespace"], metadata["name"]))
            metric = metric or loss_of(list(dict.fromkeys(each["metric"] for each in history["series"])))
            value = _best_or_last(points_of(history, metric), metric) if metric else ""
        share, took, percent = (
            summary.get(each) for each in ("goodputPercentage", "durationSeconds", "progressPercentage")
        )
        rows.append(
            {
                "NAMESPACE": metadata["namespace"],
                "NAME": metadata["name"],
                "PHASE": summary["phase"],
                "PROGRESS": "" if percent is None else f"{percent}%",
                "best": value,
                "STEP": str(dig(summary, "steps", "current") or ""),
                "DURATION": "" if took is None else duration(took),
                "GOODPUT": "" if share is None else f"{share:.0f}%",
                "ATTEMPTS": str(summary.get("attempts") or ""),
                "CAUSE": harmless(summary.get("cause") or ""),
                "ENDED": _since(summary.get("endTime")),
            }
        )
    kind = "LAST" if metric and best_of(metric) is None else "BEST"
    head = f"{kind} {harmless(metric or 'METRIC').upper()}"
    return [{head if key == "best" else key: value for key, value in row.items()} for row in rows]


def best_of(metric: str) -> Optional[Callable[[Sequence[float]], float]]:
    """`min` or `max`, where a word of its name tells."""
    apart = re.sub("([a-z])([A-Z])", r"\1 \2", metric)  # topAcc has acc, and mIoU has miou
    words = re.split("[^a-z0-9]+", f"{metric} {apart}".lower())
    is_loss = any(map(_LOSS.fullmatch, words)) and not _SCALE.search(metric)
    if is_loss or any(map(_LOWER.fullmatch, words)):
        return min
    return max if any(map(_HIGHER.fullmatch, words)) else None


def _in_summary(summary: Dict[str, Any], metric: Optional[str]) -> Optional[str]:
    """None where the summary does not say it."""
    named = summary.get("metrics" if metric and best_of(metric) is None else "best", ())
    values = [each["value"] for each in named if each["name"] == metric]
    try:
        return number(float(values[0])) if values else None
    except ValueError:
        return None


def _best_or_last(points: Sequence[Tuple[float, float]], metric: str) -> str:
    values = [value for _, value in points]
    best = best_of(metric)
    return number(best(values) if best else values[-1]) if values else ""


def _since(time: Optional[str]) -> str:
    if time is None:
        return ""
    moment = datetime.fromisoformat(time.replace("Z", "+00:00"))
    return duration((datetime.now(timezone.utc) - moment).total_seconds())
