"""A directory that changes as a mounted ConfigMap does."""

from __future__ import annotations

import itertools
from pathlib import Path

_NUMBERS = itertools.count()


class ConfigMapDirectory:
    """Its files are links into `..data`, which a kubelet replaces: all of them change at one moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, str] = {}
        self.write()

    def write(self, name: str = "", text: str | None = None) -> None:
        """With this file changed; None: without it."""
        self._files.pop(name, None)
        if text is not None:
            self._files[name] = text
        version = self.path / f"..version-{next(_NUMBERS)}"
        version.mkdir()
        for each, content in self._files.items():
            (version / each).write_text(content)
        link = self.path / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.path / "..data")
        for each in self._files:
            if not (self.path / each).is_symlink():
                (self.path / each).symlink_to(f"..data/{each}")
        for file in self.path.iterdir():
            if file.is_symlink() and not file.name.startswith("..") and file.name not in self._files:
                file.unlink()
