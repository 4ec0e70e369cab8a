"""Keeps libraries from importing what the server uses nothing of.

Whatever is imported of kubernetes_asyncio, its package imports a class for every kind and every group of the
Kubernetes API, some 800 modules: 31 MiB and a quarter of a second. What is built on them is left out as well:
two clients, watches and streams. FastAPI imports pydantic's former version to ask whether a model is of it.
docs/decisions/0017-unused-modules.md has the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

UNUSED = frozenset(
    (
        "kubernetes_asyncio.client.models",
        "kubernetes_asyncio.client.api",
        "kubernetes_asyncio.client.api_client",
        "kubernetes_asyncio.dynamic",
        "kubernetes_asyncio.stream",
        "kubernetes_asyncio.utils",
        "kubernetes_asyncio.watch",
        "pydantic.v1",
    )
)


class NotImported:
    """Stands for a class of one of these modules."""


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


def skip_unused_modules() -> None:
    """For a process that only serves, before it imports them. No effect once any of them is imported."""
    if UNUSED.isdisjoint(sys.modules):
        sys.meta_path.insert(0, _Finder())
