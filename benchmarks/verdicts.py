"""How right Stalled, Diverged and Straggling are, on simulated runs.

    python -m benchmarks.verdicts [--runs N] [--seed N]

N healthy runs (tests/rhythms.py, tests/courses.py: long loading, long evaluations, checkpoints, waits for
data; spikes, heavy-tailed noise, raised learning rates, harder data, overflowing gradients), N that hang and
N that diverge, through the tracker, probed each 15 s or pushed each 5 s. And N runs of 2 to 500 ranks, of
which rank 0 reports (tests/paces.py: noise, unequal work, checkpoints, waits), and N in which one becomes 2.6
to 8 times as slow. The same by the ranks' own files, where one becomes 1.6 to 8 times as slow. And the
healthy and hanging ones once more, whose ranks are read where they stand still (tests/captures.py).
"""

from __future__ import annotations

import argparse
import random
import statistics

from tests import captures, paces, verdicts

RUNS = 1000


def show(runs: int = RUNS, seed: int = 0) -> None:
    healthy = [verdicts.judge(random.Random(f"{seed} healthy {number}")) for number in range(runs)]
    stalled = sum(each.was_stalled for each in healthy)
    diverged = sum(each.diverged_at is not None for each in healthy)
    print(f"{runs} healthy runs    {stalled} were said to stall, {diverged} to diverge")
    hang = [verdicts.judge(random.Random(f"{seed} hang {number}"), hangs=True) for number in range(runs)]
    after_s = sorted(each.stalled_after_s for each in hang if each.stalled_after_s is not None)
    early = sum(each.was_stalled for each in hang)
    deciles = statistics.quantiles(after_s, n=10)
    print(
        f"{runs} that hang       {len(after_s) / runs:.1%} found within an hour, {early} before; after "
        f"{statistics.median(after_s) / 60:.0f} min (median; {deciles[0] / 60:.0f} to {deciles[-1] / 60:.0f})"
    )
    _show_quick(runs, seed)
    some = [
        verdicts.judge(random.Random(f"{seed} diverge {number}"), diverges=True) for number in range(runs)
    ]
    after = [
        each.diverged_at - each.breaks_at
        for each in some
        if each.diverged_at is not None and each.breaks_at is not None
    ]
    early = sum(number < 0 for number in after)
    found = [number for number in after if number >= 0]
    print(
        f"{runs} that diverge    {len(found) / runs:.1%} found, {early} before; after "
        f"{statistics.median(found):.0f} reports (median)"
    )
    _show_captures(runs, seed)
    _show_straggling(runs, seed)
    _show_files(runs, seed)


def _show_quick(runs: int, seed: int) -> None:
    healthy = [
        verdicts.judge(random.Random(f"{seed} quick {number}"), is_quick=True) for number in range(runs)
    ]
    stalled = sum(each.was_stalled for each in healthy)
    print(f"{runs} quick, healthy   {stalled} were said to stall")
    hang = [
        verdicts.judge(random.Random(f"{seed} quick hang {number}"), is_quick=True, hangs=True)
        for number in range(runs)
    ]
    after_s = sorted(each.stalled_after_s for each in hang if each.stalled_after_s is not None)
    early, soon = sum(each.was_stalled for each in hang), sum(number < 300 for number in after_s)
    print(
        f"{runs} quick that hang  {len(after_s) / runs:.1%} found within an hour, {early} before; "
        f"{soon / runs:.0%} within 5 min; after {statistics.median(after_s):.0f} s (median)"
    )


def _show_captures(runs: int, seed: int) -> None:
    """The same runs, whose ranks are read where they stand still."""
    for is_quick in (False, True):
        kind = "quick" if is_quick else "healthy"
        found = [
            verdicts.judge(
                random.Random(f"{seed} {kind} {number}"),
                is_quick=is_quick,
                captured=random.Random(f"{seed} captures {number}"),
            )
            for number in range(runs)
        ]
        print(f"{runs} {kind}, ranks read {sum(each.was_stalled for each in found)} were said to stall")
        for hang in captures.HANGS:
            some = [
                verdicts.judge(
                    random.Random(f"{seed} {kind} hang {number}"),
                    is_quick=is_quick,
                    hangs=True,
                    captured=random.Random(f"{seed} captures {number}"),
                    doing=hang,
                )
                for number in range(max(1, runs // 10))
            ]
            after_s = statistics.median(each.stalled_after_s or verdicts.STAYS_S for each in some)
            print(
                f"  {hang}: {sum(each.was_stalled for each in some)} before; after {after_s:.0f} s (median)"
            )


def _show_straggling(runs: int, seed: int) -> None:
    even = [paces.judge(random.Random(f"{seed} even {number}")) for number in range(runs)]
    lagging = sum(each.falsely is not None for each in even)
    print(f"{runs} with even ranks {lagging} were said to straggle")
    slow = [paces.judge(random.Random(f"{seed} lags {number}"), lags=True) for number in range(runs)]
    wrong = sum(each.falsely is not None for each in slow)
    after = [
        each.rightly - each.begins + 1
        for each in slow
        if each.rightly is not None and each.begins is not None
    ]
    print(
        f"{runs} with a slow rank {len(after) / runs:.1%} found, {wrong} of another rank; after "
        f"{statistics.median(after):.0f} accounts (median)"
    )


def _show_files(runs: int, seed: int) -> None:
    even = [paces.judge_files(random.Random(f"{seed} even {number}")) for number in range(runs)]
    lagging = sum(each.falsely is not None for each in even)
    print(f"{runs} by their own files {lagging} with even ranks were said to straggle")
    slow = [paces.judge_files(random.Random(f"{seed} lags {number}"), lags=True) for number in range(runs)]
    found, wrong = (
        sum(each.rightly is not None for each in slow),
        sum(each.falsely is not None for each in slow),
    )
    print(f"{runs} with a slow rank {found / runs:.1%} found, {wrong} of another rank")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each sort ({RUNS})")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    show(given.runs, given.seed)


if __name__ == "__main__":
    main()
