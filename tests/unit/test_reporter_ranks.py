"""What rank 0 says of the other ranks, as it stands in the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reporting import MemorySink, wait_until
from trainjob_progress import report
from trainjob_progress.document import MAX_RANKS, Snapshot, encode, prepare
from trainjob_progress.ranks import SLOWEST, make_columns


def columns(step_seconds: Any = None, steps: Any = None, names: Any = None) -> Any:
    found = make_columns(0.0, step_seconds, steps, names)
    if found is not None:
        del found["timestamp"]
    return found


class Array:
    """What NumPy and torch have: a list of its own numbers."""

    def tolist(self) -> list[float]:
        return [0.5, 0.25]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"step_seconds": [0.5, 0.25]}, {"rank": [0, 1], "stepSeconds": [0.5, 0.25]}),
        ({"step_seconds": Array()}, {"rank": [0, 1], "stepSeconds": [0.5, 0.25]}),
        ({"steps": {3: 10, 1: 12}}, {"rank": [1, 3], "step": [12, 10]}),
        (
            {"step_seconds": [0.5, None], "steps": [7, 8], "names": ["a", "b"]},
            {"rank": [0, 1], "stepSeconds": [0.5, None], "step": [7, 8], "name": ["a", "b"]},
        ),
        ({"step_seconds": [0.5, float("nan"), -1, "x", 0]}, {"rank": [0], "stepSeconds": [0.5]}),
        ({"step_seconds": [0.123456789]}, {"rank": [0], "stepSeconds": [0.123457]}),
        ({"step_seconds": []}, None),
        ({"names": ["a"]}, None),
    ],
)
def test_columns(given: dict[str, Any], expected: Any) -> None:
    assert columns(**given) == expected


def test_of_many_ranks_the_slowest_are_kept_and_a_selection_of_the_others() -> None:
    found = columns(step_seconds=[1 + rank % 100 / 1000 for rank in range(1000)] + [9.0, 8.0])
    assert len(found["rank"]) == MAX_RANKS
    assert found["rank"][-2:] == [1000, 1001]
    assert found["rank"] == sorted(set(found["rank"]))
    usual = sorted(found["stepSeconds"])[MAX_RANKS // 2]
    assert 1.03 < usual < 1.08  # the median of all is 1.05


def test_of_many_ranks_those_behind_are_kept_where_only_steps_are_known() -> None:
    found = columns(steps=[500 - rank for rank in range(200)])
    assert set(range(200 - SLOWEST, 200)) <= set(found["rank"])


def test_a_run_says_so_in_its_document() -> None:
    sink = MemorySink()
    with report(total_steps=10, sinks=[sink], rank=0) as r:
        r.step()
        r.ranks(step_seconds=[0.5, 0.25], names=["a", "b"])
    assert sink.last.ranks is not None
    found = json.loads(encode(sink.last))["ranks"]
    assert found.pop("timestamp").endswith("Z")
    assert found == {"rank": [0, 1], "stepSeconds": [0.5, 0.25], "name": ["a", "b"]}


def test_a_new_account_is_written_while_the_loop_goes_on() -> None:
    sink = MemorySink()
    with report(total_steps=1000, sinks=[sink], rank=0) as r:
        r.ranks(step_seconds=[0.5, 0.25])

        def is_written() -> bool:
            r.step()
            return sink.last.ranks is not None

        wait_until(is_written)


@pytest.mark.parametrize("given", [5, "0.5,0.25", object()])
def test_what_makes_no_sense_is_a_warning(given: Any, capfd: pytest.CaptureFixture[str]) -> None:
    sink = MemorySink()
    with report(total_steps=10, sinks=[sink], rank=0) as r:
        r.ranks(step_seconds=given)
        r.step()
    assert "ranks are left out" in capfd.readouterr().err
    assert sink.last.ranks is None


def test_a_rank_that_does_not_report_says_nothing() -> None:
    with report(total_steps=10, sinks=[MemorySink()], rank=1) as r:
        r.ranks(step_seconds=[0.5, 0.25])


def test_ranks_give_way_where_there_is_little_room() -> None:
    prepare()
    snapshot = Snapshot(
        state="running",
        timestamp=0.0,
        start_time=0.0,
        metrics={"loss": 0.5},
        ranks=make_columns(0.0, [0.5] * 64, None, ["x" * 64] * 64),
    )
    written = json.loads(encode(snapshot, 1024))
    assert "ranks" not in written
    assert written["metrics"] == {"loss": 0.5}
