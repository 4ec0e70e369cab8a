"""The kinds that are served now: the built-in ones, and those of `--kinds`, which may change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from visibility_api.kinds import ALL_RESOURCES, BUILT_IN, KINDS, Kinds

if TYPE_CHECKING:
    from .files import Described

log = structlog.get_logger("visibility.kinds")

INTERVAL_S = 10.0  # between two looks at the files; a kubelet takes up to a minute to change a ConfigMap's


class KindTable:
    """`now` is what is served; `faults` is what is wrong with the files, one line each."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._described: Described | None = None
        self._seen: object = None
        self.now = BUILT_IN

    @property
    def faults(self) -> tuple[str, ...]:
        return self._described.faults if self._described is not None else ()

    def load(self) -> bool:
        """Read the files if they have changed. Returns whether other kinds are served now. Never raises."""
        if self._path is None or (seen := _state(self._path)) == self._seen:
            return False
        from .files import Described, read_kinds  # pydantic and CEL, which most servers do not need for this

        before, self._seen = self._described or Described(), seen
        found = self._described = read_kinds(self._path, ALL_RESOURCES, before)
        for fault in found.faults:
            if fault not in before.faults:
                log.error("kind not used as described", fault=fault)
        if found.kinds == before.kinds:
            return False
        self.now = Kinds((*KINDS, *found.kinds))
        log.info("described kinds", kinds=[each.served.plural for each in found.kinds])
        return True

    async def follow(self, changed: Callable[[], Awaitable[None]], *, interval_s: float = INTERVAL_S) -> None:
        """Load the files whenever they change, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            if await asyncio.to_thread(self.load):
                await changed()


def _state(path: Path) -> object:
    """What changes with the files. A ConfigMap's are links, which a kubelet replaces together."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [(each.name, each.stat()) for each in files]
    except OSError as error:
        return error.errno
    return [(name, found.st_ino, found.st_mtime_ns, found.st_size) for name, found in stats]
