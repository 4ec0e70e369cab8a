"""Keeps kubernetes_asyncio from importing its generated classes, of which the server uses none.

Whatever is imported of it, its package imports a class for every kind and every group of the Kubernetes API,
some 800 modules: 31 MiB and a quarter of a second. What is built on them is left out as well: two clients,
watches and streams. docs/decisions/0017-generated-classes.md has the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "kubernetes_asyncio"
UNUSED = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        *("client.models", "client.api", "client.api_client"),
        *("dynamic", "stream", "utils", "watch"),
    )
)


class NotImported:
    """Stands for a generated class."""


class _Placeholder(ModuleType):
    def __getattr__(self, name: str) -> type[NotImported]:
        if name.startswith("__"):
            raise AttributeError(name)
        return NotImported


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in UNUSED or name.rpartition(".")[0] in UNUSED:
            return ModuleSpec(name, self, is_package=name in UNUSED)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def skip_generated_classes() -> None:
    """For a process that only serves, before it imports kubernetes_asyncio. No effect afterwards."""
    if PACKAGE not in sys.modules:
        sys.meta_path.insert(0, _Finder())
