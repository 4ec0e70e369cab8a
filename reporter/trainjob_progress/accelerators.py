"""What the accelerators of this process do, as their driver says: NVIDIA's NVML, through ctypes.

Other makers' are in `drivers`. Rank 0 also says what those of the ranks beside it do, by their files. A
driver that hangs hangs a thread that does nothing else.
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
_XID_EVENTS, MAX_EVENTS = 0x8, 16  # nvmlEventTypeXidCriticalError; taken at one reading
KFD, TPUS = "/sys/class/kfd", ("/dev/accel0", "/dev/vfio/0")  # where AMD's and Google's devices are
MAX_BESIDE, FRESH_S = 256, 60.0  # files of other ranks; an older one is of a rank that is gone
# A device's field, and what MLflow calls it.
_METRICS = {
    "utilizationPercentage": "utilization_percentage",
    "memoryUsedPercentage": "memory_usage_percentage",
    "memoryUsedMegabytes": "memory_usage_megabytes",
    "powerWatts": "power_usage_watts",
}
# What it has no name for.
_MORE = {
    "memoryPeakMegabytes": "memory_peak_megabytes",
    "eccErrors": "ecc_errors",
    "xidErrors": "xid_errors",
    "isSlowedDown": "slowed_down",
}


def find_accelerators(
    run: LiveRun, environ: Optional[Mapping[str, str]] = None, *, path: Optional[str] = None, rank: int = 0
) -> Optional[Accelerators]:
    """Those of this process; None without a driver. A program without ctypes has no accelerator.

    `path`: of the document, beside which the files of the ranks are.
    """
    environ = os.environ if environ is None else environ
    if "ctypes" not in sys.modules or environ.get("TRAINJOB_PROGRESS_ACCELERATORS", "1") in ("", "0"):
        return None
    library = _find_library(environ)
    return None if library is None else Accelerators(run, library, path if not rank else None)


def _find_library(environ: Mapping[str, str]) -> Optional[Library]:
    chosen = choose(environ)
    try:
        if chosen is not None:
            return Nvml(chosen)
    except (AttributeError, OSError):  # no library, or a very old one
        pass
    if os.path.exists(KFD) or any(map(os.path.exists, TPUS)):
        from .drivers import find_other

        return find_other(environ)
    return None


def choose(environ: Mapping[str, str], variable: str = "CUDA_VISIBLE_DEVICES") -> Optional[list[str]]:
    """Numbers or identifiers of the devices that this process uses; an empty list: all; None: none."""
    if environ.get(variable) == "":
        return None
    visible = [one.strip() for one in environ.get(variable, "").split(",") if one.strip()]
    local_rank = environ.get("LOCAL_RANK", "")
    if not local_rank.isdecimal() or len(visible) == 1:
        return visible
    if not visible:
        return [local_rank]
    return visible[int(local_rank) : int(local_rank) + 1] or visible


def name_metrics(devices: list[Device]) -> dict[str, float]:
    """By MLflow's names."""
    return {
        f"system/{device.get('kind', 'gpu')}_{device['index']}_{name}": +device[field]  # True is 1
        for device in devices
        for field, name in (*_METRICS.items(), *_MORE.items())
        if field in device
    }


def summarize(devices: list[Device]) -> dict[str, float]:
    """The least, the middle and the most of what several devices do, by names of the same form."""
    if len(devices) < 2:
        return {}
    kind = devices[0].get("kind", "gpu")
    found: dict[str, float] = {f"system/{kind}_devices": len(devices)}
    for field, name in (*_METRICS.items(), ("memoryPeakMegabytes", _MORE["memoryPeakMegabytes"])):
        values = sorted(device[field] for device in devices if type(device.get(field)) in (int, float))
        if values:
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
            for which, value in (("min", values[0]), ("median", middle), ("max", values[-1])):
                found[f"system/{kind}_{which}_{name}"] = value
    return found


