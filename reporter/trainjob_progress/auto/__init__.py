"""Reports by configuration alone: adds the callbacks to Trainers as their modules are imported.

Switched on by `TRAINJOB_PROGRESS_AUTO=1` with this directory on PYTHONPATH, where Python finds
sitecustomize.py (deploy/runtimes sets both). Nothing is imported before the program imports it.
"""

from __future__ import annotations

import sys

from trainjob_progress.publisher import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable, Mapping, Optional, Sequence

    Patches = Mapping[str, Callable[[Any], None]]


def install(patches: Optional[Patches] = None) -> None:
    """From now on, modules are patched as they are imported; without `patches`, so that Trainers report.

    A second call with the same ones does nothing.
    """
    patches = PATCHES if patches is None else patches
    if not any(isinstance(finder, _Finder) and finder.patches is patches for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(patches))


class _Finder:
    """Finds what the others find, and has it patched once it was executed."""

    def __init__(self, patches: Patches) -> None:
        self.patches = patches

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        patch = self.patches.get(name)
        if patch is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = (
                find(name, path, target) if find is not None and finder is not self else None
            )
            if spec is not None:
                _patch_after(spec.loader, patch)
                return spec
        return None


def _patch_after(loader: Any, patch: Callable[[Any], None]) -> None:  # noqa: ANN401 — any kind of loader
    execute = loader.exec_module

    def execute_and_patch(module: ModuleType) -> None:
        execute(module)
        try:
            patch(module)
        except Exception as error:  # another version, where things have moved
            warn(f"{module.__name__} does not report by itself: {type(error).__name__}: {error}")

    loader.exec_module = execute_and_patch


def _patch_transformers(module: Any) -> None:  # noqa: ANN401 — a module that is not installed where we check
    """Every Trainer starts with these callbacks, TRL's included."""
    from trainjob_progress.integrations.transformers import ReportProgress

    module.DEFAULT_CALLBACKS.append(ReportProgress)


def _patch_lightning(module: Any) -> None:  # noqa: ANN401
    """Every Trainer asks here for callbacks that installed packages bring along."""
    load = module._load_external_callbacks

    def load_with_ours(group: str) -> list[Any]:
        from trainjob_progress.integrations.lightning import ReportProgress

        return [*load(group), ReportProgress()]

    module._load_external_callbacks = load_with_ours


PATCHES: Patches = {
    "transformers.trainer": _patch_transformers,
    "lightning.pytorch.trainer.connectors.callback_connector": _patch_lightning,
    "pytorch_lightning.trainer.connectors.callback_connector": _patch_lightning,
}
