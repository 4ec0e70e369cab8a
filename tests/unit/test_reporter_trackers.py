"""What a tracker is given of a run, and what it can do to it: nothing."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.reporting import wait_until
from trainjob_progress import event_files, report, report_metrics
from trainjob_progress.document import Snapshot
from trainjob_progress.event_files import EventFiles
from trainjob_progress.settings import find_sinks
from trainjob_progress.trackers import MAX_WAITING, Point, TrackerSink, encode_field
from trainjob_progress.trackers.tensorboard import EventFile, _record, check


class Kept:
    """A tracker that keeps what it gets; or is away, or hangs."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.endings: list[str | None] = []
        self.is_away = False
        self.is_there = threading.Event()
        self.is_there.set()

    def log(self, points: Sequence[Point]) -> None:
        self.is_there.wait(60)
        if self.is_away:
            raise OSError("no route to host")
        self.points += [(point.step, point.values) for point in points]

    def end(self, ending: str | None) -> None:
        self.endings.append(ending)


def snapshot(at_s: float, *, ending: str | None = None, **fields: Any) -> Snapshot:
    return Snapshot(state="running", ending=ending, timestamp=at_s, start_time=0, **fields)


def test_a_value_is_given_once_at_the_step_at_which_it_was_reported() -> None:
    kept = Kept()
    r = report(total_steps=100, sinks=[TrackerSink(kept, 0.01)])
    for step in range(1, 101):
        if step % 50 == 0:
            r.update(val_loss=float(step), learned="a text")
            r.step(loss=1.0 / step)
            r.flush()
        else:
            r.step(loss=1.0 / step)
    r.finish()
    assert [(step, values["val_loss"]) for step, values in kept.points if "val_loss" in values] == [
        (49, 50),
        (99, 100),
    ]
    losses = [(step, values["loss"]) for step, values in kept.points if "loss" in values]
    assert losses == [(step, 1 / step) for step, _ in losses]
    assert (losses[0][0], losses[-1][0]) == (1, 100)
    assert "learned" not in dict(item for _, values in kept.points for item in values.items())
    assert set(kept.endings) == {"finished"}
    r.update(test_loss=7)
    wait_until(lambda: kept.points[-1] == (100, {"test_loss": 7}))


def test_a_run_that_is_left_for_another_one_gives_what_it_has() -> None:
    kept = Kept()
    r = report(sinks=[TrackerSink(kept, 60)])
    wait_until(lambda: r._run._publishers[0]._written is not None)
    report_metrics(accuracy=0.5)
    r.abandon()
    wait_until(lambda: kept.endings)
    assert (kept.points, kept.endings) == ([(0, {"accuracy": 0.5})], [None])


def test_each_call_of_report_metrics_is_given() -> None:
    """As Katib's own is: a trial's metrics are compared by their number."""
    kept = Kept()
    r = report(sinks=[TrackerSink(kept, 0.01)])
    for value in range(100):
        report_metrics(accuracy=float(value))
    r.finish()
    assert [values["accuracy"] for _, values in kept.points] == list(range(100))


@pytest.mark.parametrize(
    ("snapshots", "points"),
    [
        ([{"step": 3, "metrics": {"a": 1}}, {"step": 4, "metrics": {"a": 1}}], [(3, {"a": 1})]),
        ([{"epoch": 2.0, "metrics": {"a": 1}}], [(2, {"a": 1})]),
        ([{"metrics": {"a": 1}}, {"metrics": {"a": 2}}], [(0, {"a": 1}), (1, {"a": 2})]),
        ([{"step": 1, "metrics": {"a": "inf", "b": "x"}}], [(1, {"a": float("inf")})]),
        ([{"step": 1}], []),
    ],
    ids=["unchanged", "epochs", "neither steps nor epochs", "not finite", "no metrics"],
)
def test_points_of_snapshots(snapshots: list[dict[str, Any]], points: list[Any]) -> None:
    kept = Kept()
    sink = TrackerSink(kept, 1)
    for at_s, fields in enumerate(snapshots):
        sink.write(snapshot(at_s, **fields))
    assert kept.points == points


def test_what_a_tracker_does_not_take_is_given_again_and_it_is_asked_more_rarely() -> None:
    kept = Kept()
    sink = TrackerSink(kept, 5)
    kept.is_away = True
    for at_s in range(4):
        with pytest.raises(OSError, match="no route"):
            sink.write(snapshot(at_s, step=at_s, metrics={"loss": at_s}))
    assert sink.interval_s == 60
    kept.is_away = False
    sink.write(snapshot(5, step=5, ending="failed", metrics={"loss": 5}))
    assert ([step for step, _ in kept.points], kept.endings) == ([0, 1, 2, 3, 5], ["failed"])
    assert sink.interval_s == 5