def read_beside(path: str, now_s: float) -> dict[tuple[str, Any], Device]:
    """The devices of the ranks whose files are beside this document, each once."""
    import json

    directory, name = os.path.split(os.path.abspath(path))
    begin = f"{name}.rank-"
    ranks = [one for one in os.listdir(directory) if one.startswith(begin) and one[len(begin) :].isdecimal()]
    found: dict[tuple[str, Any], Device] = {}
    for one in sorted(ranks, key=lambda one: int(one[len(begin) :]))[:MAX_BESIDE]:
        try:
            with open(os.path.join(directory, one), "rb") as file:
                said = json.loads(file.read(4096))
                age_s = now_s - os.fstat(file.fileno()).st_mtime
            if "ended" not in said and age_s < FRESH_S:
                for device in said["accelerators"]:
                    found[str(said["host"]), device["index"]] = device
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # of another rank, or half there
            continue
    return found


def note_peaks(devices: list[Device]) -> None:
    """The most memory that torch's allocator has given out on each, where torch is in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return
        peaks = [cuda.max_memory_allocated(place) for place in range(min(cuda.device_count(), MAX_DEVICES))]
    except Exception:  # half imported, or of another form
        return
    if len(devices) == 1:  # a rank uses one of those that it sees
        peaks = [max(peaks, default=0)]
    for device, peak in zip(devices, peaks):  # noqa: B905 — of Python 3.10 on
        if peak:
            device["memoryPeakMegabytes"] = peak // MEGABYTE


class Accelerators:
    """A sink that reads instead: a thread of its own calls it now and then."""

    interval_s = 10.0

    def __init__(self, run: LiveRun, library: Library, path: Optional[str] = None) -> None:
        """`path`: of the document of this rank, if it writes one."""
        self._run = run
        self._path = path
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
        except OSError:  # there is a library, and no device
            self._library = None
            return
        note_peaks(devices)
        metrics = name_metrics(devices)
        if self._path is not None:
            host = os.uname().nodename if hasattr(os, "uname") else ""
            known = {(host, device["index"]): device for device in devices}
            try:  # noqa: SIM105 — contextlib takes its time to be imported
                known = {**read_beside(self._path, time.time()), **known}
            except OSError:
                pass
            metrics.update(summarize(list(known.values())))
        self._run.devices, self._run.device_metrics = devices, metrics

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

        class Event(ctypes.Structure):
            _fields_ = (
                ("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
                ("instance", ctypes.c_uint), ("compute", ctypes.c_uint),
            )  # fmt: skip

        self._ctypes, self._make_utilization, self._make_memory = ctypes, Utilization, Memory
        self._event, self._events = Event(), ctypes.c_void_p()
        self._xids: dict[Any, list[int]] = {}  # by handle: their number, and the last one
        self._chosen = chosen
        self._handles: Optional[list[tuple[int, Any]]] = None  # with each device's number

    def read(self) -> list[Device]:
        """What each device does now; what one does not tell is left out. Raises OSError without any."""
        if self._handles is None:
            self._handles = self._open()
        self._take_xids()
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
        if self._ask("EventSetCreate", self._events):
            register = getattr(self._library, "nvmlDeviceRegisterEvents", None)
            if register is not None:
                for _, handle in handles:
                    register(handle, self._ctypes.c_ulonglong(_XID_EVENTS), self._events)
        return handles

    def _take_xids(self) -> None:
        """Those that have come since the last time; it waits for none."""
        wait = getattr(self._library, "nvmlEventSetWait_v2", None)
        if wait is None or self._events.value is None:
            return
        for _ in range(MAX_EVENTS):
            if wait(self._events, self._ctypes.byref(self._event), 0):
                return
            count, _last = self._xids.get(self._event.device, (0, 0))
            self._xids[self._event.device] = [count + 1, self._event.data]

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
        names = (
            "DeviceGetCurrentClocksEventReasons",
            "DeviceGetCurrentClocksThrottleReasons",
        )  # of old drivers
        if any(self._ask(name, handle, reasons) for name in names) and reasons.value & _SLOWED:
            device["isSlowedDown"] = True
        if self._ask("DeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_START, errors) and errors.value:
            device["eccErrors"] = errors.value
        if handle.value in self._xids:
            device["xidErrors"], device["lastXid"] = self._xids[handle.value]
        return device

    def _ask(self, what: str, *arguments: Any) -> bool:  # noqa: ANN401
        """Whether it was answered, into the last argument."""
        function = getattr(self._library, f"nvml{what}", None)
        if function is None:
            return False
        *given, answer = arguments
        return not function(*given, self._ctypes.byref(answer))
