"""How good estimated ends are, beside tqdm's on the same reports.

    python -m benchmarks.estimates [--runs N] [--seed N]

Recorded trainings (tests/vectors/rhythms.json), stretched to half an hour, and N simulated runs of each kind,
in two views: probed every 15 s, and as a training process reports, each second at most. From 20 % of steps
to 95 %, whenever something new was read: by how much of what was left the estimate was off, and whether that
lay in its range. Of each run its first value counts (at 20 %), and the median of all (after).

"tqdm closer" counts runs of which tqdm's median is the smaller by more than a point, and says by how many
at most. Beside it the same of an estimate that cannot be had: it knows all about a simulated run, each
pause to come, and not how long each step will take by chance. What that loses is luck. "at 20 %" of it is the
first moment alone, to show what one moment is worth.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tqdm.std import EMA

from tests import rhythms
from tests.rhythms import Rhythm
from visibility_api.jobs.estimate import Pace
from visibility_api.reports.document import Progress

RUNS = 16
RECORDED_S = 1800.0
PROBE_S, REPORT_S = 15.0, 1.0
FROM, TO = 0.2, 0.95
CLOSER = 0.01  # tqdm's estimate counts as the better one from this difference of the median errors
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one run in one view, as shares of what was left."""

    at_20: float
    after: float
    tqdm_at_20: float
    tqdm_after: float
    held_at_20: bool  # the truth was in the range
    held: float  # share of the moments at which it was
    width: float  # of the range, median
    best_at_20: float | None = None  # of who knows all but chance; None: of a recorded run nobody does
    best_after: float | None = None


class Tqdm:
    """The estimate of `tqdm` with its own default smoothing, updated with each report."""

    def __init__(self) -> None:
        self._steps, self._seconds = EMA(0.3), EMA(0.3)
        self._last: tuple[float, int] | None = None

    def observe(self, at_s: float, step: int) -> None:
        if self._last is not None and step < self._last[1]:
            self._steps, self._seconds = EMA(0.3), EMA(0.3)  # another process, with a bar of its own
        elif self._last is not None:
            self._steps(step - self._last[1])
            self._seconds(at_s - self._last[0])
        self._last = at_s, step

    def remaining_s(self, left: int) -> float | None:
        return left * self._seconds() / self._steps() if self._steps() else None


def judge(
    rhythm: Rhythm, seen: Sequence[tuple[float, int]], on_average: Rhythm | None = None
) -> Score | None:
    """How good the estimates of this run are, from what was seen of it; None without any. `on_average`: the
    same run without noise."""
    (end_s, total), first = rhythm[-1], rhythm[0][1]
    best: list[float] = []
    at = _moments(rhythm, on_average) if on_average is not None else {}
    pace, tqdm = Pace(), Tqdm()
    ours: list[float] = []
    theirs: list[float] = []
    held: list[bool] = []
    widths: list[float] = []
    for at_s, step in seen:
        report = Progress(timestamp=T0 + timedelta(seconds=at_s), started_at=T0, step=step, total_steps=total)
        pace = pace.advance(report)
        tqdm.observe(at_s, step)
        if not FROM <= (step - first) / (total - first) <= TO:
            continue
        found, left_s = pace.left_s(report), end_s - at_s
        other_s = tqdm.remaining_s(total - step)
        if found is None or found[1] is None or found[2] is None or other_s is None:
            continue
        if at:
            best.append(abs(at[at_s] - left_s) / left_s)
        ours.append(abs(found[0] - left_s) / left_s)
        theirs.append(abs(other_s - left_s) / left_s)
        held.append(found[1] <= left_s <= found[2])
        widths.append((found[2] - found[1]) / left_s)
    if not ours:
        return None
    return Score(
        at_20=ours[0],
        after=statistics.median(ours),
        tqdm_at_20=theirs[0],
        tqdm_after=statistics.median(theirs),
        held_at_20=held[0],
        held=statistics.fmean(held),
        width=statistics.median(widths),
        best_at_20=best[0] if best else None,
        best_after=statistics.median(best) if best else None,
    )


def _moments(rhythm: Rhythm, on_average: Rhythm) -> dict[float, float]:
    """How many seconds are left on average at each moment of a run."""
    end_s = on_average[-1][0]
    return {at_s: end_s - average_s for (at_s, _), (average_s, _) in zip(rhythm, on_average, strict=True)}


def groups(runs: int, seed: int) -> Iterator[tuple[str, list[tuple[Rhythm, Rhythm | None]]]]:
    """Every run, by what it is an example of; simulated ones with the same without noise."""
    for name, rhythm in rhythms.recorded().items():
        yield f"recorded: {name}", [(rhythms.stretched(rhythm, RECORDED_S), None)]
    on_average = rhythms.simulated(runs, seed, rhythms.OnAverage)
    for name, some in rhythms.simulated(runs, seed).items():
        yield name, list(zip(some, on_average[name], strict=True))


def measure(runs: int, seed: int, interval_s: float) -> dict[str, list[Score]]:
    """The scores of each group, as seen each so often."""
    view = rhythms.probed if interval_s == PROBE_S else rhythms.reported
    found = {
        name: [judge(rhythm, view(rhythm, interval_s), on_average) for rhythm, on_average in some]
        for name, some in groups(runs, seed)
    }
    return {name: [score for score in scores if score is not None] for name, scores in found.items()}


def show(runs: int = RUNS, seed: int = 0) -> None:
    for name, interval_s in (("probed every 15 s", PROBE_S), ("reported every second", REPORT_S)):
        print(
            f"{name:<56} error at 20 %, after   tqdm's           in range, after   width   "
            "tqdm closer    than who knows (at 20 %)"
        )
        scores = measure(runs, seed, interval_s)
        recorded = [one for group, some in scores.items() if group.startswith("recorded") for one in some]
        simulated = [
            one for group, some in scores.items() if not group.startswith("recorded") for one in some
        ]
        totals = {"all recorded": recorded, "all simulated": simulated, "all": recorded + simulated}
        for group, some in {**scores, **totals}.items():
            if some:
                print(_line(group, some))


def _line(name: str, scores: list[Score]) -> str:
    def median(values: Iterator[float]) -> str:
        return f"{statistics.median(values):7.1%}"

    behind = [score.after - score.tqdm_after for score in scores]
    closer = sum(by > CLOSER for by in behind)
    points = f" by {100 * max(behind):.0f}" if closer else ""
    lucky = lucky_at_20 = 0
    for score in scores:
        if score.best_after is not None and score.best_at_20 is not None:
            lucky += score.best_after > score.tqdm_after + CLOSER
            lucky_at_20 += score.best_at_20 > score.tqdm_at_20 + CLOSER
    known = "" if name.startswith(("recorded", "all recorded")) else f"{lucky:3} ({lucky_at_20})"
    return (
        f"{name[:54]:<56} {median(s.at_20 for s in scores)} {median(s.after for s in scores)}   "
        f"{median(s.tqdm_at_20 for s in scores)} {median(s.tqdm_after for s in scores)}   "
        f"{statistics.fmean(s.held_at_20 for s in scores):7.0%} "
        f"{statistics.fmean(s.held for s in scores):7.0%}   {median(s.width for s in scores)}   "
        f"{f'{closer:3} of {len(scores)}{points}':<16}{known}".rstrip()
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"simulated runs of each kind ({RUNS})")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    show(given.runs, given.seed)


if __name__ == "__main__":
    main()