def test_a_tracker_that_hangs_holds_a_bounded_number_and_delays_neither_loop_nor_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainjob_progress.termination.FLUSH_TIMEOUT_S", 0.01)
    kept = Kept()
    kept.is_there.clear()
    sink = TrackerSink(kept, 0.01)
    sink.end_s = 0.02
    r = report(sinks=[sink])
    r.step(loss=1.0)
    for step in range(2 * MAX_WAITING):
        r.step(loss=float(step))
        r._run.collect()
    assert len(sink.queue) == MAX_WAITING
    r.finish()
    assert kept.points == []
    kept.is_there.set()
    wait_until(lambda: kept.points and kept.points[-1][1] == {"loss": 2 * MAX_WAITING - 1})


def test_other_packages_bring_trackers_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "brought-1.dist-info").mkdir()
    (tmp_path / "brought-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brought\nVersion: 1\n"
    )
    (tmp_path / "brought-1.dist-info" / "entry_points.txt").write_text(
        "[trainjob_progress.sinks]\nmine = brought:find\n"
    )
    (tmp_path / "brought.py").write_text(
        "class Sink:\n"
        "    interval_s = 1\n"
        "    write = close = print\n"
        "    def __init__(self, environ): self.environ = environ\n"
        "find = Sink\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    environ = {"TRAINJOB_PROGRESS_SINKS": "mine, nobodys,wandb"}
    monkeypatch.setitem(sys.modules, "wandb", None)
    (sink,) = find_sinks(environ)
    assert sink.environ is environ  # type: ignore[attr-defined]
    said = capfd.readouterr().err
    assert "no sink 'nobodys': one of katib, mlflow, tensorboard, wandb, or of the entry points" in said
    assert "wandb" in said.splitlines()[1]


def test_event_files_have_the_checksums_that_their_readers_want() -> None:
    """RFC 3720 B.4: CRC-32C of 32 zeros is 0x8a9136aa; TFRecord masks it."""
    crc = 0x8A9136AA
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert check(bytes(32)) == struct.pack("<I", masked)


def scalar(tag: str, step: int, field: bytes) -> bytes:
    """An event with one value, whose number is in `field`."""
    return encode_field(2, step) + encode_field(5, encode_field(1, encode_field(1, tag) + field))


def simple(value: float) -> bytes:
    return b"\x15" + struct.pack("<f", value)


def tensor(type_: int, number: int, content: bytes) -> bytes:
    return encode_field(8, encode_field(1, type_) + encode_field(number, content))


def log(directory: Path, *events: bytes, name: str = "events.out.tfevents.1.host") -> Path:
    directory.mkdir(exist_ok=True, parents=True)
    with (directory / name).open("ab") as file:
        for event in events:
            file.write(_record(event))
    return directory / name


def test_scalars_of_event_files_are_read_as_they_come(tmp_path: Path) -> None:
    log(tmp_path / "before", scalar("loss", 99, simple(9.0)))
    files = EventFiles(str(tmp_path))
    assert files.read(is_last=True) == []
    picture = encode_field(4, b"x" * 100_000)
    path = log(
        tmp_path / "train",
        encode_field(1, 1.0) + encode_field(3, "brain.Event:2"),
        scalar("loss", 1, simple(0.5)),
        scalar("lr", 1, tensor(1, 5, struct.pack("<f", 0.25))),  # float_val
        scalar("picture", 1, picture),
        scalar("accuracy", 2, tensor(2, 4, struct.pack("<d", 0.75))),  # tensor_content
        scalar("histogram", 2, tensor(2, 4, bytes(24))),
        scalar("text", 2, tensor(7, 8, b"hello")),
        scalar("epoch_loss", 0, simple(2.0)),  # Keras
    )
    log(tmp_path / "validation", scalar("loss", 2, simple(0.125)), name="events.out.tfevents.2.host")
    assert files.read(is_last=True) == [
        (1, None, {"loss": 0.5, "lr": 0.25}),
        (2, None, {"accuracy": 0.75}),
        (None, 1.0, {"epoch_loss": 2.0}),
        (2, None, {"validation/loss": 0.125}),
    ]
    assert files.read() == []  # it is not time yet
    whole = _record(scalar("loss", 3, simple(0.0)))
    with path.open("ab") as file:
        file.write(whole[:20])
    assert files.read(is_last=True) == []
    with path.open("ab") as file:
        file.write(whole[20:])
    assert files.read(is_last=True) == [(3, None, {"loss": 0.0})]


@pytest.mark.parametrize(
    "content",
    [b"\0" * 64, _record(b"\xff" * 30), _record(b"\x2a\x7f"), _record(b"\x2b")],
    ids=["no record", "endless number", "cut field", "group"],
)
def test_a_damaged_event_file_is_told_once_and_left(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    files = EventFiles(str(tmp_path / "runs"))
    path = log(tmp_path / "runs", scalar("loss", 1, simple(0.5)), name="events.out.tfevents.1.a")
    path.write_bytes(content)
    log(tmp_path / "runs", scalar("loss", 2, simple(0.25)), name="events.out.tfevents.2.b")
    assert files.read(is_last=True) == [(2, None, {"loss": 0.25})]
    assert files.read(is_last=True) == []
    assert capfd.readouterr().err.count("is read no further") == 1


def test_an_event_file_that_is_gone_is_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Seen: one that went away as its size was asked for kept the command from starting."""
    link = tmp_path / "events.out.tfevents.1.old"
    link.symlink_to(tmp_path / "later")
    files = EventFiles(str(tmp_path))
    assert files.read(is_last=True) == []
    assert capfd.readouterr().err == ""
    log(tmp_path, scalar("loss", 1, simple(0.5)), name="later")
    assert files.read(is_last=True) == [(1, None, {"loss": 0.5})]


@pytest.mark.parametrize("size", [1000, 100_000], ids=["small", "large"])
def test_the_last_scalars_of_an_event_file_are_read_whatever_was_logged_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Seen: behind the pictures of the last step the final metrics were not read."""
    monkeypatch.setattr(event_files, "MAX_BYTES", 2000)
    files = EventFiles(str(tmp_path))
    pictures = [scalar("picture", 1, encode_field(4, b"x" * size))] * 8
    log(tmp_path, scalar("loss", 1, simple(0.5)), *pictures, scalar("loss", 9, simple(0.25)))
    assert files.read(is_last=True) == [(1, None, {"loss": 0.5}), (9, None, {"loss": 0.25})]


def test_the_end_of_a_run_waits_a_bounded_time_for_event_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_files, "MAX_BYTES", 1)
    monkeypatch.setattr(event_files, "END_S", 0)
    files = EventFiles(str(tmp_path))
    log(tmp_path, scalar("loss", 1, simple(0.5)), scalar("loss", 2, simple(0.25)))
    assert files.read(is_last=True) == [(1, None, {"loss": 0.5})]
    assert "were not read to their end" in capfd.readouterr().err


def test_what_this_process_itself_writes_is_not_read(tmp_path: Path) -> None:
    """Seen: the wrapper's own sink, in the same directory, came back as a curve with a prefix."""
    files = EventFiles(str(tmp_path))
    ours = EventFile(str(tmp_path))
    ours.log([Point(1.0, 5, {"loss": 9.0})])
    log(tmp_path, scalar("loss", 1, simple(0.5)))
    assert files.read(is_last=True) == [(1, None, {"loss": 0.5})]
    ours.end(None)


def test_old_event_files_do_not_hide_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_files, "MAX_FILES", 2)
    for number in range(4, 9):
        log(tmp_path, scalar("loss", 99, simple(9.0)), name=f"events.out.tfevents.{number}.host")
    files = EventFiles(str(tmp_path))
    for number in (1, 2):
        log(tmp_path, scalar("loss", number, simple(0.5)), name=f"events.out.tfevents.{number}.host")
    assert [logged.step for logged in files.read(is_last=True)] == [1, 2]
    assert capfd.readouterr().err == ""
    log(tmp_path, scalar("loss", 3, simple(0.5)), name="events.out.tfevents.3.host")
    assert [logged.step for logged in files.read(is_last=True)] == [3]
    assert files.read(is_last=True) == []
    assert capfd.readouterr().err.count("the newest 2 are read") == 1


def test_a_step_below_zero_is_none(tmp_path: Path) -> None:
    """In a file -1 is 2**64 - 1."""
    files = EventFiles(str(tmp_path))
    log(tmp_path, scalar("loss", 2**64 - 1, simple(0.5)))
    assert files.read(is_last=True) == [(None, None, {"loss": 0.5})]
