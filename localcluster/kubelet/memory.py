"""The memory limit of a container, kept by looking: its processes have no cgroup of their own."""

from __future__ import annotations

import os
import re
from pathlib import Path

from localcluster.machinery.metadata import Object

LOOK_EVERY_S = 0.1  # what is allocated meanwhile is above the limit; the kernel would not let it
_QUANTITY = re.compile(r"(\d+)(|k|M|G|Ki|Mi|Gi)")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def limit_bytes(container: Object) -> int | None:
    """`resources.limits.memory`; None when there is none, or none that is written in whole units."""
    limits = (container.get("resources") or {}).get("limits") or {}
    found = _QUANTITY.fullmatch(str(limits.get("memory", "")))
    return int(found[1]) * _FACTORS[found[2]] if found else None


def used_bytes(pid: int) -> int:
    """What a process and its children, and theirs, have in memory; 0 for one that has ended."""
    process = Path("/proc", str(pid))
    try:
        pages = int((process / "statm").read_text().split()[1])
        tasks = list((process / "task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it ended meanwhile
        return 0
    return pages * _PAGE_BYTES + sum(map(used_bytes, children))
