"""The reporter inside one process: what a loop says is what its sinks get."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reporting import BrokenSink, HangingSink, MemorySink, wait_until
from trainjob_progress import report, report_metrics, termination, track
from trainjob_progress.document import Snapshot
from trainjob_progress.sinks.file import FileSink, TerminationSink
from trainjob_progress.stalls import StallClock, read_state
from trainjob_progress.values import Held


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "TRAINJOB_PROGRESS_FILE", "TRAINJOB_ATTEMPT", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_a_started_run_says_so_before_its_first_step(sink: MemorySink) -> None:
    report(total_steps=10, sinks=[sink])
    wait_until(lambda: sink.written)
    assert (sink.last.state, sink.last.step, sink.last.total_steps, sink.last.percentage) == (
        "running",
        0,
        10,
        0,
    )


def test_the_end_of_the_block_writes_the_last_document_and_waits_for_it(sink: MemorySink) -> None:
    with report(total_steps=10, sinks=[sink]) as r:
        for i in range(10):
            r.step(loss=1 / (i + 1), lr=0.1)
    last = sink.last
    assert (last.state, last.step, last.percentage, last.remaining_s) == ("completed", 10, 100, 0)
    assert last.metrics == {"loss": 0.1, "lr": 0.1}
    assert sink.is_closed


def test_an_exception_passes_through_and_is_the_message_of_a_failed_run(sink: MemorySink) -> None:
    def train() -> None:
        with report(total_steps=10, sinks=[sink]) as r:
            r.step(3)
            raise ValueError("loss is nan\nand more lines")

    with pytest.raises(ValueError, match="loss is nan"):
        train()
    assert (sink.last.state, sink.last.step, sink.last.message) == ("failed", 3, "ValueError: loss is nan")
    assert sink.last.percentage == 30


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (None, "completed"), (1, "failed")])
def test_sys_exit_inside_the_block_is_judged_by_its_code(
    sink: MemorySink, code: int | None, state: str
) -> None:
    with pytest.raises(SystemExit), report(sinks=[sink]):
        raise SystemExit(code)
    assert sink.last.state == state


def test_steps_are_seen_while_the_loop_runs(sink: MemorySink) -> None:
    with report(total_steps=1000, sinks=[sink]) as r:
        for _ in range(5):
            before = r._step
            r.step(loss=0.5)
            wait_until(lambda seen=before: sink.last.step > seen)
    assert [s.step for s in sink.written] == sorted(s.step for s in sink.written)


def test_tensors_are_read_on_the_training_thread_and_only_when_a_report_is_due() -> None:
    reads: list[threading.Thread] = []

    class Tensor:
        def item(self) -> float:
            reads.append(threading.current_thread())
            return 0.5

    sink = MemorySink(interval_s=60)  # asks once, at the start
    with report(sinks=[sink]) as r:
        wait_until(lambda: r.is_due)
        for _ in range(1000):
            r.step(loss=Tensor())
    assert len(reads) == 2  # when the first report was due, and at the end
    assert set(reads) == {threading.current_thread()}
    assert sink.last.metrics == {"loss": 0.5}


def test_the_last_of_a_burst_of_steps_is_not_held_back_by_a_long_one(sink: MemorySink) -> None:
    r = report(total_steps=10, sinks=[sink])
    wait_until(lambda: r.is_due)
    r.step(loss=0.5)
    r.step(loss=0.25)
    r.step(loss=0.125)  # and now the loop evaluates for an hour
    wait_until(lambda: sink.last.step == 3)
    assert sink.last.metrics == {"loss": 0.125}


def test_a_number_that_is_ready_on_its_device_is_shown_though_the_loop_does_not_come_by(
    sink: MemorySink,
) -> None:
    """JAX says whether it is; a result of an evaluation, say, before something long."""

    class Array:
        def __init__(self, *, is_ready: bool) -> None:
            self.is_ready = lambda: is_ready

        def item(self) -> float:
            assert self.is_ready(), "a hanging device was asked"
            return 0.25

    with report(total_steps=10, sinks=[sink]) as r:
        wait_until(lambda: r.is_due)
        r.step()
        r.update(eval_loss=Array(is_ready=True), later=Array(is_ready=False), count=1)
        wait_until(lambda: "count" in sink.last.metrics)
        assert sink.last.metrics == {"eval_loss": 0.25, "count": 1}
        r.update(later=0.5)


@pytest.mark.parametrize("loss", [0.5, float("nan")])
def test_a_run_that_hangs_is_not_made_to_look_fresh(sink: MemorySink, loss: float) -> None:
    class Tensor:
        def item(self) -> float:
            raise AssertionError("a hanging device was asked")

    r = report(total_steps=10, sinks=[sink])
    wait_until(lambda: r.is_due)
    r.step(loss=loss)
    wait_until(lambda: r.is_due and sink.last.step == 1)
    assert r._run.values is not None
    r._run.values["device"] = Held(Tensor())
    written = len(sink.written)
    r._run._due_since_s -= 60  # it has been waiting for a minute
    for _ in range(20):
        r._run._latest()
    assert len(sink.written) == written


def test_a_resumed_run_starts_at_its_step_and_has_no_wrong_rate(sink: MemorySink) -> None:
    r = report(total_steps=2000, initial_step=1900, sinks=[sink])
    for _ in range(3):
        time.sleep(0.05)  # time has to pass for there to be a rate
        r.step()
        r.flush(60)
    assert sink.last.step == 1903
    assert sink.last.remaining_s is not None
    assert sink.last.remaining_s >= 4  # 97 steps of 50 ms and more; now / time would say 0


def test_epochs_and_messages_and_everything_can_be_set(sink: MemorySink) -> None:
    r = report(sinks=[sink])
    r.epoch(2, 5, accuracy=0.9)
    r.message("evaluating")
    r.update(step=70, total_steps=100, percentage=12.5, remaining_s=33.4, metrics={"rewards/margins": 1})
    r.flush(60)
    last = sink.last
    assert (last.step, last.total_steps, last.epoch, last.total_epochs) == (70, 100, 2, 5)
    assert (last.percentage, last.remaining_s, last.message) == (12, 33, "evaluating")
    assert last.metrics == {"accuracy": 0.9, "rewards/margins": 1}


def test_only_rank_0_writes(monkeypatch: pytest.MonkeyPatch, sink: MemorySink) -> None:
    monkeypatch.setenv("RANK", "1")
    with report(sinks=[sink]) as r:
        assert not r.is_active
        r.step(loss=1)
    assert sink.written == []
    with report(sinks=[sink], rank=0) as r:
        r.step()
    assert (sink.last.rank, sink.last.step) == (0, 1)


def test_off_a_cluster_nothing_is_written_and_no_thread_is_started() -> None:
    before = set(threading.enumerate())  # those of another test may be about to end
    with report(total_steps=3) as r:
        r.step(loss=1)
        assert not r.is_active
        assert set(threading.enumerate()) <= before


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_never_writes(sink: MemorySink) -> None:
    r = report(total_steps=10, sinks=[sink])
    wait_until(lambda: r.is_due)
    child = os.fork()
    if child == 0:
        r.step(5, loss=1)
        r.flush(60)
        r.finish()
        os._exit(1 if r.is_active or len(sink.written) > 1 else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    r.step()
    r.finish()
    assert (sink.last.step, sink.last.state) == (1, "completed")


TERMINATED = """
import os, select, signal
from trainjob_progress import report
class Sink:
    interval_s = 0.01
    def write(self, snapshot): pass
    def close(self): pass
mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
with report(sinks=[Sink()]):
    for _ in range(40):
        child = os.fork()
        if child == 0:
            select.select([], [], [], 10)
            os._exit(7)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
"""


def test_a_child_that_is_terminated_at_once_ends_by_it() -> None:
    """Seen: a Pool that was left at once waited for ever. Its worker had our handler: Python forgets what has
    come to a child before it is set up. In a process of its own, a fork of which is quick."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", TERMINATED], check=True)


def test_a_sink_that_hangs_slows_down_neither_the_loop_nor_the_other_sinks(sink: MemorySink) -> None:
    hanging = HangingSink()
    r = report(total_steps=100_000, sinks=[hanging, sink])
    assert hanging.is_entered.wait(60)
    for _ in range(3):
        before = r._step
        r.step(loss=0.5)
        wait_until(lambda seen=before: sink.last.step > seen)
    assert hanging.written == []
    hanging.released.set()
    r.finish()
    assert len(hanging.written) < 4  # what it missed was skipped
    assert hanging.last == sink.last


def test_finish_gives_up_on_a_sink_that_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    hanging = HangingSink()
    r = report(sinks=[hanging], wait_s=0.05)
    assert hanging.is_entered.wait(60)
    r.flush()
    assert "has not taken the document within 0.05 s" in capfd.readouterr().err
    r.finish()
    assert not r.is_active
    hanging.released.set()


