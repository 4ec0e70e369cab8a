"""What reading a log costs, whatever is in it."""

from __future__ import annotations

import math
import time

import pytest

from visibility_api.progress.document import Progress
from visibility_api.progress.log_tail import MAX_PIECES, MAX_READ_BYTES, TailReader

from .test_probe_logs_tail import BAR, check, log


@pytest.mark.parametrize("nested", ['{"schemaVersion": 1, "a":', '{"metrics":', "[", "{'a':", "(", "-"])
def test_ten_thousand_levels_deep_is_nothing_special(nested: str) -> None:
    check(TailReader().read(log("{" + nested * 10_000 + "}", nested * 800 + "}"), is_whole=True))


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a=",
        "1",
        "a:1\t",
        " 1%|",
        "\r",
        "a\r",
        "\b",
        "\n",
        "\n{",
        "{'a': 1,",
        "2026-11-21T12:00:00Z ",
        "é",
    ],
)
def test_a_full_tail_takes_no_longer_for_its_length_than_a_quarter_of_one(piece: str) -> None:
    lines = [(piece * 8000)[:8000] for _ in range(MAX_READ_BYTES // 8000 + 1)]
    whole = log(*lines)[:MAX_READ_BYTES]
    # Squared growth would be 16 times as slow.
    assert_cost(whole, whole[: MAX_READ_BYTES // 4], times=8, more_s=0.005)


def test_what_goes_past_the_bound_of_a_tail_costs_nothing() -> None:
    tail = log(*["a=1 " * 2000] * 9)
    assert_cost(b"a=1 " * 10_000_000 + tail, tail, times=2, more_s=0.02)


def test_of_the_redraws_of_a_bar_only_the_newest_are_read() -> None:
    first = log("\r".join(["step=5 loss=0.5"] + [BAR] * MAX_PIECES))
    outcome = TailReader().read(first, is_whole=True)
    assert isinstance(outcome, Progress)
    assert outcome.metrics == ()


def assert_cost(data: bytes, less: bytes, *, times: float, more_s: float) -> None:
    """Reading `data` takes less than `times` as long as reading `less`, and `more_s`."""
    data_s = less_s = math.inf  # the least of some times, which noise cannot lower
    for _ in range(50):
        data_s, less_s = min(data_s, cost(data)), min(less_s, cost(less))
        if data_s < times * less_s + more_s:
            return
    raise AssertionError(f"{data_s} s and {less_s} s")


def cost(data: bytes) -> float:
    """CPU seconds."""
    reader, began = TailReader(), time.process_time()
    reader.read(data, is_whole=False)
    return time.process_time() - began
