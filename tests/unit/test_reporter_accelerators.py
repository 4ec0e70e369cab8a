"""What the accelerators do, by a library with NVML's ABI that is compiled here, and files as amdgpu has."""

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
from trainjob_progress.accelerators import (
    Accelerators,
    Nvml,
    choose,
    find_accelerators,
    name_metrics,
    note_peaks,
    read_beside,
    summarize,
)
from trainjob_progress.drivers import Amd, Libtpu
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
int nvmlEventSetCreate(void **set) { static char one; *set = &one; return 0; }
static int registered, told;
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    registered |= types == 8 && set ? 1 << number(device) : 0;
    return 0;
}
struct event { void *device; unsigned long long type, data; unsigned instance, compute; };
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout) {
    static const int xids[] = {31, 79};
    if (timeout || !(registered & 2) || told > 1 || !getenv("FAKE_XIDS")) return 10;
    event->device = &devices[1];
    event->data = xids[told++];
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


def test_xids_are_counted_and_the_last_one_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_XIDS", "1")
    nvml = Nvml([], library)
    first, second = nvml.read()
    assert (first, second) == (FIRST, {**SECOND, "xidErrors": 2, "lastXid": 79})
    assert nvml.read() == [first, second]
    assert name_metrics([second]) == {
        **name_metrics([{**SECOND, "index": 1}]),
        "system/gpu_1_xid_errors": 2,
        "system/gpu_1_ecc_errors": 7,
        "system/gpu_1_slowed_down": 1,
    }


def card(drm: Path, number: int, *, vendor: str = "0x1002", **files: str) -> None:
    device = drm / f"card{number}" / "device"
    (device / "drm" / f"renderD{128 + number}").mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    for name, text in files.items():
        path = device / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_amds_cards_of_this_container_are_read_by_files(tmp_path: Path) -> None:
    drm, dev = tmp_path / "drm", tmp_path / "dri"
    dev.mkdir()
    (drm / "card1-DP-1").mkdir(parents=True)
    card(drm, 0, vendor="0x1a03")  # of the board's own screen
    for number, busy in ((1, "7"), (2, "98"), (10, "55")):
        card(
            drm, number, gpu_busy_percent=busy, mem_info_vram_used=str(20 << 30),
            mem_info_vram_total=str(80 << 30), hwmon__hwmon4__power1_average="412300000",
            ras__umc_err_count="ue: 3\nce: 9",
        )  # fmt: skip
    for number in (0, 2, 10):  # the first one is another container's
        (dev / f"renderD{128 + number}").touch()
    busiest = {**FIRST, "utilizationPercentage": 98, "eccErrors": 3}
    other = {**busiest, "index": 1, "utilizationPercentage": 55}
    assert Amd([], str(drm), str(dev)).read() == [busiest, other]
    assert Amd(["1"], str(drm), str(dev)).read() == [other]
    (drm / "card2/device/gpu_busy_percent").unlink()
    assert "utilizationPercentage" not in Amd(["0"], str(drm), str(dev)).read()[0]
    assert Amd([], str(tmp_path / "none"), str(dev)).cards == []


def test_googles_are_read_once_their_library_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Libtpu().read() == []
    values: dict[str, list[Any]] = {
        "duty_cycle_pct": ["74.5", "0.00"],
        "hbm_capacity_usage": [str(4 << 30), 0],
        "hbm_capacity_total": [16 << 30, 16 << 30],
    }
    tpumonitoring = SimpleNamespace(get_metric=lambda name: SimpleNamespace(data=lambda: values[name]))
    sdk = SimpleNamespace(tpumonitoring=tpumonitoring)
    monkeypatch.setitem(sys.modules, "libtpu", SimpleNamespace(sdk=sdk))
    monkeypatch.setitem(sys.modules, "libtpu.sdk", sdk)
    found = Libtpu().read()
    assert found[0] == {
        "index": 0,
        "kind": "tpu",
        "utilizationPercentage": 74.5,
        "memoryUsedMegabytes": 4096,
        "memoryTotalMegabytes": 16384,
        "memoryUsedPercentage": 25.0,
    }
    assert name_metrics(found)["system/tpu_1_utilization_percentage"] == 0
    values.clear()  # its runtime has ended
    assert Libtpu().read() == []


def test_the_ranks_beside_rank_0_are_summed_up_each_device_once(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    for rank, used, host in ((1, 10, "a"), (2, 40, "a"), (3, 90, "b"), (4, 77, "a")):
        device = {"index": rank if rank < 4 else 2, "utilizationPercentage": used}
        said = {"rank": rank, "host": host, "time": "…", "accelerators": [device]}
        Path(f"{path}.rank-{rank}").write_text(json.dumps(said))
    gone, ended = (Path(f"{path}.rank-{rank}") for rank in (5, 6))
    for old in (gone, ended):
        device = {"index": old.name[-1], "utilizationPercentage": 0}
        old.write_text(json.dumps({"host": "a", "accelerators": [device], "ended": "…"}))
    gone.write_text(gone.read_text().replace("ended", "begun"))
    os.utime(gone, (1, 1))
    for rank, text in ((7, "{"), (8, "[]"), (9, '{"host": "a", "accelerators": [7]}'), (10, "null")):
        Path(f"{path}.rank-{rank}").write_text(text)
    Path(f"{path}.rank-1.trace").write_text("{}")
    found = read_beside(str(path), os.stat(f"{path}.rank-1").st_mtime)
    assert {key: device["utilizationPercentage"] for key, device in found.items()} == {
        ("a", 1): 10, ("a", 2): 77, ("b", 3): 90,
    }  # fmt: skip
    assert summarize([FIRST, *found.values()]) == {
        "system/gpu_devices": 4,
        "system/gpu_min_utilization_percentage": 10,
        "system/gpu_median_utilization_percentage": 83.5,
        "system/gpu_max_utilization_percentage": 97,
        **{
            f"system/gpu_{which}_{name}": value
            for which in ("min", "median", "max")
            for name, value in (
                ("memory_usage_percentage", 25),
                ("memory_usage_megabytes", 20480),
                ("power_usage_watts", 412.3),
            )
        },
    }
    assert summarize([FIRST]) == {}


class Cuda:
    """As torch.cuda, of two devices of which the second is used."""

    def __init__(self, *, is_initialized: bool = True) -> None:
        self._is_initialized = is_initialized

    def is_initialized(self) -> bool:
        return self._is_initialized

    def device_count(self) -> int:
        assert self._is_initialized  # it would ask the driver
        return 2

    def max_memory_allocated(self, place: int) -> int:
        return place * 3 << 30


@pytest.mark.parametrize(
    ("torch", "devices", "peaks"),
    [
        (SimpleNamespace(cuda=Cuda()), 1, [3072]),
        (SimpleNamespace(cuda=Cuda()), 2, [None, 3072]),
        (SimpleNamespace(cuda=Cuda(is_initialized=False)), 1, [None]),
        (SimpleNamespace(), 1, [None]),
        (None, 1, [None]),
    ],
)
def test_the_peak_that_torch_tells_is_of_its_devices(
    monkeypatch: pytest.MonkeyPatch, torch: Any, devices: int, peaks: list[int | None]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    found: list[dict[str, Any]] = [{"index": place} for place in range(devices)]
    note_peaks(found)
    assert [device.get("memoryPeakMegabytes") for device in found] == peaks


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
BESIDE = {"rank": 1, "host": os.uname().nodename, "accelerators": [{"index": 1, "utilizationPercentage": 3}]}


def test_a_training_reports_them_beside_its_own_metrics(library: str, tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    environ = {
        **os.environ,
        "TRAINJOB_PROGRESS_FILE": str(path),
        "LD_LIBRARY_PATH": str(Path(library).parent),
        "RANK": "0",
        "LOCAL_RANK": "0",
    }
    Path(f"{path}.rank-1").write_text(json.dumps(BESIDE))
    subprocess.run([sys.executable, "-c", TRAINING], env=environ, check=True, timeout=60)
    document = json.loads(path.read_bytes())
    (beside,) = BESIDE["accelerators"]  # type: ignore[misc]  # a list of one
    assert document["metrics"] == {"loss": 0.5, **name_metrics([FIRST]), **summarize([FIRST, beside])}
    assert json.loads(Path(f"{path}.rank-0").read_bytes())["accelerators"] == [FIRST]
