"""One report out of the last lines of a container's log."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from visibility_api.reports.document import Point, Progress, Refused
from visibility_api.reports.fields import MAX_INTEGER, MAX_MEASURED, MAX_METRIC_CHARACTERS, MAX_METRICS
from visibility_api.reports.log_tail import MAX_PIECES, TailReader

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HF = "{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '4e-05', 'epoch': '0.5'}"
BAR = " 45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s]"
DOCUMENT = {
    "schemaVersion": 1, "state": "running", "step": 450, "totalSteps": 1000, "epoch": 1.5, "totalEpochs": 3,
    "progressPercentage": 45, "estimatedRemainingSeconds": 795, "metrics": {"loss": 0.25},
    "message": "evaluating", "startTime": "2026-11-21T11:00:00Z", "timestamp": "2026-11-21T11:59:00Z",
    "rank": 0, "attempt": 2,
}  # fmt: skip


def log(*lines: str, end: str = "\n") -> bytes:
    """The lines as the kubelet gives them, one a second from noon on."""
    return "\n".join(
        f"2026-11-21T12:00:{i:02d}.000000000Z {line}" for i, line in enumerate(lines)
    ).encode() + (end.encode())


def read(*lines: str) -> Progress:
    outcome = TailReader().read(log(*lines), is_whole=True)
    assert isinstance(outcome, Progress), outcome
    return replace(outcome, points=())


@pytest.mark.parametrize("cut", [0, 6, 18, 30, 44])
@pytest.mark.parametrize("said", [HF, json.dumps(DOCUMENT)], ids=["a dictionary", "a document"])
def test_what_is_printed_beside_a_bar_that_is_written_down_in_parts_is_read(said: str, cut: int) -> None:
    """The kubelet puts neither a line end nor a time between a part and what the other stream said next."""
    bar = f"\r{BAR}" * 200
    part, rest = bar[: len(bar) - cut], bar[len(bar) - cut :]
    outcome = TailReader().read(log(part + said, rest), is_whole=True)
    assert isinstance(outcome, Progress)
    assert (outcome.step, outcome.total_steps) == (450, 1000)
    expected = ("loss", "2.345") if said == HF else ("loss", "0.25")
    assert expected in outcome.metrics


def test_lines_become_one_report_in_which_the_latest_value_of_each_field_counts() -> None:
    progress = read("step=1/10 loss=0.9", HF, "{'eval_loss': 0.5, 'epoch': 1.0}", BAR, "saving to /tmp/x")
    assert progress == Progress(
        timestamp=NOON.replace(second=3),
        step=450,
        total_steps=1000,
        epoch=1.0,
        metrics=(
            ("loss", "2.345"),
            ("grad_norm", "1.2"),
            ("learning_rate", "4e-05"),
            ("eval_loss", "0.5"),
        ),
    )


def test_ten_lines_between_two_probes_give_ten_points_of_which_the_last_is_the_report() -> None:
    reader = TailReader()
    first = reader.read(log("up", "step=1 loss=0.9"), is_whole=True)
    assert isinstance(first, Progress)
    assert first.points == ()
    lines = ["up", "step=1 loss=0.9", *(f"step={step} loss={step / 16}" for step in range(2, 12)), "saving"]
    second = reader.read(log(*lines), is_whole=True)
    assert isinstance(second, Progress)
    assert second.points == tuple(
        Point(timestamp=NOON.replace(second=step), step=step, metrics=(("loss", f"{step / 16}"),))
        for step in range(2, 11)
    )
    assert (second.timestamp, second.step) == (NOON.replace(second=11), 11)
    assert second.metrics == (("loss", "0.6875"),)
    assert reader.read(log(*lines, "saved"), is_whole=True) == replace(second, points=())


def test_a_point_has_the_position_known_then_and_what_its_own_line_measured() -> None:
    lines = [
        f"{BAR}\r{HF}",
        "{'eval_loss': 0.5, 'epoch': 1.0}",
        "rank 0: saved",
        "{'loss': nan, 'epoch': 1.5}",
        "{'loss': 0.5, 'epoch': 2.0}",
    ]
    outcome = TailReader().read(log(*lines), is_whole=True)
    assert isinstance(outcome, Progress)
    assert [
        (each.timestamp.second, each.step, each.epoch, dict(each.metrics)) for each in outcome.points
    ] == [
        (0, 450, 0.5, {"loss": "2.345", "grad_norm": "1.2", "learning_rate": "4e-05"}),
        (1, 450, 1.0, {"eval_loss": "0.5"}),
        (3, 450, 1.5, {"loss": "nan"}),
    ]


def test_a_line_that_was_redrawn_is_one_point_and_none_where_its_time_is_not_known() -> None:
    for redraws, expected in ((3, [NOON]), (300, [])):
        outcome = TailReader().read(log("\r".join([BAR] * redraws), HF), is_whole=True)
        assert isinstance(outcome, Progress)
        assert [each.timestamp for each in outcome.points] == expected


def test_documents_in_a_log_are_points_and_bring_theirs_once() -> None:
    tail = {"secondsBefore": [2, 1], "metrics": {"loss": [0.5, 0.25]}}
    said = [
        json.dumps(DOCUMENT | {"timestamp": f"2026-11-21T11:59:0{second}Z", "step": second, "recent": tail})
        for second in (3, 4, 5)
    ]
    outcome = TailReader().read(log(*said), is_whole=True)
    assert isinstance(outcome, Progress)
    assert [each.timestamp.second for each in outcome.points] == [1, 2, 3, 4]
    assert outcome.timestamp == NOON.replace(hour=11, minute=59, second=5)


def test_our_own_line_is_read_whole() -> None:
    assert read("up", json.dumps(DOCUMENT)) == Progress(
        timestamp=NOON.replace(hour=11, minute=59),
        state="running",
        step=450,
        total_steps=1000,
        epoch=1.5,
        total_epochs=3.0,
        progress_percentage=45,
        remaining_s=795,
        metrics=(("loss", "0.25"),),
        message="evaluating",
        started_at=NOON.replace(hour=11),
        rank=0,
        attempt=2,
    )


@pytest.mark.parametrize(
    "fault", [{"rank": 3}, {"step": -1}, {"timestamp": "yesterday"}, {"state": "great"}, {"metrics": [1]}]
)
def test_our_own_line_is_left_out_whole_when_it_is_at_fault_or_another_ranks(
    fault: dict[str, object],
) -> None:
    assert read("step=7 loss=0.5", json.dumps({**DOCUMENT, **fault})).step == 7


def test_lines_of_a_second_run_are_not_taken_for_lines_of_a_completed_one() -> None:
    completed = json.dumps(DOCUMENT | {"state": "completed", "step": 1000})
    assert read(completed, "saved to /tmp/x", "{'eval_loss': 0.5, 'epoch': 1.0}").state == "completed"
    assert read(completed, "step=3/500 loss=0.5").state is None


def test_a_line_without_a_time_of_its_own_has_the_time_at_which_the_kubelet_wrote_it_down() -> None:
    assert read("starting", "step=5 loss=0.5", "done").timestamp == NOON.replace(second=1)


def test_when_a_long_line_was_redrawn_last_is_not_known() -> None:
    assert read("\r".join([BAR] * 3)).timestamp == NOON
    assert read("\r".join([BAR] * 300)).timestamp is None


@pytest.mark.parametrize("redraw", ["\r", "\r\n", "\b" * 60, "\b" * 60 + "\r"])
def test_the_last_of_what_was_drawn_over_each_other_counts(redraw: str) -> None:
    bars = [f" 4{i}%|████▌     | 4{i}0/1000 [01:23<01:41,  5.41it/s]" for i in range(10)]
    assert read(redraw.join(bars)).step == 490


def test_a_bar_that_never_ends_its_line_is_read() -> None:
    assert TailReader().read(log(f"\r{BAR}", end=""), is_whole=True) == read(BAR)


@pytest.mark.parametrize(
    "mark", ["[1,{}]<{}>:", "[prterun-node-0-7@1,{}]<{}>: ", "Fri Jan 23 10:30:45 2026[1,{}]<{}>:"]
)
def test_mpirun_marks_each_write_so_one_line_may_be_of_several_ranks(mark: str) -> None:
    """It ends no line that the program does not end: bars of all ranks stand in one."""
    bars = [
        mark.format(rank, "stderr") + f"\r 4{rank}%|████ | 4{rank}0/1000 [01:23<01:41, 5.41it/s]"
        for rank in (0, 1)
    ]
    said = [mark.format(rank, "stdout") + f"{{'loss': 0.{rank}5, 'epoch': 1.0}}" for rank in (0, 1)]
    assert read("".join(bars)).step == 400
    assert read("".join(bars) + said[1]).metrics == ()
    progress = read("".join(bars) + said[0], bars[1] + said[1])
    assert (progress.step, progress.metrics) == (400, (("loss", "0.05"),))


def test_a_bar_that_is_read_again_because_its_line_goes_on_has_not_begun_again() -> None:
    bars = [f"\r {step * 5:3d}%|██| {step}/20 [00:{step:02d}<00:10, 2.00it/s]" for step in range(21)]
    reader, steps = TailReader(), []
    for count in [*range(1, 22), 21, 21]:
        outcome = reader.read(log("up", "".join(bars[:count]), end=""), is_whole=True)
        assert isinstance(outcome, Progress)
        steps.append(outcome.step)
    assert steps == [*range(21), 20, 20]
    both = reader.read(log("up", "".join(bars + bars[:5]), end=""), is_whole=True)
    assert isinstance(both, Progress)
    assert (both.step, both.total_steps) == (None, None)
    later = reader.read(log("up", "".join(bars[9:] + bars[:7]), end=""), is_whole=True)
    assert isinstance(later, Progress)
    assert (later.step, later.total_steps) == (None, None)


def test_a_run_that_goes_back_to_an_earlier_step_is_no_error() -> None:
    assert read("step=900 loss=0.5", "step=100 loss=0.6").step == 100


@pytest.mark.parametrize(
    ("line", "step", "total"),
    [
        ("step 20/10 | loss: 0.5", 20, None),
        ("step 5/0 | loss: 0.5", 5, None),
        (f"step={2**63} loss=0.5", None, None),
        ("step=-5 loss=0.5", None, None),
        ("step=2.5 loss=0.5", None, None),
        ('{"step": NaN, "loss": 0.5}', None, None),
        ('{"step": 1e400, "loss": 0.5}', None, None),
        ('{"step": 5, "step": 6, "loss": 0.5}', 6, None),
        ('{"step": true, "loss": 0.5}', None, None),
    ],
)
def test_a_position_that_cannot_be_is_left_out(line: str, step: int | None, total: int | None) -> None:
    progress = read(line)
    assert (progress.step, progress.total_steps) == (step, total)
    assert progress.metrics[-1] == ("loss", "0.5")


@pytest.mark.parametrize(
    ("said", "shown"),
    [("250", 100), ("-3", 0), ("45.4", 45), ("1e400", 100), ("9" * 400, 100), ("NaN", None)],
)
def test_a_percentage_is_brought_into_its_bounds(said: str, shown: int | None) -> None:
    line = f'{{"timestamp": "x", "progressPercentage": {said}, "estimatedRemainingSeconds": 9}}'
    progress = read(line)
    assert (progress.progress_percentage, progress.remaining_s) == (shown, 9)


def test_metrics_are_bounded_in_number_and_length() -> None:
    progress = read(*(f"name{i}=0.5" for i in range(MAX_METRICS)))
    assert len(progress.metrics) == MAX_METRICS
    many = "{" + ", ".join(f"'name{i}': 0.5" for i in range(MAX_METRICS + 9)) + "}"
    assert [name for name, _ in read(many).metrics][-1] == f"name{MAX_METRICS + 8}"
    assert len(read(many).metrics) == MAX_METRICS
    (long,) = read(json.dumps({"n" * 5000: 0.5})).metrics
    assert long == ("n" * MAX_METRIC_CHARACTERS, "0.5")
    assert read('{"step": 1, "loss": 0.' + "1" * 400 + "}").metrics[0][1] == "0.1111111111111111"


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xff\xfe\xff", log("up", "loading"), b"x" * 200_000])
def test_a_log_without_progress_is_refused_in_our_own_words(data: bytes) -> None:
    outcome = TailReader().read(data, is_whole=False)
    assert isinstance(outcome, Refused)
    assert outcome.reason == "NoProgressInLog"


# Cut tails


def test_a_first_line_that_is_cut_is_left_out() -> None:
    data = log("val_loss=0.75", "step=5/10 loss=0.25")
    cut = data[data.index(b"loss=0.75") :]
    outcome = TailReader().read(cut, is_whole=False)
    assert isinstance(outcome, Progress)
    assert outcome.metrics == (("loss", "0.25"),)


def test_a_tail_that_is_cut_within_a_character_is_read() -> None:
    data = log("\r".join([BAR] * 4))
    for at in range(data.index(b"%"), data.index(b"450/")):
        outcome = TailReader().read(data[at:], is_whole=False)
        assert isinstance(outcome, Progress)
        assert (outcome.step, outcome.total_steps) == (450, 1000)


@given(at=st.integers(0, 600))
def test_wherever_a_tail_is_cut_it_shows_nothing_that_the_log_does_not(at: int) -> None:
    data = log(
        "step=10/1000 loss=0.5",
        BAR,
        HF,
        f"\r{BAR}\r{BAR}",
        "{'val_loss': 0.75}",
        "3/10",
        json.dumps(DOCUMENT),
    )
    outcome = TailReader().read(data[at:], is_whole=at == 0)
    if isinstance(outcome, Progress):
        assert outcome.step in (None, 10, 450, 3)
        assert outcome.total_steps in (None, 1000, 10)
        known = {"loss", "grad_norm", "learning_rate", "val_loss"}
        assert known >= {name for name, _ in outcome.metrics}


# One look after another


def test_what_was_read_is_not_read_again_and_still_counts() -> None:
    reader = TailReader()
    lines = ["Epoch 3/10", "10/157 ━━━━━━━━━━ 1s 9ms/step - loss: 0.5"]
    first = reader.read(log(*lines), is_whole=True)
    assert isinstance(first, Progress)
    assert (first.step, first.total_steps) == (2 * 157 + 10, 1570)
    again = reader.read(log(*lines), is_whole=True)
    assert again == replace(first, points=())
    assert reader.read(log(*lines, "saving"), is_whole=True) is again
    later = log(*lines, "saving", "20/157 ━━━━━━━━━━ 1s 9ms/step - acc: 0.9")
    second = reader.read(later[later.index(b"10/157") :], is_whole=False)
    assert isinstance(second, Progress)
    assert (second.step, second.metrics) == (2 * 157 + 20, (("loss", "0.5"), ("acc", "0.9")))


def test_a_log_that_has_moved_past_what_was_read_is_read_from_its_beginning() -> None:
    reader = TailReader()
    reader.read(log("step=5 loss=0.5"), is_whole=True)
    outcome = reader.read(log("x", "step=6 loss=0.9", "y"), is_whole=True)
    assert isinstance(outcome, Progress)
    assert (outcome.step, outcome.metrics) == (6, (("loss", "0.9"),))


def test_the_same_line_printed_again_is_news() -> None:
    reader = TailReader()
    first = reader.read(log("loss=0.5"), is_whole=True)
    second = reader.read(log("loss=0.5", "loss=0.5"), is_whole=True)
    assert isinstance(first, Progress)
    assert isinstance(second, Progress)
    assert (first.timestamp, second.timestamp) == (NOON, NOON.replace(second=1))


def test_a_bar_that_goes_on_in_the_same_line_is_followed() -> None:
    reader = TailReader()
    bars = [f" {i}%|█     | {i}0/1000 [01:23<01:41,  5.41it/s]" for i in range(10, 90)]
    steps = []
    for count in range(1, len(bars)):
        outcome = reader.read(log("up", "\r".join(bars[:count]), end=""), is_whole=True)
        assert isinstance(outcome, Progress)
        steps.append(outcome.step)
    assert steps == [i * 10 for i in range(10, 89)]


def test_lines_with_very_many_values_become_points_of_the_latest_of_them() -> None:
    values = " ".join(f"m{n}=0.5" for n in range(40))
    outcome = TailReader().read(log(*[f"step={n} {values}" for n in range(60)]), is_whole=True)
    assert isinstance(outcome, Progress)
    assert [point.step for point in outcome.points] == [*range(59 - MAX_MEASURED // 40, 59)]


# Hostile logs

PARTS = st.sampled_from(
    [
        HF, BAR, json.dumps(DOCUMENT), "{", "{'", "}", '{"schemaVersion":', "[rank0]: ", "[1,3]<x>:", "\r",
        "\b", "\n", "\x1b[A", "\x1b[", "2026-11-21T12:00:00Z ", "Epoch 1/2\n", "1/2 ━ ", "[3]\t", "9" * 5000,
        "nan", "1e400", "step", "=", "\x00", "\ud800", " 10%|", "|",
    ]
)  # fmt: skip


@given(
    tails=st.lists(st.lists(st.one_of(PARTS, st.text(max_size=20)), max_size=30), max_size=3),
    is_whole=st.booleans(),
)
@example(tails=[["2026-11-21T12:00:00Z ", "9999-99-99T99:99:99Z ", "step=5\n"]], is_whole=True)
def test_any_log_gives_a_report_within_bounds_or_a_refusal(tails: list[list[str]], is_whole: bool) -> None:
    reader = TailReader()
    for tail in tails:
        check(reader.read("".join(tail).encode("utf-8", "surrogatepass"), is_whole=is_whole))


@pytest.mark.parametrize(
    "line",
    [
        r'{"loss\ud800": 0.5, "step": 1}',
        r'{"timestamp": "x", "progressPercentage": 5, "message": "\ud83d"}',
        r'{"timestamp": "x", "progressPercentage": 5, "metrics": {"\ud83d": 1, "b": "\ud83d"}}',
    ],
)
def test_half_of_a_surrogate_pair_never_reaches_a_document(line: str) -> None:
    progress = read(line)
    for text in (progress.message or "", *(part for pair in progress.metrics for part in pair)):
        text.encode()


def check(outcome: Progress | Refused) -> None:
    if isinstance(outcome, Refused):
        assert outcome.reason == "NoProgressInLog"
        return
    for amount in (
        outcome.step,
        outcome.total_steps,
        outcome.epoch,
        outcome.total_epochs,
        outcome.remaining_s,
    ):
        assert amount is None or 0 <= amount <= MAX_INTEGER
    assert outcome.total_steps is None or outcome.total_steps >= (outcome.step or 1)
    assert outcome.progress_percentage is None or 0 <= outcome.progress_percentage <= 100
    assert len(outcome.metrics) <= MAX_METRICS
    for name, value in outcome.metrics:
        assert 0 < len(name) <= MAX_METRIC_CHARACTERS
        assert 0 < len(value) <= MAX_METRIC_CHARACTERS


@pytest.mark.parametrize("nested", ['{"schemaVersion": 1, "a":', '{"metrics":', "[", "{'a':", "(", "-"])
def test_ten_thousand_levels_deep_is_nothing_special(nested: str) -> None:
    check(TailReader().read(log("{" + nested * 10_000 + "}", nested * 800 + "}"), is_whole=True))


def test_of_the_redraws_of_a_bar_only_the_newest_are_read() -> None:
    first = log("\r".join(["step=5 loss=0.5"] + [BAR] * MAX_PIECES))
    outcome = TailReader().read(first, is_whole=True)
    assert isinstance(outcome, Progress)
    assert outcome.metrics == ()


def test_a_structured_log_line_is_no_document_whatever_it_calls_its_fields() -> None:
    """Its message is for those who may read the log."""
    line = {
        "timestamp": "2026-11-21T12:00:00.000000Z", "level": "INFO", "logger": "train", "message": "secret",
        "rank": 0, "attempt": 4, "step": 5, "total_steps": 9, "state": "failed", "loss": 0.5,
        "metrics": {"a": 1},
    }  # fmt: skip
    found = read(json.dumps(line))
    assert (found.step, found.total_steps, found.metrics) == (5, 9, (("loss", "0.5"),))
    assert (found.message, found.state, found.attempt) == (None, None, None)