class Clock:
    """`time` as a module has it, with a `sleep` that is noted."""

    def __init__(self, on_sleep: Callable[[], object] = lambda: None) -> None:
        self.monotonic, self.time = time.monotonic, time.time
        self.slept = 0
        self._on_sleep = on_sleep

    def sleep(self, _: float) -> None:
        self.slept += 1
        self._on_sleep()
        time.sleep(0.001)


def test_the_process_does_not_wait_once_more_for_a_sink_that_hangs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainjob_progress.termination.FLUSH_TIMEOUT_S", 0.01)
    clock = Clock()
    hanging = HangingSink()
    r = report(sinks=[hanging])
    r.finish()
    (publisher,) = r._run._publishers
    wait_until(lambda: publisher.is_stuck(0.01, 1.0))
    monkeypatch.setattr("trainjob_progress.publisher.time", clock)
    r._run.exit()
    assert clock.slept == 0
    assert "a sink has not taken the last document in time" in capfd.readouterr().err
    hanging.released.set()


def test_the_process_waits_for_a_thread_that_has_not_got_a_core_yet(
    monkeypatch: pytest.MonkeyPatch, sink: MemorySink, capfd: pytest.CaptureFixture[str]
) -> None:
    """Seen: on a busy machine the last document of a run that had finished was its first."""
    monkeypatch.setattr("trainjob_progress.termination.FLUSH_TIMEOUT_S", 0.01)
    monkeypatch.setattr("trainjob_progress.publisher.LAST_S", 0.01)
    monkeypatch.setattr("trainjob_progress.stalls.read_state", lambda _: (b"R", b"1"))
    has_a_core = threading.Event()
    r = report(total_steps=3, sinks=[sink])
    wait_until(lambda: sink.written)
    (publisher,) = r._run._publishers
    latest = publisher._latest
    monkeypatch.setattr(publisher, "_latest", lambda: has_a_core.wait(60) and latest())
    clock = Clock(lambda: clock.slept > 100 and has_a_core.set())
    monkeypatch.setattr("trainjob_progress.publisher.time", clock)
    r.step(3)
    r.finish()
    assert (sink.last.state, sink.last.step) == ("completed", 3)
    assert capfd.readouterr().err == ""


WAITS, RUNS = b"S", b"R"


@pytest.mark.parametrize(
    ("seen", "still_ms", "waited_ms"),
    [
        pytest.param([(WAITS, b"1")] * 11, 100, 110, id="hangs"),
        pytest.param([(RUNS, b"1")] * 11, 0, 0, id="gets no core"),
        # Seen: a file was given up whose thread waited for the lock that the one that looked was holding.
        pytest.param([(WAITS, b"%d" % n) for n in range(11)], 0, 110, id="waits for Python's lock"),
        pytest.param([(WAITS, b"1")] * 9 + [(RUNS, b"1"), (WAITS, b"2")], 0, 100, id="has hung"),
        pytest.param([(b"", b"")] * 11, 100, 110, id="the kernel does not say"),
    ],
)
def test_a_thread_that_hangs_is_told_from_one_that_is_late(
    monkeypatch: pytest.MonkeyPatch, seen: list[tuple[bytes, bytes]], still_ms: int, waited_ms: int
) -> None:
    states = iter(seen)
    monkeypatch.setattr("trainjob_progress.stalls.read_state", lambda _: next(states))
    times = iter(n / 100 for n in range(12))
    monkeypatch.setattr("trainjob_progress.stalls.time.monotonic", lambda: next(times))
    clock = StallClock()
    for _ in seen:
        clock.look(None)
    monkeypatch.undo()
    assert (round(1000 * clock.still_s), round(1000 * clock.waited_s)) == (still_ms, waited_ms)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the kernel does not say")
