"""What the accelerators do, by a library with NVML's ABI that is compiled here."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.reporting import MemorySink
from trainjob_progress import accelerators, report
from trainjob_progress.accelerators import Accelerators, Nvml, choose, find_accelerators, name_metrics
from trainjob_progress.live_run import LiveRun

REPORTER = Path(__file__).parents[2] / "reporter"
COMPILER = shutil.which("cc") or shutil.which("gcc")
# Two devices: the second one is slowed down for heat, has errors, and tells nothing of its power.
FAKE = r"""
#include <stdlib.h>
#include <string.h>
static char devices[2];
static int number(void *device) { return (char *)device - devices; }
int nvmlInit_v2(void) { return getenv("FAKE_NO_DRIVER") ? 9 : 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = getenv("FAKE_NO_DEVICE") ? 0 : 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return 2;
    *device = &devices[index];
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "GPU-b")) return 6;
    *device = &devices[1];
    return 0;
}
int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = number(device); return 0; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    rates[0] = number(device) ? 3 : 97;
    rates[1] = 50;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 80ull << 30;
    memory[1] = 60ull << 30;
    memory[2] = 20ull << 30;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *power) {
    *power = 412345;
    return number(device) ? 3 : 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = number(device) ? 0x40 : 0x4;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *errors) {
    *errors = number(device) && type == 1 && counter == 0 ? 7 : 0;
    return 0;
}
"""
MEMORY = {"memoryUsedMegabytes": 20480, "memoryTotalMegabytes": 81920, "memoryUsedPercentage": 25.0}
FIRST = {"index": 0, "utilizationPercentage": 97, **MEMORY, "powerWatts": 412.3}
SECOND = {"index": 1, "utilizationPercentage": 3, **MEMORY, "isSlowedDown": True, "eccErrors": 7}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if COMPILER is None:
        pytest.skip("no C compiler here")
    directory = tmp_path_factory.mktemp("nvml")
    (directory / "nvml.c").write_text(FAKE)
    path = directory / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", path, directory / "nvml.c"], check=True)
    return str(path)


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        ({}, []),
        ({"LOCAL_RANK": "3"}, ["3"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "LOCAL_RANK": "1"}, ["5"]),
        ({"CUDA_VISIBLE_DEVICES": "5", "LOCAL_RANK": "1"}, ["5"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b", "LOCAL_RANK": "1"}, ["GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_RANK": "7"}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "", "LOCAL_RANK": "0"}, None),
    ],
)
def test_a_rank_reads_its_own_devices(environ: dict[str, str], chosen: list[str] | None) -> None:
    assert choose(environ) == chosen


@pytest.mark.parametrize(
    ("chosen", "devices"),
    [([], [FIRST, SECOND]), (["1"], [SECOND]), (["GPU-b"], [SECOND]), (["0", "GPU-z", "9"], [FIRST])],
)
def test_what_the_driver_says_of_each_device(
    library: str, chosen: list[str], devices: list[dict[str, Any]]
) -> None:
    assert Nvml(chosen, library).read() == devices


def test_metrics_have_the_names_that_mlflow_gives_them() -> None:
    assert name_metrics([FIRST, {"index": 3}]) == {
        "system/gpu_0_utilization_percentage": 97,
        "system/gpu_0_memory_usage_percentage": 25.0,
        "system/gpu_0_memory_usage_megabytes": 20480,
        "system/gpu_0_power_usage_watts": 412.3,
    }


@pytest.mark.parametrize("lack", ["FAKE_NO_DRIVER", "FAKE_NO_DEVICE"])
def test_without_a_device_nothing_is_asked_again(
    library: str, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    monkeypatch.setenv(lack, "1")
    sink = Accelerators(LiveRun(), Nvml([], library))
    monkeypatch.setattr(accelerators, "FIRST_S", 0.0)
    assert sink.look() is not None
    sink.write(None)
    assert sink.look() is None


def test_nothing_is_read_while_workers_are_forked_for_the_first_time(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_s = 100.0
    monkeypatch.setattr(accelerators, "time", SimpleNamespace(monotonic=lambda: at_s))
    sink = Accelerators(LiveRun(), Nvml([], library))
    at_s += accelerators.FIRST_S - 1
    assert sink.look() is None
    at_s += 1
    assert sink.look() is not None


def test_without_a_library_or_where_it_is_not_wanted_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ctypes
    assert find_accelerators(LiveRun(), {"TRAINJOB_PROGRESS_ACCELERATORS": "0"}) is None
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(nvmlInit_v2=None))
    assert find_accelerators(LiveRun(), {}) is not None
    assert find_accelerators(LiveRun(), {"CUDA_VISIBLE_DEVICES": ""}) is None
    monkeypatch.setattr(ctypes, "CDLL", raise_error)
    assert find_accelerators(LiveRun(), {}) is None


def raise_error(_: str) -> None:
    raise OSError("libnvidia-ml.so.1: cannot open shared object file")


def test_busy_accelerators_do_not_make_a_hung_run_look_alive(sink: MemorySink) -> None:
    r = report(total_steps=2, sinks=[sink])
    r.step()
    r.flush(60)
    run = r._run
    before = run.snapshot
    run.device_metrics = name_metrics([FIRST])
    run.due, run._due_since_s = True, float("-inf")
    assert run._latest() is before
    r.step()
    r.finish()
    assert sink.last.metrics == name_metrics([FIRST])


TRAINING = f"""
import ctypes, json, os, sys, threading, time
sys.path.insert(0, {str(REPORTER)!r})
from trainjob_progress import accelerators, report
accelerators.FIRST_S = 0
path = os.environ["TRAINJOB_PROGRESS_FILE"]
with report(total_steps=10**6) as r:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        r.step(loss=0.5)
        try:
            if "accelerators" in open(path + ".rank-0").read() and "gpu_0" in open(path).read():
                break
        except OSError:
            pass
        threading.Event().wait(0.05)
"""


def test_a_training_reports_them_beside_its_own_metrics(library: str, tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    environ = {
        **os.environ,
        "TRAINJOB_PROGRESS_FILE": str(path),
        "LD_LIBRARY_PATH": str(Path(library).parent),
        "RANK": "0",
        "LOCAL_RANK": "0",
    }
    subprocess.run([sys.executable, "-c", TRAINING], env=environ, check=True, timeout=60)
    document = json.loads(path.read_bytes())
    assert document["metrics"] == {"loss": 0.5, **name_metrics([FIRST])}
    assert json.loads(Path(f"{path}.rank-0").read_bytes())["accelerators"] == [FIRST]
