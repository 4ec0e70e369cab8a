"""What a reporter costs its loop, beside tqdm in the same run; and what a call takes while everything hangs.

    python -m benchmarks.reporter

Ratios, because seconds are the machine's. Prints one JSON object; ends with 1 when a limit is broken.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import trustme
from tqdm import tqdm

from trainjob_progress import Reporter, report, track
from trainjob_progress.document import Snapshot
from trainjob_progress.settings import find_sinks

CALLS = 200_000
ROUNDS = 15
MAX_RATIO = 1.5  # step(loss=…) to tqdm.update()
MAX_LEAVING_MS = 200
MAX_P999_US = 50.0
MAX_BYTES_KEPT = 64 * 1024
MAX_IMPORT_RATIO = 2.0  # to importing `logging`


def main() -> int:
    """Measure, print, judge."""
    with tempfile.TemporaryDirectory() as directory:
        results = {"cost": measure_cost(Path(directory)), "hanging": measure_hanging(Path(directory))}
    results["leaving_ms"] = measure_leaving()
    results["kept_bytes"] = measure_memory()
    results["ratio_import"] = measure_import()
    print(json.dumps(results, indent=2))
    faults = []
    if results["cost"]["ratio_step_with_loss"] > MAX_RATIO:
        faults.append(f"step(loss=…) costs more than {MAX_RATIO} times tqdm.update()")
    if results["hanging"]["p99.9_us"] > MAX_P999_US:
        faults.append(f"p99.9 of a call while sinks hang is above {MAX_P999_US:g} µs")
    if max(results["leaving_ms"].values()) > MAX_LEAVING_MS:
        faults.append(f"leaving a block or a loop while sinks hang takes more than {MAX_LEAVING_MS} ms")
    if results["kept_bytes"] > MAX_BYTES_KEPT:
        faults.append("a step leaves something behind")
    if results["ratio_import"] > MAX_IMPORT_RATIO:
        faults.append(f"importing takes more than {MAX_IMPORT_RATIO:g} times that of logging")
    for fault in faults:
        print(f"limit broken: {fault}", file=sys.stderr)
    return 1 if faults else 0


def measure_cost(directory: Path) -> dict[str, float]:
    """Nanoseconds of a call, and ratios: medians of rounds that take turns, so that noise hits all alike."""
    environ = {"TRAINJOB_PROGRESS_FILE": str(directory / "cost.json")}
    other = {"TRAINJOB_PROGRESS_FILE": str(directory / "loop.json")}
    of_rank_3 = begin_on_rank_3(directory / "rank.json")
    active = report(total_steps=10**12, sinks=find_sinks(environ))
    with open(os.devnull, "w") as nowhere, tqdm(total=10**12, file=nowhere) as bar:
        contestants: dict[str, Callable[[], None]] = {
            "tqdm_update": lambda: loop(bar.update),
            "tqdm_with_three": lambda: loop_with_postfix(bar),
            "step": lambda: loop(active.step),
            "step_with_loss": lambda: loop_with_loss(active.step),
            "step_with_three": lambda: loop_with_three(active.step),
            "step_on_other_ranks": lambda: loop_with_loss(of_rank_3.step),
            "tqdm_loop": lambda: loop_over(tqdm(range(CALLS), file=nowhere)),
            "track": lambda: loop_over(track(range(CALLS), sinks=find_sinks(other))),
            "r_track": lambda: loop_over(active.track(range(CALLS))),
            "section": lambda: loop_of_sections(active),
        }
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(ROUNDS):
            for name, run in contestants.items():
                start = time.thread_time_ns()  # what others do on this machine is not our cost
                run()
                times[name].append((time.thread_time_ns() - start) / CALLS)
    active.finish()
    of_rank_3.finish()
    result = {f"{name}_ns": round(statistics.median(values), 1) for name, values in times.items()}
    for name in ("step", "step_with_loss", "step_with_three"):
        ratios = [ours / theirs for ours, theirs in zip(times[name], times["tqdm_update"], strict=True)]
        result[f"ratio_{name}"] = round(statistics.median(ratios), 2)
    for name in ("track", "r_track"):
        ratios = [ours / theirs for ours, theirs in zip(times[name], times["tqdm_loop"], strict=True)]
        result[f"ratio_{name}"] = round(statistics.median(ratios), 2)
    same = zip(times["step_with_three"], times["tqdm_with_three"], strict=True)
    result["ratio_step_with_three_to_tqdm_with_three"] = round(statistics.median(a / b for a, b in same), 2)
    return result


def begin_on_rank_3(path: Path) -> Reporter:
    """It keeps a file of its own, and reports nothing."""
    given = {"RANK": "3", "WORLD_SIZE": "4", "TRAINJOB_PROGRESS_FILE": str(path)}
    os.environ |= given
    try:
        return report(total_steps=10**12)
    finally:
        for name in given:
            del os.environ[name]


def loop(call: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        call()


def loop_over(items: Iterable[int]) -> None:
    for _ in items:
        pass


def loop_of_sections(reporter: Reporter) -> None:
    for _ in range(CALLS):
        with reporter.evaluating():
            pass


def loop_with_postfix(bar: tqdm[Any]) -> None:
    for _ in range(CALLS):
        bar.set_postfix(loss=0.5, accuracy=0.5, lr=0.1, refresh=False)
        bar.update()


def loop_with_loss(call: Callable[..., Any]) -> None:
    for _ in range(CALLS):
        call(loss=0.5)


def loop_with_three(call: Callable[..., Any]) -> None:
    for _ in range(CALLS):
        call(loss=0.5, accuracy=0.5, lr=0.1)


# A process of its own, whose loop is in no other: its end is the run's.
LEAVING = f"""
import sys, threading, time
sys.path.insert(0, {str(Path(__file__).parents[1] / "reporter")!r})
from trainjob_progress import report, track