def test_a_thread_that_runs_is_told_from_one_that_waits() -> None:
    running = threading.Thread(target=hashlib.sha256, args=(bytes(200_000_000),))  # without Python's lock
    running.start()
    assert any(read_state(running)[0] == RUNS for _ in range(1000))
    running.join()
    released = threading.Event()
    waiting = threading.Thread(target=released.wait)
    waiting.start()
    wait_until(lambda: read_state(waiting)[0] == WAITS)
    released.set()
    waiting.join()


def test_what_gevent_has_put_in_place_of_pythons_queue_is_what_threads_wait_at(
    monkeypatch: pytest.MonkeyPatch, sink: MemorySink
) -> None:
    """Seen: patched after our import, a process hung: its threads were greenlets, our queue Python's."""

    class Patched(queue.SimpleQueue[Any]):
        made = 0

        def __init__(self) -> None:
            Patched.made += 1

    monkeypatch.setattr(queue, "SimpleQueue", Patched)
    with report(total_steps=1, sinks=[sink]) as r:
        r.step()
    assert Patched.made >= 2
    assert sink.last.step == 1


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), BrokenPipeError(), RuntimeError("odd"), MemoryError()]
)
def test_a_sink_that_fails_is_one_line_then_silence(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = BrokenSink(error)
    with report(sinks=[broken]) as r:
        r.step(loss=1)
        wait_until(lambda: broken.tries > 3)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("trainjob_progress: BrokenSink failed, training goes on: ")


def test_a_sink_that_works_again_gets_the_newest_document() -> None:
    broken = BrokenSink(OSError("for now"))
    with report(sinks=[broken]) as r:
        r.step()
        wait_until(lambda: broken.tries)
        broken.write = lambda s: broken.written.append(s)  # type: ignore[method-assign]
    assert (broken.last.step, broken.last.state) == (1, "completed")


def test_several_threads_may_report_without_harm(capfd: pytest.CaptureFixture[str]) -> None:
    sinks = [MemorySink(interval_s=0.0005), MemorySink(interval_s=0.0005)]
    r = report(total_steps=10**9, sinks=sinks)

    def train(number: int) -> None:
        for i in range(3000):
            r.step(loss=float(i), **{f"m{number}-{i}": i})
            r.update(step=i % 100, epoch=i, message=str(i), metrics={f"n{i}": i})
            if i % 500 == 0:
                r.flush(60)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    r.finish()
    assert capfd.readouterr().err == "trainjob_progress: only the first 256 names of metrics are reported\n"
    assert [sink.last.state for sink in sinks] == ["completed", "completed"]


def test_reporters_with_places_of_their_own_leave_each_other_alone(sink: MemorySink) -> None:
    first = report(total_steps=2, sinks=[sink])
    other = MemorySink()
    with report(total_steps=9, sinks=[other]) as second:
        second.step(4)
        first.step()
    assert (first.is_active, second.is_active) == (True, False)
    first.step()
    first.finish()
    assert [(s.step, s.ending) for s in (sink.last, other.last)] == [(2, "finished"), (4, "stopped")]


def test_a_second_report_replaces_an_unfinished_one_and_says_so(
    sink: MemorySink, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(total_steps=10, sinks=[sink])
    first.step()
    monkeypatch.setenv("TRAINJOB_PROGRESS_FILE", str(tmp_path / "progress.json"))
    with report(total_steps=3) as second:
        assert (first.is_active, second.is_active) == (False, True)
        wait_until(lambda: sink.is_closed)
        first.step()
        second.step(3)
    assert "a second report() replaces one that was not finished" in capfd.readouterr().err
    assert all(one.step in (0, 1) for one in sink.written)
    assert json.loads((tmp_path / "progress.json").read_bytes())["step"] == 3


def test_track_counts_what_its_body_has_finished(sink: MemorySink) -> None:
    seen: list[Any] = []
    for item in track("abcd", epochs=3, sinks=[sink]):
        seen.append(item)
        report_metrics({"loss": len(seen)})
    assert seen == list("abcd") * 3
    last = sink.last
    assert (last.state, last.step, last.total_steps, last.epoch, last.total_epochs) == (
        "completed",
        12,
        12,
        3,
        3,
    )
    assert last.metrics == {"loss": 12}


def test_track_of_a_stream_has_no_total(sink: MemorySink) -> None:
    for _ in track((i for i in range(5)), sinks=[sink]):
        pass
    assert (sink.last.step, sink.last.total_steps, sink.last.percentage) == (5, None, 100)


def test_leaving_a_tracked_loop_early_is_not_called_completed(sink: MemorySink) -> None:
    for i in track(range(10), sinks=[sink]):
        if i == 4:
            break
    wait_until(lambda: sink.last.step == 5)  # its body has run
    assert (sink.last.state, sink.last.ending) == ("running", None)


def test_what_is_tracked_is_begun_when_it_would_be_without_us(sink: MemorySink) -> None:
    """A DataLoader draws its seed in `iter()`, and starts its workers there."""
    seen = []

    class Loader:
        def __iter__(self) -> Iterator[int]:
            seen.append("iter")
            return iter([1, 2])

    items = iter(track(Loader(), epochs=2, sinks=[sink]))
    seen.append("after iter")
    assert list(items) == [1, 2, 1, 2]
    assert seen == ["iter", "after iter", "iter"]
    with pytest.raises(TypeError):
        iter(track(None, sinks=[MemorySink()]))  # type: ignore[arg-type]


def test_a_run_that_has_failed_has_nothing_left_to_do(sink: MemorySink) -> None:
    with contextlib.suppress(ValueError), report(total_steps=100, sinks=[sink]) as r:
        r.update(step=10, remaining_s=90)
        raise ValueError
    assert (sink.last.state, sink.last.remaining_s) == ("failed", None)


def test_a_loader_that_breaks_is_a_failed_run(sink: MemorySink) -> None:
    def loader() -> Iterator[int]:
        yield 1
        raise OSError("shard 7 is missing")

    with pytest.raises(OSError, match="shard 7"):
        for _ in track(loader(), sinks=[sink]):
            pass
    assert (sink.last.state, sink.last.step, sink.last.message) == (
        "failed",
        1,
        "OSError: shard 7 is missing",
    )


def test_a_number_read_from_a_device_once_is_kept(sink: MemorySink) -> None:
    class Tensor:
        def item(self) -> float:
            return 0.5

    r = report(total_steps=10, sinks=[sink, MemorySink(interval_s=0.001)])
    r.update(metrics={"accuracy": Tensor()})
    for _ in range(3):
        before = r._step
        r.step(loss=1.0)
        wait_until(lambda seen=before: sink.last.step > seen)
    r.finish()
    assert sink.last.metrics == {"accuracy": 0.5, "loss": 1.0}


def test_what_a_replaced_reporter_is_still_writing_never_lands_on_its_successors() -> None:
    begun, go_on, written = threading.Event(), threading.Event(), []

    class SlowSink:
        interval_s = 0.01

        def write(self, snapshot: Any) -> None:
            if not begun.is_set():
                begun.set()
                go_on.wait(60)
            written.append(snapshot.step)

        def close(self) -> None:
            pass

    sink = SlowSink()
    report(sinks=[sink])
    assert begun.wait(60)
    with report(total_steps=9, sinks=[sink]) as second:
        second.step(7)
        go_on.set()
    wait_until(lambda: written[-1:] == [7])
    assert written[0] == 0


def test_of_a_huge_dictionary_only_what_is_kept_is_read(sink: MemorySink) -> None:
    """Seen: a step with 2,000 metrics took as long as 2,000, though 256 are kept."""
    read: list[int] = []

    class Scalar:
        def __init__(self, number: int) -> None:
            self.number = number

        def __float__(self) -> float:
            read.append(self.number)
            return float(self.number)

    with report(total_steps=2, sinks=[sink]) as r:
        for _ in range(2):
            r.step({f"m{i}": Scalar(i) for i in range(2000)})
    assert read == [*range(256), *range(256)]
    assert list(sink.last.metrics) == [f"m{i}" for i in range(256)]


def test_a_file_stays_where_it_was_when_the_program_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a run that changed into its output directory, as Hydra's do, wrote its file there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    with report(total_steps=1, sinks=[FileSink("progress.json"), TerminationSink("message")]) as r:
        monkeypatch.chdir(tmp_path / "outputs")
        r.step()
    for name in ("progress.json", "message"):
        assert json.loads((tmp_path / name).read_bytes())["step"] == 1
    assert list((tmp_path / "outputs").iterdir()) == []


def test_of_a_link_the_file_is_written_that_it_stands_for(tmp_path: Path) -> None:
    """Seen: the link was replaced, and who read the file that it stood for saw nothing."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "current").symlink_to("volume")
    (tmp_path / "progress.json").symlink_to("current/progress.json")
    (tmp_path / "link").symlink_to(tmp_path / "progress.json")
    for step in (1, 2):
        with report(total_steps=2, sinks=[FileSink(str(tmp_path / "link"))]) as r:
            r.step(step)
        assert json.loads((tmp_path / "volume" / "progress.json").read_bytes())["step"] == step
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "progress.json").is_symlink()
    assert len(list((tmp_path / "volume").iterdir())) == 1


def test_a_link_of_another_user_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp anyone may put one that names a file of this user's."""
    (tmp_path / "precious").write_text("precious")
    link = tmp_path / "progress.json"
    link.symlink_to("precious")
    real = os.lstat
    other = [*real(link)[:4], 12345, *real(link)[5:]]
    monkeypatch.setattr("os.lstat", lambda path: os.stat_result(other) if path == str(link) else real(path))
    FileSink(str(link)).write(Snapshot(state="running", timestamp=1.0, start_time=0.0, step=1))
    assert (tmp_path / "precious").read_text() == "precious"
    assert json.loads(link.read_bytes())["step"] == 1


def test_nothing_but_a_file_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Seen: with /dev/null or /dev/stdout as the path, root's training put a file in its place."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "link").symlink_to("stdout")
    os.mkfifo(tmp_path / "fifo")
    for name in ("stdout", "link", "fifo"):
        with report(total_steps=1, sinks=[FileSink(str(tmp_path / name))]) as r:
            r.step()
        assert " is not a file" in capfd.readouterr().err
    assert (tmp_path / "stdout").is_symlink()
    assert (tmp_path / "fifo").is_fifo()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_sample_of_a_run_that_ends_meanwhile_is_what_was_known(sink: MemorySink) -> None:
    with report(total_steps=3, sinks=[sink]) as r:
        r.step()
        r.flush(60)
        run = r._run
        known, levels = run.snapshot, run.levels
        run.levels = []  # as its end does, on another thread
        assert run._take() is known
        run.levels = levels


def test_a_loop_begins_without_an_error_of_our_own(monkeypatch: pytest.MonkeyPatch, sink: MemorySink) -> None:
    """Seen: four for each inner loop, where asyncio was imported, and of each all handlers were looked at."""
    looked: list[BaseException] = []
    monkeypatch.setattr(termination, "_is_raised_by_handler", lambda error, _: looked.append(error))
    for _ in track(range(3), sinks=[sink]):
        for _ in track(range(2)):
            pass
    assert looked == []
