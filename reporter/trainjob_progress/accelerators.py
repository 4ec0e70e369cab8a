"""What the accelerators of this process do, as their driver says: NVIDIA's NVML, through ctypes.

Another maker's library is another class with `read`, and a line in `find_accelerators`. A driver that hangs
hangs a thread that does nothing else.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Protocol

    from .live_run import LiveRun

    Device = dict[str, Any]

    class Library(Protocol):
        """Of one maker."""

        def read(self) -> list[Device]:
            """What each device does now. Called on one thread alone."""


FIRST_S = 10.0  # from the beginning until the first reading: most programs fork their loaders' workers before
MAX_DEVICES = 8
MEGABYTE = 1 << 20
# Of nvmlClocksThrottleReasons: by the hardware, for heat (by software or hardware), by a power brake.
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80
_UNCORRECTED, _SINCE_START = 1, 0
# A device's field, and what MLflow calls it.
_METRICS = {
    "utilizationPercentage": "utilization_percentage",
    "memoryUsedPercentage": "memory_usage_percentage",
    "memoryUsedMegabytes": "memory_usage_megabytes",
    "powerWatts": "power_usage_watts",
}


def find_accelerators(run: LiveRun, environ: Optional[Mapping[str, str]] = None) -> Optional[Accelerators]:
    """Those of this process; None without a driver. A program without ctypes has no accelerator."""
    environ = os.environ if environ is None else environ
    if "ctypes" not in sys.modules or environ.get("TRAINJOB_PROGRESS_ACCELERATORS", "1") in ("", "0"):
        return None
    chosen = choose(environ)
    if chosen is None:
        return None
    try:
        return Accelerators(run, Nvml(chosen))
    except (AttributeError, OSError):  # no library, or a very old one
        return None


def choose(environ: Mapping[str, str]) -> Optional[list[str]]:
    """Numbers or identifiers of the devices that this process uses; an empty list: all; None: none."""
    if environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    visible = [one.strip() for one in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    local_rank = environ.get("LOCAL_RANK", "")
    if not local_rank.isdecimal() or len(visible) == 1:
        return visible
    if not visible:
        return [local_rank]
    return visible[int(local_rank) : int(local_rank) + 1] or visible


def name_metrics(devices: list[Device]) -> dict[str, float]:
    """By MLflow's names."""
    return {
        f"system/gpu_{device['index']}_{name}": device[field]
        for device in devices
        for field, name in _METRICS.items()
        if field in device
    }


class Accelerators:
    """A sink that reads instead: a thread of its own calls it now and then."""

    interval_s = 10.0

    def __init__(self, run: LiveRun, library: Library) -> None:
        self._run = run
        self._library: Optional[Library] = library
        self._began_s = time.monotonic()

    def look(self) -> Any:  # noqa: ANN401 — where a publisher expects a snapshot
        """Something new each time, as long as there is something to read.

        Not at once: a reading under way delays a fork, and the child may inherit a lock of the driver's.
        """
        if time.monotonic() - self._began_s < FIRST_S:
            return None
        return None if self._library is None or self._run.is_over else object()

    def write(self, _: Any) -> None:  # noqa: ANN401
        if self._library is None:
            return
        try:
            devices = self._library.read()
            self._run.devices, self._run.device_metrics = devices, name_metrics(devices)
        except OSError:  # there is a library, and no device
            self._library = None

    def close(self) -> None:
        pass


class Nvml:
    """NVIDIA's."""

    def __init__(self, chosen: list[str], name: str = "libnvidia-ml.so.1") -> None:
        """Raises OSError, or AttributeError, where there is no such library."""
        import ctypes

        class Utilization(ctypes.Structure):
            _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))

        class Memory(ctypes.Structure):
            _fields_ = (
                ("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
            )  # fmt: skip

        self._library = ctypes.CDLL(name)
        self._library.nvmlInit_v2  # noqa: B018 — or AttributeError
        self._ctypes, self._make_utilization, self._make_memory = ctypes, Utilization, Memory
        self._chosen = chosen
        self._handles: Optional[list[tuple[int, Any]]] = None  # with each device's number

    def read(self) -> list[Device]:
        """What each device does now; what one does not tell is left out. Raises OSError without any."""
        if self._handles is None:
            self._handles = self._open()
        return [{"index": number, **self._read(handle)} for number, handle in self._handles]

    def _open(self) -> list[tuple[int, Any]]:
        if self._library.nvmlInit_v2():
            raise OSError("no driver")
        count = self._ctypes.c_uint()
        if not self._chosen and self._ask("DeviceGetCount_v2", count):
            self._chosen = [str(number) for number in range(min(count.value, MAX_DEVICES))]
        handles = []
        for one in self._chosen[:MAX_DEVICES]:
            handle, number = self._ctypes.c_void_p(), self._ctypes.c_uint()
            by_number = one.isdecimal()
            ask, key = ("Index_v2", int(one)) if by_number else ("UUID", one.encode())
            if self._ask(f"DeviceGetHandleBy{ask}", key, handle) and self._ask(
                "DeviceGetIndex", handle, number
            ):
                handles.append((number.value, handle))
        if not handles:
            raise OSError("no device")
        return handles

    def _read(self, handle: Any) -> Device:  # noqa: ANN401
        device: Device = {}
        unsigned, long = self._ctypes.c_uint, self._ctypes.c_ulonglong
        utilization, memory = self._make_utilization(), self._make_memory()
        power, reasons, errors = unsigned(), long(), long()
        if self._ask("DeviceGetUtilizationRates", handle, utilization):
            device["utilizationPercentage"] = utilization.gpu
        if self._ask("DeviceGetMemoryInfo", handle, memory) and memory.total:
            device["memoryUsedMegabytes"] = memory.used // MEGABYTE
            device["memoryTotalMegabytes"] = memory.total // MEGABYTE
            device["memoryUsedPercentage"] = round(100 * memory.used / memory.total, 1)
        if self._ask("DeviceGetPowerUsage", handle, power):
            device["powerWatts"] = round(power.value / 1000, 1)
        if self._ask("DeviceGetCurrentClocksThrottleReasons", handle, reasons) and reasons.value & _SLOWED:
            device["isSlowedDown"] = True
        if self._ask("DeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_START, errors) and errors.value:
            device["eccErrors"] = errors.value
        return device

    def _ask(self, what: str, *arguments: Any) -> bool:  # noqa: ANN401
        """Whether it was answered, into the last argument."""
        function = getattr(self._library, f"nvml{what}", None)
        if function is None:
            return False
        *given, answer = arguments
        return not function(*given, self._ctypes.byref(answer))