class HangingDisk:
    interval_s = 0.05
    def write(self, _):
        threading.Event().wait()
    def close(self):
        pass

how, sinks = sys.argv[1], [HangingDisk(), HangingDisk()]
if how == "with":
    with report(total_steps=1, sinks=sinks) as r:
        r.step()
        start = time.perf_counter()
else:
    for _ in track([0, 1], sinks=sinks):
        start = time.perf_counter()
        if how == "break":
            break
print(time.perf_counter() - start, flush=True)
"""


def measure_leaving() -> dict[str, float]:
    """Milliseconds at most that leaving takes while every sink hangs, alone and with the process's end."""
    times: dict[str, list[float]] = {}
    for how in ("with", "loop", "break"):
        for _ in range(5):
            command = [sys.executable, "-S", "-c", LEAVING, how]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                assert process.stdout is not None
                left_s = float(process.stdout.readline())
                start = time.perf_counter()
                process.wait()
                end_s = time.perf_counter() - start
            times.setdefault(how, []).append(left_s)
            times.setdefault(f"{how}, and the process", []).append(left_s + end_s)
    return {name: round(1000 * max(values), 1) for name, values in times.items()}


def measure_hanging(directory: Path) -> dict[str, float]:
    """Microseconds of step(loss=…) and update(…) while the disk, the push server and the log all hang."""
    fifo = directory / "log"
    os.mkfifo(fifo)
    log_end = os.open(fifo, os.O_RDWR)
    while True:  # fill the pipe, so that the next write hangs
        os.set_blocking(log_end, False)
        try:
            os.write(log_end, b"\0" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(log_end, True)
    with HangingServer(directory) as server:
        from trainjob_progress.sinks.log import LogSink

        environ = {**server.environ, "TRAINJOB_PROGRESS_FILE": str(directory / "hanging.json")}
        sinks = [HangingDisk(), LogSink(0.05, log_end), *find_sinks(environ)]
        for sink in sinks[2:]:
            sink.interval_s = 0.05
        reporter = report(total_steps=10**12, sinks=sinks)
        clock, samples = time.perf_counter_ns, []
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            for _ in range(1000):
                start = clock()
                reporter.step(loss=0.5)
                samples.append(clock() - start)
            start = clock()
            reporter.update(epoch=1, message="evaluating", metrics={"accuracy": 0.5})
            samples.append(clock() - start)
        server.release()
        reporter.abandon()
    samples.sort()
    return {
        "calls": len(samples),
        "p50_us": samples[len(samples) // 2] / 1000,
        "p99_us": samples[len(samples) * 99 // 100] / 1000,
        "p99.9_us": samples[len(samples) * 999 // 1000] / 1000,
        "p99.99_us": samples[len(samples) * 9999 // 10000] / 1000,
        "max_us": samples[-1] / 1000,
    }


class HangingDisk:
    """A sink that never returns."""

    interval_s = 0.05

    def write(self, _: Snapshot) -> None:
        threading.Event().wait()

    def close(self) -> None:
        pass


class HangingServer:
    """Takes a TLS connection and a request, and never answers."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._context)
        authority.cert_pem.write_to_path(directory / "ca.crt")
        (directory / "token").write_text("token")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self.environ = {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://localhost:{self._listener.getsockname()[1]}/status",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(directory / "ca.crt"),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(directory / "token"),
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def release(self) -> None:
        """Drop everything that hangs."""
        for connection in self._held:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                self._held.append(self._context.wrap_socket(connection, server_side=True))
            except OSError:
                return


def measure_memory() -> int:
    """Bytes that are still held after 100,000 steps more than after the first thousand."""
    reporter = Reporter()
    for i in range(1000):
        reporter.step(loss=float(i), **{f"layer{i}": 0.5})
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(100_000):
        reporter.step(loss=float(i), **{f"layer{i}": 0.5})
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept


def measure_import() -> float:
    """CPU that importing takes, by that of importing `logging`; the least of each, in turns."""
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        environ = {"PYTHONPATH": str(Path(__file__).parents[1] / "reporter"), "PYTHONPYCACHEPREFIX": cache}
        for _ in range(11):
            for module in ("trainjob_progress", "logging"):
                program = (
                    f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
                )
                run = subprocess.run(
                    [sys.executable, "-S", "-c", program],
                    env=environ,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                least[module] = min(least.get(module, 60.0), float(run.stdout))
    return round(least["trainjob_progress"] / least["logging"], 2)


if __name__ == "__main__":
    sys.exit(main())
