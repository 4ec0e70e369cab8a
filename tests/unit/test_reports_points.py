"""From what a training writes to its history: rare probes cost no resolution."""

from __future__ import annotations

from datetime import timedelta

from tests.jobs import JOB, REF
from trainjob_progress.document import Snapshot, encode, prepare
from trainjob_progress.tail import Tail
from visibility_api.history.view import Selection, select
from visibility_api.reports.log_tail import TailReader
from visibility_api.reports.report import parse_report

from .bench import Bench


def kept(bench: Bench) -> list[tuple[int, float]]:
    """Steps and values of the loss in the history."""
    view = select(bench.tracker.history(REF), Selection(), now_s=bench.now.timestamp())
    [series] = view.series
    assert series.steps is not None
    return list(zip(map(int, series.steps), series.values, strict=True))


def test_ten_lines_of_a_log_between_two_probes_are_ten_points() -> None:
    bench, reader, printed = Bench(), TailReader(), ""
    bench.job(JOB)
    for probe in range(3):
        for line in range(10):
            at, step = bench.now + timedelta(seconds=line), 10 * probe + line
            printed += f"{at:%Y-%m-%dT%H:%M:%S}.000000000Z step {step}/1000 loss {step / 64}\n"
        bench.advance(15)
        bench.observe(reader.read(printed.encode(), is_whole=True), source="logs")
    assert kept(bench) == [(step, step / 64) for step in range(30)]


def test_all_that_a_file_showed_between_two_probes_are_points() -> None:
    prepare()
    bench, tail = Bench(), Tail()
    bench.job(JOB)
    start_s = bench.now.timestamp()
    for step in range(90):  # one every half second, as the file is written
        written = Snapshot(
            state="running", timestamp=start_s + step / 2, start_time=start_s, step=step,
            metrics={"loss": step / 64},
        )  # fmt: skip
        tail.follow(written)
        bench.advance(0.5)
        if step % 30 == 29:
            bench.observe(parse_report(encode(written, recent=tail.columns(written))))
    assert kept(bench) == [(step, step / 64) for step in range(90)]
