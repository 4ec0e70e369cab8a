"""Other makers' devices: AMD's by the files of its kernel driver, Google's by libtpu where that is loaded.

Imported only where there is such a device. What cannot be read is left out.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

    from .accelerators import Device, Library

MEGABYTE = 1 << 20
MAX_DEVICES = 8
AMDS = "0x1002"


def find_other(environ: Mapping[str, str]) -> Optional[Library]:
    """None where there is none that this process uses."""
    from .accelerators import TPUS, choose

    if any(map(os.path.exists, TPUS)):
        return Libtpu()
    names = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    chosen = choose(environ, next((name for name in names if name in environ), names[0]))
    if chosen is None:
        return None
    amd = Amd(chosen)
    return amd if amd.cards else None


class Amd:
    """AMD's: amdgpu tells in sysfs what its libraries do, and needs none of them."""

    def __init__(self, chosen: list[str], drm: str = "/sys/class/drm", dev: str = "/dev/dri") -> None:
        found = []
        for name in sorted(_list(drm), key=lambda name: (len(name), name)):
            device = f"{drm}/{name}/device"
            if not (name.startswith("card") and name[4:].isdecimal()) or _text(f"{device}/vendor") != AMDS:
                continue
            # A container sees the files of all cards of its node, and has the render nodes of its own.
            if any(
                os.path.exists(f"{dev}/{node}") for node in _list(f"{device}/drm") if node[:7] == "renderD"
            ):
                found.append(device)
        wanted = [int(one) for one in chosen if one.isdecimal() and int(one) < len(found)]
        self.cards = [(place, found[place]) for place in wanted or range(len(found))][:MAX_DEVICES]

    def read(self) -> list[Device]:
        return [{"index": place, **_read_card(card)} for place, card in self.cards]


def _read_card(card: str) -> Device:
    device: Device = {}
    busy = _number(f"{card}/gpu_busy_percent")
    used, total = (_number(f"{card}/mem_info_vram_{name}") for name in ("used", "total"))
    if busy is not None:
        device["utilizationPercentage"] = busy
    if used is not None and total:
        _note_memory(device, used, total)
    for sensor in _list(f"{card}/hwmon")[:1]:
        for name in ("power1_average", "power1_input"):
            power = _number(f"{card}/hwmon/{sensor}/{name}")
            if power is not None:
                device["powerWatts"] = round(power / 1e6, 1)
                break
    for line in _text(f"{card}/ras/umc_err_count").splitlines():
        name, _, number = line.partition(":")
        if name == "ue" and number.strip().isdecimal() and int(number):
            device["eccErrors"] = int(number)
    return device


class Libtpu:
    """Google's, once JAX or PyTorch/XLA has loaded it.

    https://cloud.google.com/tpu/docs/tpu-monitoring-library
    """

    def read(self) -> list[Device]:
        if "libtpu" not in sys.modules:
            return []
        try:
            import importlib

            tpumonitoring = importlib.import_module("libtpu.sdk").tpumonitoring
        except Exception:  # an older one
            return []
        busy, used, total = (
            _values(tpumonitoring, name)
            for name in ("duty_cycle_pct", "hbm_capacity_usage", "hbm_capacity_total")
        )
        devices: list[Device] = [
            {"index": place, "kind": "tpu", "utilizationPercentage": round(percent, 1)}
            for place, percent in enumerate(busy[:MAX_DEVICES])
        ]
        if len(used) == len(total) == len(busy):  # by chip; some generations tell it by core
            for device in devices:
                if total[device["index"]]:
                    _note_memory(device, used[device["index"]], total[device["index"]])
        return devices


def _values(tpumonitoring: Any, name: str) -> list[float]:  # noqa: ANN401
    try:
        return [float(each) for each in tpumonitoring.get_metric(name).data()]
    except Exception:  # the runtime is not there yet, or does not know it
        return []


def _note_memory(device: Device, used: float, total: float) -> None:
    device["memoryUsedMegabytes"] = int(used) // MEGABYTE
    device["memoryTotalMegabytes"] = int(total) // MEGABYTE
    device["memoryUsedPercentage"] = round(100 * used / total, 1)


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:  # a card that sleeps answers so, too
        return ""


def _number(path: str) -> Optional[int]:
    text = _text(path)
    return int(text) if text.isdecimal() else None
